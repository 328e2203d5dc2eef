//! A block device as described by sysfs, and the devices below it (Documentation/ABI/stable/sysfs-block of
//! the kernel).

use super::devices::{Places, attribute};
use super::label::{self, Superblock};
use rustix::fs::{Mode, OFlags, major, minor};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The unit of sysfs's `size` and `start`, in bytes.
const UNIT: u64 = 512;
/// The most devices below a device, and the most partitions of a disk, that are read.
const MAX_LISTED: usize = 1024;

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The kernel's name: `vda1`, `dm-0`.
    pub name: String,
    /// Its node: `/dev/vda1`.
    pub node: String,
    /// In bytes.
    pub size: u64,
    pub kind: BlockKind,
    /// The kernel's names of the devices below it.
    pub below: Vec<String>,
}

impl Block {
    /// The kernel's name of the disk that a partition is on, else its own.
    pub fn disk(&self) -> &str {
        if let BlockKind::Partition { disk, .. } = &self.kind { disk } else { &self.name }
    }
}

/// The kinds of block devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    /// A disk or another whole device; `sector` is the size of its logical sectors, in bytes.
    Disk { sector: u64 },
    /// A partition: the name of its disk, and its number.
    Partition { disk: String, number: u32 },
    /// A device mapper device, `/dev/mapper/NAME`; the prefix of `uuid` says what created it: `LVM-`,
    /// `CRYPT-`.
    Mapping { name: String, uuid: String },
    /// An MD array: its level, such as `raid1`; the version of its metadata, such as `1.2`; and how many
    /// bytes of each device it uses.
    Raid { level: String, metadata: String, used: u64 },
}

/// The device at a path below `/dev`, following links. None if it is not a block device that the kernel
/// knows.
pub fn at(places: &Places, path: &str) -> Option<Block> {
    let path = places.dev.join(path.strip_prefix("/dev/")?).canonicalize().ok()?;
    let meta = fs::metadata(&path).ok()?;
    if meta.file_type().is_block_device() {
        // The node may have another name than the kernel's: the device mapper's, if udev creates no links.
        let number = format!("{}:{}", major(meta.rdev()), minor(meta.rdev()));
        let known = |name: &str| attribute(&places.sys.join(name).join("dev")).as_deref() == Some(number.as_str());
        let own = name_below(places, &path).filter(|name| known(name));
        return named(places, &own.or_else(|| names(&places.sys).into_iter().find(|name| known(name)))?);
    }
    // In a tree that represents a machine, files represent devices.
    named(places, &name_below(places, &path).filter(|_| meta.is_file())?)
}

fn name_below(places: &Places, path: &Path) -> Option<String> {
    let folder = places.dev.canonicalize().ok()?;
    Some(path.strip_prefix(folder).ok()?.to_str()?.replace('/', "!"))
}

/// The device with the kernel's name `name`. None if it does not exist.
pub fn named(places: &Places, name: &str) -> Option<Block> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return None;
    }
    let folder = places.sys.join(name).canonicalize().ok()?;
    let size = attribute(&folder.join("size"))?.parse::<u64>().ok()?.checked_mul(UNIT)?;
    let kind = if let Some(number) = attribute(&folder.join("partition")) {
        let disk = folder.parent()?.file_name()?.to_str()?.to_owned();
        BlockKind::Partition { disk, number: number.parse().ok()? }
    } else if let Some(uuid) = attribute(&folder.join("dm/uuid")) {
        BlockKind::Mapping { name: attribute(&folder.join("dm/name")).unwrap_or_default(), uuid }
    } else if let Some(level) = attribute(&folder.join("md/level")) {
        let value = |name: &str| attribute(&folder.join("md").join(name)).unwrap_or_default();
        let used = value("component_size").parse::<u64>().unwrap_or(0).saturating_mul(1024);
        BlockKind::Raid { level, metadata: value("metadata_version"), used }
    } else {
        let sector = attribute(&folder.join("queue/logical_block_size")).and_then(|s| s.parse().ok());
        BlockKind::Disk { sector: sector.unwrap_or(UNIT) }
    };
    let node = format!("/dev/{}", name.replace('!', "/"));
    Some(Block { name: name.to_owned(), node, size, kind, below: names(&folder.join("slaves")) })
}

/// Whether the device lies on a network block device: NBD, Ceph's RBD, DRBD, or an iSCSI disk.
pub fn is_on_network(places: &Places, block: &Block) -> bool {
    let mut below = vec![block.name.clone()];
    for _ in 0..MAX_LISTED {
        let Some(name) = below.pop() else { return false };
        let path = places.sys.join(&name).canonicalize().unwrap_or_default();
        // In sysfs an iSCSI disk is below its session (drivers/scsi/scsi_transport_iscsi.c).
        let is_session = |c: std::path::Component| c.as_os_str().to_str().is_some_and(|c| c.starts_with("session"));
        if ["nbd", "rbd", "drbd"].iter().any(|kind| name.starts_with(kind)) || path.components().any(is_session) {
            return true;
        }
        let Some(block) = named(places, &name) else { continue };
        below.extend(block.below);
        if let BlockKind::Partition { disk, .. } = block.kind {
            below.push(disk);
        }
    }
    false
}

/// The partitions of a disk, given by the kernel's name, in order of their numbers.
pub fn partitions(places: &Places, name: &str) -> Vec<Block> {
    let number = |b: &Block| if let BlockKind::Partition { number, .. } = b.kind { Some(number) } else { None };
    let children = names(&places.sys.join(name)).into_iter().filter(|child| child.starts_with(name));
    let mut found: Vec<Block> = children.filter_map(|n| named(places, &n)).filter(|b| number(b).is_some()).collect();
    found.sort_by_key(number);
    found
}

/// The file system or other content of a device, read now. None if it is unknown or the device cannot be
/// read.
pub fn superblock(places: &Places, block: &Block) -> Option<Superblock> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = places.dev.join(block.node.strip_prefix("/dev/")?);
    label::probe(&File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?)).ok()?
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_LISTED);
    let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::os::unix::fs::symlink;

    fn tree(dir: &TempDir) -> Places {
        let file = |path: &str, text: &str| dir.write(path, text);
        for (folder, size) in [
            ("nvme0n1", "4096"),
            ("nvme0n1/nvme0n1p1", "1024"),
            ("nvme0n1/nvme0n1p10", "64"),
            ("dm-0", "8"),
            ("md0", "8"),
            ("nbd0", "8"),
            ("platform/host2/session1/target2:0:0/block/sda", "8"),
            ("platform/host2/session1/target2:0:0/block/sda/sda1", "8"),
        ] {
            file(&format!("sys/devices/{folder}/size"), &format!("{size}\n"));
            let name = folder.rsplit('/').next().unwrap();
            fs::create_dir_all(dir.0.join("sys/class/block")).unwrap();
            symlink(format!("../../devices/{folder}"), dir.0.join("sys/class/block").join(name)).unwrap();
            file(&format!("dev/{name}"), "");
        }
        file("sys/devices/nvme0n1/queue/logical_block_size", "4096\n");
        file("sys/devices/nvme0n1/nvme0n1p1/partition", "1\n");
        file("sys/devices/nvme0n1/nvme0n1p10/partition", "10\n");
        file("sys/devices/dm-0/dm/uuid", "LVM-abc\n");
        file("sys/devices/dm-0/dm/name", "vg-root\n");
        file("sys/devices/dm-0/slaves/nvme0n1p1/size", "");
        file("sys/devices/md0/md/level", "raid1\n");
        file("sys/devices/md0/md/metadata_version", "1.2\n");
        file("sys/devices/md0/md/component_size", "3\n");
        file("dev/unknown", "");
        fs::create_dir_all(dir.0.join("dev/mapper")).unwrap();
        symlink("../dm-0", dir.0.join("dev/mapper/vg-root")).unwrap();
        symlink("/etc/passwd", dir.0.join("dev/outside")).unwrap();
        Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") }
    }

    #[test]
    fn a_device_is_described_by_its_path() {
        let dir = TempDir::new("block");
        let places = tree(&dir);
        let disk = at(&places, "/dev/nvme0n1").unwrap();
        assert_eq!((disk.kind, disk.size), (BlockKind::Disk { sector: 4096 }, 4096 * 512));
        let part = at(&places, "/dev/nvme0n1p1").unwrap();
        assert_eq!(part.kind, BlockKind::Partition { disk: "nvme0n1".into(), number: 1 });
        let mapped = at(&places, "/dev/mapper/vg-root").unwrap();
        let kind = BlockKind::Mapping { name: "vg-root".into(), uuid: "LVM-abc".into() };
        assert_eq!((mapped.node.as_str(), mapped.kind), ("/dev/dm-0", kind));
        assert_eq!(mapped.below, ["nvme0n1p1"]);
        let raid = BlockKind::Raid { level: "raid1".into(), metadata: "1.2".into(), used: 3072 };
        assert_eq!(at(&places, "/dev/md0").unwrap().kind, raid);
        let numbers: Vec<String> = partitions(&places, "nvme0n1").into_iter().map(|b| b.name).collect();
        assert_eq!(numbers, ["nvme0n1p1", "nvme0n1p10"]);
        for path in ["/dev/unknown", "/dev/outside", "/dev/none", "/etc/passwd", "nvme0n1", "/dev/../dev/nvme0n1x"] {
            assert_eq!(at(&places, path), None, "{path}");
        }
    }

    #[test]
    fn devices_of_a_server() {
        let dir = TempDir::new("block-network");
        let places = tree(&dir);
        let is_remote = |path: &str| is_on_network(&places, &at(&places, path).unwrap());
        assert!(!is_remote("/dev/nvme0n1p1") && !is_remote("/dev/mapper/vg-root"));
        assert!(is_remote("/dev/nbd0") && is_remote("/dev/sda") && is_remote("/dev/sda1"));
        // A mapping of a server's disk.
        std::fs::create_dir_all(dir.0.join("sys/devices/dm-0/slaves/sda1")).unwrap();
        assert!(is_remote("/dev/mapper/vg-root"));
    }

    #[test]
    fn this_machines_devices_are_found_by_their_numbers() {
        let places = Places::default();
        let Some(name) = names(&places.sys).into_iter().find(|n| places.dev.join(n).exists()) else {
            return crate::base::testing::skip("no block device");
        };
        assert_eq!(at(&places, &format!("/dev/{name}")).unwrap().name, name);
    }
}
