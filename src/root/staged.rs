//! A content that is staged on the disk: a file that [`super::staging`] wrote.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How many bytes are read at a time.
const BUFFER: usize = 64 << 10;

/// A content in the folder beside a journal.
pub(super) struct Staged {
    /// The file's name.
    pub(super) number: u32,
    /// In bytes.
    pub(super) length: u64,
    /// The folder, and the file open for reading. None if the journal was read but the file not opened.
    place: Option<(Arc<OwnedFd>, File)>,
}

impl Staged {
    /// The content in `file`, the file `number` of `folder`.
    pub(super) fn at(folder: Arc<OwnedFd>, file: File, number: u32, length: u64) -> Staged {
        Staged { number, length, place: Some((folder, file)) }
    }

    /// Staged content, as a journal names it.
    pub(super) fn named(number: u32, length: u64) -> Staged {
        Staged { number, length, place: None }
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// Those of `out`, or the file cannot be read or has fewer bytes.
    pub(super) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let (_, file) = self.place()?;
        let mut part = vec![0; BUFFER];
        let mut at = 0;
        while at < self.length {
            let wanted = usize::try_from(self.length - at).unwrap_or(BUFFER).min(BUFFER);
            let count = file.read_at(part.get_mut(..wanted).unwrap_or_default(), at)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out.write_all(part.get(..count).unwrap_or_default())?;
            at += count as u64;
        }
        Ok(())
    }

    /// The open file, whose attributes can be set.
    ///
    /// # Errors
    /// It was not looked for.
    pub(super) fn file(&self) -> io::Result<&File> {
        self.place().map(|(_, file)| file)
    }

    /// Renames the file to `name` in the folder `to`.
    ///
    /// # Errors
    /// Those of rename(2).
    pub(super) fn rename(&self, to: impl AsFd, name: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.place()?.0, self.number.to_string(), to, name)?)
    }

    fn place(&self) -> io::Result<&(Arc<OwnedFd>, File)> {
        self.place.as_ref().ok_or_else(|| io::Error::other("its content is not there"))
    }
}
