//! Makes changes on the disk, with a journal or without.

use super::disk::LastFolder;
use super::folders::Touched;
use super::journal::Journal;
use super::journal_file::WAITING;
use super::layout::{self, ACCOUNTS};
use super::overlay::Overlay;
use super::pending::Pending;
use super::record::Entry;
use super::relabel::Labels;
use super::{Change, Over, Root};
use crate::base::error::Error;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// The result of making several changes.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<Error>,
    /// Whether a change failed for lack of space, or because the file system is read-only or broken. A later
    /// run may succeed.
    pub(super) starved: bool,
    /// Whether it was for lack of space.
    pub(super) full: bool,
    /// Open from one written file to the next in the same folder.
    last: LastFolder,
}

/// What makes changes on the disk of a root, and notes what came of them.
pub(super) struct Writer<'a> {
    overlay: &'a Overlay,
    pending: &'a mut Pending,
    journal: &'a mut Journal,
    labels: &'a mut Labels,
}

impl Root {
    pub(super) fn writer(&mut self) -> Writer<'_> {
        let Root { overlay, pending, journal, labels, .. } = self;
        Writer { overlay, pending, journal, labels }
    }
}

impl Writer<'_> {
    /// Makes changes in their order.
    pub(super) fn make(&mut self, entries: Vec<Entry>) -> Outcome {
        let mut outcome = Outcome::default();
        entries.into_iter().for_each(|e| self.one(e.change, &mut outcome));
        outcome
    }

    /// Makes a change.
    pub(super) fn one(&mut self, change: Change, outcome: &mut Outcome) {
        self.labels.note_created(self.overlay.disk(), &change);
        match self.overlay.disk().apply(&change, &mut outcome.last) {
            Ok(()) if matches!(change, Change::Remove { .. }) => {}
            Ok(()) => self.journal.note_done(change.path()),
            Err(e) => outcome.fail(&change, &e),
        }
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

    /// Makes the changes without a journal, in the order in which a power cut does the least damage: contents
    /// under temporary names, a sync, the renames with the account files last, a sync, then the marks.
    ///
    /// If the disk is full, nothing is appended: it would be done again by the next run. If there is no room for all changes, only
    /// those are made that let one log in, or none if there is no room for these either. Then nothing is marked, and once there is
    /// room a run finds what the first one found, or users that are whole.
    pub(super) fn without_journal(&mut self, mut entries: Vec<Entry>, first_mark: usize, is_full: bool) -> Vec<Error> {
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
            self.publish(change, &mut outcome);
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

    /// Makes a change that [`Writer::prepare`] has left: renames a file to its place, or makes the whole change.
    fn publish(&mut self, change: Change, outcome: &mut Outcome) {
        let Change::Write { content, attr, over: Over::Replace, .. } = &change else {
            return self.one(change, outcome);
        };
        self.labels.note_created(self.overlay.disk(), &change);
        let target = self.overlay.disk().target(change.resolved(), &mut outcome.last);
        match target.and_then(|target| self.overlay.disk().publish(&target, content, *attr)) {
            Ok(()) => self.journal.note_done(change.path()),
            Err(e) => outcome.fail(&change, &e),
        }
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
pub(super) fn is_full(error: &std::io::Error) -> bool {
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
