//! A root without room for what is provisioned: a user is there as a whole or not at all, and once there is room the result is that
//! of an uninterrupted run.

use crate::tree::{Entry, Tree, describe};
use crate::{may_chown, prepivot};
use prepivot::base::testing::{TempDir, skip};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many KB are free, before the first run; ten times as many on btrfs. An uninterrupted one needs about 450, its journal included. Each third of
/// them on XFS and btrfs, where it takes longest.
const FREE: [u64; 18] = [0, 10, 20, 40, 60, 80, 100, 120, 150, 180, 210, 250, 300, 350, 400, 450, 500, 700];
/// The bytes that are filled block by block.
const LAST: u64 = 512 << 10;
/// The size of the root's file system. XFS and btrfs are made no smaller than the second.
const SIZE: u64 = 16 << 20;
const LARGER: u64 = 64 << 20;

/// A mounted file system, by its kind, unmounted in the end. That of the kind `inodes` has few inodes and many blocks.
struct Mounted(PathBuf, &'static str);

impl Mounted {
    /// None, counted as skipped, where it cannot be made or mounted.
    fn new(dir: &Path, kind: &'static str) -> Option<Mounted> {
        let (image, point) = (dir.join("image"), dir.join("point"));
        fs::create_dir(&point).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            let done = output.as_ref().is_ok_and(|o| o.status.success());
            if !done {
                skip(format!("{kind}: {program}: {output:?}"));
            }
            done
        };
        let (device, place) = (image.to_str().unwrap(), point.to_str().unwrap());
        let mounted = match kind {
            "tmpfs" | "inodes" => run("mount", &["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs", place]),
            _ => {
                let (size, options): (u64, &[&str]) = match kind {
                    "xfs" => (LARGER, &["--unsupported"]),
                    // Contents and what the file system keeps of its own share the room, so that both end at once.
                    "btrfs" => (LARGER, &["--mixed"]),
                    _ => (SIZE, &[]),
                };
                fs::File::create(&image).unwrap().set_len(size).unwrap();
                run(&format!("mkfs.{kind}"), &[options, &["-q", device]].concat())
                    && run("mount", &["-o", "loop", device, place])
            }
        };
        mounted.then_some(Mounted(point, kind))
    }

    fn remount(&self, inodes: u64) {
        let options = format!("remount,nr_inodes={inodes}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }

    /// Leaves this many KB free, or an inode for each four.
    fn fill(&self, free: u64) {
        if self.1 == "inodes" {
            let stat = statvfs(&self.0).unwrap();
            return self.remount(stat.f_files - stat.f_ffree + free / 4);
        }
        if self.1 == "btrfs" {
            return self.fill_copied(free * 10);
        }
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        let left = || statvfs(&self.0).map(|stat| stat.f_bfree * stat.f_frsize).unwrap().saturating_sub(free << 10);
        if self.1 == "xfs" {
            // XFS counts blocks when they are on the disk.
            let _ = fallocate(&file, FallocateFlags::empty(), 0, left().saturating_sub(LAST));
            file.sync_all().unwrap();
            file.seek(SeekFrom::End(0)).unwrap();
            while left() > 0 && file.write_all(&[1; 4096]).and_then(|()| file.sync_all()).is_ok() {}
            return;
        }
        while left() > 0 && file.write_all(&[1; 4096]).is_ok() {}
    }

    /// The same for a file system that copies on each write, which itself does not know what is free: the rest is taken while a file
    /// of this size is there.
    fn fill_copied(&self, free: u64) {
        let place = self.0.join("place");
        let kept = fs::File::create(&place).unwrap();
        if free > 0 {
            fallocate(&kept, FallocateFlags::empty(), 0, free << 10).unwrap();
        }
        kept.sync_all().unwrap();
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        for size in [1 << 20, 64 << 10, 4 << 10] {
            while file.write_all(&vec![1; size]).and_then(|()| file.sync_all()).is_ok() {}
        }
        drop((kept, fs::remove_file(place)));
        fs::File::open(&self.0).unwrap().sync_all().unwrap();
    }

    fn make_room(&self) {
        if self.1 == "inodes" {
            return self.remount(0);
        }
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What is there, without what each run has of its own: its times, its log.
pub fn result(tree: &Tree) -> BTreeMap<String, String> {
    let is_of_run = |path: &str| {
        path.contains("/sem/")
            || path.starts_with("/run/")
            || ["/var/log/cloud-init.log", "/var/lib/cloud/data/status.json", "/var/lib/cloud/data/result.json"]
                .contains(&path)
    };
    let one = |(path, entry): (String, Entry)| {
        let said = if is_of_run(&path) {
            format!("{:o} {}", entry.mode, entry.uid)
        } else {
            describe(&path, None, Some(&entry))
        };
        (path, said)
    };
    tree.entries().into_iter().map(one).collect()
}

/// Whether each user of passwd has what belongs to it: a line in shadow, and the skeleton's file in a home.
fn assert_users_are_whole(tree: &Tree, free: u64) {
    let text = |path: &str| fs::read_to_string(tree.path().join(path)).unwrap();
    let (passwd, shadow) = (text("etc/passwd"), text("etc/shadow"));
    for name in ["alice", "pat", "svc"] {
        let is_there = passwd.lines().any(|line| line.starts_with(&format!("{name}:")));
        assert_eq!(shadow.lines().any(|line| line.starts_with(&format!("{name}:"))), is_there, "{name}, {free} KB");
        if name != "svc" {
            let home = tree.path().join("home").join(name);
            assert_eq!(home.join(".profile").exists(), is_there, "{name}, {free} KB");
            assert_eq!(home.exists(), is_there, "{name}, {free} KB");
        }
    }
    let keys = tree.path().join("home/alice/.ssh/authorized_keys").exists();
    assert_eq!(keys, passwd.contains("\nalice:"), "{free} KB");
}

fn try_sizes(kind: &'static str) {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/everything");
    let seed = case.join("seed");
    let mut expected = None;
    let (mut whole, mut logins, mut nothing) = (0, 0, 0);
    // How much XFS and btrfs need for their own varies: the largest size is always among theirs.
    let is_tried =
        |index: &usize| !["xfs", "btrfs"].contains(&kind) || index.is_multiple_of(3) || index + 1 == FREE.len();
    let sizes = (0..FREE.len()).filter(is_tried).map(|index| Some(FREE[index]));
    for free in [None].into_iter().chain(sizes) {
        let dir = TempDir::new("full-disk");
        let Some(mounted) = Mounted::new(&dir.0, kind) else { return };
        let tree = Tree::of_case(&case, &mounted.0);
        let before = result(&tree);
        let Some(free) = free else {
            assert_eq!(prepivot("apply", tree.path(), &seed, &[]).code, 0);
            expected = Some(result(&tree));
            continue;
        };
        mounted.fill(free);
        let first = prepivot("apply", tree.path(), &seed, &[]);
        assert_users_are_whole(&tree, free);
        let left = fs::read_dir(tree.path().join("etc")).unwrap().map(|e| e.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".prepivot")).collect();
        assert!(left.is_empty(), "{free} KB: {left:?}");
        match (first.code, fs::read_to_string(tree.path().join("etc/passwd")).unwrap().contains("\nalice:")) {
            (0, true) => whole += 1,
            (_, true) => logins += 1,
            (code, false) => {
                assert_ne!(code, 0, "{free} KB");
                let is_same = |path: &str| before.get(path) == result(&tree).get(path);
                assert!(["/etc/hosts", "/etc/shadow", "/etc/fstab"].into_iter().all(is_same), "{free} KB");
                nothing += 1;
            }
        }
        mounted.make_room();
        let second = prepivot("apply", tree.path(), &seed, &[]);
        assert_eq!(second.code, 0, "{free} KB: {}", second.stderr);
        let (found, expected) = (result(&tree), expected.as_ref().unwrap());
        for path in found.keys().chain(expected.keys()) {
            assert_eq!(found.get(path), expected.get(path), "{kind}, {free} KB: {path}\n{}", first.stderr);
        }
    }
    println!("{kind}: {whole} whole, {logins} with what lets one log in, {nothing} unchanged");
    // What btrfs needs for its own is far more than what lets one log in.
    assert!(whole > 0 && (logins > 0 || kind == "btrfs") && nothing > 0);
}

#[test]
fn a_full_tmpfs_is_provisioned_later() {
    if may_chown() {
        try_sizes("tmpfs");
    }
}

#[test]
fn a_tmpfs_without_inodes_is_provisioned_later() {
    if may_chown() {
        try_sizes("inodes");
    }
}

#[test]
fn a_full_xfs_is_provisioned_later() {
    if may_chown() {
        try_sizes("xfs");
    }
}

#[test]
fn a_full_ext4_is_provisioned_later() {
    if may_chown() {
        try_sizes("ext4");
    }
}

#[test]
fn a_full_btrfs_is_provisioned_later() {
    if may_chown() {
        try_sizes("btrfs");
    }
}
