//! Reads at an offset, and decodes numbers in untrusted bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any offset: a block device, an image file, or memory.
pub trait ReadAt {
    /// Reads up to `buf.len()` bytes from `offset`. Returns how many; fewer only at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// `size` bytes from `offset`; an error if there are fewer. The caller bounds `size`.
    fn bytes(&self, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; size];
        match self.read_at(offset, &mut buf)? {
            n if n == size => Ok(buf),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ends before byte {offset} + {size}"))),
        }
    }
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buf)
    }
}

/// The `N` bytes at `at`.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The byte at `at`.
pub fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// The little-endian 16-bit number at `at`.
pub fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

/// The little-endian 32-bit number at `at`.
pub fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// Decodes UTF-16 units; invalid ones become U+FFFD.
pub fn utf16(units: impl IntoIterator<Item = u16>) -> String {
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Decodes big-endian UTF-16; an odd last byte is dropped.
pub fn utf16_be(bytes: &[u8]) -> String {
    utf16(bytes.chunks_exact(2).filter_map(|pair| array(pair, 0).map(u16::from_be_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_past_the_end_are_none() {
        let bytes = [1u8, 2, 3, 4, 5];
        assert_eq!(le32(&bytes, 1), Some(0x0504_0302));
        assert_eq!(le32(&bytes, 2), None);
        assert_eq!(le16(&bytes, usize::MAX), None);
        assert_eq!(array::<4>(&bytes, 0), Some([1, 2, 3, 4]));
    }

    #[test]
    fn memory_and_files_read_alike() {
        let dir = crate::base::testing::TempDir::new("bytes");
        let path = dir.0.join("f");
        std::fs::write(&path, b"0123456789").unwrap();
        let (file, memory) = (File::open(&path).unwrap(), &b"0123456789"[..]);
        for (offset, size) in [(0, 10), (3, 4), (9, 1), (9, 2), (10, 1), (u64::MAX, 1)] {
            let (a, b) = (file.bytes(offset, size), memory.bytes(offset, size));
            assert_eq!(a.as_ref().ok(), b.as_ref().ok(), "{offset} + {size}");
        }
        assert_eq!(memory.bytes(3, 4).unwrap(), b"3456");
        assert!(memory.bytes(9, 2).is_err());
    }
}
