//! How a NoCloud seed is recognised.

use crate::base::deprecated;
use crate::base::problem::Problems;
use crate::detect::{Facts, Finding, label_reason};
use crate::document::Value;
use crate::drive::Files;
use crate::instance::Instance;
use crate::machine::Machine;

/// cloud-init's name of the source.
pub const NAME: &str = "NoCloud";
/// The label of a drive, in any case, unless the configuration names another (`fs_label`).
pub const LABEL: &str = "cidata";
pub const SEEDS: [&str; 4] = [
    "/var/lib/cloud/seed/nocloud",
    "/var/lib/cloud/seed/nocloud-net",
    "/writable/system-data/var/lib/cloud/seed/nocloud",
    "/writable/system-data/var/lib/cloud/seed/nocloud-net",
];

/// Recognises a seed: named by DMI, in a folder of the image, on a device, or in the image's configuration.
pub fn mark(facts: &Facts) -> Option<Finding> {
    if serial_says_no_cloud(facts) {
        return Finding::found("DMI product_serial has ds=nocloud");
    }
    if is_seed(&super::credentials::files(facts.machine)) {
        return Finding::found("systemd credentials have user-data or meta-data");
    }
    if let Some(folder) = SEEDS.iter().find(|folder| facts.has_seed(folder, &["meta-data", "user-data"])) {
        return Finding::found(format!("{folder} has meta-data and user-data"));
    }
    let settings = facts.own.at(&["datasource", NAME]);
    let own_label = settings.and_then(|s| s.get("fs_label")).and_then(Value::text);
    for label in [LABEL].into_iter().chain(own_label.as_deref()) {
        if let Some(fs) = facts.labelled(label) {
            return Finding::found(label_reason(fs, label));
        }
    }
    let has = |key: &str| settings.is_some_and(|s| s.get(key).is_some());
    if has("seedfrom") {
        return Finding::found("datasource: NoCloud: seedfrom is in the configuration");
    }
    let inline = has("user-data") && has("meta-data");
    if inline { Finding::found("datasource: NoCloud: has user-data and meta-data in the configuration") } else { None }
}

/// Reports the old name of a seed at a URL, and a network in ifupdown's form.
pub fn deprecated(machine: &Machine, instance: &Instance, report: &Problems) {
    let serial = machine.dmi("product_serial").unwrap_or_default();
    let is_old = |line: &str| {
        let mut names = line.split_whitespace().filter_map(|word| word.strip_prefix("ds=")?.split(';').next());
        names.next_back().is_some_and(|name| name.eq_ignore_ascii_case("nocloud-net"))
    };
    if is_old(machine.cmdline.text()) || is_old(&serial) {
        report.deprecated(deprecated::NOCLOUD_NET.about(""));
    }
    instance.report_eni(report);
}

/// Whether files are a seed: they include meta-data or user-data.
pub fn is_seed(files: &Files) -> bool {
    files.contains("meta-data") || files.contains("user-data")
}

/// Whether the machine's serial number names NoCloud.
pub fn serial_says_no_cloud(facts: &Facts) -> bool {
    facts.dmi("product_serial").is_some_and(|s| s.split_whitespace().any(|w| w.starts_with("ds=nocloud")))
}
