//! What may happen to a machine between two runs, besides what its documents say: a clock that goes back, a quota.

use crate::full_disk::result;
use crate::tree::Tree;
use crate::{may_chown, prepivot};
use prepivot::base::testing::{TempDir, skip};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

fn case() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/everything")
}

/// A machine whose clock has no battery: what the last boot wrote is from the future, and another instance begins.
#[test]
fn clock_that_goes_back_changes_no_result() {
    if !may_chown() {
        return;
    }
    let dir = TempDir::new("clock");
    let second = dir.0.join("second");
    fs::create_dir(&second).unwrap();
    let user_data = fs::read(case().join("seed/user-data")).unwrap();
    fs::write(second.join("user-data"), user_data).unwrap();
    fs::write(second.join("meta-data"), "instance-id: i-later\nlocal-hostname: later\n").unwrap();
    let ended = |name: &str, ahead: Option<Duration>| {
        let tree = Tree::of_case(&case(), &dir.0.join(name));
        assert_eq!(prepivot("apply", tree.path(), &case().join("seed"), &[]).code, 0);
        for path in ahead.iter().flat_map(|_| tree.entries().into_keys()) {
            let path = tree.path().join(path.trim_start_matches('/'));
            if path.symlink_metadata().is_ok_and(|m| m.is_file() || m.is_dir()) {
                let time = SystemTime::now() + ahead.unwrap_or_default();
                File::open(path).unwrap().set_modified(time).unwrap();
            }
        }
        let output = prepivot("apply", tree.path(), &second, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        result(&tree)
    };
    let years = Duration::from_secs(50 * 365 * 86_400);
    let (plain, from_future) = (ended("plain", None), ended("ahead", Some(years)));
    assert!(plain.keys().any(|path| path.contains("i-later")));
    for path in plain.keys().chain(from_future.keys()) {
        assert_eq!(plain.get(path), from_future.get(path), "{path}");
    }
}

/// A btrfs with a quota for the root's subvolume, unmounted in the end.
struct Limited(PathBuf);

impl Limited {
    /// None, counted as skipped, if there can be none.
    fn new(dir: &Path) -> Option<Limited> {
        let (image, point) = (dir.join("image"), dir.join("point"));
        fs::create_dir(&point).unwrap();
        File::create(&image).unwrap().set_len(200 << 20).unwrap();
        let (image, place) = (image.to_str().unwrap(), point.to_str().unwrap());
        run(&["mkfs.btrfs", "-q", image])?;
        run(&["mount", "-o", "loop", image, place])?;
        let limited = Limited(point.clone());
        run(&["btrfs", "quota", "enable", place])?;
        run(&["btrfs", "subvolume", "create", point.join("root").to_str().unwrap()])?;
        Some(limited)
    }

    fn limit(&self, most: &str) {
        rustix::fs::sync();
        run(&["btrfs", "qgroup", "limit", most, self.0.join("root").to_str().unwrap()]).expect("a limit");
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn run(command: &[&str]) -> Option<()> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let done = output.as_ref().is_ok_and(|o| o.status.success());
    if !done {
        skip(format!("{}: {output:?}", command.join(" ")));
    }
    done.then_some(())
}

/// A user of passwd can log in, and once the quota is lifted the result is that of an uninterrupted run.
#[test]
fn what_a_quota_refused_is_provisioned_later() {
    if !may_chown() {
        return;
    }
    let seed = case().join("seed");
    let mut expected = None;
    let mut refused = 0;
    for limit in [None, Some("64K"), Some("400K"), Some("600K"), Some("900K")] {
        let dir = TempDir::new("quota");
        let Some(limited) = Limited::new(&dir.0) else { return };
        let tree = Tree::of_case(&case(), &limited.0);
        if let Some(limit) = limit {
            limited.limit(limit);
            refused += u32::from(prepivot("apply", tree.path(), &seed, &[]).code != 0);
            let text = |path: &str| fs::read_to_string(tree.path().join(path)).unwrap();
            if text("etc/passwd").contains("\nalice:") {
                assert!(text("etc/shadow").contains("\nalice:"), "{limit}");
                assert!(tree.path().join("home/alice/.ssh/authorized_keys").exists(), "{limit}");
            }
            limited.limit("none");
        }
        let output = prepivot("apply", tree.path(), &seed, &[]);
        assert_eq!(output.code, 0, "{limit:?}: {}", output.stderr);
        let found = result(&tree);
        let expected = expected.get_or_insert_with(|| found.clone());
        for path in found.keys().chain(expected.keys()) {
            assert_eq!(found.get(path), expected.get(path), "{limit:?}: {path}");
        }
    }
    assert!(refused > 1, "{refused}");
}
