//! The only door to the disk that is being provisioned.
//!
//! Every change is made in memory first, on top of what the disk has, and reads see it at once. [`Root::commit`] then
//! writes what differs, atomically and with one sync; `prepivot plan` prints the same list instead. Paths resolve inside
//! the root, symbolic links included: an absolute link of an image never reaches the system that prepivot runs in.

mod change;
mod command;
mod commit;
mod content;
mod device;
mod disk;
mod edit;
mod journal;
mod layout;
mod lock;
mod log_file;
mod mounts;
mod owner;
mod points;
mod record;
mod recover;
mod relabel;
mod resolve;
pub mod run_dir;
mod swap;
mod watch;

pub use change::{Change, Over};
pub use command::{Command, Output, Programs, Stage};
pub use content::Content;
pub use device::{Steps, Write};
pub use disk::is_in_memory;
pub use layout::{STATE_FOLDERS, is_on_disk};
pub use lock::Lock;
pub use log_file::open_log;
pub use mounts::{Writable, check_writable, unescape};
pub use owner::Ids;
pub use watch::Mark;

use crate::base::error::{Context, Error, Result};
use crate::machine::{Cmdline, Machine};
use disk::Disk;
use record::Entry;
use resolve::Resolved;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest file that is read from the root, in bytes.
pub const MAX_READ: u64 = 64 << 20;
/// How many entries the removal of one folder may touch.
const MAX_REMOVE: usize = 100_000;

/// Mode and numeric owner of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attr {
    /// Permission bits, set-user-ID and the like included.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Attr {
    /// Owned by root, with `mode`.
    pub const fn root(mode: u32) -> Self {
        Attr { mode, uid: 0, gid: 0 }
    }

    /// Owned by `ids`, with `mode`.
    pub const fn owned(mode: u32, ids: Ids) -> Self {
        Attr { mode, uid: ids.uid, gid: ids.gid }
    }
}

/// The type of what is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    /// A device, a socket or a FIFO: never read, never replaced in place.
    Other,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    pub attr: Attr,
    /// Bytes, for a file.
    pub size: u64,
}

/// A change that is not on the disk yet. Keys of the map are resolved paths without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Absent,
    Dir(Attr),
    File {
        content: Content,
        attr: Attr,
        over: Over,
    },
    /// A file or folder of the disk whose mode or owner changes.
    Touched(Kind, Attr),
    Symlink(String),
}

/// The root that is being provisioned: `/sysroot`, `/new_root`, `/root`, `/`, or a folder.
pub struct Root {
    disk: Disk,
    usage: Use,
    nodes: BTreeMap<String, Node>,
    plan: bool,
    /// The kernel command line, where the root is this machine's.
    cmdline: Cmdline,
    /// Mount points of the real root that are not mounted yet.
    unmounted: Vec<String>,
    /// Changes that wait for a file system to be mounted.
    waiting: Vec<Entry>,
    /// The folder that has, or is to have, the list of them.
    waiting_folder: Option<String>,
    waiting_changed: bool,
    /// Changes of the list that the next commit makes as they are.
    due: Vec<Entry>,
    /// Whether the changes of an earlier run were looked for.
    recovered: bool,
    /// Paths that a commit wrote.
    done: Vec<String>,
    /// Whether a change that another run may make was not made.
    unwritten: bool,
    /// Whether something was written without a journal that may not have reached the disk.
    unsettled: bool,
    commands: Vec<Command>,
    /// Answers commands instead of the root's programs, in tests.
    programs: Option<Programs>,
    /// Commands for the end of the stage, each with its condition.
    at_end: Vec<(Option<Command>, Command)>,
    /// How many rounds the passwords were hashed in that this run has set: what bounds them is one for all modules.
    pub hash_rounds: u32,
    /// Paths that were looked at since [`Root::watch`].
    watched: RefCell<Option<BTreeSet<String>>>,
}

/// How a [`Root`] is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The new root, from the initramfs: `/run` is this system's own, and a file system that is not mounted yet is kept for later.
    NewRoot,
    /// A folder, or `/` of the running system: everything is below it.
    Tree,
    /// Like `Tree`, and nothing is ever written or run.
    Plan,
}

impl Root {
    /// Opens the root at `path`.
    pub fn open(path: &Path, usage: Use) -> Result<Root> {
        let disk = Disk::open(path, usage == Use::NewRoot)
            .context(|| format!("failed to open the root {}", path.display()))?;
        let mut root = Root {
            disk,
            usage,
            nodes: BTreeMap::new(),
            plan: usage == Use::Plan,
            cmdline: Cmdline::default(),
            unmounted: Vec::new(),
            waiting: Vec::new(),
            waiting_folder: None,
            waiting_changed: false,
            due: Vec::new(),
            recovered: false,
            done: Vec::new(),
            unwritten: false,
            unsettled: false,
            commands: Vec::new(),
            programs: None,
            at_end: Vec::new(),
            hash_rounds: 0,
            watched: RefCell::default(),
        };
        if root.has_run() {
            root.cmdline = Machine::read(Path::new("/")).cmdline;
        }
        if usage == Use::NewRoot {
            points::find(&mut root);
        }
        Ok(root)
    }

    /// Why the running system will not see what is written to this root now, or why the root is not whole yet. None where
    /// neither is so: the root can be provisioned.
    pub fn unfinished(&self) -> Option<String> {
        points::unfinished(self)
    }

    /// Whether nothing is written: `prepivot plan`.
    pub fn is_plan(&self) -> bool {
        self.plan
    }

    /// Whether this is `/` of the running system, where commands can run.
    pub fn is_live(&self) -> bool {
        self.disk.is_slash() && !self.plan
    }

    /// Whether this is the new root of an initramfs, whose own `/` is in memory.
    pub fn is_initramfs(&self) -> bool {
        self.usage == Use::NewRoot && self.disk.is_in_initramfs()
    }

    /// Whether its /run is the running system's: the root of this boot, and no image.
    pub fn has_run(&self) -> bool {
        self.usage == Use::NewRoot || self.is_live()
    }

    /// Where the root is, as it was opened.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    /// What is at `path`, links followed. None where there is nothing.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.resolve_stat(path, true).ok()?.1
    }

    /// What is at `path` itself, a symbolic link included.
    pub fn lstat(&self, path: &str) -> Option<Stat> {
        self.resolve_stat(path, false).ok()?.1
    }

    /// Whether there is something at `path`, links followed.
    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_some()
    }

    /// Whether `path` is a folder, links followed.
    pub fn is_dir(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == Kind::Dir)
    }

    /// Whether `path` is a folder that was made here and is not on the disk yet.
    pub fn is_new_dir(&self, path: &str) -> bool {
        self.resolve(path, true)
            .is_ok_and(|p| matches!(self.nodes.get(&p), Some(Node::Dir(_))) && self.disk.stat(&p).is_none())
    }

    /// Whether `path` is a regular file, links followed.
    pub fn is_file(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == Kind::File)
    }

    /// A file's bytes. None where there is no file; an error where it cannot be read or passes [`MAX_READ`].
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let Resolved { path: resolved, on_disk: seen, .. } = self.follow(path, true)?;
        let on_disk = || self.disk.read(&resolved, seen).context(|| format!("failed to read {path}"));
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

    /// A file's text; bytes that are not UTF-8 are replaced. Empty where there is no file or it cannot be read.
    pub fn text(&self, path: &str) -> String {
        match self.read(path) {
            Ok(bytes) => bytes.map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default(),
            Err(e) => {
                log::warn!("{e}");
                String::new()
            }
        }
    }

    /// A symbolic link's target.
    pub fn read_link(&self, path: &str) -> Option<String> {
        let resolved = self.resolve(path, false).ok()?;
        self.read_link_resolved(&resolved)
    }

    /// Names in a folder, sorted. Empty where there is none.
    pub fn list(&self, path: &str) -> Vec<String> {
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

    /// Writes a file, through a symbolic link if `path` is one. Missing parents are made 0755, owned by root ([`run_dir::DIR`]: 0700).
    ///
    /// # Errors
    /// A folder or a device is at `path`, or something else than a folder above it.
    pub fn write(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        self.write_over(path, content.into(), attr, Over::Replace)
    }

    /// Writes a file unless there is one. A file on a file system that is not mounted yet stays as it is, too.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn write_new(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        if self.exists(path) {
            return Ok(());
        }
        let over = if self.is_kept_for_later(path) { Over::Keep } else { Over::Replace };
        self.write_over(path, content.into(), attr, over)
    }

    fn write_over(&mut self, path: &str, content: Content, attr: Attr, over: Over) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        match found.map(|s| s.kind) {
            Some(Kind::Dir) => return Err(Error::new(format!("failed to write {path}: it is a folder"))),
            Some(Kind::Other) => return Err(Error::new(format!("failed to write {path}: it is not a regular file"))),
            _ => {}
        }
        self.make_parents(&resolved, path)?;
        self.nodes.insert(resolved, Node::File { content, attr, over });
        Ok(())
    }

    /// Writes a file that keeps the mode and owner it has; `attr` is for a new one.
    pub fn rewrite(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        let attr = self.stat(path).map_or(attr, |s| s.attr);
        self.write(path, content, attr)
    }

    /// Makes a folder with `attr`. A folder that is there keeps its mode and owner: [`Root::set_attr`] changes them. Missing
    /// parents are made 0755, owned by root.
    ///
    /// # Errors
    /// Something else than a folder is at `path` or above it.
    pub fn mkdir(&mut self, path: &str, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        match found.map(|s| s.kind) {
            Some(Kind::Dir) => Ok(()),
            Some(_) => Err(Error::new(format!("failed to make the folder {path}: there is a file of that name"))),
            None => {
                self.make_parents(&resolved, path)?;
                self.nodes.insert(resolved, Node::Dir(attr));
                Ok(())
            }
        }
    }

    /// Makes `path` a symbolic link to `target`, in the place of a file or link that is there.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, false)?;
        if found.is_some_and(|s| s.kind == Kind::Dir) {
            return Err(Error::new(format!("failed to make the link {path}: it is a folder")));
        }
        self.make_parents(&resolved, path)?;
        self.nodes.insert(resolved, Node::Symlink(target.to_owned()));
        Ok(())
    }

    /// Removes what a killed run left of a file that it was to put at `path`. For files that are not in the journal; a write to
    /// `path` does it by itself.
    ///
    /// # Errors
    /// As [`Root::remove`].
    pub fn remove_unfinished(&mut self, path: &str) -> Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.remove(&format!("{folder}/{}", disk::temporary_name(name)))
    }

    /// Removes a file, a link, or a folder with all that is in it. Nothing there is no error.
    pub fn remove(&mut self, path: &str) -> Result<()> {
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
            if self.lstat_resolved(&path).is_some_and(|s| s.kind == Kind::Dir) {
                found.extend(self.list(&path).into_iter().map(|name| format!("{path}/{name}")));
            }
        }
        self.nodes.extend(found.into_iter().map(|path| (path, Node::Absent)));
        Ok(())
    }

    /// Changes mode and owner of what is at `path`, links followed.
    pub fn set_attr(&mut self, path: &str, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        let Some(stat) = found else {
            return Err(Error::new(format!("failed to change the owner or mode of {path}: there is no such file")));
        };
        match self.nodes.get_mut(&resolved) {
            Some(Node::File { attr: old, .. } | Node::Dir(old) | Node::Touched(_, old)) => *old = attr,
            _ => drop(self.nodes.insert(resolved, Node::Touched(stat.kind, attr))),
        }
        Ok(())
    }

    /// Whether /etc is on a file system that is read-only.
    pub fn is_etc_read_only(&self) -> bool {
        self.disk.is_read_only("etc")
    }

    /// Where /etc is on a file system that is read-only: moves what is to be written in `folder`, which is below /etc, to the
    /// same path below /run, for one boot.
    ///
    /// # Errors
    /// Something else than a folder is where that folder is to be.
    pub fn divert_to_run(&mut self, folder: &str) -> Result<()> {
        let Some(name) = folder.strip_prefix("/etc/").filter(|_| self.has_run() && self.is_etc_read_only()) else {
            return Ok(());
        };
        let from = self.resolve(folder, true)?;
        let inside = |path: &str| path.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/'));
        let is_new = |node: &Node| matches!(node, Node::File { .. } | Node::Symlink(_));
        let new = self.nodes.iter().filter(|(path, node)| inside(path) && is_new(node));
        for path in new.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            let to = format!("run/{name}{}", &path[from.len()..]);
            self.make_parents(&to, &to)?;
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to, node);
            }
        }
        Ok(())
    }

    /// The folder in which `path` lies is below a mount point that is not mounted yet.
    pub fn is_kept_for_later(&self, path: &str) -> bool {
        self.resolve(path, true).is_ok_and(|p| self.below_unmounted(&p))
    }

    fn below_unmounted(&self, resolved: &str) -> bool {
        self.unmounted.iter().any(|m| layout::is_below(resolved, m))
    }

    fn make_parents(&mut self, resolved: &str, path: &str) -> Result<()> {
        let mut missing = Vec::new();
        // The nearest comes first: what is above a folder is there too, unless a file system is to be mounted over it.
        for (slash, _) in resolved.rmatch_indices('/') {
            let parent = &resolved[..slash];
            match self.lstat_resolved(parent).map(|s| s.kind) {
                Some(Kind::Dir) if self.unmounted.is_empty() => break,
                Some(Kind::Dir) => {}
                None => missing.push(parent),
                Some(_) => return Err(Error::new(format!("failed to write {path}: /{parent} is not a folder"))),
            }
        }
        for parent in missing {
            let mode = if run_dir::DIR.strip_prefix('/') == Some(parent) { 0o700 } else { 0o755 };
            self.nodes.insert(parent.to_owned(), Node::Dir(Attr::root(mode)));
        }
        Ok(())
    }

    fn read_link_resolved(&self, resolved: &str) -> Option<String> {
        match self.nodes.get(resolved) {
            Some(Node::Symlink(target)) => Some(target.clone()),
            Some(_) => None,
            None if self.hidden(resolved) => None,
            None => self.disk.read_link(resolved),
        }
    }

    /// Whether a file system that is not mounted yet will be over what the disk has at a path.
    fn is_unseen(&self, resolved: &str) -> bool {
        let below_mount = |m: &String| resolved.len() > m.len() && layout::is_below(resolved, m);
        self.unmounted.iter().any(below_mount) && !self.is_shadowed(resolved)
    }

    /// Whether a path is used also while its file system is not mounted. Of a state that is kept elsewhere the folders above
    /// it are not: a file system may be mounted only over an empty folder.
    fn is_shadowed(&self, resolved: &str) -> bool {
        layout::is_shadowed(resolved) && (!self.disk.keeps_state || layout::is_below(resolved, layout::STATE))
    }

    /// Whether what the disk has at a path is hidden: a parent is removed in memory, or a file system that is not
    /// mounted yet will be over it.
    fn hidden(&self, resolved: &str) -> bool {
        if self.is_unseen(resolved) {
            return true;
        }
        let mut parents = resolved.match_indices('/').map(|(i, _)| &resolved[..i]);
        let gone = |node: &Node| matches!(node, Node::Absent | Node::Symlink(_) | Node::File { .. });
        !self.nodes.is_empty() && parents.any(|p| self.nodes.get(p).is_some_and(gone))
    }

    fn lstat_resolved(&self, resolved: &str) -> Option<Stat> {
        self.lstat_over(resolved, || self.disk.stat(resolved))
    }

    /// What is at a path, over what the disk has there.
    fn lstat_over(&self, resolved: &str, on_disk: impl FnOnce() -> Option<Stat>) -> Option<Stat> {
        let stat = |kind, attr, size| Some(Stat { kind, attr, size });
        match self.nodes.get(resolved) {
            Some(Node::Absent) => None,
            Some(Node::Dir(attr)) => stat(Kind::Dir, *attr, 0),
            Some(Node::File { content, attr, over }) => {
                let before = if *over == Over::Append { on_disk().map_or(0, |s| s.size) } else { 0 };
                stat(Kind::File, *attr, before + content.len())
            }
            Some(Node::Symlink(target)) => stat(Kind::Symlink, Attr::root(0o777), target.len() as u64),
            Some(Node::Touched(kind, attr)) => stat(*kind, *attr, on_disk().map_or(0, |s| s.size)),
            None if self.hidden(resolved) => None,
            None => on_disk(),
        }
    }
}

#[cfg(test)]
mod tests;
