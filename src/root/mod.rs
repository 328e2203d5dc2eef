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
mod folders;
mod inside;
pub mod installed;
mod intended;
mod journal;
mod journal_file;
pub mod kept_state;
mod large;
mod layout;
mod lock;
mod log_file;
mod mounts;
mod overlay;
pub mod owner;
mod pending;
mod points;
mod record;
mod recover;
pub mod relabel;
pub mod run_dir;
mod stage;
mod staged;
mod staging;
#[cfg(test)]
mod testing;
mod watch;
mod write;

pub use change::{Change, Over};
pub use command::{Command, Output, Programs};
pub use content::Content;
pub use device::{Steps, Write};
pub use disk::is_in_memory;
pub use intended::Time;
pub use layout::{CLOUD_INIT_LOG, STATE_FOLDERS, is_on_disk};
pub use lock::Lock;
pub use log_file::open_log;
pub use mounts::{Writable, check_writable, unescape};
pub use owner::{Ids, Owners};
pub use record::MAX_PATH;
pub use stage::Stage;
pub use watch::PathState;

use crate::base::error::{Context, Result};
use crate::machine::{Cmdline, Machine};
use command::Commands;
use disk::Disk;
use journal::Journal;
use overlay::Overlay;
use pending::Pending;
use relabel::Labels;
use std::path::Path;

/// The largest file that is read from the root, in bytes: a document of a seed, or the cached instance.
pub const MAX_READ: u64 = 64 << 20;
/// The largest file that is edited, or that a setting is looked up in. Edits hold a file several times; the largest real ones, such
/// as the hosts file of an ad blocker, have 2 MB.
pub const MAX_EDIT: u64 = 4 << 20;

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
pub enum FileKind {
    File,
    Dir,
    Symlink,
    /// A device, a socket or a FIFO: never read, never replaced in place.
    Other,
}

/// The type, mode, owner and size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    pub attr: Attr,
    /// In bytes; meaningful for regular files only.
    pub size: u64,
}

/// The root that is being provisioned: `/sysroot`, `/new_root`, `/root`, `/`, or a folder.
pub struct Root {
    overlay: Overlay,
    usage: Use,
    /// The kernel command line, if the root is this machine's.
    cmdline: Cmdline,
    /// The lock of the stage that runs.
    stage_lock: Option<Lock>,
    pending: Pending,
    journal: Journal,
    labels: Labels,
    commands: Commands,
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

    /// Opens the root at `path`, whose `/run` is that of the system at `own`.
    fn open_beside(path: &Path, usage: Use, own: Option<&Path>) -> Result<Root> {
        let disk = Disk::open(path, own).context(|| format!("failed to open the root {}", path.display()))?;
        let labels = Labels::new(usage == Use::Tree && relabel::has_policy(&disk));
        let mut root = Root {
            overlay: Overlay::new(disk),
            usage,
            cmdline: Cmdline::default(),
            stage_lock: None,
            pending: Pending::default(),
            journal: Journal::new(),
            labels,
            commands: Commands::new(),
        };
        if root.has_run() {
            root.cmdline = Machine::read(own.unwrap_or(path)).cmdline;
        }
        if usage == Use::NewRoot {
            points::find(&mut root);
        }
        Ok(root)
    }

    /// The stage that the root is in: at first the local one.
    pub fn current_stage(&self) -> Stage {
        self.commands.stage()
    }

    /// Begins a stage.
    pub fn enter(&mut self, stage: Stage) {
        self.commands.enter(stage);
    }

    /// Why the root cannot be provisioned yet, if so: it is incomplete, or the running system will not see
    /// what is written to it now.
    pub fn unfinished(&self) -> Option<String> {
        points::unfinished(self)
    }

    /// Whether /usr is a file system that is not mounted yet, so that its content cannot be seen.
    pub fn lacks_usr(&self) -> bool {
        self.overlay.mounts().lack("usr")
    }

    /// The kernel command line. Empty unless the root is this machine's.
    pub fn cmdline(&self) -> &Cmdline {
        &self.cmdline
    }

    /// Whether this is a plan, which writes nothing: `prepivot plan`.
    pub fn is_plan(&self) -> bool {
        self.usage == Use::Plan
    }

    /// Whether this is `/` of the running system, where commands can be run.
    pub fn is_live(&self) -> bool {
        self.overlay.disk().is_slash() && !self.is_plan()
    }

    /// Whether this is the new root of an initramfs, whose own `/` is in memory.
    pub fn is_initramfs(&self) -> bool {
        self.usage == Use::NewRoot && self.overlay.disk().is_in_initramfs()
    }

    /// Whether `/run` belongs to this boot: the root is the one being booted, not an image.
    pub fn has_run(&self) -> bool {
        self.usage == Use::NewRoot || self.is_live()
    }

    /// The path as it was opened.
    pub fn path(&self) -> &Path {
        self.overlay.disk().path()
    }

    /// The status of `path`, following links. None if it does not exist.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.overlay.stat(path)
    }

    /// The status of `path`, without following a link at its end.
    pub fn lstat(&self, path: &str) -> Option<Stat> {
        self.overlay.resolve_stat(path, false).ok()?.1
    }

    /// Whether something is at `path`, following links.
    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_some()
    }

    /// Whether `path` is a folder, following links.
    pub fn is_dir(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == FileKind::Dir)
    }

    /// Whether `path` is a folder that this run creates and that is not on the disk yet.
    pub fn is_new_dir(&self, path: &str) -> bool {
        self.overlay.is_new_dir(path)
    }

    /// Whether `path` is a regular file, following links.
    pub fn is_file(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == FileKind::File)
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
        self.overlay.read_at_most(path, limit)
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

    /// The target of a symbolic link.
    pub fn read_link(&self, path: &str) -> Option<String> {
        let resolved = self.overlay.resolve(path, false).ok()?;
        self.overlay.read_link_resolved(&resolved)
    }

    /// The names in a folder, sorted. Empty if there is no folder.
    pub fn list(&self, path: &str) -> Vec<String> {
        self.overlay.list(path)
    }

    /// Writes a file; if `path` is a symbolic link, its target. Missing parents are created 0755, owned by
    /// root ([`run_dir::DIR`]: 0700).
    ///
    /// # Errors
    /// A folder or a device is at `path`, or something that is not a folder above it.
    pub fn write(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        self.overlay.write_over(path, content.into(), attr, Over::Replace)
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
        self.overlay.write_over(path, content.into(), attr, over)
    }

    /// Notes that the new content of a file is the old one and something that another run would add again. On a full disk it is only
    /// written through the journal.
    pub fn note_appended(&mut self, path: &str) {
        self.overlay.note_appended(path);
    }

    /// Writes a file that keeps its mode and owner; `attr` is for a new one.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn rewrite(&mut self, path: &str, content: impl Into<Content>, attr: Attr) -> Result<()> {
        let attr = self.stat(path).map_or(attr, |s| s.attr);
        self.write(path, content, attr)
    }

    /// Edits the file at `path`. `change` gets the content, empty if there is no file, and returns the new
    /// one, or None to leave it as it is. The file keeps its mode, owner and extended attributes; `new` is
    /// for a file that is created. Returns whether the content changed.
    ///
    /// # Errors
    /// The file cannot be read, is larger than [`MAX_EDIT`] or not a regular file, or `change` fails. Then
    /// the file is unchanged.
    pub fn edit(
        &mut self,
        path: &str,
        new: Attr,
        change: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<bool> {
        self.overlay.edit(path, new, MAX_EDIT, change)
    }

    /// [`Root::edit`] for text. Bytes that are not UTF-8 appear as private-use characters, and are written
    /// back as they were.
    ///
    /// # Errors
    /// As [`Root::edit`].
    pub fn edit_text(
        &mut self,
        path: &str,
        new: Attr,
        change: impl FnOnce(&str) -> Result<Option<String>>,
    ) -> Result<bool> {
        self.edit(path, new, |bytes| overlay::edit_decoded(bytes, change))
    }

    /// Appends to the file at `path`, which keeps its mode, owner and extended attributes; `new` is for a
    /// file that is created.
    ///
    /// # Errors
    /// As [`Root::edit`]; or the file would become larger than [`MAX_READ`].
    pub fn append(&mut self, path: &str, content: &[u8], new: Attr) -> Result<()> {
        self.overlay.append(path, content, new)
    }

    /// Writes a file with more at its end, and with `attr`. What is added to what this run writes is not copied.
    ///
    /// # Errors
    /// As [`Root::append`], and [`Root::write`].
    pub fn extend(&mut self, path: &str, more: Content, attr: Attr) -> Result<()> {
        self.overlay.extend(path, more, attr)
    }

    /// Creates a folder with `attr`. An existing one keeps its mode and owner; [`Root::set_attr`] changes
    /// them. Missing parents are created 0755, owned by root.
    ///
    /// # Errors
    /// Something that is not a folder is at `path` or above it.
    pub fn mkdir(&mut self, path: &str, attr: Attr) -> Result<()> {
        self.overlay.mkdir(path, attr)
    }

    /// Creates the missing folders above `path` with `attr`, as [`Root::mkdir`] for each would.
    ///
    /// # Errors
    /// As [`Root::mkdir`].
    pub fn mkdir_above(&mut self, path: &str, attr: Attr) -> Result<()> {
        self.overlay.mkdir_above(path, attr)
    }

    /// Makes `path` a symbolic link to `target`, replacing a file or link.
    ///
    /// # Errors
    /// A folder or a device is at `path`, or something that is not a folder above it.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        self.overlay.symlink(path, target)
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
    /// The path cannot be resolved, or the folder has more than 100,000 entries.
    pub fn remove(&mut self, path: &str) -> Result<()> {
        self.overlay.remove(path)
    }

    /// Changes the mode and owner of `path`, following links.
    ///
    /// # Errors
    /// Nothing is there, or the path cannot be resolved.
    pub fn set_attr(&mut self, path: &str, attr: Attr) -> Result<()> {
        self.overlay.set_attr(path, attr)
    }

    /// Whether /etc is on a read-only file system.
    pub fn is_etc_read_only(&self) -> bool {
        self.overlay.disk().is_read_only("etc")
    }

    /// If /etc is on a read-only file system: moves the changes in `folder`, below /etc, to the same path
    /// below /run, for this boot.
    ///
    /// # Errors
    /// Something that is not a folder is in that folder's place in /run.
    pub fn divert_to_run(&mut self, folder: &str) -> Result<()> {
        match folder.strip_prefix("/etc/").filter(|_| self.has_run() && self.is_etc_read_only()) {
            Some(name) => self.overlay.divert(folder, name),
            None => Ok(()),
        }
    }

    /// Whether the folder of `path` is below a mount point that is not mounted yet.
    pub fn is_kept_for_later(&self, path: &str) -> bool {
        self.overlay.resolve(path, true).is_ok_and(|p| self.overlay.below_unmounted(&p))
    }

    /// Whether the running system creates or replaces `path`: it is in /tmp, /dev, /proc or /sys.
    pub fn is_of_running_system(&self, path: &str) -> bool {
        self.overlay.resolve(path, true).is_ok_and(|p| layout::is_of_running_system(&p))
    }

    /// Whether `path` is in /proc or /sys. The kernel takes writes there as requests, each at its commit.
    pub fn is_of_kernel(&self, path: &str) -> bool {
        self.overlay.resolve(path, true).is_ok_and(|p| layout::is_of_kernel(&p))
    }
}

#[cfg(test)]
mod tests;
