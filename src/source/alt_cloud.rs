//! AltCloud: RHEV's floppy and vSphere's CD-ROM with user-data.

use super::Source;
use crate::detect::{Facts, Finding, Mark, label_reason};

pub static SOURCE: Source = Source {
    name: "AltCloud",
    marks: &[Mark::Check("RHEV with a floppy drive, vSphere with a filesystem with the label CDROM: maybe", mark)],
    ..Source::NEW
};

/// A machine of one of the clouds that AltCloud reads drives of. What is on the drive is not looked at, so it only may be.
fn mark(facts: &Facts) -> Option<Finding> {
    const CLOUD_INFO: &str = "/etc/sysconfig/cloud-info";
    let kind = match facts.root.is_file(CLOUD_INFO) {
        true => facts.root.text(CLOUD_INFO).lines().next().map(|l| l.trim().to_owned()),
        false => facts.dmi("product_name"),
    }?;
    match kind.to_ascii_lowercase().as_str() {
        "rhev" if facts.machine.base.join("sys/class/block/fd0").exists() => {
            Finding::maybe("the machine is RHEV's and has a floppy drive")
        }
        "vsphere" => Finding::maybe(label_reason(facts.labelled("CDROM")?, "CDROM")),
        _ => None,
    }
}
