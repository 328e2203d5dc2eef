//! Finds and mounts the root that the kernel command line names, if prepivot itself is the initramfs's /init.
//!
//! Follows the kernel's root=, rootfstype=, rootflags=, ro, rw, rootwait and rootdelay
//! (Documentation/admin-guide/kernel-parameters.txt).

use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::drive::DriveSearch;
use crate::drive::devices::Places;
use crate::drive::search::Probed;
use crate::machine::{Cmdline, Drivers, Machine};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

/// How long to wait for the root's device.
const WAIT: Duration = Duration::from_secs(90);
/// The same with `rootwait`, which has no limit in the kernel.
const ROOTWAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Options of mount(8) that are flags of the system call; the others are passed to the file system.
const FLAGS: &[(&str, MountFlags)] = &[
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("lazytime", MountFlags::LAZYTIME),
];
/// Options of mount(8) that have no effect here.
const IGNORED: [&str; 4] = ["defaults", "ro", "rw", ""];

/// The kernel command line's options for the root.
#[derive(Debug, PartialEq)]
struct RootOptions {
    device: String,
    /// None: determined from the device's superblock.
    kind: Option<String>,
    flags: MountFlags,
    /// The file system's own options.
    data: String,
    wait: Duration,
}

impl RootOptions {
    fn read(cmdline: &Cmdline) -> Result<RootOptions> {
        let device = cmdline.value("root").filter(|root| !root.is_empty());
        let device = device.ok_or_else(|| Error::new("kernel command line: there is no root="))?.to_owned();
        // The last one takes precedence, as in the kernel; the default is ro.
        let mut flags = MountFlags::RDONLY;
        for word in cmdline.words() {
            match word {
                "ro" => flags.insert(MountFlags::RDONLY),
                "rw" => flags.remove(MountFlags::RDONLY),
                _ => {}
            }
        }
        let mut data = Vec::new();
        for option in cmdline.value("rootflags").unwrap_or_default().split(',') {
            match FLAGS.iter().find(|(name, _)| *name == option) {
                Some((_, flag)) => flags.insert(*flag),
                None if IGNORED.contains(&option) => {}
                None => data.push(option),
            }
        }
        let seconds = |key| cmdline.value(key).and_then(|v| v.parse().ok()).map(Duration::from_secs);
        let forever = cmdline.has("rootwait").then_some(ROOTWAIT);
        let wait = forever
            .or(seconds("rootwait"))
            .or(seconds("rootdelay").map(|delay| delay.saturating_add(WAIT)))
            .unwrap_or(WAIT);
        let kind = cmdline.value("rootfstype").filter(|kind| !kind.is_empty()).map(str::to_owned);
        Ok(RootOptions { device, kind, flags, data: data.join(","), wait: wait.min(ROOTWAIT) })
    }
}

/// Mounts the root at `target`, with drivers from the initramfs.
///
/// # Errors
/// There is no `root=`; its device does not appear in time, and the error lists the present devices;
/// or the kernel cannot mount it.
pub fn mount_root(machine: &Machine, target: &Path) -> Result<()> {
    let options = RootOptions::read(&machine.cmdline)?;
    let mut drives = DriveSearch::new(&[] as &[String], Places::default());
    drives.use_drivers(Drivers::of(machine, &machine.base));
    let found = find(&mut drives, &options.device, Deadline::after(options.wait))?;
    let kinds: Vec<&str> = match (&options.kind, found.superblock()) {
        (Some(kind), _) => kind.split(',').collect(),
        // Many kernels have only ext4's driver for ext2, ext3 and ext4.
        (None, Some(superblock)) if superblock.kind.starts_with("ext") => vec!["ext4", superblock.kind],
        (None, Some(superblock)) => vec![superblock.kind],
        (None, None) => return Err(Error::new(format!("root={}: {found}; give rootfstype=", options.device))),
    };
    // The file system's driver may be a module in the initramfs.
    if let Some(drivers) = drives.drivers() {
        drivers.named(&kinds);
    }
    let node = &found.device.node;
    let data = CString::new(options.data.as_str()).context(|| "rootflags=")?;
    let mut reason = None;
    for kind in kinds {
        let mut mounted = mount(node, target, kind, options.flags, data.as_c_str());
        if matches!(mounted, Err(Errno::ACCESS | Errno::ROFS)) {
            // The medium cannot be written.
            mounted = mount(node, target, kind, options.flags | MountFlags::RDONLY, data.as_c_str());
        }
        match mounted {
            Ok(()) => return Ok(()),
            Err(e) => reason = reason.or(Some(format!("failed to mount {} as {kind}: {e}", node.display()))),
        }
    }
    Err(Error::new(reason.unwrap_or_default()).context(format!("root={}", options.device)))
}

fn find(drives: &mut DriveSearch, device: &str, deadline: Deadline) -> Result<Probed> {
    let is_named = |drives: &DriveSearch| drives.seen().iter().find(|probed| probed.is_named(device)).cloned();
    loop {
        // The search has no label and finds nothing: it only reads the devices that are present or appear.
        drives.scan(deadline)?;
        if let Some(found) = is_named(drives) {
            return Ok(found);
        }
        if deadline.passed() || !drives.wait_for_change(deadline)? {
            break;
        }
    }
    let seen: Vec<String> = drives.seen().iter().map(ToString::to_string).collect();
    let seen = if seen.is_empty() {
        "no block device is there: is its driver in the initramfs?".into()
    } else {
        seen.join(", ")
    };
    Err(Error::new(format!("root={device} did not appear; there are: {seen}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_command_line_selects_root_and_options() {
        let of = |line: &str| RootOptions::read(&Cmdline::new(line));
        let options =
            of("root=LABEL=root ro rootflags=noatime,subvol=@,defaults rw rootfstype=btrfs rootwait=5").unwrap();
        let expected = RootOptions {
            device: "LABEL=root".into(),
            kind: Some("btrfs".into()),
            flags: MountFlags::NOATIME,
            data: "subvol=@".into(),
            wait: Duration::from_secs(5),
        };
        assert_eq!(options, expected);
        let plain = of("root=/dev/vda1").unwrap();
        assert_eq!((plain.flags, plain.data.as_str(), plain.wait), (MountFlags::RDONLY, "", WAIT));
        assert_eq!(of("root=/dev/vda1 rootwait").unwrap().wait, ROOTWAIT);
        assert_eq!(of("root=a rootdelay=99999999999999999999 rootwait=x").unwrap().wait, WAIT);
        assert_eq!(of("root=a rootdelay=18446744073709551615").unwrap().wait, ROOTWAIT);
        for line in ["", "root=", "quiet ro"] {
            assert!(of(line).unwrap_err().to_string().contains("no root="), "{line}");
        }
    }

    #[test]
    fn names_a_missing_root_and_present_devices() {
        let dir = crate::base::testing::TempDir::new("mount-root");
        std::fs::create_dir_all(dir.0.join("sys")).unwrap();
        let mut drives = DriveSearch::new(&[] as &[String], Places { sys: dir.0.join("sys"), dev: dir.0.clone() });
        let error = find(&mut drives, "UUID=1", Deadline::after(Duration::from_millis(10))).err().unwrap().to_string();
        assert!(error.starts_with("root=UUID=1 did not appear; there are: no block device"), "{error}");
    }
}
