//! In the running system: cloud-init's state where it is kept for the next boot's initramfs, because a file system covers its usual
//! folder.

use super::disk::is_in_memory;
use super::layout::{KEPT_STATE, STATE};
use super::{Root, Use};
use crate::base::error::{Context, Result};
use rustix::fd::AsRawFd;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, mount_bind, open_tree};
use std::path::Path;

/// In the running system: if the state's file system is in memory, bind mounts the copy that is kept on
/// the disk over it.
///
/// # Errors
/// It cannot be mounted.
pub fn bind(root: &Root) -> Result<()> {
    let in_memory = || root.overlay.disk().nearest(STATE).is_some_and(is_in_memory);
    if !root.is_live() || !root.is_dir(KEPT_STATE) || !in_memory() {
        return Ok(());
    }
    let (kept, place) = (format!("/{KEPT_STATE}"), format!("/{STATE}"));
    std::fs::create_dir_all(&place).context(|| format!("failed to make {place}"))?;
    mount_bind(&kept, &place).context(|| format!("failed to mount {kept} on {place}"))
}

/// In the running system: the root's own file system without its mounts, if one hides the state. The next boot's initramfs sees
/// the hidden files. None if nothing is hidden.
///
/// # Errors
/// The kernel does not show it: it is older than 5.2.
pub fn beneath(root: &Root) -> Result<Option<Root>> {
    let mut places = STATE.match_indices('/').map(|(i, _)| &STATE[..i]).chain([STATE]);
    if !root.is_live() || !places.any(|place| root.overlay.disk().is_mount(place)) {
        return Ok(None);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, "/", flags).context(|| format!("failed to look below what is mounted on /{STATE}"))?;
    let mut beneath = Root::open(Path::new(&format!("/proc/self/fd/{}", tree.as_raw_fd())), Use::Tree)?;
    // What an earlier run left is this root's: it knows what is mounted.
    beneath.journal.note_read();
    beneath.overlay.set_alone(true);
    Ok(Some(beneath))
}

/// Whether the running system's state may be such a bind mount.
pub fn is_bound(root: &Root) -> bool {
    root.is_live() && root.is_dir(KEPT_STATE) && root.overlay.disk().is_mount(STATE)
}
