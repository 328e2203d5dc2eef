//! The only way to change the disk that is being provisioned.
//!
//! Every change is first made in memory, over what the disk has, and reads see it at once. [`Root::commit`]
//! then writes what differs, atomically and with one sync; `prepivot plan` prints it instead. Paths resolve
//! inside the root, including symbolic links: an absolute link in an image never leads to the system that
//! prepivot runs in.

mod change;
mod command;
mod commit;
mod content;
mod device;
mod disk;
mod edit;
mod folders;
mod intended;
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
mod stage;
mod staged;
mod staging;
mod swap;
mod watch;

pub use change::{Change, Over};
pub use command::{Command, Output, PROGRAM_FOLDERS, Programs};
pub use content::Content;
pub use device::{Steps, Write};
pub use disk::is_in_memory;
pub use layout::{CLOUD_INIT_LOG, STATE_FOLDERS, is_on_disk};
pub use lock::Lock;
pub use log_file::open_log;
pub use mounts::{Writable, check_writable, unescape};
pub use owner::{Ids, Owners};
pub use stage::Stage;
pub use watch::PathState;

use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use crate::machine::{Cmdline, Distro, Machine};
use disk::Disk;
use record::Entry;
use resolve::Resolved;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest file that is read from the root, in bytes: a document of a seed, or the cached instance.
pub const MAX_READ: u64 = 64 << 20;
/// The largest file that is edited, or that a setting is looked up in. Edits hold a file several times; the largest real ones, such
/// as the hosts file of an ad blocker, have 2 MB.
pub const MAX_EDIT: u64 = 4 << 20;
/// The most entries that removing one folder may touch.
const MAX_REMOVE: usize = 100_000;

/// What a change takes in memory, with the lists of a commit that it is in.
const CHANGE_COST: usize = 350;
const PATH_COPIES: usize = 4;

/// Mode and numeric owner of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attr {
    /// Permission bits, including set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Attr {
    /// `mode`, owned by root.
    pub const fn root(mode: u32) -> Self {
        Attr { mode, uid: 0, gid: 0 }
    }

    /// `mode`, owned by `ids`.
    pub const fn owned(mode: u32, ids: Ids) -> Self {
        Attr { mode, uid: ids.uid, gid: ids.gid }
    }
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    /// A device, a socket or a FIFO: never read, never replaced in place.
    Other,
}

/// The type, mode, owner and size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    pub attr: Attr,
    /// In bytes; meaningful for regular files only.
    pub size: u64,
}

/// The state of a path that is not on the disk yet. Keys of the map are resolved paths without a leading
/// slash.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
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
    Touched(Kind, Attr),
    Symlink(String),
}

/// The root that is being provisioned: `/sysroot`, `/new_root`, `/root`, `/`, or a folder.
pub struct Root {
    disk: Disk,
    usage: Use,
    stage: Stage,
    nodes: BTreeMap<String, Node>,
    /// What they cost of the stage's budget.
    held: usize,
    /// The kernel command line, if the root is this machine's.
    cmdline: Cmdline,
    /// All mount points of the real root, once found, until something may have changed them.
    points: Option<Vec<String>>,
    /// The mount points that are not mounted yet.
    unmounted: Vec<String>,
    /// Marks that were made without waiting for the disk.
    unsynced_marks: Vec<String>,
    /// Changes that wait for a file system to be mounted.
    waiting: Vec<Entry>,
    /// The folder that has, or is to have, the list of waiting changes.
    waiting_folder: Option<String>,
    waiting_changed: bool,
    /// Waiting changes that the next commit makes as they are.
    due: Vec<Entry>,
    /// The lock of the stage that runs.
    stage_lock: Option<Lock>,
    /// Resolved paths to which something is added that another run would add again.
    appended: BTreeSet<String>,
    /// Whether changes of an earlier run were looked for.
    recovered: bool,
    /// Paths that commits have written.
    done: Vec<String>,
    /// Whether what is created needs an SELinux label.
    sets_labels: bool,
    /// Created paths still without an SELinux label.
    unlabelled: Vec<String>,
    /// Whether that was reported.
    is_label_missing: bool,
    /// Whether a change failed that a later run may be able to make.
    unwritten: bool,
    /// Whether something written without a journal may not have reached the disk.
    unsettled: bool,
    commands: Vec<Command>,
    /// Replaces the root's programs in tests.
    programs: Option<Programs>,
    /// Commands for the end of the stage, each with its condition.
    at_end: Vec<(Option<Command>, Command)>,
    /// How many rounds of hashing the passwords of this run have taken: one limit for all modules.
    pub hash_rounds: u32,
    /// Paths that were used since [`Root::watch`]; None: not recorded.
    watched: RefCell<Option<BTreeSet<String>>>,
    /// Resolved paths that got changes since [`Root::trace_changes`]; None: not recorded.
    traced: Option<BTreeSet<String>>,
}

/// How a [`Root`] is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The new root, from the initramfs. `/run` is this system's own, and changes to file systems that are
    /// not mounted yet are kept for later.
    NewRoot,
    /// A folder, or `/` of the running system, with everything in it.
    Tree,
    /// Like `Tree`, but nothing is ever written or run.
    Plan,
}

impl Root {
    /// Opens the root at `path`.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(path: &Path, usage: Use) -> Result<Root> {
        let own = (usage == Use::NewRoot).then_some(Path::new("/"));
        Self::open_beside(path, usage, own)
    }

    /// [`Use::NewRoot`] for a test: its `/run` is below the root, and not the `/run` of the machine that tests.
    #[cfg(test)]
    pub fn open_new(path: &Path) -> Root {
        Self::open_beside(path, Use::NewRoot, Some(path)).unwrap()
    }

    /// Opens the root at `path`, whose `/run` is that of the system at `own`.
    fn open_beside(path: &Path, usage: Use, own: Option<&Path>) -> Result<Root> {
        let disk = Disk::open(path, own).context(|| format!("failed to open the root {}", path.display()))?;
        let mut root = Root {
            disk,
            usage,
            stage: Stage::Local,
            nodes: BTreeMap::new(),
            held: 0,
            cmdline: Cmdline::default(),
            points: None,
            unmounted: Vec::new(),
            unsynced_marks: Vec::new(),
            waiting: Vec::new(),
            waiting_folder: None,
            waiting_changed: false,
            due: Vec::new(),
            stage_lock: None,
            appended: BTreeSet::new(),
            recovered: false,
            done: Vec::new(),
            sets_labels: false,
            unlabelled: Vec::new(),
            is_label_missing: false,
            unwritten: false,
            unsettled: false,
            commands: Vec::new(),
            programs: None,
            at_end: Vec::new(),
            hash_rounds: 0,
            watched: RefCell::default(),
            traced: None,
        };
        if root.has_run() {
            root.cmdline = Machine::read(own.unwrap_or(path)).cmdline;
        }
        root.sets_labels = usage == Use::Tree && root.has_policy();
        if usage == Use::NewRoot {
            points::find(&mut root);
        }
        Ok(root)
    }

    /// The stage that the root is in: at first the local one.
    pub fn current_stage(&self) -> Stage {
        self.stage
    }

    /// Begins a stage.
    pub fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Why the root cannot be provisioned yet, if so: it is incomplete, or the running system will not see
    /// what is written to it now.
    pub fn unfinished(&self) -> Option<String> {
        points::unfinished(self)
    }

    /// Whether /usr is a file system that is not mounted yet, so that its content cannot be seen.
    pub fn lacks_usr(&self) -> bool {
        self.unmounted.iter().any(|point| point == "usr")
    }

    /// Whether the kernel is in FIPS mode, in which some kinds of keys must not be used.
    pub fn is_in_fips_mode(&self) -> bool {
        self.cmdline.value("fips") == Some("1") || self.text("/proc/sys/crypto/fips_enabled").trim() == "1"
    }

    /// Whether this is a plan, which writes nothing: `prepivot plan`.
    pub fn is_plan(&self) -> bool {
        self.usage == Use::Plan
    }

    /// Whether this is `/` of the running system, where commands can be run.
    pub fn is_live(&self) -> bool {
        self.disk.is_slash() && !self.is_plan()
    }

    /// Whether this is the new root of an initramfs, whose own `/` is in memory.
    pub fn is_initramfs(&self) -> bool {
        self.usage == Use::NewRoot && self.disk.is_in_initramfs()
    }

    /// Whether `/run` belongs to this boot: the root is the one being booted, not an image.
    pub fn has_run(&self) -> bool {
        self.usage == Use::NewRoot || self.is_live()
    }

    /// The path as it was opened.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    /// The status of `path`, following links. None if it does not exist.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.resolve_stat(path, true).ok()?.1
    }

    /// The status of `path`, without following a link at its end.
    pub fn lstat(&self, path: &str) -> Option<Stat> {
        self.resolve_stat(path, false).ok()?.1
    }

    /// Whether something is at `path`, following links.
    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_some()
    }

    /// Whether `path` is a folder, following links.
    pub fn is_dir(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == Kind::Dir)
    }

    /// Whether `path` is a folder that this run creates and that is not on the disk yet.
    pub fn is_new_dir(&self, path: &str) -> bool {
        self.resolve(path, true)
            .is_ok_and(|p| matches!(self.nodes.get(&p), Some(Node::Dir { .. })) && self.stat_disk(&p).is_none())
    }

    /// Whether `path` is a regular file, following links.
    pub fn is_file(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == Kind::File)
    }

    /// The bytes of a file. None if there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is larger than [`MAX_READ`].
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        self.read_at_most(path, MAX_READ)
    }

    /// [`Root::read`] for a file that is edited, or that settings are looked up in.
    ///
    /// # Errors
    /// It cannot be read, or is larger than [`MAX_EDIT`].
    pub fn read_small(&self, path: &str) -> Result<Option<Vec<u8>>> {
        self.read_at_most(path, MAX_EDIT)
    }

    /// [`Root::read`] for a file of at most `limit` bytes on the disk.
    ///
    /// # Errors
    /// It cannot be read, or is larger.
    pub fn read_at_most(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Resolved { path: resolved, on_disk: seen, .. } = self.follow(path, true)?;
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

    /// The text of a file; invalid UTF-8 is replaced. Empty where there is no file, or it cannot be read or is larger than
    /// [`MAX_EDIT`].
    pub fn text(&self, path: &str) -> String {
        self.text_at_most(path, MAX_EDIT)
    }

    /// [`Root::text`] of a file of at most `limit` bytes.
    pub fn text_at_most(&self, path: &str, limit: u64) -> String {
        let lossy = |e: std::string::FromUtf8Error| String::from_utf8_lossy(e.as_bytes()).into_owned();
        match self.read_at_most(path, limit) {
            Ok(bytes) => String::from_utf8(bytes.unwrap_or_default()).unwrap_or_else(lossy),
            Err(e) => {
                log::warn!("{e}");
                String::new()
            }
        }
    }

    /// The text of os-release(5): the administrator's file, or else the vendor's. Raspberry Pi OS of 64 bits has Debian's, and a
    /// file of its own beside it: its ID comes first then (cloud-init 26.2, util.py, `get_linux_distro`).
    pub fn os_release(&self) -> String {
        let own = self.text("/etc/os-release");
        let text = if own.is_empty() { self.text("/usr/lib/os-release") } else { own };
        if self.exists("/etc/rpi-issue") { format!("ID=raspberry-pi-os\n{text}") } else { text }
    }

    /// The distribution by [`Root::os_release`].
    pub fn distro(&self) -> Distro {
        Distro::of_os_release(&self.os_release())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: &str) -> Option<String> {
        let resolved = self.resolve(path, false).ok()?;
        self.read_link_resolved(&resolved)
    }

    /// The names in a folder, sorted. Empty if there is no folder.
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

    /// Writes a file; if `path` is a symbolic link, its target. Missing parents are created 0755, owned by
    /// root ([`run_dir::DIR`]: 0700).
    ///
    /// # Errors
    /// A folder or a device is at `path`, or something that is not a folder above it.
    pub fn write(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        self.write_over(path, content.into(), attr, Over::Replace)
    }

    /// Writes a file unless it exists, including on a file system that is not mounted yet.
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
        self.put(resolved, Node::File { content, attr, over })
    }

    /// Notes that the new content of a file is the old one and something that another run would add again. On a full disk it is only
    /// written through the journal.
    pub fn note_appended(&mut self, path: &str) {
        self.appended.extend(self.resolve(path, true));
    }

    /// Writes a file that keeps its mode and owner; `attr` is for a new one.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn rewrite(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        let attr = self.stat(path).map_or(attr, |s| s.attr);
        self.write(path, content, attr)
    }

    /// Creates a folder with `attr`. An existing one keeps its mode and owner; [`Root::set_attr`] changes
    /// them. Missing parents are created 0755, owned by root.
    ///
    /// # Errors
    /// Something that is not a folder is at `path` or above it.
    pub fn mkdir(&mut self, path: &str, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        match found.map(|s| s.kind) {
            Some(Kind::Dir) => Ok(()),
            Some(_) => Err(Error::new(format!("failed to make the folder {path}: there is a file of that name"))),
            None => {
                self.make_parents(&resolved, path)?;
                self.insert_dir(resolved, attr)
            }
        }
    }

    /// Creates the missing folders above `path` with `attr`, as [`Root::mkdir`] for each would.
    ///
    /// # Errors
    /// As [`Root::mkdir`].
    pub fn mkdir_above(&mut self, path: &str, attr: Attr) -> Result<()> {
        let Some((folder, _)) = path.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) else { return Ok(()) };
        let ends: Vec<usize> = path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0).collect();
        let (resolved, found) = self.resolve_to_change(folder, true)?;
        // With links, or with folders below mounts that exist only in part, each is looked at.
        if found.is_some_and(|s| s.kind == Kind::Dir) && self.unmounted.is_empty() {
            return Ok(());
        }
        if found.is_some() || !self.unmounted.is_empty() || Some(resolved.as_str()) != folder.strip_prefix('/') {
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

    /// Makes `path` a symbolic link to `target`, replacing a file or link.
    ///
    /// # Errors
    /// A folder or a device is at `path`, or something that is not a folder above it.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, false)?;
        if found.is_some_and(|s| s.kind == Kind::Dir) {
            return Err(Error::new(format!("failed to make the link {path}: it is a folder")));
        }
        self.make_parents(&resolved, path)?;
        self.put(resolved, Node::Symlink(target.to_owned()))
    }

    /// Removes the temporary file that a killed run left for `path`. For files that are written without the
    /// journal; writing `path` again does it too.
    ///
    /// # Errors
    /// As [`Root::remove`].
    pub fn remove_unfinished(&mut self, path: &str) -> Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.remove(&format!("{folder}/{}", disk::temporary_name(name)))
    }

    /// Removes a file, a link, or a folder and everything in it. A missing path is no error.
    ///
    /// # Errors
    /// The path cannot be resolved, or the folder has more than [`MAX_REMOVE`] entries.
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

    /// Changes the mode and owner of `path`, following links.
    ///
    /// # Errors
    /// Nothing is there, or the path cannot be resolved.
    pub fn set_attr(&mut self, path: &str, attr: Attr) -> Result<()> {
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

    /// Whether /etc is on a read-only file system.
    pub fn is_etc_read_only(&self) -> bool {
        self.disk.is_read_only("etc")
    }

    /// If /etc is on a read-only file system: moves the changes in `folder`, below /etc, to the same path
    /// below /run, for this boot.
    ///
    /// # Errors
    /// Something that is not a folder is in that folder's place in /run.
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
            self.trace(&path);
            self.trace(&to);
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to, node);
            }
        }
        Ok(())
    }

    /// Whether the folder of `path` is below a mount point that is not mounted yet.
    pub fn is_kept_for_later(&self, path: &str) -> bool {
        self.resolve(path, true).is_ok_and(|p| self.below_unmounted(&p))
    }

    /// Whether the running system creates or replaces `path`: it is in /tmp, /dev, /proc or /sys.
    pub fn is_of_running_system(&self, path: &str) -> bool {
        self.resolve(path, true).is_ok_and(|p| layout::is_of_running_system(&p))
    }

    /// Whether `path` is in /proc or /sys. The kernel takes writes there as requests, each at its commit.
    pub fn is_of_kernel(&self, path: &str) -> bool {
        self.resolve(path, true).is_ok_and(|p| layout::is_of_kernel(&p))
    }

    fn below_unmounted(&self, resolved: &str) -> bool {
        self.unmounted.iter().any(|m| layout::is_below(resolved, m))
    }

    fn make_parents(&mut self, resolved: &str, path: &str) -> Result<()> {
        let mut missing = Vec::new();
        // The nearest first: if a folder exists, so do those above it, unless a file system will be mounted
        // over it.
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
            self.insert_dir(parent.to_owned(), Attr::root(mode))?;
        }
        Ok(())
    }

    /// Creates a folder where no one sees anything, at a resolved path.
    fn insert_dir(&mut self, resolved: String, attr: Attr) -> Result<()> {
        // Programs write to the disk, too, and so does the recovery of an earlier run's changes; /run is everybody's.
        let is_alone = self.recovered && !self.runs_commands() && !layout::is_volatile(&resolved);
        // The image's part of a state that is kept elsewhere is below folders that are missing there.
        let is_split = self.disk.keeps_state && layout::is_shadowed(&resolved);
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

    fn read_link_resolved(&self, resolved: &str) -> Option<String> {
        match self.nodes.get(resolved) {
            Some(Node::Symlink(target)) => Some(target.clone()),
            Some(_) => None,
            None if self.hidden(resolved) => None,
            None => self.disk.read_link(resolved),
        }
    }

    /// Whether a file system that is not mounted yet will cover a path.
    fn is_unseen(&self, resolved: &str) -> bool {
        let below_mount = |m: &String| resolved.len() > m.len() && layout::is_below(resolved, m);
        self.unmounted.iter().any(below_mount) && !self.is_shadowed(resolved)
    }

    /// Whether a path is also used while its file system is not mounted. If the state is kept elsewhere, the
    /// folders above its usual place are not: some file systems are only mounted over an empty folder.
    fn is_shadowed(&self, resolved: &str) -> bool {
        layout::is_shadowed(resolved) && (!self.disk.keeps_state || layout::is_below(resolved, layout::STATE))
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

    fn lstat_resolved(&self, resolved: &str) -> Option<Stat> {
        self.lstat_over(resolved, || self.disk.stat(resolved))
    }

    /// The status of a path: by the change in memory if there is one, else by the disk.
    fn lstat_over(&self, resolved: &str, on_disk: impl FnOnce() -> Option<Stat>) -> Option<Stat> {
        let stat = |kind, attr, size| Some(Stat { kind, attr, size });
        match self.nodes.get(resolved) {
            Some(Node::Absent) => None,
            Some(Node::Dir { attr, .. }) => stat(Kind::Dir, *attr, 0),
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

/// What was planned, and will not be written, takes no memory any more.
impl Drop for Root {
    fn drop(&mut self) {
        self.release(usize::MAX);
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

#[cfg(test)]
mod tests;
