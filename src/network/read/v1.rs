//! Version 1 (cloud-init's "Networking config Version 1").

use super::complete::{MAX_INTERFACES, MAX_VLAN, complete, too_many};
use super::fields::Fields;
use crate::base::problem::{About, Problems};
use crate::base::text::quoted;
use crate::document::{Map, Value};
use crate::network::address::{Cidr, Ip};
use crate::network::model::ORIGIN;
use crate::network::model::{Control, DeviceType, Dns, Interface, Method, Network, Route, Subnet};
use crate::network::parameters;
use std::collections::HashMap;

/// Subnet types. `dhcp` alone is DHCPv4.
const METHODS: &[(&str, Method)] = &[
    ("static", Method::Static),
    ("static6", Method::Static),
    ("dhcp", Method::Dhcp4),
    ("dhcp4", Method::Dhcp4),
    ("dhcp6", Method::Dhcp6),
    ("ipv6_dhcpv6-stateful", Method::Dhcp6Stateful),
    ("ipv6_dhcpv6-stateless", Method::Dhcp6Stateless),
    ("ipv6_slaac", Method::Slaac),
    ("manual", Method::Manual),
    ("loopback", Method::Loopback),
];

/// Reads the list below `config:`. A mistake in it is reported and skipped.
pub fn read(config: &[Value], report: &Problems) -> Network {
    network(config, report.about(ORIGIN))
}

fn network(config: &[Value], problems: About<'_>) -> Network {
    let mut network = Network::default();
    let mut routes = Vec::new();
    // Name servers for one interface, whose entry may come later.
    let mut of_interface: Vec<(String, Dns)> = Vec::new();
    for (i, value) in config.iter().enumerate() {
        let Some(mut f) = Fields::new(format!("config[{i}]"), value.clone(), problems) else { continue };
        let Some(entry_type) = f.text("type") else {
            f.reject("an entry with a type", "none");
            continue;
        };
        match entry_type.as_str() {
            "nameserver" => {
                let dns = Dns { servers: f.servers("address"), search: f.words("search") };
                match f.name("interface") {
                    Some(name) => of_interface.push((name, dns)),
                    None => network.dns.merge(&dns),
                }
                f.finish();
            }
            "route" => routes.extend(route(f)),
            _ if network.interfaces.len() >= MAX_INTERFACES => too_many(problems),
            entry_type => network.interfaces.extend(interface(entry_type, f)),
        }
    }
    let places: HashMap<String, usize> = network.interfaces.iter().map(|i| i.name.clone()).zip(0..).collect();
    for (name, dns) in of_interface {
        match places.get(&name).and_then(|place| network.interfaces.get_mut(*place)) {
            Some(interface) => interface.dns.merge(&dns),
            None => problems.warn(format_args!("nameserver for {name}, which is not configured; it is ignored")),
        }
    }
    complete(&mut network, routes, problems);
    network
}

fn interface(entry_type: &str, mut f: Fields) -> Option<Interface> {
    let device_type = match entry_type {
        "physical" => DeviceType::Ethernet,
        "loopback" => DeviceType::Loopback,
        "infiniband" => DeviceType::Infiniband,
        "dummy" => DeviceType::Dummy,
        "bond" => {
            let mut params = parameters(&mut f)?;
            // Whatever it says, `bond_interfaces` are the members (cloud-init 26.2, network_state.py, `handle_bond`).
            params.take("bond-slaves");
            let params = from_v1(params, parameters::BOND, "bond");
            DeviceType::Bond { interfaces: f.names("bond_interfaces"), params }
        }
        "bridge" => {
            let mut params = parameters(&mut f)?;
            // The parameter takes precedence (cloud-init 26.2, network_state.py, `handle_bridge`).
            let (listed, ports) = (f.names("bridge_interfaces"), params.names("bridge_ports"));
            let params = from_v1(params, parameters::BRIDGE, "bridge");
            DeviceType::Bridge { interfaces: if ports.is_empty() { listed } else { ports }, params }
        }
        "vlan" => vlan(&mut f)?,
        _ => {
            f.reject_key("type", "a type of version 1", &quoted(entry_type).to_string());
            return None;
        }
    };
    let Some(name) = f.name("name") else {
        f.reject("a device with a name", "none");
        return None;
    };
    let mut new = Interface { id: name.clone(), name, device_type, ..Interface::default() };
    let mac = f.mac("mac_address");
    if new.is_physical() {
        new.rename = mac.is_some();
        new.matching.mac = mac;
        if let Some(mut params) = f.map("params") {
            new.matching.drivers = params.words("driver");
            params.take("device_id");
            params.finish();
        }
    } else {
        new.mac = mac;
    }
    new.mtu = f.mtu("mtu");
    new.accept_ra = f.boolean("accept-ra");
    new.wake_on_lan = f.boolean("wakeonlan");
    new.optional = f.boolean("optional");
    new.keep_configuration = f.text("keep_configuration");
    for subnet in f.list("subnets") {
        new.subnets.extend(self::subnet(subnet));
    }
    // The MTU of a static IPv4 subnet takes precedence over the device's.
    let is_static4 = |s: &&Subnet| s.method == Method::Static && !s.is_v6();
    let own = new.subnets.iter().filter(is_static4).filter_map(|s| s.mtu).next_back();
    if let (Some(own), Some(device)) = (own, new.mtu)
        && own != device
    {
        let name = &new.name;
        f.problems()
            .warn_key(name, format_args!("the MTU {own} of its subnet takes precedence over its own, {device}"));
        new.mtu = Some(own);
    }
    new.extra = f.rest();
    Some(new)
}

/// `params`: a mapping, or a list of mappings.
fn parameters<'p>(f: &mut Fields<'p>) -> Option<Fields<'p>> {
    let map = match f.take("params") {
        Some(Value::Map(map)) => map,
        Some(Value::List(list)) => {
            list.into_iter().filter_map(|v| v.as_map().cloned()).flat_map(Map::into_entries).collect()
        }
        None => Map::new(),
        Some(other) => {
            f.reject_key("params", "a mapping", other.kind());
            Map::new()
        }
    };
    Fields::new(f.path_of("params"), map.into(), f.problems())
}

fn from_v1(given: Fields, table: &'static [parameters::Parameter], prefix: &str) -> Map {
    let (params, refuse) = given.parameters();
    parameters::from_v1(table, prefix, &params, refuse)
}

fn vlan(f: &mut Fields) -> Option<DeviceType> {
    match (f.number("vlan_id"), f.name("vlan_link")) {
        (Some(id), Some(link)) if id <= MAX_VLAN => Some(DeviceType::Vlan { id, link }),
        _ => {
            f.reject("a vlan with vlan_id (0 to 4094) and vlan_link", "something else");
            None
        }
    }
}

fn subnet(mut f: Fields) -> Option<Subnet> {
    let subnet_type = f.text("type").unwrap_or_else(|| "static".into());
    let Some((_, method)) = METHODS.iter().find(|(name, _)| *name == subnet_type) else {
        f.reject_key("type", "a subnet type of version 1", &quoted(&subnet_type).to_string());
        return None;
    };
    let mut new = Subnet { method: *method, ..Subnet::default() };
    new.control = match f.text("control").as_deref() {
        None | Some("auto") => Control::Auto,
        Some("manual") => Control::Manual,
        Some("hotplug") => Control::Hotplug,
        Some(other) => {
            f.reject_key("control", "auto, manual or hotplug", &quoted(other).to_string());
            Control::Auto
        }
    };
    let mask = mask(&mut f);
    if let Some(text) = f.text("address") {
        new.address = Cidr::parse_address(&text, mask.as_deref());
        if new.address.is_none() {
            f.reject_key("address", "an IP address with a prefix or netmask", "something else");
        }
    }
    if *method == Method::Static && new.address.is_none() {
        return None;
    }
    // A lease brings its own gateway, which klibc's files also have.
    new.gateway = f.ip("gateway").filter(|_| *method == Method::Static);
    new.broadcast = f.ip("broadcast");
    new.pointopoint = f.ip("pointopoint");
    new.scope = f.word("scope");
    new.metric = f.number("metric");
    new.mtu = f.mtu("mtu");
    new.dns = Dns { servers: f.servers("dns_nameservers"), search: f.words("dns_search") };
    for route in f.list("routes") {
        new.routes.extend(self::route(route));
    }
    // Version 1 has no key for `on-link`, without which the kernel refuses the route.
    if let Some(address) = new.address.as_ref().filter(|a| a.is_host()) {
        let is_outside = |via: &Ip| via.is_v6() == address.is_v6() && !via.is_link_local() && !address.contains(via);
        for route in new.routes.iter_mut().filter(|r| r.via.as_ref().is_some_and(is_outside)) {
            route.on_link = Some(true);
        }
    }
    // The family, which network_data.json has; the address shows it.
    f.take("ipv4");
    f.take("ipv6");
    f.finish();
    Some(new)
}

/// The prefix length, else the netmask (cloud-init 26.2, network_state.py, `_normalize_net_keys`).
fn mask(f: &mut Fields) -> Option<String> {
    let netmask = f.text("netmask");
    f.text("prefix").or(netmask)
}

/// A route: `destination`, else `network`, else `to`, with a prefix, a netmask or neither, and `gateway`, else `via`.
fn route(mut f: Fields) -> Option<Route> {
    let mask = mask(&mut f);
    let via = f.gateway("gateway")?;
    // Version 2's keys: without its gateway it would be another route.
    let via = if via.is_some() { via } else { f.gateway("via")? };
    let network = f.text("network").or(f.text("to"));
    let to = match f.text("destination").or(network) {
        Some(to) if to == "default" => Some(Cidr::default_of(via.as_ref().is_some_and(Ip::is_v6))),
        Some(to) => Cidr::parse(&to, mask.as_deref()),
        None => None,
    };
    let Some(to) = to else {
        f.reject("a route with a destination", "something else");
        return None;
    };
    let mut route = Route::new(to, via);
    route.metric = f.number("metric");
    route.mtu = f.number("mtu");
    route.table = f.number("table");
    route.from = f.ip("source");
    route.extra = f.rest();
    route.extra.remove("type");
    Some(route)
}

#[cfg(test)]
mod tests {
    use crate::network::model::*;
    use crate::network::testing::network;

    #[test]
    fn every_type_and_subnet() {
        let n = network(
            "network:\n  version: 1\n  config:\n\
             \x20 - {type: physical, name: eth0, mac_address: 'AA:bb:cc:dd:ee:ff', mtu: 1480, accept-ra: 'no', subnets: [\n\
             \x20    {type: static, address: 10.0.0.2, netmask: 255.255.0.0, gateway: 10.0.0.1, dns_nameservers: [1.1.1.1], dns_search: a b,\n\
             \x20     routes: [{network: 0.0.0.0, netmask: 0.0.0.0, gateway: 10.0.0.9}, {destination: 10.9.0.0/16, gateway: 10.0.0.8, metric: 3}]},\n\
             \x20    {type: ipv6_dhcpv6-stateless}, {type: dhcp, control: manual}, {type: odd}]}\n\
             \x20 - {type: bond, name: bond0, mac_address: 'aa:aa:aa:aa:aa:aa', bond_interfaces: [eth0, eth9], params: {bond-mode: 4}}\n\
             \x20 - {type: vlan, name: v, vlan_link: bond0, vlan_id: 12}\n\
             \x20 - {type: nameserver, address: 8.8.8.8, search: [x]}\n\
             \x20 - {type: nameserver, address: [9.9.9.9], interface: v}\n\
             \x20 - {type: route, destination: 192.168.0.0/16, gateway: 10.0.0.1}\n\
             \x20 - {type: loopback, name: lo, subnets: [{type: loopback}]}\n  - 5\n  - {type: physical}\n",
        );
        let names: Vec<&str> = n.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth0", "bond0", "v", "lo", "eth9"]);
        let eth0 = &n.interfaces[0];
        assert!(eth0.rename && eth0.mac.is_none() && eth0.accept_ra == Some(false));
        assert_eq!(eth0.matching.mac.as_deref(), Some("aa:bb:cc:dd:ee:ff"));
        assert_eq!(eth0.subnets.len(), 3);
        assert_eq!(eth0.subnets[0].address.as_ref().unwrap().to_string(), "10.0.0.2/16");
        assert_eq!(eth0.subnets[0].routes[0].to.to_string(), "0.0.0.0/0");
        assert_eq!(eth0.subnets[0].dns.search, ["a", "b"]);
        assert_eq!(eth0.subnets[1].method, Method::Dhcp6Stateless);
        assert_eq!(eth0.subnets[2].control, Control::Manual);
        assert_eq!(n.interfaces[1].mac.as_deref(), Some("aa:aa:aa:aa:aa:aa"));
        assert_eq!(n.dns.servers, ["8.8.8.8"]);
        assert_eq!(n.interface("v").unwrap().dns.servers, ["9.9.9.9"]);
        assert_eq!(eth0.routes[0].to.to_string(), "192.168.0.0/16");
        assert_eq!(n.interface("lo").unwrap().device_type, DeviceType::Loopback);
    }

    #[test]
    fn name_servers_lose_their_prefix() {
        let n = network(
            "version: 1\nconfig:\n- {type: nameserver, address: [192.0.2.14/27, '2001:db8::53/64', 192.0.2.15, 'x/y']}\n",
        );
        assert_eq!(n.dns.servers, ["192.0.2.14", "2001:db8::53", "192.0.2.15", "x/y"]);
    }

    #[test]
    fn only_a_static_subnet_has_a_gateway() {
        let of = |subnet: &str| {
            let text = format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{{subnet}, gateway: 10.0.0.1}}]}}]"
            );
            network(&text).interfaces[0].subnets[0].gateway.is_some()
        };
        assert!(of("type: static, address: 10.0.0.2/8"));
        assert!(!of("type: dhcp") && !of("type: manual") && !of("type: ipv6_slaac"));
    }

    #[test]
    fn precedence_among_keys_and_entries() {
        let n = network(
            "version: 1\nconfig:\n- {type: physical, name: e, mac_address: '52:54:00:00:00:AA', mtu: 0, subnets: [\n\
             \x20   {type: static, address: 10.0.0.2, prefix: 16, netmask: 255.255.255.0, mtu: 0,\n\
             \x20    routes: [{network: 10.9.0.0/16, destination: 10.8.0.0/16, gateway: 10.0.0.9}]}]}\n\
             - {type: physical, name: b, subnets: [{type: static, address: 10.0.0.3/8}]}\n- {type: physical, name: b, subnets: [{type: dhcp}]}\n\
             - {type: bond, name: bond0, bond_interfaces: [e], params: {bond-learn-packet-interval: 5}}\n",
        );
        let names: Vec<&str> = n.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["e", "b", "bond0"]);
        let e = &n.interfaces[0];
        assert_eq!((e.mtu, e.subnets[0].mtu, e.matching.mac.as_deref()), (None, None, Some("52:54:00:00:00:aa")));
        assert_eq!(e.subnets[0].address.as_ref().unwrap().to_string(), "10.0.0.2/16");
        let route = &e.subnets[0].routes[0];
        assert_eq!((route.to.to_string().as_str(), route.extra.len()), ("10.8.0.0/16", 0));
        assert!(n.interfaces[1].dhcp4());
        let DeviceType::Bond { params, .. } = &n.interfaces[2].device_type else { panic!() };
        assert!(params.contains_key("lp_interval"));
    }

    #[test]
    fn members_come_from_entry_or_bridge_ports() {
        let n = network(
            "version: 1\nconfig:\n- {type: bridge, name: a, bridge_interfaces: [e0], params: {bridge_stp: 'off'}}\n\
             - {type: bridge, name: b, bridge_interfaces: [e0], params: {bridge_ports: [e1, e2]}}\n\
             - {type: bond, name: c, bond_interfaces: [e3], params: {bond-slaves: none, bond-mode: active-backup}}\n",
        );
        let members = |name: &str| n.interface(name).unwrap().members().join(" ");
        assert_eq!([members("a"), members("b"), members("c")], ["e0", "e1 e2", "e3"]);
        let params = |name: &str| match &n.interface(name).unwrap().device_type {
            DeviceType::Bond { params, .. } | DeviceType::Bridge { params, .. } => {
                params.keys().collect::<Vec<_>>().join(" ")
            }
            _ => panic!("{name}"),
        };
        assert_eq!([params("a"), params("b"), params("c")], ["stp", "", "mode"]);
    }

    #[test]
    fn last_subnets_mtu_is_used() {
        let n = network(
            "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/8, mtu: 1400},\
             {type: static, address: '::2/64', mtu: 1320}, {type: static, address: '::3/64', mtu: 1310}, {type: static, address: 10.0.0.3/8, mtu: 1300}]}]",
        );
        assert_eq!((n.interfaces[0].link_mtu(), n.interfaces[0].inet6_mtu()), (Some(1300), Some(1310)));
    }

    #[test]
    fn a_subnets_mtu_takes_precedence_over_the_devices() {
        let of = |mtu: &str, subnet: &str| {
            let text = format!("version: 1\nconfig: [{{type: physical, name: e{mtu}, subnets: [{subnet}]}}]");
            network(&text).interfaces[0].mtu
        };
        assert_eq!(of(", mtu: 1400", "{type: static, address: 10.0.0.2/8, mtu: 1300}"), Some(1300));
        assert_eq!(of(", mtu: 1400", "{type: static, address: '::2/64', mtu: 1300}"), Some(1400));
        assert_eq!(of(", mtu: 1400", "{type: static, address: 10.0.0.2/8}"), Some(1400));
    }

    #[test]
    fn gateway_outside_a_host_prefix_is_on_link() {
        let on_link = |address: &str, gateway: &str| {
            let n = network(&format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: '{address}',\
                 routes: [{{destination: default, gateway: '{gateway}'}}]}}]}}]"
            ));
            n.interfaces[0].subnets[0].routes[0].on_link
        };
        assert_eq!(on_link("192.0.2.2/32", "198.51.100.1"), Some(true));
        assert_eq!(on_link("2001:db8::2/128", "2001:db8::1"), Some(true));
        for (address, gateway) in
            [("192.0.2.2/24", "192.0.2.1"), ("2001:db8::2/128", "fe80::1"), ("192.0.2.2/32", "2001:db8::1")]
        {
            assert_eq!(on_link(address, gateway), None, "{address} {gateway}");
        }
    }
}
