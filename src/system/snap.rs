//! snapd, for the modules that need it.

use super::ModuleContext;
use crate::base::error::Result;
use crate::instance::{Frequency, state};
use crate::root::{Command, installed};

/// cloud-init's name for the mark of [`wait_seeded`].
const MARK: &str = "snap_seeded";

/// Waits until the image's snaps are installed, once on this disk, if snap is installed.
///
/// # Errors
/// The mark cannot be written, or the program fails.
pub fn wait_seeded(cx: &mut ModuleContext) -> Result<()> {
    if state::is_done(cx.root, cx.instance, MARK, Frequency::Once) {
        return Ok(());
    }
    state::mark_done(cx.root, cx.instance, MARK, Frequency::Once)?;
    if installed::which(cx.root, "snap").is_none() {
        return Ok(());
    }
    cx.root.run(Command::new(["snap", "wait", "system", "seed.loaded"]))
}
