//! The machine's block devices and partitions, from sysfs.

use crate::base::error::{Context, Result};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest sysfs attribute: one page.
const MAX_ATTRIBUTE: u64 = 4096;
/// The most devices that are read.
const MAX_DEVICES: usize = 16 * 1024;
/// Config drives are rarely larger: nova's are 64 MiB, ironic's at most 64 MiB. A larger one is also found,
/// but later.
const SMALL: u64 = 256 * 1024 * 1024;
/// The unit of sysfs's `size`, whatever the device's own sectors are.
const SECTOR: u64 = 512;

/// The folders in which the kernel shows devices; tests use others.
#[derive(Debug, Clone)]
pub struct Places {
    /// Every block device and partition by name.
    pub sys: PathBuf,
    /// Their device nodes.
    pub dev: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Places { sys: "/sys/class/block".into(), dev: "/dev".into() }
    }
}

/// A block device or partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// The kernel's name: `sr0`, `vda1`.
    pub name: String,
    /// The device node: `/dev/sr0`.
    pub node: PathBuf,
    /// In bytes. A CD-ROM drive without a medium also has some size.
    pub size: u64,
    /// A partition, not a whole disk.
    pub partition: bool,
    /// The partition's number.
    pub number: Option<u32>,
    /// A CD-ROM drive: it may have no medium now, and one later.
    pub optical: bool,
    /// Whether its medium can be taken out: a floppy, a card, a CD-ROM.
    pub removable: bool,
    /// The partition's name in a GPT (PARTLABEL).
    pub partition_label: Option<String>,
    /// The partition's UUID (PARTUUID), if the kernel reports it (6.7 and later).
    pub partition_uuid: Option<String>,
    /// Whether it is small, removable or optical, like config drives.
    pub likely: bool,
}

impl BlockDevice {
    /// Whether one of the two is a partition of the other.
    pub fn shares_disk(&self, other: &BlockDevice) -> bool {
        let part = |disk: &BlockDevice, part: &BlockDevice| {
            let number = part.name.strip_prefix(&disk.name).map(|rest| rest.trim_start_matches('p'));
            part.partition && number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        part(self, other) || part(other, self)
    }

    /// The node of the disk that a partition is on. The kernel puts the number after the disk's name, and a `p` between two digits.
    pub(super) fn disk(&self) -> Option<PathBuf> {
        let disk = self.node.to_str()?.strip_suffix(&self.number?.to_string())?;
        let before = disk.strip_suffix('p').filter(|name| name.ends_with(|c: char| c.is_ascii_digit()));
        Some(before.unwrap_or(disk).into())
    }
}

/// All devices that can contain anything, sorted by name: without those of size 0, RAM disks, and devices
/// without a node.
///
/// # Errors
/// sysfs cannot be read. A device that vanishes meanwhile is left out.
pub fn list(places: &Places) -> Result<Vec<BlockDevice>> {
    let directory = || format!("failed to list {}", places.sys.display());
    let names = fs::read_dir(&places.sys).context(directory)?.take(MAX_DEVICES);
    let mut names: Vec<String> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names.iter().filter_map(|name| device(places, name)).collect())
}

/// The node that a name below /dev, such as udev's or the device mapper's, is a link to. None if it leads elsewhere.
pub fn node_of(name: &str) -> Option<PathBuf> {
    fs::canonicalize(name).ok().filter(|node| node.starts_with("/dev") && name.starts_with("/dev/"))
}

/// The device with the kernel's name `name`. None if it does not exist or cannot contain anything.
pub fn device(places: &Places, name: &str) -> Option<BlockDevice> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') || is_memory(name) {
        return None;
    }
    let folder = places.sys.join(name);
    let size = attribute(&folder.join("size"))?.parse::<u64>().ok()?.saturating_mul(SECTOR);
    if size == 0 {
        return None;
    }
    let uevent = attribute(&folder.join("uevent"))?;
    let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    // A path of a multipath NVMe device has no number and so no node.
    value("MAJOR")?;
    let node = value("DEVNAME").filter(|node| !node.starts_with('/') && !node.split('/').any(|part| part == ".."))?;
    // Reading a suspended device blocks until it is resumed.
    if name.starts_with("dm-") && attribute(&folder.join("dm/suspended")).as_deref() == Some("1") {
        return None;
    }
    let partition = value("DEVTYPE") == Some("partition");
    let optical = name.strip_prefix("sr").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    // A floppy drive takes seconds to report that it is empty.
    let floppy = name.starts_with("fd");
    let slow = floppy || name.starts_with("mtdblock");
    let whole = if partition { folder.join("../removable") } else { folder.join("removable") };
    let removable = floppy || optical || attribute(&whole).as_deref() == Some("1");
    Some(BlockDevice {
        name: name.to_string(),
        node: places.dev.join(node),
        size,
        partition,
        number: value("PARTN").filter(|_| partition).and_then(|n| n.parse().ok()),
        optical,
        removable,
        partition_label: value("PARTNAME").map(String::from),
        partition_uuid: value("PARTUUID").map(String::from),
        likely: !slow && (size <= SMALL || removable),
    })
}

/// Whether it is a RAM disk, whose content comes from this boot.
fn is_memory(name: &str) -> bool {
    let digits = name.strip_prefix("zram").or_else(|| name.strip_prefix("ram"));
    digits.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// An attribute's text, without the newline at its end.
pub(super) fn attribute(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_ATTRIBUTE).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    /// A fake sysfs and /dev for tests.
    pub struct Fake {
        pub places: Places,
        _dir: TempDir,
    }

    impl Fake {
        pub fn new(name: &str) -> Self {
            let dir = TempDir::new(name);
            let places = Places { sys: dir.0.join("sys"), dev: dir.0.join("dev") };
            fs::create_dir_all(&places.sys).unwrap();
            fs::create_dir_all(&places.dev).unwrap();
            Fake { places, _dir: dir }
        }

        /// A disk of `size` bytes with these contents; a partition if `uevent` says so.
        pub fn add(&self, name: &str, size: u64, uevent: &str, contents: &[u8]) {
            let folder = self.places.sys.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("size"), format!("{}\n", size / SECTOR)).unwrap();
            let text = format!("MAJOR=8\nMINOR=0\nDEVNAME={name}\nDEVTYPE=disk\n");
            let text = if uevent.is_empty() { text } else { text.replace("DEVTYPE=disk\n", uevent) };
            fs::write(folder.join("uevent"), text).unwrap();
            fs::write(self.places.dev.join(name), contents).unwrap();
        }

        pub fn set(&self, name: &str, attribute: &str, value: &str) {
            fs::write(self.places.sys.join(name).join(attribute), value).unwrap();
        }
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn lists_usable_devices_and_rates_them() {
        let fake = Fake::new("devices");
        fake.add("vda", 20 * GIB, "", b"");
        fake.add("vda1", 64 << 20, "DEVTYPE=partition\nPARTN=1\nPARTNAME=config\nPARTUUID=ab-01\n", b"");
        fake.add("sr0", GIB, "", b"");
        fake.add("sdb", 8 * GIB, "", b"");
        fake.set("sdb", "removable", "1\n");
        for (name, size) in [("loop0", 0), ("ram3", 4096), ("zram0", GIB), ("fd0", 1440 * 1024)] {
            fake.add(name, size, "", b"");
        }
        fake.add("nvme0c0n1", GIB, "", b"");
        fake.set("nvme0c0n1", "uevent", "DEVTYPE=disk\n");
        fake.add("evil", GIB, "", b"");
        fake.set("evil", "uevent", "MAJOR=1\nDEVNAME=../../etc/passwd\n");
        fake.add("cciss!c0d0", GIB, "", b"");
        fake.set("cciss!c0d0", "uevent", "MAJOR=1\nDEVNAME=cciss/c0d0\n");

        let devices = list(&fake.places).unwrap();
        let names: Vec<_> = devices.iter().map(|d| (d.name.as_str(), d.likely)).collect();
        let expected =
            [("cciss!c0d0", false), ("fd0", false), ("sdb", true), ("sr0", true), ("vda", false), ("vda1", true)];
        assert_eq!(names, expected);
        assert_eq!(devices[0].node, fake.places.dev.join("cciss/c0d0"));
        assert!(devices[3].optical && !devices[4].optical);
        let part = &devices[5];
        assert_eq!((part.partition_label.as_deref(), part.partition_uuid.as_deref()), (Some("config"), Some("ab-01")));
        assert!(part.partition && part.shares_disk(&devices[4]) && !part.shares_disk(&devices[2]));
    }

    #[test]
    fn no_sysfs_is_an_error_that_names_it() {
        let places = Places { sys: "/nonexistent/block".into(), dev: "/dev".into() };
        assert!(list(&places).unwrap_err().to_string().starts_with("failed to list /nonexistent/block: "));
    }

    #[test]
    fn this_machines_devices_are_there() {
        let Ok(devices) = list(&Places::default()) else { return crate::base::testing::skip("no /sys/class/block") };
        for device in devices {
            assert!(device.size > 0 && device.node.starts_with("/dev"), "{device:?}");
        }
    }
}
