//! gzip with a bound on what comes out.

use crate::base::error::{Error, Result};
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read, Write};

/// The first bytes of a gzip member (RFC 1952, 2.3.1).
const MAGIC: &[u8] = &[0x1f, 0x8b];

/// Whether data begins as gzip does.
pub fn is_gzip(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// Unpacks every member of `data` (RFC 1952, 2.2); zero bytes after the last are padding.
///
/// # Errors
/// Data that is not gzip, is cut short, has a wrong check sum or something after it, or unpacks to more than `limit` bytes.
pub fn unpack(data: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    unpack_to(&mut &*data, limit, &mut out).map(|()| out).map_err(|e| Error::new(e.to_string()))
}

/// Writes what [`unpack`] gives, piece by piece.
///
/// # Errors
/// As [`unpack`], and those of `out`.
pub fn unpack_to(input: &mut dyn BufRead, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut part = vec![0; 16 << 10];
    let mut left = limit;
    loop {
        let mut decoder = GzDecoder::new(&mut *input);
        loop {
            let count = decoder.read(&mut part).map_err(|_| io::Error::other("not valid gzip, or cut short"))?;
            if count == 0 {
                break;
            }
            let rest = left.checked_sub(count);
            left = rest.ok_or_else(|| io::Error::other(format!("unpacks to more than {limit} bytes")))?;
            out.write_all(part.get(..count).unwrap_or_default())?;
        }
        loop {
            let rest = input.fill_buf()?;
            let zeros = rest.iter().take_while(|b| **b == 0).count();
            if rest.is_empty() {
                return Ok(());
            }
            let is_padding = zeros == rest.len();
            input.consume(zeros);
            if !is_padding {
                break;
            }
        }
    }
}

/// `data` as gzip: for tests.
#[cfg(test)]
pub fn pack(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_padding() {
        let mut data = pack(b"one ");
        data.extend(pack(b"two"));
        assert_eq!(unpack(&data, 100).unwrap(), b"one two");
        data.extend([0, 0, 0]);
        assert_eq!(unpack(&data, 7).unwrap(), b"one two");
        data.extend(b"garbage");
        assert!(unpack(&data, 100).is_err());
    }

    #[test]
    fn a_bomb_stops_at_the_bound() {
        let bomb = pack(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(unpack(&bomb, 1 << 20).unwrap_err().to_string(), "unpacks to more than 1048576 bytes");
        assert!(unpack(&bomb[..bomb.len() - 4], 20 << 20).is_err());
        assert!(unpack(b"", 10).is_err());
        assert!(unpack(&[0x1f, 0x8b], 10).is_err());
    }
}
