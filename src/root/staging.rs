//! Staging of large contents, which are so written once: each becomes a file in a folder beside the journal, the journal names it,
//! and the change is to rename it to its place.

use super::disk::Disk;
use super::layout::{folder_of, is_below, is_semaphore, path_in};
use super::record::Entry;
use super::staged::Staged;
use super::{Change, FileKind, Over};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

/// The folder's name. It exists only while there is a journal beside it.
pub(super) const STAGED: &str = ".prepivot-staged";
/// The least length of such a content, in bytes. Up to there a second copy costs less than the syncs.
pub(super) const LARGE: u64 = 1 << 20;
/// How many bytes are written at a time.
const BUFFER: usize = 64 << 10;
/// The access control list that new files of a folder get (acl(5)).
const DEFAULT_ACL: &std::ffi::CStr = c"system.posix_acl_default";

/// Which of the entries have a content that can be staged beside a journal in `folder`: it is long, and its place is a file of the
/// same file system. Files get nothing from either folder that they are in.
pub(super) fn eligible(disk: &Disk, folder: &str, entries: &[Entry]) -> Vec<usize> {
    let is_large = |entry: &Entry| match &entry.change {
        Change::Write { content, over: Over::Replace, .. } => content.len() >= LARGE && !entry.hidden,
        _ => false,
    };
    if !entries.iter().any(is_large) {
        return Vec::new();
    }
    // A journal that is carried out again would remove what has been renamed to its place.
    let removed = |path: &str| {
        entries.iter().any(|e| matches!(e.change, Change::Remove { .. }) && is_below(path, e.change.resolved()))
    };
    // The device of a folder whose files get nothing from it.
    let device = |folder: &str| {
        let fd = disk.nearest(folder)?;
        let has_acl = fs::fgetxattr(&fd, DEFAULT_ACL, &mut [0; 0][..]).is_ok();
        fs::fstat(&fd).ok().filter(|_| !has_acl).map(|stat| stat.st_dev)
    };
    let own = device(folder);
    let is_plain_place = |path: &str| own.is_some() && device(folder_of(path)) == own;
    let fits = |entry: &Entry| {
        let path = entry.change.resolved();
        is_large(entry) && !is_semaphore(path) && !removed(path) && is_plain_place(path)
    };
    entries.iter().enumerate().filter(|(_, entry)| fits(entry)).map(|(at, _)| at).collect()
}

/// Writes the contents of the entries at the indices `chosen` into the folder beside a journal in `folder`, and syncs them. Gives
/// all entries with those contents in place of their own.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(disk: &Disk, folder: &str, entries: &[Entry], chosen: &[usize]) -> io::Result<Vec<Entry>> {
    let path = path_in(folder, STAGED);
    disk.remove(&path)?;
    let (parent, name) = disk.open_parent(&path)?;
    fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
    let place = Arc::new(disk.open_at(&path, OFlags::RDONLY | OFlags::DIRECTORY)?);
    let mut entries = entries.to_vec();
    for (number, at) in (0..).zip(chosen) {
        let Some(Change::Write { content, .. }) = entries.get_mut(*at).map(|entry| &mut entry.change) else { continue };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&place, number.to_string(), flags, Mode::from_raw_mode(0o600))?);
        let mut out = BufWriter::with_capacity(BUFFER, &file);
        content.write_to(&mut out)?;
        out.flush()?;
        drop(out);
        file.sync_all()?;
        *content = Staged::at(place.clone(), file, number, content.len()).into();
    }
    disk.sync_folder(&path_in(&path, ""))?;
    Ok(entries)
}

/// An entry of a journal in `folder` with its content, if that is staged; with `holds` the content is read into memory. None if it
/// has been renamed to its place already.
///
/// # Errors
/// The content is neither staged nor in its place, or cannot be read, or the folder is not prepivot's own.
pub(super) fn find(disk: &Disk, folder: &str, entry: &Entry, holds: bool) -> io::Result<Option<Entry>> {
    let mut entry = entry.clone();
    let resolved = entry.change.resolved().to_owned();
    let Change::Write { content, .. } = &mut entry.change else { return Ok(Some(entry)) };
    let Some(&Staged { number, length, .. }) = content.staged() else { return Ok(Some(entry)) };
    let place = match disk.open_at(&path_in(folder, STAGED), OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::NOENT) => None,
        place => Some(place?),
    };
    if let Some(place) = place {
        let stat = fs::fstat(&place)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::other("the folder of its content is not one that prepivot made"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&place, number.to_string(), flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            file => {
                let file = File::from(file?);
                let meta = file.metadata()?;
                if !meta.is_file() || meta.len() != length {
                    return Err(io::Error::other("its content is not the one that was written"));
                }
                *content = if holds {
                    let mut bytes = Vec::new();
                    (&file).read_to_end(&mut bytes)?;
                    bytes.into()
                } else {
                    Staged::at(Arc::new(place), file, number, length).into()
                };
                return Ok(Some(entry));
            }
        }
    }
    match disk.stat(&resolved) {
        Some(stat) if stat.kind == FileKind::File && stat.size == length => Ok(None),
        _ => Err(io::Error::other("its content is gone")),
    }
}

/// Removes the folder beside a journal in `folder`, with what is left in it.
///
/// # Errors
/// It cannot be removed.
pub(super) fn remove(disk: &Disk, folder: &str) -> io::Result<()> {
    disk.remove(&path_in(folder, STAGED))
}
