//! Writes changes from memory to the disk: finds what differs from it, and writes that through the journal.
//!
//! The model is SQLite's rollback journal, with new contents instead of old ones. Nothing changes until the
//! journal is complete on the disk; from then on an interruption at any point still ends with all changes
//! made, because the next run makes them again ([`Root::recover`](super::Root::recover)).

use super::disk::LastFolder;
use super::folders::{ReadOnly, Touched};
use super::journal_file::{FOLDERS, JournalFile, WAITING};
use super::layout::{self, ACCOUNTS, is_unsynced, is_volatile};
use super::mounts::Writable;
use super::record::{self, Entry};
use super::staging;
use super::{Change, Kind, Over, Root, Use};
use crate::base::error::{Context, Error, Result};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// The result of making several changes.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<Error>,
    /// Whether a change failed for lack of space, or because the file system is read-only or broken. A later
    /// run may succeed.
    starved: bool,
    /// Whether it was for lack of space.
    full: bool,
    /// Open from one written file to the next in the same folder.
    last: LastFolder,
}

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
        errors.extend(self.make(volatile).errors);
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
                let outcome = self.make(entries);
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
        errors.extend(self.make(records).errors);
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
        folders.retain(|f| self.overlay.disk().stat(f).is_some_and(|s| s.kind == Kind::Dir));
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
                let mut errors = self.without_journal(entries, first_mark, is_full(&e));
                let text = format!(
                    "the journal cannot be kept: {e}; a power cut before the end of this stage can leave a half-provisioned root"
                );
                errors.insert(0, Error::new(text));
                return errors;
            }
        };
        let (mut touched, mut outcome) = (Touched::at_first(), Outcome::default());
        let moves_points = entries.iter().any(|e| super::points::is_source(e.change.resolved()));
        self.carry_out(entries, &mut touched, &mut outcome);
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

    /// Makes the changes of a journal on the disk, in order. If one of them is starved, the later marks are left out, and the list of
    /// waiting changes stays as it was, because that change may be on it.
    pub(super) fn carry_out(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
        touched: &mut Touched,
        outcome: &mut Outcome,
    ) {
        for entry in entries {
            if outcome.starved && (self.overlay.marks()(&entry) || self.pending.keep_list(&entry.change)) {
                continue;
            }
            let change = entry.change;
            touched.add_of(self.overlay.disk(), &change);
            // The journal of a root stays for its own room, and not for that of another file system.
            let (was_full, path) = (std::mem::take(&mut outcome.full), change.resolved().to_owned());
            self.one(change, outcome);
            outcome.full = was_full || outcome.full && self.overlay.disk().is_on_own(&path);
        }
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

    /// Makes the changes without a journal, in the order in which a power cut does the least damage: contents
    /// under temporary names, a sync, the renames with the account files last, a sync, then the marks.
    ///
    /// If the disk is full, nothing is appended: it would be done again by the next run. If there is no room for all changes, only
    /// those are made that let one log in, or none if there is no room for these either. Then nothing is marked, and once there is
    /// room a run finds what the first one found, or users that are whole.
    fn without_journal(&mut self, mut entries: Vec<Entry>, first_mark: usize, is_full: bool) -> Vec<Error> {
        let marks = entries.split_off(first_mark);
        let mut outcome = Outcome::default();
        let mut touched = Touched::at_first();
        let count = entries.len();
        if is_full {
            entries.retain(|e| !self.overlay.is_appended(e.change.resolved()));
        }
        let mut left = (entries.len() < count).then_some("what would be appended waits for room");
        let lacks_room = is_full && self.overlay.disk().check_room("", 0, &entries).is_err();
        let prepared = if lacks_room { None } else { self.prepare(&entries, &marks, &mut touched, &mut outcome) };
        let later = prepared.unwrap_or_else(|| {
            entries.retain(|e| !self.overlay.is_appended(e.change.resolved()));
            let login: Vec<Entry> = for_login(&entries).cloned().collect();
            let prepared = self.prepare(&login, &[], &mut touched, &mut outcome);
            left = Some(match prepared {
                Some(_) => "only what lets one log in is written",
                None => "nothing is written",
            });
            prepared.unwrap_or_else(|| {
                entries.iter().for_each(|e| _ = self.pending.keep_list(&e.change));
                Vec::new()
            })
        });
        if let Some(left) = left {
            outcome.lose(Error::new(format!("the disk is full: {left}")));
        }
        outcome.synced(&touched);
        for change in later {
            if outcome.starved && left.is_none() && self.pending.keep_list(&change) {
                continue;
            }
            match &change {
                Change::Write { content, attr, over: Over::Replace, .. } => {
                    self.labels.note_created(self.overlay.disk(), &change);
                    let target = self.overlay.disk().target(change.resolved(), &mut outcome.last);
                    match target.and_then(|target| self.overlay.disk().publish(&target, content, *attr)) {
                        Ok(()) => self.journal.note_done(change.path()),
                        Err(e) => outcome.fail(&change, &e),
                    }
                }
                _ => self.one(change, &mut outcome),
            }
        }
        outcome.synced(&touched);
        if !outcome.starved {
            self.journal.note_settled();
            for Entry { change, .. } in marks {
                self.one(change, &mut outcome);
            }
            if outcome.starved {
                self.journal.note_unwritten();
            }
            return outcome.errors;
        }
        self.journal.note_unsettled();
        if !marks.is_empty() {
            outcome.errors.push(Error::new("nothing is marked as done: the next boot provisions again"));
        }
        outcome.errors
    }

    /// Makes the folders and, under temporary names, the contents of changes, and returns the changes that are left, in order, the
    /// account files last. None if there is no room for that, or for the marks: then all of it is removed.
    fn prepare(
        &mut self,
        entries: &[Entry],
        marks: &[Entry],
        touched: &mut Touched,
        outcome: &mut Outcome,
    ) -> Option<Vec<Change>> {
        let replaced: BTreeSet<&str> =
            entries.iter().filter(|e| !matches!(e.change, Change::Remove { .. })).map(|e| e.change.path()).collect();
        let done = self.journal.done().len();
        let (mut later, mut folders) = (Vec::new(), Vec::new());
        for Entry { change, .. } in entries {
            let path = change.resolved();
            touched.add_of(self.overlay.disk(), change);
            match change {
                Change::Mkdir { .. } => {
                    folders.extend(self.overlay.disk().stat(path).is_none().then_some(path));
                    self.one(change.clone(), outcome);
                }
                Change::Remove { path } if replaced.contains(path.as_str()) => self.one(change.clone(), outcome),
                Change::Write { content, attr, over: Over::Replace, .. } => {
                    let target = self.overlay.disk().target(path, &mut outcome.last);
                    match target.and_then(|target| self.overlay.disk().prepare(&target, content, *attr)) {
                        Ok(()) => later.push(change.clone()),
                        Err(e) => outcome.fail(change, &e),
                    }
                }
                _ => later.push(change.clone()),
            }
            if outcome.full {
                break;
            }
        }
        if !outcome.full && (marks.is_empty() || self.overlay.disk().check_room("", 0, marks).is_ok()) {
            later.sort_by_key(|change| ACCOUNTS.iter().position(|a| *a == change.resolved()).map_or(0, |at| at + 1));
            return Some(later);
        }
        for change in &later {
            if let (Change::Write { over: Over::Replace, .. }, Ok(target)) =
                (change, self.overlay.disk().target(change.resolved(), &mut outcome.last))
            {
                self.overlay.disk().discard(&target);
            }
        }
        outcome.last = LastFolder::default();
        folders.iter().rev().for_each(|folder| self.overlay.disk().remove_empty(folder));
        self.journal.forget_done_after(done);
        outcome.full = false;
        None
    }

    fn make(&mut self, entries: Vec<Entry>) -> Outcome {
        let mut outcome = Outcome::default();
        entries.into_iter().for_each(|e| self.one(e.change, &mut outcome));
        outcome
    }

    pub(super) fn one(&mut self, change: Change, outcome: &mut Outcome) {
        self.labels.note_created(self.overlay.disk(), &change);
        match self.overlay.disk().apply(&change, &mut outcome.last) {
            Ok(()) if matches!(change, Change::Remove { .. }) => {}
            Ok(()) => self.journal.note_done(change.path()),
            Err(e) => outcome.fail(&change, &e),
        }
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

impl Outcome {
    fn fail(&mut self, change: &Change, error: &std::io::Error) {
        self.full |= is_full(error);
        let starving = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::NOMEM];
        self.starved |= starving.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()));
        self.errors.push(Error::new(format!("failed to {} {}: {error}", change.verb(), change.path())));
    }

    /// Notes a change that cannot be made because its content is lost. Nothing is marked as done, so that it is provisioned again.
    pub(super) fn lose(&mut self, error: Error) {
        self.starved = true;
        self.errors.push(error);
    }

    fn synced(&mut self, touched: &Touched) {
        if let Err(e) = touched.sync() {
            self.starved = true;
            self.errors.push(Error::new(format!("failed to sync the root: {e}")));
        }
    }
}

/// Whether a change failed for lack of room.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The changes that let one log in: by their places, the homes of users that are made, the list of what waits for another file
/// system, which may have homes, and the folders above all of these.
fn for_login(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    let passwd = entries.iter().find_map(|e| match &e.change {
        Change::Write { content, .. } if e.change.resolved() == "etc/passwd" => Some(content.to_vec()),
        _ => None,
    });
    let passwd = String::from_utf8_lossy(&passwd.unwrap_or_default()).into_owned();
    let known: BTreeSet<&str> = passwd.lines().filter_map(|line| line.split(':').nth(5)).collect();
    let is_home = |e: &&Entry| matches!(e.change, Change::Mkdir { .. }) && known.contains(e.change.path());
    let homes: Vec<&str> = entries.iter().filter(is_home).map(|e| e.change.resolved()).collect();
    let is_wanted = move |e: &&Entry| {
        let path = e.change.resolved();
        layout::is_for_login(path)
            || homes.iter().any(|home| layout::is_below(path, home))
            || path.rsplit('/').next() == Some(WAITING)
    };
    let wanted: Vec<&str> = entries.iter().filter(&is_wanted).map(|e| e.change.resolved()).collect();
    entries.iter().filter(move |e| {
        let path = e.change.resolved();
        let is_above = || wanted.iter().any(|wanted| layout::is_below(wanted, path));
        is_wanted(e) || matches!(e.change, Change::Mkdir { .. }) && is_above()
    })
}
