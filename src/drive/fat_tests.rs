//! Real images made by mkfs.vfat and mtools, and hand-made changes to them.

use super::*;
use crate::drive::files::Files;
use crate::drive::images::{self, Input, config_drive, hard_drive, pattern, same, soon};
use crate::drive::tree;
use std::fs;

/// A size in MiB and options that make each width.
const WIDTHS: &[(u64, &[&str])] = &[
    (4, &["-F", "12", "-n", "config-2"]),
    (16, &["-F", "12", "-s", "16"]),
    (32, &["-F", "16", "-n", "CONFIG-2"]),
    (64, &["-F", "16", "-S", "2048"]),
    (64, &["-F", "32", "-s", "1", "-n", "CONFIG-2"]),
    (300, &["-F", "32", "-S", "4096", "-f", "1"]),
];

fn read(image: &[u8]) -> Result<Files> {
    tree::copy(&Fat::open(image, image)?, soon())
}

#[test]
fn all_widths_give_what_was_put_in() {
    for (megabytes, options) in WIDTHS {
        for mut input in [config_drive(), hard_drive()] {
            println!("{megabytes} MiB, {options:?}");
            // FAT has no such names.
            input.remove("names/two..dots");
            let Some((_dir, image)) = images::fat(&input, *megabytes, options) else { return };
            let image = fs::read(image).unwrap();
            let boot = BootSector::parse(&image).unwrap();
            let bits = match boot.width {
                Width::Fat12 => "12",
                Width::Fat16 => "16",
                Width::Fat32 => "32",
            };
            assert_eq!(bits, options[1]);
            same(&read(&image).unwrap(), &input);
        }
    }
}

#[test]
fn the_label_is_read_from_the_root_directory() {
    for (megabytes, options) in WIDTHS {
        let Some((_dir, image)) = images::fat(&Input::new(), *megabytes, options) else { return };
        let bytes = fs::read(&image).unwrap();
        let fat = Fat::open(&bytes[..], &bytes).unwrap();
        let expected = options.iter().skip_while(|o| **o != "-n").nth(1).map(|label| label.to_ascii_uppercase());
        let label = fat.label().unwrap().map(super::super::fat_names::label);
        assert_eq!(label.map(|label| label.to_ascii_uppercase()), expected, "{options:?}");
    }
    // A label that is set later is written to the first free entry, and the boot sector may lack it.
    let Some((_dir, image)) = images::fat(&config_drive(), 32, &["-F", "16"]) else { return };
    let Some(_) = images::tool("mlabel", &["-i", &image, "::CIDATA"]) else { return };
    let bytes = fs::read(&image).unwrap();
    assert_eq!(&Fat::open(&bytes[..], &bytes).unwrap().label().unwrap().unwrap(), b"CIDATA     ");
}

/// A FAT16 image with one file of several clusters: its bytes, and the offset of the file's entry.
fn one_file() -> Option<(Vec<u8>, usize)> {
    let input = Input::from([("FILE.BIN".to_string(), pattern(10_000)), ("OTHER.TXT".into(), vec![1])]);
    let (_dir, image) = images::fat(&input, 16, &["-F", "16", "-s", "4"])?;
    let image = fs::read(image).unwrap();
    let at = image.windows(11).position(|window| window == b"FILE    BIN").unwrap();
    Some((image, at))
}

#[test]
fn skips_looping_and_escaping_chains_with_a_note() {
    let Some((image, entry)) = one_file() else { return };
    let boot = BootSector::parse(&image).unwrap();
    let first = usize::from(le16(&image, entry + 26).unwrap());
    let link = boot.table as usize + first * 2;
    let with = |next: u16, size: u32| {
        let mut image = image.clone();
        image[link..link + 2].copy_from_slice(&next.to_le_bytes());
        image[entry + 28..entry + 32].copy_from_slice(&size.to_le_bytes());
        let files = read(&image).unwrap();
        assert_eq!(files.get("OTHER.TXT").unwrap(), [1], "the rest is read");
        (files.get("FILE.BIN").map(<[u8]>::len), files.notes().join(";"))
    };
    assert_eq!(with(first as u16 + 1, 10_000), (Some(10_000), String::new()));
    let (none, note) = with(first as u16, 32 << 20);
    assert!(none.is_none() && note.contains("loop"), "{note}");
    let (none, note) = with(0xfff0, 10_000);
    assert!(none.is_none() && note.contains("which is not one"), "{note}");
    let (none, note) = with(0xffff, 10_000);
    assert!(none.is_none() && note.contains("ends after 2048 of 10000 bytes"), "{note}");
}

/// Counts the bytes that are read.
struct Counting<'a>(&'a [u8], std::cell::Cell<usize>);

impl ReadAt for Counting<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read_at(offset, buf)?;
        self.1.set(self.1.get() + n);
        Ok(n)
    }
}

#[test]
fn directories_whose_chains_fail_late_are_charged() {
    const CLUSTER: usize = 64 << 10;
    const CLUSTERS: u32 = 32;
    const DATA: usize = 1024;
    let mut image = vec![0; DATA + CLUSTERS as usize * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    // FAT32 with one sector for the table, and a root directory of one cluster.
    let sectors = 2 + CLUSTERS * 128;
    put(11, &512u16.to_le_bytes());
    put(13, &[128, 1, 0, 1]);
    put(21, &[0xf8]);
    put(32, &sectors.to_le_bytes());
    put(36, &1u32.to_le_bytes());
    put(44, &2u32.to_le_bytes());
    put(510, &[0x55, 0xaa]);
    put(512 + 2 * 4, &0x0fff_ffffu32.to_le_bytes());
    // The last link of the chain of all other clusters leads nowhere.
    for cluster in 3..CLUSTERS + 2 {
        let next = if cluster == CLUSTERS + 1 { 1 } else { cluster + 1 };
        put(512 + cluster as usize * 4, &next.to_le_bytes());
    }
    for number in 0..100 {
        let at = DATA + number * ENTRY;
        put(at, format!("D{number:010}").as_bytes());
        put(at + 11, &[DIRECTORY]);
        put(at + 26, &3u16.to_le_bytes());
    }
    let counting = Counting(&image, std::cell::Cell::new(0));
    let files = tree::copy(&Fat::open(&counting, &image).unwrap(), soon()).unwrap();
    let notes = files.notes();
    assert!(notes[0].contains("cluster 1, which is not one"), "{}", notes[0]);
    assert!(notes.iter().any(|note| note.contains("all directories and names take more than")), "{notes:?}");
    assert!(counting.1.get() < 2 * tree::MAX_DIRECTORIES as usize, "{} bytes", counting.1.get());
}

#[test]
fn short_names_alone_are_found_in_any_case() {
    let Some((mut image, entry)) = one_file() else { return };
    image[entry..entry + 11].copy_from_slice(b"USERDATATXT");
    let files = read(&image).unwrap();
    assert_eq!(files.list(""), ["OTHER.TXT", "USERDATA.TXT"]);
    assert_eq!(files.get("userdata.txt").unwrap(), pattern(10_000));
    image[entry + 12] = 0x18;
    assert_eq!(read(&image).unwrap().list(""), ["OTHER.TXT", "userdata.txt"]);
}

#[test]
fn rejects_other_data_as_fat() {
    let mut record = vec![0x90; 512];
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    assert!(BootSector::parse(&record).is_none(), "a master boot record with code");
    assert!(BootSector::parse(&[0; 512]).is_none());
    assert!(BootSector::parse(&[]).is_none());
}

#[test]
fn survives_any_damage() {
    for (megabytes, options) in [WIDTHS[0], WIDTHS[2], WIDTHS[4]] {
        let Some((_dir, image)) = images::fat(&config_drive(), megabytes, options) else { return };
        let image = fs::read(image).unwrap();
        let mut good = 0;
        // Truncated, an image of zeros past its tables is the same again: the first 2 MiB hold all there is.
        let used = &image[..image.len().min(2 << 20)];
        crate::base::testing::mutations(used, 3000, |bytes| {
            good += usize::from(images::is_read_or_refused(read(bytes)))
        });
        assert!(good > 1000, "most damage leaves something to read: {good}");
    }
}
