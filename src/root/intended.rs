//! What a plan would leave at each path, whether or not the disk has it already.

use super::{Change, Root, overlay};
use rustix::fs::{self, OFlags};

impl Root {
    /// What each path that this run made or changed is to be, in the order of the paths. Unlike [`Root::changes`], paths that the
    /// disk has like this already are among them.
    pub fn intended(&self) -> Vec<Change> {
        self.overlay.nodes().map(|(path, node)| overlay::unseen(path, node)).collect()
    }

    /// When the file on the disk was last written, in seconds since 1970. None if nothing is there.
    pub fn modified(&self, path: &str) -> Option<i64> {
        let resolved = self.overlay.resolve(path, false).ok()?;
        #[allow(clippy::unnecessary_cast)] // The type is the machine's.
        Some(
            fs::fstat(self.overlay.disk().open_at(&resolved, OFlags::PATH | OFlags::NOFOLLOW).ok()?).ok()?.st_mtime
                as i64,
        )
    }
}
