//! `swap`: a swap file, its size and its path.

use crate::base::error::{Error, Result};
use crate::base::uuid;
use crate::document::{Map, Value, wrong};
use crate::root::{Command, Root};
use crate::system::{ModuleContext, fstab, mount_table};
use rustix::fs::{self, FallocateFlags, IFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

const GIB: u64 = 1 << 30;
/// The largest swap file that can be configured, in bytes.
const MAX_SIZE: u64 = 1 << 44;
/// The smallest swap file, in bytes: the kernel needs ten pages of up to 64 KiB (mkswap(8)).
const MIN_SIZE: u64 = 1 << 20;
/// How many bytes are written at a time if the file cannot be allocated.
const CHUNK: usize = 1 << 20;
/// The offset of the header's fields, after the boot block (`union swap_header`, include/linux/swap.h).
const INFO: usize = 1024;
const MAGIC: &[u8] = b"SWAPSPACE2";

/// A swap file for fstab.
pub(super) struct Swap {
    pub(super) path: String,
    /// Whether it was created now, so that the kernel does not use it yet.
    pub(super) is_new: bool,
}

/// Creates the configured swap file. None if none is configured.
pub(super) fn make(cx: &mut ModuleContext) -> Result<Option<Swap>> {
    let Some(section) = cx.map("swap") else { return Ok(None) };
    let path = section.get("filename").filter(|v| !v.is_null()).map_or(Some("/swap.img"), Value::as_str);
    let path = path.filter(|p| p.starts_with('/') && !p.ends_with('/') && !p.contains(|c: char| c.is_control()));
    let path = path.ok_or_else(|| Error::new("swap.filename: expected the absolute path of a file"))?.to_owned();
    let Some(size) = size(cx, section, &path)? else { return Ok(None) };
    if cx.root.exists(&path) && in_use(cx, &path) {
        return Ok(Some(Swap { path, is_new: false }));
    }
    match size >> 20 {
        0 if size == 0 => {
            log::info!("swap: no swap file is made: its size would be 0");
            Ok(None)
        }
        0 => Err(Error::new(format!("swap.size: {size} bytes: expected 1 MiB or more, with a unit such as 512M"))),
        mebibytes => {
            let is_btrfs = mount_table::containing(cx.root, &path).is_some_and(|m| m.kind == "btrfs");
            create(cx.root, &path, mebibytes, is_btrfs)?;
            Ok(Some(Swap { path, is_new: true }))
        }
    }
}

/// Creates a swap file, on btrfs without copy on write. It is recorded as the commands with the same effect.
///
/// # Errors
/// Its file system is not mounted yet or has no space.
fn create(root: &mut Root, path: &str, mebibytes: u64, is_btrfs: bool) -> Result<()> {
    let size = format!("{mebibytes}M");
    let without_copies = [&["truncate", "-s", "0", path][..], &["chattr", "+C", path]];
    let made = [&["fallocate", "-l", &size, path][..], &["mkswap", path]];
    let argvs = without_copies.into_iter().filter(|_| is_btrfs).chain(made);
    let shown: Vec<Command> = argvs.map(|argv| Command::new(argv.iter().copied())).collect();
    root.make_large(path, &shown, |file| fill(file, mebibytes << 20))
}

/// Whether the kernel swaps to the file; assumed if that is unknown, so that the file is not changed.
fn in_use(cx: &ModuleContext, path: &str) -> bool {
    let swaps = cx.root.text("/proc/swaps");
    let escaped = fstab::escape(path);
    cx.root.is_live() && swaps.is_empty() || swaps.lines().any(|l| l.split_whitespace().next() == Some(&escaped))
}

/// The size in bytes. None if no swap file is configured.
fn size(cx: &ModuleContext, section: &Map, path: &str) -> Result<Option<u64>> {
    let is_asked =
        |v: &&Value| !matches!(v, Value::Null | Value::Bool(false) | Value::Int(0)) && v.as_str() != Some("");
    let Some(value) = section.get("size").filter(is_asked) else { return Ok(None) };
    let limit = match section.get("maxsize").filter(|v| !v.is_null()) {
        None => None,
        Some(value) => Some(bytes("swap.maxsize", value)?),
    };
    match value {
        Value::String(word) if word.eq_ignore_ascii_case("auto") => {
            let Some(memory) = cx.outside.memory() else {
                log::info!("swap: no swap file is made: the size of the memory is not known");
                return Ok(None);
            };
            let folder = path.rsplit_once('/').map_or("/", |(folder, _)| if folder.is_empty() { "/" } else { folder });
            Ok(Some(suggested(memory, limit, cx.outside.free_space(folder))))
        }
        // `maxsize` only limits the suggested size.
        value => bytes("swap.size", value).map(|size| Some(size).filter(|s| *s > 0)),
    }
}

/// cloud-init's size for `auto`: the size of the memory up to 4 GiB, 4 GiB for up to 16 GiB, then growing
/// with the square root of the memory; at most `limit` and nine tenths of the free space, or without a limit
/// a quarter of it.
fn suggested(memory: u64, limit: Option<u64>, free: Option<u64>) -> u64 {
    let wanted = match memory {
        m if m < 4 * GIB => m,
        m if m < 16 * GIB => 4 * GIB,
        m => (((m as f64) / GIB as f64).sqrt().round() as u64) * GIB,
    };
    let most = match (limit, free) {
        (Some(limit), Some(free)) => limit.min(free / 10 * 9),
        (Some(limit), None) => limit,
        (None, Some(free)) => (free / 4).min(memory.saturating_mul(2)),
        (None, None) => memory.saturating_mul(2),
    };
    wanted.min(most)
}

/// Parses a number of bytes, optionally with a unit: `512M`, `1.5GB`, `2GiB`. All are powers of 1024.
fn bytes(key: &str, value: &Value) -> Result<u64> {
    let fail = || Error::new(format!("{key}: expected auto or a size such as 512M or 2G"));
    let text = value.text().ok_or_else(|| wrong(key, "a size", value))?;
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find_map(|(letter, shift)| Some((text.strip_suffix(*letter)?, *shift)));
    let (number, shift) = unit.map_or((text, 0), |(number, shift)| (number.trim_end(), shift));
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain).ok_or_else(fail)?;
    let size = number * (1u64 << shift) as f64;
    if size <= MAX_SIZE as f64 { Ok(size as u64) } else { Err(Error::new(format!("{key}: more than 16 TiB"))) }
}

/// Makes a file a swap space of `size` bytes.
fn fill(file: &mut File, size: u64) -> io::Result<()> {
    if size < MIN_SIZE {
        return Err(io::Error::other("it would be too small"));
    }
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
        let path = dir.0.join("swap.img");
        let mut file = File::create_new(&path).unwrap();
        fill(&mut file, 4 << 20).unwrap();
        let (meta, bytes) = (std::fs::metadata(&path).unwrap(), std::fs::read(&path).unwrap());
        assert_eq!(meta.len(), 4 << 20);
        assert!(meta.blocks() * 512 >= 4 << 20, "a swap file may have no holes");
        let page = rustix::param::page_size();
        assert_eq!(&bytes[page - 10..page], b"SWAPSPACE2");
        assert_eq!(bytes[1028..1032], u32::try_from((4 << 20) / page - 1).unwrap().to_ne_bytes());
        assert!(fill(&mut file, 4096).is_err());
        // util-linux's own program sees it as one.
        match std::process::Command::new("/usr/sbin/swaplabel").arg(&path).output() {
            Ok(out) => assert!(String::from_utf8_lossy(&out.stdout).contains("UUID"), "{out:?}"),
            Err(e) => crate::base::testing::skip(format!("swaplabel: {e}")),
        }
    }

    #[test]
    fn sizes() {
        for (text, size) in [
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("2GiB", 2 << 30),
            ("10485760B", 10_485_760),
            ("1 G", 1 << 30),
            ("7", 7),
        ] {
            assert_eq!(bytes("s", &Value::from(text)).unwrap(), size, "{text}");
        }
        for text in ["1Q", "", "K", "..5T", "-1G", "nanG", "infM", "1e9", "99999T"] {
            assert!(bytes("s", &Value::from(text)).is_err(), "{text}");
        }
        assert_eq!(suggested(2 * GIB, Some(10 * GIB), None), 2 * GIB);
        assert_eq!(suggested(8 * GIB, None, Some(8 * GIB)), 2 * GIB);
        assert_eq!(suggested(64 * GIB, None, None), 8 * GIB);
        assert_eq!(suggested(8 * GIB, Some(8 * GIB), Some(GIB)), GIB / 10 * 9);
    }
}
