//! The first field of a mount: it refers to a device that is present, to one that is not, or to no device.

use crate::drive::block::{self, BlockKind};
use crate::system::device_names::{alias, dotted, of_source, partition_of};
use crate::system::{Device, ModuleContext};

/// Options with which the first field is a path, and types of file systems without a device (filesystems(5),
/// mount(8)).
const PATH_OPTIONS: [&str; 3] = ["bind", "rbind", "loop"];
const DEVICE_TYPES: [&str; 22] = [
    "auto", "ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "iso9660", "udf",
    "f2fs", "jfs", "reiserfs", "bcachefs", "erofs", "squashfs", "hfsplus", "minix", "swap",
];
/// Of these, the types that only the kernel can tell from an empty device.
const UNSEEN_TYPES: [&str; 2] = ["hfsplus", "minix"];
/// Contents with a superblock that are not file systems.
const CONTAINERS: [&str; 5] = ["crypto_LUKS", "LVM2_member", "linux_raid_member", "bcache", "zfs_member"];
const TAGS: [&str; 5] = ["LABEL=", "UUID=", "PARTLABEL=", "PARTUUID=", "ID="];

/// The meaning of a first field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A device with the expected content, by its name in fstab.
    Device(String),
    /// A server, a folder, or a file system without a device.
    Other(String),
    /// A device, by its name in fstab, and why it cannot be mounted now: it is missing, or does not have the
    /// expected content.
    Late(String, String),
    /// Nothing that can be mounted.
    Unknown,
}

/// Resolves `spec`, for an entry of that type and with those options.
pub(super) fn resolve(cx: &ModuleContext, spec: &str, kind: &str, options: &str) -> What {
    let what = resolved(cx, spec, kind, options);
    if let What::Device(name) | What::Other(name) | What::Late(name, _) = &what
        && name != spec
    {
        log::debug!("changed {spec} => {name}");
    }
    what
}

fn resolved(cx: &ModuleContext, spec: &str, kind: &str, options: &str) -> What {
    let kind = kind.split(',').next().unwrap_or(kind);
    let virtual_type = !DEVICE_TYPES.contains(&kind);
    if options.split(',').any(|o| PATH_OPTIONS.contains(&o)) || is_remote(spec) {
        return What::Other(spec.to_owned());
    }
    let is_tag = TAGS.iter().any(|tag| spec.starts_with(tag));
    // The tag of a shared folder may be the name of a device of the source's: `root`.
    let candidates = candidates(cx, spec).filter(|(paths, _)| !(virtual_type && paths.is_empty()));
    if !cx.outside.knows_devices() && (is_tag || candidates.is_some()) {
        return unseen(cx, spec);
    }
    if is_tag && spec.ends_with('=') {
        return What::Unknown;
    }
    if is_tag {
        return match cx.outside.device(spec) {
            Some(device) => device_or_late(spec.to_owned(), holds(&device, kind)),
            None => What::Late(spec.to_owned(), NO_DEVICE.into()),
        };
    }
    match candidates {
        Some((paths, partition)) => find(cx, &paths, partition.as_deref(), kind),
        None if spec.starts_with('/') || virtual_type => What::Other(spec.to_owned()),
        None => What::Unknown,
    }
}

const NO_DEVICE: &str = "there is no such device";

fn device_or_late(name: String, held: Result<(), String>) -> What {
    match held {
        Ok(()) => What::Device(name),
        Err(why) => What::Late(name, why),
    }
}

/// The first of the paths, with the partition if one is named, for a device that is not there yet.
fn late(paths: &[String], partition: Option<&str>) -> What {
    let Some(path) = paths.first() else { return What::Unknown };
    What::Late(partition.map_or_else(|| path.clone(), |n| partition_of(path, n)), NO_DEVICE.into())
}

/// The device if none can be read: one in the tree's /dev, if it has disks there, else the first that the
/// name may refer to.
fn unseen(cx: &ModuleContext, spec: &str) -> What {
    let Some((paths, partition)) = candidates(cx, spec) else { return What::Device(spec.to_owned()) };
    let shown = cx.root.list("/dev").iter().any(|name| is_short(name));
    let is_there = |path: &&String| !shown || cx.root.lstat(path).is_some();
    let Some(path) = paths.iter().find(is_there) else { return late(&paths, partition.as_deref()) };
    let nth = |n: &str| names_of_partition(path, n).into_iter().find(|p| is_there(&p));
    match partition {
        None if shown => What::Device(nth("1").unwrap_or_else(|| path.clone())),
        None => What::Device(path.clone()),
        Some(n) if shown => {
            nth(&n).map_or_else(|| What::Late(partition_of(path, &n), "it has no such partition".into()), What::Device)
        }
        Some(n) => What::Device(partition_of(path, &n)),
    }
}

/// The names that a device's partition may have.
fn names_of_partition(path: &str, number: &str) -> [String; 2] {
    [partition_of(path, number), format!("{path}-part{number}")]
}

/// `host:/path`, `[address]:/path`, `//host/share`.
pub(super) fn is_remote(spec: &str) -> bool {
    spec.starts_with("//") || (!spec.starts_with('/') && spec.contains(':'))
}

/// The paths that the name may refer to, of which the first existing one is used, and a partition number.
/// None if it is not a device name.
fn candidates(cx: &ModuleContext, spec: &str) -> Option<(Vec<String>, Option<String>)> {
    if spec.starts_with("/dev/") && !is_meta(spec) {
        return Some((vec![alias(cx, spec).unwrap_or_else(|| spec.to_owned())], None));
    }
    let spec = if spec == "ephemeral" { "ephemeral0" } else { spec };
    let (name, partition) = dotted(spec);
    // Partition 0 is the whole device.
    let partition = partition.filter(|n| *n != "0").map(str::to_owned);
    if let Some(path) = alias(cx, name) {
        return Some((vec![path], partition));
    }
    if is_meta(name) {
        let short = name.strip_prefix("/dev/").unwrap_or(name);
        return Some((of_source(cx, short), partition));
    }
    is_short(name).then(|| (vec![format!("/dev/{name}")], partition))
}

/// Whether a source may use the name for a device.
fn is_meta(name: &str) -> bool {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    matches!(name, "ami" | "root" | "swap") || name.starts_with("ephemeral") || name.starts_with("ebs")
}

/// `sdb`, `vda1`, `xvdf`, `hda`, `sr0`, `nvme0n1p1`, `mmcblk0p1`.
fn is_short(name: &str) -> bool {
    let disk = name.strip_prefix('x').unwrap_or(name);
    let letters = ["sd", "hd", "vd"].iter().find_map(|p| disk.strip_prefix(p));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = letters {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
        return number.len() < rest.len() && digits(number);
    }
    let numbered = ["sr", "nvme", "mmcblk"].iter().find_map(|p| name.strip_prefix(p));
    numbered.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'n' | b'p'))
    })
}

/// The device or its partition: the named one, else the first, if the device has one. The file system that a disk had before it was
/// partitioned may still be visible.
fn find(cx: &ModuleContext, paths: &[String], partition: Option<&str>, kind: &str) -> What {
    let device = |path: &str| cx.outside.device(path).map(|device| (path.to_owned(), device));
    let Some((path, whole)) = paths.iter().find_map(|path| device(path)) else { return late(paths, partition) };
    let missing = partition.map(|n| partition_of(&path, n)).unwrap_or_default();
    let number = partition.unwrap_or("1");
    let names = names_of_partition(&path, number);
    let part = names.iter().find(|name| is_partition(cx, name, &path, number)).and_then(|name| device(name));
    let chosen = if partition.is_some() { part } else { part.or(Some((path, whole))) };
    match chosen {
        Some((path, device)) => device_or_late(path, holds(&device, kind)),
        None => What::Late(missing, "it has no such partition".into()),
    }
}

/// Whether `part` is the partition of `whole` with this number: the kernel's, or a mapping of it (kpartx(8)).
fn is_partition(cx: &ModuleContext, part: &str, whole: &str, number: &str) -> bool {
    let block = |path: &str| block::at(&cx.outside.places()?, path);
    let (Some(part), Some(whole)) = (block(part), block(whole)) else { return false };
    match &part.kind {
        BlockKind::Partition { disk, number: own } => *disk == whole.name && own.to_string() == number,
        _ => part.below.contains(&whole.name),
    }
}

fn holds(device: &Device, kind: &str) -> Result<(), String> {
    match device.content.as_deref() {
        None if UNSEEN_TYPES.contains(&kind) => Ok(()),
        None => Err("it holds no file system".into()),
        Some(content) if CONTAINERS.contains(&content) && kind != "zfs" => Err(format!("it holds {content}")),
        Some(content) if (content == "swap") != (kind == "swap") => Err(format!("it holds {content}, not {kind}")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        for name in ["sda", "sdaa12", "vdb1", "xvdh", "hdc", "sr0", "nvme0n1p1", "mmcblk0p2"] {
            assert!(is_short(name), "{name}");
        }
        for name in ["sd", "sda1x", "srv", "nvme", "data", "x", "nfs:/a", "vd1", ""] {
            assert!(!is_short(name), "{name}");
        }
        for spec in ["host:/export", "10.0.0.1:6996", "[fe80::1]:/x", "//host/share"] {
            assert!(is_remote(spec), "{spec}");
        }
        assert!(!is_remote("/dev/disk/by-path/pci-0000:00:1f.2"));
    }
}
