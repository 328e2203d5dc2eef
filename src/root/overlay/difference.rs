//! What differs between the changes in memory and the disk.

use super::{Node, Overlay};
use crate::root::disk::Seen;
use crate::root::layout::{self, STATE, is_volatile};
use crate::root::record::Entry;
use crate::root::{Attr, Change, FileKind, Over};

impl Overlay {
    /// [`crate::root::Root::has_in_memory`].
    pub(in crate::root) fn has_in_memory(&self, end: &str) -> bool {
        self.nodes.keys().any(|path| path.ends_with(end))
    }

    /// [`crate::root::Root::has_changes_on_disk`].
    pub(in crate::root) fn has_changes_on_disk(&self) -> bool {
        self.nodes.iter().any(|(path, node)| !is_volatile(path) && !self.entries_of(path, node).is_empty())
    }

    /// [`crate::root::Root::drop_unchanged`].
    pub(in crate::root) fn drop_unchanged(&mut self) {
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

    /// The changes that bring all nodes to the disk, each folder before its contents.
    pub(in crate::root) fn entries(&self) -> Vec<Entry> {
        self.nodes.iter().flat_map(|(path, node)| self.entries_of(path, node)).collect()
    }

    /// The changes at a resolved path that are not on the disk yet.
    pub(super) fn changes_at(&self, resolved: &str) -> Vec<Change> {
        let entries = self.nodes.get(resolved).map(|node| self.entries_of(resolved, node)).unwrap_or_default();
        entries.into_iter().filter(|e| !e.hidden).map(|e| e.change).collect()
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
        let remove_other = |changes: &mut Vec<Change>, kind: FileKind| {
            if disk_kind.is_some_and(|k| k != kind && (k == FileKind::Dir || kind == FileKind::Dir)) {
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
            Node::Dir { attr, .. } if disk_kind == Some(FileKind::Dir) => {
                touch(path, disk.map(|d| d.attr), *attr, changes)
            }
            Node::Dir { attr, .. } => {
                remove_other(changes, FileKind::Dir);
                changes.push(Change::Mkdir { path, attr: *attr });
            }
            Node::Touched(_, attr) => touch(path, disk.map(|d| d.attr), *attr, changes),
            Node::Symlink(target) => {
                if disk_kind != Some(FileKind::Symlink) || self.disk.read_link(resolved).as_ref() != Some(target) {
                    remove_other(changes, FileKind::Symlink);
                    changes.push(Change::Symlink { path, target: target.clone() });
                }
            }
            Node::File { content, attr, over } => {
                // A kernel file may show something else than was written to it.
                let same = *over != Over::Append
                    && !layout::is_of_kernel(resolved)
                    && disk.is_some_and(|d| d.kind == FileKind::File && d.size == content.len())
                    && self
                        .disk
                        .open_file(resolved, Seen::of(disk))
                        .is_ok_and(|f| f.is_some_and(|mut f| content.is_all_of(&mut f)));
                if same {
                    touch(path, disk.map(|d| d.attr), *attr, changes);
                } else {
                    remove_other(changes, FileKind::File);
                    changes.push(Change::Write { path, content: content.clone(), attr: *attr, over: *over });
                }
            }
        }
    }

    /// Tells which changes are marks, even if the state's folder is a link to another.
    pub(in crate::root) fn marks(&self) -> impl Fn(&Entry) -> bool + use<> {
        let state = self.resolve(STATE, true).ok().filter(|state| state != STATE);
        move |entry| {
            let path = entry.change.resolved();
            match &state {
                Some(state) => path.strip_prefix(state).is_some_and(|rest| layout::is_mark(&format!("{STATE}{rest}"))),
                None => layout::is_mark(path),
            }
        }
    }
}

/// The change for a path whose file system is not mounted yet.
pub(in crate::root) fn unseen(resolved: &str, node: &Node) -> Change {
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
