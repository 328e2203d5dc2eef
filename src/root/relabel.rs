//! SELinux: files written before the policy is loaded are relabelled by systemd-tmpfiles, early in the real
//! root.

use super::layout::{STATE, UNSYNCED, is_volatile};
use super::{Attr, Node, Root, is_on_disk};
use crate::base::error::Result;
use std::collections::BTreeSet;

/// Read by systemd-tmpfiles-setup.service (tmpfiles.d(5), type z).
const RELABEL: &str = "/run/tmpfiles.d/prepivot-relabel.conf";

/// The same lines on the disk, until the final stage of a boot has begun: a boot that is cut off before takes [`RELABEL`] with it.
fn unlabelled() -> String {
    format!("/{STATE}/data/prepivot-unlabelled")
}

impl Root {
    /// Lists everything that was written in [`RELABEL`], with what an earlier boot left unlabelled, if the root has SELinux and it is
    /// not disabled.
    ///
    /// # Errors
    /// /run cannot be written.
    pub fn relabel_later(&mut self) -> Result<()> {
        if !self.has_selinux() {
            return Ok(());
        }
        let lines = self.lines_with(&[]);
        if lines.is_empty() { Ok(()) } else { self.write(RELABEL, lines, Attr::root(0o644)) }
    }

    /// Keeps the list on the disk too, with what the next commit writes, if the root has SELinux. Called when
    /// [`Root::drop_unchanged`] has left changes to the disk.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn keep_unlabelled(&mut self) -> Result<()> {
        if !self.has_selinux() {
            return Ok(());
        }
        // What waits for its file system gets its labels from the running system.
        let is_new = |path: &str, node: &Node| {
            !matches!(node, Node::Absent) && !is_volatile(path) && !self.below_unmounted(path)
        };
        let new = self.nodes.iter().filter(|(path, node)| is_new(path, node)).map(|(path, _)| format!("/{path}"));
        // The boot's log and status come last.
        let new: Vec<String> = new.chain(UNSYNCED.map(|path| format!("/{path}"))).chain([unlabelled()]).collect();
        let lines = self.lines_with(&new);
        self.write(&unlabelled(), lines, Attr::root(0o600))
    }

    /// Whether an earlier boot may have left files without a label.
    pub fn has_unlabelled(&self) -> bool {
        self.exists(&unlabelled())
    }

    /// In the running system, which has labelled all: removes the list.
    ///
    /// # Errors
    /// As [`Root::remove`].
    pub fn forget_unlabelled(&mut self) -> Result<()> {
        self.remove(&unlabelled())
    }

    fn has_selinux(&self) -> bool {
        let selinux = self.text("/etc/selinux/config");
        let mode = selinux.lines().rev().find_map(|l| l.trim().strip_prefix("SELINUX=")).map(str::trim);
        mode.is_some_and(|m| m != "disabled")
    }

    /// The lines on the disk, and those for what was written and for `more`.
    fn lines_with(&self, more: &[String]) -> String {
        let line =
            |path: &String| format!("z \"{}\"\n", path.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"));
        let kept = self.text(&unlabelled());
        let mut lines: BTreeSet<String> = kept.split_inclusive('\n').map(str::to_owned).collect();
        lines.extend(self.done().iter().chain(more).filter(|path| is_on_disk(path)).map(line));
        lines.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn what_a_boot_wrote_that_was_cut_off_is_relabelled_by_the_next() {
        let dir = TempDir::new("relabel");
        dir.write("etc/selinux/config", "SELINUX=enforcing\n");
        let boot = || {
            let _ = std::fs::remove_dir_all(dir.0.join("run"));
            let mut root = Root::open_new(&dir.0);
            assert_eq!(root.recover(), []);
            root.write("/srv/new", "x", Attr::root(0o644)).unwrap();
            root.drop_unchanged();
            if root.has_changes_on_disk() {
                root.keep_unlabelled().unwrap();
            }
            assert_eq!(root.commit(), []);
            root.relabel_later().unwrap();
            root.text(RELABEL)
        };
        for _ in 0..2 {
            let lines = boot();
            assert!(lines.contains("z \"/srv/new\"\n") && lines.contains("z \"/srv\"\n"), "{lines}");
            assert!(lines.contains("/prepivot-unlabelled\"\n"), "{lines}");
        }
        let mut running = Root::open(&dir.0, crate::root::Use::Tree).unwrap();
        assert!(running.has_unlabelled());
        running.forget_unlabelled().unwrap();
        assert_eq!(running.commit(), []);
        assert_eq!(boot(), "");
    }
}
