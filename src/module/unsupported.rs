//! cloud-init's modules that prepivot does not have yet. Their keys are accepted, and reported where a document asks for them.
//!
//! To add one: write its file with a `MODULE` and the doc comment that is here, name that in the table in the place of the entry
//! here, and remove the entry.

use super::Module;
use crate::document::Value;
use crate::instance::Frequency::{self, Always, Instance};
use crate::root::Stage::{self, Init};

type Names = &'static [&'static str];

const fn entry(name: &'static str, stage: Stage, frequency: Frequency, keys: Names, distros: Names) -> Module {
    Module { name, stage, frequency, keys, distros, provision: None, live: None, at_end: None }
}

/// # disk_setup
///
/// Partitions disks and makes file systems. Not supported yet.
///
/// ```schema
/// device_aliases: {*: str}
/// disk_setup: {
///  *: {
///   table_type: (mbr gpt)
///   layout: (remove) | bool | [int | [int | str]2..2]
///   overwrite: bool
///  }
/// }
/// fs_setup: [{
///  label, filesystem, device, replace_fs: str
///  partition: (auto any none)
///  overwrite: bool
///  extra_opts, cmd: [str] | str
/// }]
/// ```
pub static DISK_SETUP: Module = entry("disk_setup", Init, Instance, &["disk_setup", "fs_setup"], &[]);

/// # growpart
///
/// Grows partitions to the size of their disks. Not supported yet.
///
/// ```schema
/// growpart: {
///  mode: (auto growpart gpart off) | (false) ^22.3 "Use 'off' in quotes instead."
///  devices: [str]
///  ignore_growroot_disabled: bool
/// }
/// ```
pub static GROWPART: Module = entry("growpart", Init, Always, &["growpart"], &[]);

/// # resizefs
///
/// Grows the root's file system to the size of its partition. Not supported yet.
///
/// ```schema
/// resize_rootfs: (true false noblock)
/// ```
pub static RESIZEFS: Module = entry("resizefs", Init, Always, &["resize_rootfs"], &[]);

/// The key with which a configuration asks for an unsupported module.
pub fn requested(module: &Module, config: &Value) -> Option<&'static str> {
    let asks = |value: &Value| !value.is_null();
    module.keys.iter().copied().find(|key| config.get(key).is_some_and(asks))
}
