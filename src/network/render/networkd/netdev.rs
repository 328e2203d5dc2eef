//! The sections of a .netdev file (systemd.netdev(5)): devices that networkd creates.

use crate::document::{Map, Value};
use crate::network::address::Ip;
use crate::network::mac::plain_mac;
use crate::network::model::{DeviceType, Interface, Network, is_tunnel_by_v6};
use crate::network::parameters::{self, Parameter, ValueType};
use crate::network::render::ini::Section;
use crate::network::render::renderer::Unsupported;
use std::net::IpAddr;

/// The sections, and whether they hold a secret. None for devices that are not created.
pub fn sections(interface: &Interface, unsupported: &mut Unsupported) -> Option<(Vec<Section>, bool)> {
    let mut secret = false;
    let (kind, own) = match &interface.device_type {
        DeviceType::Ethernet | DeviceType::Infiniband | DeviceType::Loopback => return None,
        DeviceType::Wifi(keys) => {
            keys.keys().for_each(|key| unsupported.key(interface, key));
            return None;
        }
        DeviceType::Dummy => ("dummy", Vec::new()),
        DeviceType::Bond { params, .. } => {
            ("bond", vec![parameters(interface, "Bond", params, parameters::BOND, unsupported)])
        }
        DeviceType::Bridge { params, .. } => {
            ("bridge", vec![parameters(interface, "Bridge", params, parameters::BRIDGE, unsupported)])
        }
        DeviceType::Vlan { id, .. } => ("vlan", vec![section("VLAN", &[("Id", id.to_string())])]),
        DeviceType::Vrf { table, .. } => ("vrf", vec![section("VRF", &[("Table", table.to_string())])]),
        DeviceType::Tunnel(keys) => {
            let (kind, sections) = tunnel(interface, keys, unsupported)?;
            secret = kind == "wireguard";
            (kind, sections)
        }
    };
    let mut device = section("NetDev", &[("Name", interface.name.clone()), ("Kind", kind.into())]);
    device.maybe("MTUBytes", interface.mtu);
    device.maybe("MACAddress", interface.mac.as_deref().map(plain_mac));
    Some(([vec![device], own].concat(), secret))
}

fn section(name: &'static str, lines: &[(&str, String)]) -> Section {
    let mut section = Section::new(name);
    lines.iter().for_each(|(key, value)| section.add(*key, value));
    section
}

/// A value as one line, or as its words.
pub fn line(value: &Value) -> Option<String> {
    let text = match value {
        Value::Bool(b) => if *b { "yes" } else { "no" }.to_owned(),
        Value::List(list) => list.iter().filter_map(Value::text).collect::<Vec<_>>().join(" "),
        other => other.text()?,
    };
    (!text.chars().any(char::is_control)).then_some(text)
}

fn parameters(
    interface: &Interface,
    name: &'static str,
    params: &Map,
    table: &'static [Parameter],
    unsupported: &mut Unsupported,
) -> Section {
    let mut section = Section::new(name);
    for (key, value) in params.iter() {
        // These are in the member's .network file.
        if matches!(key, "primary" | "active_slave" | "pathcost" | "portprio") {
            continue;
        }
        // Off is the default.
        if key == "stp" && !value.is_true() {
            continue;
        }
        let Some(param) = parameters::find(table, key).filter(|p| !p.networkd.is_empty()) else {
            unsupported.key(interface, key);
            continue;
        };
        let text = match param.value_type {
            ValueType::Milliseconds | ValueType::Seconds => parameters::milliseconds(value, param.value_type).map(span),
            ValueType::Bool => Some(if value.is_true() { "yes" } else { "no" }.into()),
            _ => line(value).map(|t| parameters::bond_word(key, &t).to_owned()),
        };
        match text {
            Some(text) => section.add(param.networkd, text),
            None => unsupported.key(interface, key),
        }
    }
    section
}

/// A time span for systemd (systemd.time(7)).
fn span(ms: u64) -> String {
    if ms.is_multiple_of(1000) { (ms / 1000).to_string() } else { format!("{ms}ms") }
}

/// netplan's modes and networkd's kinds.
const TUNNELS: &[(&str, &str)] = &[
    ("gre", "gre"),
    ("gretap", "gretap"),
    ("ip6gre", "ip6gre"),
    ("ip6gretap", "ip6gretap"),
    ("ipip", "ipip"),
    ("ipip6", "ip6tnl"),
    ("ip6ip6", "ip6tnl"),
    ("sit", "sit"),
    ("isatap", "sit"),
    ("vti", "vti"),
    ("vti6", "vti6"),
    ("vxlan", "vxlan"),
    ("wireguard", "wireguard"),
];

const TUNNEL_KEYS: &[(&str, &str)] = &[
    ("local", "Local"),
    ("remote", "Remote"),
    ("ttl", "TTL"),
    ("key", "Key"),
    ("input", "InputKey"),
    ("output", "OutputKey"),
    ("type-of-service", "TOS"),
];

const VXLAN_KEYS: &[(&str, &str)] = &[
    ("id", "VNI"),
    ("local", "Local"),
    ("remote", "Remote"),
    ("ttl", "TTL"),
    ("type-of-service", "TOS"),
    ("mac-learning", "MacLearning"),
    ("ageing", "FDBAgeingSec"),
    ("aging", "FDBAgeingSec"),
    ("limit", "MaximumFDBEntries"),
    ("arp-proxy", "ReduceARPProxy"),
    ("port", "DestinationPort"),
    ("port-range", "PortRange"),
    ("short-circuit", "RouteShortCircuit"),
    ("l2-miss", "L2MissNotification"),
    ("l3-miss", "L3MissNotification"),
    ("udp", "UDPChecksum"),
    ("zero-udp6-tx", "UDP6ZeroChecksumTx"),
    ("zero-udp6-rx", "UDP6ZeroChecksumRx"),
    ("remote-tx", "RemoteChecksumTx"),
    ("remote-rx", "RemoteChecksumRx"),
    ("group-policy", "GroupPolicyExtension"),
    ("generic-protocol", "GenericProtocolExtension"),
    ("flow-label", "FlowLabel"),
    ("do-not-fragment", "IPDoNotFragment"),
];

const WIREGUARD_KEYS: &[(&str, &str)] = &[("key", "PrivateKey"), ("port", "ListenPort"), ("mark", "FirewallMark")];

const PEER_KEYS: &[(&str, &str)] = &[
    ("public", "PublicKey"),
    ("shared", "PresharedKey"),
    ("endpoint", "Endpoint"),
    ("keepalive", "PersistentKeepalive"),
    ("allowed-ips", "AllowedIPs"),
];

fn mode(keys: &Map) -> &str {
    keys.get("mode").and_then(Value::as_str).unwrap_or_default()
}

fn tunnel(interface: &Interface, keys: &Map, unsupported: &mut Unsupported) -> Option<(&'static str, Vec<Section>)> {
    let mode = mode(keys);
    let Some((_, kind)) = TUNNELS.iter().find(|(netplan, _)| *netplan == mode) else {
        unsupported.key(interface, "mode");
        return None;
    };
    let (name, table) = match *kind {
        "vxlan" => ("VXLAN", VXLAN_KEYS),
        "wireguard" => ("WireGuard", WIREGUARD_KEYS),
        _ => ("Tunnel", TUNNEL_KEYS),
    };
    let is_wrong = |key: &&&str| {
        let end = keys.get(key).and_then(Value::text).and_then(|text| Ip::parse(&text));
        name == "Tunnel" && end.is_some_and(|end| end.is_v6() != is_tunnel_by_v6(mode))
    };
    if let Some(key) = ["local", "remote"].iter().find(is_wrong) {
        unsupported.key(interface, key);
        return None;
    }
    let mut main = Section::new(name);
    let flat = flattened(keys, *kind == "wireguard");
    for (key, value) in flat.iter().filter(|(k, _)| !matches!(*k, "mode" | "link" | "peers")) {
        translate(interface, &mut main, table, key, value, unsupported);
    }
    match mode {
        "ipip6" | "ip6ip6" => main.add("Mode", mode),
        "isatap" => main.add("ISATAP", "yes"),
        _ => {}
    }
    if !keys.contains_key("link") && name != "WireGuard" {
        main.add("Independent", "yes");
    }
    let mut sections = vec![main];
    for peer in keys.get("peers").and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_map) {
        let mut section = Section::new("WireGuardPeer");
        for (key, value) in flattened(peer, false).iter() {
            translate(interface, &mut section, PEER_KEYS, key, value, unsupported);
        }
        sections.push(section);
    }
    Some((*kind, sections))
}

fn translate(
    interface: &Interface,
    section: &mut Section,
    table: &[(&str, &str)],
    key: &str,
    value: &Value,
    unsupported: &mut Unsupported,
) {
    match (table.iter().find(|(netplan, _)| *netplan == key), line(value)) {
        (Some((_, "PrivateKey")), Some(text)) if text.starts_with('/') => section.add("PrivateKeyFile", text),
        (Some((_, "PresharedKey")), Some(text)) if text.starts_with('/') => section.add("PresharedKeyFile", text),
        (Some((_, "Remote")), Some(text)) if text.parse().is_ok_and(|a: IpAddr| a.is_multicast()) => {
            section.add("Group", text);
        }
        (Some((_, own)), Some(text)) => section.add(*own, text),
        _ => unsupported.key(interface, key),
    }
}

/// The keys, with those of `key:` and `keys:` in place of a mapping there, and the words of a VXLAN's switches as keys. A WireGuard
/// device's `private` becomes `key`.
fn flattened(keys: &Map, wireguard: bool) -> Map {
    let mut out = Map::new();
    for (key, value) in keys.iter() {
        match (key, value) {
            ("key" | "keys", Value::Map(inner)) => {
                for (inner, value) in inner.iter() {
                    out.insert(if wireguard && inner == "private" { "key" } else { inner }, value.clone());
                }
            }
            ("notifications" | "checksums" | "extensions", Value::List(words)) => {
                words.iter().filter_map(Value::text).for_each(|word| drop(out.insert(word, true)));
            }
            ("port-range", Value::List(_)) => drop(out.insert(key, value.texts().join("-"))),
            ("keys", value) => drop(out.insert("key", value.clone())),
            (key, value) => drop(out.insert(key, value.clone())),
        }
    }
    out
}

/// Tunnels on top of the device, each with the key that names it in the device's .network file.
pub fn tunnels_on<'a>(network: &'a Network, name: &'a str) -> impl Iterator<Item = (&'a Interface, &'static str)> {
    network.interfaces.iter().filter_map(move |i| match &i.device_type {
        DeviceType::Tunnel(keys) if keys.get("link").and_then(Value::as_str) == Some(name) => {
            Some((i, if mode(keys) == "vxlan" { "VXLAN" } else { "Tunnel" }))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::network::render::networkd::RENDERER;
    use crate::network::render::renderer::HEADER;
    use crate::network::testing::files;

    #[test]
    fn writes_a_peer_as_a_host() {
        for (address, peer, expected) in
            [("10.0.113.5/32", "10.0.113.1", "10.0.113.1/32"), ("'fd00::5/64'", "'fe80::1'", "fe80::1/128")]
        {
            let text = format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: {address}, pointopoint: {peer}}}]}}]"
            );
            let files = files(&RENDERER, &text, "debian");
            let line = format!("\nPeer={expected}\n");
            assert!(files.iter().any(|f| f.content.contains(&line)), "{line}");
        }
    }

    #[test]
    fn a_tunnel_has_ends_of_its_family() {
        let made = |keys: &str| {
            let files = files(&RENDERER, &format!("version: 2\ntunnels: {{t: {{{keys}}}}}"), "debian");
            files.iter().any(|f| f.path.ends_with("init-t.netdev"))
        };
        assert!(
            made("mode: gre, local: 10.0.0.2, remote: 10.0.0.3") && made("mode: ip6gre, local: '::2', remote: '::3'")
        );
        assert!(!made("mode: gre, local: 10.0.0.2, remote: '::3'") && !made("mode: vti6, remote: 10.0.0.3"));
    }

    #[test]
    fn devices_are_created_with_all_their_parameters() {
        let text = "version: 2\nethernets: {a: {}}\nbonds:\n  b: {interfaces: [a], parameters: {mode: 4, mii-monitor-interval: 150, primary: a, odd: 1}}\n\
                    bridges: {br: {interfaces: [b], parameters: {stp: no, forward-delay: 4, path-cost: {b: 75}}}}\nvrfs: {v: {table: 9, interfaces: [br]}}\n\
                    tunnels:\n  wg: {mode: wireguard, key: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=', peers: [{keys: {public: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8='}, allowed-ips: [0.0.0.0/0, '::/0']}]}\n\
                    \x20 vx: {mode: vxlan, id: 7, link: a, remote: 239.1.1.9}\n  x: {mode: odd}\n";
        let files = files(&RENDERER, text, "debian");
        let file = |name: &str| files.iter().find(|f| f.path.ends_with(&format!("init-{name}"))).unwrap();
        let body = |name: &str| file(name).content.strip_prefix(HEADER).unwrap().to_owned();
        assert_eq!(body("b.netdev"), "\n[NetDev]\nName=b\nKind=bond\n\n[Bond]\nMode=802.3ad\nMIIMonitorSec=150ms\n");
        let words = "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {bond-mode: 4, bond-lacp-rate: 1, bond-xmit-hash-policy: 1}}]";
        let netdev = crate::network::testing::files(&RENDERER, words, "debian")
            .into_iter()
            .find(|f| f.path.ends_with("b.netdev"));
        assert!(
            netdev.unwrap().content.ends_with("Mode=802.3ad\nLACPTransmitRate=fast\nTransmitHashPolicy=layer3+4\n")
        );
        assert_eq!(body("br.netdev"), "\n[NetDev]\nName=br\nKind=bridge\n\n[Bridge]\nForwardDelaySec=4\n");
        assert_eq!(body("vx.netdev"), "\n[NetDev]\nName=vx\nKind=vxlan\n\n[VXLAN]\nGroup=239.1.1.9\nVNI=7\n");
        assert_eq!(
            body("wg.netdev"),
            "\n[NetDev]\nName=wg\nKind=wireguard\n\n[WireGuard]\nPrivateKey=4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=\n\n[WireGuardPeer]\nPublicKey=4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=\nAllowedIPs=0.0.0.0/0 ::/0\n"
        );
        assert_eq!((file("wg.netdev").mode, file("b.netdev").mode), (0o600, 0o644));
        assert!(body("a.network").contains("Bond=b\nPrimarySlave=yes\nVXLAN=vx\n"));
        assert!(body("b.network").contains("Bridge=br\n") && body("b.network").contains("[Bridge]\nCost=75\n"));
        assert!(body("br.network").contains("VRF=v\n"));
        assert!(!files.iter().any(|f| f.path.ends_with("init-x.netdev")));
    }
}
