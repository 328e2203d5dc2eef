//! ConfigDrive: OpenStack's metadata on a block device labelled config-2, or in a seed folder of the image.

use super::{Found, Search};
use crate::error::Result;
use crate::instance::Instance;
use crate::source::openstack_files;

/// The label, in any case (nova writes config-2).
pub const LABEL: &str = "config-2";
/// Folders of the root that stand for a drive.
pub(super) const SEEDS: [&str; 2] = ["/config-drive", "/var/lib/cloud/seed/config_drive"];
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
    if instance.instance_id.is_empty() {
        instance.instance_id = search.machine.uuid().unwrap_or_else(|| DEFAULT_ID.into());
        instance.problems.push(format!("{place} gives no instance-id: {} is used", instance.instance_id));
    }
}
