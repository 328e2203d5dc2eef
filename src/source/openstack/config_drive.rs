//! ConfigDrive: OpenStack's metadata on a block device labelled config-2, or in a seed folder of the image.

use super::files;
use super::marks::{self, LABEL, SEEDS};
use crate::base::error::Result;
use crate::detect::Mark;
use crate::document::Value;
use crate::drive::Files;
use crate::instance::{DsMode, Instance};
use crate::source::ibm_cloud;
use crate::source::search::{Found, Search};
use crate::source::table::Source;

pub static SOURCE: Source = Source {
    name: marks::CONFIG_DRIVE,
    described: "[{mode},ver=2][source={place}]",
    marks: &[Mark::Check(
        "openstack/latest or openstack/DATE with meta_data.json in /config-drive or /var/lib/cloud/seed/config_drive; a filesystem \
         with the label config-2",
        marks::config_drive_mark,
    )],
    labels: &[LABEL],
    read: Some(read),
    deprecated: |_, instance, report| instance.report_eni(report),
    seed: Some(seed),
    drive_is_due: Some(marks::drive_is_due),
    labels_disks: true,
    settings: &[(
        "dsmode",
        "local, net, pass (applied, and the search goes on) or disabled (not used), where the drive itself does not say",
    )],
    docs: "OpenStack's config drive: a drive labelled config-2, or the same files in /config-drive or \
        /var/lib/cloud/seed/config_drive. Versions 2012-08-10 to 2018-08-27 and latest of OpenStack's layout, and version 1 \
        (meta.js).",
    ..Source::NEW
};

/// The instance-id of a drive that lacks one, on a machine without a UUID.
const DEFAULT_ID: &str = "iid-dsconfigdrive";

/// Reads the first seed folder or drive that has OpenStack's layout.
fn read(search: &mut Search) -> Result<Option<Found>> {
    for seed in SEEDS {
        if let Some(files) = search.seed_folder(seed)
            && let Some(mut instance) = files::read(&files)
        {
            finish(search, &mut instance, "seed-dir", seed);
            return Ok(Some(Found { instance, place: seed.into() }));
        }
    }
    if ibm_cloud::owns_drives(search) {
        return Ok(None);
    }
    for drive in search.drives_labelled(LABEL) {
        let Some(files) = search.open_drive(&drive) else { continue };
        match files::read(&files) {
            Some(mut instance) => {
                finish(search, &mut instance, "config-disk", &drive);
                return Ok(Some(Found { instance, place: drive }));
            }
            None => search.problem(format!("{drive} is labelled {LABEL} and has no openstack folder: it is not used")),
        }
    }
    Ok(None)
}

/// The instance of a tree of files with OpenStack's layout.
fn seed(search: &Search, files: &Files, place: &str) -> Option<Instance> {
    let mut instance = files::is_openstack(files).then(|| files::read(files))??;
    finish(search, &mut instance, "config-disk", place);
    Some(instance)
}

/// Records the instance's origin, and sets an identity if the drive lacks one.
fn finish(search: &Search, instance: &mut Instance, kind: &str, place: &str) {
    instance.source = SOURCE.name.into();
    instance.class = "DataSourceConfigDrive".into();
    // Other clouds have config drives too.
    instance.platform = "configdrive".into();
    instance.cloud_name = "configdrive".into();
    instance.subplatform = format!("{kind} ({place})");
    // The drive's own value takes precedence.
    if files::own_mode(&instance.metadata).is_none()
        && let Some(text) = search.settings(SOURCE.name).and_then(|s| s.get("dsmode")).and_then(Value::text)
    {
        match DsMode::named(&text) {
            Some(mode) => instance.dsmode = mode,
            None => {
                let expected = "expected local, net, pass or disabled; it is ignored";
                instance.problems.warn(format!("datasource: ConfigDrive: dsmode: {expected}"));
            }
        }
    }
    if instance.instance_id.is_empty() {
        instance.instance_id = search.machine.uuid().unwrap_or_else(|| DEFAULT_ID.into());
        instance.problems.warn(format!("{place} gives no instance-id: {} is used", instance.instance_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::{Attr, Use};
    use std::time::Duration;

    /// The mode of a drive with this metadata, on an image with this setting, and how many problems there are.
    fn mode(path: &str, metadata: &str, setting: &str) -> (DsMode, usize) {
        let dir = TempDir::new("dsmode");
        let mut root = dir.root(Use::Tree);
        root.write(&format!("{}/{path}", SEEDS[0]), metadata, Attr::root(0o600)).unwrap();
        let config = yaml::parse("t", &format!("datasource: {{ConfigDrive: {{dsmode: {setting}}}}}")).unwrap();
        let machine = dir.machine();
        let found = read(&mut Search::new(&machine, &root, &config, Deadline::after(Duration::from_secs(5)))).unwrap();
        let instance = found.unwrap().instance;
        (instance.dsmode, instance.problems.len())
    }

    #[test]
    fn the_drives_own_mode_counts_before_the_images() {
        let new = "openstack/latest/meta_data.json";
        assert_eq!(mode(new, r#"{"uuid": "u"}"#, "null"), (DsMode::default(), 0));
        assert_eq!(mode(new, r#"{"uuid": "u"}"#, "local"), (DsMode::Local, 0));
        assert_eq!(mode(new, r#"{"uuid": "u"}"#, "sometimes"), (DsMode::default(), 1));
        assert_eq!(mode(new, r#"{"uuid": "u", "meta": {"dsmode": "net"}}"#, "pass"), (DsMode::Net, 0));
        assert_eq!(mode("meta.js", r#"{"instance-id": "i"}"#, "null"), (DsMode::Pass, 0));
        assert_eq!(mode("meta.js", r#"{"instance-id": "i"}"#, "local"), (DsMode::Local, 0));
        assert_eq!(mode("meta.js", r#"{"instance-id": "i", "dsmode": "net"}"#, "disabled"), (DsMode::Net, 0));
    }
}
