//! Changes that wait for their file system to be mounted, and their list on the disk.

use super::disk::Disk;
use super::journal_file::{WAITING, open_own};
use super::layout::{is_below, path_in};
use super::record::{self, Entry, Record};
use super::{Attr, Change, Over};
use crate::base::error::{Context, Result};
use std::io;

/// The changes that wait.
#[derive(Default)]
pub(super) struct Pending {
    waiting: Vec<Entry>,
    /// The folder that has, or is to have, their list.
    folder: Option<String>,
    /// Whether the list on the disk is to be written again.
    is_changed: bool,
    /// Changes that waited, and that the next commit makes as they are.
    due: Vec<Entry>,
}

impl Pending {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds changes that are to wait.
    pub(super) fn add(&mut self, entries: Vec<Entry>) {
        self.is_changed |= !entries.is_empty();
        self.waiting.extend(entries);
    }

    /// Adds changes of a journal whose list may have been written, and which then wait already.
    pub(super) fn add_again(&mut self, mut entries: Vec<Entry>) {
        self.waiting.retain(|e| !entries.contains(e));
        self.waiting.append(&mut entries);
    }

    /// Whether the list is to be written again. Then it no longer is.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether the list is to be written again.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether a change rewrites the list, which then differs from the disk's: it is not made.
    pub(super) fn keep_list(&mut self, change: &Change) -> bool {
        let is_list = change.resolved().rsplit('/').next() == Some(WAITING);
        self.is_changed |= is_list;
        is_list
    }

    /// The changes that the next commit makes as they are. They no longer wait.
    pub(super) fn take_due(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.due)
    }

    /// Takes the changes that can be made now, because what they are for is not below `not_mounted`. Returns those to be made over
    /// what the file system has; the others are due.
    pub(super) fn take_ready(&mut self, disk: &Disk, not_mounted: &[String]) -> Vec<Entry> {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|entry| is_due(disk, entry, not_mounted));
        self.waiting = waiting;
        self.is_changed |= !ready.is_empty();
        let (due, ready) = ready.into_iter().partition(|entry| entry.hidden);
        self.due.extend::<Vec<_>>(due);
        ready
    }

    /// A copy of all that waits.
    pub(super) fn waiting(&self) -> Vec<Entry> {
        self.waiting.clone()
    }

    /// Has what waited before wait again.
    pub(super) fn restore(&mut self, before: Vec<Entry>) {
        self.waiting = before;
    }

    /// Whether the list has a folder.
    pub(super) fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// Sets the list's folder.
    pub(super) fn keep_in(&mut self, folder: String) {
        self.folder = Some(folder);
    }

    /// The change that writes the list, or removes it if nothing waits.
    ///
    /// # Errors
    /// There is more than the list can hold.
    pub(super) fn list(&self) -> Result<Change> {
        let path = format!("/{}", path_in(self.folder.as_deref().unwrap_or_default(), WAITING));
        if self.waiting.is_empty() {
            return Ok(Change::Remove { path });
        }
        let mut content = Vec::new();
        record::write(&mut content, &self.waiting)
            .context(|| "failed to keep the changes of file systems that are not mounted yet")?;
        Ok(Change::Write { path, content: content.into(), attr: Attr::root(0o600), over: Over::Replace })
    }

    /// Reads the list in `folder`, unless one has been read.
    ///
    /// # Errors
    /// It cannot be read, or is not complete.
    pub(super) fn load(&mut self, disk: &Disk, folder: &str) -> Result<()> {
        if self.folder.is_some() {
            return Ok(());
        }
        let path = path_in(folder, WAITING);
        let read = || -> io::Result<Option<Vec<Entry>>> {
            let Some(file) = open_own(disk, &path)? else { return Ok(None) };
            let mut record = Record::open(file)?.ok_or_else(|| io::Error::other("it is not complete"))?;
            let mut entries = Vec::new();
            while let Some(entry) = record.next()? {
                entries.push(entry);
            }
            Ok(Some(entries))
        };
        let entries = read().context(|| format!("failed to read the waiting changes in /{path}"))?;
        if let Some(entries) = entries {
            self.waiting = entries;
            self.folder = Some(folder.to_owned());
        }
        Ok(())
    }
}

/// Whether an entry can be carried out now: its file system is mounted, or the folder that the mount would hide is visible.
pub(super) fn is_due(disk: &Disk, entry: &Entry, not_mounted: &[String]) -> bool {
    let path = entry.change.resolved();
    if entry.hidden { disk.is_on_own(path) } else { !not_mounted.iter().any(|m| is_below(path, m)) }
}
