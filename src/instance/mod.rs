//! The instance: identity, metadata, the cache on disk, semaphores, status.

pub mod boot;
pub mod cache;
pub mod instance_data;
pub mod report;
pub mod state;
pub mod status;

use crate::base::deprecated;
use crate::base::digest::shortened;
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Raw, Value};

/// The longest folder name for an instance-id, in bytes: a file name may have 255.
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
    /// Parses a frequency: `always`, `once-per-instance`, `instance`, `once`, …
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

/// A datasource's network configuration, not parsed yet.
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
    /// The data is used, but the search continues for a source that claims the machine.
    Pass,
    Disabled,
}

impl DsMode {
    const ALL: [DsMode; 4] = [DsMode::Local, DsMode::Net, DsMode::Pass, DsMode::Disabled];

    /// The mode with cloud-init's name `name`.
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

/// An instance, as its datasource describes it: plain data, the same from a drive, HTTP or the cache.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instance {
    /// The datasource's name: `ConfigDrive`, `NoCloud`, `OpenStack`, `Ec2`, `None`.
    pub source: String,
    /// Cloud-init's class name in status.json, without the package: `DataSourceConfigDrive`.
    pub class: String,
    /// `openstack`, `nocloud`, `ec2`, … as in instance-data.
    pub platform: String,
    /// `openstack`, `aws`, `nocloud`, …
    pub cloud_name: String,
    /// Where it was read: `config-disk (/dev/sr0)`, `metadata (http://169.254.169.254)`.
    pub subplatform: String,
    /// Cloud-init's addition to the class when it names the datasource: `[seed=/dev/vda]`. May be empty.
    pub described: String,
    pub instance_id: String,
    /// Whether a service on the network provided it, instead of a drive or folder.
    pub from_network: bool,
    /// The machine's UUID when this was read. It identifies the instance without reading it again.
    pub machine_uuid: Option<String>,
    /// meta_data.json or the meta-data file, as a mapping. It also contains the values of the fields below.
    pub metadata: Value,
    /// `ds` in instance-data, for a source that stores its service's own document there. Empty: `meta_data` and its companions.
    pub ds: Map,
    /// The EC2 metadata that comes with it, if any.
    pub ec2_metadata: Value,
    pub user_data: Option<Bytes>,
    /// What came before the user-data: the signatures and the statement of a signed envelope, which a policy has opened.
    pub envelope: Option<Bytes>,
    /// The other documents as they came, before they were parsed. None if no trust policy has them kept.
    pub raw: Option<Raw>,
    /// The signature of the user-data that came in a file beside it.
    pub signature: Option<Bytes>,
    /// In the source's form: a string, a list of parts, or a mapping with the key `cloud-init`.
    pub vendor_data: Value,
    pub vendor_data2: Value,
    pub network: Option<NetworkData>,
    pub dsmode: DsMode,
    /// The host name according to the source; may be fully qualified.
    pub local_hostname: Option<String>,
    pub availability_zone: Option<String>,
    pub region: Option<String>,
    pub launch_index: Option<i64>,
    /// The source's SSH public keys, in order, without duplicates.
    pub public_keys: Vec<String>,
    /// The source's own configuration, which vendor-data takes precedence over (`get_config_obj`).
    pub config: Value,
    /// Files of the source that are written once: path and content (a config drive's `files`).
    pub files: Vec<(String, Bytes)>,
    /// Files for other agents of the platform: path and content. Only root can read them and their folders.
    pub private_files: Vec<(String, Bytes)>,
    /// Files and folders of the image that this source's data supersedes: removed once.
    pub stale_files: Vec<String>,
    pub random_seed: Option<Bytes>,
    /// Devices by the source's names (`ephemeral0`, `swap`, …).
    pub device_names: Map,
    /// Parts that could not be used, without secrets.
    pub problems: Problems,
}

/// The document for cloud-init in vendor-data: the value of `cloud-init` in a mapping, which other programs
/// may share, else all of it. Null if a mapping has no such key (cloud-init's `convert_vendordata`).
pub fn vendor_document(data: &Value) -> &Value {
    match data {
        Value::Map(map) => map.get("cloud-init").unwrap_or(&Value::Null),
        other => other,
    }
}

/// The host name in a source's text. An IPv4 address becomes `ip-10-0-0-1` (cloud-init 26.2,
/// `DataSource.get_hostname`).
pub fn host_name(text: &str) -> String {
    let name = text.trim();
    match name.parse::<std::net::Ipv4Addr>() {
        Ok(_) => format!("ip-{}", name.replace('.', "-")),
        Err(_) => name.to_owned(),
    }
}

impl Instance {
    /// The instance-id as a folder name: slashes become `_` as in cloud-init, and so do control characters.
    /// Never empty, `.` or `..`; the end of one that is too long is replaced by its digest.
    pub fn folder(&self) -> String {
        match self.instance_id.replace(|c: char| c == '/' || c.is_control(), "_") {
            id if matches!(id.as_str(), "" | "." | "..") => "iid-unnamed".to_owned(),
            id => shortened(&id, MAX_FOLDER).into_owned(),
        }
    }

    /// Reports a network configuration in ifupdown's form, for sources where that is deprecated.
    pub fn report_eni(&self, report: &Problems) {
        if matches!(self.network, Some(NetworkData::Eni(_))) {
            report.deprecated(deprecated::ENI.about(&self.source));
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
