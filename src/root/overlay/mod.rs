//! What the root will be: changes in memory, and reads through them to the disk.

mod difference;
mod edit;
mod resolve;

pub(super) use difference::unseen;
pub(super) use edit::edit_decoded;

use super::disk::Disk;
use super::points::Mounts;
use super::{Attr, Change, Content, FileKind, Over, Stat, layout, run_dir};
use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use resolve::Resolved;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The most entries that removing one folder may touch.
const MAX_REMOVE: usize = 100_000;

/// What a change takes in memory, with the lists of a commit that it is in.
const CHANGE_COST: usize = 350;
const PATH_COPIES: usize = 4;

/// The state of a path that is not on the disk yet. Keys of the map are resolved paths without a leading
/// slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Absent,
    Dir {
        attr: Attr,
        /// Whether the disk has nothing at the path, and nothing below it.
        is_new: bool,
    },
    File {
        content: Content,
        attr: Attr,
        over: Over,
    },
    /// A file or folder on the disk whose mode or owner changes.
    Touched(FileKind, Attr),
    Symlink(String),
}

/// The most paths that are recorded for one piece of work.
const MAX_PATHS: usize = 2000;
/// Folders of prepivot's own state, on which no module depends.
const OWN: [&str; 3] = [layout::STATE, "run/cloud-init", run_dir::DIR.split_at(1).1];

/// The changes to a root that are not on its disk yet. Paths of methods that take `resolved` have no links, dots or leading slash.
pub(super) struct Overlay {
    disk: Disk,
    mounts: Mounts,
    nodes: BTreeMap<String, Node>,
    /// What they cost of the stage's budget.
    held: usize,
    /// Whether nothing else writes to the disk: no programs of the root run, and no changes of an earlier run are left to be made.
    is_alone: bool,
    /// Resolved paths to which something is added that another run would add again.
    appended: BTreeSet<String>,
    /// Paths that were used since [`super::Root::watch`]; None: not recorded.
    watched: RefCell<Option<BTreeSet<String>>>,
    /// Resolved paths that got changes since [`super::Root::trace_changes`]; None: not recorded.
    traced: Option<BTreeSet<String>>,
}

impl Overlay {
    /// The disk without changes. All its file systems are taken to be mounted.
    pub(super) fn new(disk: Disk) -> Overlay {
        Overlay {
            disk,
            mounts: Mounts::default(),
            nodes: BTreeMap::new(),
            held: 0,
            is_alone: false,
            appended: BTreeSet::new(),
            watched: RefCell::default(),
            traced: None,
        }
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    pub(super) fn mounts_mut(&mut self) -> &mut Mounts {
        &mut self.mounts
    }

    /// Sets the mount points, and whether the state is kept in another folder because of them.
    pub(super) fn set_mounts(&mut self, mounts: Mounts, keeps_state: bool) {
        self.mounts = mounts;
        self.disk.set_keeps_state(keeps_state);
    }

    /// Sets whether nothing else writes to the disk. Then nothing is looked for in folders that are created.
    pub(super) fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Begins to record the paths that are used.
    pub(super) fn watch(&mut self) {
        *self.watched.get_mut() = Some(BTreeSet::new());
    }

    /// Stops recording, and returns the paths.
    pub(super) fn take_watched(&mut self) -> BTreeSet<String> {
        self.watched.take().unwrap_or_default()
    }

    /// [`super::Root::trace_changes`].
    pub(super) fn trace_changes(&mut self) {
        self.traced = Some(BTreeSet::new());
    }

    /// [`super::Root::take_traced`].
    pub(super) fn take_traced(&mut self) -> Vec<(String, Vec<Change>)> {
        let Some(traced) = &mut self.traced else { return Vec::new() };
        let paths = std::mem::take(traced);
        paths.into_iter().map(|path| (format!("/{path}"), self.changes_at(&path))).collect()
    }

    /// Records that a resolved path gets a change, if that is recorded.
    fn trace(&mut self, resolved: &str) {
        if let Some(traced) = self.traced.as_mut().filter(|traced| !traced.contains(resolved)) {
            traced.insert(resolved.to_owned());
        }
    }

    /// Records a path, if recording.
    pub(super) fn note(&self, path: &str, is_list: bool) {
        let mut watched = self.watched.borrow_mut();
        let Some(paths) = watched.as_mut().filter(|paths| paths.len() < MAX_PATHS) else { return };
        let path = path.trim_matches('/');
        if !OWN.iter().any(|own| layout::is_below(path, own)) {
            paths.insert(if is_list { format!("/{path}/") } else { format!("/{path}") });
        }
    }

    /// The changes by their resolved paths.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Forgets the changes, which a commit has taken. They are paid for until [`Overlay::release_all`].
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Gives back what all changes cost.
    pub(super) fn release_all(&mut self) {
        self.release(usize::MAX);
    }

    /// [`super::Root::note_appended`].
    pub(super) fn note_appended(&mut self, path: &str) {
        self.appended.extend(self.resolve(path, true));
    }

    /// Whether something is added to the file that another run would add again.
    pub(super) fn is_appended(&self, resolved: &str) -> bool {
        self.appended.contains(resolved)
    }

    /// [`super::Root::stat`].
    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        self.resolve_stat(path, true).ok()?.1
    }

    /// [`super::Root::is_new_dir`].
    pub(super) fn is_new_dir(&self, path: &str) -> bool {
        self.resolve(path, true)
            .is_ok_and(|p| matches!(self.nodes.get(&p), Some(Node::Dir { .. })) && self.stat_disk(&p).is_none())
    }

    /// [`super::Root::read_at_most`].
    pub(super) fn read_at_most(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Resolved { path: resolved, seen, .. } = self.follow(path, true)?;
        let on_disk = || self.disk.read(&resolved, seen, limit).context(|| format!("failed to read {path}"));
        match self.nodes.get(&resolved) {
            Some(Node::File { content, over: Over::Append, .. }) if !self.below_unmounted(&resolved) => {
                let mut all = on_disk()?.unwrap_or_default();
                all.extend(content.to_vec());
                Ok(Some(all))
            }
            Some(Node::File { content, .. }) => Ok(Some(content.to_vec())),
            Some(Node::Touched(..)) => on_disk(),
            Some(_) => Ok(None),
            None if self.hidden(&resolved) => Ok(None),
            None => on_disk(),
        }
    }

    /// [`super::Root::list`].
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        self.note(path, true);
        let Ok(resolved) = self.resolve(path, true) else { return Vec::new() };
        let hidden = self.hidden(&resolved) || matches!(self.nodes.get(&resolved), Some(Node::Absent));
        let mut names = if hidden { Default::default() } else { self.disk.list(&resolved) };
        let prefix = if resolved.is_empty() { String::new() } else { format!("{resolved}/") };
        for (path, node) in self.nodes.range(prefix.clone()..) {
            let Some(name) = path.strip_prefix(&prefix) else { break };
            if name.is_empty() || name.contains('/') {
                continue;
            }
            match node {
                Node::Absent => drop(names.remove(name)),
                _ => drop(names.insert(name.to_owned())),
            }
        }
        names.into_iter().collect()
    }

    /// Writes a file, [`super::Root::write`], over one that exists.
    pub(super) fn write_over(&mut self, path: &str, content: Content, attr: Attr, over: Over) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        match found.map(|s| s.kind) {
            Some(FileKind::Dir) => return Err(Error::new(format!("failed to write {path}: it is a folder"))),
            Some(FileKind::Other) => {
                return Err(Error::new(format!("failed to write {path}: it is not a regular file")));
            }
            _ => {}
        }
        self.make_parents(&resolved, path)?;
        self.put(resolved, Node::File { content, attr, over })
    }

    /// [`super::Root::mkdir`].
    pub(super) fn mkdir(&mut self, path: &str, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        match found.map(|s| s.kind) {
            Some(FileKind::Dir) => Ok(()),
            Some(_) => Err(Error::new(format!("failed to make the folder {path}: there is a file of that name"))),
            None => {
                self.make_parents(&resolved, path)?;
                self.insert_dir(resolved, attr)
            }
        }
    }

    /// [`super::Root::mkdir_above`].
    pub(super) fn mkdir_above(&mut self, path: &str, attr: Attr) -> Result<()> {
        let Some((folder, _)) = path.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) else { return Ok(()) };
        let ends: Vec<usize> = path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0).collect();
        let (resolved, found) = self.resolve_to_change(folder, true)?;
        // With links, or with folders below mounts that exist only in part, each is looked at.
        if found.is_some_and(|s| s.kind == FileKind::Dir) && self.mounts.are_complete() {
            return Ok(());
        }
        if found.is_some() || !self.mounts.are_complete() || Some(resolved.as_str()) != folder.strip_prefix('/') {
            return ends.iter().try_for_each(|end| self.mkdir(&path[..*end], attr));
        }
        // The first that is missing: whatever is above it is a folder, or the whole path would be an error.
        let first = ends.partition_point(|end| self.lstat_resolved(&path[1..*end]).is_some());
        if let Some(end) = first.checked_sub(1).and_then(|last| ends.get(last)) {
            self.mkdir(&path[..*end], attr)?;
        }
        let mut is_in_new = false;
        for end in ends.get(first..).unwrap_or_default() {
            let folder = &path[1..*end];
            if is_in_new {
                self.put(folder.to_owned(), Node::Dir { attr, is_new: false })?;
            } else {
                self.insert_dir(folder.to_owned(), attr)?;
                is_in_new = matches!(self.nodes.get(folder), Some(Node::Dir { is_new: true, .. }));
            }
        }
        Ok(())
    }

    /// [`super::Root::symlink`].
    pub(super) fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, false)?;
        if found.is_some_and(|s| s.kind == FileKind::Dir) {
            return Err(Error::new(format!("failed to make the link {path}: it is a folder")));
        }
        self.make_parents(&resolved, path)?;
        self.put(resolved, Node::Symlink(target.to_owned()))
    }

    /// [`super::Root::remove`].
    pub(super) fn remove(&mut self, path: &str) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, false)?;
        if found.is_none() {
            return Ok(());
        }
        let mut found = vec![resolved];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            if path.is_empty() || found.len() > MAX_REMOVE {
                return Err(Error::new(format!("failed to remove /{path}: too much below it")));
            }
            if self.lstat_resolved(&path).is_some_and(|s| s.kind == FileKind::Dir) {
                found.extend(self.list(&path).into_iter().map(|name| format!("{path}/{name}")));
            }
        }
        for path in found {
            self.trace(&path);
            self.nodes.insert(path, Node::Absent);
        }
        Ok(())
    }

    /// [`super::Root::set_attr`].
    pub(super) fn set_attr(&mut self, path: &str, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        let Some(stat) = found else {
            return Err(Error::new(format!("failed to change the owner or mode of {path}: there is no such file")));
        };
        self.trace(&resolved);
        match self.nodes.get_mut(&resolved) {
            Some(Node::File { attr: old, .. } | Node::Dir { attr: old, .. } | Node::Touched(_, old)) => *old = attr,
            _ => self.put(resolved, Node::Touched(stat.kind, attr))?,
        }
        Ok(())
    }

    /// Moves the changes in `folder` to the folder `name` of /run.
    ///
    /// # Errors
    /// Something that is not a folder is in that folder's place.
    pub(super) fn divert(&mut self, folder: &str, name: &str) -> Result<()> {
        let from = self.resolve(folder, true)?;
        let inside = |path: &str| path.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/'));
        let is_new = |node: &Node| matches!(node, Node::File { .. } | Node::Symlink(_));
        let new = self.nodes.iter().filter(|(path, node)| inside(path) && is_new(node));
        for path in new.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            let to = format!("run/{name}{}", &path[from.len()..]);
            self.make_parents(&to, &to)?;
            self.trace(&path);
            self.trace(&to);
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to, node);
            }
        }
        Ok(())
    }

    /// Whether the folder of a path is below a mount point that is not mounted yet.
    pub(super) fn below_unmounted(&self, resolved: &str) -> bool {
        self.mounts.hold_back(resolved)
    }

    /// Creates the missing folders above a path.
    ///
    /// # Errors
    /// One of them is something else.
    pub(super) fn make_parents(&mut self, resolved: &str, path: &str) -> Result<()> {
        let mut missing = Vec::new();
        // The nearest first: if a folder exists, so do those above it, unless a file system will be mounted
        // over it.
        for (slash, _) in resolved.rmatch_indices('/') {
            let parent = &resolved[..slash];
            match self.lstat_resolved(parent).map(|s| s.kind) {
                Some(FileKind::Dir) if self.mounts.are_complete() => break,
                Some(FileKind::Dir) => {}
                None => missing.push(parent),
                Some(_) => return Err(Error::new(format!("failed to write {path}: /{parent} is not a folder"))),
            }
        }
        for parent in missing {
            let mode = if run_dir::DIR.strip_prefix('/') == Some(parent) { 0o700 } else { 0o755 };
            self.insert_dir(parent.to_owned(), Attr::root(mode))?;
        }
        Ok(())
    }

    /// Creates a folder where no one sees anything, at a resolved path.
    fn insert_dir(&mut self, resolved: String, attr: Attr) -> Result<()> {
        // /run is everybody's.
        let is_alone = self.is_alone && !layout::is_volatile(&resolved);
        // The image's part of a state that is kept elsewhere is below folders that are missing there.
        let is_split = self.disk.keeps_state() && layout::is_shadowed(&resolved);
        let is_new = is_alone && !is_split && !self.nodes.contains_key(&resolved) && !self.hidden(&resolved);
        self.put(resolved, Node::Dir { attr, is_new })
    }

    /// Holds a change until it is committed, for which the stage's budget pays. What a later boot goes by, and accounts,
    /// whose parts were paid for, are never refused.
    fn put(&mut self, path: String, node: Node) -> Result<()> {
        let cost = cost(&path, &node);
        let is_own = layout::is_below(&path, layout::STATE) || layout::is_volatile(&path);
        if is_own || layout::ACCOUNTS.contains(&path.as_str()) {
            budget::take_all(cost);
        } else {
            budget::take_last(cost).context(|| format!("failed to change /{path}"))?;
        }
        self.held += cost;
        if let Some(old) = self.nodes.get(&path) {
            self.release(self::cost(&path, old));
        }
        self.trace(&path);
        self.nodes.insert(path, node);
        Ok(())
    }

    /// Gives back what changes cost that are no longer held.
    fn release(&mut self, cost: usize) {
        let cost = cost.min(self.held);
        self.held -= cost;
        budget::give(cost);
    }

    /// Whether a path is a folder that the disk does not have, or below one: the disk need not be asked.
    fn is_in_new_dir(&self, path: &str) -> bool {
        let is_new = |at: &str| matches!(self.nodes.get(at), Some(Node::Dir { is_new: true, .. }));
        path.match_indices('/').map(|(i, _)| &path[..i]).chain([path]).any(is_new)
    }

    /// The status of a resolved path on the disk.
    fn stat_disk(&self, resolved: &str) -> Option<Stat> {
        if self.is_in_new_dir(resolved) { None } else { self.disk.stat(resolved) }
    }

    /// The target of the link at a resolved path.
    pub(super) fn read_link_resolved(&self, resolved: &str) -> Option<String> {
        match self.nodes.get(resolved) {
            Some(Node::Symlink(target)) => Some(target.clone()),
            Some(_) => None,
            None if self.hidden(resolved) => None,
            None => self.disk.read_link(resolved),
        }
    }

    /// Whether a file system that is not mounted yet will cover a path.
    fn is_unseen(&self, resolved: &str) -> bool {
        self.mounts.cover(resolved) && !self.is_shadowed(resolved)
    }

    /// Whether a path is also used while its file system is not mounted. If the state is kept elsewhere, the
    /// folders above its usual place are not: some file systems are only mounted over an empty folder.
    pub(super) fn is_shadowed(&self, resolved: &str) -> bool {
        layout::is_shadowed(resolved) && (!self.disk.keeps_state() || layout::is_below(resolved, layout::STATE))
    }

    /// Whether the disk's content at a path cannot be seen: a parent is removed in memory, a file system
    /// that is not mounted yet will cover it, or it is known that there is nothing.
    fn hidden(&self, resolved: &str) -> bool {
        if self.is_unseen(resolved) || self.is_in_new_dir(resolved) {
            return true;
        }
        let mut parents = resolved.match_indices('/').map(|(i, _)| &resolved[..i]);
        let gone = |node: &Node| matches!(node, Node::Absent | Node::Symlink(_) | Node::File { .. });
        !self.nodes.is_empty() && parents.any(|p| self.nodes.get(p).is_some_and(gone))
    }

    /// The status of a resolved path, without following a link at its end.
    fn lstat_resolved(&self, resolved: &str) -> Option<Stat> {
        self.lstat_over(resolved, || self.disk.stat(resolved))
    }

    /// The status of a path: by the change in memory if there is one, else by the disk.
    fn lstat_over(&self, resolved: &str, on_disk: impl FnOnce() -> Option<Stat>) -> Option<Stat> {
        let stat = |kind, attr, size| Some(Stat { kind, attr, size });
        match self.nodes.get(resolved) {
            Some(Node::Absent) => None,
            Some(Node::Dir { attr, .. }) => stat(FileKind::Dir, *attr, 0),
            Some(Node::File { content, attr, over }) => {
                let before = if *over == Over::Append { on_disk().map_or(0, |s| s.size) } else { 0 };
                stat(FileKind::File, *attr, before + content.len())
            }
            Some(Node::Symlink(target)) => stat(FileKind::Symlink, Attr::root(0o777), target.len() as u64),
            Some(Node::Touched(kind, attr)) => stat(*kind, *attr, on_disk().map_or(0, |s| s.size)),
            None if self.hidden(resolved) => None,
            None => on_disk(),
        }
    }
}

/// What was planned, and will not be written, takes no memory any more.
impl Drop for Overlay {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// What the stage's budget pays for a change, in bytes: the path is in memory as often, while it is written, and the content once.
fn cost(path: &str, node: &Node) -> usize {
    let content = match node {
        Node::File { content, .. } => content.held(),
        Node::Symlink(target) => target.len(),
        Node::Absent | Node::Dir { .. } | Node::Touched(..) => 0,
    };
    CHANGE_COST + path.len() * PATH_COPIES + content
}
