//! sysconfig: the ifcfg files of Red Hat's and SUSE's distributions, and the files that belong to them.

mod common;
mod rhel;
mod suse;
mod variables;

use super::grammar::{Filter, Grammar};
use super::merge::Merge;
use super::renderer::{Evidence, File, HEADER, Owned, Renderer, Target, Unsupported};
use super::udev;
use crate::base::manual;
use crate::machine::Family;
use crate::network::model::{DeviceType, Dns, Interface, Method, Network, Subnet};
use std::fmt::Write;
use variables::Variables;

/// What ifcfg files may have: Red Hat's (initscripts' sysconfig.txt; nm-settings-ifcfg-rh(5)), SUSE's (ifcfg(5) of wicked), and the
/// kernel's options of bonds.
const GRAMMAR: Grammar = Grammar(include_str!("grammar.txt"));

const CONTROL: &str = "/etc/sysconfig/network";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const NM_CONF: &str = "/etc/NetworkManager/conf.d/99-cloud-init.conf";

/// Network scripts, NetworkManager with its plugin for ifcfg files, or wicked.
const DETECTED_BY: &[Evidence] = &[
    Evidence {
        family: Some(Family::Redhat),
        programs: &["ifup", "ifdown"],
        any_path: &["/etc/sysconfig/network-scripts/network-functions"],
    },
    Evidence {
        family: Some(Family::Redhat),
        programs: &[],
        any_path: &["/usr/share/dbus-1/system.d/nm-ifcfg-rh.conf", "/etc/dbus-1/system.d/nm-ifcfg-rh.conf"],
    },
    Evidence {
        family: Some(Family::Suse),
        programs: &["ifup", "ifdown"],
        any_path: &["/etc/sysconfig/network/config", "/etc/sysconfig/config"],
    },
];

pub static RENDERER: Renderer = Renderer {
    name: "sysconfig",
    title: "network scripts, NetworkManager's ifcfg files, wicked",
    detected_by: DETECTED_BY,
    owned: &[
        Owned::new("/etc/sysconfig/network-scripts/ifcfg-*"),
        Owned::new("/etc/sysconfig/network-scripts/route-*"),
        Owned::new("/etc/sysconfig/network-scripts/route6-*"),
        Owned::new("/etc/sysconfig/network-scripts/rule-*"),
        Owned::new("/etc/sysconfig/network-scripts/rule6-*"),
        Owned::new("/etc/sysconfig/network/ifcfg-*"),
        Owned::new("/etc/sysconfig/network/ifroute-*"),
        Owned::new("/etc/sysconfig/network/ifsysctl-*"),
        Owned::new(NM_CONF),
        udev::RULES,
        udev::SUSE_RULES,
        udev::LINKS,
    ],
    image_files: &[],
    reads_run: false,
    reload: &[],
    takes_server_parts: false,
    takes_version_2: false,
    limits: manual(
        "Patterns in `match`, dummy devices, Wi-Fi, VRFs and tunnels; `optional`, `link-local`, `keep_configuration` \
             other than a plain yes, an unusual broadcast address, `pointopoint`, an address's scope, label and lifetime, \
             routes of a type other than unicast (SUSE has blackhole, prohibit, throw and unreachable), the bond parameter \
             `active_slave`, and most DHCP overrides. SUSE's also lack routing rules and an MTU of IPv6.",
    ),
    render,
};

/// Renders the files of each device, the machine's settings and name servers, and rules for names.
fn render(network: &Network, target: &Target, unsupported: &mut Unsupported) -> Vec<File> {
    let mut files = Vec::new();
    let is_suse = target.is_suse();
    let files_of = if is_suse { suse::files } else { rhel::files };
    for interface in &network.interfaces {
        if is_known(interface, unsupported) {
            files.extend(files_of(network, interface, unsupported));
        }
    }
    if !is_suse {
        let mut control = Variables::default();
        control.add("NETWORKING", "yes");
        // Router advertisements need no setting.
        let is_own6 = |s: &Subnet| s.method == Method::Dhcp6 || s.address.as_ref().is_some_and(|a| a.is_v6());
        if network.interfaces.iter().any(|i| i.subnets.iter().any(is_own6)) {
            control.add("NETWORKING_IPV6", "yes");
            control.add("IPV6_AUTOCONF", "no");
        }
        files.push(File { merge: Some(Merge::Control), ..control.to_file(CONTROL) });
    }
    files.extend(name_servers(network));
    // The files have both MAC address and name of a device, so all devices get a rule, not only those that are renamed.
    let rules = if is_suse { udev::SUSE_RULES_PATH } else { udev::RULES_PATH };
    files.extend(udev::rules_file(network, rules, |_| true));
    files
}

/// Whether there are ifcfg files for such a device.
fn is_known(interface: &Interface, unsupported: &mut Unsupported) -> bool {
    let key = match &interface.device_type {
        _ if interface.is_pattern() => "match",
        DeviceType::Ethernet
        | DeviceType::Infiniband
        | DeviceType::Bond { .. }
        | DeviceType::Bridge { .. }
        | DeviceType::Vlan { .. } => return true,
        DeviceType::Loopback if interface.addresses().next().is_none() => return false,
        DeviceType::Loopback => "addresses",
        DeviceType::Dummy => "dummy-devices",
        DeviceType::Wifi(_) => "access-points",
        DeviceType::Vrf { .. } => "vrfs",
        DeviceType::Tunnel(_) => "tunnels",
    };
    unsupported.key(interface, key);
    // A device that is found by a pattern may have the name that others refer to.
    if !interface.is_pattern() {
        unsupported.leave_out(interface);
    }
    false
}

/// Whether there can be an ifcfg file with these variables, after what the table's stack would refuse has been removed.
fn filter(table: &str, variables: &mut Variables, interface: &Interface, unsupported: &mut Unsupported) -> bool {
    let mut report = |key: &str| unsupported.key(interface, key);
    let mut filter = Filter::new(GRAMMAR, table, &mut report);
    variables.retain(|key, value| filter.keep(key, value));
    let is_whole = filter.is_whole;
    if !is_whole {
        unsupported.leave_out(interface);
    }
    is_whole
}

/// resolv.conf with all name servers, and NetworkManager's setting that keeps it from replacing the file, if there are any: those of
/// leases are in its own file.
fn name_servers(network: &Network) -> Vec<File> {
    let mut all = Dns::default();
    network.interfaces.iter().for_each(|i| all.merge(&i.name_servers()));
    all.merge(&network.dns);
    if all.is_empty() {
        return Vec::new();
    }
    let mut text = String::from(HEADER);
    for server in &all.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !all.search.is_empty() {
        let _ = writeln!(text, "search {}", all.search.join(" "));
    }
    let resolv_conf = File { merge: Some(Merge::ResolvConf), ..File::public(RESOLV_CONF, text) };
    let own = File::public(NM_CONF, format!("{HEADER}[main]\ndns = none\n"));
    std::iter::once(resolv_conf).chain((!all.servers.is_empty()).then_some(own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::{files, target};

    fn file(text: &str, distro: &str, name: &str) -> String {
        let file = files(&RENDERER, text, distro).into_iter().find(|f| f.path.rsplit('/').next() == Some(name));
        file.map(|f| f.content.strip_prefix(HEADER).unwrap().to_owned()).unwrap_or_default()
    }

    fn subnet(subnet: &str, distro: &str) -> String {
        file(&format!("version: 1\nconfig: [{{type: physical, name: e, subnets: [{subnet}]}}]"), distro, "ifcfg-e")
    }

    #[test]
    fn reports_gateways_of_the_other_family() {
        let text = "version: 2\nethernets: {e: {addresses: [10.0.0.2/24, '2001:db8::2/64'], routes: [{to: 10.9.0.0/16, via: '2001:db8::1'}]}}";
        let network = crate::network::testing::network(text);
        for distro in ["rhel", "sles"] {
            let report = crate::base::problem::Problems::new();
            let files = RENDERER.files(&network, &target(distro), &report);
            assert_eq!(report.texts(crate::base::problem::Severity::Warning).len(), 1, "{distro}: {report:?}");
            assert!(!files.iter().any(|file| file.content.contains("10.9.0.0")));
        }
    }

    #[test]
    fn reports_port_parameters_that_are_no_numbers() {
        let text = "version: 1\nconfig: [{type: physical, name: e}, {type: bridge, name: b, bridge_interfaces: [e], \
                    params: {bridge_portprio: e high, bridge_pathcost: e 70000}}]";
        let network = crate::network::testing::network(text);
        for distro in ["rhel", "sles"] {
            let report = crate::base::problem::Problems::new();
            let files = RENDERER.files(&network, &target(distro), &report);
            assert_eq!(report.texts(crate::base::problem::Severity::Warning).len(), 2, "{distro}: {report:?}");
            assert!(!files.iter().any(|file| file.content.contains("high") || file.content.contains("70000")));
        }
    }

    #[test]
    fn reports_port_parameters_without_a_port() {
        for text in [
            "version: 1\nconfig: [{type: bridge, name: b, bridge_interfaces: [], params: {bridge_portprio: 4}}]",
            "version: 2\nbridges: {b: {parameters: {port-priority: [4]}}}",
        ] {
            let report = crate::base::problem::Problems::new();
            let input = crate::network::input::Input::config(crate::document::yaml::parse("t", text).unwrap());
            input.read("t", &crate::network::mac::Macs::default(), &report).unwrap();
            let texts = report.texts(crate::base::problem::Severity::Warning);
            assert!(texts.len() == 1 && texts[0].contains("each port with its value"), "{texts:?}");
        }
    }

    #[test]
    fn each_ipv6_method() {
        let rhel = |kind: &str| subnet(&format!("{{type: {kind}}}"), "rhel");
        let body = |more: &str, after: &str| {
            format!("BOOTPROTO=none\nDEVICE=e\n{more}IPV6INIT=yes\n{after}ONBOOT=yes\nTYPE=Ethernet\nUSERCTL=no\n")
        };
        assert_eq!(rhel("dhcp6"), body("DHCPV6C=yes\n", ""));
        assert_eq!(rhel("ipv6_dhcpv6-stateful"), body("DHCPV6C=yes\n", "IPV6_AUTOCONF=no\nIPV6_FAILURE_FATAL=yes\n"));
        assert_eq!(rhel("ipv6_dhcpv6-stateless"), body("DHCPV6C=yes\nDHCPV6C_OPTIONS=-S\n", "IPV6_AUTOCONF=yes\n"));
        assert_eq!(rhel("ipv6_slaac"), body("", "IPV6_AUTOCONF=yes\n"));
        let suse = |kind: &str| subnet(&format!("{{type: {kind}}}"), "sles");
        assert_eq!(suse("ipv6_dhcpv6-stateful"), "BOOTPROTO=dhcp6\nDHCLIENT6_MODE=managed\nSTARTMODE=auto\n");
        assert_eq!(suse("ipv6_dhcpv6-stateless"), "BOOTPROTO=dhcp6\nDHCLIENT6_MODE=info\nSTARTMODE=auto\n");
    }

    #[test]
    fn addresses_gateways_and_routes() {
        let text = "version: 2\nethernets: {e: {addresses: [10.0.0.2/8, 10.0.0.3/8, '::2/64', '::3/64', '::4/64'], gateway4: 10.0.0.1, gateway6: 'fe80::1', mtu: 1400,\
            nameservers: {search: [a, b]}, routes: [{to: 0.0.0.0/0, via: 10.0.0.9, metric: 5}, {to: 10.9.0.0/16, via: 10.0.0.9, table: 7, on-link: true}, {to: '2001:db8::/32', via: '::9', metric: 4}],\
            routing-policy: [{from: 10.0.0.0/8, table: 7, priority: 3}]}}";
        assert_eq!(
            file(text, "rhel", "ifcfg-e"),
            "BOOTPROTO=none\nDEFROUTE=yes\nDEVICE=e\nDOMAIN=\"a b\"\nGATEWAY=10.0.0.1\nIPADDR=10.0.0.2\nIPADDR1=10.0.0.3\nIPV6ADDR=::2/64\n\
             IPV6ADDR_SECONDARIES=\"::3/64 ::4/64\"\nIPV6INIT=yes\nIPV6_AUTOCONF=no\nIPV6_DEFAULTGW=fe80::1\nIPV6_FORCE_ACCEPT_RA=no\n\
             MTU=1400\nNETMASK=255.0.0.0\nNETMASK1=255.0.0.0\nONBOOT=yes\nTYPE=Ethernet\nUSERCTL=no\n"
        );
        assert_eq!(
            file(text, "rhel", "route-e"),
            "ADDRESS0=0.0.0.0\nADDRESS1=10.9.0.0\nGATEWAY0=10.0.0.9\nGATEWAY1=10.0.0.9\nMETRIC0=5\nNETMASK0=0.0.0.0\nNETMASK1=255.255.0.0\nOPTIONS1=\"table 7 onlink\"\n"
        );
        assert_eq!(file(text, "rhel", "route6-e"), "2001:db8::/32 via ::9 metric 4 dev e\n");
        assert_eq!(file(text, "rhel", "rule-e"), "from 10.0.0.0/8 table 7 priority 3\n");
        assert_eq!(
            file(text, "sles", "ifcfg-e"),
            "BOOTPROTO=static\nIPADDR=10.0.0.2\nIPADDR1=10.0.0.3\nIPADDR6=::2/64\nIPADDR6_1=::3/64\nIPADDR6_2=::4/64\nMTU=1400\nNETMASK=255.0.0.0\nNETMASK1=255.0.0.0\nSTARTMODE=auto\n"
        );
        assert_eq!(
            file(text, "sles", "ifroute-e"),
            "default 10.0.0.1 - e\ndefault fe80::1 - e\ndefault 10.0.0.9 - e metric 5\n10.0.0.9/32 - - e table 7\n10.9.0.0/16 10.0.0.9 - e table 7\n2001:db8::/32 ::9 - e metric 4\n"
        );
        assert_eq!(file(text, "sles", "resolv.conf"), "search a b\n");
    }

    #[test]
    fn leases_default_route_is_used_without_another() {
        let two = |gateway: &str| {
            let text =
                format!("version: 2\nethernets: {{a: {{addresses: [10.0.0.2/8]{gateway}}}, b: {{dhcp4: true}}}}");
            file(&text, "rhel", "ifcfg-b").contains("DHCLIENT_SET_DEFAULT_ROUTE=no\n")
        };
        assert!(two(", routes: [{to: default, via: 10.0.0.1}]") && !two("") && !two(", gateway4: 10.0.0.1"));
    }

    #[test]
    fn writes_names_in_rules_and_a_gateway_once() {
        let text = "version: 2\nethernets: {lan: {match: {macaddress: '52:54:00:00:00:0A'}, addresses: [10.0.0.2/8], gateway4: 10.0.0.1, routes: [{to: default, via: 10.0.0.1}]}}";
        let rule = "SUBSYSTEM==\"net\", ACTION==\"add\", DRIVERS==\"?*\", ATTR{address}==\"52:54:00:00:00:0a\", NAME=\"lan\"\n";
        assert_eq!(file(text, "rhel", "70-persistent-net.rules"), rule);
        assert_eq!(file(text, "sles", "85-persistent-net-cloud-init.rules"), rule);
        assert!(file(text, "rhel", "ifcfg-lan").contains("GATEWAY=10.0.0.1\n"));
        assert_eq!(file(text, "rhel", "route-lan"), "");
        let slaac = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: ipv6_slaac}]}]";
        assert_eq!(file(slaac, "rhel", "network"), "NETWORKING=yes\n");
    }

    #[test]
    fn manual_start_and_overrides_of_a_lease() {
        let manual = "{type: dhcp, control: manual}";
        assert!(
            subnet(manual, "rhel").contains("ONBOOT=no\n") && subnet(manual, "sles").contains("STARTMODE=manual\n")
        );
        assert!(subnet("{type: dhcp, control: hotplug}", "sles").contains("STARTMODE=hotplug\n"));
        let text = "version: 2\nethernets: {e: {dhcp4: true, wakeonlan: true, dhcp4-overrides: {route-metric: 7, use-dns: false, use-routes: true, hostname: h}}}";
        let e = file(text, "rhel", "ifcfg-e");
        for line in ["ETHTOOL_OPTS=\"wol g\"", "IPV4_ROUTE_METRIC=7", "PEERDNS=no", "PEERROUTES=yes", "DHCP_HOSTNAME=h"]
        {
            assert!(e.contains(line), "{line}\n{e}");
        }
    }

    #[test]
    fn a_metric_is_written_for_every_method() {
        for (own, line) in [
            ("{type: static, address: 10.0.0.2/8, metric: 5}", "IPV4_ROUTE_METRIC=5\n"),
            ("{type: static, address: '::2/64', metric: 5}", "IPV6_ROUTE_METRIC=5\n"),
            ("{type: ipv6_slaac, metric: 5}", "IPV6_ROUTE_METRIC=5\n"),
        ] {
            assert!(subnet(own, "rhel").contains(line), "{own}");
        }
    }

    #[test]
    fn brings_up_manual_subnet_only_for_its_mtu() {
        assert!(subnet("{type: manual}", "rhel").contains("ONBOOT=no\n"));
        let text = "version: 1\nconfig: [{type: physical, name: e, mtu: 1400, subnets: [{type: manual}]}]";
        assert!(file(text, "rhel", "ifcfg-e").contains("ONBOOT=yes\n"));
    }

    #[test]
    fn last_gateway_of_equal_metric_is_used() {
        let two = |first: &str, more: &str| {
            let text = format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: {first}}},\
                 {{type: static, address: 192.0.2.2/24, gateway: 192.0.2.1{more}}}]}}]"
            );
            [file(&text, "rhel", "ifcfg-e"), file(&text, "rhel", "route-e")]
        };
        let [ifcfg, route] = two("192.0.2.3/24, gateway: 192.0.2.9", "");
        assert!(ifcfg.contains("GATEWAY=192.0.2.1\n") && route.is_empty(), "{ifcfg}{route}");
        // It is not in the first address's network.
        let [ifcfg, route] = two("10.0.0.2/8, gateway: 10.0.0.1", "");
        assert!(ifcfg.contains("GATEWAY=192.0.2.1\n") && route.contains("GATEWAY0=192.0.2.1\n"), "{ifcfg}{route}");
        assert!(!route.contains("10.0.0.1"), "{route}");
        let [ifcfg, route] = two("10.0.0.2/8, gateway: 10.0.0.1", ", metric: 9");
        assert!(
            ifcfg.contains("GATEWAY=10.0.0.1\n") && route.contains("GATEWAY0=192.0.2.1\nMETRIC0=9\n"),
            "{ifcfg}{route}"
        );
    }

    #[test]
    fn what_the_image_has_in_shared_files_stays() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: dhcp6}]}, {type: nameserver, address: [1.1.1.1, 9.9.9.9], search: b.example}]";
        let merged = |name: &str, old: &str| {
            let file = files(&RENDERER, text, "rhel").into_iter().find(|f| f.path.ends_with(name)).unwrap();
            let new = file.merge.unwrap().merged(old, &file.content);
            // It is merged once, whatever the file has of an earlier instance.
            let earlier = file.content.replace("9.9.9.9", "8.8.8.8");
            assert_eq!(file.merge.unwrap().merged(&file.merge.unwrap().merged(old, &earlier), &file.content), new);
            new
        };
        assert_eq!(
            merged("resolv.conf", "options edns0\nsearch a.example\nnameserver 9.9.9.9\n"),
            format!(
                "options edns0\nsearch a.example\nnameserver 9.9.9.9\n{HEADER}nameserver 1.1.1.1\nsearch a.example b.example\n"
            )
        );
        assert!(merged("resolv.conf", "").starts_with(HEADER));
        assert_eq!(
            merged("network", "NETWORKING=no\nNOZEROCONF=yes\n"),
            format!("{HEADER}IPV6_AUTOCONF=no\nNETWORKING=yes\nNETWORKING_IPV6=yes\nNOZEROCONF=yes\n")
        );
    }

    #[test]
    fn is_available_if_a_program_reads_the_files() {
        let with = |distro: &str, paths: &[&str]| RENDERER.is_available(&|p: &str| paths.contains(&p), &target(distro));
        let scripts = ["/usr/sbin/ifup", "/usr/sbin/ifdown", "/etc/sysconfig/network-scripts/network-functions"];
        assert!(with("centos", &scripts));
        assert!(!with("debian", &scripts));
        assert!(with("rhel", &["/usr/share/dbus-1/system.d/nm-ifcfg-rh.conf"]));
        assert!(with("sles", &["/usr/sbin/ifup", "/usr/sbin/ifdown", "/etc/sysconfig/network/config"]));
        assert!(!with("sles", &["/usr/sbin/ifup"]));
    }

    #[test]
    fn on_link_default_route_gets_its_own_line() {
        let text = |address: &str, to: &str, gateway: &str| {
            format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: '{address}',\
                 routes: [{{network: '{to}', gateway: '{gateway}'}}]}}]}}]"
            )
        };
        let v4 = text("192.0.2.2/32", "0.0.0.0/0", "198.51.100.1");
        assert!(!file(&v4, "rhel", "ifcfg-e").contains("GATEWAY"));
        assert_eq!(
            file(&v4, "rhel", "route-e"),
            "ADDRESS0=0.0.0.0\nGATEWAY0=198.51.100.1\nNETMASK0=0.0.0.0\nOPTIONS0=onlink\n"
        );
        // wicked has no `onlink` for a single gateway: a route to the gateway makes it reachable.
        assert_eq!(file(&v4, "sles", "ifroute-e"), "198.51.100.1/32 - - e\ndefault 198.51.100.1 - e\n");
        let v6 = text("2001:db8::2/128", "::/0", "2001:db8::1");
        assert!(!file(&v6, "rhel", "ifcfg-e").contains("IPV6_DEFAULTGW"));
        assert_eq!(file(&v6, "rhel", "route6-e"), "::/0 via 2001:db8::1 dev e onlink\n");
    }

    #[test]
    fn typed_route_never_leads_to_the_device() {
        let text = "version: 2\nethernets: {e: {routes: [{to: 10.1.0.0/16, type: blackhole, metric: 3, table: 7}, {to: '2001:db8::/32', via: '::1', type: prohibit}, {to: 10.2.0.0/16, type: local}]}}";
        assert_eq!([file(text, "rhel", "route-e"), file(text, "rhel", "route6-e")], ["", ""]);
        assert_eq!(
            file(text, "sles", "ifroute-e"),
            "10.1.0.0/16 - - e metric 3 table 7 blackhole\n2001:db8::/32 - - e prohibit\n"
        );
    }

    #[test]
    fn addresses_of_devices_have_colons() {
        let text = "version: 2\nethernets: {e: {macaddress: 52-54-00-00-00-0A}}";
        for (distro, line) in [("rhel", "MACADDR=52:54:00:00:00:0a\n"), ("sles", "LLADDR=52:54:00:00:00:0a\n")] {
            let file = file(text, distro, "ifcfg-e");
            assert!(file.contains(line), "{file}");
        }
    }

    #[test]
    fn wicked_finds_a_bridge_by_its_own_file() {
        let text = "version: 2\nethernets: {p: {}}\nbridges: {br: {interfaces: [p]}}";
        assert!(file(text, "sles", "ifcfg-br").contains("BRIDGE=yes\nBRIDGE_PORTS=p\n"));
        assert!(!file(text, "sles", "ifcfg-p").contains("BRIDGE"));
    }

    #[test]
    fn wicked_has_settings_of_the_kernel() {
        let of = |keys: &str, name: &str| file(&format!("version: 2\nethernets: {{e.5: {{{keys}}}}}"), "sles", name);
        assert_eq!(
            of("accept-ra: false, ipv6-privacy: true", "ifsysctl-e.5"),
            "net/ipv6/conf/e.5/accept_ra = 0\nnet/ipv6/conf/e.5/use_tempaddr = 2\n"
        );
        assert_eq!(of("dhcp4: true", "ifsysctl-e.5"), "");
        assert!(of("infiniband-mode: connected", "ifcfg-e.5").contains("IPOIB_MODE=connected\n"));
    }

    #[test]
    fn infiniband_has_no_lladdr_and_variables_are_unique() {
        let guid = "a0:00:02:20:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1";
        let text = format!("version: 1\nconfig: [{{type: infiniband, name: lan, mac_address: '{guid}'}}]");
        let lan = file(&text, "sles", "ifcfg-lan");
        assert!(lan.contains("IPOIB_MODE=datagram\n") && !lan.contains("LLADDR"), "{lan}");
        let addresses: Vec<String> = (1..=7).map(|n| format!("10.0.0.{n}/8")).collect();
        let text = format!("version: 2\nethernets: {{e: {{addresses: [{}, '::2/64']}}}}", addresses.join(", "));
        let e = file(&text, "sles", "ifcfg-e");
        assert!(e.contains("IPADDR5=10.0.0.6\nIPADDR6=::2/64\nIPADDR7=10.0.0.7\n") && e.contains("NETMASK7="), "{e}");
    }
}
