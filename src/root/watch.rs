//! Records which paths a piece of work depends on, and tells whether they have changed since; and which paths it changes.

use super::{Change, FileKind, Root};

/// The state of a path. It has not changed between two equal values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// The path that it resolved to.
    resolved: String,
    /// Mode, owner and group; for files also inode, size and the time of the last change.
    version: Option<[u64; 7]>,
    /// The names in the folder, if the list was read.
    names: Vec<String>,
}

impl Root {
    /// Begins to record the paths that are read, examined or changed.
    pub fn watch(&mut self) {
        self.overlay.watch();
    }

    /// Stops recording, and returns the paths. A folder whose names were listed ends with a slash.
    pub fn take_watched(&mut self) -> Vec<String> {
        self.overlay.take_watched().into_iter().collect()
    }

    /// Begins to record which paths get changes.
    pub fn trace_changes(&mut self) {
        self.overlay.trace_changes();
    }

    /// The paths that got changes since this was last called, or since [`Root::trace_changes`], each with what is to be changed
    /// there by now.
    pub fn take_traced(&mut self) -> Vec<(String, Vec<Change>)> {
        self.overlay.take_traced()
    }
}

impl PathState {
    /// The state of a path that was recorded, on the disk.
    pub fn of(root: &Root, path: &str) -> PathState {
        let resolved = root.overlay.resolve(path, true).unwrap_or_default();
        let mut version = root.overlay.disk().version(&resolved);
        let is_dir = root.overlay.disk().stat(&resolved).is_some_and(|s| s.kind == FileKind::Dir);
        if let (Some([.., inode, size, seconds, nanoseconds]), true) = (&mut version, is_dir) {
            // A folder's times change with every file in it.
            (*inode, *size, *seconds, *nanoseconds) = (0, 0, 0, 0);
        }
        let names = if path.ends_with('/') { root.list(path) } else { Vec::new() };
        PathState { resolved, version, names }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::testing::TempDir;
    use crate::root::{Attr, PathState, Root, Use};

    #[test]
    fn traces_only_paths_changed_since_last_look() {
        let dir = TempDir::new("trace");
        dir.write("etc/a", "1");
        let mut root = dir.root(Use::Plan);
        root.write("/etc/before", "x", Attr::root(0o644)).unwrap();
        root.trace_changes();
        let looked = |root: &mut Root| {
            let traced = root.take_traced().into_iter();
            traced.map(|(path, changes)| format!("{path} {}", changes.len())).collect::<Vec<_>>()
        };
        root.write("/etc/a", "1", Attr::root(0o644)).unwrap();
        root.write("/new/b", "x", Attr::root(0o644)).unwrap();
        assert_eq!(looked(&mut root), ["/etc/a 0", "/new 1", "/new/b 1"]);
        assert_eq!(looked(&mut root), [""; 0]);
        root.set_attr("/new/b", Attr::root(0o600)).unwrap();
        root.extend("/etc/before", b"y".to_vec().into(), Attr::root(0o644)).unwrap();
        root.append("/etc/c", b"y", Attr::root(0o644)).unwrap();
        root.remove("/etc/a").unwrap();
        assert_eq!(looked(&mut root), ["/etc/a 1", "/etc/before 1", "/etc/c 1", "/new/b 1"]);
    }

    #[test]
    fn notes_reads_and_writes_and_sees_changes() {
        let dir = TempDir::new("watch");
        let path = |p: &str| dir.0.join(p);
        std::fs::create_dir_all(path("etc/d")).unwrap();
        std::fs::write(path("etc/a"), "1").unwrap();
        std::fs::write(path("etc/b"), "1").unwrap();
        std::os::unix::fs::symlink("a", path("etc/link")).unwrap();
        let mut root = dir.root(Use::Tree);
        root.text("/etc/b");
        root.watch();
        root.text("/etc/link");
        root.list("/etc/d");
        root.is_dir("/etc");
        root.exists("/etc/none");
        root.text("/var/lib/cloud/data/instance-id");
        root.write("/etc/new", "x", Attr::root(0o644)).unwrap();
        let noted = root.take_watched();
        assert_eq!(noted, ["/etc", "/etc/d", "/etc/d/", "/etc/link", "/etc/new", "/etc/none"]);
        assert_eq!(root.take_watched(), [""; 0]);
        root.commit();

        let marks = |root: &Root| noted.iter().map(|p| PathState::of(root, p)).collect::<Vec<_>>();
        let mut before = marks(&root);
        let mut changed = |root: &Root| {
            let now = marks(root);
            let changed: Vec<String> = noted
                .iter()
                .zip(before.iter().zip(&now))
                .filter(|(_, (a, b))| a != b)
                .map(|(p, _)| p.clone())
                .collect();
            before = now;
            changed
        };
        std::fs::write(path("etc/b"), "another").unwrap();
        std::fs::write(path("etc/unrelated"), "x").unwrap();
        assert_eq!(changed(&root), [""; 0]);
        std::fs::write(path("etc/a"), "another").unwrap();
        assert_eq!(changed(&root), ["/etc/link"]);
        std::fs::remove_file(path("etc/link")).unwrap();
        std::os::unix::fs::symlink("b", path("etc/link")).unwrap();
        std::fs::write(path("etc/d/x"), "").unwrap();
        assert_eq!(changed(&root), ["/etc/d/", "/etc/link"]);
        std::fs::write(path("etc/none"), "").unwrap();
        std::fs::remove_file(path("etc/new")).unwrap();
        assert_eq!(changed(&root), ["/etc/new", "/etc/none"]);
    }
}
