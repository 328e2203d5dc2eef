//! Code that modules share: their context, and parts of the system that several of them change.

pub mod accounts;
pub mod authorized_keys;
pub mod console;
mod context;
pub mod device_names;
pub mod disk_sizes;
pub mod fstab;
pub mod host_keys;
pub mod hostname;
pub mod hotplug;
pub mod ini;
pub mod installer;
pub mod mount_table;
pub mod packages;
pub mod partitions;
pub mod service;
pub mod shell;
pub mod snap;
pub mod sshd_config;
pub mod sudoers;
mod sudoers_grammar;
pub mod template;
#[cfg(test)]
pub mod testing;
pub mod users;

pub use crate::base::password;
pub use context::{Device, ModuleContext, Nothing, Outside, Screen, WebRequest};
