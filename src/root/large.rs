//! Files that are too large to hold in memory, such as swap files: they are created on the disk at once.

use super::disk::{Disk, own};
use super::{Attr, Command, Root};
use crate::base::error::{Context, Error, Result};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;

impl Root {
    /// Creates a file at once, 0600, replacing an existing one; `fill` writes its content. Changes so far are committed first.
    ///
    /// It is recorded as `shown`, the commands with the same effect. In a root that is not the running system, nothing
    /// else happens.
    ///
    /// # Errors
    /// Its file system is not mounted yet, or `fill` fails: then nothing is at `path`.
    pub fn make_large(
        &mut self,
        path: &str,
        shown: &[Command],
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        let (resolved, _) = self.overlay.resolve_to_change(path, true)?;
        if self.overlay.below_unmounted(&resolved) {
            return Err(Error::new(format!("failed to make {path}: its file system is not mounted")));
        }
        self.overlay.make_parents(&resolved, path)?;
        shown.iter().for_each(|command| self.commands.record(command));
        if !self.is_live() {
            return Ok(());
        }
        if let Some(e) = self.commit().into_iter().next() {
            return Err(e);
        }
        self.overlay.disk().make_large(&resolved, fill).context(|| format!("failed to make {path}"))
    }
}

impl Disk {
    fn make_large(&self, path: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        match fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))?);
        own(&file, Attr::root(0o600)).and_then(|()| fill(&mut file)).inspect_err(|_| {
            let _ = fs::unlinkat(&parent, name, AtFlags::empty());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn large_file_is_whole_or_absent() {
        let dir = TempDir::new("large");
        let disk = Disk::open(&dir.0, None).unwrap();
        let path = dir.0.join("file");
        std::fs::write(&path, "old").unwrap();
        disk.make_large("file", |file| file.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(disk.make_large("file", |_| Err(io::Error::other("no"))).is_err() && !path.exists());
    }
}
