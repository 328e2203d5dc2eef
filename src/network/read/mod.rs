//! Formats that are read: one file each.

pub mod azure;
pub mod eni;
pub mod fields;
pub mod imc;
pub mod klibc;
pub mod openstack;
pub mod v1;
pub mod v2;

use super::model::{Interface, Kind, Macs, Network};
use crate::base::error::{Error, Result};
use crate::document::{Map, Value};

/// The highest VLAN id.
pub const MAX_VLAN: u16 = 4094;

/// The most links, networks and services that are taken.
const MAX_ENTRIES: usize = 4096;

/// Reads version 1 or 2, with or without `network:` above it. `macs` says which of this machine's devices has which MAC.
///
/// Fails where it is neither; a mistake within is reported and left out.
pub fn config(document: &str, value: &Value, macs: &Macs) -> Result<Network> {
    let Some(map) = value.as_map() else {
        return Err(Error::new(format!(
            "{document}: expected a mapping with version 1 or 2 and a network configuration, found {}",
            value.kind()
        )));
    };
    let map = unwrapped(map);
    match (map.get("version").and_then(Value::text).as_deref(), map.get("config")) {
        (None | Some("1"), Some(Value::List(list))) => Ok(v1::read(list)),
        (Some("1"), None) => Ok(Network::default()),
        (Some("2") | None, None) if is_v2(map) => Ok(v2::read(map, macs)),
        (Some("2"), None) => Ok(v2::read(map, macs)),
        _ => Err(Error::new(format!(
            "{document}: expected version: 1 with a list in config, or version: 2 with ethernets and the like"
        ))),
    }
}

/// Whether `network: {config: disabled}` says that the network is not to be configured.
pub fn is_disabled(value: &Value) -> bool {
    let inner = value.get("network").unwrap_or(value);
    inner.as_str() == Some("disabled") || inner.get("config").and_then(Value::as_str) == Some("disabled")
}

/// Takes `network:` off, and a version 2 mapping out of `{version: 2, config: {…}}`.
fn unwrapped(map: &Map) -> &Map {
    let inner = map.get("network").and_then(Value::as_map).unwrap_or(map);
    inner.get("config").and_then(Value::as_map).unwrap_or(inner)
}

/// The mappings of a list in a document; none where there is no such list.
fn entries<'a>(value: &'a Value, key: &str) -> Vec<&'a Map> {
    let list = value.get(key).and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(Value::as_map).take(MAX_ENTRIES).collect()
}

fn is_v2(map: &Map) -> bool {
    map.keys()
        .any(|k| ["ethernets", "bonds", "bridges", "vlans", "wifis", "tunnels", "vrfs", "dummy-devices"].contains(&k))
}

/// Makes the model whole: devices that others are made of exist, no name is there twice, no device is made of itself.
fn complete(network: &mut Network) {
    let mut names = std::collections::HashSet::new();
    network.interfaces.retain(|i| {
        let new = names.insert(i.name.clone());
        if !new {
            log::warn!("network configuration: {} is configured twice; the first one counts", i.name);
        }
        new
    });
    let mut missing = Vec::new();
    for interface in &mut network.interfaces {
        let own = interface.name.clone();
        match &mut interface.kind {
            Kind::Bond { interfaces, .. } | Kind::Bridge { interfaces, .. } | Kind::Vrf { interfaces, .. } => {
                interfaces.retain(|part| *part != own);
                missing.extend(interfaces.iter().cloned());
            }
            Kind::Vlan { link, .. } if *link != own => missing.push(link.clone()),
            _ => {}
        }
    }
    for name in missing {
        if names.insert(name.clone()) {
            network.interfaces.push(Interface { id: name.clone(), name, implicit: true, ..Interface::default() });
        }
    }
}
