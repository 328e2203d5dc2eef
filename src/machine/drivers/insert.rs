//! Loads one module into the kernel (init_module(2)), and sets the path of its firmware.

use super::super::beneath;
use crate::base::error::{Context, Error, Result};
use crate::base::gzip;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::system::{finit_module, init_module};
use std::ffi::CString;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The largest decompressed module, in bytes.
const MAX_MODULE: usize = 32 << 20;
/// init_module(2)'s flag: the file is compressed.
const COMPRESSED_FILE: i32 = 4;
/// Where the kernel looks for firmware first (Documentation/driver-api/firmware/fw_search_path.rst of the kernel).
const FIRMWARE_PATH: &str = "sys/module/firmware_class/parameters/path";

/// Loads the module at `path` below `root` with `options`. Returns false if neither the kernel nor this
/// program can decompress it. Returns true also if another program was faster, or if the machine lacks what
/// the module supports, such as CPU instructions.
///
/// # Errors
/// It cannot be read, or the kernel refuses it.
pub fn module(base: &Path, root: &Path, path: &str, options: &str) -> Result<bool> {
    let file = beneath::open(root, path, OFlags::RDONLY).ok_or_else(|| Error::new(format!("failed to open {path}")))?;
    let file = File::from(file);
    let options = CString::new(options).context(|| "its options have a zero byte")?;
    let packed = match path.rsplit('.').next() {
        Some("gz") => Some("gzip"),
        Some("xz") => Some("xz"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    let inserted = match packed {
        None => finit_module(&file, &options, 0),
        Some(way) if beneath::read(base, "sys/module/compression").is_some_and(|by| by.trim() == way) => {
            finit_module(&file, &options, COMPRESSED_FILE)
        }
        Some("gzip") => {
            let mut image = Vec::new();
            gzip::unpack_to(&mut BufReader::new(&file), MAX_MODULE, &mut image)
                .context(|| format!("failed to unpack {path}"))?;
            init_module(&image, &options)
        }
        Some(_) => return Ok(false),
    };
    match inserted {
        Ok(()) | Err(Errno::EXIST | Errno::NODEV) => Ok(true),
        Err(e) => Err(e).context(|| format!("the kernel refused {path}")),
    }
}

/// Makes the kernel read firmware from the new root until this is dropped.
pub struct Firmware(Option<PathBuf>);

impl Firmware {
    /// Sets the kernel's firmware path to that of `root`, unless one is set.
    pub fn of(base: &Path, root: &Path) -> Firmware {
        let place = base.join(FIRMWARE_PATH);
        let is_free = beneath::read(base, FIRMWARE_PATH).is_some_and(|path| path.trim().is_empty());
        let folder = ["usr/lib/firmware", "lib/firmware"].into_iter().find(|folder| beneath::exists(root, folder));
        let set = folder
            .filter(|_| is_free)
            .map(|folder| std::fs::write(&place, root.join(folder).as_os_str().as_encoded_bytes()));
        Firmware(set.and_then(|written| written.is_ok().then_some(place)))
    }
}

impl Drop for Firmware {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            // Writing zero bytes has no effect: a NUL is written.
            let _ = std::fs::write(place, [0]);
        }
    }
}
