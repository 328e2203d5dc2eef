//! The grammar of netplan's files (netplan-yaml(5); netplan's src/parse.c, versions 0.106 to 1.2). netplan refuses all of its files
//! for one key or value that it does not know, and the machine then has no network. So such keys and values are left out.

use crate::document::{Map, Value};
use crate::network::address::{Cidr, Ip, NameServer};
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{is_tunnel_by_v6, is_valid_name};
use crate::network::parameters;
use crate::network::render::grammar::{self, Grammar, is_cidr, is_wireguard_key};
use crate::network::render::renderer::Unsupported;
use std::collections::{BTreeSet, HashSet};

/// The sections, devices before those that refer to them.
const SECTIONS: [&str; 10] = [
    "ethernets",
    "wifis",
    "modems",
    "dummy-devices",
    "virtual-ethernets",
    "bonds",
    "bridges",
    "vlans",
    "tunnels",
    "vrfs",
];

/// A section's own keys, those of every device (`device`) and of devices that are there without netplan (`physical`), and those of
/// mappings below. Beside the kinds of [`grammar`], `[kind]` is a list, `{kind}` a mapping of any names to such values, `@table` a
/// mapping with the table's keys, `address` an address with its prefix, or a mapping of one to its options, and `network` is `net` to
/// which a missing prefix length is added.
const GRAMMAR: Grammar = Grammar(include_str!("grammar.txt"));

/// The priority of a rule that has none: the kernel's for its first.
const RULE_PRIORITY: u32 = 32765;

/// The keys that a section's devices must have.
const REQUIRED: &[(&str, &str)] =
    &[("tunnels", "mode"), ("vlans", "id"), ("vlans", "link"), ("vrfs", "table"), ("wifis", "access-points")];

/// What netplan 0.106 does not know: sections, and keys of devices (netplan's src/parse.c at 0.106 and 1.0).
const NEWER_SECTIONS: [&str; 2] = ["dummy-devices", "virtual-ethernets"];
const NEWER_KEYS: [&str; 3] = ["hairpin", "port-mac-learning", "ra-overrides"];

/// Removes from the mapping below `network:` what only netplan 1.0 and later know, and reports it by its path.
pub fn remove_newer(network: &mut Map, unsupported: &mut Unsupported) {
    for section in NEWER_SECTIONS {
        each_device(network, section, |_, path, _| unsupported.path(path));
        network.remove(section);
    }
    for section in SECTIONS {
        each_device(network, section, |_, path, device| {
            for key in NEWER_KEYS.into_iter().filter(|key| device.get(key).is_some()).collect::<Vec<_>>() {
                device.remove(key);
                unsupported.path(&format!("{path}.{key}"));
            }
        });
    }
}

/// Removes everything from the mapping below `network:` that netplan would refuse, and reports it by its path. Keys beside the
/// sections are reported where the document is read.
pub fn filter(network: &mut Map, unsupported: &mut Unsupported) {
    for section in keys(network) {
        match network.get_mut(&section) {
            Some(Value::Map(devices)) if SECTIONS.contains(&section.as_str()) => {
                for id in keys(devices) {
                    if id == "renderer" {
                        check_renderer(devices, &section, unsupported);
                        continue;
                    }
                    let path = format!("{section}.{id}");
                    let mut is_kept = |device: &mut Value| {
                        is_device(device, &section, &path, unsupported)
                            && REQUIRED.iter().all(|(of, key)| *of != section || device.get(key).is_some())
                    };
                    if !is_id(&id) || !devices.get_mut(&id).is_some_and(&mut is_kept) {
                        devices.remove(&id);
                        unsupported.path(&path);
                    }
                }
            }
            _ if section == "renderer" => check_renderer(network, "network", unsupported),
            _ if matches!(section.as_str(), "version" | "openvswitch" | "nm-devices") => {}
            _ => drop(network.remove(&section)),
        }
    }
    fit_renderers(network, unsupported);
    References::of(network).settle(network, unsupported);
    unite_overrides(network, unsupported);
    order(network);
}

/// Removes a renderer that netplan does not know. The renderer above it applies then, or netplan's default.
fn check_renderer(of: &mut Map, path: &str, unsupported: &mut Unsupported) {
    let given = of.get("renderer");
    if given.and_then(Value::as_str).is_none_or(|name| !GRAMMAR.takes("device", "renderer", name)) {
        if given.is_some_and(|name| !name.is_null()) {
            unsupported.path(&format!("{path}.renderer"));
        }
        of.remove("renderer");
    }
}

/// Calls `change` with the section, the path and the keys of each device, and with whether NetworkManager is its renderer.
/// Devices for which it returns false are removed.
fn each_by_renderer(network: &mut Map, change: &mut dyn FnMut(&str, &str, &mut Map, bool) -> bool) {
    let renderer = |of: &Map| of.get("renderer").and_then(Value::text);
    let of_all = renderer(network);
    for section in SECTIONS {
        let of_section = network.get(section).and_then(Value::as_map).and_then(renderer).or_else(|| of_all.clone());
        let mut without = Vec::new();
        each_device(network, section, |id, path, device| {
            let by = renderer(device).or_else(|| of_section.clone());
            if !change(section, path, device, by.is_some_and(|name| name != "networkd")) {
                without.push(id.to_owned());
            }
        });
        if let Some(Value::Map(devices)) = network.get_mut(section) {
            devices.remove_all(&without);
        }
    }
}

/// Removes what the renderer of a device does not take: netplan then ends, and writes no file of the devices after it (netplan's
/// src/networkd.c, nm.c, and validation.c, `validate_backend_rules`).
fn fit_renderers(network: &mut Map, unsupported: &mut Unsupported) {
    each_by_renderer(network, &mut |section, path, device, by_manager| {
        let is_kept = match (section, by_manager) {
            ("modems", false) => false,
            // networkd's Wi-Fi devices are found by their names.
            ("wifis", false) => !device.contains_key("match") && remove_own_points(device, path, unsupported),
            ("tunnels", false) => mode(device) != "isatap",
            (_, false) => true,
            _ => fit_manager(device, path, unsupported),
        };
        if !is_kept {
            unsupported.path(path);
        }
        is_kept
    });
}

/// Removes the networks for which a Wi-Fi device would be the access point. Whether others are left.
fn remove_own_points(device: &mut Map, path: &str, unsupported: &mut Unsupported) -> bool {
    let Some(Value::Map(points)) = device.get_mut("access-points") else { return true };
    let own: Vec<String> = points
        .iter()
        .filter(|(_, point)| point.as_map().is_some_and(|p| mode(p) == "ap"))
        .map(|p| p.0.to_owned())
        .collect();
    own.iter().for_each(|name| unsupported.path(&format!("{path}.access-points.{name}")));
    points.remove_all(&own);
    !points.is_empty()
}

/// Whether NetworkManager can have a device, after what it cannot have has been removed.
fn fit_manager(device: &mut Map, path: &str, unsupported: &mut Unsupported) -> bool {
    let mut lost = |key: &str| unsupported.path(&format!("{path}.{key}"));
    if device.remove("ipv6-mtu").is_some() {
        lost("ipv6-mtu");
    }
    if device.get("activation-mode").and_then(Value::as_str) == Some("off") {
        device.insert("activation-mode", "manual");
    }
    if let Some(Value::Map(matching)) = device.get_mut("match")
        && matching.remove("driver").is_some()
    {
        if matching.is_empty() {
            return false;
        }
        lost("match.driver");
    }
    if let Some(Value::List(addresses)) = device.get_mut("addresses") {
        for address in addresses {
            let Some(plain) = address.as_map().and_then(|options| keys(options).pop()) else { continue };
            lost(&format!("addresses.{plain}"));
            *address = plain.into();
        }
    }
    if let Some(Value::List(routes)) = device.get_mut("routes") {
        routes.retain(|route| {
            let is_kept = route.get("type").is_none_or(|kind| kind.as_str() == Some("unicast"));
            if !is_kept {
                lost("routes.type");
            }
            is_kept
        });
    }
    if let Some(Value::List(rules)) = device.get_mut("routing-policy") {
        for rule in rules {
            if let Value::Map(rule) = rule
                && !rule.contains_key("priority")
            {
                rule.insert("priority", RULE_PRIORITY);
            }
        }
    }
    match mode(device) {
        "vti" | "vti6" => {
            for key in ["key", "keys"] {
                if device.remove(key).is_some() {
                    lost(key);
                }
            }
            true
        }
        "wireguard" => !has_key_files(device),
        _ => true,
    }
}

/// The mode of a tunnel, or of an access point.
fn mode(of: &Map) -> &str {
    of.get("mode").and_then(Value::as_str).unwrap_or_default()
}

/// Whether WireGuard's own key, or one that it shares with a peer, is in a file.
fn has_key_files(device: &Map) -> bool {
    let own =
        ["key", "keys"].into_iter().filter_map(|key| device.get(key)).map(|key| key.get("private").unwrap_or(key));
    let peers = device.get("peers").and_then(Value::as_list).unwrap_or_default();
    let shared = peers.iter().filter_map(|peer| peer.at(&["keys", "shared"]));
    own.chain(shared).any(|key| key.as_str().is_some_and(|text| text.starts_with('/')))
}

/// Gives both families of a lease the same overrides, those of DHCPv4 first, unless the device is NetworkManager's: for networkd,
/// netplan writes no file of any device if one has two values of a key (netplan's src/networkd.c, combine_dhcp_overrides).
fn unite_overrides(network: &mut Map, unsupported: &mut Unsupported) {
    each_by_renderer(network, &mut |_, path, device, by_manager| {
        let is_on = |family| device.get(family) == Some(&Value::Bool(true));
        if !by_manager && is_on("dhcp4") && is_on("dhcp6") {
            for (from, to) in [("dhcp4-overrides", "dhcp6-overrides"), ("dhcp6-overrides", "dhcp4-overrides")] {
                copy_overrides(device, path, from, to, unsupported);
            }
        }
        true
    });
}

/// Gives the overrides `to` of the device at `path` what differs from those of `from`, and reports it.
fn copy_overrides(device: &mut Map, path: &str, from: &str, to: &str, unsupported: &mut Unsupported) {
    let map = |key| device.get(key).and_then(Value::as_map).cloned().unwrap_or_default();
    let (given, mut other) = (map(from), map(to));
    for (name, value) in given.iter() {
        // The default of each switch; use-domains is none.
        let is_default = *value == Value::Bool(true) && name != "use-domains";
        if other.get(name).map_or(is_default, |there| there == value) {
            continue;
        }
        other.insert(name, value.clone());
        unsupported.apart(&format!("{path}.{from}.{name}"));
    }
    if !other.is_empty() {
        device.insert(to, other);
    }
}

/// Puts each section after those that its devices refer to, if possible; else keeps the document's order. netplan
/// reads a file in which a device refers to a later one twice, and then (0.106) reports access points and path costs as duplicates.
fn order(network: &mut Map) {
    let mut left: Vec<(&str, HashSet<String>, HashSet<String>)> = Vec::new();
    for section in network.keys() {
        let known = SECTIONS.iter().find(|name| **name == section);
        let (Some(name), Some(devices)) = (known, network.get(section).and_then(Value::as_map)) else { continue };
        let used = devices.iter().flat_map(|(_, device)| {
            ["interfaces", "link"].iter().filter_map(|key| device.get(key)).flat_map(Value::texts)
        });
        left.push((name, keys(devices).into_iter().collect(), used.collect()));
    }
    while !left.is_empty() {
        let refers_to_none = |(name, _, used): &(&str, _, HashSet<String>)| {
            left.iter().all(|(other, defined, _)| other == name || defined.is_disjoint(used))
        };
        let next = left.iter().position(refers_to_none).unwrap_or_default();
        let (section, ..) = left.remove(next);
        if let Some(devices) = network.remove(section) {
            network.insert(section, devices);
        }
    }
}

/// References between devices. netplan refuses a device that is not defined, and one that has two masters.
struct References {
    /// The devices of the document.
    defined: HashSet<String>,
}

/// Calls `change` with the path and the keys of each device of a section.
fn each_device(network: &mut Map, section: &str, mut change: impl FnMut(&str, &str, &mut Map)) {
    let Some(Value::Map(devices)) = network.get_mut(section) else { return };
    for id in keys(devices) {
        if let Some(Value::Map(device)) = devices.get_mut(&id) {
            change(&id, &format!("{section}.{id}"), device);
        }
    }
}

impl References {
    fn of(network: &Map) -> References {
        let sections = SECTIONS.iter().filter_map(|section| network.get(section)?.as_map());
        References { defined: sections.flat_map(keys).collect() }
    }

    /// Whether there can be a device of this name: it is defined, or will be ([`define_missing`]).
    fn has(&self, name: &str) -> bool {
        self.defined.contains(name) || (is_id(name) && is_valid_name(name))
    }

    fn settle(self, network: &mut Map, unsupported: &mut Unsupported) {
        // A device has one master, which may also be a VRF.
        let mut taken = HashSet::new();
        for section in ["bonds", "bridges"] {
            each_device(network, section, |id, path, device| {
                let ports = self.ports(id, path, device, &mut taken, unsupported);
                if let Some(Value::Map(parameters)) = device.get_mut("parameters") {
                    let path = format!("{path}.parameters");
                    check_ports(parameters, &ports, &path, unsupported);
                }
            });
        }
        each_device(network, "vrfs", |id, path, device| {
            self.ports(id, path, device, &mut taken, unsupported);
            check_tables(device, path, unsupported);
        });
        let mut without = Vec::new();
        each_device(network, "vlans", |id, path, device| {
            if device.get("link").and_then(Value::text).is_none_or(|link| link == id || !self.has(&link)) {
                unsupported.path(path);
                without.push(id.to_owned());
            }
        });
        if let Some(Value::Map(vlans)) = network.get_mut("vlans") {
            vlans.remove_all(&without);
        }
        let mut without = Vec::new();
        each_device(network, "tunnels", |id, path, device| {
            if !is_tunnel(device, path, unsupported) {
                unsupported.path(path);
                without.push(id.to_owned());
                return;
            }
            if device.get("link").and_then(Value::text).is_some_and(|link| link == id || !self.has(&link)) {
                unsupported.path(&format!("{path}.link"));
                device.remove("link");
            }
            let mode = device.get("mode").and_then(Value::text).unwrap_or_default();
            for key in ["key", "keys"] {
                let is_valid = device.get(key).is_none_or(|value| match mode.as_str() {
                    "wireguard" => true,
                    mode => KEYED.contains(&mode) && is_tunnel_key(value),
                });
                if !is_valid {
                    device.remove(key);
                    unsupported.path(&format!("{path}.{key}"));
                }
            }
        });
        if let Some(Value::Map(tunnels)) = network.get_mut("tunnels") {
            tunnels.remove_all(&without);
        }
        define_missing(network);
    }

    /// Removes the ports of a device that cannot be, or are another's; those that are left.
    fn ports(
        &self,
        id: &str,
        path: &str,
        device: &mut Map,
        taken: &mut HashSet<String>,
        unsupported: &mut Unsupported,
    ) -> HashSet<String> {
        let mut ports = HashSet::new();
        if let Some(Value::List(list)) = device.get_mut("interfaces") {
            list.retain(|port| {
                let name = port.text().unwrap_or_default();
                let is_kept = name != id && self.has(&name) && taken.insert(name.clone());
                if is_kept {
                    ports.insert(name);
                } else {
                    unsupported.path(&format!("{path}.interfaces: {name}"));
                }
                is_kept
            });
        }
        ports
    }
}

/// Defines the devices that others refer to and that are not, or no longer, defined.
fn define_missing(network: &mut Map) {
    let mut missing = BTreeSet::new();
    for section in SECTIONS {
        let devices = network.get(section).and_then(Value::as_map).into_iter().flat_map(Map::iter);
        for (_, device) in devices {
            missing.extend(["interfaces", "link"].iter().filter_map(|key| device.get(key)).flat_map(Value::texts));
        }
    }
    let References { defined } = References::of(network);
    missing.retain(|name| !defined.contains(name));
    if missing.is_empty() {
        return;
    }
    if !matches!(network.get("ethernets"), Some(Value::Map(_))) {
        network.insert("ethernets", Map::new());
    }
    if let Some(Value::Map(ethernets)) = network.get_mut("ethernets") {
        for name in missing {
            ethernets.insert(name, Map::new());
        }
    }
}

/// The modes of tunnels that have a key.
const KEYED: &[&str] = &["gre", "gretap", "ip6gre", "ip6gretap", "vti", "vti6"];

/// Whether a value is the key of a tunnel: a number or an IPv4 address, or one for each direction.
fn is_tunnel_key(value: &Value) -> bool {
    let is_key = |text: &str| grammar::fits("tunnelkey", text);
    match value {
        Value::Map(each) => each
            .iter()
            .all(|(name, key)| matches!(name, "input" | "output") && key.text().is_some_and(|text| is_key(&text))),
        both => both.text().is_some_and(|text| is_key(&text)),
    }
}

/// Whether a tunnel has the keys that its mode requires (netplan's validation.c, `validate_tunnel_grammar`). Peers with an invalid
/// key are removed.
fn is_tunnel(device: &mut Map, path: &str, unsupported: &mut Unsupported) -> bool {
    let Some(mode) = device.get("mode").and_then(Value::text) else { return false };
    let [local, remote] =
        ["local", "remote"].map(|key| device.get(key).and_then(Value::text).and_then(|text| Ip::parse(&text)));
    match mode.as_str() {
        "vxlan" => {
            device.contains_key("id") && local.zip(remote).is_none_or(|(local, remote)| local.is_v6() == remote.is_v6())
        }
        "wireguard" => {
            if let Some(Value::List(peers)) = device.get_mut("peers") {
                peers.retain(|peer| {
                    let is_peer = peer.at(&["keys", "public"]).and_then(Value::as_str).is_some_and(is_wireguard_key)
                        && peer.at(&["keys", "shared"]).is_none_or(is_key_or_file)
                        && peer.get("allowed-ips").and_then(Value::as_list).is_some_and(|nets| !nets.is_empty());
                    if !is_peer {
                        unsupported.path(&format!("{path}.peers"));
                    }
                    is_peer
                });
            }
            let has_peers = device.get("peers").and_then(Value::as_list).is_some_and(|peers| !peers.is_empty());
            let given = [device.get("key"), device.get("keys")].into_iter().flatten().next();
            has_peers && given.is_some_and(|key| is_key_or_file(key.get("private").unwrap_or(key)))
        }
        mode => [local, remote].iter().all(|end| end.as_ref().is_some_and(|ip| ip.is_v6() == is_tunnel_by_v6(mode))),
    }
}

/// Whether a value is a WireGuard key, or the path of a file with one.
fn is_key_or_file(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with('/') || is_wireguard_key(text))
}

/// Removes parameters that name a port which the device does not have.
fn check_ports(parameters: &mut Map, ports: &HashSet<String>, path: &str, unsupported: &mut Unsupported) {
    if parameters.get("primary").and_then(Value::text).is_some_and(|primary| !ports.contains(&primary)) {
        unsupported.path(&format!("{path}.primary"));
        parameters.remove("primary");
    }
    for key in ["path-cost", "port-priority"] {
        let Some(Value::Map(values)) = parameters.get_mut(key) else { continue };
        for port in keys(values).into_iter().filter(|port| !ports.contains(port)) {
            values.remove(&port);
            unsupported.path(&format!("{path}.{key}.{port}"));
        }
    }
}

/// Removes a VRF's routes and rules that are for another table.
fn check_tables(device: &mut Map, path: &str, unsupported: &mut Unsupported) {
    let own = device.get("table").and_then(Value::text);
    for key in ["routes", "routing-policy"] {
        let Some(Value::List(items)) = device.get_mut(key) else { continue };
        items.retain(|item| {
            let is_own = item.get("table").and_then(Value::text).is_none_or(|table| Some(table) == own);
            if !is_own {
                unsupported.path(&format!("{path}.{key}"));
            }
            is_own
        });
    }
    if device.get("routes").and_then(Value::as_list).is_some_and(<[Value]>::is_empty) {
        device.remove("routes");
    }
    // netplan 0.106 crashes on a VRF with routes and without a rule. This one fits no packet.
    let has = |key: &str| device.get(key).and_then(Value::as_list).is_some_and(|list| !list.is_empty());
    if has("routes") && !has("routing-policy") {
        let mut rule = Map::from_iter([("from", "255.255.255.255/32")]);
        rule.insert("priority", RULE_PRIORITY);
        device.insert("routing-policy", Value::List(vec![rule.into()]));
    }
}

/// Whether netplan takes a name for a device in its files.
fn is_id(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '?' | '['))
}

fn keys(map: &Map) -> Vec<String> {
    map.keys().map(str::to_owned).collect()
}

/// Whether anything is left of a device after what netplan would refuse.
fn is_device(device: &mut Value, section: &str, path: &str, unsupported: &mut Unsupported) -> bool {
    let map = match device {
        Value::Map(map) => map,
        // netplan takes a device without keys, but only as a mapping.
        Value::Null => {
            *device = Map::new().into();
            return true;
        }
        _ => return false,
    };
    if section == "bonds" {
        use_words(map);
    }
    let tables = [section, "device", "physical"];
    let own = if matches!(section, "ethernets" | "wifis" | "modems") { 3 } else { 2 };
    if !filter_map(map, tables.get(..own).unwrap_or_default(), path, unsupported) {
        return false;
    }
    if map.contains_key("set-name") && !map.contains_key("match") {
        unsupported.path(&format!("{path}.set-name"));
        map.remove("set-name");
    }
    // netplan takes no Wi-Fi device without a network.
    !map.get("access-points").and_then(Value::as_map).is_some_and(Map::is_empty)
}

/// The parameters of a bond as words where they are the numbers of words, which networkd does not take.
fn use_words(bond: &mut Map) {
    let Some(Value::Map(given)) = bond.get_mut("parameters") else { return };
    for key in keys(given) {
        let Some(known) = parameters::BOND.iter().find(|p| p.netplan.contains(&key.as_str())) else { continue };
        let Some(text) = given.get(&key).and_then(Value::text) else { continue };
        let word = parameters::bond_word(known.name, &text);
        if word != text {
            given.insert(key, word);
        }
    }
}

/// Removes the keys that no table has, and those with a value that does not fit. False if a vital one is wrong.
fn filter_map(map: &mut Map, tables: &[&str], path: &str, unsupported: &mut Unsupported) -> bool {
    let tables: Vec<&str> = tables.iter().map(|table| GRAMMAR.table(table)).collect();
    for key in keys(map) {
        let Some(value) = map.get_mut(&key) else { continue };
        let rule = tables.iter().find_map(|table| grammar::rule(table, &key));
        let of_key = format!("{path}.{key}");
        // netplan reads null as no value.
        if rule.as_ref().is_some_and(|rule| value.is_null() || fits(value, rule.kind, &of_key, unsupported)) {
            if value.is_null() {
                map.remove(&key);
            }
            continue;
        }
        if rule.is_some_and(|rule| rule.is_vital) {
            return false;
        }
        unsupported.path(&of_key);
        map.remove(&key);
    }
    true
}

/// What is between two brackets that enclose a kind.
fn inside(kind: &'static str, open: char, close: char) -> Option<&'static str> {
    kind.strip_prefix(open)?.strip_suffix(close)
}

/// Whether a value is of a kind, after what netplan would refuse inside it has been removed.
fn fits(value: &mut Value, kind: &'static str, path: &str, unsupported: &mut Unsupported) -> bool {
    if let Some(table) = kind.strip_prefix('@') {
        return match value {
            Value::Map(map) => {
                // An empty match fits every device.
                let is_wider = table == "match" && !map.is_empty();
                let is_taken = filter_map(map, &[table], path, unsupported)
                    && is_whole(table, map)
                    && !(is_wider && map.is_empty());
                if table == "access-point" {
                    check_channel(map, path, unsupported);
                }
                is_taken
            }
            _ => false,
        };
    }
    if let Some(of) = inside(kind, '[', ']') {
        return is_list(value, of, path, unsupported);
    }
    if let Some(of) = inside(kind, '{', '}') {
        let Value::Map(map) = value else { return false };
        for name in keys(map) {
            let path = format!("{path}.{name}");
            // An access point without keys is an open network. netplan takes only a mapping.
            let is_kept = |v: &mut Value| {
                if v.is_null() && of.starts_with('@') {
                    *v = Value::Map(Map::default());
                }
                fits(v, of, &path, unsupported)
            };
            if !map.get_mut(&name).is_some_and(is_kept) {
                map.remove(&name);
                unsupported.path(&path);
            }
        }
        return true;
    }
    let text = value.text();
    match (kind, value) {
        ("any", _) => true,
        ("address", Value::Map(options)) => options.len() == 1 && options.keys().all(is_cidr),
        // netplan requires a prefix length, which other stacks' readers need not have.
        ("address", value) => match text.and_then(|text| Some((is_cidr(&text), Cidr::parse_address(&text, None)?))) {
            Some((false, address)) => {
                *value = address.to_string().into();
                true
            }
            found => found.is_some(),
        },
        // netplan takes an empty text.
        ("text", _) => text.is_some(),
        ("bool", value) => {
            // The readers take 1 and 0, too.
            if matches!(text.as_deref(), Some("1" | "0")) {
                *value = value.is_true().into();
            }
            matches!(value, Value::Bool(_)) || value.as_str().is_some_and(|word| grammar::fits(kind, word))
        }
        ("network", value) => match text.and_then(|text| Cidr::parse_or_host(&text)) {
            Some(network) => {
                *value = network.to_string().into();
                true
            }
            None => false,
        },
        ("mac", value) => match text.filter(|text| is_mac(&plain_mac(text))) {
            Some(mac) => {
                if !is_mac(&mac) || mac.contains('-') {
                    *value = plain_mac(&mac).into();
                }
                true
            }
            None => false,
        },
        ("destination", value) if text.as_deref() == Some("0/0") => {
            *value = "0.0.0.0/0".into();
            true
        }
        // A gateway or a name server with the prefix of its network, or a server with the name of its certificate.
        ("ip" | "ip4" | "ip6", value) => text.is_some_and(|text| {
            let plain = NameServer::parse(&text).and_then(|server| server.plain().map(Ip::to_string));
            let plain = plain.or_else(|| Cidr::parse(&text, None).map(|cidr| cidr.ip.to_string()));
            let address = plain.unwrap_or_else(|| text.clone());
            if address != text.trim() {
                *value = address.as_str().into();
            }
            grammar::fits(kind, &address)
        }),
        _ => text.is_some_and(|text| grammar::fits(kind, &text)),
    }
}

/// Whether a value is a list, after the items that are none of the kind have been removed. One value in place of a list becomes one, as
/// the readers take it.
fn is_list(value: &mut Value, of: &'static str, path: &str, unsupported: &mut Unsupported) -> bool {
    if let Some(text) = value.as_str().filter(|_| !of.starts_with('@')) {
        let words = text.split([' ', ',']).filter(|word| !word.is_empty()).map(Value::from);
        *value = Value::List(words.collect());
    }
    if matches!(value, Value::Map(_)) && of.starts_with('@') {
        *value = Value::List(vec![std::mem::take(value)]);
    }
    let Value::List(items) = value else { return false };
    let mut number = 0;
    items.retain_mut(|item| {
        let path = format!("{path}[{number}]");
        number += 1;
        let is_kept = fits(item, of, &path, unsupported);
        if !is_kept {
            unsupported.path(&path);
        }
        is_kept
    });
    true
}

/// Whether a mapping has what netplan requires beside keys that fit.
fn is_whole(table: &str, map: &Map) -> bool {
    match table {
        "route" => is_route(map),
        "rule" => map.contains_key("from") || map.contains_key("to"),
        _ => true,
    }
}

/// Removes a channel that its band does not have, on which netplan ends (util.c, `wifi_get_freq24` and `wifi_get_freq5`).
fn check_channel(point: &mut Map, path: &str, unsupported: &mut Unsupported) {
    let [band, channel] = ["band", "channel"].map(|key| point.get(key).and_then(Value::text));
    let Some((band, channel)) = band.zip(channel) else { return };
    if !GRAMMAR.takes(&format!("band-{}", band.trim_end_matches("Hz")), "channel", &channel) {
        point.remove("channel");
        unsupported.path(&format!("{path}.channel"));
    }
}

/// Whether a route has a destination, and no gateway of another family. netplan 0.106 aborts on a default route whose family neither a
/// gateway nor a source tells.
fn is_route(map: &Map) -> bool {
    let Some(to) = map.get("to").and_then(Value::text) else { return false };
    let via = map.get("via").and_then(Value::text).and_then(|via| Ip::parse(&via));
    (to != "default" || via.is_some() || map.contains_key("from"))
        && Cidr::parse_or_host(&to).zip(via).is_none_or(|(to, via)| to.is_v6() == via.is_v6())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::{Problems, Severity};
    use crate::document::{to_yaml, yaml};

    fn filtered(text: &str) -> (String, Vec<String>) {
        let Value::Map(mut map) = yaml::parse("test", text).unwrap() else { panic!("a mapping") };
        let report = Problems::new();
        filter(&mut map, &mut Unsupported::new(&report));
        let warnings = report.texts(Severity::Warning);
        (to_yaml(&Value::Map(map)), warnings)
    }

    #[test]
    fn old_netplan_gets_no_newer_keys() {
        let text = "ethernets: {a: {dhcp4: true, ra-overrides: {use-dns: true}}}\n\
            dummy-devices: {d: {addresses: [10.0.0.1/8]}}\nvrfs: {v: {table: 5, interfaces: [a, d]}}\n";
        let Value::Map(mut map) = yaml::parse("test", text).unwrap() else { panic!("a mapping") };
        let report = Problems::new();
        remove_newer(&mut map, &mut Unsupported::new(&report));
        let left = to_yaml(&Value::Map(map));
        assert!(
            !left.contains("dummy-devices") && !left.contains("ra-overrides") && left.contains("dhcp4: true"),
            "{left}"
        );
        let said = report.texts(Severity::Warning).join("\n");
        assert!(said.contains("dummy-devices.d;") && said.contains("ethernets.a.ra-overrides;"), "{said}");
    }

    #[test]
    fn leaves_out_each_odd_value_alone() {
        for (given, kept) in [
            ("{odd: 1, mtu: 1400}", "{mtu: 1400}"),
            ("{dhcp4: maybe, dhcp6: yes}", "{dhcp6: true}"),
            ("{dhcp4: 1, dhcp6: '0', odd: 1}", "{dhcp4: true, dhcp6: false}"),
            ("{routes: {to: 0/0, via: 10.0.0.1/24}, odd: 1}", "{routes: [{to: 0.0.0.0/0, via: 10.0.0.1}]}"),
            (
                "{addresses: [10.0.0.2, 10.0.0.3/8, {'::2/64': {label: x}}, {}]}",
                "{addresses: [10.0.0.2/24, 10.0.0.3/8, {'::2/64': {label: x}}]}",
            ),
            (
                "{routes: [{to: default, via: 10.0.0.256}, {via: 10.0.0.1}, {to: '::/0', via: 10.0.0.1}, {to: 10.0.0.0/8, via: 10.0.0.1, id: 3}]}",
                "{routes: [{to: 10.0.0.0/8, via: 10.0.0.1}]}",
            ),
            (
                "{nameservers: {addresses: [dns.example, 9.9.9.9], search: [a]}}",
                "{nameservers: {addresses: [9.9.9.9], search: [a]}}",
            ),
            ("{nameservers: {addresses: 9.9.9.9 odd}}", "{nameservers: {addresses: [9.9.9.9]}}"),
            (
                "{nameservers: {addresses: ['9.9.9.9#dns.example', '::9#a.example', '9.9.9.8:5353']}}",
                "{nameservers: {addresses: [9.9.9.9, '::9']}}",
            ),
            ("{set-name: x}", "{}"),
            (
                "{routes: [{to: default, table: 9}, {to: default, from: 10.0.0.5, scope: link}]}",
                "{routes: [{to: default, from: 10.0.0.5, scope: link}]}",
            ),
            ("{match: {macaddress: 5254.0012.3456}}", "{match: {macaddress: '52:54:00:12:34:56'}}"),
            ("{match: {macaddress: 52-54-00-12-34-56}}", "{match: {macaddress: '52:54:00:12:34:56'}}"),
            ("{gateway4: '::1', gateway6: '::1', mtu: -1, activation-mode: odd}", "{gateway6: '::1'}"),
            ("{dhcp4-overrides: {use-dns: 7, route-metric: 3, odd: 1}}", "{dhcp4-overrides: {route-metric: 3}}"),
        ] {
            let (text, warnings) = filtered(&format!("version: 2\nethernets: {{e: {given}}}"));
            let expected = yaml::parse("test", &format!("version: 2\nethernets: {{e: {kept}}}")).unwrap();
            assert_eq!(text, to_yaml(&expected), "{given}");
            assert_eq!(warnings.is_empty(), given.contains("macaddress"), "{given}: {warnings:?}");
            assert!(warnings.iter().all(|w| w.contains("ethernets.e.")), "{warnings:?}");
        }
    }

    #[test]
    fn each_renderer_gets_what_it_takes() {
        let key = "4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=";
        let wireguard = |own: &str| {
            format!(
                "tunnels: {{t: {{mode: wireguard, key: {own}, peers: [{{keys: {{public: {key}}}, allowed-ips: [10.0.0.0/8]}}]}}}}"
            )
        };
        let ethernet = |keys: &str| format!("ethernets: {{e: {{{keys}}}}}");
        let vti = |key: &str| format!("tunnels: {{t: {{mode: vti, local: 10.0.0.1, remote: 10.0.0.2{key}}}}}");
        let none = |section: &str| format!("{section}: {{}}");
        let wifi = |points: &str| format!("wifis: {{w: {{access-points: {{{points}}}}}}}");
        let manager = [
            (ethernet("ipv6-mtu: 1400, dhcp4: true"), ethernet("dhcp4: true")),
            (ethernet("match: {driver: a}, dhcp4: true"), none("ethernets")),
            (ethernet("match: {driver: a, name: 'e*'}"), ethernet("match: {name: 'e*'}")),
            (ethernet("addresses: [{10.0.0.1/8: {lifetime: 0}}]"), ethernet("addresses: [10.0.0.1/8]")),
            (ethernet("routes: [{to: 10.0.0.0/8, type: throw}]"), ethernet("routes: []")),
            (vti(", key: 5"), vti("")),
            (wireguard("/etc/key"), none("tunnels")),
        ];
        let networkd = [
            ("modems: {m: {apn: a}}".into(), none("modems")),
            (wifi("a: {mode: ap}, b: {mode: adhoc}"), wifi("b: {mode: adhoc}")),
            ("wifis: {w: {match: {name: 'w*'}, access-points: {a: {}}}}".into(), none("wifis")),
            (vti("").replace("vti", "isatap"), none("tunnels")),
        ];
        let of = |name: &str, text: &str| format!("version: 2\nrenderer: {name}\n{text}\n");
        for (name, other, cases) in
            [("NetworkManager", "networkd", &manager[..]), ("networkd", "NetworkManager", &networkd)]
        {
            for (given, kept) in cases {
                let (text, said) = filtered(&of(name, given));
                assert_eq!(text, to_yaml(&yaml::parse("test", &of(name, kept)).unwrap()));
                assert_eq!(said.len(), 1, "{given}: {said:?}");
                let (text, said) = filtered(&of(other, given));
                assert_eq!(text, to_yaml(&yaml::parse("test", &of(other, given)).unwrap()));
                assert_eq!(said, [""; 0], "{given}");
            }
        }
        let rule =
            |more: &str| of("NetworkManager", &ethernet(&format!("routing-policy: [{{from: 10.0.0.1/32{more}}}]")));
        assert_eq!(filtered(&rule("")).0, to_yaml(&yaml::parse("test", &rule(", priority: 32765")).unwrap()));
    }

    #[test]
    fn removes_renderers_that_netplan_lacks() {
        let of = |text: &str| filtered(&format!("version: 2\n{text}"));
        let (text, said) = of("renderer: networkmanager\nethernets: {renderer: NM, e: {renderer: odd}}\n");
        assert_eq!(text, to_yaml(&yaml::parse("test", "version: 2\nethernets: {e: {}}\n").unwrap()));
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(of("renderer: ~\n"), ("version: 2\n".into(), Vec::new()));
    }

    #[test]
    fn networkd_has_one_override_for_both_families() {
        for (given, kept, warnings) in [
            (
                "dhcp4-overrides: {route-metric: 100}",
                "dhcp4-overrides: {route-metric: 100}, dhcp6-overrides: {route-metric: 100}",
                1,
            ),
            (
                "dhcp4-overrides: {use-dns: true, use-ntp: false}, dhcp6-overrides: {use-dns: false, use-domains: true}",
                "dhcp4-overrides: {use-dns: true, use-ntp: false, use-domains: true}, \
                 dhcp6-overrides: {use-dns: true, use-domains: true, use-ntp: false}",
                3,
            ),
            ("dhcp4-overrides: {use-dns: true}", "dhcp4-overrides: {use-dns: true}", 0),
            (
                "dhcp4-overrides: {hostname: a}, renderer: NetworkManager",
                "dhcp4-overrides: {hostname: a}, renderer: NetworkManager",
                0,
            ),
        ] {
            let document = |overrides: &str| {
                let other = "f: {dhcp4: true, dhcp4-overrides: {use-dns: false}}";
                format!("version: 2\nethernets: {{e: {{dhcp4: true, dhcp6: true, {overrides}}}, {other}}}")
            };
            let (text, said) = filtered(&document(given));
            assert_eq!(text, to_yaml(&yaml::parse("test", &document(kept)).unwrap()), "{given}");
            assert_eq!(said.len(), warnings, "{said:?}");
        }
    }

    #[test]
    fn parameters_are_what_networkd_takes() {
        let text = "version: 2\nethernets: {e: {}, e2: {}}\nbonds: {b: {interfaces: [e], parameters: {mode: 4, lacp-rate: 1, ad-select: odd, \
                    mii-monitor-interval: 1s, up-delay: '[]', transmit-hash-policy: 1}}}\n\
                    bridges: {r: {interfaces: [e2], parameters: {forward-delay: odd, max-age: 20, path-cost: {e2: ~}}}}\n";
        let kept = "version: 2\nethernets: {e: {}, e2: {}}\nbonds: {b: {interfaces: [e], parameters: {mode: 802.3ad, lacp-rate: fast, \
                    mii-monitor-interval: 1s, transmit-hash-policy: layer3+4}}}\nbridges: {r: {interfaces: [e2], parameters: {max-age: 20, path-cost: {}}}}\n";
        let (text, warnings) = filtered(text);
        assert_eq!(text, to_yaml(&yaml::parse("test", kept).unwrap()));
        assert_eq!(warnings.len(), 4, "{warnings:?}");
    }

    #[test]
    fn peers_networks_get_their_prefix() {
        let peer = |networks: &str| {
            format!(
                "version: 2\ntunnels: {{g: {{mode: wireguard, key: /etc/wg.key, peers: [{{keys: {{public: \
                 4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=}}, allowed-ips: [{networks}]}}]}}}}\n"
            )
        };
        let (text, warnings) = filtered(&peer("10.0.0.1, '::1', 10.0.0.0/8, odd"));
        assert_eq!(text, to_yaml(&yaml::parse("test", &peer("10.0.0.1/32, '::1/128', 10.0.0.0/8")).unwrap()));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn only_secret_keys_of_wireguard_are_files() {
        let key = "4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=";
        let peer = |keys: String| format!("{{keys: {{{keys}}}, allowed-ips: [10.0.0.0/8]}}");
        let peers =
            [peer(format!("public: '{key}', shared: /etc/shared")), peer("public: /etc/public".into())].join(", ");
        let (text, said) = filtered(&format!(
            "version: 2\ntunnels: {{wg0: {{mode: wireguard, key: /etc/private, peers: [{peers}]}}}}\n"
        ));
        assert!(
            text.contains("/etc/private") && text.contains("/etc/shared") && !text.contains("/etc/public"),
            "{text}"
        );
        assert_eq!(said.len(), 1, "{said:?}");
    }

    #[test]
    fn channels_are_those_of_their_band() {
        let points = "{a: {band: 5GHz, channel: 36}, b: {band: 5GHz, channel: 4096}, c: {band: 2.4GHz, channel: 36}, d: {channel: 99}}";
        let (text, said) = filtered(&format!("version: 2\nwifis: {{w: {{access-points: {points}}}}}\n"));
        assert!(text.contains("36") && !text.contains("4096") && text.contains("99"), "{text}");
        assert_eq!(said.len(), 2, "{said:?}");
    }

    #[test]
    fn null_access_point_is_an_open_network() {
        let (text, _) = filtered("version: 2\nwifis: {w: {access-points: {x: ~}}}\n");
        assert_eq!(text, to_yaml(&yaml::parse("test", "version: 2\nwifis: {w: {access-points: {x: {}}}}\n").unwrap()));
    }

    #[test]
    fn leaves_out_devices_that_would_be_others() {
        let text = "version: 2\nroutes: []\nethernets: {a: {match: {macaddress: no-address}}, b: 7, c: ~, d: {match: {mac_address: '52:54:00:00:00:01'}}}\n\
                    vlans: {v: {id: 4095, link: c}, w: {id: 5, link: c}}\ntunnels: {t: {mode: odd}, x: {mode: vxlan, id: 0, local: 10.0.0.2, remote: 10.0.0.3}}\n\
                    bonds: {n: {interfaces: [c], parameters: {primary: d, mode: active-backup}}}\n";
        let kept = "version: 2\nethernets: {c: {}}\nvlans: {w: {id: 5, link: c}}\ntunnels: {}\n\
                    bonds: {n: {interfaces: [c], parameters: {mode: active-backup}}}\n";
        let (text, warnings) = filtered(text);
        assert_eq!(text, to_yaml(&yaml::parse("test", kept).unwrap()));
        assert_eq!(warnings.len(), 8, "{warnings:?}");
    }

    #[test]
    fn defines_devices_that_others_refer_to() {
        let text = "version: 2\nbonds: {b: {interfaces: [x, y, b, 'a b'], parameters: {mode: odd, primary: y}}}\n\
                    bridges: {r: {interfaces: [y, b], parameters: {path-cost: {y: 1, b: 2}}}}\nvlans: {v: {id: 1, link: z}, w: {id: 2, link: ü}}\n\
                    vrfs: {f: {table: 9, interfaces: [x, q], routes: [{to: 10.0.0.0/8, via: 10.0.0.1, table: 8}]}}\n\
                    tunnels: {t: {mode: ipip, local: 10.0.0.2, remote: 10.0.0.3, key: 5}, g: {mode: gre, local: 10.0.0.2, remote: 10.0.0.3, key: odd}}\n";
        let kept = "version: 2\n\
                    tunnels: {t: {mode: ipip, local: 10.0.0.2, remote: 10.0.0.3}, g: {mode: gre, local: 10.0.0.2, remote: 10.0.0.3}}\n\
                    ethernets: {q: {}, x: {}, y: {}, z: {}}\nbonds: {b: {interfaces: [x, y], parameters: {primary: y}}}\n\
                    bridges: {r: {interfaces: [b], parameters: {path-cost: {b: 2}}}}\nvlans: {v: {id: 1, link: z}}\n\
                    vrfs: {f: {table: 9, interfaces: [q]}}\n";
        let (text, warnings) = filtered(text);
        assert_eq!(text, to_yaml(&yaml::parse("test", kept).unwrap()));
        assert_eq!(warnings.len(), 10, "{warnings:?}");
    }

    #[test]
    fn keeps_what_netplan_takes() {
        let text = "version: 2\nrenderer: networkd\nnm-devices: {x: 1}\nethernets:\n  e:\n    match: {name: 'en*', driver: [a, b]}\n    set-name: e0\n\
                    \x20   dhcp4: on\n    link-local: [ipv4]\n    dhcp4-overrides: {use-domains: route}\n    ipv6-privacy: y\n\
                    wifis: {w: {access-points: {open: {}, x: {password: '12345678', band: 5GHz, channel: 36}}}}\n\
                    bridges: {b: {interfaces: [e], parameters: {stp: false, path-cost: {e: 5}}}}\n\
                    tunnels: {g: {mode: wireguard, key: /etc/wg.key, peers: [{keys: {public: 4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=}, allowed-ips: [0.0.0.0/0]}]}}\n";
        let (kept, warnings) = filtered(text);
        assert_eq!(kept, to_yaml(&yaml::parse("test", text).unwrap()));
        assert_eq!(warnings, [""; 0]);
    }
}
