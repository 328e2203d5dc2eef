//! From memory to the disk: the differences, the commit, and what is kept for the first stage of the real root.

use super::{Attr, Change, Kind, Node, Root};
use crate::base::error::{Context, Error, Result};
use crate::document::{Value, json};

/// Where changes below a mount point that is not mounted yet wait for the real root.
pub const REPLAY: &str = "/run/prepivot/replay.json";
/// cloud-init's state: written also below a mount point that is not mounted yet, where the next boot's initramfs will
/// look for it.
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

    /// Writes what differs, each file atomically, and the marks that say what was done last, when all else has reached the
    /// disk. Where nothing is marked there is nothing to wait for: the kernel writes in its own time. Gives one error for
    /// each change that failed; the others are made. In a plan nothing is written and the changes stay.
    pub fn commit(&mut self) -> Vec<Error> {
        if self.plan {
            return Vec::new();
        }
        let errors = self.make(self.changes());
        self.nodes.clear();
        errors
    }

    /// Makes changes, the marks among them last.
    fn make(&mut self, changes: Vec<Change>) -> Vec<Error> {
        let (marks, rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(|c| is_mark(c.path()));
        self.unsettled |= rest.iter().any(|c| is_on_disk(c.path()));
        let mut errors = Vec::new();
        self.write_out(rest, &mut errors);
        if !marks.is_empty() {
            self.settle(&mut errors);
            self.write_out(marks, &mut errors);
        }
        errors
    }

    fn write_out(&mut self, changes: Vec<Change>, errors: &mut Vec<Error>) {
        for change in changes {
            let later = self.below_unmounted(change.path().trim_start_matches('/'));
            if later {
                self.kept.push(change.clone());
            }
            if (!later || is_shadowed(change.path()))
                && let Err(e) = self.disk.apply(&change)
            {
                errors.push(failed(&change, &e));
                continue;
            }
            self.done.push(change);
        }
    }

    /// What was written reaches the disk, if anything was.
    fn settle(&mut self, errors: &mut Vec<Error>) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        if let Err(e) = self.disk.sync() {
            errors.push(Error::new(format!("failed to sync the root: {e}")));
        }
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
        let entries = record.as_list().unwrap_or_default().iter();
        let changes = entries.map(Change::from_record).collect::<Result<Vec<_>>>().context(|| REPLAY)?;
        let mut errors = self.make(changes);
        self.remove(REPLAY)?;
        errors.extend(self.commit());
        Ok(errors)
    }

    /// Every change that reached the disk, in order.
    pub fn done(&self) -> &[Change] {
        &self.done
    }
}

fn failed(change: &Change, error: &std::io::Error) -> Error {
    Error::new(format!("failed to {} {}: {error}", verb(change), change.path()))
}

/// Whether a change outlives the boot.
pub fn is_on_disk(path: &str) -> bool {
    !path.starts_with("/run/")
}

/// Whether a path says that something is done and need not be done again: semaphores, and which instance this is.
fn is_mark(path: &str) -> bool {
    let below = path.trim_start_matches('/').strip_prefix(STATE).and_then(|p| p.strip_prefix('/'));
    below.is_some_and(|p| {
        matches!(p, "instance" | "data/instance-id") || p.contains("sem/") || p.ends_with("/datasource.json")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_what_later_boots_go_by() {
        for mark in [
            "instance",
            "data/instance-id",
            "sem/config_x.once",
            "instances/i-1/sem/config_y",
            "instances/i-1/datasource.json",
        ] {
            assert!(is_mark(&format!("/{STATE}/{mark}")), "{mark}");
        }
        for other in
            ["data/status.json", "instances/i-1/scripts/runcmd", "instances/i-1/sem", "instances/i-1/datasource"]
        {
            assert!(!is_mark(&format!("/{STATE}/{other}")), "{other}");
        }
        assert!(!is_mark("/etc/sem/x"));
    }
}
