//! IBM Cloud Classic: an OpenStack drive of its own on Xen.

use super::Source;
use crate::detect::{Facts, Finding, Mark, label_reason, virt};
use std::path::Path;

pub static SOURCE: Source = Source {
    name: "IBMCloud",
    marks: &[
        Mark::Unless(provisioning),
        Mark::Check(
            "on Xen: a filesystem with the label METADATA, or with the label config-2 and the UUID 9796-932E",
            |facts| recognised(facts).and_then(Finding::found),
        ),
    ],
    ..Source::NEW
};

/// IBM's first boot, before the machine is handed over.
fn provisioning(facts: &Facts) -> Option<String> {
    const SETTINGS: &str = "/root/provisioningConfiguration.cfg";
    const LOG: &str = "root/swinstall.log";
    if !facts.root.is_file(SETTINGS) {
        return None;
    }
    let changed = |path: &Path| std::fs::symlink_metadata(path).and_then(|m| m.modified()).ok();
    let log = changed(&facts.root.path().join(LOG));
    let boot = changed(&facts.machine.base.join("proc/1/environ"));
    let of_this_boot = log.is_none() || boot.is_none() || log > boot;
    of_this_boot.then(|| format!("the machine is still being provisioned by IBM Cloud: {SETTINGS} is there"))
}

/// Why the machine is IBM Cloud's, if it is.
pub fn recognised(facts: &Facts) -> Option<String> {
    const DRIVE: &str = "config-2";
    const UUID: &str = "9796-932E";
    if facts.platform.virt != virt::XEN {
        return None;
    }
    let has_uuid = || facts.filesystems().iter().any(|fs| fs.uuid.as_deref() == Some(UUID));
    provisioning(facts).or_else(|| facts.labelled("METADATA").map(|fs| label_reason(fs, "METADATA"))).or_else(|| {
        Some(format!("{} and the UUID {UUID}", label_reason(facts.labelled(DRIVE).filter(|_| has_uuid())?, DRIVE)))
    })
}
