//! gzip with a bound on what comes out.

use crate::base::error::{Error, Result};
use flate2::bufread::GzDecoder;
use std::io::Read;

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
    let mut rest = data;
    loop {
        let room = (limit - out.len()) as u64;
        let mut decoder = GzDecoder::new(rest);
        let mut bounded = decoder.by_ref().take(room + 1);
        bounded.read_to_end(&mut out).map_err(|_| Error::new("not valid gzip, or cut short"))?;
        if out.len() > limit {
            return Err(Error::new(format!("unpacks to more than {limit} bytes")));
        }
        rest = decoder.into_inner();
        while let [0, after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            return Ok(out);
        }
    }
}

/// `data` as gzip: for tests.
#[cfg(test)]
pub fn pack(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
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
