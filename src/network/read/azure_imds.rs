//! Azure's instance metadata (IMDS, "Instance Metadata Service": `network`), read by way of version 2, as cloud-init does.

use super::config;
use super::format::{Format, Syntax};
use crate::base::error::{Error, Result};
use crate::base::manual;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::network::mac::Macs;
use crate::network::model::Network;

pub static FORMAT: Format = Format {
    name: "azure-imds",
    title: manual("Azure's instance metadata"),
    syntax: Syntax::Json,
    recognises: |document| network(document).get("interface").is_some_and(|i| i.as_list().is_some()),
    reader: read,
};

/// The prefix lengths of further addresses whose subnet lacks one.
const PREFIXES: [(&str, &str); 2] = [("ipv4", "24"), ("ipv6", "128")];
/// The metric of the first interface, and the difference from one interface to the next.
const METRIC: i64 = 100;

/// Reads the instance metadata, or its `network` alone.
///
/// # Errors
/// As [`to_v2`].
fn read(document: &str, value: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
    config::read(document, &to_v2(value)?, macs, report)
}

fn network(document: &Value) -> &Value {
    document.get("network").unwrap_or(document)
}

/// The instance metadata, or its `network` alone, as version 2: DHCP on each interface that has an address, and its further
/// addresses as static ones. The interfaces are named eth0, eth1, … in their order.
///
/// # Errors
/// The document has no interfaces, or one without a MAC address.
pub fn to_v2(document: &Value) -> Result<Value> {
    let network = network(document);
    let Some(Value::List(_)) = network.get("interface") else {
        return Err(wrong("network.interface", "a list", network.get("interface").unwrap_or(&Value::Null)));
    };
    let mut ethernets = Map::new();
    for (n, interface) in mappings(network, "interface").enumerate() {
        let address = interface.get("macAddress").and_then(Value::text).filter(|m| !m.is_empty()).ok_or_else(|| {
            Error::new(format!("network.interface[{n}].macAddress: expected 12 hexadecimal digits, found none"))
        })?;
        if let Some(device) = device(interface, n as i64, &with_colons(&address)) {
            ethernets.insert(format!("eth{n}"), device);
        }
    }
    Ok(Map::from_iter([("version", Value::Int(2)), ("ethernets", ethernets.into())]).into())
}

/// The interface number `n`. None if it has no address.
fn device(interface: &Map, n: i64, mac: &str) -> Option<Value> {
    let mut overrides = Map::from_iter([("route-metric", Value::Int((n + 1) * METRIC))]);
    if n > 0 {
        // Azure answers DNS queries over the first interface only.
        overrides.insert("use-dns", false);
    }
    let mut out = Map::from_iter([
        ("dhcp4", Value::Bool(true)),
        ("dhcp4-overrides", overrides.clone().into()),
        ("dhcp6", false.into()),
    ]);
    let (mut any, mut further) = (false, Vec::new());
    for (family, default) in PREFIXES {
        let Some(family_data) = interface.get(family) else { continue };
        let addresses: Vec<&Map> = mappings(family_data, "ipAddress").collect();
        if addresses.is_empty() {
            continue;
        }
        any = true;
        if family == "ipv6" {
            out.insert("dhcp6", true);
            out.insert("dhcp6-overrides", overrides.clone());
        }
        let subnet = mappings(family_data, "subnet").next();
        let prefix = subnet.and_then(|s| s.get("prefix")).and_then(Value::text).unwrap_or_else(|| default.to_owned());
        let private = addresses.into_iter().skip(1).filter_map(|a| a.get("privateIpAddress").and_then(Value::text));
        further.extend(private.map(|ip| Value::from(format!("{ip}/{prefix}"))));
    }
    if !further.is_empty() {
        out.insert("addresses", further);
    }
    out.insert("match", Map::from_iter([("macaddress", mac)]));
    out.insert("set-name", format!("eth{n}"));
    any.then(|| out.into())
}

/// The mappings of a list; none if there is no list.
fn mappings<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Map> {
    value.get(key).and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_map)
}

/// `000D3A047598` as `00:0d:3a:04:75:98`; an address with colons is unchanged.
fn with_colons(mac: &str) -> String {
    let mac = mac.to_ascii_lowercase();
    if mac.len() != 12 || !mac.is_ascii() {
        return mac;
    }
    let (pairs, _) = mac.as_bytes().as_chunks::<2>();
    pairs.iter().map(|p| String::from_utf8_lossy(p)).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn v2(text: &str) -> Result<Value> {
        to_v2(&json::parse("t", text.as_bytes()).unwrap())
    }

    #[test]
    fn first_address_is_dhcp_and_others_static() {
        let got = v2(r#"{"network": {"interface": [
            {"macAddress": "000D3A047598",
             "ipv6": {"subnet": [{"prefix": "10", "address": "2001:dead:beef::16"}],
                      "ipAddress": [{"privateIpAddress": "2001:dead:beef::1"}, {"privateIpAddress": "2001:dead:beef::2"}]},
             "ipv4": {"subnet": [{"prefix": "24", "address": "10.0.0.0"}],
                      "ipAddress": [{"privateIpAddress": "10.0.0.4", "publicIpAddress": "104.46.124.81"},
                                    {"privateIpAddress": "11.0.0.5", "publicIpAddress": "104.46.124.82"}]}},
            {"macAddress": "220D3A047598", "ipv6": {"ipAddress": []},
             "ipv4": {"subnet": [{"prefix": "24", "address": "10.1.0.0"}], "ipAddress": [{"privateIpAddress": "10.1.0.5"}]}},
            {"macAddress": "330D3A047598", "ipv6": {"ipAddress": []}, "ipv4": {"ipAddress": []}}]}}"#);
        let expected = r#"{"version": 2, "ethernets": {
            "eth0": {"dhcp4": true, "dhcp4-overrides": {"route-metric": 100}, "dhcp6": true, "dhcp6-overrides": {"route-metric": 100},
                     "addresses": ["11.0.0.5/24", "2001:dead:beef::2/10"], "match": {"macaddress": "00:0d:3a:04:75:98"}, "set-name": "eth0"},
            "eth1": {"dhcp4": true, "dhcp4-overrides": {"route-metric": 200, "use-dns": false}, "dhcp6": false,
                     "match": {"macaddress": "22:0d:3a:04:75:98"}, "set-name": "eth1"}}}"#;
        assert_eq!(got.unwrap(), json::parse("e", expected.as_bytes()).unwrap());
    }

    #[test]
    fn a_subnet_without_a_prefix_and_mistakes() {
        let got = v2(
            r#"{"interface": [{"macAddress": "00:0d:3a:04:75:98", "ipv6": {"ipAddress": [{}, {"privateIpAddress": "fd00::2"}]}}]}"#,
        );
        let device = got.unwrap();
        let addresses = device.at(&["ethernets", "eth0", "addresses"]).unwrap();
        assert_eq!(addresses, &Value::List(vec!["fd00::2/128".into()]));
        let error = |text: &str| v2(text).unwrap_err().to_string();
        assert!(error("{}").contains("network.interface: expected a list"), "{}", error("{}"));
        assert!(error(r#"{"network": {"interface": [{"ipv4": {}}]}}"#).contains("network.interface[0].macAddress"));
        assert_eq!(with_colons("ÄÖÜäöü"), "ÄÖÜäöü".to_ascii_lowercase());
    }
}
