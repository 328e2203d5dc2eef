//! The last step of reading: establishes what holds for every model, whatever format it was read from.

use crate::base::problem::About;
use crate::document::{Map, Value};
use crate::network::address::{Cidr, Ip};
use crate::network::model::{DeviceType, Interface, Network, Route};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// The most devices that one configuration may have.
pub const MAX_INTERFACES: usize = 4096;

/// The highest VLAN id.
pub const MAX_VLAN: u16 = 4094;

/// Reports that there are more devices than [`MAX_INTERFACES`].
pub fn too_many(problems: About<'_>) {
    problems.warn(format_args!("more than {MAX_INTERFACES} devices; the others are ignored"));
}

/// Completes the model: names are unique (the last configuration of a device takes precedence, as in cloud-init), no device is a
/// member or link of itself, and each device that another refers to exists. `routes` name no interface, and are given to the one
/// that reaches the gateway.
pub fn complete(network: &mut Network, routes: Vec<Route>, problems: About<'_>) {
    let mut places: HashMap<String, usize> = HashMap::new();
    for interface in std::mem::take(&mut network.interfaces) {
        match places.get(&interface.name).and_then(|place| network.interfaces.get_mut(*place)) {
            Some(first) => {
                problems.warn(format_args!("{} is configured twice; the first configuration is ignored", first.name));
                *first = interface;
            }
            None => {
                places.insert(interface.name.clone(), network.interfaces.len());
                network.interfaces.push(interface);
            }
        }
    }
    let mut missing = Vec::new();
    let (mut ports, mut in_vrfs) = (HashSet::new(), HashSet::new());
    for interface in &mut network.interfaces {
        let own = interface.name.clone();
        match &mut interface.device_type {
            DeviceType::Bond { interfaces, params } => {
                keep_own(&own, interfaces, &mut ports, problems);
                check_ports(&own, interfaces, params, problems);
                missing.extend(interfaces.iter().cloned());
            }
            DeviceType::Bridge { interfaces, .. } => {
                keep_own(&own, interfaces, &mut ports, problems);
                missing.extend(interfaces.iter().cloned());
            }
            DeviceType::Vrf { interfaces, .. } => {
                keep_own(&own, interfaces, &mut in_vrfs, problems);
                missing.extend(interfaces.iter().cloned());
            }
            DeviceType::Vlan { link, .. } if *link != own => missing.push(link.clone()),
            _ => {}
        }
    }
    for name in missing {
        if places.insert(name.clone(), 0).is_none() {
            network.interfaces.push(Interface { id: name.clone(), name, implicit: true, ..Interface::default() });
        }
    }
    // The resolver asks no servers of a loopback device: they are the machine's.
    for lo in network.interfaces.iter_mut().filter(|i| i.device_type == DeviceType::Loopback) {
        let own = lo.subnets.iter_mut().map(|subnet| &mut subnet.dns).chain([&mut lo.dns]);
        own.for_each(|dns| network.dns.merge(&std::mem::take(dns)));
    }
    distribute(network, routes, problems);
    for interface in &mut network.interfaces {
        let name = &interface.name;
        interface.routes.retain_mut(|route| settle(route, name, problems));
        for subnet in &mut interface.subnets {
            subnet.routes.retain_mut(|route| settle(route, name, problems));
            let v6 = subnet.is_v6();
            if let Some(peer) = subnet.pointopoint.take_if(|peer| peer.is_v6() != v6) {
                problems.warn_key(
                    name,
                    format_args!("the peer {peer} is of another family than its address; it is ignored"),
                );
            }
        }
    }
    network.interfaces.iter().for_each(|interface| report_unreached(interface, problems));
}

/// Reports routes by gateways that no address of the interface reaches: the kernel refuses them, and systemd-networkd stays
/// "configuring". Nothing is known of an interface without addresses of the family, or with those of a lease or of a router.
fn report_unreached(interface: &Interface, problems: About<'_>) {
    let is_known = |v6: bool| {
        let has_lease = if v6 { interface.is_automatic_v6() } else { interface.dhcp4() };
        !has_lease && interface.addresses().any(|address| address.is_v6() == v6)
    };
    let (known4, known6) = (is_known(false), is_known(true));
    let peers = interface.subnets.iter().filter_map(|subnet| subnet.pointopoint.clone()).map(Cidr::host);
    let on_link = interface.all_routes().filter(|route| route.via.is_none()).map(|route| route.to.clone());
    let mut reached = Networks::default();
    for network in interface.addresses().cloned().chain(peers).chain(on_link) {
        reached.add(&network, 0);
    }
    for route in interface.all_routes() {
        let Some(via) = route.via.as_ref().filter(|via| !via.is_link_local() && route.on_link != Some(true)) else {
            continue;
        };
        if (if via.is_v6() { known6 } else { known4 }) && reached.find(via).is_none() {
            let (name, to) = (&interface.name, &route.to);
            let why = format_args!(
                "no address of {name} reaches {via}, the gateway of a route to {to}; on-link: true makes it one of the link"
            );
            problems.warn_key(name, why);
        }
    }
}

/// Removes the device itself, and members that belong to another device: the kernel allows one master for each.
fn keep_own(name: &str, members: &mut Vec<String>, taken: &mut HashSet<String>, problems: About<'_>) {
    members.retain(|member| {
        let is_free = member == name || taken.insert(member.clone());
        if !is_free {
            problems.warn_key(name, format_args!("{member} is a member already; it is ignored"));
        }
        is_free && member != name
    });
}

/// Removes a bond's parameters that name a port which it does not have: netplan refuses the whole file for one.
fn check_ports(name: &str, interfaces: &[String], params: &mut Map, problems: About<'_>) {
    for key in ["primary", "active_slave"] {
        let named = params.get(key).and_then(Value::text).unwrap_or_default();
        let is_port = |word: &str| interfaces.iter().any(|port| port == word);
        if !interfaces.is_empty() && !named.is_empty() && !named.split_whitespace().any(is_port) {
            problems.warn_key(name, format_args!("its parameter {key} names no port of the bond; it is ignored"));
            params.remove(key);
        }
    }
}

/// The types of routes that go nowhere: ip-route(8).
const TYPES_WITHOUT_GATEWAY: &[&str] = &["blackhole", "prohibit", "throw", "unreachable"];

/// Changes a route to one that the kernel takes. Some stacks hand a route to the kernel as it is and hide the refusal, others refuse
/// the whole file. False if there is no such route.
fn settle(route: &mut Route, name: &str, problems: About<'_>) -> bool {
    let remove = |key: &str, why: &str| problems.warn_key(name, format_args!("a route {why}; its {key} is ignored"));
    // An unspecified gateway means none, as for ip-route(8).
    route.via = route.via.take().filter(|via| !via.addr().is_unspecified());
    let has_no_gateway = route.route_type.as_deref().is_some_and(|t| TYPES_WITHOUT_GATEWAY.contains(&t));
    if has_no_gateway && route.via.take().is_some() {
        remove("gateway", "of its type has no gateway");
        route.on_link = None;
    }
    if route.via.is_some() && route.scope.as_deref().is_some_and(|scope| matches!(scope, "link" | "host")) {
        remove("scope", "by a gateway is not of that scope");
        route.scope = None;
    }
    route.to = route.to.network();
    // The kernel has IPv4 routes by IPv6 gateways, and none the other way.
    let is_possible = !route.to.is_v6() || route.via.as_ref().is_none_or(Ip::is_v6);
    if !is_possible {
        problems.warn_key(name, format_args!("a route to {} by an IPv4 gateway; it is ignored", route.to));
    }
    is_possible
}

/// Gives each route to the first interface with an address in the gateway's network, else to the first one
/// with static addresses, else to the first one that is configured at all.
fn distribute(network: &mut Network, routes: Vec<Route>, problems: About<'_>) {
    if routes.is_empty() {
        return;
    }
    let networks = Networks::of(&network.interfaces);
    let usable = |fits: fn(&Interface) -> bool| {
        let fits = |i: &Interface| i.device_type != DeviceType::Loopback && fits(i);
        network.interfaces.iter().position(fits)
    };
    let fallback = usable(|i| i.addresses().next().is_some()).or_else(|| usable(|i| !i.subnets.is_empty()));
    for route in routes {
        let place = route.via.as_ref().and_then(|via| networks.find(via)).or(fallback);
        match place.and_then(|place| network.interfaces.get_mut(place)) {
            Some(interface) => interface.routes.push(route),
            None => problems.warn(format_args!("route to {}: no interface has addresses; it is ignored", route.to)),
        }
    }
}

/// The networks of all interfaces: by family and prefix length, then by network address, the index of the
/// first interface. A lookup then depends on the number of prefix lengths, not of interfaces.
#[derive(Default)]
struct Networks(BTreeMap<(bool, u8), HashMap<IpAddr, usize>>);

impl Networks {
    fn of(interfaces: &[Interface]) -> Networks {
        let mut networks = Networks::default();
        for (place, interface) in interfaces.iter().enumerate() {
            for address in interface.addresses() {
                networks.add(address, place);
            }
        }
        networks
    }

    /// Adds the network of an address, unless it is there already.
    fn add(&mut self, address: &Cidr, place: usize) {
        let network = address.network();
        let of_length = self.0.entry((network.is_v6(), network.prefix)).or_default();
        of_length.entry(network.ip.addr()).or_insert(place);
    }

    /// The first interface with an address in the network of `ip`.
    fn find(&self, ip: &Ip) -> Option<usize> {
        let of_family = self.0.iter().filter(|((v6, _), _)| *v6 == ip.is_v6());
        let found = of_family.filter_map(|((_, prefix), networks)| {
            let network = Cidr { ip: ip.clone(), prefix: *prefix }.network();
            networks.get(&network.ip.addr())
        });
        found.min().copied()
    }
}

#[cfg(test)]
mod tests {
    use crate::network::testing::network;

    #[test]
    fn peers_are_of_their_addresses_family() {
        for (peer, kept) in [("10.0.0.1", false), ("'2001:db8::1'", true)] {
            let n = network(&format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static6, address: '2001:db8::2/64', pointopoint: {peer}}}]}}]"
            ));
            assert_eq!(n.interfaces[0].subnets[0].pointopoint.is_some(), kept, "{peer}");
        }
    }

    #[test]
    fn reports_gateways_that_no_address_reaches() {
        for (device, is_reported) in [
            ("{addresses: [10.0.0.2/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.1}]}", true),
            ("{addresses: ['2001:db8::2/64'], routes: [{to: '::/0', via: '2001:db8:1::1'}]}", true),
            ("{addresses: [10.0.0.2/24], routes: [{to: 10.9.0.0/16, via: 10.0.0.1}]}", false),
            ("{addresses: [10.0.0.2/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.1, on-link: true}]}", false),
            ("{addresses: [10.0.0.2/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.1}, {to: 10.1.0.0/24}]}", false),
            ("{dhcp4: true, addresses: [10.0.0.2/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.1}]}", false),
            ("{addresses: ['2001:db8::2/64'], routes: [{to: '::/0', via: 'fe80::1'}]}", false),
            ("{routes: [{to: 10.9.0.0/16, via: 10.1.0.1}]}", false),
        ] {
            let text = format!("version: 2\nethernets: {{e: {device}}}");
            let input = crate::document::yaml::parse("t", &text).unwrap();
            let report = crate::base::problem::Problems::new();
            crate::network::read::config::read("t", &input, &crate::network::Macs::default(), &report).unwrap();
            let warnings = report.texts(crate::base::problem::Severity::Warning);
            assert_eq!(warnings.iter().any(|w| w.contains("e: no address of e reaches ")), is_reported, "{device}");
        }
    }

    #[test]
    fn routes_go_to_the_interface_reaching_their_gateway() {
        let n = network(
            "version: 1\nconfig:\n- {type: physical, name: a, subnets: [{type: dhcp}]}\n\
             - {type: physical, name: b, subnets: [{type: static, address: 10.0.0.2/8}]}\n\
             - {type: physical, name: c, subnets: [{type: static, address: 192.0.2.2/24}, {type: static, address: '2001:db8::2/64'}]}\n\
             - {type: physical, name: d, subnets: [{type: static, address: 192.0.2.3/25}]}\n\
             - {type: route, destination: 1.0.0.0/8, gateway: 192.0.2.1}\n- {type: route, destination: '2001::/16', gateway: '2001:db8::1'}\n\
             - {type: route, destination: 2.0.0.0/8, gateway: 198.51.100.1}\n",
        );
        let routes = |name: &str| {
            let routes = &n.interface(name).unwrap().routes;
            routes.iter().map(|r| r.to.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([routes("a"), routes("b"), routes("c"), routes("d")], ["", "2.0.0.0/8", "1.0.0.0/8 2001::/16", ""]);
    }
}
