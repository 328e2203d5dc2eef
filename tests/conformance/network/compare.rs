//! What a network stack's file means, as lines that can be compared.

use prepivot::document::{Value, json, yaml};
use prepivot::network::File;
use std::collections::{BTreeMap, BTreeSet};

/// The meaning of all files: path → sorted lines of meaning. Comments, order and spelling that no reader of the file sees are gone.
pub type Meaning = BTreeMap<String, Vec<String>>;

/// The meaning of what prepivot wrote.
pub fn ours(renderer: &str, files: &[File]) -> Meaning {
    let texts = files.iter().map(|f| (f.path.clone(), f.content.clone()));
    meaning(renderer, texts)
}

/// The meaning of files of `renderer`. Files that name devices (.link files, udev rules) are reported together, under
/// `names`.
pub fn meaning(renderer: &str, files: impl Iterator<Item = (String, String)>) -> Meaning {
    let mut out = Meaning::new();
    let mut names = BTreeSet::new();
    for (path, content) in files {
        if path.ends_with(".link") {
            names.extend(link_names(&content));
        } else if path.ends_with(".rules") || path.ends_with("netrules") {
            names.extend(rule_names(&content));
        } else {
            let mut lines = match renderer {
                "netplan" => netplan(&content),
                "networkd" => ini(&content),
                "network-manager" => keyfile(&content),
                "eni" => interfaces(&content),
                _ if path.contains("NetworkManager/") => keyfile(&content),
                _ => shell(&content),
            };
            lines.sort();
            // An empty file says nothing.
            if !lines.is_empty() {
                out.insert(path, lines);
            }
        }
    }
    out.insert("names".into(), names.into_iter().collect());
    out
}

/// `MAC → name`, with the driver where it matters.
fn link_names(content: &str) -> Option<String> {
    let value = |key: &str| content.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    let mac = value("MACAddress")?;
    Some(format!("{} {} {}", mac.to_ascii_lowercase(), value("Driver").unwrap_or("*"), value("Name")?))
}

fn rule_names(content: &str) -> Vec<String> {
    let quoted = |line: &str, key: &str| {
        let (_, rest) = line.split_once(&format!("{key}\""))?;
        rest.split_once('"').map(|(v, _)| v.to_owned())
    };
    let rule = |line: &str| {
        let driver = quoted(line, "DRIVERS==")?;
        let driver = if driver == "?*" { "*".to_owned() } else { driver };
        // Dashes as in the document, which cloud-init keeps, fit no device.
        let mac = quoted(line, "ATTR{address}==")?.to_ascii_lowercase().replace('-', ":");
        Some(format!("{mac} {driver} {}", quoted(line, ", NAME=")?))
    };
    content.lines().filter_map(rule).collect()
}

/// netplan: YAML; lists of name servers and domains without repetitions.
fn netplan(content: &str) -> Vec<String> {
    let mut value = yaml::parse("netplan", content).unwrap_or_else(|e| panic!("{e}\n{content}"));
    unique(&mut value, false);
    let mut out = Vec::new();
    leaves(&value, String::new(), &mut out);
    out
}

/// Each scalar and each empty collection with its path.
fn leaves(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Map(map) if !map.is_empty() => map.iter().for_each(|(k, v)| leaves(v, format!("{path}/{k}"), out)),
        Value::List(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{path}/{i}"), out));
        }
        leaf => out.push(format!("{path} = {}", json::to_string(leaf))),
    }
}

fn unique(value: &mut Value, inside: bool) {
    match value {
        Value::List(list) if inside => {
            let mut kept: Vec<Value> = Vec::new();
            for item in list.drain(..) {
                if !kept.contains(&item) {
                    kept.push(item);
                }
            }
            *list = kept;
        }
        Value::List(list) => list.iter_mut().for_each(|v| unique(v, false)),
        Value::Map(map) => {
            let keys: Vec<String> = map.keys().map(str::to_owned).collect();
            for key in keys {
                if let Some(v) = map.get_mut(&key) {
                    unique(v, inside || key == "nameservers");
                }
            }
        }
        _ => {}
    }
}

/// Sections with their lines; a section that is there twice is two. networkd's name servers and domains one by one.
/// systemd takes several words for yes and no.
fn systemd_value(line: &str) -> String {
    let word = |v: &str| match v {
        "true" | "True" => "yes".to_owned(),
        "false" | "False" => "no".to_owned(),
        other => other.to_owned(),
    };
    line.split_once('=').map_or_else(|| line.to_owned(), |(k, v)| format!("{k}={}", word(v)))
}

fn ini(content: &str) -> Vec<String> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in content.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        if line.starts_with('[') {
            sections.push((line.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut() {
            match line.split_once('=') {
                Some((key @ ("DNS" | "Domains"), values)) => {
                    lines.extend(values.split_whitespace().map(|v| format!("{key}={v}")));
                }
                _ => lines.push(systemd_value(line)),
            }
        }
    }
    let written = |(name, mut lines): (String, Vec<String>)| {
        lines.sort();
        lines.dedup();
        format!("{name} {}", lines.join(" | "))
    };
    sections.into_iter().map(written).collect()
}

/// GLib's key files: each line with its section, name servers and domains one by one. A section without a line says nothing:
/// its settings are there by the profile's type.
fn keyfile(content: &str) -> Vec<String> {
    let mut out = BTreeSet::new();
    let mut section = "";
    for line in content.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.split_once('=') {
            None => section = line,
            Some((key @ ("dns" | "dns-search"), values)) => {
                out.extend(values.split(';').filter(|v| !v.is_empty()).map(|v| format!("{section} {key}={v}")));
            }
            Some(_) => drop(out.insert(format!("{section} {line}"))),
        }
    }
    out.into_iter().collect()
}

/// Shell variables, and lines of any other kind (routes, resolv.conf) with single blanks.
fn shell(content: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in content.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        match line.split_once('=') {
            // Options of the bond in any order.
            Some((key @ ("BONDING_OPTS" | "BONDING_MODULE_OPTS"), value)) => {
                let options = value.trim_matches(['"', '\'']).split_whitespace();
                out.extend(options.map(|option| format!("{key}: {option}")));
            }
            Some((key, value)) if !key.contains(' ') => {
                out.push(format!("{key}={}", value.trim_matches(['"', '\''])));
            }
            _ => out.push(line.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
    out
}

/// interfaces(5): each option with its stanza, the second stanza of one head as `HEAD (2)`. What is after a blank line still
/// belongs to the stanza before.
fn interfaces(content: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut stanza = String::new();
    let mut heads: BTreeMap<String, usize> = BTreeMap::new();
    for line in content.lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if stanza.is_empty() || ["auto ", "iface ", "allow-", "mapping ", "source"].iter().any(|w| line.starts_with(w))
        {
            let count = heads.entry(line.clone()).or_default();
            *count += 1;
            stanza = if *count > 1 { format!("{line} ({count})") } else { line };
            out.push(stanza.clone());
        } else {
            out.push(format!("{stanza}: {line}"));
        }
    }
    out
}

/// The comparison's own test.
pub fn meaning_is_compared_not_spelling() {
    let of = |renderer, text: &str| meaning(renderer, [("f".to_owned(), text.to_owned())].into_iter());
    assert_eq!(of("networkd", "[A]\nDNS=1 2\nx=y\n\n[B]\n"), of("networkd", "# c\n[B]\n[A]\nx=y\nDNS=2\nDNS=1\n"));
    assert_ne!(of("networkd", "[A]\nx=1\n[A]\ny=2\n"), of("networkd", "[A]\nx=1\ny=2\n"));
    assert_eq!(of("network-manager", "[a]\n[b]\ndns=1;2;1;\nx=y\n"), of("network-manager", "[b]\nx=y\ndns=2;1;\n"));
    assert_ne!(of("network-manager", "[a]\nx=y\n[b]\n"), of("network-manager", "[a]\n[b]\nx=y\n"));
    assert_eq!(of("sysconfig", "A=\"b c\"\nD=e"), of("sysconfig", "D='e'\n# x\nA='b c'\n"));
    assert_ne!(of("sysconfig", "A=b"), of("sysconfig", "A=c"));
    assert_eq!(
        of("eni", "auto a\niface a inet dhcp\n  x  1\n  y 2\n"),
        of("eni", "iface a inet dhcp\n\ty 2\n\n x 1\nauto a")
    );
    assert_ne!(
        of("eni", "iface a inet dhcp\n x 1\niface b inet dhcp"),
        of("eni", "iface a inet dhcp\niface b inet dhcp\n x 1")
    );
    assert_eq!(of("netplan", "{a: 1, b: [1, 2]}"), of("netplan", "b: [1, 2]\na: 1\n"));
    assert_ne!(of("netplan", "{b: [1, 2]}"), of("netplan", "b: [2, 1]\n"));
}
