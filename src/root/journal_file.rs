//! The file of the journal: all changes of a commit in one file on the root, written and synced before the first change
//! is made, and removed when the last is on the disk. A run that finds a journal makes its changes first.

use super::disk::{Disk, Seen};
use super::layout::{folder_of, path_in};
use super::lock::wait_for;
use super::record::{self, Entry, Record};
use super::staging;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The journal's name.
pub(super) const JOURNAL: &str = ".prepivot-journal";
/// The name of the list of changes that wait for their file system to be mounted. It is only changed through
/// the journal.
pub(super) const WAITING: &str = ".prepivot-waiting";
/// Folders that can hold both, best first. PID 1 needs /etc before it mounts anything, so the initramfs and
/// the real root see the same one.
pub(super) const FOLDERS: [&str; 3] = ["etc", "var/lib", ""];

/// How long to wait for another process's commit.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// How often to create the journal again, after another process has taken the still empty file for a dead
/// run's and removed it.
const TRIES: usize = 3;

/// A journal on the disk. Other processes wait for its lock until this is dropped.
pub(super) struct JournalFile {
    path: String,
    file: File,
    /// Whether there may be contents beside it.
    stages: bool,
}

impl JournalFile {
    /// Writes the journal in `folder` and syncs it; the contents of the entries at the indices `large` are staged beside it. If that
    /// fails, nothing is left of it. Returns the entries to carry out, if they are others.
    ///
    /// # Errors
    /// The folder's file system is full or read-only, or there already is a journal (`EEXIST`).
    pub(super) fn write(
        disk: &Disk,
        folder: &str,
        entries: &[Entry],
        large: &[usize],
    ) -> io::Result<(JournalFile, Option<Vec<Entry>>)> {
        let journal = JournalFile::create(disk, path_in(folder, JOURNAL))?;
        let journal = JournalFile { stages: !large.is_empty(), ..journal };
        let fill = || -> io::Result<Option<Vec<Entry>>> {
            // Staged files always sit next to a journal, so recovery can find them.
            let staged = journal.stages.then(|| staging::write(disk, folder, entries, large)).transpose()?;
            record::write(&mut &journal.file, staged.as_deref().unwrap_or(entries))?;
            journal.file.sync_all()?;
            disk.sync_folder(&journal.path)?;
            Ok(staged)
        };
        match fill() {
            Ok(staged) => Ok((journal, staged)),
            Err(e) => {
                let _ = journal.remove(disk);
                Err(e)
            }
        }
    }

    fn create(disk: &Disk, path: String) -> io::Result<JournalFile> {
        for _ in 0..TRIES {
            let (parent, name) = disk.open_parent(&path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = lock(fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))?)?;
            if fs::fstat(&file)?.st_nlink > 0 {
                return Ok(JournalFile { path, file, stages: false });
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Opens the journal in `folder`, once no other process locks it. None if there is none.
    ///
    /// # Errors
    /// The file is not prepivot's own, or cannot be opened or locked.
    pub(super) fn find(disk: &Disk, folder: &str) -> io::Result<Option<JournalFile>> {
        let path = path_in(folder, JOURNAL);
        let Some(file) = open_own(disk, &path)? else { return Ok(None) };
        let file = lock(file.into())?;
        // The process that held the lock has finished and removed the file.
        Ok((fs::fstat(&file)?.st_nlink > 0).then_some(JournalFile { path, file, stages: true }))
    }

    /// Reads the journal. None if it is incomplete: then none of its changes were made.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&self) -> io::Result<Option<Record<&File>>> {
        Record::open(&self.file)
    }

    /// Removes the journal, with what is staged beside it, and syncs the removal.
    ///
    /// # Errors
    /// It cannot be removed, or the removal cannot be synced.
    pub(super) fn remove(&self, disk: &Disk) -> io::Result<()> {
        if self.stages {
            staging::remove(disk, folder_of(&self.path))?;
        }
        let (parent, name) = disk.open_parent(&self.path)?;
        fs::unlinkat(&parent, name, AtFlags::empty())?;
        disk.sync_folder(&self.path)
    }
}

/// Opens a file that prepivot wrote: a regular file that only this process's user can read and write. None
/// if there is none.
///
/// # Errors
/// It belongs to another user, or cannot be opened.
pub(super) fn open_own(disk: &Disk, path: &str) -> io::Result<Option<File>> {
    let Some(file) = disk.open_file(path, Seen::Unknown)? else { return Ok(None) };
    let stat = fs::fstat(&file)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0 && stat.st_nlink <= 1;
    if own { Ok(Some(file)) } else { Err(io::Error::other("it is not a file that prepivot made")) }
}

/// Locks the file exclusively; the lock ends with the process.
fn lock(file: OwnedFd) -> io::Result<File> {
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {}
        // A file system without locks is used by one machine only.
        Ok(()) | Err(_) => return Ok(file.into()),
    }
    let file = Arc::new(file);
    let locked = wait_for(file.clone(), LOCK_WAIT, |file| fs::flock(file.as_fd(), FlockOperation::LockExclusive));
    locked.unwrap_or(Err(Errno::WOULDBLOCK))?;
    Ok(file.try_clone()?.into())
}
