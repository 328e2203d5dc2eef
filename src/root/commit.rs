//! Writes changes from memory to the disk: finds what differs from it, and writes that through the journal.
//!
//! The model is SQLite's rollback journal, with new contents instead of old ones. Nothing changes until the
//! journal is complete on the disk; from then on an interruption at any point still ends with all changes
//! made, because the next run makes them again ([`Root::recover`](super::Root::recover)).

use super::folders::{ReadOnly, Touched};
use super::journal_file::{FOLDERS, JournalFile};
use super::layout::{is_unsynced, is_volatile};
use super::mounts::Writable;
use super::record::{self, Entry};
use super::staging;
use super::write::{Outcome, is_full};
use super::{Change, FileKind, Root, Use};
use crate::base::error::{Context, Error, Result};
use rustix::io::Errno;
use std::io::ErrorKind;

impl Root {
    /// The changes that are not on the disk yet, each folder before its contents.
    pub fn changes(&self) -> Vec<Change> {
        self.overlay.entries().into_iter().filter(|e| !e.hidden).map(|e| e.change).collect()
    }

    /// Whether a path that is not on the disk yet, or is read from memory, ends like this.
    pub fn has_in_memory(&self, end: &str) -> bool {
        self.overlay.has_in_memory(end)
    }

    /// Whether there is a change to files that outlive the boot.
    pub fn has_changes_on_disk(&self) -> bool {
        self.overlay.has_changes_on_disk()
    }

    /// Drops changes that would not change the disk, so that it is compared only once. For the initramfs, where
    /// nothing else changes the disk in the meantime.
    pub fn drop_unchanged(&mut self) {
        self.overlay.drop_unchanged()
    }

    /// Writes the differences through the journal, and returns when they are on the disk. Files that end with the boot are written
    /// first; logs and the boot's status last, without a sync. Nothing is marked as done before it is on the disk:
    /// if there can be no journal, marks are written after a sync.
    ///
    /// Returns one error for each change that failed; the others are made. In a plan nothing is written and the changes stay.
    pub fn commit(&mut self) -> Vec<Error> {
        if self.is_plan() {
            return Vec::new();
        }
        let mut errors = Vec::new();
        if !self.journal.is_read() && self.has_changes_on_disk() {
            errors.extend(self.recover());
        }
        let is_mark = self.overlay.marks();
        let mut entries = self.pending.take_due();
        entries.append(&mut self.overlay.entries());
        self.overlay.clear();
        let (volatile, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| is_volatile(e.change.resolved()));
        let (waiting, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|e| !e.hidden && self.overlay.below_unmounted(e.change.resolved()));
        let (records, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| is_unsynced(e.change.resolved()));
        let mut entries = self.writable(entries, &is_mark, &mut errors);
        errors.extend(self.writer().make(volatile).errors);
        self.pending.add(waiting);
        if self.pending.take_changed() {
            match self.list_of_waiting() {
                Ok(change) => entries.push(Entry { change, hidden: false }),
                Err(e) => {
                    self.journal.note_unwritten();
                    errors.push(e);
                }
            }
        }
        if entries.iter().all(&is_mark) {
            // The marked work is already on the disk.
            if entries.is_empty() || self.settle(&mut errors) {
                let marked = entries.iter().map(|e| e.change.resolved().to_owned());
                self.journal.note_unsynced(marked);
                let outcome = self.writer().make(entries);
                if outcome.starved {
                    self.journal.note_unwritten();
                }
                errors.extend(outcome.errors);
            } else {
                self.journal.note_unwritten();
            }
        } else {
            errors.extend(self.through_journal(entries, &is_mark));
        }
        errors.extend(self.writer().make(records).errors);
        self.set_labels();
        self.overlay.release_all();
        errors
    }

    /// Whether a change failed that a later run may be able to make, with space or a writable disk. Then
    /// nothing is marked as done, and the next stage that can write repeats the work.
    pub fn is_unwritten(&self) -> bool {
        self.journal.is_unwritten()
    }

    /// Makes the root's own file system writable if a change needs it, until the guard that is returned is
    /// dropped.
    ///
    /// # Errors
    /// It is read-only and cannot be remounted.
    pub fn make_writable(&self) -> Result<Option<Writable>> {
        if !self.overlay.disk().is_read_only("") {
            return Ok(None);
        }
        let needs_own = |e: Entry| {
            let waits = !e.hidden && self.overlay.below_unmounted(e.change.resolved());
            // Changes that wait for a file system are in a list there.
            let path = if waits { "etc" } else { e.change.resolved() };
            let own = || self.overlay.disk().nearest(path).is_some_and(|fd| self.overlay.disk().is_own(fd));
            !is_volatile(path) && self.overlay.disk().is_read_only(path) && own()
        };
        if self.overlay.entries().into_iter().any(needs_own) { Writable::make(self.path()) } else { Ok(None) }
    }

    /// Leaves out changes to read-only file systems, with one error for all. Before the pivot this also
    /// leaves marks out, because the real root may have a writable file system there. In the real root there is no later chance to
    /// write the rest.
    fn writable(
        &mut self,
        entries: Vec<Entry>,
        is_mark: &dyn Fn(&Entry) -> bool,
        errors: &mut Vec<Error>,
    ) -> Vec<Entry> {
        let mut read_only = ReadOnly::default();
        let (left, mut entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|e| read_only.holds(self.overlay.disk(), &e.change));
        let Some(first) = left.first() else { return entries };
        self.journal.note_unwritten();
        let more = match left.len() - 1 {
            0 => String::new(),
            1 => " and another change".into(),
            others => format!(" and {others} other changes"),
        };
        errors.push(Error::new(format!(
            "failed to {} {}{more}: the file system is read-only",
            first.change.verb(),
            first.change.path()
        )));
        // State that is kept in a writable /etc can be written even if /var never can.
        if self.usage == Use::NewRoot && !self.overlay.disk().keeps_state() {
            entries.retain(|e| !is_mark(e));
        }
        entries
    }

    /// The change that writes the list of waiting changes.
    pub(super) fn list_of_waiting(&mut self) -> Result<Change> {
        if !self.pending.has_folder() {
            let folder = self.journal_folders().into_iter().next().unwrap_or_default();
            self.pending.keep_in(folder);
        }
        self.pending.list()
    }

    /// Folders that can hold the journal, best first: on the root's own file system, and on one that survives
    /// a reboot.
    pub(super) fn journal_folders(&mut self) -> Vec<String> {
        if !self.overlay.mounts().are_known() {
            let all = super::points::all(self).into_iter().map(|point| point.path).collect();
            self.overlay.mounts_mut().know(all);
        }
        let below_mount = |folder: &str| self.overlay.mounts().hold(folder);
        // PID 1 needs /etc, so that it is mounted from the initramfs on if it is a mount at all.
        let usable = |folder: &str| {
            let resolved = self.overlay.resolve(folder, true).ok()?;
            (!below_mount(&resolved) || folder == "etc" && !self.overlay.below_unmounted(&resolved)).then_some(resolved)
        };
        let mut folders: Vec<String> = FOLDERS.iter().filter_map(|f| usable(f)).collect();
        folders.retain(|f| self.overlay.disk().stat(f).is_some_and(|s| s.kind == FileKind::Dir));
        folders.sort_by_key(|folder| self.overlay.disk().volatility(folder));
        folders
    }

    fn through_journal(&mut self, entries: Vec<Entry>, is_mark: &dyn Fn(&Entry) -> bool) -> Vec<Error> {
        // Marks come last: if a change fails for lack of space, nothing is marked.
        let (marks, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_mark);
        let first_mark = entries.len();
        entries.extend(marks);
        let (journal, entries) = match self.write_journal(&entries) {
            Ok((journal, staged)) => (journal, staged.unwrap_or(entries)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                // Its contents are older than these changes, and are still to be written.
                self.journal.note_unwritten();
                entries.iter().for_each(|e| _ = self.pending.keep_list(&e.change));
                return vec![Error::new("nothing is written: the journal of an earlier run still waits for room")];
            }
            Err(e) => {
                let mut errors = self.writer().without_journal(entries, first_mark, is_full(&e));
                let text = format!(
                    "the journal cannot be kept: {e}; a power cut before the end of this stage can leave a half-provisioned root"
                );
                errors.insert(0, Error::new(text));
                return errors;
            }
        };
        let (mut touched, mut outcome) = (Touched::at_first(), Outcome::default());
        let moves_points = entries.iter().any(|e| super::points::is_source(e.change.resolved()));
        self.writer().carry_out(entries, &mut touched, &mut outcome);
        if moves_points {
            self.overlay.mounts_mut().forget();
        }
        self.end_journal(journal, &touched, outcome)
    }

    /// Writes the journal into the best folder. Gives also the entries that are to be carried out, if they are others.
    fn write_journal(&mut self, entries: &[Entry]) -> std::io::Result<(JournalFile, Option<Vec<Entry>>)> {
        let mut last = std::io::Error::from(Errno::NOENT);
        for folder in self.journal_folders() {
            // In the running system a new file inherits from its folder, a label for example; a renamed one does not.
            let large =
                if self.is_live() { Vec::new() } else { staging::eligible(self.overlay.disk(), &folder, entries) };
            let once: u64 =
                large.iter().filter_map(|at| entries.get(*at)).map(|e| record::length(std::slice::from_ref(e))).sum();
            if let Err(e) =
                self.overlay.disk().check_room(&folder, record::length(entries).saturating_sub(once), entries)
            {
                last = e;
                continue;
            }
            let mut written = JournalFile::write(self.overlay.disk(), &folder, entries, &large);
            if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
                // Another process left this journal: its changes come first.
                let earlier = self.recover_journal(&folder);
                written = earlier.and_then(|_| JournalFile::write(self.overlay.disk(), &folder, entries, &large));
            }
            match written {
                Ok(written) => return Ok(written),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(e),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Syncs and removes the journal. It stays for the next run if its changes may not have reached the disk.
    pub(super) fn end_journal(&mut self, journal: JournalFile, touched: &Touched, outcome: Outcome) -> Vec<Error> {
        let mut errors = outcome.errors;
        if outcome.starved {
            self.journal.note_unwritten();
        }
        if let Err(e) = touched.sync() {
            self.journal.note_unsettled();
            errors.push(Error::new(format!("failed to sync the root: {e}")));
        } else if outcome.full {
            errors.push(Error::new("the disk is full: the next run that finds room makes the changes of the journal"));
        } else if let Err(e) = journal.remove(self.overlay.disk()) {
            errors.push(Error::new(format!("failed to remove the journal: {e}")));
        }
        errors
    }

    /// Syncs what was written without a journal. Returns whether it is on the disk.
    fn settle(&mut self, errors: &mut Vec<Error>) -> bool {
        if self.journal.is_unsettled() {
            let mut touched = Touched::default();
            touched.add(self.overlay.disk(), "");
            match touched.sync() {
                Ok(()) => self.journal.note_settled(),
                Err(e) => errors.push(Error::new(format!("nothing is marked as done: failed to sync the root: {e}"))),
            }
        }
        !self.journal.is_unsettled()
    }

    /// In the running system: waits until what programs wrote in the folder of `path` is on the disk.
    ///
    /// # Errors
    /// The disk did not take it.
    pub fn sync(&self, path: &str) -> Result<()> {
        let mut touched = Touched::default();
        if self.is_live() {
            touched.add(self.overlay.disk(), &self.overlay.resolve(path, true)?);
        }
        touched.sync().context(|| format!("failed to sync the file system of {path}"))
    }

    /// In the running system: waits until the marks that were made are on the disk. A program that runs at most once could otherwise
    /// reset the machine and find itself called again.
    ///
    /// # Errors
    /// The disk did not take them.
    pub fn sync_marks(&mut self) -> Result<()> {
        let errors = self.commit();
        for mark in self.journal.take_unsynced() {
            if self.is_live() {
                self.overlay.disk().sync_folder(&mark).context(|| format!("failed to sync /{mark}"))?;
            }
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Every path that commits have changed, in order.
    pub fn done(&self) -> &[String] {
        self.journal.done()
    }
}
