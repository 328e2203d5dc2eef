//! `system_info: paths: {cloud_dir, run_dir}`: other places for cloud-init's folders (cloud-init's
//! documentation, "Base configuration").
//!
//! Everything else, including units and users' scripts, uses the usual paths: they become symbolic links.

use super::boot::Boot;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::state::{CLOUD_DIR, RUN_DIR};
use crate::root::{Attr, Root, is_on_disk};

/// Replaces the usual folders with links if the configuration sets others. Called at the start of a boot,
/// before seeds and state are read. A place that cannot be used is a warning, and the usual one is kept.
pub fn link(root: &mut Root, boot: &mut Boot) {
    for (key, place) in [("cloud_dir", CLOUD_DIR), ("run_dir", RUN_DIR)] {
        let asked = boot.image.config.at(&["system_info", "paths", key]).and_then(Value::as_str).unwrap_or(place);
        let asked = asked.trim_end_matches('/').to_owned();
        if asked != place
            && let Err(e) = link_one(root, place, &asked)
        {
            boot.report.warn(format_args!("system_info.paths.{key}: {place} is used: {e}"));
        }
    }
}

fn link_one(root: &mut Root, place: &str, asked: &str) -> Result<()> {
    if root.read_link(place).is_some_and(|target| target == asked) {
        return Ok(());
    }
    let fail = |why: &str| Err(Error::new(why));
    let is_plain = asked.starts_with('/') && asked.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    let is_in = |folder: &str| asked.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if place == RUN_DIR {
        // Links from there to the state are relative, so that its depth has to be the same.
        if !is_plain || !is_in("/run") || asked.matches('/').count() != 2 || is_in(crate::root::run_dir::DIR) {
            return fail("expected a folder of its own in /run");
        }
        if !root.has_run() {
            return Ok(());
        }
    } else if !is_plain || is_in(place) || !is_on_disk(asked) {
        return fail("expected the absolute path of a folder on the disk");
    }
    if root.lstat(place).is_some() {
        return fail("it is there already: remove it, and what is wanted of it goes to the new folder");
    }
    if [place, asked].iter().any(|path| root.is_kept_for_later(path)) {
        return fail("its file system is mounted after the pivot, where the next boot's initramfs cannot read it");
    }
    root.mkdir(asked, Attr::root(0o755))?;
    root.symlink(place, asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::{Instance, state};
    use crate::machine::Machine;
    use crate::root::Use;
    use crate::stage::commit;
    use crate::stage::testing;

    /// The warnings of a root with these paths.
    fn linked(root: &mut Root, paths: &str) -> Vec<String> {
        let machine = Machine::default();
        let mut boot = testing::boot(root, &machine);
        boot.image.config = yaml::parse("t", &format!("system_info: {{paths: {paths}}}")).unwrap();
        link(root, &mut boot);
        commit(root, &boot.report);
        boot.errors_and_warnings()
    }

    #[test]
    fn the_state_is_where_the_image_wants_it() {
        let dir = TempDir::new("places");
        let mut root = dir.root(Use::NewRoot);
        // A seed that the image has in the new folder.
        root.write("/srv/cloud/seed/nocloud/meta-data", "instance-id: x\n", Attr::root(0o644)).unwrap();
        for _ in 0..2 {
            assert_eq!(linked(&mut root, "{cloud_dir: /srv/cloud/, run_dir: /run/ci}"), [""; 0]);
        }
        assert_eq!(root.text("/var/lib/cloud/seed/nocloud/meta-data"), "instance-id: x\n");
        let instance = Instance { instance_id: "i-1".into(), ..Instance::default() };
        state::store(&mut root, &instance).unwrap();
        assert_eq!(root.commit(), []);
        assert_eq!(std::fs::read_to_string(dir.0.join("srv/cloud/data/instance-id")).unwrap(), "i-1\n");
        assert_eq!(root.text("/run/ci/.instance-id"), "i-1\n");
        assert_eq!(root.read_link("/run/cloud-init").as_deref(), Some("/run/ci"));
        let mut again = dir.root(Use::NewRoot);
        assert_eq!(state::last_id(&again).as_deref(), Some("i-1"));
        assert_eq!(linked(&mut again, "{cloud_dir: /srv/cloud, run_dir: /run/ci}"), [""; 0]);
    }

    #[test]
    fn what_cannot_be_the_place_is_a_warning() {
        for paths in ["cloud_dir: srv", "cloud_dir: /var/lib/cloud/x", "cloud_dir: /run/x", "cloud_dir: /a/../b"] {
            let dir = TempDir::new("places-wrong");
            let mut root = dir.root(Use::NewRoot);
            let warnings = linked(&mut root, &format!("{{{paths}}}"));
            assert!(warnings.len() == 1 && warnings[0].contains("/var/lib/cloud is used: expected"), "{warnings:?}");
        }
        let dir = TempDir::new("places-there");
        let mut root = dir.root(Use::NewRoot);
        root.write("/var/lib/cloud/data/instance-id", "i\n", Attr::root(0o644)).unwrap();
        assert_eq!(root.commit(), []);
        let warnings = linked(&mut root, "{cloud_dir: /srv/cloud, run_dir: /srv/run}");
        assert!(warnings[0].contains("is there already") && warnings[1].contains("in /run"), "{warnings:?}");
    }
}
