//! # growpart
//!
//! Grows partitions to the next partition or the end of their disk, in every boot. An entry of `devices` is a mount point, any
//! path of a mounted file system, or a device. prepivot changes GPT and MBR tables itself, logical partitions too, so that no
//! growpart, sfdisk or sgdisk is needed; at any moment, also after a power cut, the disk has its old table or the new one.
//! Less than 1 MiB is not worth a change.
//!
//! The root's own partition grows in the initramfs, once the root is mounted and its configuration is read: only then is it known
//! whether the image wants that, and the kernel takes a partition's new end while it is mounted. All other partitions, and the file
//! system (resizefs), grow in the local stage of the real root, before any service but those that mount its file systems. That is
//! not started if the root's partition, or disk, and an ext4 or XFS on it already fill all the room. If the instance has a bootcmd,
//! a boothook, or user-data that refers to something remote, both modules run in the network stage, in their place in the list, as
//! in cloud-init.
//!
//! A device that does not lie on a partition itself is followed down. LVM: the partition of its one physical volume, pvresize,
//! and lvextend by what the volume group has gained; space that was free before stays free. LUKS: the partition, and with
//! cloud-init's key file /cc_growpart_keydata (`{"key": base64, "slot": number}`) the mapping too; then the key's slot and the
//! file are removed. MD: the partitions of a raid1, raid4, raid5 or raid6 with metadata 1.1 or 1.2, and mdadm --grow.
//!
//! The modes auto and growpart do the same, off does nothing; gpart and growfs are FreeBSD's. The file /etc/growroot-disabled
//! means off, unless `ignore_growroot_disabled` is true.
//!
//! ```yaml
//! growpart:
//!   mode: auto
//!   devices: [/, /data]
//! ```
//!
//! ```schema
//! growpart: {
//!  mode: (auto growpart gpart off) | (false) ^22.3 "Use 'off' in quotes instead."
//!  devices: [str]
//!  ignore_growroot_disabled: bool
//! }
//! ```

mod beneath;

use super::{BeforeServices, Module};
use crate::base::deprecated;
use crate::base::error::{Context as _, Error, Result};
use crate::detect::virt;
use crate::document::{Map, Value, wrong};
use crate::drive::block::{self, Block, BlockKind};
use crate::drive::devices::Places;
use crate::instance::Frequency;
use crate::machine::Machine;
use crate::root::{Command, Root, Stage};
use crate::system::partitions::{self, Geometry, Partition, PartitionTable};
use crate::system::{ModuleContext, disk_sizes, mount_table};
use std::io;

const DISABLED: &str = "/etc/growroot-disabled";

pub static MODULE: Module = Module {
    name: "growpart",
    stage: Stage::Network,
    frequency: Frequency::Always,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(idle),
    before_services: BeforeServices::Running,
    ..Module::NEW
};

/// The result for one device.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Grown,
    /// It has all the available space.
    Full,
    /// It cannot be grown, for this reason.
    Skipped(String),
}

fn skipped(why: impl Into<String>) -> Result<Outcome> {
    Ok(Outcome::Skipped(why.into()))
}

/// Grows the root's partition in the initramfs, where the new root is mounted and nothing runs from it yet. A
/// root on LVM, LUKS or MD needs programs and is left to [`running`]; so are reports, because `running` comes to
/// the same result.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let empty = Map::new();
    let section = cx.config.get("growpart").map_or(Some(&empty), Value::as_map);
    let Some(section) = section.filter(|s| is_on(cx, s).unwrap_or(false)) else { return Ok(()) };
    if !entries(section).iter().any(|entry| entry == "/") {
        return Ok(());
    }
    let Some((_, block, places)) = mount_table::device_of_new_root(cx) else { return Ok(()) };
    let BlockKind::Partition { disk, number } = &block.kind else { return Ok(()) };
    match grow_partition(cx, &places, &block, disk, *number) {
        Ok(Outcome::Grown) => log::info!("growpart: {}, the root's partition, has grown", block.node),
        Ok(_) => {}
        Err(e) => log::info!("growpart: {} is left to the real root: {e}", block.node),
    }
    Ok(())
}

/// Whether no disk has changed its size since the last run, or the root's device has all the available space.
/// Before the pivot only the root's own device is sure to be there.
fn idle(cx: &mut ModuleContext) -> bool {
    let of_root = match cx.config.get("growpart") {
        None => true,
        Some(section) => section.get("devices").is_none_or(|devices| *devices == Value::List(vec!["/".into()])),
    };
    // An invalid mode is reported when the module runs.
    let mode = cx.config.at(&["growpart", "mode"]);
    let is_auto = mode.is_none_or(|mode| mode.as_str() == Some("auto"));
    of_root && (disk_sizes::are_as_recorded(cx) || is_auto && is_full(cx))
}

/// Whether the initramfs's new root is on a disk or partition that cannot grow.
fn is_full(cx: &ModuleContext) -> bool {
    let Some((_, block, places)) = mount_table::device_of_new_root(cx) else { return false };
    match &block.kind {
        BlockKind::Disk { .. } => true,
        BlockKind::Partition { disk, number } => is_partition_full(cx, &places, &block, disk, *number).unwrap_or(false),
        BlockKind::Mapping { .. } | BlockKind::Raid { .. } => false,
    }
}

/// Whether the partition table has no more space for the partition, and the kernel knows its size.
fn is_partition_full(cx: &ModuleContext, places: &Places, block: &Block, disk: &str, number: u32) -> Result<bool> {
    let Some((_, geometry, table)) = table(cx, places, disk)? else { return Ok(false) };
    let known = table.partitions().into_iter().find(|p| p.number == number);
    let is_known = known.is_some_and(|p| (p.end - p.start) * geometry.sector == block.size);
    Ok(is_known && table.grow(number)?.is_none())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    disk_sizes::begin(cx)?;
    let empty = Map::new();
    let section = match cx.config.get("growpart") {
        None => &empty,
        Some(Value::Map(map)) => map,
        Some(other) => {
            cx.report.warn(format_args!("cloud-config: {}", wrong("growpart", "a mapping", other)));
            return Ok(());
        }
    };
    let mode = section.get("mode");
    if let Some(mode) = mode.filter(|m| m.is_false() && m.as_str() != Some("off")) {
        let mode = if *mode == Value::Bool(false) { "False".to_owned() } else { mode.text().unwrap_or_default() };
        cx.report.deprecated(deprecated::GROWPART_MODE.about(&mode));
    }
    if !is_on(cx, section)? {
        return Ok(());
    }
    let Some(places) = cx.outside.places() else {
        log::info!("growpart: the machine's devices cannot be seen from here");
        return Ok(());
    };
    for entry in entries(section) {
        match grow_entry(cx, &places, &entry) {
            Ok(Outcome::Grown) => log::info!("'{entry}' resized: changed ({entry})"),
            Ok(Outcome::Full) => log::info!("growpart: {entry} has all the room that there is"),
            Ok(Outcome::Skipped(why)) => log::info!("growpart: {entry} is left as it is: {why}"),
            Err(e) => {
                cx.report.warn(format_args!("growpart: failed to grow {entry}: {e}"));
                disk_sizes::fail(cx)?;
            }
        }
    }
    Ok(())
}

/// Whether the configuration and the machine want partitions to grow.
fn is_on(cx: &ModuleContext, section: &Map) -> Result<bool> {
    let auto = Value::from("auto");
    let mode = section.get("mode").unwrap_or(&auto);
    if mode.is_false() {
        return Ok(false);
    }
    if section.get("ignore_growroot_disabled").is_none_or(Value::is_false) && cx.root.is_file(DISABLED) {
        log::info!("growpart: {DISABLED} turns it off");
        return Ok(false);
    }
    if section.get("devices").is_some_and(|d| entries_of(d).is_empty()) {
        return Ok(false);
    }
    match mode.as_str() {
        Some("auto" | "growpart") => Ok(true),
        Some(mode @ ("gpart" | "growfs")) => {
            Err(Error::new(format!("growpart.mode: {mode} is FreeBSD's: expected auto, growpart or off")))
        }
        _ => Err(wrong("growpart.mode", "auto, growpart or off", mode)),
    }
}

fn entries(section: &Map) -> Vec<String> {
    section.get("devices").map_or_else(|| vec!["/".to_owned()], entries_of)
}

fn entries_of(devices: &Value) -> Vec<String> {
    match devices {
        Value::List(list) => list.iter().filter_map(Value::text).collect(),
        other => other.text().into_iter().collect(),
    }
}

fn grow_entry(cx: &mut ModuleContext, places: &Places, entry: &str) -> Result<Outcome> {
    let device = if entry.starts_with("/dev/") {
        entry.to_owned()
    } else {
        match mount_table::containing(cx.root, entry) {
            Some(mounted) => mounted.source,
            None => return skipped("nothing is mounted there"),
        }
    };
    let from_cmdline = || mount_table::root_on_cmdline(cx.root).filter(|_| !is_container(cx));
    let device = if device == "/dev/root" { from_cmdline().unwrap_or(device) } else { device };
    match block::at(places, &device) {
        Some(block) => grow(cx, places, &block, 0),
        None => skipped(format!("{device} is no block device")),
    }
}

fn is_container(cx: &ModuleContext) -> bool {
    virt::is_container(&virt::detect(&Machine::read(cx.root.path())))
}

/// Grows a device, after the devices that it lies on.
fn grow(cx: &mut ModuleContext, places: &Places, block: &Block, depth: usize) -> Result<Outcome> {
    match &block.kind {
        BlockKind::Partition { disk, number } => grow_partition(cx, places, block, disk, *number),
        BlockKind::Disk { .. } => skipped(format!("{} is no partition", block.node)),
        BlockKind::Mapping { .. } | BlockKind::Raid { .. } => beneath::grow(cx, places, block, depth),
    }
}

fn grow_partition(cx: &mut ModuleContext, places: &Places, block: &Block, disk: &str, number: u32) -> Result<Outcome> {
    let Some((disk, geometry, table)) = table(cx, places, disk)? else {
        return skipped(format!("{disk} has no partition table that is known"));
    };
    let growth = table.grow(number)?;
    let old = table.partitions().into_iter().find(|p| p.number == number);
    if let Some(growth) = &growth {
        let shown = Command::new(["growpart".to_owned(), disk.node.clone(), number.to_string()]);
        cx.root.write_device(&disk.node, &growth.steps, false, shown)?;
    }
    let now = growth.map(|g| g.partition).or(old);
    let Some(now) = now.filter(|p| (p.end - p.start) * geometry.sector > block.size) else { return Ok(Outcome::Full) };
    // Also if only the table has the new size, after an interrupted run.
    if let Err(e) = resize(cx.root, &disk.node, &now, geometry.sector) {
        log::info!("{e}");
        let partx = ["partx", "--update", "--nr", &number.to_string(), &disk.node];
        cx.root.run(Command::new(partx)).map_err(|partx| Error::new(format!("{e}; {partx}")))?;
    }
    cx.outside.devices_changed();
    Ok(if old == Some(now) { Outcome::Full } else { Outcome::Grown })
}

/// Tells the kernel the new end of a partition that may be in use (`BLKPG_RESIZE_PARTITION`, linux/blkpg.h), in sectors of
/// `sector` bytes. Does nothing if the root's devices are another machine's.
///
/// # Errors
/// The kernel refuses: it does not know the partition, or another one begins before the end.
fn resize(root: &Root, disk: &str, partition: &Partition, sector: u64) -> Result<()> {
    if !root.has_devices() {
        return Ok(());
    }
    let number = partition.number;
    let resize = || -> io::Result<()> {
        let file = root.open_device(disk).map_err(|e| io::Error::other(e.to_string()))?;
        let too_large = || io::Error::other("its sectors are more than the kernel counts");
        let bytes = |sectors: u64| sectors.checked_mul(sector).and_then(|b| i64::try_from(b).ok());
        let (start, end) = bytes(partition.start).zip(bytes(partition.end)).ok_or_else(too_large)?;
        let number = i32::try_from(number).map_err(|_| too_large())?;
        Ok(blkpg::resize_partition(&file, number, start, end, 1)?)
    };
    resize().context(|| format!("failed to tell the kernel the new size of partition {number} of {disk}"))
}

/// A disk by the kernel's name, and its table. None if it has no table.
fn table(cx: &ModuleContext, places: &Places, disk: &str) -> Result<Option<(Block, Geometry, PartitionTable)>> {
    let Some(disk) = block::named(places, disk) else { return Ok(None) };
    let BlockKind::Disk { sector } = disk.kind else { return Ok(None) };
    let geometry = Geometry::new(disk.size, sector).map_err(|e| e.context(&disk.node))?;
    let file = cx.root.open_device(&disk.node)?;
    let table = partitions::read(&file, geometry).map_err(|e| e.context(&disk.node))?;
    Ok(table.map(|table| (disk, geometry, table)))
}

/// Whether a device would grow.
fn has_room(cx: &ModuleContext, places: &Places, block: &Block, depth: usize) -> Result<bool> {
    if let BlockKind::Partition { disk, number } = &block.kind {
        return Ok(match table(cx, places, disk)? {
            Some((_, _, table)) => table.grow(*number)?.is_some(),
            None => false,
        });
    }
    if depth >= beneath::MAX_DEPTH {
        return Ok(false);
    }
    for name in &block.below {
        if let Some(below) = block::named(places, name)
            && has_room(cx, places, &below, depth + 1)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
