//! Network configuration from the metadata's `network` section, adapted to the image's settings and the
//! machine's drivers.

use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::NetworkData;
use crate::machine::Nic;
use crate::machine::nic::HYPERV;
use crate::network::fallback;
use crate::network::read::azure_imds;

/// The image's settings for the network configuration.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `apply_network_config`: use the metadata's configuration, instead of DHCP on one device.
    pub metadata: bool,
    /// `apply_network_config_for_secondary_ips`
    pub secondary: bool,
    /// `apply_network_config_set_name`: devices are renamed to eth0, eth1, …
    pub set_name: bool,
}

/// The configuration: from the metadata if it has one, else DHCP on the most suitable device. None if the machine has
/// no device.
pub fn config(imds: &Value, nics: &[Nic], settings: Settings, problems: &Problems) -> Option<NetworkData> {
    if settings.metadata && !imds.is_null() {
        match azure_imds::to_v2(imds) {
            Ok(v2) => return Some(NetworkData::Cloud(adapted(v2, nics, settings))),
            Err(e) => problems.warn(format!("the metadata's network configuration is not used, but DHCP: {e}")),
        }
    }
    fallback_with_driver(nics).map(NetworkData::Cloud)
}

/// Adapts the configuration (version 2) to the settings, and adds drivers.
fn adapted(mut v2: Value, nics: &[Nic], settings: Settings) -> Value {
    let Value::Map(map) = &mut v2 else { return v2 };
    let Some(Value::Map(ethernets)) = map.remove("ethernets") else { return v2 };
    let mut adapted = Map::new();
    for (mut name, device) in ethernets.into_entries() {
        let mac = device.at(&["match", "macaddress"]).and_then(Value::text).unwrap_or_default();
        let Value::Map(mut device) = device else { continue };
        if !settings.secondary {
            device.remove("addresses");
        }
        if !settings.set_name {
            device.remove("set-name");
            name = format!("enx{}", mac.replace(':', ""));
        }
        device.insert("match", matching(&mac, driver(&mac, nics)));
        adapted.insert(name, device);
    }
    map.insert("ethernets", adapted);
    v2
}

fn matching(mac: &str, driver: Option<&str>) -> Map {
    let mut matching = Map::new();
    matching.insert("macaddress", mac);
    if let Some(driver) = driver {
        matching.insert("driver", driver);
    }
    matching
}

/// The driver that distinguishes a device from others with the same address.
fn driver<'a>(mac: &str, nics: &'a [Nic]) -> Option<&'a str> {
    let with: Vec<&Nic> = nics.iter().filter(|nic| nic.mac == mac).collect();
    let drivers = || with.iter().filter_map(|nic| nic.driver.as_deref());
    drivers().find(|driver| *driver == HYPERV).or_else(|| drivers().next().filter(|_| with.len() == 1))
}

fn fallback_with_driver(nics: &[Nic]) -> Option<Value> {
    let nic = fallback::nic(nics)?;
    let mut config = fallback::config(nic, &[]);
    if let (Some(driver), Value::Map(map)) = (&nic.driver, &mut config)
        && let Some(Value::Map(ethernets)) = map.get_mut("ethernets")
        && let Some(Value::Map(device)) = ethernets.get_mut(&nic.name)
    {
        device.insert("match", matching(&nic.mac, Some(driver)));
    }
    Some(config)
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

    fn of(imds: &str, nics: &[Nic], settings: Settings) -> (String, Problems) {
        let problems = Problems::new();
        let imds = json::parse("t", imds.as_bytes()).unwrap();
        match config(&imds, nics, settings, &problems) {
            Some(NetworkData::Cloud(value)) => (json::to_string_sorted(&value), problems),
            other => (format!("{other:?}"), problems),
        }
    }

    const ALL: Settings = Settings { metadata: true, secondary: true, set_name: true };

    #[test]
    fn first_address_by_dhcp_and_others_static() {
        let imds = r#"{"network": {"interface": [
            {"macAddress": "000D3A047598", "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}, {"privateIpAddress": "10.0.0.5"}], "subnet": [{"prefix": "16"}]}, "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::4"},
                {"privateIpAddress": "fd00::5"}]}},
            {"macAddress": "00:0d:3a:04:75:99", "ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.4"}]}},
            {"macAddress": "00:0d:3a:04:75:9a", "ipv4": {"ipAddress": []}}]}}"#;
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
        assert_eq!(problems, Problems::new());
        let (got, _) = of(imds, &[], Settings { secondary: false, set_name: false, ..ALL });
        assert!(got.contains("enx000d3a047598") && !got.contains("set-name") && !got.contains("10.0.0.5"), "{got}");
    }

    #[test]
    fn uses_dhcp_on_one_device_without_metadata() {
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
