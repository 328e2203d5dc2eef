//! gzip, with a limit on the decompressed size and on the work.

use crate::base::error::{Error, Result};
use crate::base::{budget, crc32};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::io::{self, BufRead, Write};

/// The first bytes of a gzip member (RFC 1952, 2.3.1).
const MAGIC: &[u8] = &[0x1f, 0x8b];
/// The only compression method.
const DEFLATE: u8 = 8;
/// Flags of a header's optional parts (RFC 1952, 2.3.1).
const HEADER_SUM: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
/// The size of deflate's window, in bytes (RFC 1951, 2).
const WINDOW: usize = 32 << 10;
/// The most bytes of deflate in a row that may unpack to nothing: no program writes more.
const MAX_SILENT: usize = 64 << 10;
/// The steps of a block, which has tables of its own, and how many bytes are unpacked in one step.
const BLOCK_STEPS: usize = 60;
const STEP_BYTES: usize = 64;

/// Whether data begins like gzip.
pub fn is_gzip(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// Decompresses every member of `data` (RFC 1952, 2.2); zero bytes after the last are padding.
///
/// # Errors
/// The data is not gzip, is truncated, has a wrong checksum or trailing data, or decompresses to more than
/// `limit` bytes; or it takes too many steps.
pub fn unpack(data: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    // Reserves the last member's length, if that is plausible: a buffer that grows is in memory twice. If there is no room, it has
    // to grow.
    let length = data.last_chunk().map_or(0, |last| u32::from_le_bytes(*last));
    let _ = out.try_reserve_exact(usize::try_from(length).unwrap_or(limit).min(limit));
    unpack_to(&mut &*data, limit, &mut out).map_err(|e| Error::new(e.to_string()))?;
    out.shrink_to_fit();
    Ok(out)
}

/// Writes what [`unpack`] returns, piece by piece.
///
/// # Errors
/// As [`unpack`], and those of `out`.
pub fn unpack_to(input: &mut dyn BufRead, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    unpack_for(&budget::step, input, limit, out)
}

/// Like [`unpack_to`], for what was unpacked before: its steps are paid for.
///
/// # Errors
/// As [`unpack_to`].
pub fn unpack_again(input: &mut dyn BufRead, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    unpack_for(&|_| Ok(()), input, limit, out)
}

fn unpack_for(
    step: &dyn Fn(usize) -> Result<()>,
    input: &mut dyn BufRead,
    limit: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut decoder = Box::<DecompressorOxide>::default();
    let mut window = vec![0; WINDOW];
    let mut left = limit;
    let mut silent = 0;
    loop {
        header(input)?;
        decoder.init();
        let (mut sum, mut length, mut at) = (0, 0_u32, 0);
        loop {
            let packed = input.fill_buf()?;
            let more = if packed.is_empty() { 0 } else { TINFL_FLAG_HAS_MORE_INPUT };
            let flags = more | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
            let (status, read, written) = decompress(&mut decoder, packed, &mut window, at, flags);
            input.consume(read);
            silent = if written > 0 { 0 } else { silent + read };
            if silent > MAX_SILENT {
                return Err(io::Error::other(format!("{MAX_SILENT} bytes in a row unpack to nothing")));
            }
            step(BLOCK_STEPS + written / STEP_BYTES).map_err(|e| io::Error::other(e.to_string()))?;
            let rest = left.checked_sub(written);
            left = rest.ok_or_else(|| io::Error::other(format!("unpacks to more than {limit} bytes")))?;
            let piece = window.get(at..at + written).unwrap_or_default();
            out.write_all(piece)?;
            sum = crc32::add(sum, piece);
            // The length is stored modulo 2^32.
            length = length.wrapping_add(u32::try_from(written).unwrap_or_default());
            at = (at + written) % WINDOW;
            match status {
                TINFLStatus::Done => break,
                TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput | TINFLStatus::BlockBoundary => {}
                _ => return Err(invalid()),
            }
        }
        if [number(input)?, number(input)?] != [sum, length] {
            return Err(invalid());
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

/// Reads a member's header (RFC 1952, 2.3), whose content is not needed.
fn header(input: &mut dyn BufRead) -> io::Result<()> {
    let [first, second, method, flags, ..] = bytes::<10>(input)?;
    if [first, second] != *MAGIC || method != DEFLATE {
        return Err(invalid());
    }
    if flags & EXTRA != 0 {
        for _ in 0..u16::from_le_bytes(bytes(input)?) {
            bytes::<1>(input)?;
        }
    }
    for text in [NAME, COMMENT] {
        while flags & text != 0 && bytes(input)? != [0] {}
    }
    if flags & HEADER_SUM != 0 {
        bytes::<2>(input)?;
    }
    Ok(())
}

fn number(input: &mut dyn BufRead) -> io::Result<u32> {
    bytes(input).map(u32::from_le_bytes)
}

fn bytes<const N: usize>(input: &mut dyn BufRead) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(|_| invalid())?;
    Ok(bytes)
}

fn invalid() -> io::Error {
    io::Error::other("not valid gzip, or cut short")
}

/// Compresses `data`, for tests.
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

    /// Gives one byte at a time.
    struct Drop<'a>(&'a [u8]);

    impl io::Read for Drop<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = to.len().min(1);
            self.0.read(&mut to[..count])
        }
    }

    impl BufRead for Drop<'_> {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            Ok(&self.0[..self.0.len().min(1)])
        }

        fn consume(&mut self, count: usize) {
            self.0 = &self.0[count..];
        }
    }

    /// Text that compresses a little, longer than the window.
    fn long() -> Vec<u8> {
        (0..20_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_string().into_bytes()).collect()
    }

    #[test]
    fn pieces_of_any_size() {
        let data = [pack(&long()), pack(b""), pack(b"last"), vec![0; 3]].concat();
        let expected = [&long()[..], b"last"].concat();
        assert_eq!(unpack(&data, usize::MAX).unwrap(), expected);
        let mut out = Vec::new();
        unpack_to(&mut Drop(&data), usize::MAX, &mut out).unwrap();
        assert_eq!(out, expected);
        for cut in (0..20).chain([100, 5000, 60_000]) {
            let packed = pack(&long());
            assert!(unpack(&packed[..packed.len() - 1 - cut], usize::MAX).is_err(), "{cut}");
        }
    }

    #[test]
    fn every_part_of_a_header() {
        let plain = pack(b"text");
        let header = [0x1f, 0x8b, 8, EXTRA | NAME | COMMENT | HEADER_SUM, 0, 0, 0, 0, 0, 3];
        let whole = [&header[..], b"\x03\0abc", b"a name\0", b"\0", b"\x12\x34", &plain[10..]].concat();
        assert_eq!(unpack(&whole, 4).unwrap(), b"text");
        for (at, value) in [(0, 0x1e), (2, 7), (plain.len() - 1, 1), (plain.len() - 5, plain[plain.len() - 5] ^ 1)] {
            let mut wrong = plain.clone();
            wrong[at] = value;
            assert_eq!(unpack(&wrong, 4).unwrap_err().to_string(), "not valid gzip, or cut short", "{at}");
        }
    }

    /// Deflate's blocks of fixed codes without a byte in them, `count` times four: each is ten bits. Then one with an `a`, the last.
    fn empty_blocks(count: usize) -> Vec<u8> {
        let mut data = [MAGIC, &[DEFLATE, 0, 0, 0, 0, 0, 0, 3]].concat();
        // Four times the bits of "not the last, fixed codes, end": 0, 1 0, seven zeros.
        data.extend([0x02, 0x08, 0x20, 0x80, 0x00].repeat(count));
        data.extend([0x4b, 0x04, 0x00]);
        data.extend(crc32::add(0, b"a").to_le_bytes());
        data.extend([1, 0, 0, 0]);
        data
    }

    #[test]
    fn refuses_input_that_unpacks_to_nothing() {
        let few = empty_blocks(MAX_SILENT / 5);
        assert_eq!(unpack(&few, 10).unwrap(), b"a");
        let error = unpack(&empty_blocks(MAX_SILENT / 5 + 1), 10).unwrap_err().to_string();
        assert_eq!(error, "65536 bytes in a row unpack to nothing");
        while budget::step(1_000_000).is_ok() {}
        assert_eq!(unpack(&few, 10).unwrap_err().to_string(), "all documents together take too many steps");
        let mut out = Vec::new();
        unpack_again(&mut &*few, 10, &mut out).unwrap();
        assert_eq!(out, b"a");
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
