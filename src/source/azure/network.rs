//! Network configuration from the metadata's `network` section: version 2, DHCP for the first address of each family, the others
//! static.

use crate::document::{Map, Value};
use crate::instance::NetworkData;
use crate::machine::Nic;
use crate::network::fallback;
use std::net::IpAddr;

/// The driver of Hyper-V's devices. A virtual function behind one has the same MAC address and another driver.
const HYPERV: &str = "hv_netvsc";

/// What the image says about the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `apply_network_config`: the metadata's configuration, else DHCP on one device.
    pub metadata: bool,
    /// `apply_network_config_for_secondary_ips`
    pub secondary: bool,
    /// `apply_network_config_set_name`: devices are renamed to eth0, eth1, …
    pub set_name: bool,
}

/// The configuration, from the metadata's document where it has one, else DHCP on the most suitable device. None where the
/// machine has none either.
pub fn config(imds: &Value, nics: &[Nic], settings: Settings, problems: &mut Vec<String>) -> Option<NetworkData> {
    let interfaces = imds.at(&["network", "interface"]).and_then(Value::as_list);
    if settings.metadata && interfaces.is_none() && !imds.is_null() {
        problems.push("the metadata has no network configuration: DHCP is used".into());
    }
    let Some(interfaces) = interfaces.filter(|_| settings.metadata) else {
        return fallback_with_driver(nics).map(NetworkData::Cloud);
    };
    let mut ethernets = Map::new();
    for (order, interface) in interfaces.iter().enumerate() {
        let text = interface.get("macAddress").and_then(Value::text).unwrap_or_default();
        let Some(mac) = normal_mac(&text) else {
            problems.push(format!("network.interface[{order}].macAddress: expected a MAC address, found {text:?}"));
            continue;
        };
        let name = match settings.set_name {
            true => format!("eth{order}"),
            false => format!("enx{}", mac.replace(':', "")),
        };
        if let Some(mut device) = device(interface, order, settings.secondary) {
            device.insert("match", matching(&mac, driver(&mac, nics)));
            if settings.set_name {
                device.insert("set-name", name.as_str());
            }
            ethernets.insert(name, device);
        }
    }
    let config = [("version", Value::Int(2)), ("ethernets", ethernets.into())];
    Some(NetworkData::Cloud(Value::Map(config.into_iter().collect())))
}

/// One interface without its name. None if it has no addresses.
fn device(interface: &Value, order: usize, secondary: bool) -> Option<Map> {
    let metric = i64::try_from(order).unwrap_or(i64::MAX / 200).saturating_add(1).saturating_mul(100);
    let mut overrides = Map::new();
    overrides.insert("route-metric", metric);
    // Azure resolves names through the first interface only.
    if order > 0 {
        overrides.insert("use-dns", false);
    }
    let mut device = Map::new();
    device.insert("dhcp4", true);
    device.insert("dhcp4-overrides", overrides.clone());
    let [four, six] = [("ipv4", "24"), ("ipv6", "128")].map(|(family, prefix)| addresses(interface, family, prefix));
    if four.is_empty() && six.is_empty() {
        return None;
    }
    device.insert("dhcp6", !six.is_empty());
    if !six.is_empty() {
        device.insert("dhcp6-overrides", overrides);
    }
    let further: Vec<Value> =
        [four, six].iter().flat_map(|all| all.iter().skip(1)).map(|a| a.as_str().into()).collect();
    if secondary && !further.is_empty() {
        device.insert("addresses", further);
    }
    Some(device)
}

/// The addresses of a family with their prefix length, the one that DHCP gives first.
fn addresses(interface: &Value, family: &str, default_prefix: &str) -> Vec<String> {
    let list = interface.at(&[family, "ipAddress"]).and_then(Value::as_list).unwrap_or_default();
    let subnet = interface.at(&[family, "subnet"]).and_then(Value::as_list).and_then(<[Value]>::first);
    let prefix = subnet.and_then(|s| s.get("prefix")).and_then(Value::text).filter(|p| p.parse::<u8>().is_ok());
    let prefix = prefix.as_deref().unwrap_or(default_prefix);
    let own = |entry: &Value| entry.get("privateIpAddress").and_then(Value::text).unwrap_or_default();
    // What is no address holds its place, so that the others are told from the one that DHCP gives.
    let all = list.iter().map(own).enumerate();
    all.filter(|(i, a)| *i == 0 || a.parse::<IpAddr>().is_ok()).map(|(_, a)| format!("{a}/{prefix}")).collect()
}

fn matching(mac: &str, driver: Option<&str>) -> Map {
    let mut matching = Map::new();
    matching.insert("macaddress", mac);
    if let Some(driver) = driver {
        matching.insert("driver", driver);
    }
    matching
}

/// The driver by which the device with an address is told from others that have it too.
fn driver<'a>(mac: &str, nics: &'a [Nic]) -> Option<&'a str> {
    let with: Vec<&Nic> = nics.iter().filter(|nic| nic.mac == mac).collect();
    let drivers = || with.iter().filter_map(|nic| nic.driver.as_deref());
    drivers().find(|driver| *driver == HYPERV).or_else(|| drivers().next().filter(|_| with.len() == 1))
}

fn fallback_with_driver(nics: &[Nic]) -> Option<Value> {
    let nic = fallback::nic(nics)?;
    let mut config = fallback::config(nic);
    if let (Some(driver), Value::Map(map)) = (&nic.driver, &mut config)
        && let Some(Value::Map(ethernets)) = map.get_mut("ethernets")
        && let Some(Value::Map(device)) = ethernets.get_mut(&nic.name)
    {
        device.insert("match", matching(&nic.mac, Some(driver)));
    }
    Some(config)
}

/// An address of 12 digits, with colons or without, in lower case with colons.
fn normal_mac(mac: &str) -> Option<String> {
    let digits: String = mac.chars().filter(|c| !matches!(c, ':' | '-')).collect::<String>().to_ascii_lowercase();
    let is_mac = digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let pairs = digits.as_bytes().chunks(2).map(String::from_utf8_lossy);
    is_mac.then(|| pairs.collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn nic(name: &str, mac: &str, driver: &str) -> Nic {
        let driver = Some(driver.to_owned()).filter(|d| !d.is_empty());
        let (name, mac) = (name.to_owned(), mac.to_owned());
        Nic { name, mac, driver, physical: true, carrier: Some(true), kind: 1, ..Nic::default() }
    }

    fn of(imds: &str, nics: &[Nic], settings: Settings) -> (String, Vec<String>) {
        let mut problems = Vec::new();
        let imds = json::parse("t", imds.as_bytes()).unwrap();
        match config(&imds, nics, settings, &mut problems) {
            Some(NetworkData::Cloud(value)) => (json::to_string_sorted(&value), problems),
            other => (format!("{other:?}"), problems),
        }
    }

    const ALL: Settings = Settings { metadata: true, secondary: true, set_name: true };

    #[test]
    fn the_first_address_by_dhcp_and_the_others_static() {
        let imds = r#"{"network": {"interface": [
            {"macAddress": "000D3A047598", "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}, {"privateIpAddress": "10.0.0.5"},
                {"privateIpAddress": "evil"}], "subnet": [{"prefix": "16"}]}, "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::4"},
                {"privateIpAddress": "fd00::5"}]}},
            {"macAddress": "00:0d:3a:04:75:99", "ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.4"}]}},
            {"macAddress": "00:0d:3a:04:75:9a", "ipv4": {"ipAddress": []}}, {"macAddress": "x"}]}}"#;
        // A virtual function has the address of its device; the other address is on one device only.
        let nics = [
            nic("enP1", "00:0d:3a:04:75:98", "mlx5_core"),
            nic("eth0", "00:0d:3a:04:75:98", "hv_netvsc"),
            nic("eth1", "00:0d:3a:04:75:99", "virtio"),
        ];
        let expected = concat!(
            r#"{"ethernets": {"eth0": {"addresses": ["10.0.0.5/16", "fd00::5/128"], "dhcp4": true, "#,
            r#""dhcp4-overrides": {"route-metric": 100}, "dhcp6": true, "dhcp6-overrides": {"route-metric": 100}, "#,
            r#""match": {"driver": "hv_netvsc", "macaddress": "00:0d:3a:04:75:98"}, "set-name": "eth0"}, "#,
            r#""eth1": {"dhcp4": true, "dhcp4-overrides": {"route-metric": 200, "use-dns": false}, "dhcp6": false, "#,
            r#""match": {"driver": "virtio", "macaddress": "00:0d:3a:04:75:99"}, "set-name": "eth1"}}, "version": 2}"#
        );
        let (got, problems) = of(imds, &nics, ALL);
        let flat = |text: &str| text.replace([' ', '\n'], "");
        assert_eq!(flat(&got), flat(expected));
        assert_eq!(problems, ["network.interface[3].macAddress: expected a MAC address, found \"x\""]);
        let (got, _) = of(imds, &[], Settings { secondary: false, set_name: false, ..ALL });
        assert!(got.contains("enx000d3a047598") && !got.contains("set-name") && !got.contains("10.0.0.5"), "{got}");
    }

    #[test]
    fn without_the_metadatas_it_is_dhcp_on_one_device() {
        let nics = [nic("eth0", "00:0d:3a:04:75:98", "hv_netvsc")];
        for (imds, settings, warned) in
            [("{}", ALL, 1), ("null", ALL, 0), ("{}", Settings { metadata: false, ..ALL }, 0)]
        {
            let (got, problems) = of(imds, &nics, settings);
            assert!(
                got.contains("hv_netvsc") && got.contains("\"dhcp6\":true") | got.contains("\"dhcp6\": true"),
                "{got}"
            );
            assert_eq!(problems.len(), warned, "{imds}");
        }
        assert_eq!(of("null", &[], ALL).0, "None");
    }
}
