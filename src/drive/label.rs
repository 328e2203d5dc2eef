//! Identifies the content of a device by its superblock: type, label and UUID, with one bounded read.
//!
//! Types, labels and UUIDs are written as blkid writes them.

use super::bytes::{ReadAt, array, le16, le32, utf16_be};
use super::ext;
use super::fat::{BootSector, Fat};
use super::fat_names;
use super::iso9660::{self, Descriptors};
use crate::base::error::{Context, Result};

/// How many bytes at the start of a device are read: up to btrfs's superblock, which includes ISO 9660's
/// volume descriptors and swap's signature for any page size.
pub const START: usize = 68 * 1024;

/// The identity of a file system or other content of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Superblock {
    /// The type as mount(8) and blkid name it: `iso9660`, `vfat`, `ext4`, `swap`, …
    pub kind: &'static str,
    pub label: Option<String>,
    /// A second label: FAT's in the boot sector (LABEL_FATBOOT), or ISO 9660's other one besides Joliet's.
    pub second_label: Option<String>,
    /// The UUID in the type's format: 8-4-4-4-12 hexadecimal digits, FAT's XXXX-XXXX, ISO 9660's date.
    pub uuid: Option<String>,
}

impl Superblock {
    /// Whether either label is `wanted`, in any ASCII case.
    pub fn is_labelled(&self, wanted: &str) -> bool {
        [&self.label, &self.second_label].into_iter().flatten().any(|label| label.eq_ignore_ascii_case(wanted))
    }
}

/// Identifies the content of `device`. None if it is unknown.
///
/// # Errors
/// It cannot be read. A device that is shorter than what is read is no error.
pub fn probe<R: ReadAt>(device: &R) -> Result<Option<Superblock>> {
    Ok(read(device)?.1)
}

/// Like [`probe`], but also returns the bytes that were read, for a reader to continue from.
pub(super) fn read<R: ReadAt>(device: &R) -> Result<(Vec<u8>, Option<Superblock>)> {
    let mut start = vec![0; START];
    let read = device.read_at(0, &mut start).context(|| "failed to read its start")?;
    start.truncate(read);
    let superblock = match identify(&start) {
        Some((mut superblock, Some(fat))) => {
            // The actual label is in the root directory, which may be anywhere. If it cannot be read, the volume has no
            // label.
            let root = Fat::with(device, fat).label().ok().flatten();
            superblock.label = root.map(fat_names::label).filter(|label| !label.is_empty() && label != NO_NAME);
            Some(superblock)
        }
        Some((superblock, None)) => Some(superblock),
        None => None,
    };
    Ok((start, superblock))
}

/// FAT's boot sector has this if there is no label.
const NO_NAME: &str = "NO NAME";

/// Identifies the first bytes of a device; also returns FAT's boot sector. The signature nearest to the start
/// is used, because it was written last, over the remains of an older file system.
fn identify(start: &[u8]) -> Option<(Superblock, Option<BootSector>)> {
    let known = |from: usize, to: usize| {
        SIGNATURES.iter().filter(move |s| (from..to).contains(&s.at)).find_map(|s| s.read(start))
    };
    if let Some(superblock) = known(0, 1024).or_else(|| extended(start)) {
        return Some((superblock, None));
    }
    if let Some(fat) = BootSector::parse(start) {
        let label = fat.label.map(fat_names::label).filter(|label| !label.is_empty() && label != NO_NAME);
        let uuid = fat.serial.filter(|n| *n != 0).map(|n| format!("{:04X}-{:04X}", n >> 16, n & 0xffff));
        return Some((Superblock { kind: "vfat", second_label: label, uuid, label: None }, Some(fat)));
    }
    let superblock = known(1024, iso9660::DESCRIPTORS as usize)
        .or_else(|| iso9660::descriptors(start).map(|iso| volume(&iso)))
        .or_else(|| known(iso9660::DESCRIPTORS as usize, usize::MAX))?;
    Some((superblock, None))
}

/// ext2, ext3 and ext4 differ in their features, as in e2fsprogs.
fn extended(start: &[u8]) -> Option<Superblock> {
    const JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    /// Features of ext3: filetype, recover, meta_bg; sparse_super, large_file, btree_dir.
    const EXT3_INCOMPATIBLE: u32 = 0x2 | 0x4 | 0x10;
    const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;
    let superblock = start.get(ext::SUPERBLOCK..)?;
    if le16(superblock, 56)? != 0xef53 {
        return None;
    }
    let (compatible, incompatible, read_only) = (le32(superblock, 92)?, le32(superblock, 96)?, le32(superblock, 100)?);
    let kind = if incompatible & JOURNAL_DEVICE != 0 {
        "jbd"
    } else if incompatible & !EXT3_INCOMPATIBLE != 0 || read_only & !EXT3_READ_ONLY != 0 {
        "ext4"
    } else if compatible & JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    };
    Some(Superblock { kind, label: text(superblock.get(120..136)?), uuid: uuid(superblock, 104), second_label: None })
}

/// ISO 9660: Joliet's label is in any case but at most 16 characters, the primary one up to 32 capitals. If
/// one begins the other, they are combined.
fn volume(iso: &Descriptors) -> Superblock {
    let primary = text(&iso.primary.identifier);
    let joliet =
        iso.joliet.as_ref().map(|v| utf16_be(&v.identifier)).map(|s| s.trim_end_matches([' ', '\0']).to_string());
    let joliet = joliet.filter(|label| !label.is_empty());
    let whole = match (&primary, &joliet) {
        (Some(long), Some(short)) => {
            let rest = long.chars().skip(short.chars().count());
            let begins = short.chars().zip(long.chars()).all(|(a, b)| a == b || (b == '_' && !a.is_ascii()));
            Some(if begins { short.chars().chain(rest).collect() } else { short.clone() })
        }
        _ => joliet.or(primary.clone()),
    };
    let uuid = iso.primary.date.as_ref().map(|date| {
        let mut parts = vec![date.get(..4).unwrap_or_default()];
        parts.extend((4..16).step_by(2).map(|at| date.get(at..at + 2).unwrap_or_default()));
        parts.join("-")
    });
    Superblock { kind: "iso9660", second_label: primary.filter(|l| Some(l) != whole.as_ref()), label: whole, uuid }
}

/// Content that is identified by a few bytes at a fixed offset.
struct Signature {
    kind: &'static str,
    /// The offset of the bytes.
    at: usize,
    magic: &'static [u8],
    /// The offset of the UUID's 16 bytes.
    uuid: Option<usize>,
    /// The offset of the label, and its greatest length.
    label: Option<(usize, usize)>,
}

impl Signature {
    fn read(&self, start: &[u8]) -> Option<Superblock> {
        (start.get(self.at..)?.starts_with(self.magic)).then(|| Superblock {
            kind: self.kind,
            label: self.label.and_then(|(at, size)| text(start.get(at..at + size)?)),
            second_label: None,
            uuid: self.uuid.and_then(|at| uuid(start, at)).or_else(|| odd_uuid(self.kind, start)),
        })
    }
}

const fn signature(
    kind: &'static str,
    at: usize,
    magic: &'static [u8],
    uuid: Option<usize>,
    label: Option<(usize, usize)>,
) -> Signature {
    Signature { kind, at, magic, uuid, label }
}

const SWAP: &[u8] = b"SWAPSPACE2";
const SWAP_UUID: Option<usize> = Some(1024 + 12);
const SWAP_LABEL: Option<(usize, usize)> = Some((1024 + 28, 16));
const BTRFS: usize = 64 * 1024;

/// Content that is not a file system, so that the device is not mistaken for an empty one.
const SIGNATURES: &[Signature] = &[
    signature("xfs", 0, b"XFSB", Some(32), Some((108, 12))),
    signature("squashfs", 0, b"hsqs", None, None),
    signature("ntfs", 3, b"NTFS    ", None, None),
    signature("exfat", 3, b"EXFAT   ", None, None),
    signature("crypto_LUKS", 0, b"LUKS\xba\xbe", None, None),
    signature("LVM2_member", 512, b"LABELONE", None, None),
    signature("LVM2_member", 0, b"LABELONE", None, None),
    signature("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", Some(16), Some((32, 32))),
    signature("erofs", 1024, b"\xe2\xe1\xf5\xe0", Some(1024 + 48), Some((1024 + 64, 16))),
    signature("f2fs", 1024, b"\x10\x20\xf5\xf2", Some(1024 + 108), None),
    signature("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0", Some(4096 + 16), Some((4096 + 32, 32))),
    signature("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", None, None),
    signature("bcachefs", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", None, None),
    signature("swap", 4086, SWAP, SWAP_UUID, SWAP_LABEL),
    signature("swap", 8182, SWAP, SWAP_UUID, SWAP_LABEL),
    // The list of names and values in the first of ZFS's four labels: XDR, version 0, unique names.
    signature("zfs_member", 16384, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0", None, None),
    signature("swap", 16374, SWAP, SWAP_UUID, SWAP_LABEL),
    signature("swap", 65526, SWAP, SWAP_UUID, SWAP_LABEL),
    signature("jfs", 32768, b"JFS1", None, None),
    signature("udf", 32769, b"BEA01", None, None),
    signature("reiserfs", BTRFS + 52, b"ReIsEr", None, None),
    signature("btrfs", BTRFS + 64, b"_BHRfS_M", Some(BTRFS + 32), Some((BTRFS + 299, 256))),
];

/// A label: text up to the first zero, without spaces at its end. None if nothing is left.
fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|b| *b == 0).next()?;
    let text = String::from_utf8_lossy(text);
    Some(text.trim_end().to_string()).filter(|text| !text.is_empty())
}

/// The 16 bytes at `at` as 8-4-4-4-12 digits. None if they are all zero.
pub(super) fn uuid(bytes: &[u8], at: usize) -> Option<String> {
    let n = u128::from_be_bytes(array(bytes, at)?);
    let part = |shift: u32, mask: u128| (n >> shift) & mask;
    (n != 0).then(|| {
        let (a, b, c) = (part(96, 0xffff_ffff), part(80, 0xffff), part(64, 0xffff));
        format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", part(48, 0xffff), part(0, 0xffff_ffff_ffff))
    })
}

/// A substitute for a UUID: the serial numbers of exFAT and NTFS, and LUKS's, which is text.
fn odd_uuid(kind: &str, start: &[u8]) -> Option<String> {
    match kind {
        "exfat" => le32(start, 100).map(|n| format!("{:04X}-{:04X}", n >> 16, n & 0xffff)),
        "ntfs" => array(start, 72).map(|bytes| format!("{:016X}", u64::from_le_bytes(bytes))),
        "crypto_LUKS" => text(start.get(168..208)?),
        _ => None,
    }
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;
