//! Block devices: changed in place and in steps, through the same door as files.
//!
//! A journal on a file system cannot protect the partition table that locates that file system. Instead
//! the caller divides a change into steps, so that the device is readable after each of them and while one is
//! written in part. Every step is synced before the next begins.

use super::{Command, Root, Use};
use crate::base::error::{Context, Error, Result};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};

/// The alignment that direct I/O needs for buffers, in bytes: no device has larger sectors.
const ALIGNMENT: usize = 4096;

/// New content for whole sectors of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// In bytes; a multiple of the sector size, like the length of `content`.
    pub offset: u64,
    pub content: Vec<u8>,
}

/// Writes in the order in which they must reach the device: all of one list before the first of the next.
/// Within a list, sectors may arrive in any order.
pub type Steps = Vec<Vec<Write>>;

impl Root {
    /// Opens a block device for reading, or in a tree the file that represents one.
    ///
    /// # Errors
    /// There is no such device at `path`, or it cannot be opened.
    pub fn open_device(&self, path: &str) -> Result<File> {
        self.open_device_with(path, OFlags::RDONLY).context(|| format!("failed to open {path}"))
    }

    /// Changes a device's bytes. With `exclusive`, only if neither the device nor a partition of it is in
    /// use: mounted, as swap, or mapped (`O_EXCL`, open(2)). It is recorded as `shown`, the command with the
    /// same effect. Nothing is written in a plan; nor to a block device if the root is neither the running
    /// system's nor an initramfs's new root, because then the device belongs to another machine.
    ///
    /// # Errors
    /// The device is in use, or a write fails. Steps before the failed one stay written; later ones are not
    /// begun.
    pub fn write_device(&mut self, path: &str, steps: &[Vec<Write>], exclusive: bool, shown: Command) -> Result<()> {
        self.commands.record(&shown);
        if self.is_plan() {
            return Ok(());
        }
        let flags = if exclusive { OFlags::RDWR | OFlags::EXCL } else { OFlags::RDWR };
        let write = || -> io::Result<()> {
            let file = self.open_device_with(path, OFlags::RDONLY)?;
            if !file.metadata()?.file_type().is_block_device() {
                return write_steps(&self.open_device_with(path, OFlags::RDWR)?, steps);
            }
            if !self.has_devices() {
                return Ok(());
            }
            // Direct I/O writes only the sectors themselves. The page cache would write whole pages, and
            // overwrite what a mounted file system next to the table has changed meanwhile.
            write_steps(&self.open_device_with(path, flags | OFlags::DIRECT)?, steps)
        };
        write().map_err(|e| {
            let busy = e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error());
            let hint = if busy { ": it is in use; unmount its file systems and stop what lies on it" } else { "" };
            Error::new(format!("failed to write to {path}: {e}{hint}"))
        })
    }

    /// Whether this machine's block devices belong to the root.
    pub fn has_devices(&self) -> bool {
        self.is_live() || self.is_initramfs()
    }

    fn open_device_with(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let in_initramfs = self.is_initramfs();
        // The new root's own /dev is empty.
        let resolved =
            if in_initramfs { Ok(path.trim_start_matches('/').to_owned()) } else { self.overlay.resolve(path, true) };
        let resolved = resolved.map_err(|e| io::Error::other(e.to_string()))?;
        let open = |flags| {
            if in_initramfs {
                self.overlay.disk().open_own(&resolved, flags)
            } else {
                self.overlay.disk().open_at(&resolved, flags)
            }
        };
        let is_device = |file: &File| -> io::Result<bool> {
            let kind = file.metadata()?.file_type();
            Ok(kind.is_block_device()
                || (kind.is_file() && self.usage != Use::NewRoot && !self.overlay.disk().is_slash()))
        };
        // Opening another kind of device can have side effects: its type is checked first.
        let known = File::from(open(OFlags::PATH)?);
        if !is_device(&known)? {
            return Err(io::Error::other("it is not a block device"));
        }
        let file = File::from(open(flags | OFlags::NONBLOCK | OFlags::NOCTTY)?);
        if is_device(&file)? { Ok(file) } else { Err(io::Error::other("it is not a block device")) }
    }
}

fn write_steps(file: &File, steps: &[Vec<Write>]) -> io::Result<()> {
    for step in steps {
        for write in step {
            let (buffer, at) = aligned(&write.content);
            file.write_all_at(buffer.get(at..at + write.content.len()).unwrap_or_default(), write.offset)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

/// A copy of `content` that begins at a multiple of [`ALIGNMENT`], and its offset in the buffer.
fn aligned(content: &[u8]) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; content.len() + ALIGNMENT];
    let at = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    if let Some(to) = buffer.get_mut(at..at + content.len()) {
        to.copy_from_slice(content);
    }
    (buffer, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Stage;

    #[test]
    fn device_change_is_recorded_in_its_stage() {
        let dir = TempDir::new("device-stage");
        let mut root = dir.root(Use::Plan);
        root.enter(Stage::Network);
        root.write_device("/dev/vda", &[], true, Command::new(["sfdisk"])).unwrap();
        assert_eq!(root.commands().first().map(|command| command.when), Some(Stage::Network));
    }
}
