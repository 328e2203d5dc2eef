//! Swap files: too large to hold in memory, so they are created on the disk at once.

use super::disk::{Disk, own};
use super::{Attr, Command, Root};
use crate::base::error::{Context, Error, Result};
use crate::base::uuid;
use rustix::fs::{self, AtFlags, FallocateFlags, IFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

/// The smallest swap file, in bytes: the kernel needs ten pages of up to 64 KiB (mkswap(8)).
const MIN_SIZE: u64 = 1 << 20;
/// How many bytes are written at a time if the file cannot be allocated.
const CHUNK: usize = 1 << 20;
/// The offset of the header's fields, after the boot block (`union swap_header`, include/linux/swap.h).
const INFO: usize = 1024;
const MAGIC: &[u8] = b"SWAPSPACE2";

impl Root {
    /// Creates a swap file of `mebibytes`, 0600, replacing an existing file; on btrfs without copy on write.
    ///
    /// It is recorded as the commands with the same effect. In a root that is not the running system, nothing
    /// else happens.
    ///
    /// # Errors
    /// Its file system is not mounted yet or has no space, or the size is too small.
    pub fn make_swap(&mut self, path: &str, mebibytes: u64, is_btrfs: bool) -> Result<()> {
        let (resolved, _) = self.resolve_to_change(path, true)?;
        if self.below_unmounted(&resolved) {
            return Err(Error::new(format!("failed to make the swap file {path}: its file system is not mounted")));
        }
        self.make_parents(&resolved, path)?;
        let size = format!("{mebibytes}M");
        let mut show = |argv: &[&str]| self.record_command(&Command::new(argv.iter().copied()));
        if is_btrfs {
            show(&["truncate", "-s", "0", path]);
            show(&["chattr", "+C", path]);
        }
        show(&["fallocate", "-l", &size, path]);
        show(&["mkswap", path]);
        if !self.is_live() {
            return Ok(());
        }
        if let Some(e) = self.commit().into_iter().next() {
            return Err(e);
        }
        self.disk.make_swap(&resolved, mebibytes << 20).context(|| format!("failed to make the swap file {path}"))
    }
}

impl Disk {
    fn make_swap(&self, path: &str, size: u64) -> std::io::Result<()> {
        if size < MIN_SIZE {
            return Err(std::io::Error::other("it would be too small"));
        }
        let (parent, name) = self.open_parent(path)?;
        match fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))?);
        fill(&mut file, size).inspect_err(|_| {
            let _ = fs::unlinkat(&parent, name, AtFlags::empty());
        })
    }
}

fn fill(file: &mut File, size: u64) -> std::io::Result<()> {
    own(&*file, Attr::root(0o600))?;
    // Only btrfs knows the flag, and it can only be set while the file is empty.
    let _ = fs::ioctl_getflags(&*file).and_then(|flags| fs::ioctl_setflags(&*file, flags | IFlags::NOCOW));
    match fs::fallocate(&*file, FallocateFlags::empty(), 0, size) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let zeros = vec![0; CHUNK];
            let mut left = size;
            while left > 0 {
                let part = zeros.get(..usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)).unwrap_or_default();
                file.write_all(part)?;
                left -= part.len() as u64;
            }
        }
        result => result?,
    }
    let page = rustix::param::page_size();
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header(page, size))?;
    file.sync_all()
}

/// The first page of a swap space: version 1, the number of its last page, no bad pages, a random UUID, no
/// label.
fn header(page: usize, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; page];
    let mut put = |at: usize, field: &[u8]| {
        if let Some(to) = bytes.get_mut(at..at + field.len()) {
            to.copy_from_slice(field);
        }
    };
    let last = u32::try_from(size / page as u64 - 1).unwrap_or(u32::MAX);
    put(INFO, &1u32.to_ne_bytes());
    put(INFO + 4, &last.to_ne_bytes());
    put(INFO + 12, &uuid::random().unwrap_or_default());
    put(page - MAGIC.len(), MAGIC);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_made_is_a_swap_file() {
        let dir = TempDir::new("swap");
        let disk = Disk::open(&dir.0, None).unwrap();
        std::fs::write(dir.0.join("swap.img"), "old").unwrap();
        disk.make_swap("swap.img", 4 << 20).unwrap();
        let path = dir.0.join("swap.img");
        let (meta, bytes) = (std::fs::metadata(&path).unwrap(), std::fs::read(&path).unwrap());
        assert_eq!((meta.len(), meta.mode() & 0o777), (4 << 20, 0o600));
        assert!(meta.blocks() * 512 >= 4 << 20, "a swap file may have no holes");
        let page = rustix::param::page_size();
        assert_eq!(&bytes[page - 10..page], b"SWAPSPACE2");
        assert_eq!(bytes[1028..1032], u32::try_from((4 << 20) / page - 1).unwrap().to_ne_bytes());
        assert!(disk.make_swap("small", 4096).is_err() && !dir.0.join("small").exists());
        // util-linux's own program sees it as one.
        match std::process::Command::new("/usr/sbin/swaplabel").arg(&path).output() {
            Ok(out) => assert!(String::from_utf8_lossy(&out.stdout).contains("UUID"), "{out:?}"),
            Err(e) => crate::base::testing::skip(format!("swaplabel: {e}")),
        }
    }
}
