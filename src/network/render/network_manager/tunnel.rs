//! NetworkManager's sections for tunnels: `[ip-tunnel]`, `[vxlan]`, `[wireguard]` (nm-settings(5)), from netplan's keys.

use super::keyfile::{line, list};
use crate::document::{Map, Value};
use crate::network::model::{Interface, is_tunnel_by_v6};
use crate::network::render::grammar::is_wireguard_key;
use crate::network::render::ini::Section;
use crate::network::render::renderer::Unsupported;
use std::net::{IpAddr, Ipv4Addr};

/// netplan's modes and NetworkManager's numbers (NMIPTunnelMode).
const MODES: &[(&str, u8)] = &[
    ("ipip", 1),
    ("gre", 2),
    ("sit", 3),
    ("isatap", 4),
    ("vti", 5),
    ("ip6ip6", 6),
    ("ipip6", 7),
    ("ip6gre", 8),
    ("vti6", 9),
    ("gretap", 10),
    ("ip6gretap", 11),
];

type Keys = &'static [(&'static str, &'static str)];

const IP_TUNNEL: Keys = &[("local", "local"), ("remote", "remote"), ("ttl", "ttl"), ("type-of-service", "tos")];

const VXLAN: Keys = &[
    ("id", "id"),
    ("local", "local"),
    ("remote", "remote"),
    ("ttl", "ttl"),
    ("type-of-service", "tos"),
    ("mac-learning", "learning"),
    ("ageing", "ageing"),
    ("aging", "ageing"),
    ("limit", "limit"),
    ("arp-proxy", "proxy"),
    ("port", "destination-port"),
];

const WIREGUARD: Keys = &[("key", "private-key"), ("port", "listen-port"), ("mark", "fwmark")];

const PEER: Keys = &[("endpoint", "endpoint"), ("keepalive", "persistent-keepalive")];

/// The sections for the tunnel's mode. None if NetworkManager has no such tunnel.
pub fn sections(interface: &Interface, keys: &Map, unsupported: &mut Unsupported) -> Option<Vec<Section>> {
    let mode = keys.get("mode").and_then(Value::as_str)?;
    match mode {
        "wireguard" => Some(wireguard(interface, keys, unsupported)),
        "vxlan" => Some(vec![plain(interface, "vxlan", keys, VXLAN, unsupported)]),
        _ => {
            let (_, number) = MODES.iter().find(|(name, _)| *name == mode)?;
            // NetworkManager refuses a tunnel without another end.
            let remote: IpAddr = keys.get("remote")?.as_str()?.parse().ok()?;
            if remote.is_ipv6() != is_tunnel_by_v6(mode) {
                return None;
            }
            let mut section = Section::new("ip-tunnel");
            section.add("mode", number);
            section.append(plain(interface, "ip-tunnel", keys, IP_TUNNEL, unsupported));
            Some(vec![section])
        }
    }
}

fn plain(interface: &Interface, name: &'static str, keys: &Map, table: Keys, unsupported: &mut Unsupported) -> Section {
    let mut section = Section::new(name);
    let mode = keys.get("mode").and_then(Value::as_str).unwrap_or_default();
    let is_keyed = mode.contains("gre") || mode.contains("vti");
    let end = |key: &str| keys.get(key)?.as_str()?.parse::<IpAddr>().ok();
    // NetworkManager refuses a profile whose ends are of two families (nm-setting-vxlan.c and nm-setting-ip-tunnel.c, `verify`).
    let is_v6 = end("remote").or(end("local")).is_some_and(|ip| ip.is_ipv6());
    for (key, value) in keys.iter() {
        match (table.iter().find(|(netplan, _)| *netplan == key), key) {
            (_, "mode") => {}
            (_, "link") => section.maybe("parent", line(value)),
            // nm-setting-ip-tunnel.c, `verify`.
            (None, "key" | "keys") if name == "ip-tunnel" && is_keyed => {
                let (input, output) = match value {
                    Value::Map(each) => (each.get("input"), each.get("output")),
                    both => (Some(both), Some(both)),
                };
                for (own, given) in [("input-key", input), ("output-key", output)] {
                    match given.map(tunnel_key) {
                        Some(Some(number)) => section.add(own, number),
                        Some(None) => unsupported.key(interface, key),
                        None => {}
                    }
                }
            }
            (Some((_, own)), "local" | "remote") if end(key).is_some_and(|ip| ip.is_ipv6() == is_v6) => {
                section.maybe(own, line(value))
            }
            (Some((_, own)), _) if key != "local" && key != "remote" => match line(value) {
                Some(text) => section.add(*own, text),
                None => unsupported.key(interface, key),
            },
            _ => unsupported.key(interface, key),
        }
    }
    section
}

/// A tunnel's key as a number: NetworkManager refuses a profile with the form of an address (ip-tunnel(8)).
fn tunnel_key(value: &Value) -> Option<u32> {
    let text = value.text()?;
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(u32::from))
}

fn wireguard(interface: &Interface, keys: &Map, unsupported: &mut Unsupported) -> Vec<Section> {
    let mut device = Section::new("wireguard");
    let mut peers = Vec::new();
    for (key, value) in keys.iter() {
        // netplan also takes the private key in `keys`.
        let private = value.get("private");
        match (WIREGUARD.iter().find(|(netplan, _)| *netplan == key), private, key) {
            (_, _, "mode" | "peers") => {}
            (Some(("key", _)), None, _) if is_file(value) => unsupported.key(interface, key),
            (Some((_, own)), ..) if line(value).is_some() => device.maybe(own, line(value)),
            (_, Some(private), "key" | "keys") if !is_file(private) => device.maybe("private-key", line(private)),
            _ => unsupported.key(interface, key),
        }
    }
    for value in keys.get("peers").and_then(Value::as_list).unwrap_or_default() {
        match peer(interface, value, unsupported) {
            Some(section) => peers.push(section),
            None => unsupported.key(interface, "peers"),
        }
    }
    [vec![device], peers].concat()
}

/// Whether a key is the path of a file, which netplan takes and NetworkManager does not.
fn is_file(key: &Value) -> bool {
    key.as_str().is_some_and(|text| text.starts_with('/'))
}

fn peer(interface: &Interface, value: &Value, unsupported: &mut Unsupported) -> Option<Section> {
    let public = value.at(&["keys", "public"]).and_then(Value::as_str)?;
    // It becomes part of the section's name. NetworkManager ignores a peer whose key is none.
    if !is_wireguard_key(public) {
        return None;
    }
    let mut section = Section::new(format!("wireguard-peer.{public}"));
    for (key, value) in value.as_map()?.iter() {
        match (PEER.iter().find(|(netplan, _)| *netplan == key), key) {
            (Some((_, own)), _) => section.maybe(own, line(value)),
            (None, "keys") => {
                if value.get("shared").is_some_and(is_file) {
                    unsupported.key(interface, "peers.keys.shared");
                } else if let Some(shared) = value.get("shared").and_then(line) {
                    section.add("preshared-key", shared);
                    // NetworkManager stores it and does not ask an agent.
                    section.add("preshared-key-flags", 0);
                }
            }
            (None, "allowed-ips") => {
                let nets: Vec<String> = value.as_list().unwrap_or_default().iter().filter_map(Value::text).collect();
                section.add("allowed-ips", list(nets.iter().map(String::as_str)));
            }
            _ => unsupported.key(interface, &format!("peers.{key}")),
        }
    }
    Some(section)
}
