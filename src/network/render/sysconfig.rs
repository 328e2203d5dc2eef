//! sysconfig: ifcfg files as Red Hat's and SUSE's distributions have them, and what goes beside them.

use super::{Exists, File, HEADER, Target, cannot, has_program, link, sysconfig_rhel as rhel, sysconfig_suse as suse};
use crate::document::{Map, Value};
use crate::machine::Family;
use crate::network::model::{Dns, Interface, Kind, Method, Network, Subnet};
use crate::network::params::{self, Unit};
use std::collections::BTreeMap;
use std::fmt::Write;

/// cloud-init's name of the renderer.
pub const NAME: &str = "sysconfig";
const CONTROL: &str = "/etc/sysconfig/network";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const NM_CONF: &str = "/etc/NetworkManager/conf.d/99-cloud-init.conf";
/// Files that are written. Most have names that others' files have too: [`super::is_ours`].
pub const OWNED: &[&str] = &[
    "/etc/sysconfig/network-scripts/ifcfg-*",
    "/etc/sysconfig/network-scripts/route-*",
    "/etc/sysconfig/network-scripts/route6-*",
    "/etc/sysconfig/network-scripts/rule-*",
    "/etc/sysconfig/network-scripts/rule6-*",
    "/etc/sysconfig/network/ifcfg-*",
    "/etc/sysconfig/network/ifroute-*",
    NM_CONF,
    link::RULES,
    link::SUSE_RULES,
    link::OWNED,
];

/// Whether the root has network scripts, or wicked, or NetworkManager with its plugin for ifcfg files.
pub fn available(exists: &Exists, target: &Target) -> bool {
    let scripts = has_program(exists, "ifup") && has_program(exists, "ifdown");
    let any = |paths: &[&str]| paths.iter().any(|p| exists(p));
    match target.distro.family {
        Family::Redhat => {
            scripts && exists("/etc/sysconfig/network-scripts/network-functions")
                || any(&["/usr/share/dbus-1/system.d/nm-ifcfg-rh.conf", "/etc/dbus-1/system.d/nm-ifcfg-rh.conf"])
        }
        Family::Suse => scripts && any(&["/etc/sysconfig/network/config", "/etc/sysconfig/config"]),
        _ => false,
    }
}

/// Files for each device, the machine's switches and name servers, rules for names.
pub fn render(network: &Network, target: &Target) -> Vec<File> {
    let mut files = Vec::new();
    let is_suse = target.is_suse();
    for interface in network.interfaces.iter().filter(|i| is_known(i)) {
        files.extend(if is_suse { suse::files(network, interface) } else { rhel::files(network, interface) });
    }
    if !is_suse {
        let mut control = Variables::default();
        control.add("NETWORKING", "yes");
        // What routers advertise needs no switch.
        let is_own6 = |s: &Subnet| s.method == Method::Dhcp6 || s.address.as_ref().is_some_and(|a| a.is_v6());
        if network.interfaces.iter().any(|i| i.subnets.iter().any(is_own6)) {
            control.add("NETWORKING_IPV6", "yes");
            control.add("IPV6_AUTOCONF", "no");
        }
        files.push(control.to_file(CONTROL));
    }
    files.extend(name_servers(network));
    // The files name a device by its MAC address and its name, whichever of the two it has already.
    files.extend(link::rules(network, if is_suse { link::SUSE_RULES } else { link::RULES }, |_| true));
    files
}

/// Whether there are ifcfg files for such a device.
fn is_known(interface: &Interface) -> bool {
    let key = match &interface.kind {
        _ if interface.is_pattern() => "match",
        Kind::Ethernet | Kind::Infiniband | Kind::Bond { .. } | Kind::Bridge { .. } | Kind::Vlan { .. } => return true,
        Kind::Loopback if interface.addresses().next().is_none() => return false,
        Kind::Loopback => "addresses",
        Kind::Dummy => "dummy-devices",
        Kind::Wifi(_) => "access-points",
        Kind::Vrf { .. } => "vrfs",
        Kind::Tunnel(_) => "tunnels",
    };
    cannot(NAME, &interface.name, key);
    false
}

/// Shell variables, by name.
#[derive(Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets a variable.
    pub fn add(&mut self, key: impl Into<String>, value: impl ToString) {
        self.0.insert(key.into(), value.to_string());
    }

    /// Sets a variable where there is a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Sets a variable to `yes` or `no` where there is a value.
    pub fn yes_no(&mut self, key: &str, value: Option<bool>) {
        self.maybe(key, value.map(|v| if v { "yes" } else { "no" }));
    }

    /// The file, with quotes where a shell wants them.
    pub fn to_file(&self, path: impl Into<String>) -> File {
        let mut out = String::from(HEADER);
        for (key, value) in &self.0 {
            let _ = writeln!(out, "{key}={}", quoted(value));
        }
        File::public(path, out)
    }
}

/// A value as a shell takes it for one word.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/=,+%@-".contains(c);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    let mut out = String::from("\"");
    for c in value.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

/// Name servers and domains of an interface, from its subnets and itself.
pub fn dns_of(interface: &Interface) -> Dns {
    let mut dns = Dns::default();
    interface.subnets.iter().for_each(|s| dns.merge(&s.dns));
    dns.merge(&interface.dns);
    dns
}

/// All name servers of the machine, and NetworkManager told to leave them alone.
fn name_servers(network: &Network) -> Vec<File> {
    let mut all = Dns::default();
    network.interfaces.iter().for_each(|i| all.merge(&dns_of(i)));
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
    vec![File::public(RESOLV_CONF, text), File::public(NM_CONF, format!("{HEADER}[main]\ndns = none\n"))]
}

/// Whether the interface is brought up with the machine.
pub fn is_started(interface: &Interface) -> bool {
    !interface.is_manual() && interface.more.get("activation-mode").and_then(Value::as_str).is_none()
}

/// The MTU of the device, which a subnet may say too.
pub fn mtu(interface: &Interface) -> Option<u32> {
    interface.mtu.or_else(|| interface.subnets.iter().filter(|s| !s.is_v6()).find_map(|s| s.mtu))
}

/// The kernel's options of a bond in one text. Options go in cloud-init's order.
pub fn bonding(interface: &Interface, params: &Map) -> Option<String> {
    let mut out = Vec::new();
    for (name, value) in params.iter() {
        let text = match params::find(params::BOND, name).map(|p| p.unit) {
            Some(unit @ (Unit::Milliseconds | Unit::Seconds)) => params::milliseconds(value, unit)
                .map(|ms| if unit == Unit::Seconds { ms / 1000 } else { ms }.to_string()),
            Some(Unit::Bool) => Some(if value.is_true() { "1" } else { "0" }.to_owned()),
            Some(Unit::List) => value.as_list().map(|l| l.iter().filter_map(Value::text).collect::<Vec<_>>().join(",")),
            Some(_) => value.text(),
            None => None,
        };
        match text.filter(|t| !t.is_empty() && !t.contains(|c: char| c.is_control() || c.is_whitespace())) {
            Some(text) => out.push(format!("{name}={text}")),
            None => cannot(NAME, &interface.name, name),
        }
    }
    (!out.is_empty()).then(|| out.join(" "))
}

/// What neither of the two can say.
pub fn report(interface: &Interface, known: &[&str]) {
    let any = |given: &dyn Fn(&Subnet) -> bool| interface.subnets.iter().any(given);
    for (key, given) in [
        ("optional", interface.optional == Some(true)),
        // Nobody touches an interface that is brought up by hand.
        ("keep_configuration", interface.keep_configuration.is_some() && is_started(interface)),
        ("link-local", interface.link_local.is_some()),
        ("broadcast", any(&|s| s.odd_broadcast().is_some())),
        ("pointopoint", any(&|s| s.pointopoint.is_some())),
        ("scope", any(&|s| s.scope.is_some())),
        ("label", any(&|s| s.label.is_some())),
        ("lifetime", any(&|s| s.lifetime.is_some())),
    ] {
        if given {
            cannot(NAME, &interface.name, key);
        }
    }
    for (name, o) in [("dhcp4-overrides", &interface.dhcp4_overrides), ("dhcp6-overrides", &interface.dhcp6_overrides)]
    {
        for (key, given) in o.switches() {
            let key = format!("{name}.{key}");
            if given && !known.contains(&key.as_str()) {
                cannot(NAME, &interface.name, &key);
            }
        }
    }
    for key in interface.more.keys().filter(|k| *k != "activation-mode" && !known.contains(k)) {
        cannot(NAME, &interface.name, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::machine::Distro;
    use crate::network::{Macs, read, render};

    fn file(text: &str, distro: &str, name: &str) -> String {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let target = Target { distro: Distro::named(distro), ip_tool: true };
        let files = (render::by_name("sysconfig").unwrap().render)(&network, &target);
        let file = files.into_iter().find(|f| f.path.rsplit('/').next() == Some(name));
        file.map(|f| f.content.strip_prefix(HEADER).unwrap().to_owned()).unwrap_or_default()
    }

    fn subnet(subnet: &str, distro: &str) -> String {
        file(&format!("version: 1\nconfig: [{{type: physical, name: e, subnets: [{subnet}]}}]"), distro, "ifcfg-e")
    }

    #[test]
    fn every_way_to_an_ipv6_address() {
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
            "default 10.0.0.1 - e\ndefault fe80::1 - e\ndefault 10.0.0.9 - e metric 5\n10.9.0.0/16 10.0.0.9 - e table 7 onlink\n2001:db8::/32 ::9 - e metric 4\n"
        );
        assert_eq!(file(text, "sles", "resolv.conf"), "search a b\n");
    }

    #[test]
    fn a_lease_brings_the_default_route_only_where_nothing_else_does() {
        let two = |gateway: &str| {
            let text =
                format!("version: 2\nethernets: {{a: {{addresses: [10.0.0.2/8]{gateway}}}, b: {{dhcp4: true}}}}");
            file(&text, "rhel", "ifcfg-b").contains("DHCLIENT_SET_DEFAULT_ROUTE=no\n")
        };
        assert!(two(", routes: [{to: default, via: 10.0.0.1}]") && !two("") && !two(", gateway4: 10.0.0.1"));
    }

    #[test]
    fn names_go_by_rules_and_a_gateway_is_said_once() {
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
    fn what_is_brought_up_by_hand_and_what_a_lease_may_say() {
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
    fn values_are_one_word_for_a_shell() {
        assert_eq!(quoted("mode=802.3ad"), "mode=802.3ad");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("x$(reboot)`y`\"\\\n"), "\"x\\$(reboot)\\`y\\`\\\"\\\\\"");
    }

    #[test]
    fn available_where_something_reads_the_files() {
        let with = |distro: &str, paths: &[&str]| {
            let target = Target { distro: Distro::named(distro), ip_tool: true };
            available(&|p: &str| paths.contains(&p), &target)
        };
        let scripts = ["/usr/sbin/ifup", "/usr/sbin/ifdown", "/etc/sysconfig/network-scripts/network-functions"];
        assert!(with("centos", &scripts));
        assert!(!with("debian", &scripts));
        assert!(with("rhel", &["/usr/share/dbus-1/system.d/nm-ifcfg-rh.conf"]));
        assert!(with("sles", &["/usr/sbin/ifup", "/usr/sbin/ifdown", "/etc/sysconfig/network/config"]));
        assert!(!with("sles", &["/usr/sbin/ifup"]));
    }
}
