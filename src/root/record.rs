//! Serialises changes, for the journal and for the list of changes that wait for a file system.
//!
//! The format: a header (magic, version, number of entries, length), the entries, and the SHA-256 of
//! everything before it. Numbers are little-endian; strings and contents are preceded by their length. A
//! record is checked in full before any of it is used.

use super::staged::Staged;
use super::{Attr, Change, Content, Over};
use crate::base::digest::{SHA256_LEN, Sha256};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};

const MAGIC: [u8; 16] = *b"prepivot-journal";
/// The format's versions: without staged contents, and with them. A journal of another version is not carried out; it stays for the
/// program that wrote it.
const VERSIONS: [u32; 2] = [1, 2];
const HEADER: u64 = 16 + 4 + 4 + 8;
/// The largest record that is written or read, in bytes.
pub(super) const MAX_RECORD: u64 = 256 << 20;
/// The most entries of one record.
const MAX_ENTRIES: u32 = 1 << 20;
/// How many bytes are hashed and written at a time.
const BUFFER: usize = 256 << 10;
/// How long a path or a link's target may be, in bytes, with its last zero (`PATH_MAX` of Linux's limits.h).
pub const MAX_PATH: usize = 4096;

/// A change, and which file system it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) change: Change,
    /// Whether the change is for the folder below a mount point, which the mount hides: the next boot's
    /// initramfs reads the state there, before anything is mounted.
    pub(super) hidden: bool,
}

const OVERS: [Over; 4] = [Over::Replace, Over::Append, Over::Merge, Over::Keep];

/// Writes the entries as one record.
///
/// # Errors
/// There is more than [`MAX_RECORD`] allows, or `out` fails.
pub(super) fn write(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    let length = length(entries);
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    if length > MAX_RECORD || count > MAX_ENTRIES {
        return Err(io::Error::other(format!("the changes are larger than {MAX_RECORD} bytes")));
    }
    let mut out = BufWriter::with_capacity(BUFFER, Hashing { out, digest: Sha256::new() });
    out.write_all(&MAGIC)?;
    let [plain, with_staged] = VERSIONS;
    let version = if entries.iter().any(|e| staged_of(&e.change).is_some()) { with_staged } else { plain };
    out.write_all(&version.to_le_bytes())?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&(length - HEADER).to_le_bytes())?;
    for entry in entries {
        put(&mut out, entry)?;
    }
    out.flush()?;
    let (Hashing { out, digest }, _) = out.into_parts();
    out.write_all(digest.finish().as_ref())
}

/// The length of the entries' record in bytes, without its checksum.
pub(super) fn length(entries: &[Entry]) -> u64 {
    let one = |entry: &Entry| {
        let more = match &entry.change {
            Change::Write { content, .. } if content.staged().is_some() => 12 + 8 + 4,
            Change::Write { content, .. } => 12 + 8 + content.len() as usize,
            Change::Mkdir { .. } | Change::Chown { .. } | Change::Chmod { .. } => 12,
            Change::Symlink { target, .. } => 4 + target.len(),
            Change::Remove { .. } => 0,
        };
        (2 + 4 + entry.change.path().len() + more) as u64
    };
    HEADER + entries.iter().map(one).sum::<u64>()
}

/// The content of a change, if it is staged.
fn staged_of(change: &Change) -> Option<&Staged> {
    match change {
        Change::Write { content, .. } => content.staged(),
        _ => None,
    }
}

fn put(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let text = |out: &mut dyn Write, text: &str| {
        out.write_all(&(text.len() as u32).to_le_bytes())?;
        out.write_all(text.as_bytes())
    };
    let attributes = |out: &mut dyn Write, attr: &Attr| {
        [attr.mode, attr.uid, attr.gid].iter().try_for_each(|n| out.write_all(&n.to_le_bytes()))
    };
    let (kind, over) = match &entry.change {
        Change::Write { .. } if staged_of(&entry.change).is_some() => (6, 0),
        Change::Write { over, .. } => (0, OVERS.iter().position(|o| o == over).unwrap_or(0) as u8),
        Change::Mkdir { .. } => (1, 0),
        Change::Symlink { .. } => (2, 0),
        Change::Remove { .. } => (3, 0),
        Change::Chown { .. } => (4, 0),
        Change::Chmod { .. } => (5, 0),
    };
    out.write_all(&[kind, over << 1 | u8::from(entry.hidden)])?;
    text(out, entry.change.path())?;
    match &entry.change {
        Change::Write { content, attr, .. } => {
            attributes(out, attr)?;
            out.write_all(&(content.len()).to_le_bytes())?;
            match content.staged() {
                Some(staged) => out.write_all(&staged.number.to_le_bytes()),
                None => content.write_to(out),
            }
        }
        Change::Mkdir { attr, .. } | Change::Chown { attr, .. } | Change::Chmod { attr, .. } => attributes(out, attr),
        Change::Symlink { target, .. } => text(out, target),
        Change::Remove { .. } => Ok(()),
    }
}

struct Hashing<'a, W> {
    out: &'a mut W,
    digest: Sha256,
}

impl<W: Write> Write for Hashing<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.digest.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A record with a valid checksum, read one entry at a time.
pub(super) struct Record<R> {
    input: io::Take<BufReader<R>>,
    left: u32,
}

impl<R: Read + Seek> Record<R> {
    /// Reads the record once to check its length and checksum. None if it is not a complete record.
    ///
    /// # Errors
    /// `file` cannot be read, or has another version's record.
    pub(super) fn open(mut file: R) -> io::Result<Option<Record<R>>> {
        let size = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let body = size.saturating_sub(HEADER + SHA256_LEN as u64);
        let mut input = BufReader::with_capacity(64 << 10, file);
        let mut header = [0; HEADER as usize];
        match input.read_exact(&mut header) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let mut fields = header.as_slice();
        let magic: [u8; 16] = array(&mut fields)?;
        let version = u32::from_le_bytes(array(&mut fields)?);
        let left = u32::from_le_bytes(array(&mut fields)?);
        let length = u64::from_le_bytes(array(&mut fields)?);
        if magic == MAGIC && !VERSIONS.contains(&version) {
            // An initramfs is often older than its root.
            return Err(io::Error::other(
                "another version of prepivot wrote it: let that version read it, or remove it",
            ));
        }
        let fits = length == body && size <= MAX_RECORD + SHA256_LEN as u64 && left <= MAX_ENTRIES;
        if magic != MAGIC || !fits {
            return Ok(None);
        }
        let mut digest = Sha256::new();
        digest.update(&header);
        let mut rest = (&mut input).take(body);
        let mut part = [0; 16 << 10];
        loop {
            match rest.read(&mut part)? {
                0 => break,
                count => digest.update(part.get(..count).unwrap_or_default()),
            }
        }
        let mut sum = [0; SHA256_LEN];
        match input.read_exact(&mut sum) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        if digest.finish().as_ref() != sum {
            return Ok(None);
        }
        input.seek(SeekFrom::Start(HEADER))?;
        Ok(Some(Record { input: input.take(body), left }))
    }

    /// The next entry; None after the last.
    ///
    /// # Errors
    /// It cannot be read, or is not an entry as [`write`] makes it.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let [kind, flags] = array(&mut self.input)?;
        let path = self.path()?;
        let over = OVERS.get(usize::from(flags >> 1)).copied().ok_or_else(malformed)?;
        let change = match kind {
            0 => Change::Write { path, attr: self.attr()?, content: self.content()?, over },
            1 => Change::Mkdir { path, attr: self.attr()? },
            2 => Change::Symlink { path, target: self.text()? },
            3 => Change::Remove { path },
            4 => Change::Chown { path, attr: self.attr()? },
            5 => Change::Chmod { path, attr: self.attr()? },
            6 => {
                let attr = self.attr()?;
                let length = u64::from_le_bytes(array(&mut self.input)?);
                let number = u32::from_le_bytes(array(&mut self.input)?);
                Change::Write { path, attr, content: Staged::named(number, length).into(), over }
            }
            _ => return Err(malformed()),
        };
        Ok(Some(Entry { change, hidden: flags & 1 == 1 }))
    }

    fn attr(&mut self) -> io::Result<Attr> {
        let mut number = || array(&mut self.input).map(u32::from_le_bytes);
        let attr = Attr { mode: number()?, uid: number()?, gid: number()? };
        if attr.mode > 0o7777 { Err(malformed()) } else { Ok(attr) }
    }

    fn content(&mut self) -> io::Result<Content> {
        let length = u64::from_le_bytes(array(&mut self.input)?);
        if length > self.input.limit() {
            return Err(malformed());
        }
        let mut content = Vec::with_capacity(usize::try_from(length).map_err(|_| malformed())?);
        (&mut self.input).take(length).read_to_end(&mut content)?;
        if content.len() as u64 == length { Ok(content.into()) } else { Err(malformed()) }
    }

    fn text(&mut self) -> io::Result<String> {
        let length = u32::from_le_bytes(array(&mut self.input)?) as usize;
        if length > MAX_PATH {
            return Err(malformed());
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes)?;
        String::from_utf8(bytes).ok().filter(|t| !t.contains('\0')).ok_or_else(malformed)
    }

    /// Reads a path: absolute, without `.` and `..`.
    fn path(&mut self) -> io::Result<String> {
        let path = self.text()?;
        let plain = path.strip_prefix('/').is_some_and(|p| p.split('/').all(|part| !matches!(part, "" | "." | "..")));
        if plain { Ok(path) } else { Err(malformed()) }
    }
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map(|()| bytes)
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "not an entry that prepivot writes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::{Algorithm, digest};
    use std::io::Cursor;

    fn entries() -> Vec<Entry> {
        let attr = Attr { mode: 0o2755, uid: 1000, gid: 4_000_000_000 };
        let path = |name: &str| format!("/var/{name} é");
        let write = |name, over| Change::Write { path: path(name), content: vec![0, 255, 10].into(), attr, over };
        let changes = [
            write("r", Over::Replace),
            write("a", Over::Append),
            write("m", Over::Merge),
            write("k", Over::Keep),
            Change::Mkdir { path: path("d"), attr },
            Change::Symlink { path: path("s"), target: "../x\n".into() },
            Change::Remove { path: path("g") },
            Change::Chown { path: path("o"), attr },
            Change::Chmod { path: path("c"), attr },
        ];
        changes.into_iter().enumerate().map(|(i, change)| Entry { change, hidden: i % 2 == 0 }).collect()
    }

    fn read(bytes: &[u8]) -> io::Result<Option<Vec<Entry>>> {
        let Some(mut record) = Record::open(Cursor::new(bytes))? else { return Ok(None) };
        let mut entries = Vec::new();
        while let Some(entry) = record.next()? {
            entries.push(entry);
        }
        Ok(Some(entries))
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(digest(Algorithm::Sha256, &bytes));
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut bytes = Vec::new();
        write(&mut bytes, &entries()).unwrap();
        assert_eq!(bytes.len() as u64, length(&entries()) + 32);
        assert_eq!(read(&bytes).unwrap().unwrap(), entries());
        let mut empty = Vec::new();
        write(&mut empty, &[]).unwrap();
        assert_eq!(read(&empty).unwrap().unwrap(), []);
    }

    #[test]
    fn rejects_a_cut_torn_or_longer_record() {
        let mut bytes = Vec::new();
        write(&mut bytes, &entries()).unwrap();
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 0x40;
            // A file of another version is not removed.
            assert!(if (16..20).contains(&at) { read(&torn).is_err() } else { read(&torn).unwrap().is_none() }, "{at}");
        }
        assert!(read(&[bytes.as_slice(), b"\0"].concat()).unwrap().is_none());
        assert!(read(&[0; 512]).unwrap().is_none());
    }

    #[test]
    fn a_content_is_read_back_whatever_its_length() {
        // The list of waiting changes has the contents of several files.
        let length = crate::root::MAX_READ + 1;
        let zeros = move |out: &mut dyn Write| io::copy(&mut io::repeat(0).take(length), out).map(drop);
        for content in [Content::made(zeros).unwrap(), Staged::named(7, length).into()] {
            let change = Change::Write { path: "/a".into(), content, attr: Attr::root(0o600), over: Over::Replace };
            let mut bytes = Vec::new();
            put(&mut bytes, &Entry { change, hidden: false }).unwrap();
            let body = bytes.len() as u64;
            let mut record = Record { input: BufReader::new(Cursor::new(bytes)).take(body), left: 1 };
            let entry = record.next().unwrap().unwrap();
            assert!(matches!(&entry.change, Change::Write { content, .. } if content.len() == length));
        }
    }

    #[test]
    fn a_checksum_alone_makes_no_entry() {
        let mut bytes = Vec::new();
        let relative = Entry { change: Change::Remove { path: "etc/x".into() }, hidden: false };
        let upwards = Entry { change: Change::Remove { path: "/etc/../x".into() }, hidden: false };
        for entry in [relative, upwards] {
            bytes.clear();
            write(&mut bytes, &[entry]).unwrap();
            assert!(read(&bytes).is_err());
        }
        // Every byte of the entries is replaced in turn: an error or another entry, never a panic or a large allocation.
        bytes.clear();
        write(&mut bytes, &entries()).unwrap();
        bytes.truncate(bytes.len() - 32);
        for at in HEADER as usize..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] = 0xff;
            let _ = read(&sealed(wrong));
        }
    }
}
