//! Network configuration from the EC2 metadata, as cloud-init's Ec2 source derives it: version 2, with one
//! entry per interface.

use crate::document::{Map, Value};
use crate::instance::NetworkData;
use crate::machine::Nic;
use crate::network::fallback::natural;
use std::net::{IpAddr, Ipv4Addr};

/// The routing table of the second interface; further ones have the next numbers.
const FIRST_TABLE: i32 = 100;

/// How much of the metadata is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// DHCP on one interface (`apply_full_imds_network_config: false`).
    One,
    /// DHCP on each interface (AliYun).
    Each,
    /// DHCP, all secondary addresses, and a routing table for each further interface (Ec2).
    All,
}

impl Scope {
    /// `full`, unless the image's settings restrict the configuration to one interface.
    pub fn of(is_restricted: bool, full: Scope) -> Scope {
        if is_restricted { Scope::One } else { full }
    }
}

/// An interface of this machine that the metadata lists.
struct Known<'a> {
    nic: &'a Nic,
    data: &'a Map,
}

/// The network configuration. None if no interface in the metadata is this machine's: then the fallback is
/// used.
///
/// With [`Scope::One`], the interface is the one named `link`, or the first. `router` returns the router that
/// a link's DHCP server gave.
pub fn config(
    metadata: &Map,
    nics: &[Nic],
    link: Option<&str>,
    scope: Scope,
    router: &dyn Fn(&str) -> Option<Ipv4Addr>,
) -> Option<NetworkData> {
    let macs = metadata.get("network")?.at(&["interfaces", "macs"])?.as_map()?;
    let mut known: Vec<Known> = Vec::new();
    for (mac, data) in macs.iter() {
        let mac = mac.to_ascii_lowercase();
        let mut with = nics.iter().filter(|n| n.mac == mac && !n.has_master);
        let nic = with.clone().find(|n| n.physical).or_else(|| with.next());
        if let (Some(nic), Some(data)) = (nic, data.as_map().filter(|data| !data.is_empty())) {
            known.push(Known { nic, data });
        }
    }
    let number = |k: &Known, key: &str| if scope == Scope::Each { 0 } else { number(k.data, key) };
    let name = |k: &Known| if scope == Scope::Each { natural(&k.nic.name) } else { vec![(0, k.nic.mac.clone())] };
    crate::base::sort::by_key(&mut known, |k| (number(k, "network-card"), number(k, "device-number"), name(k)));
    if scope == Scope::One {
        let asked = known.iter().position(|k| Some(k.nic.name.as_str()) == link).unwrap_or(0);
        known = known.into_iter().skip(asked).take(1).collect();
    }
    let count = known.len();
    let one = |(order, known): (usize, &Known)| {
        let order = i32::try_from(order).unwrap_or(i32::MAX / 1000);
        (known.nic.name.clone(), interface(known, (order, count), scope, router))
    };
    let ethernets: Map = known.iter().enumerate().map(one).collect();
    if ethernets.is_empty() {
        return None;
    }
    let mut config = Map::new();
    config.insert("version", 2);
    config.insert("ethernets", ethernets);
    Some(NetworkData::Cloud(Value::Map(config)))
}

/// A number in the metadata; a missing one sorts last.
fn number(data: &Map, key: &str) -> u32 {
    data.get(key).and_then(Value::text).and_then(|t| t.parse().ok()).unwrap_or(u32::MAX)
}

/// The configuration of one interface, at its place among a number of them.
fn interface(
    known: &Known,
    (order, count): (i32, usize),
    scope: Scope,
    router: &dyn Fn(&str) -> Option<Ipv4Addr>,
) -> Value {
    let (several, full) = (count > 1, scope == Scope::All);
    let mut out = Map::new();
    let six = !texts(known.data, "ipv6s").is_empty();
    out.insert("dhcp4", true);
    out.insert("dhcp6", six);
    out.insert("match", Value::Map([("macaddress", known.nic.mac.as_str())].into_iter().collect()));
    out.insert("set-name", known.nic.name.as_str());
    // Services that do not number their interfaces do not say which is the primary one.
    let policy_routing = full && several && order > 0 && known.data.contains_key("device-number");
    if several {
        let mut overrides: Map = [("route-metric", Value::Int(i64::from(order + 1) * 100))].into_iter().collect();
        if policy_routing {
            overrides.insert("use-routes", true);
        }
        if six {
            out.insert("dhcp6-overrides", overrides.clone());
        }
        out.insert("dhcp4-overrides", overrides);
    }
    let further = if full { further_addresses(known.data) } else { Vec::new() };
    if !further.is_empty() {
        out.insert("addresses", further.into_iter().map(Value::from).collect::<Vec<_>>());
    }
    if policy_routing {
        policy(known.data, FIRST_TABLE + order, router(&known.nic.name), &mut out);
    }
    Value::Map(out)
}

/// The interface's addresses after the first, which comes from DHCP.
fn further_addresses(data: &Map) -> Vec<String> {
    let of = |ips: &str, network: &str, otherwise: &str| -> Vec<String> {
        let network = texts(data, network).into_iter().next();
        let length = network.and_then(|n| n.split_once('/').map(|(_, l)| l.to_owned()));
        let length = length.unwrap_or_else(|| otherwise.into());
        let plain = |ip: &String| ip.parse::<IpAddr>().is_ok();
        texts(data, ips).into_iter().filter(plain).skip(1).map(|ip| format!("{ip}/{length}")).collect()
    };
    let mut all = of("local-ipv4s", "subnet-ipv4-cidr-block", "24");
    // The router advertises the IPv6 prefix.
    all.extend(of("ipv6s", "subnet-ipv6-cidr-block", "128"));
    all.sort();
    all
}

/// Policy routing: packets from a further interface's addresses leave over that interface, by a routing table
/// of its own.
fn policy(data: &Map, table: i32, router: Option<Ipv4Addr>, out: &mut Map) {
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    let mut add = |to: String, via: Option<String>| {
        let mut route = Map::new();
        route.insert("to", to);
        if let Some(via) = via {
            route.insert("via", via);
        }
        route.insert("table", table);
        routes.push(Value::Map(route));
    };
    for (networks, ips) in [("subnet-ipv4-cidr-block", "local-ipv4s"), ("subnet-ipv6-cidr-blocks", "ipv6s")] {
        let (networks, ips) = (texts(data, networks), texts(data, ips));
        if ips.is_empty() {
            continue;
        }
        for network in networks.iter() {
            // The subnet's router has the first address after the network address (VPC user guide, "Subnet
            // sizing").
            let first = || u32::from(network.split('/').next()?.parse::<Ipv4Addr>().ok()?).checked_add(1);
            if let Some(first) = first() {
                add("0.0.0.0/0".into(), Some(router.unwrap_or_else(|| first.into()).to_string()));
            }
            add(network.clone(), None);
        }
        if !networks.is_empty() {
            let rule = |ip: String| [("from", Value::from(ip)), ("table", Value::from(table))].into_iter().collect();
            rules.extend(ips.into_iter().map(rule).map(|rule: Map| Value::Map(rule)));
        }
    }
    if !routes.is_empty() {
        out.insert("routes", routes);
        out.insert("routing-policy", rules);
    }
}

/// A value or a list of values.
fn texts(data: &Map, key: &str) -> Vec<String> {
    match data.get(key) {
        Some(Value::List(list)) => list.iter().filter_map(Value::text).filter(|t| !t.is_empty()).collect(),
        Some(value) => value.text().filter(|t| !t.is_empty()).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn nic(name: &str, mac: &str) -> Nic {
        Nic { name: name.into(), mac: mac.into(), physical: true, ..Nic::default() }
    }

    fn of(tree: &str, full: bool) -> Option<Value> {
        let Value::Map(metadata) = json::parse("t", tree.as_bytes()).unwrap() else { panic!() };
        let nics = [nic("ens6", "06:00:00:00:00:02"), nic("ens5", "06:00:00:00:00:01")];
        config(&metadata, &nics, Some("ens5"), Scope::of(!full, Scope::All), &|_| None).map(|n| match n {
            NetworkData::Cloud(value) => value,
            other => panic!("{other:?}"),
        })
    }

    const ONE: &str = r#""06:00:00:00:00:01": {"device-number": "0", "local-ipv4s": ["10.0.0.5", "10.0.0.6"],
        "subnet-ipv4-cidr-block": "10.0.0.0/20", "ipv6s": "2001:db8::5"}"#;
    const TWO: &str = r#""06:00:00:00:00:02": {"device-number": "1", "local-ipv4s": "10.1.0.5", "subnet-ipv4-cidr-block": "10.1.0.0/20"}"#;

    #[test]
    fn one_interface_has_no_metric() {
        let got = of(&format!(r#"{{"network": {{"interfaces": {{"macs": {{{ONE}}}}}}}}}"#), true).unwrap();
        let expected = r#"{"version": 2, "ethernets": {"ens5": {"dhcp4": true, "dhcp6": true,
            "match": {"macaddress": "06:00:00:00:00:01"}, "set-name": "ens5", "addresses": ["10.0.0.6/20"]}}}"#;
        assert_eq!(got, json::parse("e", expected.as_bytes()).unwrap());
    }

    #[test]
    fn a_further_interface_has_its_own_table() {
        let tree = format!(r#"{{"network": {{"interfaces": {{"macs": {{{TWO}, {ONE}}}}}}}}}"#);
        let got = of(&tree, true).unwrap();
        assert_eq!(got.at(&["ethernets", "ens5", "dhcp4-overrides", "route-metric"]), Some(&Value::Int(100)));
        assert_eq!(got.at(&["ethernets", "ens5", "routes"]), None);
        let second = got.at(&["ethernets", "ens6"]).unwrap();
        let routes = r#"[{"to": "0.0.0.0/0", "via": "10.1.0.1", "table": 101}, {"to": "10.1.0.0/20", "table": 101}]"#;
        assert_eq!(second.get("routes"), Some(&json::parse("e", routes.as_bytes()).unwrap()));
        let rules = r#"[{"from": "10.1.0.5", "table": 101}]"#;
        assert_eq!(second.get("routing-policy"), Some(&json::parse("e", rules.as_bytes()).unwrap()));
        let small = of(&tree, false).unwrap();
        assert_eq!(small.get("ethernets").and_then(Value::as_map).map(Map::len), Some(1));
    }

    #[test]
    fn interfaces_use_dhcp_in_order_of_name() {
        let mac = |n: u32| format!("06:00:00:00:00:{n:02x}");
        let nics = [nic("eth10", &mac(1)), nic("eth2", &mac(2)), nic("eth3", &mac(3))];
        let data = |n| format!(r#""{}": {{"device-number": "{}", "ipv6s": ["fd00::1", "fd00::2"]}}"#, mac(n), 9 - n);
        let tree =
            format!(r#"{{"network": {{"interfaces": {{"macs": {{{}, {}, "{}": {{}}}}}}}}}}"#, data(1), data(2), mac(3));
        let Value::Map(metadata) = json::parse("t", tree.as_bytes()).unwrap() else { panic!() };
        let of = |scope| match config(&metadata, &nics, None, scope, &|_| None) {
            Some(NetworkData::Cloud(value)) => value,
            other => panic!("{other:?}"),
        };
        let each = of(Scope::Each);
        let metric = |config: &Value, name: &str| {
            config.at(&["ethernets", name, "dhcp4-overrides", "route-metric"]).and_then(Value::as_int)
        };
        assert_eq!(
            (metric(&each, "eth2"), metric(&each, "eth10"), metric(&each, "eth3")),
            (Some(100), Some(200), None)
        );
        assert!(!json::to_string(&each).contains("addresses") && !json::to_string(&each).contains("table"));
        assert_eq!(metric(&of(Scope::All), "eth2"), Some(100));
        assert!(json::to_string(&of(Scope::All)).contains("addresses"));
    }

    #[test]
    fn a_tree_without_this_machine_gives_nothing() {
        assert_eq!(of("{}", true), None);
        assert_eq!(of(r#"{"network": {"interfaces": {"macs": {"06:00:00:00:00:09": {}}}}}"#, true), None);
    }
}
