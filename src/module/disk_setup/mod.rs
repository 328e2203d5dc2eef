//! # disk_setup
//!
//! Partitions disks (`disk_setup`) and makes file systems (`fs_setup`), once for each instance; if the power fails meanwhile, again
//! in the next boot. A device is a path below /dev, a
//! name of `device_aliases`, or a name of the datasource such as ephemeral0; in `fs_setup` a number after a dot is a partition
//! of it: ephemeral0.1.
//!
//! `layout` is true for one partition, or a list of percentages, each with a type if it is not Linux; the last
//! partition gets the rest. A type is a code of the MBR (82), sgdisk's (8200, ef02) or a GUID. prepivot writes the table itself,
//! GPT or MBR, without sfdisk or sgdisk. A disk that has the layout already stays as it is. Without `overwrite: true` so does
//! every disk with a table or a file system on it; with it, the file systems of the old layout are gone. `layout: remove`
//! erases table and file systems without asking for more. A disk that is in use is never partitioned.
//!
//! A file system is made by mkfs and its type, or by `cmd`. `partition` is a number; any: the first partition that has this type
//! already, is of the type `replace_fs`, or is empty; auto: the same, but an existing one needs this label;
//! none: the device itself. A device with another file system is kept, and reported, unless `overwrite` is true.
//!
//! It runs before services, as growpart (there: when), unless one of its devices is not there yet.
//!
//! ```yaml
//! device_aliases: {data: /dev/vdb}
//! disk_setup:
//!   data:
//!     table_type: gpt
//!     layout: [25, [75, 8e00]]
//! fs_setup:
//! - {device: data.1, filesystem: ext4, label: data}
//! ```
//!
//! ```schema
//! device_aliases: {*: str}
//! disk_setup: {
//!  *: {
//!   table_type: (mbr gpt)
//!   layout: (remove) | bool | [int | [int | str]2..2]
//!   overwrite: bool
//!  }
//! }
//! fs_setup: [{
//!  label, filesystem, device, replace_fs: str
//!  partition: (auto any none)
//!  overwrite: bool
//!  extra_opts, cmd: [str] | str
//! }]
//! ```

mod filesystem;
mod layout;

use super::{BeforeServices, Module};
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, wrong};
use crate::drive::block::{self, Block};
use crate::drive::devices::Places;
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::ModuleContext;
use crate::system::device_names::{self, alias};

pub static MODULE: Module = Module {
    name: "disk_setup",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    keys: &["disk_setup", "fs_setup"],
    running: Some(running),
    before_services: BeforeServices::IfReady(is_ready),
    repeats: true,
    ..Module::NEW
};

/// Whether all devices to be changed exist: one may be attached later, or be made by a `cmd`.
fn is_ready(cx: &mut ModuleContext) -> bool {
    let Some(places) = cx.outside.places() else { return true };
    settle(cx).is_ok() && device_names::to_set_up(cx, &places).iter().all(|path| block::at(&places, path).is_some())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(places) = cx.outside.places() else {
        log::info!("disk_setup: the machine's devices cannot be seen from here");
        return Ok(());
    };
    for (disk, definition) in disks(cx, &places) {
        let Some(definition) = definition.as_map() else {
            cx.report
                .warn(format_args!("cloud-config: {}", wrong(&format!("disk_setup.{disk}"), "a mapping", definition)));
            continue;
        };
        if let Err(e) = layout::apply(cx, &places, &disk, definition) {
            cx.report.warn(format_args!("disk_setup: failed to partition {disk}: {e}"));
        }
    }
    let systems = cx.get("fs_setup").and_then(Value::as_list).unwrap_or_default();
    for (number, definition) in (1..).zip(systems) {
        let Some(definition) = definition.as_map() else {
            let key = format!("fs_setup: entry {number}");
            cx.report.warn(format_args!("cloud-config: {}", wrong(&key, "a mapping", definition)));
            continue;
        };
        if let Err(e) = filesystem::make(cx, &places, definition) {
            cx.report.warn(format_args!("fs_setup: entry {number}: {e}"));
        }
    }
    cx.outside.devices_changed();
    Ok(())
}

/// The disks that are to be partitioned, by their paths. A name that means a disk which is a key, too, wins.
fn disks<'a>(cx: &ModuleContext<'a>, places: &Places) -> Vec<(String, &'a Value)> {
    let Some(section) = cx.get("disk_setup").and_then(Value::as_map) else { return Vec::new() };
    let named: Vec<(&str, String)> = section.keys().map(|key| (key, path(cx, places, key))).collect();
    let is_replaced = |key: &str| named.iter().any(|(name, path)| path == key && *name != key);
    let kept = named.iter().filter(|(key, _)| !is_replaced(key));
    kept.filter_map(|(key, path)| Some((path.clone(), section.get(key)?))).collect()
}

fn path(cx: &ModuleContext, places: &Places, name: &str) -> String {
    if let Some(target) = alias(cx, name) {
        log::info!("updated disk_setup device entry '{name}' to '{target}'");
    }
    device_names::path(cx, places, name)
}

/// Waits for the device that a path leads to: udev may still be making its link.
fn wait_for(cx: &mut ModuleContext, places: &Places, path: &str) -> Result<Block> {
    settle(cx)?;
    block::at(places, path).ok_or_else(|| Error::new(format!("there is no block device {path}")))
}

/// Waits until udev has done what it does with devices that are new or have changed.
fn settle(cx: &mut ModuleContext) -> Result<()> {
    if installed::which(cx.root, "udevadm").is_none() {
        return Ok(());
    }
    cx.root.run(Command::new(["udevadm", "settle"]))
}

/// Has the kernel read a disk's table again, and waits for the nodes of its partitions.
fn reread(cx: &mut ModuleContext, disk: &str) -> Result<()> {
    settle(cx)?;
    let argv = match installed::which(cx.root, "partprobe") {
        Some(_) => vec!["partprobe", disk],
        None => vec!["blockdev", "--rereadpt", disk],
    };
    cx.root.run(Command::new(argv))?;
    cx.outside.devices_changed();
    settle(cx)
}

/// Whether a key of a definition is true.
fn flag(definition: &Map, key: &str) -> bool {
    definition.get(key).is_some_and(Value::is_true)
}

#[cfg(test)]
mod tests;
