//! Recovery after an earlier run: carries out an unfinished journal, and changes whose file system has since
//! been mounted.

use super::folders::Touched;
use super::journal_file::{FOLDERS, JOURNAL, JournalFile, WAITING};
use super::layout::path_in;
use super::mounts::Writable;
use super::pending::is_due;
use super::points;
use super::record::Entry;
use super::staging;
use super::write::Outcome;
use super::{Change, FileKind, Over, Root, Use};
use crate::base::error::{Context, Error, Result};
use std::io;

impl Root {
    /// Carries out the changes that an earlier run left: its journal, and waiting changes whose file system
    /// is now mounted. Every stage begins with this. A plan only takes them into account.
    ///
    /// Returns an error for each change that could not be made.
    pub fn recover(&mut self) -> Vec<Error> {
        self.journal.note_read();
        self.overlay.set_alone(!self.runs_commands());
        let mut folders: Vec<String> = FOLDERS.iter().filter_map(|f| self.overlay.resolve(f, true).ok()).collect();
        folders.dedup();
        let has = |folder: &String, name: &str| self.overlay.disk().stat(&path_in(folder, name)).is_some();
        let [journal, waiting] = [JOURNAL, WAITING].map(|name| folders.iter().any(|folder| has(folder, name)));
        if !journal && !waiting {
            return Vec::new();
        }
        let mut errors = Vec::new();
        let read_only: Vec<&String> =
            folders.iter().filter(|folder| self.overlay.disk().is_read_only(folder)).collect();
        let needs_it = self.usage == Use::NewRoot && !read_only.is_empty();
        let writable = match needs_it.then(|| Writable::make(self.path())).transpose() {
            Ok(writable) => writable.flatten(),
            Err(e) => {
                // If the journal's folder is writable, each change reports its own failure.
                let is_kept_there = |folder: &&String| has(folder, JOURNAL) || has(folder, WAITING);
                errors.extend(read_only.iter().any(is_kept_there).then_some(e));
                None
            }
        };
        for folder in folders.iter().filter(|_| journal) {
            let named = || format!("failed to carry out the journal /{}", path_in(folder, JOURNAL));
            errors.extend(self.recover_journal(folder).context(named).unwrap_or_else(|e| vec![e]));
        }
        if journal && self.usage == Use::NewRoot {
            points::find(self);
        }
        for folder in &folders {
            errors.extend(self.pending.load(self.overlay.disk(), folder).err());
        }
        let not_mounted = self.not_mounted();
        errors.extend(self.make_due(&not_mounted));
        drop(writable);
        self.set_labels();
        errors
    }

    /// Whether there are changes that wait for a file system.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Carries out the changes that still wait: their file systems will not be mounted in this boot. For the
    /// last stage.
    ///
    /// Returns an error for each change that could not be made.
    pub fn stop_waiting(&mut self) -> Vec<Error> {
        let mut errors = if self.journal.is_read() { Vec::new() } else { self.recover() };
        errors.extend(self.make_due(&[]));
        errors
    }

    /// Mount points of the root on which something may still be mounted.
    fn not_mounted(&self) -> Vec<String> {
        match self.usage {
            Use::NewRoot => self.overlay.mounts().unmounted().to_vec(),
            Use::Tree | Use::Plan if self.overlay.disk().is_slash() => {
                points::unmounted(self).into_iter().map(|p| p.path).collect()
            }
            // Nothing is ever mounted in a folder.
            Use::Tree | Use::Plan => Vec::new(),
        }
    }

    /// Carries out the journal in `folder`, if there is one. Changes to file systems that are not mounted now
    /// become waiting changes.
    pub(super) fn recover_journal(&mut self, folder: &str) -> io::Result<Vec<Error>> {
        let Some(journal) = JournalFile::find(self.overlay.disk(), folder)? else { return Ok(Vec::new()) };
        let Some(mut record) = journal.read()? else {
            log::info!("a journal that is not complete is removed: nothing of it was carried out");
            return if self.is_plan() {
                Ok(Vec::new())
            } else {
                journal.remove(self.overlay.disk()).map(|()| Vec::new())
            };
        };
        log::info!("an earlier run was cut off: what its journal has is carried out");
        let not_mounted = self.not_mounted();
        let mut touched = Touched::default();
        let mut outcome = Outcome::default();
        let mut stays = Vec::new();
        while let Some(entry) = record.next()? {
            let named = || format!("failed to write {}", entry.change.path());
            let is_now = is_due(self.overlay.disk(), &entry, &not_mounted);
            // Staged files are removed with this journal. In the running system a file is created in its folder, and inherits the
            // label.
            let holds = !is_now || self.usage != Use::NewRoot;
            let found = staging::find(self.overlay.disk(), folder, &entry, holds).context(named);
            let Some(entry) = found.unwrap_or_else(|e| {
                outcome.lose(e);
                None
            }) else {
                continue;
            };
            if self.is_plan() {
                outcome.errors.extend(self.stage(entry).err());
            } else if is_now {
                // It may have been made by the run that was cut off.
                self.labels.need(&entry.change);
                self.writer().carry_out([entry], &mut touched, &mut outcome);
            } else {
                stays.push(entry);
            }
        }
        if self.is_plan() {
            return Ok(outcome.errors);
        }
        if !stays.is_empty() {
            outcome.errors.extend(self.pending.load(self.overlay.disk(), folder).err());
            self.pending.add_again(stays);
            match self.list_of_waiting() {
                Ok(change) => {
                    touched.add_of(self.overlay.disk(), &change);
                    self.writer().one(change, &mut outcome);
                }
                Err(e) => outcome.errors.push(e),
            }
        }
        Ok(self.end_journal(journal, &touched, outcome))
    }

    /// Carries out the waiting changes, except for those below `not_mounted`. If one of them is starved, all stay on the list, for
    /// the next stage.
    fn make_due(&mut self, not_mounted: &[String]) -> Vec<Error> {
        let mut errors = Vec::new();
        let before = self.pending.waiting();
        for entry in self.pending.take_ready(self.overlay.disk(), not_mounted) {
            errors.extend(self.stage(entry).err());
        }
        if self.pending.is_changed() && !self.is_plan() {
            errors.extend(self.commit());
            if self.pending.take_changed() {
                self.pending.restore(before);
            }
        }
        errors
    }

    /// Applies a waiting change in memory, over what the file system has.
    fn stage(&mut self, entry: Entry) -> Result<()> {
        if entry.hidden {
            return Ok(());
        }
        match entry.change {
            Change::Write { path, content, attr, over } => match over {
                Over::Replace => self.write(&path, content, attr),
                Over::Append => self.append(&path, &content.to_vec(), attr),
                Over::Merge => self.edit(&path, attr, |old| Ok(Some(merged(old, &content.to_vec())))).map(drop),
                Over::Keep => self.write_new(&path, content, attr),
            },
            Change::Mkdir { path, attr } => self.mkdir(&path, attr),
            Change::Symlink { path, .. } if self.lstat(&path).is_some_and(|s| s.kind != FileKind::Symlink) => Ok(()),
            Change::Symlink { path, target } => self.symlink(&path, &target),
            Change::Remove { path } => self.remove(&path),
            Change::Chown { path, attr } | Change::Chmod { path, attr } => self.set_attr(&path, attr),
        }
    }
}

/// `old` with those lines of `new` appended that it does not have.
fn merged(old: &[u8], new: &[u8]) -> Vec<u8> {
    let lines = |text| <[u8]>::split_inclusive(text, |b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    let known: std::collections::HashSet<&[u8]> = lines(old).collect();
    let mut all = old.to_vec();
    for line in lines(new).filter(|line| !known.contains(line)) {
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
        all.extend_from_slice(line);
        all.push(b'\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_merged_once() {
        let merge = |old: &str, new: &str| String::from_utf8(merged(old.as_bytes(), new.as_bytes())).unwrap();
        assert_eq!(merge("a\nb", "b\nc\n"), "a\nb\nc\n");
        assert_eq!(merge("", "a"), "a\n");
        assert_eq!(merge("a\n", "a\n"), "a\n");
    }
}
