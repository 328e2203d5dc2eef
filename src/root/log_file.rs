//! Logs of the running system that programs write to themselves.

use rustix::fd::OwnedFd;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// Opens the log `path` of the running system for a program's output, made with `mode` where it is not there: behind what it has, or
/// emptied.
///
/// # Errors
/// It cannot be opened or made.
pub fn open_log(path: &str, mode: u32, append: bool) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.create(true).mode(mode).append(append).write(true).truncate(!append);
    options.open(path).map(File::into)
}
