//! ConfigDrive: OpenStack's metadata on a block device labelled config-2, or in a seed folder of the image.

use super::{Found, Search};
use crate::base::error::Result;
use crate::document::Value;
use crate::instance::Instance;
use crate::source::openstack_files;

/// The label, in any case (nova writes config-2).
pub const LABEL: &str = "config-2";
/// Folders of the root that stand for a drive.
pub const SEEDS: [&str; 2] = ["/config-drive", "/var/lib/cloud/seed/config_drive"];
/// The instance-id of a drive that has none, on a machine without a UUID.
const DEFAULT_ID: &str = "iid-dsconfigdrive";

/// Reads the first seed folder or drive that has OpenStack's layout.
pub fn read(search: &mut Search) -> Result<Option<Found>> {
    for seed in SEEDS {
        if let Some(files) = search.seed_folder(seed)
            && let Some(mut instance) = openstack_files::read(&files)
        {
            finish(search, &mut instance, "seed-dir", seed);
            return Ok(Some(Found { instance, place: seed.into() }));
        }
    }
    for drive in search.drives_labelled(LABEL) {
        let Some(files) = search.open_drive(&drive) else { continue };
        match openstack_files::read(&files) {
            Some(mut instance) => {
                finish(search, &mut instance, "config-disk", &drive);
                return Ok(Some(Found { instance, place: drive }));
            }
            None => search.problem(format!("{drive} is labelled {LABEL} and has no openstack folder: it is not used")),
        }
    }
    Ok(None)
}

/// Says where the instance came from, and gives it an identity if the drive gives none.
pub(super) fn finish(search: &Search, instance: &mut Instance, kind: &str, place: &str) {
    instance.source = "ConfigDrive".into();
    instance.class = "DataSourceConfigDrive".into();
    instance.subplatform = format!("{kind} ({place})");
    // What the drive itself says comes first.
    if openstack_files::own_mode(&instance.metadata).is_none()
        && let Some(text) = search.settings("ConfigDrive").and_then(|s| s.get("dsmode")).and_then(Value::text)
    {
        match openstack_files::ds_mode(&text) {
            Some(mode) => instance.dsmode = mode,
            None => {
                let expected = "expected local, net, pass or disabled; it does not count";
                instance.problems.push(format!("datasource: ConfigDrive: dsmode: {expected}"));
            }
        }
    }
    if instance.instance_id.is_empty() {
        instance.instance_id = search.machine.uuid().unwrap_or_else(|| DEFAULT_ID.into());
        instance.problems.push(format!("{place} gives no instance-id: {} is used", instance.instance_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::DsMode;
    use crate::machine::Machine;
    use crate::root::{Attr, Root, Use};
    use std::time::Duration;

    /// The mode of a drive with this metadata, on an image with this setting, and how many problems there are.
    fn mode(path: &str, metadata: &str, setting: &str) -> (DsMode, usize) {
        let dir = TempDir::new("dsmode");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        root.write(&format!("{}/{path}", SEEDS[0]), metadata, Attr::root(0o600)).unwrap();
        let config = yaml::parse("t", &format!("datasource: {{ConfigDrive: {{dsmode: {setting}}}}}")).unwrap();
        let machine = Machine::read(&dir.0);
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
