//! AltCloud: RHEV's floppy and vSphere's CD-ROM with user-data.
//!
//! Follows cloud-init's documentation, "AltCloud".

use super::Source;
use super::search::{Found, Search};
use crate::base::error::Result;
use crate::detect::{Facts, Finding, Mark, label_reason};
use crate::document::{Bytes, Map, Value};
use crate::drive::Files;
use crate::instance::Instance;
use crate::machine::{Machine, beneath};
use crate::root::Root;

pub static SOURCE: Source = Source {
    name: "AltCloud",
    described: "[seed={place}]",
    marks: &[Mark::Check("RHEV with a floppy drive, vSphere with a filesystem with the label CDROM: maybe", mark)],
    read: Some(read),
    seed: Some(|_, files, place| Some(instance(user_data(files)?, &format!("seed ({place})")))),
    docs: "User-data alone, as RHEV and vSphere give it: deltacloud-user-data.txt or user-data.txt on RHEV's floppy, or on a \
        CD-ROM labelled CDROM on vSphere. /etc/sysconfig/cloud-info names the kind, RHEV or VSPHERE, else the DMI product does. \
        The instance-id is always 455. The floppy is read where the kernel has its driver: no modprobe is run.",
    ..Source::NEW
};

const CLOUD_INFO: &str = "/etc/sysconfig/cloud-info";
const LABEL: &str = "CDROM";
const FLOPPY: &str = "fd0";
/// Files with user-data that a drive may have; the first takes precedence.
const FILES: [&str; 2] = ["deltacloud-user-data.txt", "user-data.txt"];

/// Recognises a machine of a cloud whose drives AltCloud reads. The drive's content is not checked, so that
/// it is only possible.
fn mark(facts: &Facts) -> Option<Finding> {
    let kind = match facts.root.is_file(CLOUD_INFO) {
        true => facts.root.text(CLOUD_INFO).lines().next().map(|l| l.trim().to_owned()),
        false => facts.dmi("product_name"),
    }?;
    match kind.to_ascii_lowercase().as_str() {
        "rhev" if beneath::exists(&facts.machine.base, &format!("sys/class/block/{FLOPPY}")) => {
            Finding::maybe("the machine is RHEV's and has a floppy drive")
        }
        "vsphere" => Finding::maybe(label_reason(facts.labelled(LABEL)?, LABEL)),
        _ => None,
    }
}

/// The kind of machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rhev,
    Vsphere,
}

fn kind(machine: &Machine, root: &Root) -> Option<Kind> {
    if root.is_file(CLOUD_INFO) {
        let text = root.text(CLOUD_INFO).to_ascii_uppercase();
        return [("RHEV", Kind::Rhev), ("VSPHERE", Kind::Vsphere)]
            .into_iter()
            .find(|(name, _)| text.contains(name))
            .map(|(_, kind)| kind);
    }
    let product = machine.dmi("product_name")?.to_ascii_uppercase();
    match () {
        () if product.starts_with("RHEV") => Some(Kind::Rhev),
        () if product.starts_with("VMWARE") => Some(Kind::Vsphere),
        () => None,
    }
}

/// Reads the first of the kind's drives that has user-data.
fn read(search: &mut Search) -> Result<Option<Found>> {
    let Some(kind) = kind(search.machine, search.root) else { return Ok(None) };
    let (name, drives) = match kind {
        Kind::Rhev => ("rhev", search.drives_of(&|probed| probed.device.name == FLOPPY)),
        Kind::Vsphere => {
            ("vsphere", search.drives_of(&|probed| probed.superblock().is_some_and(|s| s.is_labelled(LABEL))))
        }
    };
    for drive in drives {
        if let Some(text) = search.open_drive(&drive).and_then(|files| user_data(&files)) {
            return Ok(Some(Found { instance: instance(text, &format!("{name} ({drive})")), place: drive }));
        }
    }
    Ok(None)
}

/// A drive's user-data, without surrounding white space.
fn user_data(files: &Files) -> Option<Vec<u8>> {
    let texts = FILES.iter().filter_map(|name| files.get(name));
    texts.map(<[u8]>::trim_ascii).find(|text| !text.is_empty()).map(<[u8]>::to_vec)
}

fn instance(user_data: Vec<u8>, subplatform: &str) -> Instance {
    const ID: i32 = 455;
    let metadata = [
        ("block-device-mapping", Value::Map(Map::new())),
        ("instance-id", ID.into()),
        ("local-hostname", "localhost".into()),
        ("placement", Map::new().into()),
    ];
    Instance {
        source: SOURCE.name.into(),
        class: "DataSourceAltCloud".into(),
        platform: "altcloud".into(),
        cloud_name: "altcloud".into(),
        subplatform: subplatform.into(),
        instance_id: ID.to_string(),
        local_hostname: Some("localhost".into()),
        user_data: Some(Bytes::from(user_data)),
        metadata: Value::Map(metadata.into_iter().collect()),
        ..Instance::default()
    }
}
