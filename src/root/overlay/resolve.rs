//! Resolves paths in the root, following symbolic links without leaving it.

use super::{Node, Overlay};
use crate::base::MAX_LINKS;
use crate::base::error::{Error, Result};
use crate::root::disk::Seen;
use crate::root::layout::folder_of;
use crate::root::record::MAX_PATH;
use crate::root::{FileKind, Stat};

/// The most components of a path: each is looked up for every change below it.
const MAX_COMPONENTS: usize = 128;

/// Where a path leads.
pub(super) struct Resolved {
    /// Without links, dots and a leading slash.
    pub(super) path: String,
    /// Users other than root who may have created a link in the path: the user and the link.
    planters: Vec<(u32, String)>,
    /// The status on the disk.
    pub(super) seen: Seen,
}

impl Overlay {
    /// The path without links, dots and a leading slash. The last component need not exist; without `follow`
    /// it may be a link.
    ///
    /// # Errors
    /// Too many links, a NUL byte, or a path that is too long for the kernel, and for the journal.
    pub(in crate::root) fn resolve(&self, path: &str, follow: bool) -> Result<String> {
        self.follow(path, follow).map(|r| r.path)
    }

    /// [`Overlay::resolve_stat`] for a change. A link that a user other than root may have created is followed only to
    /// files of that user: otherwise a user could reach any file of the system by a link in their home.
    ///
    /// # Errors
    /// As [`Overlay::resolve`]; or such a link leads to a file of another owner, or into a folder of another
    /// owner.
    pub(in crate::root) fn resolve_to_change(&self, path: &str, follow: bool) -> Result<(String, Option<Stat>)> {
        let resolved = self.follow(path, follow)?;
        let found = self.stat_of(&resolved);
        let Resolved { path: resolved, planters, .. } = resolved;
        if planters.is_empty() {
            return Ok((resolved, found));
        }
        // Missing folders will be created in the nearest folder that exists.
        let mut at = resolved.as_str();
        let mut stat = found;
        while stat.is_none() && !at.is_empty() {
            at = folder_of(at);
            stat = self.lstat_resolved(at);
        }
        let owner = stat.map_or(0, |s| s.attr.uid);
        match planters.into_iter().find(|(uid, _)| *uid != owner) {
            Some((uid, link)) => Err(Error::new(format!(
                "failed to change {path}: /{link} is a symbolic link of the user {uid} to something of the user {owner}, \
                 and is not followed: remove the link"
            ))),
            None => Ok((resolved, found)),
        }
    }

    /// The path as [`Overlay::resolve`] returns it, and its status.
    pub(in crate::root) fn resolve_stat(&self, path: &str, follow: bool) -> Result<(String, Option<Stat>)> {
        let resolved = self.follow(path, follow)?;
        let stat = self.stat_of(&resolved);
        Ok((resolved.path, stat))
    }

    /// The status of a resolved path.
    fn stat_of(&self, Resolved { path, seen, .. }: &Resolved) -> Option<Stat> {
        self.lstat_over(path, || seen.or_ask(|| self.disk.stat(path)))
    }

    /// The path and its status on the disk, by one system call. None if a component may be a link.
    fn without_links(&self, path: &str, follow: bool) -> Option<Resolved> {
        let path = path.trim_start_matches('/');
        if path.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return None;
        }
        let ends = path.match_indices('/').map(|(i, _)| i).chain(follow.then_some(path.len()));
        let mut parts = ends.filter_map(|end| path.get(..end));
        if !self.nodes.is_empty() && parts.any(|part| matches!(self.nodes.get(part), Some(Node::Symlink(_)))) {
            return None;
        }
        let seen = if self.is_in_new_dir(path) { Seen::Missing } else { self.disk.stat_plain(path) };
        match seen {
            Seen::Unknown => None,
            Seen::Found(stat) if follow && stat.kind == FileKind::Symlink => None,
            _ => Some(Resolved { path: path.to_owned(), planters: Vec::new(), seen }),
        }
    }

    pub(super) fn follow(&self, path: &str, follow: bool) -> Result<Resolved> {
        self.note(path, false);
        let fail = |why: &str| Error::new(format!("failed to resolve {path} in the root: {why}"));
        if path.contains('\0') {
            return Err(fail("it holds a NUL byte"));
        }
        let too_long = || fail(&format!("it is longer than {MAX_PATH} bytes"));
        if path.len() >= MAX_PATH {
            return Err(too_long());
        }
        if path.split('/').filter(|name| !name.is_empty()).count() > MAX_COMPONENTS {
            return Err(fail(&format!("it leads through more than {MAX_COMPONENTS} folders")));
        }
        if let Some(resolved) = self.without_links(path, follow) {
            return Ok(resolved);
        }
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done = String::new();
        let mut planters = Vec::new();
        let mut links = 0;
        while let Some(name) = left.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    done.truncate(done.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let parent = done.len();
            if parent > 0 {
                done.push('/');
            }
            done.push_str(&name);
            if left.iter().all(String::is_empty) && !follow {
                continue;
            }
            if let Some(target) = self.read_link_resolved(&done) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(fail("too many symbolic links"));
                }
                // In a folder that many can write to, such as /tmp, the link's owner decides.
                let owners = [done.get(..parent).unwrap_or_default(), &done].map(|p| self.lstat_resolved(p));
                let uids = owners.into_iter().flatten().map(|s| s.attr.uid).filter(|uid| *uid != 0);
                planters.extend(uids.map(|uid| (uid, done.clone())));
                done.truncate(if target.starts_with('/') { 0 } else { parent });
                left.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        if done.len() >= MAX_PATH - 1 {
            return Err(too_long());
        }
        Ok(Resolved { path: done, planters, seen: Seen::Unknown })
    }
}

#[cfg(test)]
mod tests {
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Use};
    use std::os::unix::fs::{chown, lchown, symlink};

    #[test]
    fn a_path_of_very_many_folders_is_refused() {
        let dir = TempDir::new("deep");
        let mut root = dir.root(Use::Tree);
        assert!(root.write(&"/a".repeat(super::MAX_COMPONENTS), "x", Attr::root(0o644)).is_ok());
        let error = root.write(&"/b".repeat(1000), "x", Attr::root(0o644)).unwrap_err().to_string();
        assert!(error.ends_with("it leads through more than 128 folders"), "{error}");
    }

    #[test]
    fn refuses_a_path_the_journal_cannot_hold() {
        let dir = TempDir::new("long");
        symlink("b".repeat(200), dir.0.join("a")).unwrap();
        let mut root = dir.root(Use::Tree);
        for path in [format!("/etc/{}", "x".repeat(5000)), format!("/a/{}", "x".repeat(4000))] {
            let error = root.write(&path, "x", Attr::root(0o644)).unwrap_err().to_string();
            assert!(error.ends_with("it is longer than 4096 bytes"), "{error}");
        }
        assert!(root.write(&format!("/etc/{}", "x".repeat(4000)), "x", Attr::root(0o644)).is_ok());
    }

    #[test]
    fn follows_links_in_memory_and_above_run() {
        let dir = TempDir::new("resolve-links");
        std::fs::create_dir_all(dir.0.join("etc/real")).unwrap();
        symlink("var/run", dir.0.join("run")).unwrap();
        symlink("real", dir.0.join("etc/link")).unwrap();
        let mut root = dir.root(Use::NewRoot);
        root.symlink("/etc/new", "/etc/link").unwrap();
        for (path, to, itself) in [
            ("/etc/real/x", "etc/real/x", "etc/real/x"),
            ("//etc/./real/../link", "etc/real", "etc/link"),
            ("/etc/link/x/y", "etc/real/x/y", "etc/real/x/y"),
            ("/etc/new", "etc/real", "etc/new"),
            ("/etc/new/x", "etc/real/x", "etc/real/x"),
            ("/etc/missing/x", "etc/missing/x", "etc/missing/x"),
            ("/run/x", "var/run/x", "var/run/x"),
        ] {
            let resolved = [true, false].map(|follow| root.overlay.resolve(path, follow).unwrap());
            assert_eq!(resolved, [to, itself], "{path}");
        }
    }

    #[test]
    fn users_link_leads_only_to_their_files() {
        if !rustix::process::geteuid().is_root() {
            crate::base::testing::skip("files are given to other users, which needs root");
            return;
        }
        let dir = TempDir::new("planted");
        let path = |p: &str| dir.0.join(p);
        for folder in ["etc", "home/u/real", "home/other", "tmp"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        std::fs::write(path("etc/shadow"), "secret").unwrap();
        for (folder, uid) in [("home/u", 1000), ("home/u/real", 1000), ("home/other", 1001)] {
            chown(path(folder), Some(uid), Some(uid)).unwrap();
        }
        for (link, target) in [
            ("home/u/file", "/etc/shadow"),
            ("home/u/folder", "/etc"),
            ("home/u/other", "../other"),
            ("home/u/own", "real"),
            ("home/roots", "u"),
            ("tmp/planted", "/etc/shadow"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        lchown(path("tmp/planted"), Some(1000), Some(1000)).unwrap();
        // A command of root's made it, but in the user's folder: the user could have made it.
        let mut root = dir.root(Use::Tree);
        let user = Attr { mode: 0o644, uid: 1000, gid: 1000 };
        for bad in ["/home/u/file", "/home/u/folder/new", "/home/u/folder/a/b", "/home/u/other/x", "/tmp/planted"] {
            let error = root.write(bad, "x", user).unwrap_err().to_string();
            assert!(error.contains("symbolic link of the user 1000"), "{error}");
            assert!(root.append(bad, b"x", user).is_err() && root.mkdir(bad, user).is_err(), "{bad}");
            assert!(root.edit(bad, user, |_| Ok(Some(Vec::new()))).is_err(), "{bad}");
        }
        assert!(root.set_attr("/home/u/file", user).is_err());
        assert!(root.remove("/home/u/folder/shadow").is_err());
        assert!(root.symlink("/home/u/folder/x", "y").is_err());
        assert_eq!(root.changes(), []);
        for good in ["/home/u/own/x", "/home/roots/x", "/home/roots/own/y"] {
            root.write(good, "x", user).unwrap();
        }
        root.remove("/home/u/file").unwrap();
        assert_eq!(root.commit(), []);
        assert_eq!(std::fs::read_to_string(path("etc/shadow")).unwrap(), "secret");
        assert!(path("home/u/real/y").exists() && !path("home/u/file").is_symlink());
    }
}
