//! The kernel's reading compared with the readers' on the same images, and folders.

use super::*;
use crate::drive::images::{self, config_drive, hard_drive, same, soon, tool};
use crate::drive::open;
use std::fs;
use std::os::unix::fs::symlink;

/// Mounts an image as the kernel does, through a loop device, and compares with what is read without it.
fn both_ways(image: &str, kind: &str) {
    let Some(node) = images::attach(image) else { return };
    let mounted = read(Path::new(&node), kind, soon());
    let opened = open(Path::new(&node), soon());
    images::detach(&node);
    let without = open(Path::new(image), soon()).unwrap();
    match mounted {
        Ok(mounted) => assert_eq!(mounted, without, "the kernel and the reader give the same"),
        Err(e) => crate::base::testing::skip(format!("the kernel can't mount {kind} here: {e}")),
    }
    // With a driver or without one.
    assert_eq!(opened.unwrap(), without);
    let left = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!left.contains(&node), "{node} is still mounted");
}

/// Removes the folder of the mount points at the end, if nothing else is in it: the machine that tests keeps none.
struct Emptied;

impl Drop for Emptied {
    fn drop(&mut self) {
        let _ = fs::remove_dir(MOUNTS);
    }
}

#[test]
fn the_kernel_and_the_readers_give_the_same() {
    let _emptied = Emptied;
    let mut input = hard_drive();
    for options in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext2"]] {
        let Some((_dir, image)) = images::ext(&input, 24, options) else { return };
        both_ways(&image, options[1]);
    }
    for options in [images::NOVA, &["-r"], &["-J", "-joliet-long"], &[]] {
        let Some((_dir, image)) = images::iso(&input, options) else { return };
        both_ways(&image, "iso9660");
    }
    let (_dir, folder, image) = images::source("links", &input);
    fs::create_dir_all(folder.join("1/2/3/4/5/6/7/8/9/10")).unwrap();
    fs::write(folder.join("1/2/3/4/5/6/7/8/9/10/moved"), "moved").unwrap();
    let long = format!("{}UPPER", "./".repeat(150));
    for (name, target) in [("openstack/newest", "2018-08-27"), ("out", "/etc/passwd"), ("names/long", &long)] {
        symlink(target, folder.join(name)).unwrap();
    }
    if tool("genisoimage", &["-quiet", "-r", "-J", "-o", &image, folder.to_str().unwrap()]).is_some() {
        both_ways(&image, "iso9660");
    }
    input.remove("names/two..dots");
    for (megabytes, bits) in [(8, "12"), (64, "16"), (300, "32")] {
        let Some((_dir, image)) = images::fat(&input, megabytes, &["-F", bits]) else { return };
        both_ways(&image, "vfat");
    }
}

#[test]
fn folders_are_drives_too() {
    let (dir, folder, _) = images::source("folder", &config_drive());
    same(&open(&folder, soon()).unwrap(), &config_drive());
    symlink("2018-08-27", folder.join("openstack/newest")).unwrap();
    symlink("/etc/passwd", folder.join("passwd")).unwrap();
    symlink("../../..", folder.join("openstack/out")).unwrap();
    tool("mkfifo", &[folder.join("pipe").to_str().unwrap()]).unwrap();
    let files = open(&folder, soon()).unwrap();
    assert_eq!(files.get("openstack/newest/meta_data.json"), files.get("openstack/2018-08-27/meta_data.json"));
    assert_eq!((files.get("passwd"), files.get("openstack/out/etc/passwd")), (None, None));
    assert_eq!(files.notes(), ["left out /pipe: a special file"]);
    drop(dir);
}

#[test]
fn what_is_no_drive_says_why() {
    let (dir, _, image) = images::source("none", &config_drive());
    fs::write(&image, [0; 4096]).unwrap();
    let error = |path: &Path| open(path, soon()).unwrap_err().to_string();
    assert_eq!(error(Path::new(&image)), format!("failed to read {image}: there is no filesystem on it"));
    let missing = dir.0.join("missing");
    let expected = format!("failed to read {}: No such file or directory (os error 2)", missing.display());
    assert_eq!(error(&missing), expected);
    assert!(error(Path::new("/dev/null")).contains("no block device, image file or folder"));
    fs::write(&image, [&b"hsqs"[..], &[0; 4096]].concat()).unwrap();
    assert!(error(Path::new(&image)).contains("only the kernel can read squashfs"));
}

#[test]
fn the_mounts_folder_must_be_private() {
    let dir = crate::base::testing::TempDir::new("private");
    let path = dir.0.join("mounts");
    private(&path).unwrap();
    private(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(private(&path).unwrap_err().to_string().contains("mode 0700"));
    let link = dir.0.join("link");
    symlink("mounts", &link).unwrap();
    assert!(private(&link).is_err());
}
