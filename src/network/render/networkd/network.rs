//! The sections of a .network file (systemd.network(5)).

use super::netdev;
use crate::document::{Map, Value};
use crate::network::address::Cidr;
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{DeviceType, DhcpOverrides, Dns, Interface, Method, Network, Route, Rule, Subnet};
use crate::network::render::ini::Section;
use crate::network::render::renderer::Unsupported;
use crate::network::render::udev;

/// The sections of an interface's .network file.
pub fn sections(network: &Network, interface: &Interface, unsupported: &mut Unsupported) -> Vec<Section> {
    let mut link = Section::new("Link");
    link.maybe("MTUBytes", interface.link_mtu());
    link.maybe("MACAddress", interface.mac.as_deref().map(plain_mac));
    if interface.optional == Some(true) {
        link.add("RequiredForOnline", "no");
    }
    let mut main = Section::new("Network");
    let mut dhcp4 = Section::new("DHCPv4");
    let mut dhcp6 = Section::new("DHCPv6");
    let mut advertisement = Section::new("IPv6AcceptRA");
    let mut port = Section::new("Bridge");
    let mut infiniband = Section::new("IPoIB");
    if interface.device_type == DeviceType::Infiniband {
        let mode = interface.extra.get("infiniband-mode").and_then(Value::as_str);
        infiniband.maybe("Mode", mode.filter(|mode| matches!(*mode, "connected" | "datagram")));
    }
    main.add("DHCP", dhcp(interface, unsupported));
    structure(network, interface, &mut main, &mut port);
    ipv6(interface, &mut main);
    names(network, interface, &mut main);
    match interface.keep_configuration.as_deref() {
        Some(_) if interface.keeps_all() => main.add("KeepConfiguration", "yes"),
        kept => main.maybe("KeepConfiguration", kept),
    }
    // A link that is kept was configured in the initramfs. It is managed so that its leases are renewed; nothing is removed.
    if interface.is_manual() && !interface.keeps_any() && !interface.extra.contains_key("activation-mode") {
        link.add("ActivationPolicy", "manual");
    }
    if interface.dhcp4() {
        overrides(&interface.dhcp4_overrides, &mut dhcp4);
        dhcp4.yes_no("UseRoutes", interface.dhcp4_overrides.use_routes);
        // networkd ignores the server's MTU by default. A configured MTU takes precedence over it.
        let default = interface.link_mtu().is_none().then_some(true);
        dhcp4.yes_no("UseMTU", interface.dhcp4_overrides.use_mtu.or(default));
        if interface.dhcp4_overrides.route_metric.is_none() {
            dhcp4.maybe("RouteMetric", interface.metric_of(|m| m == Method::Dhcp4));
        }
    }
    if interface.dhcp6() {
        overrides(&interface.dhcp6_overrides, &mut dhcp6);
        // DHCPv6 assigns neither.
        let off = |switch: Option<bool>| switch == Some(false);
        let (mtu, routes) = (off(interface.dhcp6_overrides.use_mtu), off(interface.dhcp6_overrides.use_routes));
        unsupported.keys(interface, [("dhcp6-overrides.use-mtu", mtu), ("dhcp6-overrides.use-routes", routes)]);
    }
    extra(interface, [&mut link, &mut main, &mut dhcp4, &mut advertisement], unsupported);
    let mut out = vec![matching(interface), link, main, dhcp4, dhcp6, advertisement, port, infiniband];
    for subnet in &interface.subnets {
        out.extend(address(interface, subnet, unsupported));
        out.extend(interface.gateway_route(subnet).as_ref().map(gateway));
    }
    out.extend(interface.all_routes().map(|r| route(interface, r, unsupported)));
    out.extend(interface.rules.iter().map(rule));
    out
}

/// Which DHCP clients run. SLAAC, and stateless DHCPv6 if a router advertises it, need no setting. DHCPv6 works with link-local
/// addresses of IPv6 only: without them, networkd switches it off.
fn dhcp(interface: &Interface, unsupported: &mut Unsupported) -> &'static str {
    let is_v6 = interface.uses(Method::Dhcp6) || interface.uses(Method::Dhcp6Stateful);
    let has_link_local = interface.link_local.as_ref().is_none_or(|families| families.iter().any(|f| f == "ipv6"));
    unsupported.keys(interface, [("dhcp6", is_v6 && !has_link_local)]);
    match (interface.dhcp4(), is_v6 && has_link_local) {
        (true, true) => "yes",
        (true, false) => "ipv4",
        (false, true) => "ipv6",
        (false, false) => "no",
    }
}

/// A section without a valid line would match every device, so a MAC address that networkd would refuse is ignored.
fn matching(interface: &Interface) -> Section {
    let mut section = Section::new("Match");
    let mac = interface.matching.mac.as_ref().filter(|m| is_mac(m));
    section.maybe("MACAddress", mac);
    if !interface.matching.drivers.is_empty() {
        section.add("Driver", interface.matching.drivers.join(" "));
    }
    match (&interface.matching.name, mac) {
        (Some(pattern), _) if !interface.is_named() => section.add("Name", pattern),
        (None, Some(_)) if !interface.is_named() => section.add("Type", udev::NOT_ON_TOP),
        _ if !interface.is_named() && !section.is_empty() => {}
        _ => section.add("Name", &interface.name),
    }
    section
}

/// The bond, bridge or VRF of the interface, and the devices on top of it.
fn structure(network: &Network, interface: &Interface, main: &mut Section, port: &mut Section) {
    if let Some(master) = network.master_of(&interface.name) {
        match &master.device_type {
            DeviceType::Bond { params, .. } => {
                main.add("Bond", &master.name);
                for (param, key) in [("primary", "PrimarySlave"), ("active_slave", "ActiveSlave")] {
                    if params.get(param).and_then(Value::as_str) == Some(interface.name.as_str()) {
                        main.add(key, "yes");
                    }
                }
            }
            DeviceType::Bridge { params, .. } => {
                main.add("Bridge", &master.name);
                let value = |key| params.get(key).and_then(|p| p.get(&interface.name)).and_then(Value::text);
                port.maybe("Cost", value("pathcost"));
                port.maybe("Priority", value("portprio"));
            }
            _ => main.add("VRF", &master.name),
        }
    }
    // Without a port it has no carrier, for which networkd would wait with its addresses.
    if matches!(&interface.device_type, DeviceType::Bridge { interfaces, .. } if interfaces.is_empty())
        && !interface.extra.contains_key("ignore-carrier")
    {
        main.add("ConfigureWithoutCarrier", "yes");
    }
    for vlan in network.vlans_on(&interface.name) {
        main.add("VLAN", &vlan.name);
    }
    for (tunnel, key) in netdev::tunnels_on(network, &interface.name) {
        main.add(key, &tunnel.name);
    }
}

fn ipv6(interface: &Interface, main: &mut Section) {
    main.yes_no("IPv6AcceptRA", interface.accept_ra);
    main.maybe("IPv6MTUBytes", interface.inet6_mtu());
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
    let mut dns =
        if interface.device_type == DeviceType::Loopback { Dns::default() } else { network.dns_of(interface).clone() };
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
}

fn address(interface: &Interface, subnet: &Subnet, unsupported: &mut Unsupported) -> Option<Section> {
    let mut section = Section::new("Address");
    let address = subnet.address.as_ref()?;
    section.add("Address", address);
    // Without a prefix networkd assumes the address's class, and routes as much as 10.0.0.0/8 onto the link.
    section.maybe("Peer", subnet.pointopoint.clone().map(Cidr::host));
    // networkd ignores it otherwise (networkd-address.c, `address_section_verify`).
    let has_broadcast = !address.is_v6() && address.prefix <= 30 && subnet.pointopoint.is_none();
    unsupported.keys(interface, [("broadcast", !has_broadcast && subnet.unusual_broadcast().is_some())]);
    section.maybe("Broadcast", subnet.broadcast.as_ref().filter(|_| has_broadcast));
    section.maybe("Scope", subnet.scope.as_ref());
    section.maybe("Label", subnet.label.as_ref());
    section.maybe("PreferredLifetime", subnet.lifetime.as_ref());
    Some(section)
}

fn gateway(default: &Route) -> Section {
    let mut section = Section::new("Route");
    section.maybe("Gateway", default.via.as_ref());
    section.yes_no("GatewayOnLink", default.on_link);
    section.maybe("Metric", default.metric);
    section
}

fn route(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> Section {
    let mut section = Section::new("Route");
    section.add("Destination", &route.to);
    section.maybe("Gateway", route.via.as_ref());
    section.maybe("PreferredSource", route.from.as_ref());
    section.maybe("Metric", route.metric);
    section.maybe("MTUBytes", route.mtu);
    section.maybe("Table", route.table);
    // The kernel has no scope of IPv6's routes.
    unsupported.keys(interface, [("routes.scope", route.scope.is_some() && route.to.is_v6())]);
    section.maybe("Scope", route.scope.as_ref().filter(|_| !route.to.is_v6()));
    section.maybe("Type", route.route_type.as_ref());
    section.yes_no("GatewayOnLink", route.on_link);
    for (key, value) in route.extra.iter() {
        match ROUTE_KEYS.iter().find(|(netplan, _)| *netplan == key) {
            Some((_, own)) => section.maybe(own, value.text()),
            None => unsupported.key(interface, &format!("routes.{key}")),
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

/// netplan's keys without a field in the model: the section, as an index into the list of [`extra`], and the key there.
const EXTRA: &[(&str, usize, &str)] = &[
    ("activation-mode", 0, "ActivationPolicy"),
    ("ipv6-privacy", 1, "IPv6PrivacyExtensions"),
    ("ipv6-address-generation", 3, "Token"),
    ("ignore-carrier", 1, "ConfigureWithoutCarrier"),
    ("emit-lldp", 1, "EmitLLDP"),
    ("dhcp-identifier", 2, "ClientIdentifier"),
    ("ipv6-address-token", 3, "Token"),
];

/// What is used of router advertisements (netplan-yaml(5), `ra-overrides`).
fn advertised(interface: &Interface, overrides: &Map, sections: &mut [&mut Section; 4], unsupported: &mut Unsupported) {
    let [.., section] = sections;
    for (key, value) in overrides.iter() {
        let own = match key {
            "use-dns" => "UseDNS",
            "use-domains" => "UseDomains",
            "table" => "RouteTable",
            _ => {
                unsupported.key(interface, key);
                continue;
            }
        };
        section.maybe(own, netdev::line(value));
    }
}

fn extra(interface: &Interface, mut sections: [&mut Section; 4], unsupported: &mut Unsupported) {
    for (key, value) in interface.extra.iter() {
        let line = EXTRA.iter().find(|(netplan, ..)| *netplan == key);
        let text = match (key, value) {
            // netplan's words (netplan-yaml(5)); networkd takes the device down for the latter.
            ("activation-mode", _) => match value.as_str() {
                Some("manual") => Some("manual".into()),
                Some("off") => Some("always-down".into()),
                _ => None,
            },
            ("infiniband-mode", _) if interface.device_type == DeviceType::Infiniband => continue,
            // RFC 7217's addresses (systemd.network(5), Token=).
            ("ipv6-address-generation", _) if value.as_str() == Some("stable-privacy") => Some("prefixstable".into()),
            ("ra-overrides", Value::Map(overrides)) => {
                advertised(interface, overrides, &mut sections, unsupported);
                continue;
            }
            (_, Value::Bool(b)) => Some(if *b { "yes".to_owned() } else { "no".to_owned() }),
            _ => value.text().filter(|t| !t.chars().any(char::is_control)),
        };
        match (line, text) {
            (Some((_, section, own)), Some(text)) => {
                if let Some(section) = sections.get_mut(*section) {
                    section.add(*own, text);
                }
            }
            _ => unsupported.key(interface, key),
        }
    }
}
