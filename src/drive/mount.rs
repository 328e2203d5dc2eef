//! Reads a drive through the kernel: mounts it read-only in a private place, copies its files to memory, and
//! unmounts it.

use super::files::Files;
use super::tree::{self, Budget, Entry, Kind, Tree};
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use sys_mount::{Mount, MountFlags, Unmount, UnmountFlags};

/// The folder of the mount points, which only root can access.
const MOUNTS: &str = "/run/prepivot";

/// File system types and options to try for each type; the first that works is used. FAT and Joliet names
/// must be UTF-8; if the kernel lacks a character table for that, the drive is read without it. Journals are
/// not replayed, because that would write to the drive.
const WAYS: &[(&str, &[(&str, &str)])] = &[
    ("iso9660", &[("iso9660", "utf8")]),
    ("vfat", &[("vfat", "utf8")]),
    ("ext2", &[("ext2", ""), ("ext4", "noload")]),
    ("ext3", &[("ext4", "noload"), ("ext3", "noload")]),
    ("ext4", &[("ext4", "noload")]),
];

/// The filesystem types and options to try for a filesystem of type `kind`.
fn ways(kind: &str) -> impl Iterator<Item = (&str, &str)> {
    let listed = WAYS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, ways)| ways);
    let as_is = listed.is_empty().then_some((kind, ""));
    listed.iter().copied().chain(as_is)
}

/// A mounted drive; dropping it unmounts it and nothing else.
struct Mounted {
    mount: Mount,
    folder: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mount.unmount(UnmountFlags::empty()).is_err() {
            // Busy, or gone with its device.
            let _ = self.mount.unmount(UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Whether the kernel has a driver for file systems of type `kind` without loading one.
pub fn has_driver(kind: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    ways(kind).any(|(name, _)| known.lines().any(|line| line.split('\t').nth(1) == Some(name)))
}

/// Mounts `device`, which has a file system of type `kind`, copies its files to memory and unmounts it.
///
/// # Errors
/// The kernel cannot mount it (no driver, no privilege, a damaged file system), or its files cannot be read.
pub fn read(device: &Path, kind: &str, deadline: Deadline) -> Result<Files> {
    let mounted = mount(device, kind)?;
    folder(&mounted.folder, deadline)
}

fn mount(device: &Path, kind: &str) -> Result<Mounted> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let what = || format!("failed to mount {} ({kind})", device.display());
    private(Path::new(MOUNTS)).context(what)?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(MOUNTS).join(format!("drive-{}-{count}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&folder).context(what)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::SILENT;
    let mut failure = None;
    for (fstype, options) in ways(kind) {
        match Mount::builder().flags(flags).fstype(fstype).data(options).mount(device, &folder) {
            Ok(mount) => return Ok(Mounted { mount, folder }),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    let _ = std::fs::remove_dir(&folder);
    let failure = failure.unwrap_or_else(|| std::io::ErrorKind::Unsupported.into());
    Err(failure).context(what)
}

/// Creates the folder of the mount points, or checks that it belongs to root and is closed to others.
fn private(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e).context(|| path.display()),
        _ => {}
    }
    let meta = path.symlink_metadata().context(|| path.display())?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if !own || meta.permissions().mode() & 0o077 != 0 {
        return Err(Error::new(format!("{} must be a folder of root's with mode 0700", path.display())));
    }
    Ok(())
}

/// Copies the files of a folder to memory. Symbolic links are kept as such; special files are left out.
///
/// # Errors
/// It cannot be read.
pub fn folder(path: &Path, deadline: Deadline) -> Result<Files> {
    let what = || format!("failed to read {}", path.display());
    let directory = rustix::fs::open(path, DIRECTORY, Mode::empty()).context(what)?;
    folder_at(directory, deadline).context(what)
}

/// Like [`folder`], for a folder that is already open, such as one inside a new root.
///
/// # Errors
/// The folder cannot be read, or the deadline passes.
pub fn folder_at(directory: OwnedFd, deadline: Deadline) -> Result<Files> {
    tree::copy(&Folder(directory), deadline)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder of a mounted file system. Nodes are paths below it that contain no symbolic links.
struct Folder(OwnedFd);

impl Folder {
    /// Opens `path` below the folder without following symbolic links.
    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let mut directory: Option<OwnedFd> = None;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let at = directory.as_ref().map_or(self.0.as_fd(), |fd| fd.as_fd());
            let flags = if parts.peek().is_some() { DIRECTORY | OFlags::NOFOLLOW } else { flags };
            directory = Some(openat(at, part.as_os_str(), flags, Mode::empty()).context(|| "failed to open")?);
        }
        directory.map_or_else(|| openat(&self.0, ".", DIRECTORY, Mode::empty()).context(|| "failed to open"), Ok)
    }
}

impl Tree for Folder {
    type Node = PathBuf;

    fn root(&self) -> Result<PathBuf> {
        Ok(PathBuf::new())
    }

    fn entries(&self, directory: &PathBuf, budget: &mut Budget) -> Result<Vec<Entry<PathBuf>>> {
        let fd = self.open(directory, DIRECTORY)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&fd).context(|| "failed to list")? {
            let entry = entry.context(|| "failed to list")?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            budget.entry()?;
            let path = directory.join(std::ffi::OsString::from_vec(name.to_bytes().to_vec()));
            let kind = match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => Kind::Directory(path),
                    FileType::RegularFile => Kind::File { node: path, size: u64::try_from(stat.st_size).unwrap_or(0) },
                    FileType::Symlink => match readlinkat(&fd, name, Vec::new()) {
                        Ok(target) => Kind::Link(target.to_string_lossy().into_owned()),
                        Err(e) => Kind::Other(e.to_string()),
                    },
                    _ => Kind::Other("a special file".into()),
                },
                Err(e) => Kind::Other(e.to_string()),
            };
            budget.keep(Entry { name: name.to_string_lossy().into_owned(), kind }, &mut found)?;
        }
        Ok(found)
    }

    fn read(&self, file: &PathBuf, size: u64) -> Result<Vec<u8>> {
        let file = File::from(self.open(file, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let mut contents = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        file.take(size).read_to_end(&mut contents).context(|| "failed to read")?;
        Ok(contents)
    }
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
