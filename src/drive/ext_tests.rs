//! Real images made by mke2fs, in each of its layouts.

use super::*;
use crate::drive::files::Files;
use crate::drive::images::{self, Input, config_drive, hard_drive, pattern, same, soon};
use crate::drive::label::START;
use crate::drive::tree;
use std::fs;

fn read(image: &[u8]) -> Result<Files> {
    tree::copy(&Ext::open(image, image.get(..START).unwrap_or(image))?, soon())
}

#[test]
fn all_layouts_give_what_was_put_in() {
    let mut input = hard_drive();
    // Past the direct blocks, one map and two of ext2: 12 + 256 + some of 256 × 256 blocks of 1 KiB.
    input.insert("large".into(), pattern(700_000));
    let mut sparse = vec![0; 2_000_000];
    sparse[1_500_000..].copy_from_slice(&pattern(500_000));
    input.insert("sparse".into(), sparse);
    for options in [
        &["-t", "ext4", "-L", "config-2"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^64bit"],
        &["-t", "ext4", "-O", "64bit,metadata_csum,flex_bg", "-I", "512"],
        &["-t", "ext3"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext2", "-b", "4096", "-r", "0"],
    ] {
        println!("{options:?}");
        let Some((_dir, image)) = images::ext(&input, 24, options) else { return };
        same(&read(&fs::read(image).unwrap()).unwrap(), &input);
    }
}

#[test]
fn symlinks_long_and_short() {
    let (_dir, folder, image) = images::source("ext-links", &config_drive());
    let long = format!("{}latest", "./".repeat(40));
    for (name, target) in [("newest", "2018-08-27"), ("long", &long), ("out", "/etc")] {
        std::os::unix::fs::symlink(target, folder.join("openstack").join(name)).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let Some(_) = images::tool("mke2fs", &["-q", "-F", "-t", "ext4", "-d", folder.to_str().unwrap(), &image]) else {
        return;
    };
    let files = read(&fs::read(image).unwrap()).unwrap();
    let contents = files.get("openstack/2018-08-27/meta_data.json");
    assert!(contents.is_some());
    assert_eq!(files.get("openstack/newest/meta_data.json"), contents);
    assert_eq!(files.get("openstack/long/meta_data.json"), contents);
    assert_eq!(files.get("openstack/out/passwd"), None);
}

#[test]
fn what_needs_the_kernel_says_so() {
    let Some((_dir, image)) = images::ext(&config_drive(), 8, &["-t", "ext4"]) else { return };
    let mut image = fs::read(image).unwrap();
    image[SUPERBLOCK + 96] |= RECOVER as u8;
    assert!(read(&image).unwrap_err().to_string().contains("e2fsck"));
    image[SUPERBLOCK + 96] ^= RECOVER as u8 | 0x10;
    assert!(read(&image).unwrap_err().to_string().contains("features 0x10"));
    assert!(read(&[0; 4096]).unwrap_err().to_string().contains("no ext2"));
}

#[test]
fn survives_any_damage() {
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let Some((_dir, image)) = images::ext(&config_drive(), 2, options) else { return };
        let image = fs::read(image).unwrap();
        let mut good = 0;
        crate::base::testing::mutations(&image, 3000, |bytes| {
            good += usize::from(images::is_read_or_refused(read(bytes)))
        });
        assert!(good > 1000, "most damage leaves something to read: {good}");
    }
}

#[test]
fn overlapping_blocks_are_refused() {
    let Some((_dir, image)) = images::ext(&Input::from([("f".to_string(), pattern(9000))]), 2, &["-t", "ext2"]) else {
        return;
    };
    let image = fs::read(image).unwrap();
    let ext = Ext::open(&image[..], &image[..START]).unwrap();
    let mut contents = Contents { ext: &ext, bytes: vec![0; 2048], maps: 1, filled: 0 };
    contents.fill(0, 2, 1).unwrap();
    contents.fill(0, 2, 1).unwrap();
    assert!(contents.fill(0, 2, 1).unwrap_err().to_string().contains("overlap"));
}
