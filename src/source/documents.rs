//! Shared by the sources whose service serves a few documents at fixed URLs.

use super::keys::public_keys;
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::text::quoted;
use crate::document::{Bytes, Map, Value, json, wrong};
use crate::instance::{Instance, NetworkData, host_name};
use crate::link::http::{Client, Request, said};
use crate::machine::Nic;

/// The instance-id if the metadata has none (cloud-init's).
const DEFAULT_ID: &str = "iid-datasource";

/// The JSON mapping at the request's URL.
///
/// # Errors
/// No response, no document, or not a mapping.
pub fn mapping(client: &Client, request: &Request) -> Result<Map> {
    let name = said(request.method, request.url);
    as_mapping(&name, json::parse(&name, &needed(client, request)?)?)
}

/// The value as a mapping; `name` is the document's name in errors.
///
/// # Errors
/// It is not a mapping.
pub fn as_mapping(name: &str, value: Value) -> Result<Map> {
    match value {
        Value::Map(map) => Ok(map),
        other => Err(wrong(name, "a mapping", &other)),
    }
}

/// A required document.
///
/// # Errors
/// No response, or no document.
pub fn needed(client: &Client, request: &Request) -> Result<Vec<u8>> {
    let missing = || Error::new(format!("{}: there is no such document", said(request.method, request.url)));
    client.document(request)?.ok_or_else(missing)
}

/// The instance of cloud-init's source `name`, from metadata with cloud-init's usual keys.
pub fn instance(name: &str, metadata: Map) -> Instance {
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let platform = name.to_ascii_lowercase();
    Instance {
        source: name.into(),
        class: format!("DataSource{name}"),
        cloud_name: cloud_name(&metadata, &platform),
        launch_index: launch_index(&metadata),
        platform,
        subplatform: "unknown".into(),
        instance_id: text("instance-id").unwrap_or_else(|| DEFAULT_ID.into()),
        local_hostname: text("local-hostname").map(|name| host_name(&name)),
        availability_zone: availability_zone(&metadata),
        region: text("region"),
        public_keys: public_keys(metadata.get("public-keys")),
        metadata: Value::Map(metadata),
        ..Instance::default()
    }
}

/// The name of the cloud according to the metadata, in lower case; else `default` (cloud-init's
/// `METADATA_CLOUD_NAME_KEY`).
pub fn cloud_name(metadata: &Map, default: &str) -> String {
    let own = metadata.get("cloud-name").and_then(Value::as_str).filter(|name| !name.is_empty());
    own.unwrap_or(default).to_ascii_lowercase()
}

/// The zone, in any of the keys that cloud-init's sources use.
pub fn availability_zone(metadata: &Map) -> Option<String> {
    let places = [metadata.get("availability-zone"), metadata.get("availability_zone")];
    let placement = metadata.get("placement").and_then(|p| p.get("availability-zone"));
    places.into_iter().chain([placement]).flatten().filter_map(Value::text).find(|zone| !zone.is_empty())
}

/// The index among machines that were launched together, given as a number or its text.
pub fn launch_index(metadata: &Map) -> Option<i64> {
    metadata.get("launch-index").and_then(Value::text)?.trim().parse().ok()
}

/// The values of `from` under other names: each pair has the name there and cloud-init's. A missing value is
/// null.
pub fn renamed(from: &Map, keys: &[(&str, &str)]) -> Map {
    keys.iter().map(|(theirs, ours)| (*ours, from.get(theirs).cloned().unwrap_or_default())).collect()
}

/// The user-data of a document. None if it is empty.
pub fn user_data(value: Option<&Value>) -> Option<Bytes> {
    value.and_then(Value::bytes).filter(|bytes| !bytes.is_empty()).map(Bytes::from)
}

/// Decodes user-data that is base64 as a whole: it was encoded twice. White space is not base64 (cloud-init's
/// `util.maybe_b64decode`).
pub fn decoded(bytes: Vec<u8>) -> Vec<u8> {
    inner(base64::decode(&bytes)).unwrap_or(bytes)
}

/// Decodes base64 in one line or several.
pub fn decoded_lines(bytes: Vec<u8>) -> Vec<u8> {
    inner(base64::decode_lines(&bytes)).unwrap_or(bytes)
}

fn inner(decoded: Option<Vec<u8>>) -> Option<Vec<u8>> {
    decoded.filter(|inner| !inner.is_empty())
}

/// Sets the instance's network configuration. If it is an error, that is reported and the fallback is used.
pub fn set_network(instance: &mut Instance, config: Result<Value>) {
    match config {
        Ok(config) => instance.network = Some(NetworkData::Cloud(config)),
        Err(e) => instance.problems.warn(format!("{e}; the service's network configuration is not used")),
    }
}

/// The name of this machine's interface with this MAC address.
///
/// # Errors
/// No interface has this address.
pub fn nic_name(nics: &[Nic], mac: Option<&Value>) -> Result<String> {
    let mac = mac.and_then(Value::as_str).unwrap_or_default();
    let nic = nics.iter().filter(|n| !mac.is_empty() && n.mac.eq_ignore_ascii_case(mac) && !n.has_master);
    let nic = nic.min_by_key(|n| !n.physical);
    nic.map(|n| n.name.clone())
        .ok_or_else(|| Error::new(format!("the machine has no network interface with the MAC address {}", quoted(mac))))
}

/// A network configuration of version 1.
pub fn version_1(config: Vec<Value>) -> Value {
    record(vec![("version", 1.into()), ("config", config.into())])
}

/// A physical interface in version 1, to which keys may be added.
pub fn physical(name: &str, mac: Option<&Value>, subnets: Vec<Value>) -> Map {
    let mac = mac.cloned().unwrap_or_default();
    [("type", "physical".into()), ("name", name.into()), ("mac_address", mac), ("subnets", subnets.into())]
        .into_iter()
        .collect::<Map>()
}

/// A mapping of those pairs that have a value.
pub fn record(pairs: Vec<(&str, Value)>) -> Value {
    Value::Map(pairs.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

/// The items of a list; empty if it is something else.
pub fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_list).unwrap_or_default()
}

/// udev rules by which the network devices are asked for whose `key` matches `pattern`, and no others
/// ([`super::Hotplug::rules`]).
pub fn hotplug_of(key: &str, pattern: &str) -> String {
    format!("{key}==\"{pattern}\", GOTO=\"cloudinit_hook\"\nGOTO=\"cloudinit_end\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_once_too_often() {
        assert_eq!(decoded(b"I2Nsb3VkLWNvbmZpZwo=".to_vec()), b"#cloud-config\n");
        assert_eq!(decoded_lines(b"I2Nsb3VkLWNv\r\nbmZpZwo=\n".to_vec()), b"#cloud-config\n");
        for text in [&b"#cloud-config\n"[..], b"test data"] {
            assert_eq!(decoded(text.to_vec()), text);
        }
        assert_eq!(decoded_lines(b"a b\nc".to_vec()), b"a b\nc");
    }

    #[test]
    fn the_usual_keys() {
        let text = br#"{"instance-id": 7, "local-hostname": "10.0.0.1", "placement": {"availability-zone": "z"}, "region": "r"}"#;
        let got = instance("NWCS", as_mapping("t", json::parse("t", text).unwrap()).unwrap());
        assert_eq!((got.instance_id.as_str(), got.local_hostname.as_deref()), ("7", Some("ip-10-0-0-1")));
        assert_eq!((got.availability_zone.as_deref(), got.cloud_name.as_str()), (Some("z"), "nwcs"));
        assert_eq!(instance("NWCS", Map::new()).instance_id, "iid-datasource");
        for (cloud, index, expected) in
            [("'Own'", "'2'", ("own", Some(2))), ("''", "3", ("lxd", Some(3))), ("[a]", "x", ("lxd", None))]
        {
            let text = format!("{{cloud-name: {cloud}, launch-index: {index}}}");
            let got = instance("LXD", as_mapping("t", crate::document::yaml::parse("t", &text).unwrap()).unwrap());
            assert_eq!((got.cloud_name.as_str(), got.launch_index), expected);
        }
    }

    #[test]
    fn an_interface_by_its_address() {
        let nic = |name: &str, physical| Nic {
            name: name.into(),
            mac: "02:00:00:00:00:0a".into(),
            physical,
            ..Nic::default()
        };
        let nics = [nic("br0", false), nic("eth0", true), Nic::default()];
        assert_eq!(nic_name(&nics, Some(&"02:00:00:00:00:0A".into())).unwrap(), "eth0");
        assert!(nic_name(&nics, Some(&"02:00:00:00:00:0b".into())).is_err() && nic_name(&nics, None).is_err());
    }
}
