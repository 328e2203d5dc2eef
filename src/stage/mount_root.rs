//! Finds the root that the kernel command line names and mounts it, where prepivot is the initramfs's own /init.
//!
//! Follows the kernel's own root=, rootfstype=, rootflags=, ro, rw, rootwait and rootdelay
//! (Documentation/admin-guide/kernel-parameters.txt).

use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::drive::Search;
use crate::drive::devices::Places;
use crate::drive::search::Probed;
use crate::machine::{Cmdline, Drivers, Machine};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

/// How long the root's device is waited for.
const WAIT: Duration = Duration::from_secs(90);
/// The same with `rootwait`, which has no limit of its own.
const ROOTWAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Options of mount(8) that are flags of the system call; the others are the file system's own.
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
/// Options of mount(8) without effect here.
const IGNORED: [&str; 4] = ["defaults", "ro", "rw", ""];

/// The kernel command line's options for the root.
#[derive(Debug, PartialEq)]
struct Asked {
    device: String,
    /// None: what the device holds.
    kind: Option<String>,
    flags: MountFlags,
    /// The file system's own options.
    data: String,
    wait: Duration,
}

impl Asked {
    fn read(cmdline: &Cmdline) -> Result<Asked> {
        let device = cmdline.value("root").filter(|root| !root.is_empty());
        let device = device.ok_or_else(|| Error::new("kernel command line: there is no root="))?.to_owned();
        // The last one takes precedence, as for the kernel; without one it is ro.
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
        let wait = forever.or(seconds("rootwait")).or(seconds("rootdelay").map(|delay| delay + WAIT)).unwrap_or(WAIT);
        let kind = cmdline.value("rootfstype").filter(|kind| !kind.is_empty()).map(str::to_owned);
        Ok(Asked { device, kind, flags, data: data.join(","), wait: wait.min(ROOTWAIT) })
    }
}

/// Mounts the root at `target`, with the drivers that the initramfs has.
///
/// # Errors
///
/// There is no `root=`, its device does not appear in time, or the kernel cannot mount it: with the devices that are there.
pub fn mount_root(machine: &Machine, target: &Path) -> Result<()> {
    let asked = Asked::read(&machine.cmdline)?;
    let mut drives = Search::new(&[], Places::default());
    drives.use_drivers(Drivers::of(machine, &machine.base));
    let found = find(&mut drives, &asked.device, Deadline::after(asked.wait))?;
    let kinds: Vec<&str> = match (&asked.kind, found.superblock()) {
        (Some(kind), _) => kind.split(',').collect(),
        // The driver of ext4 is the only one that many kernels have for all three.
        (None, Some(superblock)) if superblock.kind.starts_with("ext") => vec!["ext4", superblock.kind],
        (None, Some(superblock)) => vec![superblock.kind],
        (None, None) => return Err(Error::new(format!("root={}: {found}; give rootfstype=", asked.device))),
    };
    // A file system that is a module of the initramfs.
    if let Some(drivers) = drives.drivers() {
        drivers.named(&kinds);
    }
    let node = &found.device.node;
    let data = CString::new(asked.data.as_str()).context(|| "rootflags=")?;
    let mut reason = None;
    for kind in kinds {
        let mut mounted = mount(node, target, kind, asked.flags, data.as_c_str());
        if matches!(mounted, Err(Errno::ACCESS | Errno::ROFS)) {
            // A medium that cannot be written.
            mounted = mount(node, target, kind, asked.flags | MountFlags::RDONLY, data.as_c_str());
        }
        match mounted {
            Ok(()) => return Ok(()),
            Err(e) => reason = reason.or(Some(format!("failed to mount {} as {kind}: {e}", node.display()))),
        }
    }
    Err(Error::new(reason.unwrap_or_default()).context(format!("root={}", asked.device)))
}

fn find(drives: &mut Search, device: &str, deadline: Deadline) -> Result<Probed> {
    let is_named = |drives: &Search| drives.seen().iter().find(|probed| probed.is_named(device)).cloned();
    loop {
        // No drive has one of no labels: a step reads what is there, or appears.
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
    fn the_kernel_command_line_says_what_is_mounted_and_how() {
        let of = |line: &str| Asked::read(&Cmdline::new(line));
        let asked =
            of("root=LABEL=root ro rootflags=noatime,subvol=@,defaults rw rootfstype=btrfs rootwait=5").unwrap();
        let expected = Asked {
            device: "LABEL=root".into(),
            kind: Some("btrfs".into()),
            flags: MountFlags::NOATIME,
            data: "subvol=@".into(),
            wait: Duration::from_secs(5),
        };
        assert_eq!(asked, expected);
        let plain = of("root=/dev/vda1").unwrap();
        assert_eq!((plain.flags, plain.data.as_str(), plain.wait), (MountFlags::RDONLY, "", WAIT));
        assert_eq!(of("root=/dev/vda1 rootwait").unwrap().wait, ROOTWAIT);
        assert_eq!(of("root=a rootdelay=99999999999999999999 rootwait=x").unwrap().wait, WAIT);
        for line in ["", "root=", "quiet ro"] {
            assert!(of(line).unwrap_err().to_string().contains("no root="), "{line}");
        }
    }

    #[test]
    fn a_root_that_is_not_there_is_named_with_what_is() {
        let dir = crate::base::testing::TempDir::new("mount-root");
        std::fs::create_dir_all(dir.0.join("sys")).unwrap();
        let mut drives = Search::new(&[], Places { sys: dir.0.join("sys"), dev: dir.0.clone() });
        let error = find(&mut drives, "UUID=1", Deadline::after(Duration::from_millis(10))).err().unwrap().to_string();
        assert!(error.starts_with("root=UUID=1 did not appear; there are: no block device"), "{error}");
    }
}
