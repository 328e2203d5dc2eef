//! A root that is mounted read-only, and the texts of mount tables.

use crate::base::error::{Context, Error, Result};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use std::path::{Path, PathBuf};

/// Undoes the octal escapes of fstab and of the kernel's list of mounts (fstab(5)).
pub fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// An error where the file system at `path` is mounted read-only.
pub fn check_writable(path: &Path) -> Result<()> {
    let flags = statvfs(path).context(|| format!("failed to look at the root {}", path.display()))?.f_flag;
    if flags.contains(StatVfsMountFlags::RDONLY) {
        let path = path.display();
        return Err(Error::new(format!(
            "the root {path} is read-only and nothing is changed: make it writable (mount -o remount,rw {path})"
        )));
    }
    Ok(())
}

/// A root that was mounted read-only and is writable for the work; dropping it puts it back as it was.
pub struct Writable {
    path: PathBuf,
    flags: MountFlags,
}

impl Writable {
    /// Makes the file system mounted at `path` writable. None if it was already.
    pub fn make(path: &Path) -> Result<Option<Writable>> {
        let flags = statvfs(path).context(|| format!("failed to look at the root {}", path.display()))?.f_flag;
        if !flags.contains(StatVfsMountFlags::RDONLY) {
            return Ok(None);
        }
        // Not relatime: a remount without a flag of access times keeps what there is, and beside nodiratime it is the
        // default (mount(2)).
        let mut keep = MountFlags::empty();
        for (set, flag) in [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
        ] {
            if flags.contains(set) {
                keep |= flag;
            }
        }
        mount_remount(path, keep, c"")
            .context(|| format!("the root {} is read-only and cannot be made writable", path.display()))?;
        Ok(Some(Writable { path: path.to_owned(), flags: keep | MountFlags::RDONLY }))
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        if let Err(e) = mount_remount(&self.path, self.flags, c"") {
            log::warn!("failed to make the root {} read-only again: {e}", self.path.display());
        }
    }
}
