//! The instance of the last boot, from what cloud-init leaves of it (stages.py, `_store_rawdata`, `_write_network_config_json`; its
//! pickle is not read).

use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::state::{self, CLOUD_DIR, RUN_DIR};
use crate::instance::{Instance, NetworkData};
use crate::root::Root;
use crate::source;

/// Metadata by the names that cloud-init and its sources use for the instance's name.
const HOST_NAMES: [&str; 3] = ["local-hostname", "local_hostname", "hostname"];
/// The one that NoCloud uses.
const OF_NO_CLOUD: &str = HOST_NAMES[0];

/// The instance: prepivot's own cache, or else what cloud-init left in its folder. What is missing is reported.
///
/// # Errors
/// No instance is cached.
pub fn instance(root: &Root, report: &Problems) -> Result<Instance> {
    if let Some(instance) = state::cached(root) {
        return Ok(instance);
    }
    let Some(instance_id) = state::last_id(root) else {
        return Err(Error::new(format!(
            "{CLOUD_DIR}/data/instance-id: expected the id of an instance that cloud-init has provisioned"
        )));
    };
    let mut instance = Instance { instance_id, ..Instance::default() };
    if !root.is_dir(&state::folder(&instance)) {
        return Err(Error::new(format!("{}: expected the folder of the last instance", state::folder(&instance))));
    }
    let raw = |name: &str| {
        let path = format!("{}/{name}", state::folder(&instance));
        report.keep(root.read(&path)).flatten().unwrap_or_default()
    };
    let (user_data, vendor_data, vendor_data2, network) =
        (raw("user-data.txt"), raw("vendor-data.txt"), raw("vendor-data2.txt"), raw("network-config.json"));
    instance.user_data = Some(user_data.into());
    instance.vendor_data = vendor(vendor_data);
    instance.vendor_data2 = vendor(vendor_data2);
    if !network.is_empty() {
        instance.network = report.keep(json::parse("network-config.json", &network)).map(NetworkData::Cloud);
    }
    let class = root.text(&state::class_file(&instance));
    let (class, description) = class.trim().split_once(": ").unwrap_or_default();
    class.clone_into(&mut instance.class);
    description.strip_prefix(class).unwrap_or_default().trim().clone_into(&mut instance.described);
    class.strip_prefix("DataSource").unwrap_or(class).clone_into(&mut instance.source);
    metadata(root, &mut instance, report);
    Ok(instance)
}

/// Vendor-data as it is stored: a text, or a list of parts as JSON.
fn vendor(bytes: Vec<u8>) -> Value {
    if bytes.starts_with(b"[")
        && let Ok(list) = json::parse("vendor-data.txt", &bytes)
    {
        return list;
    }
    Value::of_bytes(bytes)
}

/// Adds the metadata: from this boot's instance-data, which an image lacks, or else what the other files tell.
fn metadata(root: &Root, instance: &mut Instance, report: &Problems) {
    let read = |name: &str| {
        let bytes = root.read(&format!("{RUN_DIR}/{name}")).ok()??;
        json::parse(name, &bytes).ok().filter(|v| v.at(&["v1", "instance_id"]).is_some())
    };
    let data = read("instance-data-sensitive.json").or_else(|| {
        let public = read("instance-data.json")?;
        report.warn(format_args!(
            "{RUN_DIR}/instance-data-sensitive.json cannot be read: secrets of the metadata are unknown"
        ));
        Some(public)
    });
    if let Some(data) = data {
        let text = |key: &str| data.at(&["v1", key]).and_then(Value::as_str).map(str::to_owned);
        instance.ds = data.get("ds").and_then(Value::as_map).cloned().unwrap_or_default();
        instance.metadata = instance.ds.get("meta_data").cloned().unwrap_or_default();
        instance.platform = text("platform").unwrap_or_default();
        instance.cloud_name = text("cloud_name").unwrap_or_default();
        instance.subplatform = text("subplatform").unwrap_or_default();
        instance.region = text("region");
        instance.availability_zone = text("availability_zone");
        instance.public_keys = source::public_keys(data.at(&["v1", "public_ssh_keys"]));
        let is_used = |key: &&&str| **key == OF_NO_CLOUD || instance.source != "NoCloud";
        let named = HOST_NAMES.iter().filter(is_used).find_map(|key| instance.metadata.get(key)?.text());
        instance.local_hostname = named.or_else(|| text("local_hostname"));
        return;
    }
    // Of cloud-init's module set_hostname.
    let path = format!("{CLOUD_DIR}/data/set-hostname");
    let names = json::parse(&path, root.text(&path).as_bytes()).unwrap_or_default();
    let name = ["fqdn", "hostname"].iter().find_map(|key| names.get(key)?.as_str().filter(|name| !name.is_empty()));
    instance.local_hostname = name.map(str::to_owned);
    let seed = ["meta-data", "meta-data.yaml"].iter().find_map(|name| {
        ["nocloud", "nocloud-net"].iter().find_map(|folder| {
            let text = root.text(&format!("{CLOUD_DIR}/seed/{folder}/{name}"));
            crate::document::yaml::parse(name, &text).ok().filter(|v| v.as_map().is_some())
        })
    });
    match seed.filter(|_| instance.source == "NoCloud") {
        Some(seed) => {
            instance.public_keys = source::public_keys(seed.get("public-keys"));
            instance.local_hostname = seed.get(OF_NO_CLOUD).and_then(Value::text).or(instance.local_hostname.take());
            instance.metadata = seed;
        }
        None => {
            instance.metadata = Value::Map(Map::new());
            report.warn("the metadata is unknown without /run/cloud-init/instance-data.json: keys that come from it are not compared");
        }
    }
}
