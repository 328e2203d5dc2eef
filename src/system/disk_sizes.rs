//! The sizes that disks and partitions had when the root was last grown: as long as they stay the same, there
//! is nothing to grow.

use super::ModuleContext;
use crate::base::error::Result;
use crate::drive::devices;
use crate::root::Attr;

/// The record has a line for each, with its name and its size in bytes.
const RECORD: &str = "/var/lib/cloud/data/disk-sizes";
/// The record if something could not grow.
const FAILED: &str = "failed\n";
/// Devices whose sizes depend on others, or that are created in each boot.
const MADE: [&str; 6] = ["dm-", "md", "loop", "ram", "zram", "nbd"];

fn lines(cx: &ModuleContext) -> Option<Vec<String>> {
    let list = devices::list(&cx.outside.places()?).ok()?;
    let lasting = list.iter().filter(|d| !d.optical && !MADE.iter().any(|made| d.name.starts_with(made)));
    let mut lines: Vec<String> = lasting.map(|d| format!("{} {}\n", d.name, d.size)).collect();
    lines.sort();
    Some(lines)
}

/// Whether every disk and partition has the recorded size.
pub fn are_as_recorded(cx: &ModuleContext) -> bool {
    let recorded = cx.root.text(RECORD);
    let is_known = |line: &String| recorded.split_inclusive('\n').any(|known| known == line);
    lines(cx).is_some_and(|lines| !lines.is_empty() && lines.iter().all(is_known))
}

/// Records the current sizes, unless something could not grow to them in this boot.
///
/// # Errors
/// The record cannot be written.
pub fn record(cx: &mut ModuleContext) -> Result<()> {
    match lines(cx) {
        Some(lines) if cx.root.text(RECORD) != FAILED => cx.root.write(RECORD, lines.concat(), Attr::root(0o644)),
        _ => Ok(()),
    }
}

/// Begins to grow: nothing has failed yet.
///
/// # Errors
///
/// The record cannot be removed.
pub fn begin(cx: &mut ModuleContext) -> Result<()> {
    if cx.root.text(RECORD) == FAILED { cx.root.remove(RECORD) } else { Ok(()) }
}

/// Records that something could not grow: the next boot tries again.
///
/// # Errors
///
/// The record cannot be written.
pub fn fail(cx: &mut ModuleContext) -> Result<()> {
    cx.root.write(RECORD, FAILED, Attr::root(0o644))
}
