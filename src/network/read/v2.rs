//! Version 2: netplan's YAML (netplan.readthedocs.io, "YAML configuration"; cloud-init's "Networking config Version 2").

use super::complete::{MAX_INTERFACES, MAX_VLAN, complete, too_many};
use super::fields::{Fields, mac_of_number};
use super::format::{KEPT, impossible};
use crate::base::deprecated;
use crate::base::problem::{About, Problems};
use crate::document::{Map, Value};
use crate::machine::nic::is_name;
use crate::network::address::{Cidr, Ip};
use crate::network::mac::{Macs, is_infiniband_mac};
use crate::network::model::{
    DeviceType, DhcpOverrides, Dns, Interface, Match, Method, NETPLAN_SECTIONS, Network, ORIGIN, Route, Rule, Subnet,
    is_valid_name,
};
use crate::network::parameters;
use std::collections::HashMap;

/// A section's name and the reader of its devices' own keys.
type Section = (&'static str, fn(&mut Fields) -> Option<DeviceType>);

const SECTIONS: &[Section] = &[
    ("ethernets", |_| Some(DeviceType::Ethernet)),
    ("wifis", |f| Some(DeviceType::Wifi(keep(f, &["access-points", "regulatory-domain", "wakeonwlan", "hidden"])))),
    ("dummy-devices", |_| Some(DeviceType::Dummy)),
    ("bonds", |f| {
        Some(DeviceType::Bond { interfaces: f.names("interfaces"), params: parameters(f, parameters::BOND) })
    }),
    ("bridges", |f| {
        Some(DeviceType::Bridge { interfaces: f.names("interfaces"), params: parameters(f, parameters::BRIDGE) })
    }),
    ("vlans", vlan),
    ("vrfs", vrf),
    ("tunnels", |f| Some(DeviceType::Tunnel(keep(f, TUNNEL_KEYS)))),
];

/// A tunnel's own keys (netplan, "Properties for device type tunnels").
const TUNNEL_KEYS: &[&str] = &[
    "mode",
    "local",
    "remote",
    "ttl",
    "key",
    "keys",
    "port",
    "mark",
    "peers",
    "id",
    "link",
    "type-of-service",
    "mac-learning",
    "ageing",
    "aging",
    "limit",
    "arp-proxy",
    "notifications",
    "short-circuit",
    "checksums",
    "extensions",
    "port-range",
    "flow-label",
    "do-not-fragment",
];

/// Whether a mapping has one of version 2's sections.
pub fn is(map: &Map) -> bool {
    SECTIONS.iter().any(|(name, _)| map.contains_key(name))
}

/// Reads the mapping below `network:`. A mistake in it is reported and skipped.
pub fn read(config: &Map, macs: &Macs, report: &Problems) -> Network {
    let problems = report.about(ORIGIN);
    let mut network = network(config, macs, problems);
    refer_by_name(&mut network);
    complete(&mut network, Vec::new(), problems);
    network
}

fn network(config: &Map, macs: &Macs, problems: About<'_>) -> Network {
    let mut given = config.clone();
    restore_texts(&mut given);
    let mut network = Network { v2: Some(given), ..Network::default() };
    let Some(mut top) = Fields::new("network", Value::Map(config.clone()), problems) else { return network };
    top.take("version");
    top.take("renderer");
    NETPLAN_SECTIONS.iter().for_each(|section| drop(top.take(section)));
    for (section, device_type) in SECTIONS {
        let Some(mut devices) = top.map(section) else { continue };
        devices.take("renderer");
        for (id, value) in devices.entries() {
            let path = format!("{section}.{id}");
            if !is_valid_name(&id) {
                problems.reject(section, "names of devices", "another text");
            } else if network.interfaces.len() >= MAX_INTERFACES {
                too_many(problems);
            } else if let Some(fields) = Fields::new(path, value, problems) {
                network.interfaces.extend(interface(id, fields, *device_type, macs));
            }
        }
    }
    top.finish();
    network
}

/// Turns MAC addresses that YAML took for numbers back, and `off` that it took for false, as for the model: netplan gets the mapping.
fn restore_texts(config: &mut Map) {
    fn restore(of: &mut Map, key: &str) {
        if let Some(mac) = of.get(key).and_then(Value::as_int).and_then(mac_of_number) {
            of.insert(key, mac);
        }
    }
    fn each(of: &mut Map, key: &str, change: fn(&mut Map)) {
        let Some(Value::Map(entries)) = of.get_mut(key) else { return };
        let keys: Vec<String> = entries.keys().map(str::to_owned).collect();
        for key in keys {
            if let Some(Value::Map(entry)) = entries.get_mut(&key) {
                change(entry);
            }
        }
    }
    for (section, _) in SECTIONS {
        each(config, section, |device| {
            restore_off(device);
            restore(device, "macaddress");
            if let Some(Value::Map(matching)) = device.get_mut("match") {
                restore(matching, "macaddress");
            }
            each(device, "access-points", |point| restore(point, "bssid"));
        });
    }
}

fn interface(
    id: String,
    mut f: Fields,
    device_type: fn(&mut Fields) -> Option<DeviceType>,
    macs: &Macs,
) -> Option<Interface> {
    let device_type = device_type(&mut f)?;
    let mut new = Interface { id, device_type, ..Interface::default() };
    f.take("renderer");
    new.matching = f.map("match").map(matching).unwrap_or_default();
    let mut set_name = f.name("set-name");
    if let Some(name) = set_name.take_if(|name| !is_name(name)) {
        f.problems().warn(format_args!("{}{KEPT}", impossible(&name)));
    }
    // Nothing would be renamed, as in netplan, and no device would have the name.
    if new.matching == Match::default() && set_name.take().is_some() {
        f.reject_key("set-name", "match beside it", "set-name alone");
    }
    new.rename = set_name.is_some();
    let known = new.matching.mac.as_deref().and_then(|m| macs.name(m)).map(str::to_owned);
    let is_plain = |name: &String| is_valid_name(name) && !name.contains(['*', '?', '[']);
    // The name of a single device, not a pattern.
    let named = match &new.matching {
        Match { mac: None, name: Some(name), drivers } if drivers.is_empty() && is_plain(name) => Some(name.clone()),
        _ => None,
    };
    if named.is_some() && set_name.is_none() {
        new.matching = Match::default();
    }
    new.name = set_name.or(known).or(named).unwrap_or_else(|| new.id.clone());
    if new.device_type == DeviceType::Ethernet && new.id == "lo" && new.matching == Match::default() {
        new.device_type = DeviceType::Loopback;
    }
    let has_infiniband_address = new.matching.mac.as_deref().is_some_and(is_infiniband_mac);
    if new.device_type == DeviceType::Ethernet && (f.has("infiniband-mode") || has_infiniband_address) {
        new.device_type = DeviceType::Infiniband;
    }
    new.mac = f.mac("macaddress");
    new.mtu = f.mtu("mtu");
    new.ipv6_mtu = f.mtu("ipv6-mtu");
    new.accept_ra = f.boolean("accept-ra");
    new.wake_on_lan = f.boolean("wakeonlan");
    new.optional = f.boolean("optional");
    new.keep_configuration = f.boolean("critical").map(|critical| critical.to_string());
    new.link_local = link_local(&mut f);
    new.dns = f.map("nameservers").map(nameservers).unwrap_or_default();
    new.dhcp4_overrides = f.map("dhcp4-overrides").map(overrides).unwrap_or_default();
    new.dhcp6_overrides = f.map("dhcp6-overrides").map(overrides).unwrap_or_default();
    // VMware's keys (cloud-init 26.2, networkd.py, `dhcp_domain`).
    for (key, overrides) in [("dhcp4domain", &mut new.dhcp4_overrides), ("dhcp6domain", &mut new.dhcp6_overrides)] {
        let domains = f.text(key);
        overrides.use_domains = overrides.use_domains.take().or(domains);
    }
    for (key, method) in [("dhcp4", Method::Dhcp4), ("dhcp6", Method::Dhcp6)] {
        match f.boolean(key) {
            Some(true) => new.subnets.push(Subnet { method, ..Subnet::default() }),
            Some(false) if method == Method::Dhcp4 => new.denies_dhcp4 = true,
            _ => {}
        }
    }
    new.subnets.extend(addresses(&mut f));
    for route in f.list("routes") {
        new.routes.extend(self::route(route));
    }
    for rule in f.list("routing-policy") {
        new.rules.extend(self::rule(rule));
    }
    // As in netplan, a VRF's routes default to its table.
    if let DeviceType::Vrf { table, .. } = new.device_type {
        let tables = new.routes.iter_mut().map(|r| &mut r.table);
        for open in tables.chain(new.rules.iter_mut().map(|r| &mut r.table)) {
            open.get_or_insert(table);
        }
    }
    for key in ["gateway4", "gateway6"] {
        let Some(gateway) = f.ip(key) else { continue };
        f.problems().deprecated(deprecated::GATEWAY.about(""));
        let v6 = gateway.is_v6();
        match new.subnets.iter_mut().find(|s| s.gateway.is_none() && s.method == Method::Static && s.is_v6() == v6) {
            Some(subnet) => subnet.gateway = Some(gateway),
            None => f.reject_key(key, "an address of its family in addresses, or a lease's gateway", "a gateway alone"),
        }
    }
    new.extra = f.rest();
    restore_off(&mut new.extra);
    Some(new)
}

/// `off` without quotes is false to YAML 1.1.
fn restore_off(device: &mut Map) {
    if device.get("activation-mode").is_some_and(|mode| *mode == Value::Bool(false)) {
        device.insert("activation-mode", "off");
    }
}

fn matching(mut f: Fields) -> Match {
    let found = Match { mac: f.mac("macaddress"), name: f.text("name"), drivers: f.words("driver") };
    f.finish();
    found
}

fn nameservers(mut f: Fields) -> Dns {
    let dns = Dns { servers: f.servers("addresses"), search: f.words("search") };
    f.finish();
    dns
}

fn link_local(f: &mut Fields) -> Option<Vec<String>> {
    match f.take("link-local")? {
        // Both `[]` and `false` mean none.
        Value::Bool(false) => Some(Vec::new()),
        Value::List(list) => Some(list.iter().filter_map(Value::text).collect()),
        other => {
            f.reject_key("link-local", "a list of ipv4 and ipv6", other.kind());
            None
        }
    }
}

/// Static subnets. An address is a text, or a mapping of one address to its options.
fn addresses(f: &mut Fields) -> Vec<Subnet> {
    let values = match f.take("addresses") {
        None => return Vec::new(),
        Some(Value::List(list)) => list,
        Some(other) => vec![other],
    };
    let mut out = Vec::new();
    for value in values {
        let entries = match value {
            Value::Map(map) => map.into_entries(),
            scalar => vec![(scalar.text().unwrap_or_default(), Value::Null)],
        };
        for (text, options) in entries {
            let Some(address) = Cidr::parse_address(&text, None) else {
                f.reject_key("addresses", "IP addresses with a prefix", "something else");
                continue;
            };
            let mut subnet = Subnet { method: Method::Static, address: Some(address), ..Subnet::default() };
            if let Some(mut options) = Fields::new(format!("{}.{text}", f.path_of("addresses")), options, f.problems())
            {
                subnet.label = options.text("label");
                subnet.lifetime = options.text("lifetime");
                options.finish();
            }
            out.push(subnet);
        }
    }
    out
}

fn route(mut f: Fields) -> Option<Route> {
    let via = f.gateway("via")?;
    let Some(to) = f.text("to") else {
        f.reject("a route with a destination", "none");
        return None;
    };
    let to = match to {
        to if to == "default" => Cidr::default_of(via.as_ref().is_some_and(Ip::is_v6)),
        to => match Cidr::parse_or_host(&to) {
            Some(net) => net,
            None => {
                f.reject_key("to", "an IP address with a prefix or \"default\"", "another text");
                return None;
            }
        },
    };
    let mut route = Route::new(to, via);
    route.from = f.ip("from");
    route.metric = f.number("metric");
    route.mtu = f.number("mtu");
    route.table = f.number("table");
    route.scope = f.text("scope");
    route.route_type = f.text("type");
    route.on_link = f.boolean("on-link");
    route.extra = f.rest();
    Some(route)
}

fn rule(mut f: Fields) -> Option<Rule> {
    let rule = Rule {
        from: f.cidr("from"),
        to: f.cidr("to"),
        table: f.number("table"),
        priority: f.number("priority"),
        mark: f.number("mark"),
        tos: f.number("type-of-service"),
    };
    f.finish();
    (rule != Rule::default()).then_some(rule)
}

fn overrides(mut f: Fields) -> DhcpOverrides {
    let found = DhcpOverrides {
        hostname: f.word("hostname"),
        route_metric: f.number("route-metric"),
        send_hostname: f.boolean("send-hostname"),
        use_dns: f.boolean("use-dns"),
        use_domains: f.text("use-domains"),
        use_hostname: f.boolean("use-hostname"),
        use_mtu: f.boolean("use-mtu"),
        use_ntp: f.boolean("use-ntp"),
        use_routes: f.boolean("use-routes"),
    };
    f.finish();
    found
}

fn parameters(f: &mut Fields, table: &'static [parameters::Parameter]) -> Map {
    let Some((params, refuse)) = f.map("parameters").map(Fields::parameters) else { return Map::new() };
    parameters::from_netplan(table, &params, refuse)
}

fn vlan(f: &mut Fields) -> Option<DeviceType> {
    match (f.number("id"), f.name("link")) {
        (Some(id), Some(link)) if id <= MAX_VLAN => Some(DeviceType::Vlan { id, link }),
        _ => {
            f.reject("a vlan with id (0 to 4094) and link", "something else");
            None
        }
    }
}

fn vrf(f: &mut Fields) -> Option<DeviceType> {
    let Some(table) = f.number("table") else {
        f.reject("a VRF with a table", "none");
        return None;
    };
    Some(DeviceType::Vrf { table, interfaces: f.names("interfaces") })
}

fn keep(f: &mut Fields, keys: &[&str]) -> Map {
    keys.iter().filter_map(|k| f.take(k).map(|v| (*k, v))).collect()
}

/// Replaces ids by names in references between devices: version 2 refers by id, the model by name.
fn refer_by_name(network: &mut Network) {
    let renamed = network.interfaces.iter().filter(|i| i.id != i.name);
    let mut names: HashMap<String, String> = HashMap::new();
    for interface in renamed {
        // An id may occur in two sections; the first one takes precedence.
        names.entry(interface.id.clone()).or_insert_with(|| interface.name.clone());
    }
    let rename = |id: &mut String| {
        if let Some(name) = names.get(id) {
            id.clone_from(name);
        }
    };
    let rename_value = |value: &mut Value| {
        if let Some(name) = value.as_str().and_then(|id| names.get(id)) {
            *value = name.as_str().into();
        }
    };
    for interface in &mut network.interfaces {
        match &mut interface.device_type {
            DeviceType::Bond { interfaces, params } | DeviceType::Bridge { interfaces, params } => {
                interfaces.iter_mut().for_each(rename);
                for key in ["pathcost", "portprio"] {
                    if let Some(Value::Map(ports)) = params.get_mut(key) {
                        let renamed = ports.iter().map(|(id, v)| {
                            let mut id = id.to_owned();
                            rename(&mut id);
                            (id, v.clone())
                        });
                        *ports = renamed.collect();
                    }
                }
                if let Some(primary) = params.get_mut("primary") {
                    rename_value(primary);
                }
            }
            DeviceType::Vrf { interfaces, .. } => interfaces.iter_mut().for_each(rename),
            DeviceType::Vlan { link, .. } => rename(link),
            DeviceType::Tunnel(keys) => {
                if let Some(link) = keys.get_mut("link") {
                    rename_value(link);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::mac::Macs;
    use crate::network::model::*;
    use crate::network::testing::network_for;

    fn network(text: &str) -> Network {
        network_for(text, &Macs::from_iter([("cf:d6:af:48:e8:80", "eth0")]))
    }

    #[test]
    fn references_are_by_name() {
        let n = network(
            "network: {version: 2, ethernets: {a: {match: {macaddress: CF-D6-AF-48-E8-80}}, b: {match: {name: 'en*'}, set-name: lan0},\n \
             c: {match: {driver: [e1000*, ixgbe]}}}, bonds: {bond0: {interfaces: [a, b], parameters: {primary: b}}}, vlans: {v: {id: 5, link: bond0}}}",
        );
        let names: Vec<&str> = n.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth0", "lan0", "c", "bond0", "v"]);
        assert_eq!(n.interface("bond0").unwrap().members(), ["eth0", "lan0"]);
        assert_eq!(n.master_of("lan0").unwrap().name, "bond0");
        assert_eq!(n.vlans_on("bond0").count(), 1);
        let DeviceType::Bond { params, .. } = &n.interface("bond0").unwrap().device_type else { panic!() };
        assert_eq!(params.get("primary").and_then(|v| v.as_str()), Some("lan0"));
        assert!(n.interface("c").unwrap().is_pattern());
        assert!(!n.interface("lan0").unwrap().is_pattern());
        assert_eq!(n.v2.as_ref().unwrap().keys().count(), 4);
    }

    #[test]
    fn addresses_gateways_and_routes() {
        let n = network(
            "version: 2\nethernets:\n  e:\n    dhcp4: yes\n    dhcp6: false\n    addresses: [10.0.0.2/8, {'2001:db8::2/64': {label: x, lifetime: 0}}, nonsense]\n\
             \x20   gateway4: 10.0.0.1\n    gateway6: fe80::1\n    nameservers: {addresses: 8.8.8.8, search: [a, b]}\n\
             \x20   routes: [{to: default, via: fe80::1, metric: 5}, {to: 1.2.3.4, via: 10.0.0.9, on-link: true, congestion-window: 3}, {via: 1.1.1.1}]\n\
             \x20   routing-policy: [{from: 10.0.0.0/8, table: 7}]\n    dhcp4-overrides: {use-mtu: false, use-domains: route}\n    ipv6-privacy: true\n",
        );
        let e = &n.interfaces[0];
        let addresses: Vec<String> = e.addresses().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.2/8", "2001:db8::2/64"]);
        assert_eq!(e.subnets[0].method, Method::Dhcp4);
        assert_eq!(e.subnets[1].gateway.as_ref().unwrap().to_string(), "10.0.0.1");
        assert_eq!(e.subnets[2].gateway.as_ref().unwrap().to_string(), "fe80::1");
        assert_eq!((e.subnets[2].label.as_deref(), e.subnets[2].lifetime.as_deref()), (Some("x"), Some("0")));
        assert_eq!(e.dns, Dns { servers: vec!["8.8.8.8".into()], search: vec!["a".into(), "b".into()] });
        let routes: Vec<String> = e.all_routes().map(|r| r.to.to_string()).collect();
        assert_eq!(routes, ["::/0", "1.2.3.4/32"]);
        assert!(e.routes[1].extra.contains_key("congestion-window"));
        assert_eq!(e.rules[0].table, Some(7));
        assert_eq!(e.dhcp4_overrides.use_mtu, Some(false));
        assert_eq!(e.extra.keys().collect::<Vec<_>>(), ["ipv6-privacy"]);
    }

    #[test]
    fn a_match_for_one_name_is_no_pattern() {
        let n = network(
            "version: 2\nethernets: {a: {match: {name: eth0}}, b: {match: {name: 'eth[12]'}}, c: {match: {name: eth3}, set-name: lan0}}",
        );
        let names: Vec<&str> = n.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth0", "b", "lan0"]);
        assert_eq!(n.interfaces.iter().map(Interface::is_pattern).collect::<Vec<_>>(), [false, true, false]);
        assert!(n.interfaces[0].is_named() && n.interfaces[2].matching.name.as_deref() == Some("eth3"));
    }

    #[test]
    fn a_gateway_needs_an_address_of_its_family() {
        let n = network(
            "version: 2\nethernets: {a: {dhcp4: true, gateway4: 10.0.0.1, addresses: ['::2/64'], gateway6: '::1'}}",
        );
        let a = &n.interfaces[0];
        assert!(a.all_routes().next().is_none() && a.subnets[0].gateway.is_none() && a.subnets[1].gateway.is_some());
    }

    #[test]
    fn ignores_zero_mtu_and_reads_both_domain_keys() {
        let n = network(
            "version: 2\nethernets: {e: {mtu: 0, ipv6-mtu: 0, dhcp4domain: true, dhcp6domain: route, dhcp4: true}}",
        );
        let e = &n.interfaces[0];
        assert_eq!((e.mtu, e.ipv6_mtu, e.extra.len()), (None, None, 0));
        let domains = [&e.dhcp4_overrides, &e.dhcp6_overrides].map(|o| o.use_domains.as_deref());
        assert_eq!(domains, [Some("true"), Some("route")]);
    }

    #[test]
    fn ignores_a_mistake_and_reads_the_rest() {
        let n = network(
            "version: 2\nethernets: {'../x': {dhcp4: true}, \"a\\nb\": {}, ok: {mtu: big, dhcp4: maybe, addresses: 7}}\n\
             bonds: [1]\nvlans: {v: {id: 9999, link: ok}, w: {id: 3, link: gone}}\nbridges: {br0: {interfaces: [br0, ok]}}\n",
        );
        let names: Vec<&str> = n.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["ok", "br0", "w", "gone"]);
        assert!(n.interface("gone").unwrap().implicit);
        assert_eq!(n.interface("br0").unwrap().members(), ["ok"]);
    }
}
