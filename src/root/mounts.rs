//! Roots that are mounted read-only, and escapes in mount tables.

use crate::base::error::{Context, Error, Result};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use std::path::{Path, PathBuf};

/// Decodes the octal escapes of fstab and of the kernel's mount list (fstab(5)).
pub fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Checks that the file system at `path` is not mounted read-only.
///
/// # Errors
/// It is.
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

/// A file system that was mounted read-only and is writable until this is dropped.
pub struct Writable {
    path: PathBuf,
    flags: MountFlags,
}

impl Writable {
    /// Remounts the file system at `path` writable. None if it already is.
    ///
    /// # Errors
    /// The remount fails.
    pub fn make(path: &Path) -> Result<Option<Writable>> {
        let flags = statvfs(path).context(|| format!("failed to look at the root {}", path.display()))?.f_flag;
        if !flags.contains(StatVfsMountFlags::RDONLY) {
            return Ok(None);
        }
        // relatime is left out: a remount without an access time flag keeps the current setting, and it is
        // the default beside nodiratime (mount(2)).
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
