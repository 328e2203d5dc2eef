//! NetworkManager's sections for each kind of device (nm-settings(5)).

use super::cannot;
use super::ini::Section;
use super::network_manager::{NAME, escape, list, uuid};
use crate::document::{Map, Value};
use crate::network::model::{Interface, Kind, Network, is_mac, plain_mac};
use crate::network::params::{self, Unit};

/// The profile's type.
pub fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Ethernet => "ethernet",
        Kind::Infiniband => "infiniband",
        Kind::Loopback => "loopback",
        Kind::Dummy => "dummy",
        Kind::Wifi(_) => "wifi",
        Kind::Bond { .. } => "bond",
        Kind::Bridge { .. } => "bridge",
        Kind::Vlan { .. } => "vlan",
        Kind::Vrf { .. } => "vrf",
        Kind::Tunnel(keys) => match keys.get("mode").and_then(Value::as_str) {
            Some("wireguard") => "wireguard",
            Some("vxlan") => "vxlan",
            _ => "ip-tunnel",
        },
    }
}

/// The device's own sections: one profile's, but for Wi-Fi, which has a profile for each network. None for what can't be expressed.
pub fn variants(network: &Network, interface: &Interface) -> Vec<Vec<Section>> {
    let own = match &interface.kind {
        Kind::Ethernet | Kind::Dummy => Vec::new(),
        Kind::Loopback => vec![Section::new("loopback")],
        Kind::Infiniband => {
            let mut section = Section::new("infiniband");
            section.add("transport-mode", "datagram");
            vec![section]
        }
        Kind::Wifi(keys) => return access_points(network, interface, keys),
        Kind::Bond { params, .. } => vec![bond(interface, params)],
        Kind::Bridge { params, .. } => vec![bridge(interface, params)],
        Kind::Vlan { id, link } => {
            let mut section = Section::new("vlan");
            section.add("id", id);
            section.add("parent", uuid(link));
            vec![section]
        }
        Kind::Vrf { table, .. } => {
            let mut section = Section::new("vrf");
            section.add("table", table);
            vec![section]
        }
        Kind::Tunnel(keys) => match super::network_manager_tunnel::sections(interface, keys) {
            Some(sections) => sections,
            None => {
                cannot(NAME, &interface.name, "mode");
                return Vec::new();
            }
        },
    };
    vec![with_link(network, interface, own)]
}

/// Adds what every link has: MTU, MAC addresses, Wake-on-LAN; and the port's section.
fn with_link(network: &Network, interface: &Interface, mut sections: Vec<Section>) -> Vec<Section> {
    let mtu = interface.mtu.or_else(|| interface.subnets.iter().filter(|s| !s.is_v6()).find_map(|s| s.mtu));
    let mtu = mtu.or_else(|| interface.subnets.iter().find_map(|s| s.mtu));
    let own = match kind(&interface.kind) {
        own @ ("infiniband" | "wifi" | "loopback" | "wireguard" | "ip-tunnel") => own,
        _ => "ethernet",
    };
    let mut link = Section::new(own);
    link.maybe("mtu", mtu);
    match &interface.matching.mac {
        Some(mac) if interface.is_physical() && is_mac(mac) => {
            link.add("mac-address", plain_mac(mac).to_ascii_uppercase());
        }
        Some(mac) if !is_mac(mac) => cannot(NAME, &interface.name, "match.macaddress"),
        _ => {}
    }
    if let Some(mac) = &interface.mac {
        let upper = plain_mac(mac).to_ascii_uppercase();
        match (&interface.kind, own) {
            _ if !is_mac(mac) => cannot(NAME, &interface.name, "macaddress"),
            (Kind::Bridge { .. }, _) => {
                if let Some(bridge) = sections.first_mut() {
                    bridge.add("mac-address", upper);
                }
            }
            (_, "ethernet" | "wifi") => link.add("cloned-mac-address", upper),
            _ => cannot(NAME, &interface.name, "macaddress"),
        }
    }
    match (interface.wake_on_lan, own) {
        // Magic packets (NMSettingWiredWakeOnLan).
        (Some(true), "ethernet") => link.add("wake-on-lan", 64),
        (Some(true), _) => cannot(NAME, &interface.name, "wakeonlan"),
        _ => {}
    }
    match sections.iter_mut().find(|s| s.name() == own) {
        Some(section) => section.append(link),
        None => sections.push(link),
    }
    if let Some(Kind::Bridge { params, .. }) = network.master_of(&interface.name).map(|m| &m.kind) {
        let mut port = Section::new("bridge-port");
        for (name, key, most) in [("pathcost", "path-cost", 65535), ("portprio", "priority", 63)] {
            let Some(value) = params.get(name).and_then(|p| p.get(&interface.name)) else { continue };
            match number(value, Unit::Text).filter(|n| (0..=most).contains(n)) {
                Some(n) => port.add(key, n),
                None => cannot(NAME, &interface.name, name),
            }
        }
        sections.push(port);
    }
    sections
}

/// The kernel's options, which NetworkManager calls as the kernel does.
fn bond(interface: &Interface, params: &Map) -> Section {
    let mut section = Section::new("bond");
    for (name, value) in params.iter() {
        let text = match params::find(params::BOND, name).map(|p| p.unit) {
            Some(Unit::Milliseconds) => params::milliseconds(value, Unit::Milliseconds).map(|ms| ms.to_string()),
            Some(Unit::Seconds) => params::milliseconds(value, Unit::Seconds).map(|ms| (ms / 1000).to_string()),
            Some(Unit::Bool) if value.is_true() => Some("1".to_owned()),
            Some(Unit::Bool) => Some("0".to_owned()),
            Some(Unit::List) => value.as_list().map(|l| l.iter().filter_map(Value::text).collect::<Vec<_>>().join(",")),
            Some(_) => value.text(),
            // The old word for the primary.
            None if name == "active_slave" => value.text(),
            None => None,
        };
        match text.filter(|t| !t.is_empty() && !t.chars().any(char::is_control)) {
            Some(text) => section.add(name, escape(&text)),
            None => cannot(NAME, &interface.name, name),
        }
    }
    section
}

/// The model's name, NetworkManager's, and the least and most of a number. A number out of range would cost the whole profile.
const BRIDGE: &[(&str, &str, i64, i64)] = &[
    ("bridgeprio", "priority", 0, 65535),
    ("ageing", "ageing-time", 0, 1_000_000),
    ("fd", "forward-delay", 2, 30),
    ("hello", "hello-time", 1, 10),
    ("maxage", "max-age", 6, 40),
];

fn bridge(interface: &Interface, params: &Map) -> Section {
    let mut section = Section::new("bridge");
    section.maybe("stp", params.get("stp").map(Value::is_true));
    for (name, value) in params.iter() {
        if let Some((_, key, least, most)) = BRIDGE.iter().find(|b| b.0 == name) {
            match number(value, Unit::Seconds).filter(|n| (*least..=*most).contains(n)) {
                Some(n) => section.add(*key, n),
                None => cannot(NAME, &interface.name, name),
            }
            continue;
        }
        match name {
            "mcsnoop" => section.add("multicast-snooping", value.is_true()),
            "vlan_aware" => section.add("vlan-filtering", value.is_true()),
            // The ports' own profiles have these.
            "stp" | "pathcost" | "portprio" => {}
            other => cannot(NAME, &interface.name, other),
        }
    }
    section
}

/// A whole number, or a time in whole seconds.
fn number(value: &Value, unit: Unit) -> Option<i64> {
    let scaled = params::milliseconds(value, Unit::Seconds)?;
    match unit {
        Unit::Seconds => i64::try_from(scaled / 1000).ok(),
        _ => value.text()?.trim().parse().ok(),
    }
}

fn access_points(network: &Network, interface: &Interface, keys: &Map) -> Vec<Vec<Section>> {
    for key in keys.keys().filter(|k| *k != "access-points") {
        cannot(NAME, &interface.name, key);
    }
    let points = keys.get("access-points").and_then(Value::as_map);
    points
        .into_iter()
        .flat_map(|m| m.iter())
        .filter_map(|(ssid, point)| access_point(network, interface, ssid, point))
        .collect()
}

/// The sections for one network, by netplan's keys. None where it can't be joined by what the keys say.
fn access_point(network: &Network, interface: &Interface, ssid: &str, point: &Value) -> Option<Vec<Section>> {
    let text = |value: Option<&Value>| value.and_then(Value::text).map(|t| escape(&t));
    let report = |key: &str| cannot(NAME, &interface.name, &format!("access-points.{key}"));
    let mut wifi = Section::new("wifi");
    wifi.add("ssid", list([ssid]).trim_end_matches(';'));
    let mut password = text(point.get("password"));
    let mut management = password.is_some().then(|| "wpa-psk".to_owned());
    for (key, value) in point.as_map().into_iter().flat_map(|m| m.iter()) {
        match (key, value.as_str()) {
            ("password", _) => {}
            ("mode", Some(mode @ ("infrastructure" | "ap" | "adhoc"))) => wifi.add("mode", mode),
            ("band", Some("2.4GHz")) => wifi.add("band", "bg"),
            ("band", Some("5GHz")) => wifi.add("band", "a"),
            ("bssid", Some(mac)) if is_mac(mac) => wifi.add("bssid", plain_mac(mac).to_ascii_uppercase()),
            ("hidden", _) => wifi.add("hidden", value.is_true()),
            ("channel", _) => match number(value, Unit::Text).filter(|_| point.get("band").is_some()) {
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
    let mut security = Section::new("wifi-security");
    if let (Some(management), Some(password)) = (management, password) {
        security.add("key-mgmt", management);
        security.add("psk", password);
    }
    Some(with_link(network, interface, vec![wifi, security]))
}

#[cfg(test)]
mod tests {
    use crate::document::yaml;
    use crate::machine::Distro;
    use crate::network::{Macs, Target, read, render};

    fn files(text: &str) -> Vec<(String, String)> {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let target = Target { distro: Distro::named("fedora"), ip_tool: true };
        let files = (render::by_name("network-manager").unwrap().render)(&network, &target);
        let own = |f: render::File| {
            let name = f.path.strip_suffix(".nmconnection")?.rsplit_once("cloud-init-")?.1.to_owned();
            Some((name, f.content.split_once("origin=cloud-init\n")?.1.to_owned()))
        };
        files.into_iter().filter_map(own).collect()
    }

    fn of(files: &[(String, String)], name: &str) -> String {
        files.iter().find(|f| f.0 == name).unwrap().1.clone()
    }

    #[test]
    fn devices_are_made_with_all_that_was_asked_for() {
        let all = files(
            "version: 2\nethernets: {a: {wakeonlan: true, macaddress: '52:54:00:00:00:09', mtu: 1400}}\n\
             bonds:\n  b: {interfaces: [a], parameters: {mode: 4, mii-monitor-interval: 1s, arp-ip-targets: [1.1.1.1, 2.2.2.2], primary: a, all-slaves-active: true}}\n\
             bridges: {br: {interfaces: [b], parameters: {forward-delay: 1, max-age: 10, path-cost: {b: 75}}}}\nvrfs: {v: {table: 9, interfaces: [br]}}\n\
             vlans: {l: {id: 5, link: br, macaddress: '52:54:00:00:00:0a'}}\n\
             tunnels:\n  wg: {mode: wireguard, key: s3cret, port: 5, peers: [{keys: {public: p, shared: q}, allowed-ips: [0.0.0.0/0, '::/0'], keepalive: 3}, {keys: {public: 'x]'}}]}\n\
             \x20 vx: {mode: vxlan, id: 7, link: a, remote: 239.1.1.9}\n  g: {mode: gre, local: 1.1.1.1, remote: 2.2.2.2, key: 8}\n  x: {mode: odd}\n",
        );
        assert_eq!(of(&all, "a"), "\n[ethernet]\nmtu=1400\ncloned-mac-address=52:54:00:00:00:09\nwake-on-lan=64\n");
        assert!(of(&all, "b").starts_with("\n[bond]\nmode=4\nmiimon=1000\narp_ip_target=1.1.1.1,2.2.2.2\nprimary=a\nall_slaves_active=1\n\n[bridge-port]\npath-cost=75\n"), "{}", of(&all, "b"));
        // NetworkManager takes no delay below 2, and would drop the profile.
        assert_eq!(of(&all, "br"), "\n[bridge]\nmax-age=10\n");
        assert_eq!(of(&all, "v"), "\n[vrf]\ntable=9\n");
        assert!(of(&all, "l").starts_with("\n[vlan]\nid=5\nparent="));
        assert!(of(&all, "l").ends_with("\n[ethernet]\ncloned-mac-address=52:54:00:00:00:0A\n"));
        assert_eq!(
            of(&all, "wg"),
            "\n[wireguard]\nprivate-key=s3cret\nlisten-port=5\n\n[wireguard-peer.p]\npreshared-key=q\npreshared-key-flags=0\nallowed-ips=0.0.0.0/0;::/0;\npersistent-keepalive=3\n"
        );
        assert_eq!(of(&all, "vx"), "\n[vxlan]\nremote=239.1.1.9\nid=7\nparent=a\n");
        assert_eq!(of(&all, "g"), "\n[ip-tunnel]\nmode=2\nlocal=1.1.1.1\nremote=2.2.2.2\ninput-key=8\noutput-key=8\n");
        assert!(!all.iter().any(|f| f.0 == "x"));
    }

    #[test]
    fn each_wireless_network_has_a_profile() {
        let all = files(
            "version: 2\nwifis: {w: {dhcp4: true, access-points: {'a;b': {password: ' pass\\word'}, open: {band: 5GHz, channel: 36}, e: {auth: {key-management: eap}}}}}",
        );
        assert_eq!(all.iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["w", "w 2"]);
        assert!(of(&all, "w").starts_with(
            "\n[wifi]\nssid=a\\;b\n\n[wifi-security]\nkey-mgmt=wpa-psk\npsk=\\spass\\\\word\n\n[ipv4]\nmethod=auto\n"
        ), "{}", of(&all, "w"));
        assert!(of(&all, "w 2").starts_with("\n[wifi]\nssid=open\nband=a\nchannel=36\n\n[ipv4]"));
    }
}
