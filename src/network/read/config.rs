//! cloud-init's network configuration, version 1 or 2, with or without `network:` above it ("Networking config Version 1",
//! "Networking config Version 2").

use super::format::{Format, Syntax};
use super::{v1, v2};
use crate::base::error::{Error, Result};
use crate::base::manual;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::network::mac::Macs;
use crate::network::model::Network;

pub static FORMAT: Format = Format {
    name: "yaml",
    title: manual("cloud-init's network configuration, version 1 or 2 (netplan)"),
    syntax: Syntax::Yaml,
    recognises,
    reader: read,
};

fn recognises(document: &Value) -> bool {
    document.as_map().map(inner).is_some_and(|m| m.contains_key("version") || m.contains_key("config") || v2::is(m))
}

/// Reads version 1 or 2. `macs` are the devices of this machine.
///
/// # Errors
/// The document is neither. A mistake inside it is reported and skipped.
pub fn read(document: &str, value: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
    let Some(map) = value.as_map().map(inner) else {
        return Err(Error::new(format!(
            "{document}: expected a mapping with version 1 or 2 and a network configuration, found {}",
            value.kind()
        )));
    };
    let version = map.get("version").and_then(Value::text);
    // 2.0 is the number 2 too.
    match (version.as_deref().map(|v| v.strip_suffix(".0").unwrap_or(v)), map.get("config")) {
        (None | Some("1"), Some(Value::List(list))) => Ok(v1::read(list, report)),
        (Some("2"), None) => Ok(v2::read(map, macs, report)),
        (None, None) if v2::is(map) => Ok(v2::read(map, macs, report)),
        _ => Err(Error::new(format!(
            "{document}: expected version: 1 with a list in config, or version: 2 with ethernets and the like"
        ))),
    }
}

/// Whether the document says that the network is not to be configured: `network: {config: disabled}`.
pub fn is_disabled(value: &Value) -> bool {
    let inner = value.get("network").unwrap_or(value);
    inner.as_str() == Some("disabled") || inner.get("config").and_then(Value::as_str) == Some("disabled")
}

/// The mapping without `network:` around it, and that of `{version: 2, config: {…}}`.
fn inner(map: &Map) -> &Map {
    let inner = map.get("network").and_then(Value::as_map).unwrap_or(map);
    inner.get("config").and_then(Value::as_map).unwrap_or(inner)
}
