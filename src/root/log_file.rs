//! Logs of the running system that programs write to themselves.

use rustix::fd::OwnedFd;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, fchown};

/// Opens the log `path` of the running system for a program's output, made with `mode` where it is not there: behind what it has, or
/// emptied. An empty one is given to `group`: also one that was made and not given to it before a power cut.
///
/// # Errors
/// It cannot be opened or made.
pub fn open_log(path: &str, mode: u32, group: Option<u32>, append: bool) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.create(true).mode(mode).append(append).write(true).truncate(!append);
    let file = options.open(path)?;
    if group.is_some() && file.metadata()?.len() == 0 {
        fchown(&file, None, group)?;
    }
    Ok(file.into())
}
