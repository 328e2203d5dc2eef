//! Writes tar archives (POSIX.1, "ustar Interchange Format"; GNU tar, "Basic Tar Format").

use crate::base::crc32::crc32;

/// The unit of an archive, in bytes.
const BLOCK: usize = 512;
/// The longest name that fits into a header, in bytes.
const MAX_NAME: usize = 100;
/// The name and type of an entry that contains the long name of the next one.
const LONG_NAME: (&str, u8) = ("././@LongLink", b'L');
/// The most bytes of an uncompressed deflate block (RFC 1951, section 3.2.4).
const MAX_STORED: usize = 0xffff;

/// An archive being written.
#[derive(Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// Adds a file owned by root at the relative path `name`. `modified`: seconds since 1970.
    pub fn file(&mut self, name: &str, mode: u32, modified: u64, content: &[u8]) {
        if name.len() > MAX_NAME {
            let (long, kind) = LONG_NAME;
            self.entry(long, kind, 0o644, 0, &[name.as_bytes(), b"\0"].concat());
        }
        self.entry(name, b'0', mode, modified, content);
    }

    fn entry(&mut self, name: &str, kind: u8, mode: u32, modified: u64, content: &[u8]) {
        let (mode, size) = (format!("{mode:07o}"), format!("{:011o}", content.len()));
        let modified = format!("{modified:011o}");
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| {
            header.iter_mut().skip(at).zip(text).for_each(|(place, byte)| *place = *byte);
        };
        put(0, name.as_bytes().get(..MAX_NAME).unwrap_or(name.as_bytes()));
        for (at, text) in [(100, mode.as_str()), (108, "0000000"), (116, "0000000"), (124, &size), (136, &modified)] {
            put(at, text.as_bytes());
        }
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar  ");
        for at in [265, 297] {
            put(at, b"root");
        }
        // The checksum counts its own field as spaces.
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        let sum = format!("{sum:06o}\0 ");
        header.iter_mut().skip(148).zip(sum.bytes()).for_each(|(place, byte)| *place = byte);
        self.0.extend(header);
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// The archive's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * BLOCK]);
        self.0
    }
}

/// The content of an archive's first regular file whose path ends with `end` (POSIX.1-2017, pax, "ustar Interchange Format"). None if
/// there is none, or the archive ends before the file does.
pub fn member<'a>(archive: &'a [u8], end: &str) -> Option<&'a [u8]> {
    let mut rest = archive;
    loop {
        let (header, content) = rest.split_at_checked(BLOCK)?;
        let field = |at: usize, length: usize| {
            let bytes = header.get(at..at + length).unwrap_or_default();
            std::str::from_utf8(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).ok()
        };
        let size = usize::from_str_radix(field(124, 12)?.trim(), 8).ok()?;
        if matches!(header.get(156), Some(b'0' | 0)) && field(0, 100)?.ends_with(end) {
            return content.get(..size);
        }
        rest = content.get(size.checked_next_multiple_of(BLOCK)?..)?;
    }
}

/// Bytes in gzip format (RFC 1952), uncompressed: for systems without gzip. Compression here would take 32
/// KB.
pub fn stored_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = bytes.chunks(MAX_STORED).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc32(bytes).to_le_bytes());
    // The length is stored modulo 2^32.
    out.extend(bytes.len().to_le_bytes().iter().take(4));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::process::Command;

    #[test]
    fn tar_unpacks_it() {
        let dir = TempDir::new("tar");
        let long = format!("top/{}/{}", "d".repeat(120), "f".repeat(90));
        let files =
            [("top/empty", Vec::new()), ("top/a/b", vec![7; 512]), ("top/c", vec![9; 100_001]), (&long, b"x".to_vec())];
        let mut archive = Archive::default();
        for (name, content) in &files {
            archive.file(name, 0o640, 1_700_000_000, content);
        }
        let path = dir.0.join("x.tar.gz");
        std::fs::write(&path, stored_gzip(&archive.finish())).unwrap();
        let tar = |args: &[&str]| Command::new("tar").args(args).arg("-f").arg(&path).arg("-C").arg(&dir.0).output();
        let Ok(listed) = tar(&["-tvz"]) else { return crate::base::testing::skip("there is no tar") };
        let text = String::from_utf8_lossy(&listed.stdout).into_owned() + &String::from_utf8_lossy(&listed.stderr);
        assert!(text.contains("-rw-r----- root/root") && text.contains("100001 2023-11-1"), "{text}");
        assert!(tar(&["-xz", "--no-same-owner"]).unwrap().status.success());
        for (name, content) in files {
            assert_eq!(std::fs::read(dir.0.join(name)).unwrap(), content, "{name}");
        }
    }

    #[test]
    fn member_is_found_by_its_path() {
        let mut archive = Archive::default();
        for (name, content) in [("top/a.log", &b"1"[..]), ("top/b.log", &[7; 600]), ("top/c/b.log", b"3")] {
            archive.file(name, 0o600, 1, content);
        }
        let archive = archive.finish();
        assert_eq!(member(&archive, "/a.log"), Some(&b"1"[..]));
        assert_eq!(member(&archive, "/b.log").map(<[u8]>::len), Some(600));
        assert_eq!(member(&archive, "/d.log"), None);
        for end in 0..archive.len() {
            let cut = &archive[..end];
            assert!(member(cut, "/b.log").is_none_or(|found| found.len() == 600));
        }
    }
}
