//! Compares what a source found with what cloud-init's source says of itself.

use super::case::Case;
use super::service::same_xml;
use prepivot::base::base64;
use prepivot::base::problem::Problems;
use prepivot::document::{Bytes, Map, Value, json, yaml};
use prepivot::instance::{Instance, NetworkData};
use prepivot::network::read::{eni, openstack};
use prepivot::network::{Input, Macs, Network};
use prepivot::source;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An error is as good as "not found", where nothing is expected.
pub fn of_error(expected: &Value, error: &str) -> Vec<String> {
    if is_found(expected) { vec![format!("expected an instance, got an error: {error}")] } else { Vec::new() }
}

fn is_found(expected: &Value) -> bool {
    expected.get("get_data").and_then(Value::as_bool) == Some(true)
}

/// What differs, a line each.
pub fn differences(case: &Case, expected: &Value, found: Option<&Instance>, dir: &Path) -> Vec<String> {
    let instance = match (is_found(expected), found) {
        (true, Some(instance)) => instance,
        (false, None) => return Vec::new(),
        (true, None) => return vec!["get_data: expected an instance, found none".into()],
        (false, Some(i)) => return vec![format!("get_data: expected none, found the instance {}", i.instance_id)],
    };
    let mut wrong = Vec::new();
    let mut compare = |key: &str, ours: Option<String>| {
        let theirs = expected.get(key).and_then(Value::text);
        if theirs != ours {
            wrong.push(format!("{key}: expected {theirs:?}, found {ours:?}"));
        }
    };
    compare("instance_id", Some(instance.instance_id.clone()));
    let host = host_name(expected, instance);
    compare("hostname", host.as_ref().map(|h| h.split('.').next().unwrap_or_default().to_owned()));
    compare("fqdn", host);
    compare("availability_zone", instance.availability_zone.clone());
    compare("region", instance.region.clone());
    compare("platform", Some(instance.platform.clone()));
    compare("cloud_name", Some(instance.cloud_name.clone()));
    compare("launch_index", instance.launch_index.map(|i| i.to_string()));
    // Where it was read from is a path of this test's folder, which is below /tmp also for a device.
    let place =
        instance.subplatform.replace(&dir.display().to_string(), "").replace("seed-dir (/dev/", "config-disk (/dev/");
    compare("subplatform", Some(place));
    let source = source::named(&case.datasource).expect("a source");
    let ours: BTreeSet<&str> = source.updates.iter().map(|update| update.name()).collect();
    let theirs = expected.get("update_events").and_then(Value::as_list).unwrap_or_default();
    let theirs: BTreeSet<&str> = theirs.iter().filter_map(Value::as_str).collect();
    // A network without VPC, which AWS had until 2022, is read on each boot.
    if ours != theirs && !theirs.is_superset(&["boot-legacy", "hotplug"].into()) {
        wrong.push(format!("update_events: expected {theirs:?}, found {ours:?}"));
    }
    let keys = |list: Vec<String>| list.iter().map(|k| k.trim().to_owned()).collect::<BTreeSet<_>>();
    let theirs = expected.get("public_keys").and_then(Value::as_list).unwrap_or_default();
    let theirs = keys(theirs.iter().filter_map(Value::text).collect());
    let ours = keys(instance.public_keys.clone());
    if ours != theirs {
        wrong.push(format!("public_keys: expected {theirs:?}, found {ours:?}"));
    }
    let user_data = instance.user_data.as_ref().map(|d| d.to_vec()).unwrap_or_default();
    let theirs = bytes(expected.get("user_data"));
    if user_data != theirs && !same_yaml(&theirs, &user_data) {
        wrong.push(format!(
            "user_data: expected {:?}, found {:?}",
            expected.get("user_data"),
            String::from_utf8_lossy(&user_data)
        ));
    }
    let empty = |v: &Value| v.is_null() || v.as_str() == Some("");
    let theirs = expected.get("vendor_data").unwrap_or(&Value::Null);
    // A document that several programs share has ours under one key.
    let ours = match &instance.vendor_data {
        Value::Map(map) => map.get("cloud-init").unwrap_or(&Value::Null),
        other => other,
    };
    if theirs != ours && !(empty(theirs) && empty(ours)) {
        wrong.push(format!("vendor_data: expected {theirs:?}, found {ours:?}"));
    }
    for (key, ours) in [("cfg", &instance.config), ("metadata", &instance.metadata)] {
        let empty = Value::Map(Map::new());
        let theirs = expected.get(key).filter(|v| !v.is_null()).unwrap_or(&empty);
        let ours = if ours.is_null() { &empty } else { ours };
        wrong.extend(values(key, theirs, ours));
    }
    wrong.extend(network(case, expected, instance));
    for (path, file) in expected.get("files").and_then(Value::as_map).into_iter().flat_map(|m| m.iter()) {
        let theirs = bytes(file.get("content"));
        let in_list =
            |list: &[(String, Bytes)]| list.iter().find(|(p, _)| p == path).map(|(_, content)| content.to_vec());
        let is_private = file.get("mode").and_then(Value::as_str) == Some("0o600");
        let ours = in_list(&instance.private_files).or_else(|| in_list(&instance.files).filter(|_| !is_private));
        let ours = ours.or_else(|| written(dir, path, file.get("mode")));
        let is_same = |ours: &Vec<u8>| *ours == theirs || same_xml(&theirs, ours);
        if !ours.as_ref().is_some_and(is_same) {
            wrong.push(format!("{path}: expected {:?}, found {ours:?}", String::from_utf8_lossy(&theirs)));
        }
    }
    for path in expected.get("removed").and_then(Value::as_list).into_iter().flatten().filter_map(Value::as_str) {
        let is_there = fs::symlink_metadata(dir.join(path.trim_start_matches('/'))).is_ok();
        let is_stale = |stale: &String| Path::new(path).starts_with(stale);
        if is_there && !instance.stale_files.iter().any(is_stale) {
            wrong.push(format!("{path}: expected to be removed"));
        }
    }
    wrong
}

/// What is expected, without the network of a machine whose data has none: cloud-init's VMware source gives it the default, which
/// every machine has here.
pub fn without_fallback(case: &Case, expected: &Value) -> Value {
    let config = expected.at(&["metadata", "network", "config"]);
    let devices = config.and_then(|c| c.get("ethernets")).and_then(Value::as_map);
    let is_default = |device: &Value| ["dhcp4", "dhcp6"].iter().all(|key| device.get(key).is_some_and(Value::is_true));
    let all_default = devices.is_some_and(|d| !d.is_empty() && d.iter().all(|(_, device)| is_default(device)));
    let (config_is_null, mut expected) = (config.is_some_and(Value::is_null), expected.clone());
    if let Value::Map(map) = &mut expected
        && case.datasource == "VMware"
        && (all_default || config_is_null)
    {
        map.remove("network_config");
        if let Some(Value::Map(metadata)) = map.get_mut("metadata") {
            metadata.remove("network");
        }
    }
    expected
}

/// Whether two documents that a source merged have the same comments at the start, and say the same.
fn same_yaml(theirs: &[u8], ours: &[u8]) -> bool {
    let read = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let comments: Vec<String> = text.lines().take_while(|l| l.starts_with('#')).map(str::to_owned).collect();
        Some((comments, yaml::parse("user-data", &text).ok()?))
    };
    theirs.starts_with(b"#cloud-config\n# ") && read(theirs).is_some() && read(theirs) == read(ours)
}

/// The name that the source gives, as it becomes the machine's. cloud-init says localhost of a machine without one.
fn host_name(expected: &Value, instance: &Instance) -> Option<String> {
    let theirs = expected.get("hostname").and_then(Value::as_str);
    let given = instance.local_hostname.clone().filter(|name| !name.is_empty());
    let default = || theirs.filter(|name| *name == "localhost").map(str::to_owned);
    match given {
        Some(name) if name.parse::<Ipv4Addr>().is_ok() => Some(format!("ip-{}", name.replace('.', "-"))),
        given => given.or_else(default),
    }
}

/// A file that the source wrote, with the mode that is expected, or where a link leads: `-> TARGET`.
fn written(dir: &Path, path: &str, mode: Option<&Value>) -> Option<Vec<u8>> {
    let path = dir.join(path.trim_start_matches('/'));
    if let Ok(target) = fs::read_link(&path) {
        return Some(format!("-> {}", target.display()).into_bytes());
    }
    let ours = format!("0o{:o}", fs::metadata(&path).ok()?.permissions().mode() & 0o7777);
    fs::read(&path).ok().filter(|_| mode.and_then(Value::as_str).is_none_or(|theirs| theirs == ours))
}

/// Where one mapping does not say what another says. A `@SHA512CRYPT(…)@` is any hash; further keys are ours to have.
fn values(key: &str, theirs: &Value, ours: &Value) -> Vec<String> {
    match (theirs, ours) {
        (Value::Map(theirs), Value::Map(ours)) => {
            let of = |(name, value): (&str, &Value)| {
                values(&format!("{key}.{name}"), value, ours.get(name).unwrap_or(&Value::Null))
            };
            theirs.iter().flat_map(of).collect()
        }
        (Value::String(theirs), Value::String(ours))
            if theirs.starts_with("@SHA512CRYPT(") && ours.starts_with("$6$") =>
        {
            Vec::new()
        }
        // Bytes that are base64 in the source's own document.
        (Value::Map(bytes), Value::String(_)) if bytes.get("b64") == Some(ours) => Vec::new(),
        _ if theirs == ours => Vec::new(),
        _ => vec![format!("{key}: expected {theirs:?}, found {ours:?}")],
    }
}

/// Text, `{b64: …}`, or nothing.
fn bytes(value: Option<&Value>) -> Vec<u8> {
    match value {
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(value) => {
            let encoded = value.get("b64").and_then(Value::as_str).unwrap_or_default();
            base64::decode(encoded.as_bytes()).expect("base64")
        }
        None => Vec::new(),
    }
}

/// Both network configurations are read to the model, and compared there.
fn network(case: &Case, expected: &Value, instance: &Instance) -> Option<String> {
    let macs = Macs::from_iter(case.nics.iter().map(|nic| (nic.mac.as_str(), nic.name.as_str())));
    let read = |input: Input| {
        let mut network = input.read("network_config", &macs, &Problems::new()).unwrap_or_default();
        // Their order has no meaning.
        network.interfaces.sort_by(|a, b| a.id.cmp(&b.id));
        network
    };
    // A mapping with an error is no configuration.
    let theirs = expected.get("network_config").filter(|v| !v.is_null() && v.get("error").is_none());
    // cloud-init's Oracle gives a configuration without interfaces where it cannot read the VNICs, which leaves the machine without
    // a network. prepivot then gives none, and the fallback applies.
    let configures = |v: &&Value| v.get("config").and_then(Value::as_list).is_none_or(|list| !list.is_empty());
    let theirs = theirs.filter(|v| instance.network.is_some() || configures(v)).map(|v| read(Input::config(v.clone())));
    let ours = instance.network.as_ref().map(|data| {
        read(match data {
            NetworkData::Cloud(value) => Input::config(value.clone()),
            NetworkData::Openstack(value) => Input { format: &openstack::FORMAT, document: value.clone() },
            NetworkData::Eni(text) => Input { format: &eni::FORMAT, document: Value::from(text.as_str()) },
        })
    });
    if theirs == ours {
        return None;
    }
    let shown = |network: Option<&Network>| network.map(|n| format!("{n:?}"));
    let given = expected.get("network_config").map(json::to_string);
    Some(format!("network_config: expected {:?} ({given:?}), found {:?}", shown(theirs.as_ref()), shown(ours.as_ref())))
}
