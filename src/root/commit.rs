//! Writes changes from memory to the disk: finds what differs from it, and writes that through the journal.
//!
//! The model is SQLite's rollback journal, with new contents instead of old ones. Nothing changes until the
//! journal is complete on the disk; from then on an interruption at any point still ends with all changes
//! made, because the next run makes them again ([`Root::recover`](super::Root::recover)).

use super::disk::LastFolder;
use super::folders::{ReadOnly, Touched};
use super::journal::{FOLDERS, Journal, WAITING};
use super::layout::{self, ACCOUNTS, STATE, is_unsynced, is_volatile, path_in};
use super::mounts::Writable;
use super::record::{self, Entry};
use super::staging;
use super::{Attr, Change, Kind, Node, Over, Root, Use};
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
        self.entries().into_iter().filter(|e| !e.hidden).map(|e| e.change).collect()
    }

    /// The changes at a resolved path that are not on the disk yet.
    pub(super) fn changes_at(&self, resolved: &str) -> Vec<Change> {
        let entries = self.nodes.get(resolved).map(|node| self.entries_of(resolved, node)).unwrap_or_default();
        entries.into_iter().filter(|e| !e.hidden).map(|e| e.change).collect()
    }

    /// Whether a path that is not on the disk yet, or is read from memory, ends like this.
    pub fn has_in_memory(&self, end: &str) -> bool {
        self.nodes.keys().any(|path| path.ends_with(end))
    }

    /// Whether there is a change to files that outlive the boot.
    pub fn has_changes_on_disk(&self) -> bool {
        self.nodes.iter().any(|(path, node)| !is_volatile(path) && !self.entries_of(path, node).is_empty())
    }

    /// Drops changes that would not change the disk, so that it is compared only once. For the initramfs, where
    /// nothing else changes the disk in the meantime.
    pub fn drop_unchanged(&mut self) {
        let is_same = |path: &str, node: &Node| {
            let mut changes = Vec::new();
            self.difference(path, node, &mut changes);
            changes.is_empty()
        };
        // A removed path is kept: there may still be something below it on the disk.
        let may_go = |path: &str, node: &Node| !matches!(node, Node::Absent) && !self.below_unmounted(path);
        let same = self.nodes.iter().filter(|(path, node)| may_go(path, node) && is_same(path, node));
        for path in same.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.nodes.remove(&path);
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.nodes.iter().flat_map(|(path, node)| self.entries_of(path, node)).collect()
    }

    /// The changes that bring one node to the disk, all at its path.
    fn entries_of(&self, path: &str, node: &Node) -> Vec<Entry> {
        let waits = self.below_unmounted(path);
        let mut changes = Vec::new();
        if !waits || self.is_shadowed(path) {
            self.difference(path, node, &mut changes);
        }
        let later = waits.then(|| Entry { change: unseen(path, node), hidden: false });
        later.into_iter().chain(changes.into_iter().map(|change| Entry { change, hidden: waits })).collect()
    }

    fn difference(&self, resolved: &str, node: &Node, changes: &mut Vec<Change>) {
        let path = format!("/{resolved}");
        let disk = self.stat_disk(resolved);
        let disk_kind = disk.map(|d| d.kind);
        let remove_other = |changes: &mut Vec<Change>, kind: Kind| {
            if disk_kind.is_some_and(|k| k != kind && (k == Kind::Dir || kind == Kind::Dir)) {
                changes.push(Change::Remove { path: path.clone() });
            }
        };
        match node {
            Node::Absent => {
                // Removed with its folder, which something else may replace.
                let is_no_folder = |node: &Node| matches!(node, Node::Absent | Node::File { .. } | Node::Symlink(_));
                let parent_gone =
                    resolved.rsplit_once('/').is_some_and(|(p, _)| self.nodes.get(p).is_some_and(is_no_folder));
                if !parent_gone && disk.is_some() {
                    changes.push(Change::Remove { path });
                }
            }
            Node::Dir { attr, .. } if disk_kind == Some(Kind::Dir) => touch(path, disk.map(|d| d.attr), *attr, changes),
            Node::Dir { attr, .. } => {
                remove_other(changes, Kind::Dir);
                changes.push(Change::Mkdir { path, attr: *attr });
            }
            Node::Touched(_, attr) => touch(path, disk.map(|d| d.attr), *attr, changes),
            Node::Symlink(target) => {
                if disk_kind != Some(Kind::Symlink) || self.disk.read_link(resolved).as_ref() != Some(target) {
                    remove_other(changes, Kind::Symlink);
                    changes.push(Change::Symlink { path, target: target.clone() });
                }
            }
            Node::File { content, attr, over } => {
                // A kernel file may show something else than was written to it.
                let same = *over != Over::Append
                    && !layout::is_of_kernel(resolved)
                    && disk.is_some_and(|d| d.kind == Kind::File && d.size == content.len())
                    && self
                        .disk
                        .open_file(resolved, Some(disk))
                        .is_ok_and(|f| f.is_some_and(|mut f| content.is_all_of(&mut f)));
                if same {
                    touch(path, disk.map(|d| d.attr), *attr, changes);
                } else {
                    remove_other(changes, Kind::File);
                    changes.push(Change::Write { path, content: content.clone(), attr: *attr, over: *over });
                }
            }
        }
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
        if !self.recovered && self.has_changes_on_disk() {
            errors.extend(self.recover());
        }
        let is_mark = self.marks();
        let mut entries = std::mem::take(&mut self.due);
        entries.append(&mut self.entries());
        self.nodes.clear();
        let (volatile, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| is_volatile(e.change.resolved()));
        let (waiting, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|e| !e.hidden && self.below_unmounted(e.change.resolved()));
        let (records, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| is_unsynced(e.change.resolved()));
        let mut entries = self.writable(entries, &is_mark, &mut errors);
        errors.extend(self.make(volatile).errors);
        self.waiting_changed |= !waiting.is_empty();
        self.waiting.extend(waiting);
        if self.waiting_changed {
            match self.list_of_waiting() {
                Ok(change) => entries.push(Entry { change, hidden: false }),
                Err(e) => {
                    self.unwritten = true;
                    errors.push(e);
                }
            }
            self.waiting_changed = false;
        }
        if entries.iter().all(&is_mark) {
            // The marked work is already on the disk.
            if entries.is_empty() || self.settle(&mut errors) {
                let marked = entries.iter().map(|e| e.change.resolved().to_owned());
                self.unsynced_marks.extend(marked);
                let outcome = self.make(entries);
                self.unwritten |= outcome.starved;
                errors.extend(outcome.errors);
            } else {
                self.unwritten = true;
            }
        } else {
            errors.extend(self.through_journal(entries, &is_mark));
        }
        errors.extend(self.make(records).errors);
        self.set_labels();
        self.release(usize::MAX);
        errors
    }

    /// Tells which changes are marks, even if the state's folder is a link to another.
    fn marks(&self) -> impl Fn(&Entry) -> bool + use<> {
        let state = self.resolve(STATE, true).ok().filter(|state| state != STATE);
        move |entry| {
            let path = entry.change.resolved();
            match &state {
                Some(state) => path.strip_prefix(state).is_some_and(|rest| layout::is_mark(&format!("{STATE}{rest}"))),
                None => layout::is_mark(path),
            }
        }
    }

    /// Whether a change failed that a later run may be able to make, with space or a writable disk. Then
    /// nothing is marked as done, and the next stage that can write repeats the work.
    pub fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Makes the root's own file system writable if a change needs it, until the guard that is returned is
    /// dropped.
    ///
    /// # Errors
    /// It is read-only and cannot be remounted.
    pub fn make_writable(&self) -> Result<Option<Writable>> {
        if !self.disk.is_read_only("") {
            return Ok(None);
        }
        let needs_own = |e: Entry| {
            let waits = !e.hidden && self.below_unmounted(e.change.resolved());
            // Changes that wait for a file system are in a list there.
            let path = if waits { "etc" } else { e.change.resolved() };
            let own = || self.disk.nearest(path).is_some_and(|fd| self.disk.is_own(fd));
            !is_volatile(path) && self.disk.is_read_only(path) && own()
        };
        if self.entries().into_iter().any(needs_own) { Writable::make(self.path()) } else { Ok(None) }
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
            entries.into_iter().partition(|e| read_only.holds(&self.disk, &e.change));
        let Some(first) = left.first() else { return entries };
        self.unwritten = true;
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
        if self.usage == Use::NewRoot && !self.disk.keeps_state {
            entries.retain(|e| !is_mark(e));
        }
        entries
    }

    /// The change that writes the list of waiting changes.
    pub(super) fn list_of_waiting(&mut self) -> Result<Change> {
        let folder = match &self.waiting_folder {
            Some(folder) => folder.clone(),
            None => self.journal_folders().into_iter().next().unwrap_or_default(),
        };
        let path = format!("/{}", path_in(&folder, WAITING));
        self.waiting_folder = Some(folder);
        if self.waiting.is_empty() {
            return Ok(Change::Remove { path });
        }
        let mut content = Vec::new();
        record::write(&mut content, &self.waiting)
            .context(|| "failed to keep the changes of file systems that are not mounted yet")?;
        Ok(Change::Write { path, content: content.into(), attr: Attr::root(0o600), over: Over::Replace })
    }

    /// Folders that can hold the journal, best first: on the root's own file system, and on one that survives
    /// a reboot.
    pub(super) fn journal_folders(&mut self) -> Vec<String> {
        let points =
            self.points.take().unwrap_or_else(|| super::points::all(self).into_iter().map(|p| p.path).collect());
        let below_mount = |folder: &str| points.iter().any(|point| super::layout::is_below(folder, point));
        // PID 1 needs /etc, so that it is mounted from the initramfs on if it is a mount at all.
        let usable = |folder: &str| {
            let resolved = self.resolve(folder, true).ok()?;
            (!below_mount(&resolved) || folder == "etc" && !self.below_unmounted(&resolved)).then_some(resolved)
        };
        let mut folders: Vec<String> = FOLDERS.iter().filter_map(|f| usable(f)).collect();
        folders.retain(|f| self.disk.stat(f).is_some_and(|s| s.kind == Kind::Dir));
        folders.sort_by_key(|folder| self.disk.volatility(folder));
        self.points = Some(points);
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
                self.unwritten = true;
                entries.iter().for_each(|e| _ = self.keep_list(&e.change));
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
            self.points = None;
        }
        self.end_journal(journal, &touched, outcome)
    }

    /// Writes the journal into the best folder. Gives also the entries that are to be carried out, if they are others.
    fn write_journal(&mut self, entries: &[Entry]) -> std::io::Result<(Journal, Option<Vec<Entry>>)> {
        let mut last = std::io::Error::from(Errno::NOENT);
        for folder in self.journal_folders() {
            // In the running system a new file inherits from its folder, a label for example; a renamed one does not.
            let large = if self.is_live() { Vec::new() } else { staging::eligible(&self.disk, &folder, entries) };
            let once: u64 =
                large.iter().filter_map(|at| entries.get(*at)).map(|e| record::length(std::slice::from_ref(e))).sum();
            if let Err(e) = self.disk.check_room(&folder, record::length(entries).saturating_sub(once), entries) {
                last = e;
                continue;
            }
            let mut written = Journal::write(&self.disk, &folder, entries, &large);
            if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
                // Another process left this journal: its changes come first.
                let earlier = self.recover_journal(&folder);
                written = earlier.and_then(|_| Journal::write(&self.disk, &folder, entries, &large));
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
            if outcome.starved && (self.marks()(&entry) || self.keep_list(&entry.change)) {
                continue;
            }
            let change = entry.change;
            touched.add_of(&self.disk, &change);
            // The journal of a root stays for its own room, and not for that of another file system.
            let (was_full, path) = (std::mem::take(&mut outcome.full), change.resolved().to_owned());
            self.one(change, outcome);
            outcome.full = was_full || outcome.full && self.is_on_own(&path);
        }
    }

    /// Whether a change rewrites the list of waiting changes, which then differs from the disk's.
    fn keep_list(&mut self, change: &Change) -> bool {
        let is_list = change.resolved().rsplit('/').next() == Some(WAITING);
        self.waiting_changed |= is_list;
        is_list
    }

    /// Syncs and removes the journal. It stays for the next run if its changes may not have reached the disk.
    pub(super) fn end_journal(&mut self, journal: Journal, touched: &Touched, outcome: Outcome) -> Vec<Error> {
        let mut errors = outcome.errors;
        self.unwritten |= outcome.starved;
        if let Err(e) = touched.sync() {
            (self.unsettled, self.unwritten) = (true, true);
            errors.push(Error::new(format!("failed to sync the root: {e}")));
        } else if outcome.full {
            errors.push(Error::new("the disk is full: the next run that finds room makes the changes of the journal"));
        } else if let Err(e) = journal.remove(&self.disk) {
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
        self.unsettled = true;
        let count = entries.len();
        if is_full {
            entries.retain(|e| !self.appended.contains(e.change.resolved()));
        }
        let mut left = (entries.len() < count).then_some("what would be appended waits for room");
        let lacks_room = is_full && self.disk.check_room("", 0, &entries).is_err();
        let prepared = if lacks_room { None } else { self.prepare(&entries, &marks, &mut touched, &mut outcome) };
        let later = prepared.unwrap_or_else(|| {
            entries.retain(|e| !self.appended.contains(e.change.resolved()));
            let login: Vec<Entry> = for_login(&entries).cloned().collect();
            let prepared = self.prepare(&login, &[], &mut touched, &mut outcome);
            left = Some(match prepared {
                Some(_) => "only what lets one log in is written",
                None => "nothing is written",
            });
            prepared.unwrap_or_else(|| {
                entries.iter().for_each(|e| _ = self.keep_list(&e.change));
                Vec::new()
            })
        });
        if let Some(left) = left {
            outcome.lose(Error::new(format!("the disk is full: {left}")));
        }
        outcome.synced(&touched);
        for change in later {
            if outcome.starved && left.is_none() && self.keep_list(&change) {
                continue;
            }
            match &change {
                Change::Write { content, attr, over: Over::Replace, .. } => {
                    self.note_created(&change);
                    let target = self.disk.target(change.resolved(), &mut outcome.last);
                    match target.and_then(|target| self.disk.publish(&target, content, *attr)) {
                        Ok(()) => self.done.push(change.path().to_owned()),
                        Err(e) => outcome.fail(&change, &e),
                    }
                }
                _ => self.one(change, &mut outcome),
            }
        }
        outcome.synced(&touched);
        self.unwritten |= outcome.starved;
        if !outcome.starved {
            self.unsettled = false;
            for Entry { change, .. } in marks {
                self.one(change, &mut outcome);
            }
            self.unwritten |= outcome.starved;
        } else if !marks.is_empty() {
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
        let done = self.done.len();
        let (mut later, mut folders) = (Vec::new(), Vec::new());
        for Entry { change, .. } in entries {
            let path = change.resolved();
            touched.add_of(&self.disk, change);
            match change {
                Change::Mkdir { .. } => {
                    folders.extend(self.disk.stat(path).is_none().then_some(path));
                    self.one(change.clone(), outcome);
                }
                Change::Remove { path } if replaced.contains(path.as_str()) => self.one(change.clone(), outcome),
                Change::Write { content, attr, over: Over::Replace, .. } => {
                    let target = self.disk.target(path, &mut outcome.last);
                    match target.and_then(|target| self.disk.prepare(&target, content, *attr)) {
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
        if !outcome.full && (marks.is_empty() || self.disk.check_room("", 0, marks).is_ok()) {
            later.sort_by_key(|change| ACCOUNTS.iter().position(|a| *a == change.resolved()).map_or(0, |at| at + 1));
            return Some(later);
        }
        for change in &later {
            if let (Change::Write { over: Over::Replace, .. }, Ok(target)) =
                (change, self.disk.target(change.resolved(), &mut outcome.last))
            {
                self.disk.discard(&target);
            }
        }
        outcome.last = LastFolder::default();
        folders.iter().rev().for_each(|folder| self.disk.remove_empty(folder));
        self.done.truncate(done);
        outcome.full = false;
        None
    }

    fn make(&mut self, entries: Vec<Entry>) -> Outcome {
        let mut outcome = Outcome::default();
        entries.into_iter().for_each(|e| self.one(e.change, &mut outcome));
        outcome
    }

    pub(super) fn one(&mut self, change: Change, outcome: &mut Outcome) {
        self.note_created(&change);
        match self.disk.apply(&change, &mut outcome.last) {
            Ok(()) if matches!(change, Change::Remove { .. }) => {}
            Ok(()) => self.done.push(change.path().to_owned()),
            Err(e) => outcome.fail(&change, &e),
        }
    }

    /// Syncs what was written without a journal. Returns whether it is on the disk.
    fn settle(&mut self, errors: &mut Vec<Error>) -> bool {
        if self.unsettled {
            let mut touched = Touched::default();
            touched.add(&self.disk, "");
            match touched.sync() {
                Ok(()) => self.unsettled = false,
                Err(e) => errors.push(Error::new(format!("nothing is marked as done: failed to sync the root: {e}"))),
            }
        }
        !self.unsettled
    }

    /// In the running system: waits until what programs wrote in the folder of `path` is on the disk.
    ///
    /// # Errors
    /// The disk did not take it.
    pub fn sync(&self, path: &str) -> Result<()> {
        let mut touched = Touched::default();
        if self.is_live() {
            touched.add(&self.disk, &self.resolve(path, true)?);
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
        for mark in std::mem::take(&mut self.unsynced_marks) {
            if self.is_live() {
                self.disk.sync_folder(&mark).context(|| format!("failed to sync /{mark}"))?;
            }
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Every path that commits have changed, in order.
    pub fn done(&self) -> &[String] {
        &self.done
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

/// The change for a path whose file system is not mounted yet.
pub(super) fn unseen(resolved: &str, node: &Node) -> Change {
    let path = format!("/{resolved}");
    match node {
        Node::Absent => Change::Remove { path },
        Node::Dir { attr, .. } => Change::Mkdir { path, attr: *attr },
        Node::Touched(_, attr) => Change::Chown { path, attr: *attr },
        Node::Symlink(target) => Change::Symlink { path, target: target.clone() },
        Node::File { content, attr, over } => {
            Change::Write { path, content: content.clone(), attr: *attr, over: *over }
        }
    }
}

fn touch(path: String, old: Option<Attr>, new: Attr, changes: &mut Vec<Change>) {
    let Some(old) = old else {
        changes.push(Change::Chown { path, attr: new });
        return;
    };
    if (old.uid, old.gid) != (new.uid, new.gid) {
        changes.push(Change::Chown { path: path.clone(), attr: new });
    }
    if old.mode != new.mode {
        changes.push(Change::Chmod { path, attr: new });
    }
}
