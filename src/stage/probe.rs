//! In the initramfs, beside the wait for the root device: looks at the drives that are there, so that their devices are
//! awake and their drivers settled when `apply` reads one. What it finds is left in /run.

use crate::base::error::Result;
use crate::drive::Search;
use crate::drive::devices::Places;
use crate::instance::status;
use crate::machine::Machine;
use crate::root::run_dir::{Entry, Probed};
use crate::root::{Root, Use};
use crate::source;
use std::path::Path;
use std::time::Duration;

/// How long ago the probe of this boot had looked at all devices; zero where there was none.
pub fn since(root: &Root) -> Duration {
    let elapsed = Probed::read(root).map(|p| status::uptime() - p.finished);
    elapsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

/// Looks once at every block device that is there, and leaves a record for the search.
///
/// # Errors
///
/// The devices cannot be listed, or the record cannot be written.
pub fn run(machine: &Machine) -> Result<()> {
    let start = status::uptime();
    let deadline = super::deadline(machine);
    let mut search = Search::new(&source::labels(), Places::default());
    let mut drives = Vec::new();
    loop {
        let new = search.scan(deadline)?;
        if new.is_empty() {
            break;
        }
        drives.extend(new.into_iter().map(|d| d.node.display().to_string()));
    }
    let mut initramfs = Root::open(Path::new("/"), Use::Tree)?;
    Probed { start, finished: status::uptime(), drives }.write(&mut initramfs)?;
    initramfs.commit().into_iter().next().map_or(Ok(()), Err)
}
