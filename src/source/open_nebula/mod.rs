//! OpenNebula: context.sh on a drive.
//!
//! Follows OpenNebula's documentation, "Open Cloud Contextualization", and cloud-init's, "OpenNebula".

mod context;
mod network;

use super::Source;
use super::search::{Found, Search};
use crate::base::base64;
use crate::base::error::Result;
use crate::detect::Mark;
use crate::document::{Bytes, Value};
use crate::drive::Files;
use crate::instance::{DsMode, Instance, NetworkData};

pub static SOURCE: Source = Source {
    name: "OpenNebula",
    described: "[seed={place}][dsmode={mode}]",
    marks: &[
        Mark::Seed("opennebula", &[FILE]),
        Mark::Seed("opennebula", &["meta-data"]),
        Mark::Label(LABELS[0]),
        Mark::Label(LABELS[1]),
    ],
    labels: LABELS,
    read: Some(read),
    seed: Some(|search, files, place| of_files(search, files, "config-disk", place).ok()?),
    settings: &[
        ("dsmode", "local, net or disabled (not used), where context.sh itself has no DSMODE"),
        ("parseuser", "ignored: context.sh is never run, so that no user is needed to run it"),
    ],
    docs: "OpenNebula's context.sh: on a drive labelled CONTEXT or CDROM, on any ISO 9660 where \
        datasource_list has no other source, or in /var/lib/cloud/seed/opennebula. It is read, and \
        never run: assignments in any quoting, and values of earlier variables in later ones. A value with a command \
        substitution, and any command, is a warning and ignored. The network configuration comes from the ETHn_ variables.",
    ..Source::NEW
};

const LABELS: &[&str] = &["CONTEXT", "CDROM"];
const FILE: &str = "context.sh";
const SEED: &str = "/var/lib/cloud/seed/opennebula";
/// The instance-id of every machine: context.sh has none.
const DEFAULT_ID: &str = "iid-dsopennebula";

/// Reads the seed folder, else the first drive with a context.sh.
fn read(search: &mut Search) -> Result<Option<Found>> {
    if let Some(files) = search.seed_folder(SEED)
        && let Some(instance) = of_files(search, &files, "seed-dir", SEED)?
    {
        return Ok(Some(Found { instance, place: SEED.into() }));
    }
    for drive in candidates(search) {
        let Some(files) = search.open_drive(&drive) else { continue };
        if let Some(instance) = of_files(search, &files, "config-disk", &drive)? {
            return Ok(Some(Found { instance, place: drive }));
        }
    }
    Ok(None)
}

/// The drives that may have a context.sh: those with a label, and any ISO 9660 if the image uses no other datasource.
fn candidates(search: &mut Search) -> Vec<String> {
    let mut drives: Vec<String> = LABELS.iter().flat_map(|label| search.drives_labelled(label)).collect();
    let list = search.config.get("datasource_list").map(Value::texts).unwrap_or_default();
    let is_ours = |name: &String| SOURCE.is_named(name) || name.eq_ignore_ascii_case("None");
    if list.iter().any(|name| SOURCE.is_named(name)) && list.iter().all(is_ours) {
        let others = search.drives_of(&|drive| drive.superblock().is_some_and(|s| s.kind == "iso9660"));
        drives.extend(others.into_iter().filter(|drive| !drives.contains(drive)).collect::<Vec<_>>());
    }
    drives
}

/// The instance of a tree of files; None if it has no context.sh.
fn of_files(search: &Search, files: &Files, kind: &str, place: &str) -> Result<Option<Instance>> {
    let Some(script) = files.get(FILE) else { return Ok(None) };
    let context::Context { variables, problems } = context::parse(&String::from_utf8_lossy(script))?;
    let text = |name: &str| variables.get(name).and_then(Value::as_str).filter(|v| !v.is_empty());
    let first = |names: &[&str]| names.iter().find_map(|name| text(name)).map(str::to_owned);
    let user_data = first(&["USER_DATA", "USERDATA"]).map(|data| {
        if first(&["USERDATA_ENCODING", "USER_DATA_ENCODING"]).as_deref() != Some("base64") {
            return data.into_bytes();
        }
        base64::decode_lines(data.as_bytes()).unwrap_or_else(|| {
            problems.warn("context.sh: USER_DATA: expected base64, as USER_DATA_ENCODING says; it is used as it is");
            data.into_bytes()
        })
    });
    let network = network::config(&variables, &search.machine.nics(), &problems).map(NetworkData::Cloud);
    let setting = search.settings(SOURCE.name).and_then(|s| s.get("dsmode")).and_then(Value::as_str);
    let keys = first(&["SSH_KEY", "SSH_PUBLIC_KEY"]).map(Value::from);
    let mut instance = Instance {
        source: SOURCE.name.into(),
        class: "DataSourceOpenNebula".into(),
        platform: "opennebula".into(),
        cloud_name: "opennebula".into(),
        subplatform: format!("{kind} ({place})"),
        instance_id: DEFAULT_ID.into(),
        local_hostname: first(&["SET_HOSTNAME", "HOSTNAME", "PUBLIC_IP", "IP_PUBLIC", "ETH0_IP"]),
        dsmode: text("DSMODE").or(setting).and_then(DsMode::named).unwrap_or(DsMode::Net),
        public_keys: super::keys::public_keys(keys.as_ref()),
        user_data: user_data.map(Bytes::from),
        network,
        problems,
        ..Instance::default()
    };
    let mut metadata = variables;
    metadata.insert("instance-id", DEFAULT_ID);
    instance.local_hostname.as_ref().map(|name| metadata.insert("local-hostname", name.as_str()));
    if !instance.public_keys.is_empty() {
        metadata.insert("public-keys", instance.public_keys.iter().map(|k| k.as_str().into()).collect::<Vec<_>>());
    }
    instance.metadata = Value::Map(metadata);
    Ok(Some(instance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::drive::devices::BlockDevice;
    use crate::drive::label::Superblock;
    use crate::drive::search::{Contents, Probed};
    use crate::root::Use;
    use std::time::Duration;

    #[test]
    fn reads_unlabelled_iso_only_without_other_sources() {
        let drive = |name: &str, kind: &'static str, label: Option<&str>| Probed {
            device: BlockDevice {
                name: name.into(),
                node: format!("/dev/{name}").into(),
                size: 1 << 20,
                partition: false,
                number: None,
                optical: true,
                removable: true,
                partition_label: None,
                partition_uuid: None,
                likely: true,
            },
            contents: Contents::Filesystem(Superblock {
                kind,
                label: label.map(str::to_owned),
                second_label: None,
                uuid: None,
            }),
        };
        let drives = [
            drive("sr0", "iso9660", None),
            drive("sr1", "iso9660", Some("CDROM")),
            drive("vda", "ext4", None),
            drive("sr2", "iso9660", Some("context")),
        ];
        let dir = TempDir::new("opennebula-drives");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        for (list, expected) in [
            ("[OpenNebula]", &["/dev/sr2", "/dev/sr1", "/dev/sr0"][..]),
            ("[OpenNebula, None]", &["/dev/sr2", "/dev/sr1", "/dev/sr0"]),
            ("[OpenNebula, NoCloud]", &["/dev/sr2", "/dev/sr1"]),
            ("[]", &["/dev/sr2", "/dev/sr1"]),
        ] {
            let config = yaml::parse("t", &format!("datasource_list: {list}")).unwrap();
            let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
            search.set_drives(&drives);
            assert_eq!(candidates(&mut search), expected, "{list}");
        }
    }
}
