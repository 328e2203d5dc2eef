//! The instance: identity, metadata, the cache on disk, semaphores, status.

pub mod boot;
mod cache;
pub mod instance_data;
pub mod report;
pub mod state;
pub mod status;

use crate::document::{Bytes, Map, Value};
use serde::Serialize;

/// The longest folder name that is made of an instance-id, in bytes: a file name may have 255.
const MAX_FOLDER: usize = 200;

/// How often a module runs (cloud-init's frequencies).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frequency {
    /// On every boot.
    Always,
    /// Once for each instance-id.
    Instance,
    /// Once for this disk.
    Once,
}

impl Frequency {
    /// The frequency that a document names: `always`, `once-per-instance`, `instance`, `once`, …
    pub fn named(name: &str) -> Option<Frequency> {
        match name {
            "always" => Some(Frequency::Always),
            "once-per-instance" | "instance" => Some(Frequency::Instance),
            "once" => Some(Frequency::Once),
            _ => None,
        }
    }

    /// cloud-init's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Frequency::Always => "always",
            Frequency::Instance => "once-per-instance",
            Frequency::Once => "once",
        }
    }
}

/// Network configuration as a datasource gives it, not parsed yet.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkData {
    /// OpenStack's network_data.json.
    Openstack(Value),
    /// cloud-init's network configuration, version 1 or 2, with or without the `network:` key around it.
    Cloud(Value),
    /// The text of /etc/network/interfaces.
    Eni(String),
}

/// Which stage applies the instance (`dsmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DsMode {
    /// The data is complete without a network.
    Local,
    #[default]
    Net,
    /// The data is applied and the search goes on for a source that claims the machine.
    Pass,
    Disabled,
}

impl DsMode {
    const ALL: [DsMode; 4] = [DsMode::Local, DsMode::Net, DsMode::Pass, DsMode::Disabled];

    /// The mode that cloud-init calls so.
    pub fn named(name: &str) -> Option<DsMode> {
        DsMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// cloud-init's name for it.
    pub fn name(self) -> &'static str {
        match self {
            DsMode::Local => "local",
            DsMode::Net => "net",
            DsMode::Pass => "pass",
            DsMode::Disabled => "disabled",
        }
    }
}

/// One instance as its datasource describes it: plain data, the same whether it came from a drive, HTTP or the cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Instance {
    /// The datasource's name: `ConfigDrive`, `NoCloud`, `OpenStack`, `Ec2`, `None`.
    pub source: String,
    /// The class name that cloud-init gives it in status.json, without the package: `DataSourceConfigDrive`.
    pub class: String,
    /// `openstack`, `nocloud`, `ec2`, … as in instance-data.
    pub platform: String,
    /// `openstack`, `aws`, `nocloud`, …
    pub cloud_name: String,
    /// Where it was read: `config-disk (/dev/sr0)`, `metadata (http://169.254.169.254)`.
    pub subplatform: String,
    /// What cloud-init adds to the class where it names the datasource: `[seed=/dev/vda]`. Empty: nothing.
    pub described: String,
    pub instance_id: String,
    /// Whether a service on the network gave it, and not a drive or a folder.
    pub from_network: bool,
    /// The machine's UUID when this was read, to recognise the instance without reading it again.
    pub machine_uuid: Option<String>,
    /// meta_data.json, or the meta-data file, as a mapping; what the later keys hold is in it too.
    pub metadata: Value,
    /// What else the source has, for `ds` in instance-data beside `meta_data`.
    pub ds: Map,
    /// The EC2 tree beside it, where there is one.
    pub ec2_metadata: Value,
    pub user_data: Option<Bytes>,
    /// As the source gives it: a string, a list of parts, or a mapping with the key `cloud-init`.
    pub vendor_data: Value,
    pub vendor_data2: Value,
    pub network: Option<NetworkData>,
    pub dsmode: DsMode,
    /// The name that the source gives the machine; may be fully qualified.
    pub local_hostname: Option<String>,
    pub availability_zone: Option<String>,
    pub region: Option<String>,
    pub launch_index: Option<i64>,
    /// SSH public keys of the source, in its order, without repeats.
    pub public_keys: Vec<String>,
    /// Configuration of the source's own, below vendor-data (`get_config_obj`).
    pub config: Value,
    /// Files of the source to write once: path and content (a config drive's `files`).
    pub files: Vec<(String, Bytes)>,
    /// Files for other agents of the platform: path and content. Written for root alone, in folders for root alone.
    pub private_files: Vec<(String, Bytes)>,
    /// Files and folders of the image that this source's data replaces: removed once.
    pub stale_files: Vec<String>,
    pub random_seed: Option<Bytes>,
    /// Devices by the source's names (`ephemeral0`, `swap`, …).
    pub device_names: Map,
    /// Parts that could not be used, one line each. Never a secret.
    pub problems: Vec<String>,
}

/// The document for cloud-init in vendor-data: the `cloud-init` entry of a mapping, which others may share, else all of it.
/// Null where a mapping has no such entry (cloud-init's `convert_vendordata`).
pub fn vendor_document(data: &Value) -> &Value {
    match data {
        Value::Map(map) => map.get("cloud-init").unwrap_or(&Value::Null),
        other => other,
    }
}

/// The host name that a source's text means: an IPv4 address is none, and becomes `ip-10-0-0-1` (cloud-init 26.2,
/// `DataSource.get_hostname`).
pub fn host_name(text: &str) -> String {
    let name = text.trim();
    match name.parse::<std::net::Ipv4Addr>() {
        Ok(_) => format!("ip-{}", name.replace('.', "-")),
        Err(_) => name.to_owned(),
    }
}

impl Instance {
    /// The instance-id as a folder's name (slashes become `_`, as cloud-init does; control characters too). Never empty, `.`
    /// or `..`, and never longer than a name may be: the end of a longer one is its digest.
    pub fn folder(&self) -> String {
        match self.instance_id.replace(|c: char| c == '/' || c.is_control(), "_") {
            id if matches!(id.as_str(), "" | "." | "..") => "iid-unnamed".to_owned(),
            id if id.len() > MAX_FOLDER => {
                let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
                let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
                let end = (0..=MAX_FOLDER - digest.len() - 1).rev().find(|i| id.is_char_boundary(*i)).unwrap_or(0);
                format!("{}-{digest}", id.get(..end).unwrap_or_default())
            }
            id => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_by_the_instance_id() {
        let folder = |id: &str| Instance { instance_id: id.into(), ..Instance::default() }.folder();
        assert_eq!(folder("a/b"), "a_b");
        assert_eq!(Instance::default().folder(), "iid-unnamed");
        assert_eq!(folder("a\nb\0c"), "a_b_c");
        let (one, other) = (folder(&"ü".repeat(200)), folder(&("ü".repeat(200) + "x")));
        assert!(one.len() <= MAX_FOLDER && other.len() <= MAX_FOLDER && one != other, "{one} {other}");
        assert_eq!(folder(&"x".repeat(MAX_FOLDER)), "x".repeat(MAX_FOLDER));
    }
}
