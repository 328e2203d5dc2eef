//! NetworkManager's sections for a Wi-Fi network: `[wifi]`, `[wifi-security]` (nm-settings(5)).

use super::GRAMMAR;
use super::keyfile::{escape, list};
use crate::document::{Map, Value};
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::Interface;
use crate::network::parameters;
use crate::network::render::ini::Section;
use crate::network::render::renderer::Unsupported;

/// The sections for each network, from netplan's keys of the device.
pub fn networks(interface: &Interface, keys: &Map, unsupported: &mut Unsupported) -> Vec<Vec<Section>> {
    for key in keys.keys().filter(|k| *k != "access-points") {
        unsupported.key(interface, key);
    }
    let points = keys.get("access-points").and_then(Value::as_map);
    let points = points.into_iter().flat_map(|m| m.iter());
    points.filter_map(|(ssid, point)| access_point(interface, ssid, point, unsupported)).collect()
}

/// Whether the band has the channel. NetworkManager refuses a profile with a channel and no band, or another band's.
fn is_channel(band: Option<&str>, channel: &str) -> bool {
    band.is_some_and(|band| GRAMMAR.takes(&format!("band-{band}"), "channel", channel))
}

/// The sections for one network. None if NetworkManager could not join it with what the keys say.
fn access_point(
    interface: &Interface,
    ssid: &str,
    point: &Value,
    unsupported: &mut Unsupported,
) -> Option<Vec<Section>> {
    let text = |value: Option<&Value>| value.and_then(Value::text);
    let mut report = |key: &str| unsupported.key(interface, &format!("access-points.{key}"));
    let mut wifi = Section::new("wifi");
    let name = list([ssid]);
    wifi.add("ssid", name.strip_suffix(';').unwrap_or(&name));
    let mut password = text(point.get("password"));
    let mut management = password.is_some().then(|| "wpa-psk".to_owned());
    let band = match point.get("band").and_then(Value::as_str) {
        Some("2.4GHz" | "2.4G") => Some("bg"),
        Some("5GHz" | "5G") => Some("a"),
        _ => None,
    };
    for (key, value) in point.as_map().into_iter().flat_map(|m| m.iter()) {
        match (key, value.as_str()) {
            ("password", _) => {}
            ("mode", Some(mode @ ("infrastructure" | "ap" | "adhoc"))) => wifi.add("mode", mode),
            ("band", _) if band.is_some() => wifi.maybe("band", band),
            ("bssid", Some(mac)) if is_mac(mac) => wifi.add("bssid", plain_mac(mac).to_ascii_uppercase()),
            ("hidden", _) => wifi.add("hidden", value.is_true()),
            ("channel", _) => match value.text().filter(|n| is_channel(band, n)) {
                Some(n) => wifi.add("channel", n),
                None => report("channel"),
            },
            ("auth", _) => {
                password = text(value.get("password")).or(password);
                management = match value.get("key-management").and_then(Value::as_str) {
                    Some("none") => None,
                    Some("psk") | None if password.is_some() => Some("wpa-psk".to_owned()),
                    Some("sae") if password.is_some() => Some("sae".to_owned()),
                    _ => {
                        report("auth");
                        return None;
                    }
                };
            }
            _ => report(key),
        }
    }
    let is_wrong = |password: &String| !parameters::is_passphrase(password);
    if management.as_deref() == Some("wpa-psk") && password.as_ref().is_none_or(is_wrong) {
        report("password");
        return None;
    }
    let mut security = Section::new("wifi-security");
    if let (Some(management), Some(password)) = (management, password) {
        security.add("key-mgmt", management);
        security.add("psk", escape(&password));
    }
    Some(vec![wifi, security])
}
