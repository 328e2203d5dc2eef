//! Base64 (RFC 4648, section 4), by the crate `base64ct`.

use base64ct::{Base64, Base64Unpadded, Encoding};
use std::fmt;

/// How many bytes [`Marked`] encodes at a time: a multiple of three.
const BLOCK: usize = 3 << 10;

/// Encodes in one line, with padding.
pub fn encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// A prefix and the base64 of bytes, written block by block.
pub struct Marked<'a>(pub &'a str, pub &'a [u8]);

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.chunks(BLOCK).try_for_each(|block| f.write_str(&encode(block)))
    }
}

/// Decodes exactly what [`encode`] produces: padded, without white space, without stray bits. None for
/// anything else.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    Base64::decode_vec(std::str::from_utf8(text).ok()?).ok()
}

/// The same for base64 in one line or several: white space is left out.
pub fn decode_lines(text: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    decode(&letters)
}

/// [`decode`] without padding.
pub fn decode_unpadded(text: &str) -> Option<Vec<u8>> {
    Base64Unpadded::decode_vec(text).ok()
}

/// Decodes up to the first `=`. Bytes outside the alphabet are skipped; an incomplete end is dropped.
pub fn decode_loosely(text: &[u8]) -> Vec<u8> {
    let mut letters = Vec::with_capacity(text.len().next_multiple_of(4));
    letters.extend(text.iter().take_while(|b| **b != b'=').filter(|b| is_letter(**b)));
    // Each character has six bits; the bits after the last whole byte are ignored.
    let bytes = letters.len() * 6 / 8;
    letters.resize(letters.len().next_multiple_of(4), b'A');
    let mut out = decode(&letters).unwrap_or_default();
    out.truncate(bytes);
    out
}

/// Decodes like [`decode_loosely`], but only what is base64 apart from white space, other characters in
/// between, and missing or excess padding. None if it is truncated or not base64.
pub fn decode_leniently(text: &[u8]) -> Option<Vec<u8>> {
    let letters = text.iter().take_while(|b| **b != b'=').filter(|b| is_letter(**b)).count();
    let is_whole = letters > 0 && (letters % 4 == 0 || text.contains(&b'='));
    let is_plain = text.iter().all(|b| is_letter(*b) || *b == b'=' || b.is_ascii_whitespace());
    (letters % 4 != 1 && (is_whole || is_plain)).then(|| decode_loosely(text))
}

/// Whether a byte is in the alphabet.
pub fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_before_they_are_decoded() {
        assert_eq!(decode_lines(b" Zm9v\r\n\tYmFy\n").as_deref(), Some(&b"foobar"[..]));
        assert_eq!((decode_lines(b"Zm9v-"), decode(b"Zm9v\n")), (None, None));
    }

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
            assert_eq!(decode_loosely(format!(" {}\n", text.trim_end_matches('=')).as_bytes()), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
        assert!(encode(&[0xfb, 0xff]).starts_with("+/"));
    }

    #[test]
    fn what_is_almost_base64() {
        for text in ["Zm9v", " Zm\n9v\r\n", "Zm.9v", "Zm9v=="] {
            assert_eq!(decode_leniently(text.as_bytes()).unwrap(), b"foo", "{text}");
        }
        for text in ["Zg==", "Zg", "Zg=", "Zh==", "Z%g=="] {
            assert_eq!(decode_leniently(text.as_bytes()).unwrap(), b"f", "{text}");
        }
        for text in ["Z", "Zm9vZ", "%secret", "Z===", "%%%"] {
            assert_eq!(decode_leniently(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode_leniently(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_not_exactly_base64_is_none() {
        for text in
            ["Zg", "Zg=", "Zg===", "Z", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "=", "Zg==Zg==", "Zm9v=", "Zm-_", "Zmé="]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
