//! Version 1 (cloud-init's "Networking config Version 1").

use super::fields::{Fields, reject};
use crate::document::{Map, Value};
use crate::network::address::{Ip, Net};
use crate::network::model::{Control, Dns, Interface, Kind, Method, Network, Route, Subnet};
use crate::network::params;

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

/// Reads the list below `config:`. Never fails: what is wrong in it is reported and left out.
pub fn read(config: &[Value]) -> Network {
    let mut network = Network::default();
    let mut tied: Vec<(String, Dns)> = Vec::new();
    for (i, value) in config.iter().enumerate() {
        let Some(mut f) = Fields::new(format!("config[{i}]"), value.clone()) else { continue };
        let Some(kind) = f.text("type") else {
            reject(f.path(), "an entry with a type", "none");
            continue;
        };
        match kind.as_str() {
            "nameserver" => {
                let dns = Dns { servers: f.words("address"), search: f.words("search") };
                match f.name("interface") {
                    Some(name) => tied.push((name, dns)),
                    None => network.dns.merge(&dns),
                }
                f.finish();
            }
            "route" => network.routes.extend(route(f, "destination")),
            _ if network.interfaces.len() >= super::v2::MAX_INTERFACES => {
                log::warn!("network configuration: more than {} devices", super::v2::MAX_INTERFACES);
            }
            kind => network.interfaces.extend(interface(kind, f)),
        }
    }
    for (name, dns) in tied {
        match network.interfaces.iter_mut().find(|i| i.name == name) {
            Some(interface) => interface.dns.merge(&dns),
            None => log::warn!("network configuration: nameserver for {name}, which is not configured; it is left out"),
        }
    }
    super::complete(&mut network);
    network
}

fn interface(kind: &str, mut f: Fields) -> Option<Interface> {
    let kind = match kind {
        "physical" => Kind::Ethernet,
        "loopback" => Kind::Loopback,
        "infiniband" => Kind::Infiniband,
        "dummy" => Kind::Dummy,
        "bond" => Kind::Bond {
            interfaces: f.names("bond_interfaces"),
            params: params::from_v1(params::BOND, "bond", &parameters(&mut f)),
        },
        "bridge" => Kind::Bridge {
            interfaces: f.names("bridge_interfaces"),
            params: params::from_v1(params::BRIDGE, "bridge", &parameters(&mut f)),
        },
        "vlan" => vlan(&mut f)?,
        _ => {
            reject(&f.path_of("type"), "a type of version 1", "another");
            return None;
        }
    };
    let Some(name) = f.name("name") else {
        reject(f.path(), "a device with a name", "none");
        return None;
    };
    let mut new = Interface { id: name.clone(), name, kind, ..Interface::default() };
    let mac = f.text("mac_address").filter(|m| !m.is_empty());
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
    new.mtu = f.number("mtu");
    new.accept_ra = f.boolean("accept-ra");
    new.wake_on_lan = f.boolean("wakeonlan");
    new.optional = f.boolean("optional");
    new.keep_configuration = f.text("keep_configuration");
    for subnet in f.list("subnets") {
        new.subnets.extend(self::subnet(subnet));
    }
    // What a static IPv4 subnet says counts before what the device says.
    let is_static4 = |s: &&Subnet| s.method == Method::Static && !s.is_v6();
    let own = new.subnets.iter().filter(is_static4).filter_map(|s| s.mtu).next_back();
    if let (Some(own), Some(device)) = (own, new.mtu)
        && own != device
    {
        log::warn!("network configuration: {}: the MTU {own} of its subnet counts, not {device}", new.name);
        new.mtu = Some(own);
    }
    new.more = f.rest();
    Some(new)
}

/// `params`: a mapping, or a list of mappings.
fn parameters(f: &mut Fields) -> Map {
    match f.take("params") {
        Some(Value::Map(map)) => map,
        Some(Value::List(list)) => {
            list.into_iter().filter_map(|v| v.as_map().cloned()).flat_map(Map::into_entries).collect()
        }
        None => Map::new(),
        Some(other) => {
            reject(&f.path_of("params"), "a mapping", other.kind());
            Map::new()
        }
    }
}

fn vlan(f: &mut Fields) -> Option<Kind> {
    match (f.number("vlan_id"), f.name("vlan_link")) {
        (Some(id), Some(link)) if id <= super::MAX_VLAN => Some(Kind::Vlan { id, link }),
        _ => {
            reject(f.path(), "a vlan with vlan_id (0 to 4094) and vlan_link", "something else");
            None
        }
    }
}

fn subnet(mut f: Fields) -> Option<Subnet> {
    let kind = f.text("type").unwrap_or_else(|| "static".into());
    let Some((_, method)) = METHODS.iter().find(|(name, _)| *name == kind) else {
        reject(&f.path_of("type"), "a subnet type of version 1", "another");
        return None;
    };
    let mut new = Subnet { method: *method, ..Subnet::default() };
    new.control = match f.text("control").as_deref() {
        None | Some("auto") => Control::Auto,
        Some("manual") => Control::Manual,
        Some("hotplug") => Control::Hotplug,
        Some(_) => {
            reject(&f.path_of("control"), "auto, manual or hotplug", "another text");
            Control::Auto
        }
    };
    let mask = mask(&mut f);
    if let Some(text) = f.text("address") {
        new.address = Net::parse(&text, mask.as_deref());
        if new.address.is_none() {
            reject(&f.path_of("address"), "an IP address with a prefix or netmask", "something else");
        }
    }
    if *method == Method::Static && new.address.is_none() {
        return None;
    }
    new.gateway = f.ip("gateway");
    new.broadcast = f.ip("broadcast");
    new.pointopoint = f.ip("pointopoint");
    new.scope = f.text("scope");
    new.metric = f.number("metric");
    new.mtu = f.number("mtu");
    new.dns = Dns { servers: f.words("dns_nameservers"), search: f.words("dns_search") };
    for route in f.list("routes") {
        new.routes.extend(self::route(route, "network"));
    }
    // network_data.json's marks of the family.
    f.take("ipv4");
    f.take("ipv6");
    f.finish();
    Some(new)
}

/// The netmask or the prefix length; the netmask counts where it says something.
fn mask(f: &mut Fields) -> Option<String> {
    let prefix = f.text("prefix");
    f.text("netmask").filter(|m| !m.is_empty()).or(prefix)
}

/// A route: `destination` or `network`, with a prefix, a netmask or neither, and `gateway`.
fn route(mut f: Fields, first: &str) -> Option<Route> {
    let mask = mask(&mut f);
    let second = if first == "network" { "destination" } else { "network" };
    let via = f.ip("gateway");
    let to = match f.text(first).or_else(|| f.text(second)) {
        Some(to) if to == "default" => Some(Net::default_of(via.as_ref().is_some_and(Ip::is_v6))),
        Some(to) => Net::parse(&to, mask.as_deref()),
        None => None,
    };
    let Some(to) = to else {
        reject(f.path(), "a route with a destination", "something else");
        return None;
    };
    let mut route = Route::new(to, via);
    route.metric = f.number("metric");
    route.mtu = f.number("mtu");
    route.table = f.number("table");
    route.from = f.ip("source");
    route.more = f.rest();
    route.more.remove("type");
    Some(route)
}

#[cfg(test)]
mod tests {
    use crate::document::yaml;
    use crate::network::model::*;
    use crate::network::read;

    fn network(text: &str) -> Network {
        read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap()
    }

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
        assert_eq!(eth0.matching.mac.as_deref(), Some("AA:bb:cc:dd:ee:ff"));
        assert_eq!(eth0.subnets.len(), 3);
        assert_eq!(eth0.subnets[0].address.as_ref().unwrap().to_string(), "10.0.0.2/16");
        assert_eq!(eth0.subnets[0].routes[0].to.to_string(), "0.0.0.0/0");
        assert_eq!(eth0.subnets[0].dns.search, ["a", "b"]);
        assert_eq!(eth0.subnets[1].method, Method::Dhcp6Stateless);
        assert_eq!(eth0.subnets[2].control, Control::Manual);
        assert_eq!(n.interfaces[1].mac.as_deref(), Some("aa:aa:aa:aa:aa:aa"));
        assert_eq!(n.dns.servers, ["8.8.8.8"]);
        assert_eq!(n.interface("v").unwrap().dns.servers, ["9.9.9.9"]);
        assert_eq!(n.routes[0].to.to_string(), "192.168.0.0/16");
        assert_eq!(n.interface("lo").unwrap().kind, Kind::Loopback);
    }

    #[test]
    fn a_subnet_s_mtu_counts_before_the_device_s() {
        let of = |mtu: &str, subnet: &str| {
            let text = format!("version: 1\nconfig: [{{type: physical, name: e{mtu}, subnets: [{subnet}]}}]");
            network(&text).interfaces[0].mtu
        };
        assert_eq!(of(", mtu: 1400", "{type: static, address: 10.0.0.2/8, mtu: 1300}"), Some(1300));
        assert_eq!(of(", mtu: 1400", "{type: static, address: '::2/64', mtu: 1300}"), Some(1400));
        assert_eq!(of(", mtu: 1400", "{type: static, address: 10.0.0.2/8}"), Some(1400));
    }
}
