//! cloud-init's modules that prepivot does not have yet. Their keys are accepted, and reported where a document asks for them.
//!
//! To add one: write its file with a `MODULE`, name that in the table in the place of the entry here, and remove the entry.

use super::Module;
use crate::document::Value;
use crate::instance::Frequency::{self, Always, Instance, Once};
use crate::root::Stage::{self, Config, Final, Init};

type Names = &'static [&'static str];

const fn entry(name: &'static str, stage: Stage, frequency: Frequency, keys: Names, distros: Names) -> Module {
    Module { name, stage, frequency, keys, distros, provision: None, live: None }
}

const DEBIAN: Names = &["ubuntu", "debian", "raspberry-pi-os"];

pub static ANSIBLE: Module = entry("ansible", Final, Instance, &["ansible"], &[]);
pub static APT_CONFIGURE: Module = entry("apt_configure", Config, Instance, &["apt"], DEBIAN);
pub static BYOBU: Module = entry("byobu", Config, Instance, &["byobu_by_default"], DEBIAN);
pub static CHEF: Module = entry("chef", Final, Always, &["chef"], &[]);
pub static DISK_SETUP: Module = entry("disk_setup", Init, Instance, &["disk_setup", "fs_setup"], &[]);
pub static FAN: Module = entry("fan", Final, Instance, &["fan"], &["ubuntu"]);
pub static GROWPART: Module = entry("growpart", Init, Always, &["growpart"], &[]);
pub static GRUB_DPKG: Module = entry("grub_dpkg", Config, Instance, &["grub_dpkg", "grub-dpkg"], &["ubuntu", "debian"]);
pub static INSTALL_HOTPLUG: Module = entry("install_hotplug", Final, Instance, &[], &[]);
pub static LANDSCAPE: Module = entry("landscape", Final, Instance, &["landscape"], &["ubuntu"]);
pub static LXD: Module = entry("lxd", Final, Instance, &["lxd"], &["ubuntu"]);
pub static MCOLLECTIVE: Module = entry("mcollective", Final, Instance, &["mcollective"], &[]);
pub static PUPPET: Module = entry("puppet", Final, Instance, &["puppet"], &[]);
pub static RASPBERRY_PI: Module = entry("raspberry_pi", Config, Instance, &["rpi"], &["raspberry-pi-os"]);
pub static RESET_RMC: Module = entry("reset_rmc", Final, Instance, &[], &[]);
pub static RESIZEFS: Module = entry("resizefs", Init, Always, &["resize_rootfs"], &[]);
pub static RH_SUBSCRIPTION: Module =
    entry("rh_subscription", Config, Instance, &["rh_subscription"], &["fedora", "rhel"]);
pub static SALT_MINION: Module = entry("salt_minion", Final, Instance, &["salt_minion"], &[]);
pub static SNAP: Module = entry("snap", Config, Instance, &["snap"], &["ubuntu"]);
pub static SPACEWALK: Module = entry("spacewalk", Config, Instance, &["spacewalk"], &["rhel", "fedora", "openeuler"]);
pub static UBUNTU_AUTOINSTALL: Module = entry("ubuntu_autoinstall", Config, Once, &["autoinstall"], &["ubuntu"]);
pub static UBUNTU_DRIVERS: Module = entry("ubuntu_drivers", Final, Instance, &["drivers"], &["ubuntu"]);
pub static UBUNTU_PRO: Module = entry("ubuntu_pro", Config, Instance, &["ubuntu_pro", "ubuntu_advantage"], &["ubuntu"]);
pub static WIREGUARD: Module = entry("wireguard", Config, Instance, &["wireguard"], &["ubuntu"]);

/// The key with which a configuration asks for an unsupported module.
pub fn requested(module: &Module, config: &Value) -> Option<&'static str> {
    // An image's configuration may have `apt: {preserve_sources_list: true}`, which asks for nothing.
    let asks = |value: &Value| {
        !value.is_null() && value.as_map().is_none_or(|m| m.keys().any(|k| k != "preserve_sources_list"))
    };
    module.keys.iter().copied().find(|key| config.get(key).is_some_and(asks))
}
