//! The folders of a commit's changes: which are on read-only file systems, and which file systems have to be synced. Changes are
//! sorted, so each folder is examined once.

use super::Change;
use super::disk::{Disk, is_read_only};
use super::layout::{folder_of, is_below};
use rustix::fd::OwnedFd;
use rustix::fs;

/// A cache for sorted paths: facts about the last folder and those above it.
struct Above<T>(Vec<(String, T)>);

impl<T> Default for Above<T> {
    fn default() -> Self {
        Above(Vec::new())
    }
}

impl<T> Above<T> {
    /// The nearest known folder that is `folder` or above it. Forgets those that are not.
    fn nearest(&mut self, folder: &str) -> Option<&(String, T)> {
        while self.0.last().is_some_and(|(known, _)| !is_below(folder, known)) {
            self.0.pop();
        }
        self.0.last()
    }

    fn add(&mut self, folder: &str, what: T) {
        self.0.push((folder.to_owned(), what));
    }
}

/// Whether the file systems of changes are read-only.
#[derive(Default)]
pub(super) struct ReadOnly(Above<Folder>);

/// A folder, as [`ReadOnly`] caches it.
#[derive(Clone, Copy)]
struct Folder {
    is_read_only: bool,
    exists: bool,
}

impl ReadOnly {
    /// Whether the file system that takes the change is read-only.
    pub(super) fn holds(&mut self, disk: &Disk, change: &Change) -> bool {
        let place = disk.place(change.resolved());
        let folder = match change {
            // An existing path may be a mount point itself.
            Change::Chown { .. } | Change::Chmod { .. } => &place,
            _ => folder_of(&place),
        };
        match self.0.nearest(folder) {
            // A missing folder will be on the file system of the folder above it.
            Some((known, found)) if !found.exists || known == folder => found.is_read_only,
            _ => {
                let (is_read_only, exists) =
                    disk.nearest_of(folder).map_or((false, true), |(fd, exists)| (is_read_only(&fd), exists));
                self.0.add(folder, Folder { is_read_only, exists });
                is_read_only
            }
        }
    }
}

/// The file systems that changes touch, to be synced together at the end.
#[derive(Default)]
pub(super) struct Touched {
    /// By device number. Opened before the first change, so that syncfs(2) reports every write error.
    folders: Vec<(u64, OwnedFd)>,
    /// Folders on one of them.
    known: Above<()>,
    /// Whether folders that changes make are not there yet.
    is_first: bool,
}

impl Touched {
    /// For changes that were compared with the disk: a folder that one creates does not exist. A journal's folders may exist by
    /// now, with something mounted on them.
    pub(super) fn at_first() -> Touched {
        Touched { is_first: true, ..Touched::default() }
    }

    /// Adds the file system of a change.
    pub(super) fn add_of(&mut self, disk: &Disk, change: &Change) {
        self.add(disk, change.resolved());
        if self.is_first && matches!(change, Change::Mkdir { .. }) {
            // On the file system of the folder that it is in.
            self.known.add(&disk.place(change.resolved()), ());
        }
    }

    /// Adds the file system of the folder of `path`.
    pub(super) fn add(&mut self, disk: &Disk, path: &str) {
        let place = disk.place(path);
        let folder = folder_of(&place);
        if self.known.nearest(folder).is_some_and(|(known, ())| known == folder) {
            return;
        }
        self.known.add(folder, ());
        // A missing folder is created by one of the changes.
        if let Some(fd) = disk.nearest(folder)
            && let Ok(stat) = fs::fstat(&fd)
            && self.folders.iter().all(|(device, _)| *device != stat.st_dev)
        {
            self.folders.push((stat.st_dev, fd));
        }
    }

    /// Syncs all of them.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        Ok(self.folders.iter().try_for_each(|(_, fd)| fs::syncfs(fd))?)
    }
}
