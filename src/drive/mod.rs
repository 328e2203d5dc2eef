//! Reads drives: label probe, mount, and file system readers for a kernel without drivers.
//!
//! [`DriveSearch`] finds drives by label, and [`open`] reads one into memory as [`Files`]. If the kernel has the
//! driver, it mounts the drive read-only; the files are copied in one pass within limits, and the drive is
//! unmounted. Otherwise ISO 9660, UDF, FAT and ext4 are read by the code here, as image files are. Both ways return the
//! same bytes under the same names.

pub mod block;
pub mod bytes;
pub mod devices;
mod ext;
pub mod extent;
mod fat;
mod fat_names;
mod files;
#[cfg(test)]
mod images;
mod iso9660;
pub mod label;
mod mount;
pub mod partition;
mod rock_ridge;
pub mod search;
pub mod settle;
mod tree;
mod udf;
pub mod wait;

pub use files::Files;
pub use mount::{folder, folder_at};
pub use search::DriveSearch;

use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use bytes::ReadAt;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Reads all files of a drive: a block device, an image file of one, or a folder with the same files.
///
/// A block device is mounted if the kernel has the driver. Otherwise ISO 9660, UDF, FAT, ext2, ext3 and ext4
/// are read here, which is faster than loading a driver for a few files. If that fails for a file (in a form
/// that only the kernel supports), the drive is mounted and the kernel loads its driver. An image file is
/// always read here, so that it needs no privileges.
///
/// # Errors No method can read it; the error has the reason of each.
pub fn open(drive: &Path, deadline: Deadline) -> Result<Files> {
    let what = || format!("failed to read {}", drive.display());
    let kind = drive.metadata().context(what)?.file_type();
    if kind.is_dir() {
        return folder(drive, deadline);
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Error::new("it is no block device, image file or folder")).context(what);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = File::from(rustix::fs::open(drive, flags, Mode::empty()).context(what)?);
    let (start, superblock) = label::read(&device).context(what)?;
    let Some(superblock) = superblock else {
        return Err(Error::new("there is no filesystem on it")).context(what);
    };
    if kind.is_file() {
        return without_kernel(&device, &start, superblock.kind, deadline).context(what);
    }
    let reader = || without_kernel(&device, &start, superblock.kind, deadline);
    if mount::has_driver(superblock.kind) {
        return mount::read(drive, superblock.kind, deadline).or_else(|mount| neither(&mount, reader()));
    }
    match reader() {
        Ok(files) if files.notes().is_empty() => Ok(files),
        read => mount::read(drive, superblock.kind, deadline).or_else(|mount| neither(&mount, read)),
    }
}

/// The files that were read without the kernel, after it failed to mount the drive.
fn neither(mount: &Error, read: Result<Files>) -> Result<Files> {
    read.map_err(|reader| Error::new(format!("{mount}; without the kernel: {reader}")))
}

/// Reads all files of a filesystem of type `kind` on `device` without the kernel.
fn without_kernel<R: ReadAt>(device: &R, start: &[u8], kind: &str, deadline: Deadline) -> Result<Files> {
    match kind {
        "iso9660" => tree::copy(&iso9660::Iso::open(device, start)?, deadline),
        "udf" => tree::copy(&udf::Udf::open(device)?, deadline),
        "vfat" => tree::copy(&fat::Fat::open(device, start)?, deadline),
        "ext2" | "ext3" | "ext4" => tree::copy(&ext::Ext::open(device, start)?, deadline),
        _ => Err(Error::new(format!("only the kernel can read {kind}: mount it, and give the folder"))),
    }
}
