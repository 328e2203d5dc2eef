//! Leases as JSON documents, which the initramfs leaves in /run for the real root.

use super::lease::Lease;
use super::packet::Options;
use crate::base::hex;
use crate::document::{Map, Value, json};
use std::net::Ipv4Addr;

/// A lease as a JSON document. `options` has the bytes of every option in hexadecimal; the other keys are for people.
pub fn to_json(lease: &Lease) -> String {
    let text = |ip: &Option<Ipv4Addr>| ip.map_or(Value::Null, |ip| Value::from(ip.to_string()));
    let all = |ips: &[Ipv4Addr]| ips.iter().map(|ip| Value::from(ip.to_string())).collect::<Vec<_>>();
    let mut routes = Vec::new();
    for route in &lease.routes {
        let mut map = Map::new();
        map.insert("destination", format!("{}/{}", route.destination, route.prefix));
        map.insert("gateway", text(&route.gateway));
        routes.push(Value::Map(map));
    }
    let options: Map = lease.options.iter().map(|(code, bytes)| (code.to_string(), hex::encode(bytes))).collect();
    let mut map = Map::new();
    map.insert("link", lease.link.as_str());
    map.insert("address", text(&lease.address));
    map.insert("prefix", i32::from(lease.prefix));
    map.insert("broadcast", text(&lease.broadcast));
    map.insert("routes", routes);
    map.insert("dns", all(&lease.dns));
    map.insert("ntp", all(&lease.ntp));
    map.insert("domain", lease.domain.as_str());
    map.insert("search", lease.search.iter().map(|d| Value::from(d.as_str())).collect::<Vec<_>>());
    map.insert("host-name", lease.host_name.as_str());
    map.insert("mtu", lease.mtu.map_or(Value::Null, |mtu| Value::Int(mtu.into())));
    map.insert("server", text(&lease.server));
    map.insert("next-server", text(&lease.next_server));
    map.insert("seconds", lease.seconds);
    map.insert("options", options);
    json::to_string(&Value::Map(map))
}

/// The lease in a document of [`to_json`]. None for any other document.
pub fn from_json(bytes: &[u8]) -> Option<Lease> {
    let value = json::parse("lease", bytes).ok()?;
    let address = |key: &str| value.get(key)?.as_str()?.parse().ok();
    let mut options = Options::default();
    for (code, text) in value.get("options")?.as_map()?.iter() {
        options.insert(code.parse().ok()?, hex::decode(text.as_str()?)?);
    }
    Lease::new(value.get("link")?.as_str()?, address("address")?, address("next-server"), options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_back() {
        let mut options = Options::default();
        options.insert(1, vec![255, 255, 255, 0]);
        options.insert(42, vec![10, 0, 0, 9]);
        options.insert(245, vec![168, 63, 129, 16]);
        let lease = Lease::new("eth0", [10, 0, 0, 5].into(), Some([10, 0, 0, 7].into()), options).unwrap();
        let text = to_json(&lease);
        assert_eq!(from_json(text.as_bytes()), Some(lease));
        let value = json::parse("lease", text.as_bytes()).unwrap();
        assert_eq!(value.at(&["options", "245"]), Some(&Value::from("a83f8110")));
        assert_eq!(value.get("ntp"), Some(&Value::List(vec!["10.0.0.9".into()])));
        for wrong in ["", "{}", "[]", r#"{"link": "e", "address": "10.0.0.5", "options": {"256": ""}}"#] {
            assert_eq!(from_json(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
