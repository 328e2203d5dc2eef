//! Converts `sdc:nics`, `sdc:resolvers` and `sdc:routes` to a network configuration, version 1.

use crate::document::{Map, Value};

/// Keys of a NIC that version 1 also has: those of the interface, and those of its static subnets.
const OF_INTERFACE: [&str; 1] = ["mtu"];
const OF_SUBNET: [&str; 6] = ["broadcast", "dns_nameservers", "dns_search", "metric", "pointopoint", "scope"];

/// The configuration; None if the host has no `sdc:nics`.
pub fn config(metadata: &Map) -> Option<Value> {
    let nics = metadata.get("network-data")?.as_list()?;
    let routes = metadata.get("routes").and_then(Value::as_list).unwrap_or_default();
    let routes: Vec<Value> = routes.iter().filter_map(route).collect();
    let mut gateways = Gateways::default();
    let mut config: Vec<Value> = nics.iter().filter_map(|nic| interface(nic, &routes, &mut gateways)).collect();
    let servers = list(metadata.get("dns_servers"));
    if !servers.is_empty() {
        let search = list(metadata.get("dns_domain"));
        let entry = [("type", Value::from("nameserver")), ("address", servers.into()), ("search", search.into())];
        config.push(Value::Map(entry.into_iter().collect()));
    }
    Some(Value::Map([("version", Value::Int(1)), ("config", config.into())].into_iter().collect()))
}

/// A list, or one value as a list.
fn list(value: Option<&Value>) -> Vec<Value> {
    match value {
        Some(Value::List(list)) => list.clone(),
        Some(Value::String(text)) if !text.is_empty() => vec![text.as_str().into()],
        _ => Vec::new(),
    }
}

fn route(route: &Value) -> Option<Value> {
    let entry = [("network", route.get("dst")?.clone()), ("gateway", route.get("gateway")?.clone())];
    Some(Value::Map(entry.into_iter().collect()))
}

/// Whether a default gateway has been set for each address family: only one is used.
#[derive(Default)]
struct Gateways {
    ipv4: bool,
    ipv6: bool,
}

fn interface(nic: &Value, routes: &[Value], gateways: &mut Gateways) -> Option<Value> {
    let mut interface = taken(nic, &OF_INTERFACE);
    interface.insert("type", "physical");
    interface.insert("name", nic.get("interface")?.as_str()?);
    nic.get("mac").map(|mac| interface.insert("mac_address", mac.clone()));
    let addresses = nic.get("ips").and_then(Value::as_list).unwrap_or_default();
    let subnets: Vec<Value> =
        addresses.iter().filter_map(Value::as_str).map(|ip| Value::Map(subnet(nic, ip, routes, gateways))).collect();
    interface.insert("subnets", subnets);
    Some(Value::Map(interface))
}

fn subnet(nic: &Value, ip: &str, routes: &[Value], gateways: &mut Gateways) -> Map {
    let kind = match ip {
        "dhcp" => "dhcp4",
        "addrconf" => "dhcp6",
        _ => "static",
    };
    if kind != "static" {
        return [("type", kind)].into_iter().collect();
    }
    let mut subnet = taken(nic, &OF_SUBNET);
    subnet.insert("type", kind);
    subnet.insert("address", ip);
    let is_ipv6 = |address: &str| address.contains(':');
    let given = if is_ipv6(ip) { &mut gateways.ipv6 } else { &mut gateways.ipv4 };
    if nic.get("primary").is_some_and(Value::is_true) && !*given {
        let all = nic.get("gateways").and_then(Value::as_list).unwrap_or_default();
        if let Some(gateway) = all.iter().filter_map(Value::as_str).find(|g| is_ipv6(g) == is_ipv6(ip)) {
            *given = true;
            subnet.insert("gateway", gateway);
        }
    }
    if !routes.is_empty() {
        subnet.insert("routes", routes.to_vec());
    }
    subnet
}

fn taken(from: &Value, keys: &[&str]) -> Map {
    keys.iter().filter_map(|key| Some((*key, from.get(key)?.clone()))).collect()
}
