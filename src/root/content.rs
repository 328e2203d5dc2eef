//! The content of a file to be written.

use super::staged::Staged;
use crate::document::{Bytes, Text};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Generated content of up to this many bytes is held in memory.
const HELD: u64 = 64 << 10;

type Make = dyn Fn(&mut dyn Write) -> io::Result<()> + Send + Sync;

/// The bytes of a file: shared by all copies, generated anew each time that they are written, or staged on the disk.
#[derive(Clone)]
pub struct Content(Source);

#[derive(Clone)]
enum Source {
    Bytes(Bytes),
    Text(Text),
    Made {
        length: u64,
        make: Arc<Make>,
    },
    Staged(Arc<Staged>),
    /// Contents one after the other. What is added to a file piece by piece is not copied for each.
    Joined {
        length: u64,
        pieces: Arc<Vec<Content>>,
    },
}

impl Content {
    /// Content that `make` writes; it must write the same bytes each time. Short content is held in memory.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn made(make: impl Fn(&mut dyn Write) -> io::Result<()> + Send + Sync + 'static) -> io::Result<Content> {
        let mut short = Short::default();
        make(&mut short)?;
        Ok(Content(match short.length {
            ..=HELD => Source::Bytes(short.held.into()),
            length => Source::Made { length, make: Arc::new(make) },
        }))
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Text(text) => text.len() as u64,
            Source::Made { length, .. } | Source::Joined { length, .. } => *length,
            Source::Staged(staged) => staged.length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.0 {
            Source::Bytes(bytes) => out.write_all(bytes),
            Source::Text(text) => out.write_all(text.as_bytes()),
            Source::Made { make, .. } => make(out),
            Source::Staged(staged) => staged.write_to(out),
            Source::Joined { pieces, .. } => pieces.iter().try_for_each(|piece| piece.write_to(out)),
        }
    }

    /// How many bytes are in memory for it alone: not those of a document, which has them anyway.
    pub(super) fn held(&self) -> usize {
        match &self.0 {
            Source::Bytes(bytes) if !bytes.is_shared() => bytes.len(),
            Source::Text(text) if !text.is_shared() => text.len(),
            _ => 0,
        }
    }

    /// Adds more at the end.
    pub(super) fn push(&mut self, more: Content) {
        let sum = self.len() + more.len();
        if let Source::Joined { length, pieces } = &mut self.0 {
            *length = sum;
            Arc::make_mut(pieces).push(more);
        } else {
            let first = std::mem::replace(self, Vec::new().into());
            self.0 = Source::Joined { length: sum, pieces: Arc::new(vec![first, more]) };
        }
    }

    /// The staged file on the disk. None if the bytes are not staged.
    pub(super) fn staged(&self) -> Option<&Staged> {
        match &self.0 {
            Source::Staged(staged) => Some(staged),
            _ => None,
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // It cannot fail: it succeeded once, and a Vec accepts everything.
        let _ = self.write_to(&mut bytes);
        bytes
    }

    /// Whether `file` has exactly these bytes.
    pub(super) fn is_all_of(&self, file: &mut dyn Read) -> bool {
        let mut compared = Compared(file);
        self.write_to(&mut compared).is_ok() && matches!(compared.0.read(&mut [0]), Ok(0))
    }
}

impl From<Staged> for Content {
    fn from(staged: Staged) -> Content {
        Content(Source::Staged(Arc::new(staged)))
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Bytes::from(bytes).into()
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Content {
        bytes.to_vec().into()
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        text.into_bytes().into()
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        text.as_bytes().into()
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Content {
        Content(Source::Bytes(bytes))
    }
}

impl From<Text> for Content {
    fn from(text: Text) -> Content {
        Content(Source::Text(text))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        match (&self.0, &other.0) {
            (Source::Bytes(one), Source::Bytes(two)) => one == two,
            (Source::Text(one), Source::Text(two)) => one == two,
            _ => self.len() == other.len() && self.to_vec() == other.to_vec(),
        }
    }
}

impl Eq for Content {}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        String::from_utf8_lossy(&self.to_vec()).fmt(f)
    }
}

/// Counts the bytes written, and keeps them while they are few.
#[derive(Default)]
struct Short {
    held: Vec<u8>,
    length: u64,
}

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        if self.length <= HELD {
            self.held.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compares the written bytes with the reader's; a difference is an error.
struct Compared<'a>(&'a mut dyn Read);

impl Write for Compared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut old = [0; 4096];
        let (new, old) = (bytes.get(..old.len()).unwrap_or(bytes), &mut old);
        let old = old.get_mut(..new.len()).unwrap_or_default();
        self.0.read_exact(old)?;
        if old == new { Ok(new.len()) } else { Err(io::Error::other("another content")) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_content() {
        let mut all = Content::from("a");
        (0..3).for_each(|i| all.push(Content::made(move |out| write!(out, "{i}")).unwrap()));
        let before = all.clone();
        all.push("z".into());
        assert_eq!((all.len(), all.to_vec(), before.to_vec()), (5, b"a012z".to_vec(), b"a012".to_vec()));
        assert_eq!(all, "a012z".into());
        assert!(all.is_all_of(&mut b"a012z".as_slice()) && !all.is_all_of(&mut b"a012".as_slice()));
    }

    #[test]
    fn regenerates_long_content() {
        for (length, held) in [(0, true), (HELD, true), (HELD + 1, false), (300_000, false)] {
            let lines = move |out: &mut dyn Write| (0..length).try_for_each(|i| out.write_all(&[i as u8]));
            let made = Content::made(lines).unwrap();
            assert_eq!(matches!(made.0, Source::Bytes(_)), held);
            let all: Vec<u8> = (0..length).map(|i| i as u8).collect();
            assert_eq!((made.len(), made.to_vec()), (length, all.clone()));
            assert_eq!(made, all.clone().into());
            assert!(made.is_all_of(&mut all.as_slice()));
            assert!(!made.is_all_of(&mut [all.as_slice(), b"x"].concat().as_slice()));
            assert_eq!(made.is_all_of(&mut all.get(1..).unwrap_or_default()), length == 0);
        }
        assert!(Content::made(|_| Err(io::Error::other("no"))).is_err());
    }
}
