//! The disk below a root: reads, and one change at a time. Every path here is resolved already, so no component may be
//! a symbolic link: one that somebody puts there in between makes the call fail instead of leading outside.

use super::{Attr, Change, Kind, MAX_READ, Stat};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub(super) struct Disk {
    path: PathBuf,
    base: OwnedFd,
    /// This system's own `/`, for `/run`, which moves along when the root is pivoted.
    own: Option<OwnedFd>,
}

/// The longest value of an extended attribute, and the longest list of their names (xattr(7)).
const MAX_XATTR: usize = 64 << 10;
/// Extended attributes that describe a content, and are wrong for another one.
const OF_CONTENT: [&CStr; 3] = [c"security.capability", c"security.ima", c"security.evm"];

type Io<T> = std::result::Result<T, Errno>;

impl Disk {
    pub(super) fn open(path: &Path, own_run: bool) -> Io<Disk> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = fs::open(path, flags, Mode::empty())?;
        let own = if own_run { Some(fs::open("/", flags, Mode::empty())?) } else { None };
        Ok(Disk { path: path.to_owned(), base, own })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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

    fn open_at(&self, path: &str, flags: OFlags) -> Io<OwnedFd> {
        let base = self.base_of(path);
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(base, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS | Errno::PERM) => self.walk(base, path, flags),
            result => result,
        }
    }

    /// The same for kernels before 5.6, one component at a time.
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
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        let file = self.open_at(path, OFlags::PATH).ok()?;
        let stat = fs::fstat(&file).ok()?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Other,
        };
        let attr = Attr { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
        Some(Stat { kind, attr, size: u64::try_from(stat.st_size).unwrap_or(0) })
    }

    /// Device number of the file system that holds `path`.
    pub(super) fn device(&self, path: &str) -> Option<u64> {
        Some(fs::fstat(self.open_at(path, OFlags::PATH).ok()?).ok()?.st_dev)
    }

    pub(super) fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        let file = match self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(None);
        }
        let too_large = || std::io::Error::other(format!("larger than {MAX_READ} bytes"));
        if meta.len() > MAX_READ {
            return Err(too_large());
        }
        let mut content = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        if file.take(MAX_READ + 1).read_to_end(&mut content)? as u64 > MAX_READ {
            return Err(too_large());
        }
        Ok(Some(content))
    }

    /// Opens a lock file for writing; one that is not there is made, for root only.
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

    /// Makes one change. A change that is already so does nothing.
    pub(super) fn apply(&self, change: &Change) -> std::io::Result<()> {
        let path = change.path().trim_start_matches('/');
        match change {
            Change::Write { content, attr, .. } => self.write(path, content, *attr),
            Change::Mkdir { attr, .. } => {
                let (parent, name) = self.open_parent(path)?;
                match fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => self.set_attr(path, *attr),
                    Err(e) => Err(e.into()),
                }
            }
            Change::Symlink { target, .. } => {
                let (parent, name) = self.open_parent(path)?;
                let temporary = temporary_name(name);
                let _ = fs::unlinkat(&parent, &temporary, AtFlags::empty());
                fs::symlinkat(target, &parent, &temporary)?;
                Ok(fs::renameat(&parent, &temporary, &parent, name)?)
            }
            Change::Remove { .. } => self.remove(path),
            Change::Chown { attr, .. } | Change::Chmod { attr, .. } => self.set_attr(path, *attr),
        }
    }

    fn write(&self, path: &str, content: &[u8], attr: Attr) -> std::io::Result<()> {
        let (parent, name) = self.open_parent(path)?;
        let temporary = temporary_name(name);
        let _ = fs::unlinkat(&parent, &temporary, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&parent, &temporary, flags, Mode::from_raw_mode(0o600))?);
        let write = |file: &mut File| -> std::io::Result<()> {
            if let Some(Stat { kind: Kind::File, attr: old, .. }) = self.stat(path) {
                let replaced = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
                keep_xattrs(&replaced, file, old.uid == attr.uid);
            }
            own(&file, attr)?;
            file.write_all(content)?;
            Ok(fs::renameat_with(&parent, &temporary, &parent, name, RenameFlags::empty())?)
        };
        write(&mut file).inspect_err(|_| {
            let _ = fs::unlinkat(&parent, &temporary, AtFlags::empty());
        })
    }

    fn set_attr(&self, path: &str, attr: Attr) -> std::io::Result<()> {
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        own(&file, attr)
    }

    fn remove(&self, path: &str) -> std::io::Result<()> {
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

    /// Everything written so far reaches the disk.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        let base = fs::openat(&self.base, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(fs::syncfs(base)?)
    }
}

/// Owner first: a change of owner clears set-user-ID. As an ordinary user (a test, a plan for a tree) the owner stays.
pub(super) fn own(file: impl AsFd, attr: Attr) -> std::io::Result<()> {
    match fs::fchown(&file, Some(Uid::from_raw(attr.uid)), Some(Gid::from_raw(attr.gid))) {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
        result => result?,
    }
    Ok(fs::fchmod(&file, Mode::from_raw_mode(attr.mode))?)
}

/// Gives `file` the extended attributes of the file that it replaces: the SELinux label, and where the owner stays the same
/// access control lists and the rest. The mode that is set later limits what a list grants (acl(5)).
fn keep_xattrs(replaced: &OwnedFd, file: &File, same_owner: bool) {
    // An error: the file system has none.
    let length = fs::flistxattr_query(replaced).unwrap_or(0);
    if length == 0 {
        return;
    }
    let mut names = vec![0; length.min(MAX_XATTR)];
    let length = fs::flistxattr(replaced, &mut names).unwrap_or(0);
    let mut value = vec![0; MAX_XATTR];
    for name in names.get(..length).unwrap_or_default().split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if OF_CONTENT.contains(&name) || !(same_owner || name == c"security.selinux") {
            continue;
        }
        if let Ok(length) = fs::fgetxattr(replaced, name, &mut value) {
            // Not every attribute may be set by everyone: `trusted` only by root, a label as the policy says.
            let _ = fs::fsetxattr(file, name, value.get(..length).unwrap_or_default(), XattrFlags::empty());
        }
    }
}

fn temporary_name(name: &str) -> String {
    let end = (0..=name.len().min(200)).rev().find(|i| name.is_char_boundary(*i)).unwrap_or(0);
    format!(".{}.prepivot", &name[..end])
}
