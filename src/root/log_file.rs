//! Logs that programs of the running system write directly.

use rustix::fd::OwnedFd;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, fchown};

/// Opens the log `path` for a program's output: to append, or emptied. A missing one is created with `mode`.
/// An empty log is given to `group`, even one that an earlier run created but could not give away before a
/// power cut.
///
/// # Errors
/// It cannot be opened or created.
pub fn open_log(path: &str, mode: u32, group: Option<u32>, append: bool) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.create(true).mode(mode).append(append).write(true).truncate(!append);
    let file = options.open(path)?;
    if group.is_some() && file.metadata()?.len() == 0 {
        fchown(&file, None, group)?;
    }
    Ok(file.into())
}
