//! The instance on disk in cloud-init's layout (/var/lib/cloud), and the semaphores that mark what has been
//! done.

use super::{Frequency, Instance, cache, vendor_document};
use crate::base::clock;
use crate::base::error::{Context, Result};
use crate::document::{Bytes, Value, json};
use crate::root::{Attr, Content, Root, STATE_FOLDERS};
use std::time::SystemTime;

/// cloud-init's state.
pub const CLOUD_DIR: &str = STATE_FOLDERS[0];
/// cloud-init's state of this boot.
pub const RUN_DIR: &str = "/run/cloud-init";
/// The cached datasource, below the instance's folder.
const CACHE: &str = "datasource.json";
/// In the instance's folder: written at the end of each boot's last stage. Scripts wait for it.
pub const BOOT_FINISHED: &str = "boot-finished";
/// The instance-id before the first one (cloud-init's word).
const NO_PREVIOUS: &str = "NO_PREVIOUS_INSTANCE_ID";
/// Exists if the datasource has answered with another instance in the running system, where this could not be provisioned: the next
/// boot asks it again.
pub const ANOTHER: &str = "/var/lib/cloud/data/prepivot-another-instance";
/// The instance-id of the last boot, below data/: scripts compare it with data/instance-id. It is a link to a file of this boot's.
const PREVIOUS_ID: &str = "previous-instance-id";
/// The datasource of the last boot, below data/.
const PREVIOUS_CLASS: &str = "previous-datasource";

/// The folder of an instance.
pub fn folder(instance: &Instance) -> String {
    format!("{CLOUD_DIR}/instances/{}", instance.folder())
}

/// The mark of an instance that is kept forever (`manual_cache_clean`).
pub fn kept_mark(instance: &Instance) -> String {
    format!("{}/manual-clean", folder(instance))
}

/// The file that says which datasource an instance came from: there once a run has written of the instance what it could.
pub fn class_file(instance: &Instance) -> String {
    format!("{}/datasource", folder(instance))
}

/// Exists if the running system has to write SSH keys, because homes were not mounted before or keys arrived
/// later. It is in the instance's folder, so that a power cut does not lose it.
pub fn waiting_logins(instance: &Instance) -> String {
    format!("{}/prepivot-later-logins", folder(instance))
}

/// Lists users, one per line, whose homes are on a file system that is mounted after the pivot. Existing
/// files there must not be overwritten, so that home and keys are created when they can be seen.
pub fn waiting_homes(instance: &Instance) -> String {
    format!("{}/prepivot-later-homes", folder(instance))
}

/// Lists the new users, one per line, that get their SELinux users from a program of the running system.
pub fn waiting_selinux(instance: &Instance) -> String {
    format!("{}/prepivot-later-selinux", folder(instance))
}

/// The cached instance of the last boot. None if it does not exist or cannot be read.
pub fn cached(root: &Root) -> Option<Instance> {
    let path = format!("{CLOUD_DIR}/instance/{CACHE}");
    let bytes = root.read(&path).ok()??;
    let read = cache::read(&path, &bytes);
    read.inspect_err(|e| log::warn!("the cached datasource is not used: {e}")).ok()
}

/// Whether the last boot's instance was cached by prepivot. If not, and there is one, cloud-init has provisioned it.
pub fn has_cache(root: &Root) -> bool {
    root.exists(&format!("{CLOUD_DIR}/instance/{CACHE}"))
}

/// The instance-id of the last boot.
pub fn last_id(root: &Root) -> Option<String> {
    let id = root.text(&format!("{CLOUD_DIR}/data/instance-id")).trim().to_owned();
    (!id.is_empty()).then_some(id)
}

/// Makes `instance` the current one: writes its folders, links, ids and cache.
///
/// # Errors
/// A path cannot be resolved.
pub fn store(root: &mut Root, instance: &Instance) -> Result<()> {
    let folder = folder(instance);
    for dir in [
        "data",
        "handlers",
        "instances",
        "scripts/per-boot",
        "scripts/per-instance",
        "scripts/per-once",
        "scripts/vendor",
        "seed",
        "sem",
    ] {
        root.mkdir(&format!("{CLOUD_DIR}/{dir}"), Attr::root(0o755))?;
    }
    for dir in ["", "/handlers", "/scripts", "/sem"] {
        root.mkdir(&format!("{folder}{dir}"), Attr::root(0o755))?;
    }
    root.symlink(&format!("{CLOUD_DIR}/instance"), &folder)?;
    let last = last_id(root);
    let is_new = last.as_deref() != Some(&instance.instance_id);
    let in_run = format!("{RUN_DIR}/{PREVIOUS_ID}");
    let path = format!("{CLOUD_DIR}/data/{PREVIOUS_ID}");
    // This boot's note stays if the same instance is stored again.
    let is_noted = || root.exists(&in_run) && root.read_link(&path).as_ref() == Some(&in_run);
    if is_new || (root.has_run() && !is_noted()) {
        let previous = format!("{}\n", last.as_deref().unwrap_or(NO_PREVIOUS));
        if root.has_run() {
            // It is another one in the second boot, which so has nothing to write to the disk.
            root.symlink(&path, &in_run)?;
            root.write(&in_run, previous, Attr::root(0o644))?;
        } else {
            root.remove(&path)?;
            root.write(&path, previous, Attr::root(0o644))?;
        }
    }
    if is_new {
        root.write(&format!("{CLOUD_DIR}/data/instance-id"), format!("{}\n", instance.instance_id), Attr::root(0o644))?;
    }
    let class = format!("{}: {}\n", instance.class, description(instance));
    let of_instance = class_file(instance);
    let before = root.text(&of_instance);
    if before != class {
        let previous = if before.is_empty() { class.clone() } else { before };
        root.write(&format!("{CLOUD_DIR}/data/{PREVIOUS_CLASS}"), previous, Attr::root(0o644))?;
        root.write(&of_instance, class, Attr::root(0o644))?;
    }
    let cached = instance.clone();
    let cache =
        Content::made(move |out| cache::write(&cached, out)).context(|| "failed to write the cached datasource")?;
    root.write(&format!("{folder}/{CACHE}"), cache, Attr::root(0o600))?;
    let mut raw = |name: &str, bytes: Bytes| root.write(&format!("{folder}/{name}"), bytes, Attr::root(0o600));
    raw("user-data.txt", instance.user_data.clone().unwrap_or_default())?;
    raw("vendor-data.txt", raw_vendor_data(&instance.vendor_data))?;
    raw("vendor-data2.txt", raw_vendor_data(&instance.vendor_data2))?;
    root.write(&format!("{RUN_DIR}/.instance-id"), format!("{}\n", instance.instance_id), Attr::root(0o644))
}

/// Records that the last boot had the same datasource: scripts compare data/previous-datasource with instance/datasource.
///
/// # Errors
/// A path cannot be resolved.
pub fn note_same(root: &mut Root) -> Result<()> {
    let class = root.text(&format!("{CLOUD_DIR}/instance/datasource"));
    root.write(&format!("{CLOUD_DIR}/data/{PREVIOUS_CLASS}"), class, Attr::root(0o644))
}

/// Whether the final stage of the last boot has ended, and [`note_same`] has nothing to record.
pub fn is_finished(root: &Root, instance: &Instance) -> bool {
    root.exists(&format!("{}/{BOOT_FINISHED}", folder(instance)))
        && root.text(&format!("{CLOUD_DIR}/data/{PREVIOUS_CLASS}")) == root.text(&class_file(instance))
}

/// Vendor-data as cloud-init stores it: the document, or a list of them as JSON; without what is for other
/// programs.
fn raw_vendor_data(data: &Value) -> Bytes {
    match vendor_document(data) {
        Value::String(text) => text.as_bytes().into(),
        Value::Bytes(bytes) => bytes.clone(),
        list @ Value::List(items) if !items.is_empty() => json::to_string(list).into_bytes().into(),
        _ => Bytes::default(),
    }
}

/// The datasource's description in status.json and the final message: `DataSourceConfigDrive
/// [net,ver=2][source=/dev/sr0]`.
pub fn description(instance: &Instance) -> String {
    format!("{} {}", instance.class, instance.described).trim_end().to_owned()
}

/// The path of the semaphore for `name`. None for what runs always.
fn mark_path(instance: &Instance, name: &str, frequency: Frequency) -> Option<String> {
    match frequency {
        Frequency::Always => None,
        Frequency::Instance => Some(format!("{}/sem/{name}", folder(instance))),
        Frequency::Once => Some(format!("{CLOUD_DIR}/sem/{name}.once")),
    }
}

/// Whether `name` (`config_write_files`, `consume_data`) has been done at its frequency.
pub fn is_done(root: &Root, instance: &Instance, name: &str, frequency: Frequency) -> bool {
    mark_path(instance, name, frequency).is_some_and(|path| root.exists(&path))
}

/// Marks `name` as done. As in cloud-init this happens before it runs, so that a failure is not repeated.
///
/// # Errors
/// A path cannot be resolved.
pub fn mark_done(root: &mut Root, instance: &Instance, name: &str, frequency: Frequency) -> Result<()> {
    let Some(path) = mark_path(instance, name, frequency) else { return Ok(()) };
    let content = format!("{}: {}\n", std::process::id(), clock::timestamp(SystemTime::now(), ","));
    root.write(&path, content, Attr::root(0o644))
}

/// Removes the mark of [`mark_done`]: it is to be done again.
///
/// # Errors
/// A path cannot be resolved.
pub fn mark_due(root: &mut Root, instance: &Instance, name: &str, frequency: Frequency) -> Result<()> {
    mark_path(instance, name, frequency).map_or(Ok(()), |path| root.remove(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn finds_instance_again_and_new_one_remembers_old() {
        let dir = TempDir::new("state");
        let mut root = dir.root(Use::Tree);
        let mut instance =
            Instance { instance_id: "i-1".into(), class: "DataSourceNoCloud".into(), ..Instance::default() };
        assert!(cached(&root).is_none());
        store(&mut root, &instance).unwrap();
        mark_done(&mut root, &instance, "config_x", Frequency::Instance).unwrap();
        mark_done(&mut root, &instance, "config_y", Frequency::Once).unwrap();
        assert_eq!(root.commit(), []);
        assert_eq!(cached(&root).unwrap(), instance);
        assert!(is_done(&root, &instance, "config_x", Frequency::Instance));
        let cache = root.stat("/var/lib/cloud/instances/i-1/datasource.json").unwrap();
        assert_eq!(cache.attr.mode, 0o600);

        instance.class = "DataSourceOpenStack".into();
        store(&mut root, &instance).unwrap();
        let [previous, now] = ["data/previous-datasource", "instance/datasource"]
            .map(|file| root.text(&format!("/var/lib/cloud/{file}")).trim().to_owned());
        assert_eq!(
            (previous.as_str(), now.as_str()),
            ("DataSourceNoCloud: DataSourceNoCloud", "DataSourceOpenStack: DataSourceOpenStack")
        );

        instance.instance_id = "i-2".into();
        store(&mut root, &instance).unwrap();
        assert_eq!(root.text("/var/lib/cloud/data/previous-instance-id"), "i-1\n");
        note_same(&mut root).unwrap();
        assert_eq!(root.text("/var/lib/cloud/data/previous-datasource"), "DataSourceOpenStack: DataSourceOpenStack\n");
        assert_eq!(root.text("/run/cloud-init/.instance-id"), "i-2\n");
        assert!(!is_done(&root, &instance, "config_x", Frequency::Instance));
        assert!(is_done(&root, &instance, "config_y", Frequency::Once));
        assert!(!is_done(&root, &instance, "config_z", Frequency::Always));
    }

    #[test]
    fn second_boot_notes_last_instance_without_disk_change() {
        let dir = TempDir::new("state-previous");
        let instance = Instance { instance_id: "i-1".into(), class: "A".into(), ..Instance::default() };
        let previous = "/var/lib/cloud/data/previous-instance-id";
        let boot = |instance: &Instance, before: &str| {
            let mut root = dir.root(Use::NewRoot);
            root.remove("/run/cloud-init").unwrap();
            store(&mut root, instance).unwrap();
            root.drop_unchanged();
            let changes = root.has_changes_on_disk();
            // Stored again, as by a later stage.
            store(&mut root, instance).unwrap();
            assert_eq!(root.commit(), []);
            assert_eq!(root.text(previous), format!("{before}\n"));
            changes
        };
        assert!(boot(&instance, NO_PREVIOUS));
        assert!(!boot(&instance, "i-1"));
        assert!(!boot(&instance, "i-1"));
        let other = Instance { instance_id: "i-2".into(), ..instance.clone() };
        assert!(boot(&other, "i-1"));
        assert!(!boot(&other, "i-2"));
        // A tree has nothing of this boot.
        let mut tree = dir.root(Use::Tree);
        store(&mut tree, &instance).unwrap();
        assert_eq!(tree.read_link(previous), None);
        assert_eq!(tree.text(previous), "i-2\n");
        assert_eq!(tree.commit(), []);
        // As another program left it.
        assert!(boot(&instance, "i-1"));
        assert!(!boot(&instance, "i-1"));
    }

    #[test]
    fn vendor_data_is_stored_as_cloud_init_does() {
        for (data, stored) in [
            (r##"{"cloud-init": "#cloud-config\n{}", "nova": {"a": 1}}"##, "#cloud-config\n{}"),
            (r#"{"static": {"a": 1}}"#, ""),
            ("{}", ""),
            ("null", ""),
            ("[]", ""),
            (r#""text""#, "text"),
            (r#"{"cloud-init": ["a", "b"]}"#, r#"["a","b"]"#),
            (r#"{"cloud-init": {"cloud-init": "a"}}"#, ""),
            ("5", ""),
        ] {
            let data = json::parse("t", data.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(raw_vendor_data(&data).to_vec()).unwrap(), stored, "{data:?}");
        }
        assert_eq!(*raw_vendor_data(&Value::Bytes(vec![31, 139].into())), [31, 139]);
    }
}
