//! systemd-networkd: .network, .netdev and .link files (systemd.network(5), systemd.netdev(5), systemd.link(5)).

mod netdev;
mod network;

use super::grammar::{self, Grammar};
use super::ini;
use super::renderer::{Evidence, File, HEADER, Owned, Renderer, Target, Unsupported};
use super::udev;
use crate::base::manual;
use crate::network::model::{DeviceType, Network};

/// What the files may have (systemd.network(5), systemd.netdev(5), versions 252 to 262). networkd ignores a line that it does not
/// know, and what is left may mean something else.
/// The grammars of .network and of .netdev files, which know sections of the same name with other keys.
const GRAMMAR: Grammar = Grammar(include_str!("grammar.txt"));
const NETDEV: Grammar = Grammar(include_str!("grammar-netdev.txt"));

/// networkd reads its files as this user.
const OWNER: &str = "systemd-network:systemd-network";

pub static RENDERER: Renderer = Renderer {
    name: "networkd",
    title: "systemd-networkd",
    detected_by: &[Evidence {
        family: None,
        programs: &["systemctl"],
        any_path: &["/usr/lib/systemd/systemd-networkd", "/lib/systemd/systemd-networkd"],
    }],
    owned: &[
        Owned::new("/etc/systemd/network/10-cloud-init-*.network"),
        Owned::new("/etc/systemd/network/10-cloud-init-*.netdev"),
        udev::LINKS,
    ],
    image_files: &[],
    reads_run: true,
    reload: &["networkctl", "reload"],
    takes_server_parts: true,
    takes_version_2: false,
    limits: manual(
        "Wi-Fi networks, the overrides `use-mtu` and `use-routes` of DHCPv6, the bond parameters `num_unsol_na` and `use_carrier`, and the bridge \
             parameters `bridge_waitport`, `bridge_gcint`, `bridge_hw` and `bridge_maxwait`.",
    ),
    render,
};

/// One .network file for each interface, a .netdev file for each device to create, .link files for names.
fn render(network: &Network, _: &Target, unsupported: &mut Unsupported) -> Vec<File> {
    let mut files = Vec::new();
    for interface in &network.interfaces {
        if interface.device_type == DeviceType::Loopback && interface.addresses().next().is_none() {
            continue;
        }
        let stem = format!("/etc/systemd/network/10-cloud-init-{}", interface.name);
        let mut sections = network::sections(network, interface, unsupported);
        // Without [Match] networkd ignores the file.
        if !grammar::filter(GRAMMAR, &mut sections, 1, |key| unsupported.key(interface, key)) {
            unsupported.leave_out(interface);
            continue;
        }
        let mut netdev = netdev::sections(interface, unsupported);
        if let Some((sections, _)) = &mut netdev {
            // networkd refuses a device without what its kind requires, and what is configured for it would wait for ever.
            if !grammar::filter(NETDEV, sections, 2, |key| unsupported.key(interface, key)) {
                unsupported.leave_out(interface);
                continue;
            }
        }
        files.push(File {
            owner: Some(OWNER),
            ..File::public(format!("{stem}.network"), ini::write(HEADER, &sections))
        });
        if let Some((sections, secret)) = netdev {
            files.push(File {
                owner: Some(OWNER),
                mode: if secret { 0o600 } else { 0o644 },
                ..File::public(format!("{stem}.netdev"), ini::write(HEADER, &sections))
            });
        }
    }
    files.extend(udev::link_files(network));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Problems;
    use crate::network::mac::Macs;
    use crate::network::testing::{files, network_for, target};

    fn file(text: &str, name: &str) -> String {
        let path = format!("/etc/systemd/network/10-cloud-init-{name}");
        let file = files(&RENDERER, text, "debian").into_iter().find(|f| f.path == path);
        file.unwrap().content.replace(HEADER, "")
    }

    #[test]
    fn dhcp_gives_the_mtu_unless_the_configuration_does() {
        let of = |device: &str| file(&format!("version: 2\nethernets: {{e: {device}}}"), "e.network");
        assert!(of("{dhcp4: true}").contains("[DHCPv4]\nUseMTU=yes\n"));
        assert!(!of("{dhcp4: true, mtu: 1400}").contains("UseMTU"));
        assert!(of("{dhcp4: true, dhcp4-overrides: {use-mtu: false}}").contains("UseMTU=no\n"));
        assert!(!of("{dhcp6: true}").contains("UseMTU"));
    }

    #[test]
    fn a_refused_device_has_no_file() {
        let of = |name: &str| {
            let text = format!("version: 2\nbridges: {{{name}: {{dhcp4: true}}}}\nethernets: {{e: {{dhcp4: true}}}}");
            let paths = files(&RENDERER, &text, "debian").into_iter().map(|f| f.path);
            paths.filter(|p| p.contains(name)).count()
        };
        assert_eq!([of("bridge789012345"), of("bridge7890123456")], [2, 0]);
    }

    #[test]
    fn dhcpv6_needs_link_local_addresses() {
        let of = |families: &str| {
            file(&format!("version: 2\nethernets: {{e: {{dhcp6: true, link-local: {families}}}}}"), "e.network")
        };
        assert!(of("[ipv6]").contains("DHCP=ipv6\n") && of("[ipv4, ipv6]").contains("DHCP=ipv6\n"));
        assert!(of("[ipv4]").contains("DHCP=no\n") && of("[]").contains("DHCP=no\n"));
    }

    #[test]
    fn nothing_refers_to_a_refused_device() {
        let text = "version: 2\nethernets: {e: {}, f: {}}\nvrfs: {v: {table: 0, interfaces: [e]}}\n\
            bonds: {bond012345678901: {interfaces: [f]}}\n\
            vlans: {a: {id: 5, link: bond012345678901}, b: {id: 6, link: a}, c: {id: 7, link: e}}\n";
        let network = crate::network::testing::network(text);
        let report = Problems::new();
        let files = RENDERER.files(&network, &target("debian"), &report);
        let paths: Vec<_> = files.iter().map(|f| f.path.rsplit('-').next().unwrap()).collect();
        assert_eq!(paths, ["e.network", "f.network", "c.network", "c.netdev"]);
        assert!(files.iter().all(|f| !f.content.contains("VRF=") && !f.content.contains("Bond=")));
        let said = report.texts(crate::base::problem::Severity::Warning);
        for what in ["table of v", "name of bond012345678901", "link of a", "link of b"] {
            assert!(said.iter().any(|text| text.to_lowercase().contains(what)), "{what}: {said:?}");
        }
    }

    #[test]
    fn overrides_of_dhcpv6_are_those_that_networkd_knows() {
        let keys = "route-metric: 9, use-dns: false, use-routes: false, use-mtu: false";
        let text = format!(
            "version: 2\nethernets: {{e: {{dhcp4: true, dhcp4-overrides: {{{keys}}}, dhcp6: true, dhcp6-overrides: {{{keys}}}}}}}"
        );
        let e = file(&text, "e.network");
        assert!(e.contains("[DHCPv4]\nRouteMetric=9\nUseDNS=no\nUseRoutes=no\nUseMTU=no\n"), "{e}");
        assert!(e.ends_with("[DHCPv6]\nRouteMetric=9\nUseDNS=no\n"), "{e}");
    }

    #[test]
    fn what_routers_advertise_is_left_to_them() {
        let of = |kind: &str| {
            let text = format!("version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: {kind}}}]}}]");
            file(&text, "e.network")
        };
        for kind in ["ipv6_slaac", "ipv6_dhcpv6-stateless"] {
            assert!(of(kind).ends_with("[Network]\nDHCP=no\n"), "{}", of(kind));
        }
        assert!(of("ipv6_dhcpv6-stateful").contains("DHCP=ipv6\n"));
    }

    #[test]
    fn name_servers_keep_port_device_and_name() {
        let servers = "9.9.9.9#dns.example 9.9.9.9:853 fe80::1%e [2001:db8::1]:53";
        let text = format!(
            "version: 2\nethernets: {{e: {{nameservers: {{addresses: ['{servers}', dns.example, '9.9.9.9:x']}}}}}}"
        );
        assert!(file(&text, "e.network").contains(&format!("DNS={servers}\n")), "{}", file(&text, "e.network"));
    }

    #[test]
    fn a_bridge_without_ports_needs_no_carrier() {
        let of = |more: &str, name: &str| {
            file(&format!("version: 2\nbridges: {{a: {{interfaces: [e]}}, b: {{{more}}}}}"), name)
        };
        assert!(of("", "b.network").contains("ConfigureWithoutCarrier=yes\n"));
        assert!(of("ignore-carrier: false", "b.network").contains("ConfigureWithoutCarrier=no\n"));
        assert!(!of("", "a.network").contains("Carrier"));
    }

    #[test]
    fn advertisements_have_overrides_and_a_token() {
        let of = |keys: &str| file(&format!("version: 2\nethernets: {{e: {{{keys}}}}}"), "e.network");
        let overrides = of("ra-overrides: {use-dns: false, use-domains: route, table: 7}");
        assert!(overrides.ends_with("[IPv6AcceptRA]\nUseDNS=no\nUseDomains=route\nRouteTable=7\n"), "{overrides}");
        for (given, token) in [("stable-privacy", "prefixstable"), ("eui64", "eui64")] {
            let text = of(&format!("ipv6-address-generation: {given}"));
            assert!(text.ends_with(&format!("[IPv6AcceptRA]\nToken={token}\n")), "{text}");
        }
    }

    #[test]
    fn rules_without_prefix_are_for_hosts() {
        let text = "version: 2\nethernets: {e: {routing-policy: [{from: 10.7.0.9, to: '2001:db8::/32', table: 4}]}}";
        assert!(file(text, "e.network").ends_with("[RoutingPolicyRule]\nFrom=10.7.0.9\nTo=2001:db8::/32\nTable=4\n"));
    }

    #[test]
    fn by_hand_and_kept() {
        let of = |more: &str| {
            let text = format!(
                "version: 1\nconfig: [{{type: physical, name: e{more}, subnets: [{{type: dhcp, control: manual}}]}}]"
            );
            file(&text, "e.network")
        };
        assert!(of("").contains("[Link]\nActivationPolicy=manual\n"));
        // A link that the root file system may need: wait-online waits for it, and it keeps what it has.
        let kept = of(", keep_configuration: true");
        assert!(kept.contains("KeepConfiguration=yes\n") && !kept.contains("ActivationPolicy"), "{kept}");
        assert!(of(", keep_configuration: dhcp-on-stop").contains("KeepConfiguration=dhcp-on-stop\n"));
    }

    #[test]
    fn a_match_is_never_empty() {
        let of = |found: &str| file(&format!("version: 2\nethernets: {{e: {{match: {found}}}}}"), "e.network");
        assert!(
            of("{macaddress: '52:54:00:00:00:01'}")
                .starts_with("\n[Match]\nMACAddress=52:54:00:00:00:01\nType=!vlan bond bridge\n")
        );
        assert!(of("{name: 'en*', driver: e1000}").starts_with("\n[Match]\nDriver=e1000\nName=en*\n"));
        assert!(of("{driver: e1000}").starts_with("\n[Match]\nDriver=e1000\n\n"));
        assert!(of("{macaddress: nonsense}").starts_with("\n[Match]\nName=e\n\n"));
        assert!(of("{}").starts_with("\n[Match]\nName=e\n\n"));
    }

    #[test]
    fn udev_may_rename_device_with_known_mac() {
        let text = "version: 2\nethernets:\n  lan: {match: {macaddress: '52:54:00:00:00:01'}, dhcp4: true}\n\
                    \x20 wan: {match: {macaddress: '52:54:00:00:00:02'}, set-name: wan0}\n\
                    bonds: {b: {interfaces: [lan]}}\nvlans: {v: {id: 5, link: lan}}\n";
        let macs = Macs::from_iter([("52:54:00:00:00:01", "eth0"), ("52:54:00:00:00:02", "eth1")]);
        let files = RENDERER.files(&network_for(text, &macs), &target("debian"), &Problems::new());
        let body = |name: &str| &files.iter().find(|f| f.path.ends_with(name)).unwrap().content;
        let lan = body("init-eth0.network");
        assert!(lan.contains("[Match]\nMACAddress=52:54:00:00:00:01\nType=!vlan bond bridge\n\n"), "{lan}");
        assert!(lan.contains("\nBond=b\nVLAN=v\n"), "{lan}");
        assert!(body("init-wan0.network").contains("[Match]\nMACAddress=52:54:00:00:00:02\nName=wan0\n\n"));
    }

    #[test]
    fn vrfs_rules_and_routes_use_its_table() {
        let text = "version: 2\nvrfs: {v: {table: 9, routes: [{to: 10.0.0.0/8, via: 10.7.0.1}], routing-policy: [{from: 10.7.0.9}, {from: 10.7.0.8, table: 4}]}}";
        let v = file(text, "v.network");
        assert!(v.contains("[Route]\nDestination=10.0.0.0/8\nGateway=10.7.0.1\nTable=9\n"), "{v}");
        assert!(v.contains("From=10.7.0.9\nTable=9\n") && v.contains("From=10.7.0.8\nTable=4\n"), "{v}");
    }

    #[test]
    fn leaves_out_values_of_several_lines() {
        let text = "version: 2\nethernets: {e: {routes: [{to: default, via: 10.0.0.1, congestion-window: \"9\\n[EVIL]\"}]}}\n\
            bridges: {br: {interfaces: [e], parameters: {path-cost: {e: \"5\\nEVIL=1\"}}}}";
        let e = file(text, "e.network");
        assert!(!e.contains("EVIL") && e.contains("\nGateway=10.0.0.1\n"), "{e}");
    }

    #[test]
    fn a_far_gateway_is_on_the_link() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/24, gateway: 10.9.0.1}]}]";
        let e = file(text, "e.network");
        assert!(e.contains("[Route]\nGateway=10.9.0.1\nGatewayOnLink=yes\n"), "{e}");
    }
}
