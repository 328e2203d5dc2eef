//! Compared with blkid on real images, and a few made by hand if there is no tool.

use super::*;
use crate::drive::images::{self, Input, NOVA, config_drive, tool};
use std::fs;
use std::fs::File;

/// The values of `blkid` for an image: TYPE, LABEL, LABEL_FATBOOT, UUID.
fn blkid(image: &str) -> Option<Superblock> {
    let text = tool("blkid", &["-p", "-o", "export", image])?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(String::from);
    let kind = value("TYPE")?;
    let kind =
        SIGNATURES.iter().map(|s| s.kind).chain(["iso9660", "vfat", "ext2", "ext3", "ext4"]).find(|k| *k == kind)?;
    Some(Superblock { kind, label: value("LABEL"), second_label: value("LABEL_FATBOOT"), uuid: value("UUID") })
}

/// Asserts that an image is described as blkid describes it. False if there is no blkid.
fn like_blkid(image: &str) -> bool {
    let Some(mut expected) = blkid(image) else { return false };
    let mut found = probe(&File::open(image).unwrap()).unwrap().expect("a filesystem is recognised");
    // blkid writes a backslash before what a shell would take for its own.
    for label in [&mut expected.label, &mut expected.second_label].into_iter().flatten() {
        *label = label.replace('\\', "");
    }
    if found.kind != "vfat" {
        found.second_label = None;
    }
    assert_eq!(found, expected);
    true
}

#[test]
fn iso_labels_are_like_blkids() {
    let long = "a label that is longer than 16";
    let options: [&[&str]; 4] = [NOVA, &["-V", "cidata", "-J", "-r"], &["-V", long, "-J"], &["-V", "CONFIG-2"]];
    for options in options {
        let Some((_dir, image)) = images::iso(&config_drive(), options) else { return };
        println!("{options:?}");
        if !like_blkid(&image) {
            return;
        }
    }
    let Some((_dir, image)) = images::iso(&config_drive(), NOVA) else { return };
    let found = probe(&File::open(image).unwrap()).unwrap().unwrap();
    assert_eq!((found.kind, found.label.as_deref()), ("iso9660", Some("config-2")));
    let Some((_dir, image)) = images::iso(&config_drive(), &["-V", "ключ", "-J"]) else { return };
    assert_eq!(probe(&File::open(image).unwrap()).unwrap().unwrap().label.as_deref(), Some("ключ"));
    assert!(found.is_labelled("CONFIG-2") && found.is_labelled("config-2") && !found.is_labelled("config"));
}

#[test]
fn fat_labels_are_like_blkids() {
    for (megabytes, bits) in [(4, "12"), (64, "16"), (300, "32")] {
        for label in [&["-n", "CIDATA"][..], &["-n", "config-2"], &["-i", "1234abcd"], &["-n", "A B"]] {
            let options = [&["-F", bits], label].concat();
            let Some((_dir, image)) = images::fat(&Input::new(), megabytes, &options) else { return };
            println!("{options:?}");
            if !like_blkid(&image) {
                return;
            }
        }
    }
    // A label in the root directory that is beyond the first read, and not the boot sector's.
    let Some((_dir, image)) = images::fat(&config_drive(), 512, &["-F", "16", "-n", "OLD"]) else { return };
    let Some(_) = tool("mlabel", &["-i", &image, "::cidata"]) else { return };
    like_blkid(&image);
    let found = probe(&File::open(&image).unwrap()).unwrap().unwrap();
    assert!(found.is_labelled("cidata"), "{found:?}");
}

#[test]
fn the_others_are_like_blkids() {
    for options in [&["-t", "ext2"][..], &["-t", "ext3", "-L", "root"], &["-t", "ext4", "-L", "config-2"]] {
        let Some((_dir, image)) = images::ext(&config_drive(), 8, options) else { return };
        like_blkid(&image);
    }
    let (_dir, folder, image) = images::source("others", &config_drive());
    let folder = folder.to_str().unwrap();
    let fresh = |megabytes: u64| fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    let others: [(&str, u64, &[&str]); 8] = [
        ("mkswap", 8, &["-q", "-L", "swap one", &image]),
        ("mkswap", 8, &["-q", "-p", "65536", &image]),
        ("mkfs.xfs", 400, &["-q", "-f", "-L", "data", &image]),
        ("mkfs.btrfs", 200, &["-q", "-f", "-L", "a long label for btrfs", &image]),
        ("mkfs.exfat", 16, &["-L", "stick", &image]),
        ("mkfs.f2fs", 100, &["-q", "-f", &image]),
        ("mkfs.ntfs", 16, &["-q", "-F", "-L", "win", &image]),
        ("mke2fs", 8, &["-q", "-F", "-O", "journal_dev", &image]),
    ];
    for (name, megabytes, args) in others {
        fresh(megabytes);
        if tool(name, args).is_some() {
            println!("{name}");
            let found = probe(&File::open(&image).unwrap()).unwrap().expect(name);
            if let Some(mut expected) = blkid(&image) {
                expected.label = expected.label.map(|label| label.replace('\\', ""));
                assert_eq!((found.kind, &found.uuid), (expected.kind, &expected.uuid));
                assert!(found.label == expected.label || matches!(found.kind, "exfat" | "ntfs"), "{found:?}");
            }
        }
    }
    for (name, args) in [("mksquashfs", [folder, &image, "-noappend"]), ("mkfs.erofs", ["-T0", &image, folder])] {
        let _ = fs::remove_file(&image);
        if tool(name, &args).is_some() {
            println!("{name}");
            assert!(probe(&File::open(&image).unwrap()).unwrap().is_some(), "{name}");
        }
    }
}

#[test]
fn the_table_reads_every_kind() {
    for signature in SIGNATURES {
        let mut device = vec![0; START];
        let mut put = |at: usize, bytes: &[u8]| device[at..at + bytes.len()].copy_from_slice(bytes);
        put(signature.at, signature.magic);
        if let Some(at) = signature.uuid {
            put(at, &[0x1f; 16]);
        }
        if let Some((at, size)) = signature.label {
            put(at, &b"name"[..4.min(size)]);
        }
        let found = probe(&&device[..]).unwrap().unwrap();
        assert_eq!(found.kind, signature.kind);
        assert_eq!(found.label.as_deref(), signature.label.map(|_| "name"), "{}", signature.kind);
        let uuid = "1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f";
        assert_eq!(found.uuid.as_deref().filter(|u| u.len() == 36), signature.uuid.map(|_| uuid), "{}", signature.kind);
    }
}

#[test]
fn what_is_nearest_the_start_was_written_last() {
    let Some((_dir, image)) = images::iso(&config_drive(), NOVA) else { return };
    let mut device = fs::read(image).unwrap();
    device[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    device[1024 + 120..1024 + 124].copy_from_slice(b"root");
    let found = probe(&&device[..]).unwrap().unwrap();
    assert_eq!((found.kind, found.label.as_deref()), ("ext2", Some("root")));
}

#[test]
fn small_and_empty_devices_hold_nothing() {
    for size in [0, 1, 511, 512, 1024, 4096, 40_000, START] {
        assert_eq!(probe(&&vec![0; size][..]).unwrap(), None, "{size}");
        assert_eq!(probe(&&vec![0xff; size][..]).unwrap(), None, "{size}");
    }
}

#[test]
fn a_partition_table_is_no_filesystem() {
    let (_dir, _, image) = images::source("table", &Input::new());
    let Some(_) = tool("sfdisk", &["--version"]) else { return };
    for label in ["dos", "gpt"] {
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let script = format!("printf 'label: {label}\\nsize=8M\\n' | sfdisk -q {image}");
        tool("sh", &["-c", &script]).unwrap();
        assert_eq!(probe(&File::open(&image).unwrap()).unwrap(), None, "{label}");
    }
}

#[test]
fn survives_any_damage() {
    let mut starts = Vec::new();
    starts.extend(images::iso(&config_drive(), NOVA).map(|(_dir, image)| fs::read(image).unwrap()));
    starts.extend(images::fat(&config_drive(), 4, &["-F", "12"]).map(|(_dir, image)| fs::read(image).unwrap()));
    starts.extend(images::ext(&config_drive(), 2, &["-t", "ext4"]).map(|(_dir, image)| fs::read(image).unwrap()));
    for start in &mut starts {
        start.truncate(256 * 1024);
        let whole = probe(&&start[..]).unwrap().expect("a filesystem is recognised");
        let mut same = 0;
        crate::base::testing::mutations(start, 3000, |bytes| {
            let found = probe(&bytes).expect("damage is no failure to read");
            let kinds = ["iso9660", "udf", "vfat", "ext2", "ext3", "ext4", "ext4dev", "jbd"];
            assert!(found.as_ref().is_none_or(|found| kinds.contains(&found.kind)), "{found:?}");
            same += usize::from(found.as_ref() == Some(&whole));
        });
        assert!(same > 1000, "most damage is elsewhere: {same}");
    }
}
