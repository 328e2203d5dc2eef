//! The sources that prepivot reads from drives and folders: ConfigDrive and NoCloud.

use super::Finding;
use super::clouds::ibm_cloud_mark;
use super::facts::Facts;
use super::marks::labelled;
use crate::document::Value;
use crate::source::{config_drive as drive, no_cloud as seed};

/// A config drive, in a folder of the image or on a device. On IBM Cloud, where its source is in the list, the drive is that
/// source's.
pub fn config_drive(facts: &Facts) -> Option<Finding> {
    if let Some(folder) = drive::SEEDS.iter().find(|folder| has_openstack(facts, folder)) {
        return Finding::found(format!("{folder} has OpenStack's metadata"));
    }
    if facts.is_listed("IBMCloud")
        && let Some(why) = ibm_cloud_mark(facts)
    {
        return Finding::never(format!("the drive is IBMCloud's: {why}"));
    }
    Finding::found(labelled(facts.labelled(drive::LABEL)?, drive::LABEL))
}

/// OpenStack's service is not asked where a config drive is there.
pub fn has_config_drive(facts: &Facts) -> Option<String> {
    let drive = config_drive(facts).filter(|f| f.verdict == super::Verdict::Found)?;
    Some(format!("there is a config drive: {}", drive.why))
}

fn has_openstack(facts: &Facts, folder: &str) -> bool {
    let folder = format!("{folder}/openstack");
    let has_metadata = |version: &str| facts.root.is_file(&format!("{folder}/{version}/meta_data.json"));
    has_metadata("latest") || facts.root.list(&folder).iter().any(|v| is_date(v) && has_metadata(v))
}

/// `2018-08-27`.
fn is_date(name: &str) -> bool {
    let form = |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    name.len() == 10 && name.starts_with('2') && name.bytes().enumerate().all(form)
}

/// A seed: named by the DMI, in a folder of the image, on a device, in the image's configuration.
pub fn no_cloud(facts: &Facts) -> Option<Finding> {
    if serial_says_no_cloud(facts) {
        return Finding::found("DMI product_serial has ds=nocloud");
    }
    if let Some(folder) = seed::SEEDS.iter().find(|folder| facts.has_seed(folder, &["meta-data", "user-data"])) {
        return Finding::found(format!("{folder} has meta-data and user-data"));
    }
    let settings = facts.own.at(&["datasource", "NoCloud"]);
    let own_label = settings.and_then(|s| s.get("fs_label")).and_then(Value::text);
    for label in [seed::LABEL].into_iter().chain(own_label.as_deref()) {
        if let Some(fs) = facts.labelled(label) {
            return Finding::found(labelled(fs, label));
        }
    }
    let has = |key: &str| settings.is_some_and(|s| s.get(key).is_some());
    if has("seedfrom") {
        return Finding::found("datasource: NoCloud: seedfrom is in the configuration");
    }
    let inline = has("user-data") && has("meta-data");
    if inline { Finding::found("datasource: NoCloud: has user-data and meta-data in the configuration") } else { None }
}

/// Whether the machine's serial number names NoCloud.
pub fn serial_says_no_cloud(facts: &Facts) -> bool {
    facts.dmi("product_serial").is_some_and(|s| s.split_whitespace().any(|w| w.starts_with("ds=nocloud")))
}

impl Facts<'_> {
    /// Whether a source is among those that are looked for.
    pub fn is_listed(&self, name: &str) -> bool {
        self.asked.list.as_ref().is_none_or(|list| list.iter().any(|n| n.eq_ignore_ascii_case(name)))
    }
}
