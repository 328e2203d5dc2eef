//! IBM Cloud Classic: OpenStack's layout on special drives of Xen machines.
//!
//! Follows cloud-init's documentation, "IBM Cloud": a machine created from a template has a drive labelled
//! METADATA; one created from an operating system of IBM's has a config drive with a certain UUID.

use super::Source;
use super::openstack::files;
use super::search::{Found, Search};
use crate::base::error::{Error, Result};
use crate::detect::{Facts, Finding, Mark, label_reason, virt};
use crate::document::{Map, Value};
use crate::drive::label::Superblock;
use crate::instance::{Instance, NetworkData};
use crate::machine::{Machine, beneath};
use crate::root::Root;
use std::path::Path;

/// ConfigDrive asks by this name whether a drive is its own, so that a build without IBMCloud has nothing of what reads it.
pub const NAME: &str = "IBMCloud";

pub static SOURCE: Source = Source {
    name: NAME,
    described: "[{platform} {kind}]",
    marks: &[
        Mark::Unless(|facts| provisioning(facts.machine, facts.root)),
        Mark::Check(
            "on Xen: a filesystem with the label METADATA, or with the label config-2 and the UUID 9796-932E",
            |facts| recognised(facts).and_then(Finding::found),
        ),
    ],
    labels: &[TEMPLATE, DRIVE],
    read: Some(read),
    docs: "IBM Cloud Classic, on Xen: OpenStack's layout on a drive labelled METADATA (made from a template; the image's own \
        network configuration stays), or on one labelled config-2 with the UUID 9796-932E (made from IBM's operating systems; \
        its network_data.json is used). While IBM provisions the machine itself nothing is read.",
    ..Source::NEW
};

/// The label of a template's drive.
const TEMPLATE: &str = "METADATA";
/// The label and the UUID of the other drive.
const DRIVE: &str = "config-2";
const UUID: &str = "9796-932E";
/// The only version that IBM writes.
const METADATA: &str = "openstack/latest/meta_data.json";

/// Why this is IBM's own first boot, before the machine is handed over; None if it is not.
fn provisioning(machine: &Machine, root: &Root) -> Option<String> {
    const SETTINGS: &str = "/root/provisioningConfiguration.cfg";
    const LOG: &str = "root/swinstall.log";
    if !root.is_file(SETTINGS) {
        return None;
    }
    let changed = |base: &Path, path: &str| beneath::metadata(base, path)?.modified().ok();
    let log = changed(root.path(), LOG);
    let boot = changed(&machine.base, "proc/1/environ");
    let of_this_boot = log.is_none() || boot.is_none() || log > boot;
    of_this_boot.then(|| format!("the machine is still being provisioned by IBM Cloud: {SETTINGS} is there"))
}

/// Why the machine is on IBM Cloud, if it is.
pub fn recognised(facts: &Facts) -> Option<String> {
    if facts.platform.virt != virt::XEN {
        return None;
    }
    let has_uuid = || facts.filesystems().iter().any(|fs| fs.uuid.as_deref() == Some(UUID));
    provisioning(facts.machine, facts.root)
        .or_else(|| facts.labelled(TEMPLATE).map(|fs| label_reason(fs, TEMPLATE)))
        .or_else(|| {
            Some(format!("{} and the UUID {UUID}", label_reason(facts.labelled(DRIVE).filter(|_| has_uuid())?, DRIVE)))
        })
}

fn is_os_drive(superblock: &Superblock) -> bool {
    superblock.is_labelled(DRIVE) && superblock.uuid.as_deref() == Some(UUID)
}

/// Whether drives with OpenStack's layout belong to this source instead of ConfigDrive: on IBM's machines, if
/// the source is listed.
pub fn owns_drives(search: &Search) -> bool {
    let list = search.config.get("datasource_list").and_then(Value::as_list);
    let listed =
        list.is_none_or(|list| list.iter().filter_map(Value::as_str).any(|name| name.eq_ignore_ascii_case(NAME)));
    let drives = || search.drives_of(&|d| d.superblock().is_some_and(|s| s.is_labelled(TEMPLATE) || is_os_drive(s)));
    listed && virt::detect(search.machine) == virt::XEN && !drives().is_empty()
}

/// Reads the drive of a machine with IBM's operating system, else a template's drive.
fn read(search: &mut Search) -> Result<Option<Found>> {
    if virt::detect(search.machine) != virt::XEN {
        return Ok(None);
    }
    let os = search.drives_of(&|d| d.superblock().is_some_and(is_os_drive));
    let template = search.drives_of(&|d| d.superblock().is_some_and(|s| s.is_labelled(TEMPLATE)));
    let Some((kind, drive)) =
        os.first().map(|d| ("OS-Code/Live", d)).or_else(|| template.first().map(|d| ("Template/Live/Metadata", d)))
    else {
        return Ok(None);
    };
    if let Some(why) = provisioning(search.machine, search.root) {
        search.reason(format!("{NAME}: {why}"));
        return Ok(None);
    }
    let Some(files) = search.open_drive(drive) else { return Ok(None) };
    let missing = || Error::new(format!("{drive}: expected {METADATA} of OpenStack's layout"));
    let instance = files.contains(METADATA).then(|| files::read(&files)).flatten().ok_or_else(missing)?;
    let instance = finish(instance, kind, drive, !os.is_empty());
    Ok(Some(Found { instance, place: drive.clone() }))
}

/// Builds the instance from the parts of OpenStack's documents that cloud-init uses on IBM Cloud.
fn finish(read: Instance, kind: &str, drive: &str, has_network: bool) -> Instance {
    let of = |key: &str| read.metadata.get(key).cloned();
    let kept = [("instance-id", "uuid"), ("local-hostname", "hostname"), ("public-keys", "public_keys")];
    let mut metadata: Map = kept.into_iter().filter_map(|(name, key)| Some((name, of(key)?))).collect();
    if let Some(seed) = read.random_seed.as_ref().and_then(|seed| std::str::from_utf8(seed).ok()) {
        metadata.insert("random_seed", seed);
    }
    let unchanged = || {
        NetworkData::Cloud(Value::Map(
            [("version", Value::Int(1)), ("config", "disabled".into())].into_iter().collect(),
        ))
    };
    Instance {
        source: NAME.into(),
        class: "DataSourceIBMCloud".into(),
        platform: "ibmcloud".into(),
        cloud_name: "ibmcloud".into(),
        subplatform: format!("{kind} ({drive})"),
        network: if has_network { read.network } else { Some(unchanged()) },
        instance_id: if read.instance_id.is_empty() { "iid-datasource".into() } else { read.instance_id },
        local_hostname: read.local_hostname,
        public_keys: read.public_keys,
        random_seed: read.random_seed,
        user_data: read.user_data,
        vendor_data: read.vendor_data,
        problems: read.problems,
        metadata: Value::Map(metadata),
        ..Instance::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::drive::Files;
    use crate::root::Use;

    #[test]
    fn template_keeps_network_and_ibms_system_gets_one() {
        let mut files = Files::default();
        for (name, text) in [
            (
                "meta_data.json",
                r#"{"uuid": "u-1", "hostname": "ibm-1", "public_keys": {"1": "ssh-ed25519 A"}, "own": 1}"#,
            ),
            ("user_data", "#!/bin/sh\n"),
            ("vendor_data.json", r##"{"cloud-init": "#!/bin/bash\ntrue"}"##),
            ("network_data.json", r#"{"links": [], "networks": [], "services": []}"#),
        ] {
            files.insert(format!("openstack/latest/{name}"), text.as_bytes().to_vec());
        }
        let read = || files::read(&files).unwrap();
        let own = finish(read(), "OS-Code/Live", "/dev/xvdh", true);
        assert_eq!((own.instance_id.as_str(), own.local_hostname.as_deref()), ("u-1", Some("ibm-1")));
        assert_eq!((own.subplatform.as_str(), own.platform.as_str()), ("OS-Code/Live (/dev/xvdh)", "ibmcloud"));
        assert_eq!(
            (own.public_keys, own.user_data.as_deref()),
            (vec!["ssh-ed25519 A".to_owned()], Some(&b"#!/bin/sh\n"[..]))
        );
        assert!(matches!(own.network, Some(NetworkData::Openstack(_))) && !own.vendor_data.is_null());
        assert!(own.metadata.get("own").is_none());
        let template = finish(read(), "Template/Live/Metadata", "/dev/xvdh", false);
        let Some(NetworkData::Cloud(network)) = template.network else { panic!() };
        assert_eq!(network.get("config"), Some(&Value::from("disabled")));
    }

    #[test]
    fn while_ibm_provisions_the_machine_nothing_is_read() {
        let dir = TempDir::new("ibm");
        let write = |path: &str| dir.write(path, "");
        write("etc/os-release");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        assert_eq!(provisioning(&machine, &root), None);
        write("root/provisioningConfiguration.cfg");
        assert!(provisioning(&machine, &root).unwrap().starts_with("the machine is still being provisioned"));
    }
}
