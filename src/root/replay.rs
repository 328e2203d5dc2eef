//! From memory to the disk: the differences, the commit, and what is kept for the first stage of the real root.

use super::{Attr, Change, Kind, Node, Root};
use crate::document::{Value, json};
use crate::error::{Context, Error, Result};

/// Where changes below a mount point that is not mounted yet wait for the real root.
pub const REPLAY: &str = "/run/prepivot/replay.json";
/// State that says that the rest is done: written after everything else has reached the disk, and also below a
/// mount point that is not mounted yet, where the next boot's initramfs will look for it.
const STATE: &str = "var/lib/cloud";

impl Root {
    /// What is not on the disk yet, folders before what is in them.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (path, node) in &self.nodes {
            self.difference(path, node, &mut changes);
        }
        changes
    }

    fn difference(&self, resolved: &str, node: &Node, changes: &mut Vec<Change>) {
        let path = format!("/{resolved}");
        let later = self.below_unmounted(resolved);
        let disk = if later { None } else { self.disk.stat(resolved) };
        let disk_kind = disk.map(|d| d.kind);
        let remove_other = |changes: &mut Vec<Change>, kind: Kind| {
            if disk_kind.is_some_and(|k| k != kind && (k == Kind::Dir || kind == Kind::Dir)) {
                changes.push(Change::Remove { path: path.clone() });
            }
        };
        match node {
            Node::Absent => {
                let parent_gone =
                    resolved.rsplit_once('/').is_some_and(|(p, _)| matches!(self.nodes.get(p), Some(Node::Absent)));
                if !parent_gone && disk.is_some() {
                    changes.push(Change::Remove { path });
                }
            }
            Node::Dir(attr) if disk_kind == Some(Kind::Dir) => touch(path, disk.map(|d| d.attr), *attr, changes),
            Node::Dir(attr) => {
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
            Node::File(content, attr) => {
                let same = disk.is_some_and(|d| d.kind == Kind::File && d.size == content.len() as u64)
                    && self.disk.read(resolved).is_ok_and(|c| c.as_ref() == Some(content));
                if same {
                    touch(path, disk.map(|d| d.attr), *attr, changes);
                } else {
                    remove_other(changes, Kind::File);
                    changes.push(Change::Write { path, content: content.clone(), attr: *attr });
                }
            }
        }
    }

    /// Writes what differs, each file atomically, the state last, a sync after each of the two. Gives one error for each
    /// change that failed; the others are made. In a plan nothing is written and the changes stay.
    pub fn commit(&mut self) -> Vec<Error> {
        if self.plan {
            return Vec::new();
        }
        let (state, rest): (Vec<_>, Vec<_>) = self.changes().into_iter().partition(|c| in_state(c.path()));
        let mut errors = Vec::new();
        for part in [rest, state] {
            if part.is_empty() {
                continue;
            }
            for change in part {
                let later = self.below_unmounted(change.path().trim_start_matches('/'));
                if later {
                    self.kept.push(change.clone());
                }
                if (!later || is_shadowed(change.path()))
                    && let Err(e) = self.disk.apply(&change)
                {
                    errors.push(Error::new(format!("failed to {} {}: {e}", verb(&change), change.path())));
                    continue;
                }
                self.done.push(change);
            }
            if let Err(e) = self.disk.sync() {
                errors.push(Error::new(format!("failed to sync the root: {e}")));
            }
        }
        self.nodes.clear();
        errors
    }

    /// Leaves what was kept for later in [`REPLAY`], 0600.
    pub fn keep_for_later(&mut self) -> Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let record = Value::List(self.kept.iter().map(Change::to_record).collect());
        self.write(REPLAY, json::to_string(&record), Attr::root(0o600))
    }

    /// Makes the changes that the initramfs kept for this stage, and forgets them.
    pub fn replay(&mut self) -> Result<Vec<Error>> {
        let Some(bytes) = self.read(REPLAY)? else { return Ok(Vec::new()) };
        let record = json::parse(REPLAY, &bytes)?;
        let mut errors = Vec::new();
        for entry in record.as_list().unwrap_or_default() {
            let change = Change::from_record(entry).context(|| REPLAY)?;
            if let Err(e) = self.disk.apply(&change) {
                errors.push(Error::new(format!("failed to {} {}: {e}", verb(&change), change.path())));
            } else {
                self.done.push(change);
            }
        }
        if let Err(e) = self.disk.sync() {
            errors.push(Error::new(format!("failed to sync the root: {e}")));
        }
        self.remove(REPLAY)?;
        errors.extend(self.commit());
        Ok(errors)
    }

    /// Every change that reached the disk, in order.
    pub fn done(&self) -> &[Change] {
        &self.done
    }
}

fn in_state(path: &str) -> bool {
    path.trim_start_matches('/').strip_prefix(STATE).is_some_and(|r| r.is_empty() || r.starts_with('/'))
}

/// Whether a path is written below a mount point that is not mounted yet: the state, and the folders above it.
fn is_shadowed(path: &str) -> bool {
    in_state(path) || STATE.starts_with(&format!("{}/", path.trim_start_matches('/')))
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

fn verb(change: &Change) -> &'static str {
    match change {
        Change::Write { .. } => "write",
        Change::Mkdir { .. } => "make the folder",
        Change::Symlink { .. } => "make the link",
        Change::Remove { .. } => "remove",
        Change::Chown { .. } => "change the owner of",
        Change::Chmod { .. } => "change the mode of",
    }
}
