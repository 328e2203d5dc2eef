//! # grub_dpkg
//!
//! Answers debconf's questions on which disks GRUB is installed when its package is updated. Without an answer the disk of
//! /boot is used, or, on a machine with EFI, the partition of /boot/efi.
//!
//! ```yaml
//! grub_dpkg:
//!   enabled: true
//!   grub-pc/install_devices: /dev/sda
//!   grub-pc/install_devices_empty: false
//! ```
//!
//! ```schema
//! grub_dpkg: {
//!  enabled: bool
//!  grub-pc/install_devices, grub-efi/install_devices: str
//!  grub-pc/install_devices_empty: bool | str ^22.3 "Use a boolean instead."
//! }
//! grub-dpkg: map ~22.2 grub_dpkg
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::ModuleContext;

pub static MODULE: Module = Module {
    name: "grub_dpkg",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["grub_dpkg", "grub-dpkg"],
    distros: &["ubuntu", "debian"],
    running: Some(running),
    offline: true,
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let key = if cx.config.get("grub_dpkg").is_some() { "grub_dpkg" } else { "grub-dpkg" };
    let Some(section) = cx.map(key) else { return Ok(()) };
    if !section.get("enabled").is_some_and(|v| !v.is_null() && !v.is_false()) {
        return Ok(());
    }
    let is_efi = cx.root.exists("/sys/firmware/efi");
    let question = if is_efi { "grub-efi/install_devices" } else { "grub-pc/install_devices" };
    let devices = match section.get(question).and_then(Value::text) {
        Some(devices) if devices.contains(char::is_control) => {
            return Err(Error::new(format!("{key}.{question}: expected names of devices in one line")));
        }
        Some(devices) => devices,
        None => of_boot(cx, is_efi)?,
    };
    let mut answers = format!("grub-pc {question} string {devices}\n");
    if !is_efi {
        let empty = section.get("grub-pc/install_devices_empty").filter(|v| !v.is_null());
        let empty = empty.map_or(devices.is_empty(), Value::is_true);
        answers.push_str(&format!("grub-pc grub-pc/install_devices_empty boolean {empty}\n"));
    }
    if let Err(e) = cx.root.run(Command::new(["debconf-set-selections"]).stdin(answers)) {
        cx.report.warn(format_args!("{key}: {e}"));
    }
    Ok(())
}

/// The disk of /boot, or with EFI the device of /boot/efi, by its first name in /dev/disk/by-id. Empty if it cannot be
/// found, as in a container.
fn of_boot(cx: &mut ModuleContext, is_efi: bool) -> Result<String> {
    let (target, path) = if is_efi { ("device", "/boot/efi") } else { ("disk", "/boot") };
    let probe = Command::new(["grub-probe", "-t", target, path]).with_errors();
    let Ok(found) = cx.root.output(probe) else {
        log::info!("grub_dpkg: grub-probe is not installed");
        return Ok(String::new());
    };
    if found.status != 0 {
        // The disk of a container's host has no node in the container.
        if String::from_utf8_lossy(&found.stderr).contains("failed to get canonical path") {
            return Ok(String::new());
        }
        return Err(Error::new(format!("grub-probe for {path} ended with exit status {}", found.status)));
    }
    let disk = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if disk.is_empty() || !cx.root.exists(&disk) {
        return Ok(String::new());
    }
    let links = match cx.root.output(Command::new(["udevadm", "info", "--root", "--query=symlink", &disk])) {
        Ok(found) if found.status == 0 => String::from_utf8_lossy(&found.stdout).into_owned(),
        _ => {
            cx.report.warn(format_args!("grub_dpkg: udev does not say other names of {disk}"));
            String::new()
        }
    };
    let first = links.split_whitespace().filter(|link| link.contains("disk/by-id")).min();
    Ok(first.map_or(disk, str::to_owned))
}
