//! The disk below a root: reads, and single changes. Paths here are already resolved, so no component may be
//! a symbolic link: if one appears in between, the call fails instead of leaving the root.

use super::layout::{KEPT_STATE, STATE, folder_of, is_below, is_of_kernel, is_semaphore};
use super::record::Entry;
use super::staged::Staged;
use super::{Attr, Change, Content, FileKind, Over, Stat};
use crate::base::digest;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, StatVfsMountFlags, StatxAttributes,
    StatxFlags, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) struct Disk {
    path: PathBuf,
    base: OwnedFd,
    /// This system's own `/`, for `/run`, which stays the same across the pivot.
    own: Option<OwnedFd>,
    /// Whether `run` in the root is a symbolic link.
    links_run: bool,
    /// Whether [`STATE`] is kept in [`KEPT_STATE`].
    keeps_state: bool,
}

/// What is known of the status of a path on the disk.
#[derive(Clone, Copy)]
pub(super) enum Seen {
    /// It was not looked at, or a link may be in the path.
    Unknown,
    Missing,
    Found(Stat),
}

impl Seen {
    /// The status of a path that was looked at.
    pub(super) fn of(stat: Option<Stat>) -> Seen {
        stat.map_or(Seen::Missing, Seen::Found)
    }

    /// The status; asks `disk` for it if it is not known.
    pub(super) fn or_ask(self, disk: impl FnOnce() -> Option<Stat>) -> Option<Stat> {
        match self {
            Seen::Unknown => disk(),
            Seen::Missing => None,
            Seen::Found(stat) => Some(stat),
        }
    }
}

/// A file that is to be written, and its open folder.
pub(super) struct Target<'p> {
    path: &'p str,
    parent: Rc<OwnedFd>,
    name: &'p str,
}

/// The folder of the last file that was written, and its path: files come folder by folder.
#[derive(Default)]
pub(super) struct LastFolder(Option<(String, Rc<OwnedFd>)>);

/// The largest value of an extended attribute, and the largest list of their names, in bytes (xattr(7)).
const MAX_XATTR: usize = 64 << 10;
/// Extended attributes that belong to a file's content, and do not fit another content.
const OF_CONTENT: [&CStr; 3] = [c"security.capability", c"security.ima", c"security.evm"];

/// Types of file systems (statfs(2)).
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const OVERLAY: u32 = 0x794c_7630;
const BTRFS: u32 = 0x9123_683e;
/// How many bytes of generated content are written at a time.
const BUFFER: usize = 64 << 10;
/// The blocks and inodes that are to stay free: folders grow, and file systems have blocks of their own for large files.
const MARGIN: u64 = 16;
/// The bytes that are to stay free on btrfs, which writes a copy of its own trees for each change, and keeps a reserve that it
/// counts as free for some.
const BTRFS_MARGIN: u64 = 4 << 20;

type Io<T> = std::result::Result<T, Errno>;

impl Disk {
    /// Opens the root at `path`; its `/run` is that of the system whose `/` is at `own`, if there is one.
    pub(super) fn open(path: &Path, own: Option<&Path>) -> Io<Disk> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = fs::open(path, flags, Mode::empty())?;
        let own = own.map(|own| fs::open(own, flags, Mode::empty())).transpose()?;
        let links_run = own.is_some() && fs::readlinkat(&base, "run", Vec::new()).is_ok();
        Ok(Disk { path: path.to_owned(), base, own, links_run, keeps_state: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the state is kept in another folder.
    pub(super) fn keeps_state(&self) -> bool {
        self.keeps_state
    }

    /// Sets whether the state is kept in another folder.
    pub(super) fn set_keeps_state(&mut self, keeps_state: bool) {
        self.keeps_state = keeps_state;
    }

    pub(super) fn is_slash(&self) -> bool {
        self.path == Path::new("/")
    }

    fn base_of(&self, path: &str) -> &OwnedFd {
        match &self.own {
            Some(own) if path == "run" || path.starts_with("run/") => own,
            _ => &self.base,
        }
    }

    /// Where `path` is stored on the disk.
    pub(super) fn place<'p>(&self, path: &'p str) -> Cow<'p, str> {
        // Seeds and handlers of the image stay in place.
        let is_image = |name: &str| {
            let folder = format!("{STATE}/{name}");
            is_below(path, &folder) && self.open_placed(&folder, OFlags::PATH).is_ok()
        };
        if !self.keeps_state || !is_below(path, STATE) || is_image("seed") || is_image("handlers") {
            return Cow::Borrowed(path);
        }
        Cow::Owned(path.replacen(STATE, KEPT_STATE, 1))
    }

    pub(super) fn open_at(&self, path: &str, flags: OFlags) -> Io<OwnedFd> {
        self.open_placed(&self.place(path), flags)
    }

    /// Opens a path as stored on the disk.
    fn open_placed(&self, path: &str, flags: OFlags) -> Io<OwnedFd> {
        let base = self.base_of(path);
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(base, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS | Errno::PERM) => self.walk(base, path, flags),
            result => result,
        }
    }

    /// The same for kernels before 5.6 (no openat2), one component at a time.
    fn walk(&self, base: &OwnedFd, path: &str, flags: OFlags) -> Io<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = fs::openat(base, ".", step, Mode::empty())?;
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        for parent in parents.split('/').filter(|p| !p.is_empty()) {
            at = fs::openat(&at, parent, step, Mode::empty())?;
        }
        fs::openat(&at, name, flags, Mode::empty())
    }

    pub(super) fn open_parent<'p>(&self, path: &'p str) -> Io<(OwnedFd, &'p str)> {
        let path = if self.keeps_state && path == STATE { KEPT_STATE } else { path };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// The status of `path` by one system call. Unknown if the path may contain a symbolic link.
    pub(super) fn stat_plain(&self, path: &str) -> Seen {
        if self.keeps_state && is_below(path, STATE) || self.links_run && is_below(path, "run") {
            return Seen::Unknown;
        }
        match self.open_placed(path, OFlags::PATH) {
            Ok(file) => stat_of(&file).map_or(Seen::Unknown, Seen::Found),
            Err(Errno::NOENT) => Seen::Missing,
            Err(_) => Seen::Unknown,
        }
    }

    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        stat_of(&self.open_at(path, OFlags::PATH).ok()?)
    }

    /// Whether `path` is a mount point; on kernels before 5.8, by comparing device numbers.
    pub(super) fn is_mount(&self, path: &str) -> bool {
        let flags = AtFlags::EMPTY_PATH;
        let asked = self.open_at(path, OFlags::PATH).and_then(|fd| fs::statx(fd, "", flags, StatxFlags::empty()));
        match asked {
            Ok(stat) if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
                stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            }
            _ => self.device(path).is_some_and(|device| Some(device) != self.device("")),
        }
    }

    /// Whether the file system of `path`, which need not exist, is read-only.
    pub(super) fn is_read_only(&self, path: &str) -> bool {
        self.nearest(path).is_some_and(|folder| is_read_only(&folder))
    }

    /// `path` itself if it is a folder; else the nearest folder above it that exists.
    pub(super) fn nearest(&self, path: &str) -> Option<OwnedFd> {
        Some(self.nearest_of(path)?.0)
    }

    /// The same, and whether it is `path` itself.
    pub(super) fn nearest_of(&self, path: &str) -> Option<(OwnedFd, bool)> {
        let place = self.place(path);
        let mut at: &str = &place;
        loop {
            match self.open_placed(at, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(fd) => return Some((fd, at.len() == place.len())),
                Err(_) if at.is_empty() => return None,
                Err(_) => at = folder_of(at),
            }
        }
    }

    /// Mode, owner, group, inode, size, and the time of the last change in seconds and nanoseconds. None
    /// if nothing is there.
    pub(super) fn version(&self, path: &str) -> Option<[u64; 7]> {
        let stat = fs::fstat(self.open_at(path, OFlags::PATH).ok()?).ok()?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let (uid, gid) = (u64::from(stat.st_uid), u64::from(stat.st_gid));
        let (size, seconds) = (number(stat.st_size as i64), number(stat.st_ctime as i64));
        Some([u64::from(stat.st_mode), uid, gid, stat.st_ino, size, seconds, stat.st_ctime_nsec as u64])
    }

    /// The device number of the file system that holds `path`.
    pub(super) fn device(&self, path: &str) -> Option<u64> {
        Some(fs::fstat(self.open_at(path, OFlags::PATH).ok()?).ok()?.st_dev)
    }

    /// Opens a regular file for reading. None if there is none. Opening a device can have side effects, so the type is checked
    /// first, unless it was `seen`.
    pub(super) fn open_file(&self, path: &str, seen: Seen) -> std::io::Result<Option<File>> {
        let is_file = |fd: &OwnedFd| Ok(FileType::from_raw_mode(fs::fstat(fd)?.st_mode) == FileType::RegularFile);
        let open = |flags| match self.open_at(path, flags) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => Ok(None),
            Err(e) => Err(e),
            Ok(fd) => Ok(if is_file(&fd)? { Some(fd) } else { None }),
        };
        let looks_right = match seen {
            Seen::Found(stat) => stat.kind == FileKind::File,
            Seen::Missing => false,
            Seen::Unknown => open(OFlags::PATH)?.is_some(),
        };
        if !looks_right {
            return Ok(None);
        }
        Ok(open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?.map(File::from))
    }

    /// The bytes of a regular file of at most `limit` bytes. None where there is none.
    pub(super) fn read(&self, path: &str, seen: Seen, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(path, seen)? else { return Ok(None) };
        let meta = file.metadata()?;
        let too_large = || std::io::Error::other(format!("larger than {limit} bytes"));
        if meta.len() > limit {
            return Err(too_large());
        }
        let mut content = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        if file.take(limit + 1).read_to_end(&mut content)? as u64 > limit {
            return Err(too_large());
        }
        Ok(Some(content))
    }

    /// Opens a lock file for writing; creates a missing one, 0600.
    pub(super) fn open_lock(&self, path: &str) -> Io<OwnedFd> {
        let (parent, name) = self.open_parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))
    }

    pub(super) fn read_link(&self, path: &str) -> Option<String> {
        let (parent, name) = self.open_parent(path).ok()?;
        fs::readlinkat(&parent, name, Vec::new()).ok()?.into_string().ok()
    }

    pub(super) fn list(&self, path: &str) -> BTreeSet<String> {
        let names = || -> Io<BTreeSet<String>> {
            let folder = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mut names = BTreeSet::new();
            for entry in fs::Dir::new(folder)? {
                if let Ok(name) = entry?.file_name().to_str()
                    && name != "."
                    && name != ".."
                {
                    names.insert(name.to_owned());
                }
            }
            Ok(names)
        };
        names().unwrap_or_default()
    }

    /// Makes one change. Making it again has the same result, except for an append.
    pub(super) fn apply(&self, change: &Change, last: &mut LastFolder) -> std::io::Result<()> {
        let path = change.resolved();
        if !matches!(change, Change::Write { .. }) {
            *last = LastFolder::default();
        }
        match change {
            Change::Write { over: Over::Keep, .. } if self.stat(path).is_some() => Ok(()),
            Change::Write { content, attr, .. } if is_of_kernel(path) && self.is_file(path) => {
                self.request(path, content, *attr)
            }
            Change::Write { content, attr, over: Over::Append, .. } => self.append(path, content, *attr, last),
            Change::Write { content, attr, .. } if is_semaphore(path) => self.create(path, content, *attr, last),
            Change::Write { content, attr, .. } => self.replace(path, content, *attr, last),
            Change::Mkdir { attr, .. } => self.mkdir(path, *attr),
            Change::Symlink { target, .. } => {
                let (parent, name) = self.open_parent(path)?;
                let temporary = temporary_name(name);
                self.make_temporary(path, || fs::symlinkat(target, &parent, &temporary))?;
                let renamed = fs::renameat(&parent, &temporary, &parent, name);
                // A full btrfs makes the link and cannot rename it.
                Ok(renamed.inspect_err(|_| _ = fs::unlinkat(&parent, &temporary, AtFlags::empty()))?)
            }
            Change::Remove { .. } => self.remove(path),
            Change::Chown { attr, .. } | Change::Chmod { attr, .. } => self.set_attr(path, *attr),
        }
    }

    /// Creates a folder with its mode and owner from the first moment. An existing one stays as it is.
    fn mkdir(&self, path: &str, attr: Attr) -> std::io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        match type_of(&parent, name) {
            Some(FileType::Directory) => return Ok(()),
            Some(_) => return Err(Errno::EXIST.into()),
            // A new folder here is a request to the kernel, which does not support renames there.
            None if is_of_kernel(path) => return Ok(fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?),
            None => {}
        }
        let temporary = temporary_name(name);
        self.make_temporary(path, || fs::mkdirat(&parent, &temporary, Mode::from_raw_mode(0o700)))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let publish = || -> std::io::Result<()> {
            own(fs::openat(&parent, &temporary, flags, Mode::empty())?, attr)?;
            match fs::renameat_with(&parent, &temporary, &parent, name, RenameFlags::NOREPLACE) {
                // Not every file system supports the flag. Without it too, a folder that is not empty cannot be
                // replaced.
                Err(Errno::INVAL | Errno::NOSYS) => Ok(fs::renameat(&parent, &temporary, &parent, name)?),
                result => Ok(result?),
            }
        };
        publish().inspect_err(|_| {
            let _ = fs::unlinkat(&parent, &temporary, AtFlags::REMOVEDIR);
        })
    }

    /// [`Disk::prepare`] and [`Disk::publish`].
    fn replace(&self, path: &str, content: &Content, attr: Attr, last: &mut LastFolder) -> std::io::Result<()> {
        let target = self.target(path, last)?;
        if let Some(staged) = content.staged()
            && place(&target, staged, attr)?
        {
            return Ok(());
        }
        self.prepare(&target, content, attr)?;
        self.publish(&target, content, attr)
    }

    /// Opens the folder of a file that is to be written.
    pub(super) fn target<'p>(&self, path: &'p str, last: &mut LastFolder) -> std::io::Result<Target<'p>> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = match &last.0 {
            Some((known, parent)) if known == folder => parent.clone(),
            _ => {
                let parent = Rc::new(self.open_parent(path)?.0);
                last.0 = Some((folder.to_owned(), parent.clone()));
                parent
            }
        };
        Ok(Target { path, parent, name })
    }

    /// Creates the file's new content with its mode and owner, under a temporary name beside it.
    pub(super) fn prepare(&self, target: &Target, content: &Content, attr: Attr) -> std::io::Result<()> {
        let &Target { path, ref parent, name } = target;
        let temporary = temporary_name(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || fs::openat(parent, &temporary, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(self.make_temporary(path, open)?);
        let write = |file: &mut File| -> std::io::Result<()> {
            keep_xattrs_at(parent, name, file, attr.uid)?;
            own(&file, attr)?;
            // Content in memory is as large as its buffer, so it is written at once, past the buffer.
            let size = usize::try_from(content.len()).unwrap_or(BUFFER).min(BUFFER);
            let mut out = BufWriter::with_capacity(size, file);
            content.write_to(&mut out)?;
            out.flush()
        };
        write(&mut file).inspect_err(|_| {
            let _ = fs::unlinkat(parent, &temporary, AtFlags::empty());
        })
    }

    /// Creates a file under its final name, so that a killed run leaves no temporary file that nothing would
    /// remove: a semaphore is written only once. One that exists is replaced.
    fn create(&self, path: &str, content: &Content, attr: Attr, last: &mut LastFolder) -> std::io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = match fs::openat(&parent, name, flags, Mode::from_raw_mode(attr.mode)) {
            Err(Errno::EXIST) => return self.replace(path, content, attr, last),
            opened => File::from(opened?),
        };
        let made = own(&file, attr).and_then(|()| content.write_to(&mut file));
        made.inspect_err(|_| {
            let _ = fs::unlinkat(&parent, name, AtFlags::empty());
        })
    }

    /// Removes what [`Disk::prepare`] created.
    pub(super) fn discard(&self, target: &Target) {
        let _ = fs::unlinkat(&target.parent, temporary_name(target.name), AtFlags::empty());
    }

    /// Removes a folder that is empty.
    pub(super) fn remove_empty(&self, path: &str) {
        if let Ok((parent, name)) = self.open_parent(path) {
            let _ = fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }

    /// Renames what [`Disk::prepare`] created over the file. A file that is a mount point, as container managers create them, gets
    /// the content itself.
    pub(super) fn publish(&self, target: &Target, content: &Content, attr: Attr) -> std::io::Result<()> {
        let &Target { path, ref parent, name } = target;
        let temporary = temporary_name(name);
        let renamed = fs::renameat(parent, &temporary, parent, name);
        if renamed.is_err() {
            let _ = fs::unlinkat(parent, &temporary, AtFlags::empty());
        }
        if renamed != Err(Errno::BUSY) || !self.is_file(path) {
            return Ok(renamed?);
        }
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = File::from(self.open_at(path, flags).map_err(|_| Errno::BUSY)?);
        own(&file, attr)?;
        content.write_to(&mut file)?;
        // A mount point, so its file system is not the folder's.
        file.sync_all()
    }

    fn is_file(&self, path: &str) -> bool {
        self.stat(path).is_some_and(|s| s.kind == FileKind::File)
    }

    /// Writes to a file of the kernel's, which takes the content as a whole.
    fn request(&self, path: &str, content: &Content, attr: Attr) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = File::from(self.open_at(path, flags)?);
        file.write_all(&content.to_vec())?;
        match own(&file, attr) {
            // The files of /proc/sys keep their modes and owners.
            Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(()),
            owned => owned,
        }
    }

    /// Appends to a file in place.
    fn append(&self, path: &str, content: &Content, attr: Attr, last: &mut LastFolder) -> std::io::Result<()> {
        if !self.is_file(path) {
            return self.replace(path, content, attr, last);
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY;
        File::from(self.open_at(path, flags)?).write_all(&content.to_vec())
    }

    /// Calls `make` for the temporary name of `path`, after removing what a killed run left there.
    fn make_temporary<T>(&self, path: &str, make: impl Fn() -> Io<T>) -> std::io::Result<T> {
        let made = make();
        if !matches!(made, Err(Errno::EXIST)) {
            return Ok(made?);
        }
        let path = &*self.place(path);
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let temporary = temporary_name(name);
        let whole = if folder.is_empty() { temporary.clone() } else { format!("{folder}/{temporary}") };
        self.remove(&whole)?;
        Ok(make()?)
    }

    fn set_attr(&self, path: &str, attr: Attr) -> std::io::Result<()> {
        if !self.stat(path).is_none_or(|s| matches!(s.kind, FileKind::File | FileKind::Dir)) {
            return Err(std::io::Error::other("it is neither a regular file nor a folder"));
        }
        if self.is_planted(path)? {
            return Err(std::io::Error::other("it is another name of a file of another owner than the folder"));
        }
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        own(&file, attr)
    }

    /// Whether a file may be a hard link that a user created: it has several names, is in a folder of a user
    /// other than root, and belongs neither to that user nor to root (proc(5), protected_hardlinks).
    fn is_planted(&self, path: &str) -> Io<bool> {
        let file = fs::fstat(self.open_at(path, OFlags::PATH)?)?;
        let folder = fs::fstat(self.open_parent(path)?.0)?;
        let linked = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile && file.st_nlink > 1;
        Ok(linked && folder.st_uid != 0 && folder.st_uid != file.st_uid)
    }

    /// Syncs the folder of `path`: renames and removals in it.
    pub(super) fn sync_folder(&self, path: &str) -> std::io::Result<()> {
        match fs::fsync(self.open_at(folder_of(path), OFlags::RDONLY | OFlags::DIRECTORY)?) {
            // Not every file system can sync a folder alone.
            Err(Errno::INVAL) => Ok(()),
            result => Ok(result?),
        }
    }

    /// How likely a folder's file system is to lose data at a reboot: 0 for a disk, 1 for an overlay, whose
    /// upper layer may be anything, 2 for memory.
    pub(super) fn volatility(&self, folder: &str) -> u8 {
        2 * u8::from(self.is_memory(folder)) + u8::from(self.is_overlay(folder))
    }

    /// Whether a folder is on an overlay.
    pub(super) fn is_overlay(&self, folder: &str) -> bool {
        let stat = self.open_at(folder, OFlags::PATH | OFlags::DIRECTORY).and_then(fs::fstatfs);
        stat.is_ok_and(|stat| stat.f_type as u32 == OVERLAY)
    }

    /// Whether a folder is on a file system in memory.
    pub(super) fn is_memory(&self, folder: &str) -> bool {
        self.open_at(folder, OFlags::PATH | OFlags::DIRECTORY).is_ok_and(is_in_memory)
    }

    /// Whether `fd` is on the root's own file system.
    pub(super) fn is_own(&self, fd: impl AsFd) -> bool {
        fs::fstat(fd).is_ok_and(|stat| fs::fstat(&self.base).is_ok_and(|own| own.st_dev == stat.st_dev))
    }

    /// Whether `path` is on the root's own file system.
    pub(super) fn is_on_own(&self, path: &str) -> bool {
        let mut at = path;
        while !at.is_empty() {
            if let Some(device) = self.device(at) {
                return Some(device) == self.device("");
            }
            at = folder_of(at);
        }
        true
    }

    /// Opens a path of this system's own `/`, instead of the root's.
    pub(super) fn open_own(&self, path: &str, flags: OFlags) -> Io<OwnedFd> {
        let own = self.own.as_ref().ok_or(Errno::NOENT)?;
        fs::openat(own, path, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Whether this is an initramfs: this system's own `/` is in memory, and is not the root.
    pub(super) fn is_in_initramfs(&self) -> bool {
        self.own.as_ref().is_some_and(is_in_memory)
    }

    /// Whether files that were made cannot be sure of their names: a full btrfs refuses to rename them.
    pub(super) fn lacks_room_to_rename(&self, entries: &[Entry]) -> bool {
        is_btrfs(&self.base) && self.check_room("", 0, entries).is_err()
    }

    /// Fails if the folder's file system lacks the blocks or inodes for the changes, beside `journal` bytes in another file. A file
    /// that is replaced is there twice for a moment.
    pub(super) fn check_room(&self, folder: &str, journal: u64, entries: &[Entry]) -> std::io::Result<()> {
        let folder = self.open_at(folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = fs::fstatvfs(&folder)?;
        let is_btrfs = is_btrfs(&folder);
        let (free, margin) = if is_btrfs { (stat.f_bavail, BTRFS_MARGIN) } else { (stat.f_bfree, 0) };
        let blocks = |bytes: u64| bytes.div_ceil(stat.f_frsize.max(512));
        let (mut needed, mut inodes) = (blocks(journal.saturating_add(margin)) + MARGIN, MARGIN);
        for Entry { change, .. } in entries {
            let more = match change {
                Change::Write { content, .. } => blocks(content.len()),
                Change::Mkdir { .. } | Change::Symlink { .. } => 1,
                _ => continue,
            };
            (needed, inodes) = (needed.saturating_add(more), inodes + 1);
        }
        // File systems that do not know their size, or have no fixed number of inodes, report 0.
        let lack = [(stat.f_blocks, free, needed, "blocks"), (stat.f_files, stat.f_ffree, inodes, "inodes")];
        match lack.into_iter().find(|(all, free, needed, _)| *all > 0 && free < needed) {
            Some((_, free, needed, what)) => {
                let text = format!("{free} {what} are free, and {needed} may be needed");
                Err(std::io::Error::new(ErrorKind::StorageFull, text))
            }
            None => Ok(()),
        }
    }

    /// Removes `path`, a folder with everything in it.
    pub(super) fn remove(&self, path: &str) -> std::io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        match fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        for child in self.list(path) {
            self.remove(&format!("{path}/{child}"))?;
        }
        Ok(fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }
}

/// The type of an entry of an open folder, links not followed. None if it does not exist.
fn type_of(folder: &OwnedFd, name: &str) -> Option<FileType> {
    let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// The Stat of an open file.
fn stat_of(file: &OwnedFd) -> Option<Stat> {
    let stat = fs::fstat(file).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let attr = Attr { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
    Some(Stat { kind, attr, size: u64::try_from(stat.st_size).unwrap_or(0) })
}

/// Whether an open folder is on a file system in memory (tmpfs, ramfs).
pub fn is_in_memory(folder: impl AsFd) -> bool {
    fs::fstatfs(folder).is_ok_and(|stat| matches!(stat.f_type as u32, TMPFS | RAMFS))
}

/// Whether the file system of an open folder is read-only.
pub(super) fn is_read_only(folder: &OwnedFd) -> bool {
    fs::fstatvfs(folder).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Sets the owner, then the mode: changing the owner clears set-user-ID. For an ordinary user (in tests, or a
/// plan for a tree) the owner stays.
pub(super) fn own(file: impl AsFd, attr: Attr) -> std::io::Result<()> {
    // For fchown(2), this number leaves the owner as it is.
    if [attr.uid, attr.gid].contains(&u32::MAX) {
        return Err(Errno::INVAL.into());
    }
    match fs::fchown(&file, Some(Uid::from_raw(attr.uid)), Some(Gid::from_raw(attr.gid))) {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
        result => result?,
    }
    Ok(fs::fchmod(&file, Mode::from_raw_mode(attr.mode))?)
}

/// Renames staged content to its place, with the mode and owner. Returns false if a rename is impossible: another file system, or a
/// file that is a mount point.
fn place(target: &Target, staged: &Staged, attr: Attr) -> std::io::Result<bool> {
    let &Target { ref parent, name, .. } = target;
    keep_xattrs_at(parent, name, staged.file()?, attr.uid)?;
    own(staged.file()?, attr)?;
    match staged.rename(parent, name) {
        Err(e) if [Errno::XDEV, Errno::BUSY].map(Errno::raw_os_error).map(Some).contains(&e.raw_os_error()) => {
            Ok(false)
        }
        renamed => renamed.map(|()| true),
    }
}

/// Copies the extended attributes of the file that is replaced: the SELinux label, and if the owner stays
/// `uid` also access control lists and the rest. The mode, set later, limits what a list grants (acl(5)).
fn keep_xattrs(replaced: &OwnedFd, file: &File, uid: u32) -> Io<()> {
    // An error means that the file system has no extended attributes.
    let length = fs::flistxattr_query(replaced).unwrap_or(0);
    if length == 0 {
        return Ok(());
    }
    let same_owner = fs::fstat(replaced)?.st_uid == uid;
    let mut names = vec![0; length.min(MAX_XATTR)];
    let length = fs::flistxattr(replaced, &mut names).unwrap_or(0);
    let mut value = vec![0; MAX_XATTR];
    for name in names.get(..length).unwrap_or_default().split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if OF_CONTENT.contains(&name) || !(same_owner || name == c"security.selinux") {
            continue;
        }
        if let Ok(length) = fs::fgetxattr(replaced, name, &mut value) {
            // Some may not be set: `trusted` only by root, a label as the policy allows.
            let _ = fs::fsetxattr(file, name, value.get(..length).unwrap_or_default(), XattrFlags::empty());
        }
    }
    Ok(())
}

/// The same, if there is a file `name` in the folder `parent`.
fn keep_xattrs_at(parent: &OwnedFd, name: &str, file: &File, uid: u32) -> Io<()> {
    if type_of(parent, name) != Some(FileType::RegularFile) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    keep_xattrs(&fs::openat(parent, name, flags, Mode::empty())?, file, uid)
}

fn is_btrfs(fd: impl AsFd) -> bool {
    fs::fstatfs(fd).is_ok_and(|stat| stat.f_type as u32 == BTRFS)
}

/// The temporary name of a file that is then renamed to `name`. Two names of a folder have two: both files may be there at a time.
pub(super) fn temporary_name(name: &str) -> String {
    format!(".{}.prepivot", digest::shortened(name, 200))
}
