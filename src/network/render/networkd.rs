//! systemd-networkd: .network, .netdev and .link files (systemd.network(5), systemd.netdev(5), systemd.link(5)).

use super::ini::{self, Section};
use super::{Exists, File, HEADER, Target, cannot, has_program, link, networkd_netdev};
use crate::document::Value;
use crate::network::model::{DhcpOverrides, Dns, Interface, Kind, Method, Network, Route, Rule, Subnet, is_mac};

/// cloud-init's name of the renderer.
pub const NAME: &str = "networkd";
/// Files that are written.
pub const OWNED: &[&str] =
    &["/etc/systemd/network/10-cloud-init-*.network", "/etc/systemd/network/10-cloud-init-*.netdev", link::OWNED];
/// networkd reads its files as this user.
pub const OWNER: &str = "systemd-network:systemd-network";

/// Whether the root has networkd and can be told to use it.
pub fn available(exists: &Exists, _: &Target) -> bool {
    has_program(exists, "ip")
        && has_program(exists, "systemctl")
        && ["/usr/lib/systemd", "/lib/systemd"].iter().any(|d| exists(&format!("{d}/systemd-networkd")))
}

/// One .network file for each interface, a .netdev file for each device to be made, .link files for names.
pub fn render(network: &Network, _: &Target) -> Vec<File> {
    let mut files = Vec::new();
    for interface in &network.interfaces {
        if interface.kind == Kind::Loopback && interface.subnets.iter().all(|s| s.address.is_none()) {
            continue;
        }
        let sections = sections(network, interface);
        let stem = format!("/etc/systemd/network/10-cloud-init-{}", interface.name);
        files.push(File {
            owner: Some(OWNER),
            ..File::public(format!("{stem}.network"), ini::write(HEADER, &sections))
        });
        if let Some((sections, secret)) = networkd_netdev::sections(interface) {
            files.push(File {
                owner: Some(OWNER),
                mode: if secret { 0o600 } else { 0o644 },
                ..File::public(format!("{stem}.netdev"), ini::write(HEADER, &sections))
            });
        }
    }
    files.extend(link::files(network));
    files
}

fn sections(network: &Network, interface: &Interface) -> Vec<Section> {
    let mut link = Section::new("Link");
    link.maybe("MTUBytes", mtu(interface));
    link.maybe("MACAddress", interface.mac.as_ref().map(|m| m.to_ascii_lowercase()));
    if interface.optional == Some(true) {
        link.add("RequiredForOnline", "no");
    }
    let mut main = Section::new("Network");
    let mut dhcp4 = Section::new("DHCPv4");
    let mut dhcp6 = Section::new("DHCPv6");
    let mut advertisement = Section::new("IPv6AcceptRA");
    let mut port = Section::new("Bridge");
    main.add("DHCP", dhcp(interface));
    structure(network, interface, &mut main, &mut port);
    ipv6(interface, &mut main);
    names(network, interface, &mut main);
    match interface.keep_configuration.as_deref() {
        Some(_) if interface.keeps_all() => main.add("KeepConfiguration", "yes"),
        kept => main.maybe("KeepConfiguration", kept),
    }
    // What is kept is up already, from the initramfs: it is managed, so that leases are renewed, and nothing is taken away.
    if interface.is_manual()
        && interface.keep_configuration.is_none()
        && !interface.more.contains_key("activation-mode")
    {
        link.add("ActivationPolicy", "manual");
    }
    if interface.dhcp4() {
        overrides(&interface.dhcp4_overrides, &mut dhcp4);
        // networkd's default is to ignore the MTU that the server gives. One that is configured counts before it.
        let default = if mtu(interface).is_none() { Some(true) } else { None };
        dhcp4.yes_no("UseMTU", interface.dhcp4_overrides.use_mtu.or(default));
        if interface.dhcp4_overrides.route_metric.is_none() {
            dhcp4.maybe("RouteMetric", metric(interface, |s| s.method == Method::Dhcp4));
        }
    }
    if interface.dhcp6() {
        overrides(&interface.dhcp6_overrides, &mut dhcp6);
        if interface.dhcp6_overrides.use_mtu.is_some() {
            cannot(NAME, &interface.name, "dhcp6-overrides.use-mtu");
        }
    }
    more(interface, [&mut link, &mut main, &mut dhcp4, &mut advertisement]);
    let mut out = vec![matching(interface), link, main, dhcp4, dhcp6, advertisement, port];
    for subnet in &interface.subnets {
        out.extend(address(subnet));
        if let Some(gateway) = &subnet.gateway {
            let mut section = Section::new("Route");
            section.add("Gateway", gateway);
            if interface.is_on_link(gateway) {
                section.add("GatewayOnLink", "yes");
            }
            section.maybe("Metric", subnet.metric);
            out.push(section);
        }
    }
    out.extend(interface.all_routes().chain(network.routes_over(interface)).map(|r| route(interface, r)));
    out.extend(interface.rules.iter().map(rule));
    out
}

fn mtu(interface: &Interface) -> Option<u32> {
    interface.mtu.or_else(|| mtu_of(interface, false))
}

fn mtu_of(interface: &Interface, v6: bool) -> Option<u32> {
    interface.subnets.iter().filter(|s| s.is_v6() == v6).find_map(|s| s.mtu)
}

fn metric(interface: &Interface, of: impl Fn(&Subnet) -> bool) -> Option<u32> {
    interface.subnets.iter().filter(|s| of(s)).find_map(|s| s.metric)
}

/// What a router's advertisements say by themselves, networkd does by itself: SLAAC, and information from DHCPv6.
fn dhcp(interface: &Interface) -> &'static str {
    let is_asked = |s: &Subnet| matches!(s.method, Method::Dhcp6 | Method::Dhcp6Stateful);
    match (interface.dhcp4(), interface.subnets.iter().any(is_asked)) {
        (true, true) => "yes",
        (true, false) => "ipv4",
        (false, true) => "ipv6",
        (false, false) => "no",
    }
}

/// A section with no valid line would match every device, so a MAC address that networkd would refuse does not count.
fn matching(interface: &Interface) -> Section {
    let mut section = Section::new("Match");
    let mac = interface.matching.mac.as_ref().filter(|m| is_mac(m));
    section.maybe("MACAddress", mac);
    if !interface.matching.drivers.is_empty() {
        section.add("Driver", interface.matching.drivers.join(" "));
    }
    match (&interface.matching.name, mac) {
        (Some(pattern), _) if !interface.is_named() => section.add("Name", pattern),
        (None, Some(_)) if !interface.is_named() => section.add("Type", link::NOT_ON_TOP),
        _ if !interface.is_named() && !section.is_empty() => {}
        _ => section.add("Name", &interface.name),
    }
    section
}

/// What the interface is a part of, and what is on top of it.
fn structure(network: &Network, interface: &Interface, main: &mut Section, port: &mut Section) {
    if let Some(master) = network.master_of(&interface.name) {
        match &master.kind {
            Kind::Bond { params, .. } => {
                main.add("Bond", &master.name);
                if params.get("primary").and_then(Value::text).as_deref() == Some(interface.name.as_str()) {
                    main.add("PrimarySlave", "yes");
                }
            }
            Kind::Bridge { params, .. } => {
                main.add("Bridge", &master.name);
                let value = |key| params.get(key).and_then(|p| p.get(&interface.name)).and_then(Value::text);
                port.maybe("Cost", value("pathcost"));
                port.maybe("Priority", value("portprio"));
            }
            _ => main.add("VRF", &master.name),
        }
    }
    for vlan in network.vlans_on(&interface.name) {
        main.add("VLAN", &vlan.name);
    }
    for (tunnel, key) in networkd_netdev::tunnels_on(network, &interface.name) {
        main.add(key, &tunnel.name);
    }
}

fn ipv6(interface: &Interface, main: &mut Section) {
    main.yes_no("IPv6AcceptRA", interface.accept_ra);
    main.maybe("IPv6MTUBytes", interface.ipv6_mtu.or_else(|| mtu_of(interface, true)));
    if let Some(families) = &interface.link_local {
        let has = |family| families.iter().any(|f| f == family);
        main.add(
            "LinkLocalAddressing",
            match (has("ipv4"), has("ipv6")) {
                (true, true) => "yes",
                (true, false) => "ipv4",
                (false, true) => "ipv6",
                (false, false) => "no",
            },
        );
    }
}

fn names(network: &Network, interface: &Interface, main: &mut Section) {
    let mut dns = if interface.kind == Kind::Loopback { Dns::default() } else { network.dns_of(interface).clone() };
    for subnet in &interface.subnets {
        dns.merge(&subnet.dns);
    }
    if !dns.servers.is_empty() {
        main.add("DNS", dns.servers.join(" "));
    }
    if !dns.search.is_empty() {
        main.add("Domains", dns.search.join(" "));
    }
}

fn overrides(overrides: &DhcpOverrides, section: &mut Section) {
    section.maybe("Hostname", overrides.hostname.as_ref());
    section.maybe("RouteMetric", overrides.route_metric);
    section.yes_no("SendHostname", overrides.send_hostname);
    section.yes_no("UseDNS", overrides.use_dns);
    section.maybe(
        "UseDomains",
        overrides.use_domains.as_deref().map(|v| match v {
            "true" => "yes",
            "false" => "no",
            other => other,
        }),
    );
    section.yes_no("UseHostname", overrides.use_hostname);
    section.yes_no("UseNTP", overrides.use_ntp);
    section.yes_no("UseRoutes", overrides.use_routes);
}

fn address(subnet: &Subnet) -> Option<Section> {
    let mut section = Section::new("Address");
    section.add("Address", subnet.address.as_ref()?);
    section.maybe("Peer", subnet.pointopoint.as_ref());
    section.maybe("Broadcast", subnet.broadcast.as_ref());
    section.maybe("Scope", subnet.scope.as_ref());
    section.maybe("Label", subnet.label.as_ref());
    section.maybe("PreferredLifetime", subnet.lifetime.as_ref());
    Some(section)
}

fn route(interface: &Interface, route: &Route) -> Section {
    let mut section = Section::new("Route");
    section.add("Destination", &route.to);
    section.maybe("Gateway", route.via.as_ref());
    section.maybe("PreferredSource", route.from.as_ref());
    section.maybe("Metric", route.metric);
    section.maybe("MTUBytes", route.mtu);
    section.maybe("Table", route.table);
    section.maybe("Scope", route.scope.as_ref());
    section.maybe("Type", route.kind.as_ref());
    section.yes_no("GatewayOnLink", route.on_link);
    for (key, value) in route.more.iter() {
        match ROUTE_KEYS.iter().find(|(netplan, _)| *netplan == key) {
            Some((_, own)) => section.maybe(own, value.text()),
            None => cannot(NAME, &interface.name, &format!("routes.{key}")),
        }
    }
    section
}

const ROUTE_KEYS: &[(&str, &str)] = &[
    ("congestion-window", "InitialCongestionWindow"),
    ("advertised-receive-window", "InitialAdvertisedReceiveWindow"),
    ("advertised-mss", "TCPAdvertisedMaximumSegmentSize"),
];

fn rule(rule: &Rule) -> Section {
    let mut section = Section::new("RoutingPolicyRule");
    for (key, net) in [("From", &rule.from), ("To", &rule.to)] {
        section.maybe(key, net.as_ref().map(|n| if n.is_host() { n.ip.to_string() } else { n.to_string() }));
    }
    section.maybe("Table", rule.table);
    section.maybe("Priority", rule.priority);
    section.maybe("FirewallMark", rule.mark);
    section.maybe("TypeOfService", rule.tos);
    section
}

/// Where a key of netplan's goes: the section's place in the list that [`more`] is given, and the key there.
const MORE: &[(&str, usize, &str)] = &[
    ("activation-mode", 0, "ActivationPolicy"),
    ("ipv6-privacy", 1, "IPv6PrivacyExtensions"),
    ("ipv6-address-generation", 1, "IPv6LinkLocalAddressGenerationMode"),
    ("ignore-carrier", 1, "ConfigureWithoutCarrier"),
    ("emit-lldp", 1, "EmitLLDP"),
    ("critical", 1, "KeepConfiguration"),
    ("dhcp-identifier", 2, "ClientIdentifier"),
    ("ipv6-address-token", 3, "Token"),
];

fn more(interface: &Interface, mut sections: [&mut Section; 4]) {
    for (key, value) in interface.more.iter() {
        let line = MORE.iter().find(|(netplan, ..)| *netplan == key);
        let text = match (key, value) {
            ("critical", Value::Bool(false)) => continue,
            ("ipv6-address-generation", _) if value.as_str() == Some("eui64") => Some("eui64".into()),
            (_, Value::Bool(b)) => Some(if *b { "yes".to_owned() } else { "no".to_owned() }),
            _ => value.text().filter(|t| !t.chars().any(char::is_control)),
        };
        match (line, text) {
            (Some((_, section, own)), Some(text)) => {
                if let Some(section) = sections.get_mut(*section) {
                    section.add(*own, text);
                }
            }
            _ => cannot(NAME, &interface.name, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::document::yaml;
    use crate::machine::Distro;
    use crate::network::{Macs, Target, read, render};

    fn file(text: &str, name: &str) -> String {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let target = Target { distro: Distro::named("debian"), ip_tool: true };
        let files = (render::by_name("networkd").unwrap().render)(&network, &target);
        let path = format!("/etc/systemd/network/10-cloud-init-{name}");
        files.into_iter().find(|f| f.path == path).unwrap().content.replace(render::HEADER, "")
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
    fn rules_are_for_hosts_where_no_prefix_is_said() {
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
    fn a_far_gateway_is_on_the_link() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/24, gateway: 10.9.0.1}]}]";
        let e = file(text, "e.network");
        assert!(e.contains("[Route]\nGateway=10.9.0.1\nGatewayOnLink=yes\n"), "{e}");
    }
}
