//! What a plan would leave at each path, whether or not the disk has it already.

use super::{Change, Root, overlay};
use rustix::fs::{self, OFlags};

/// Seconds since 1970, and nanoseconds.
pub type Time = (i64, i64);

impl Root {
    /// What each path that this run made or changed is to be, in the order of the paths. Unlike [`Root::changes`], paths that the
    /// disk has like this already are among them.
    pub fn intended(&self) -> Vec<Change> {
        self.overlay.nodes().map(|(path, node)| overlay::unseen(path, node)).collect()
    }

    /// When the file on the disk was last written. None if nothing is there.
    pub fn modified(&self, path: &str) -> Option<Time> {
        let resolved = self.overlay.resolve(path, false).ok()?;
        let file = self.overlay.disk().open_at(&resolved, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let stat = fs::fstat(file).ok()?;
        #[allow(clippy::unnecessary_cast)] // The types are the machine's.
        Some((stat.st_mtime as i64, stat.st_mtime_nsec as i64))
    }
}
