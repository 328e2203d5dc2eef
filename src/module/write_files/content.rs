//! The content of an entry: its source, and how it is encoded.

use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::file_url::file_path;
use crate::base::gzip;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::root::Content;
use std::fmt::Display;
use std::io::{BufRead, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The source of the content.
pub(super) enum Source {
    Inline,
    /// A file in the root.
    File(String),
    Http(String),
    Unknown,
}

impl Source {
    /// The source that `source.uri` names.
    pub(super) fn of(map: &Map) -> Source {
        let uri =
            map.get("source").and_then(|s| s.get("uri")).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        if uri.is_empty() {
            return Source::Inline;
        }
        if let Some(path) = file_path(uri).filter(|path| path.starts_with('/')) {
            return Source::File(path.to_owned());
        }
        match uri.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
            Some("http" | "https") => Source::Http(uri.to_owned()),
            _ => Source::Unknown,
        }
    }
}

/// The most bytes of all inline contents together, decoded.
pub(super) const MAX_CONTENTS: usize = 24 << 20;

/// The entry's inline content. It stays encoded and compressed until it is written. None if there is none.
///
/// # Errors
/// It is not a string, cannot be decoded, or is larger than `limit`.
pub(super) fn inline(map: &Map, limit: usize, label: &dyn Display, report: &Problems) -> Result<Option<Content>> {
    let value = match map.get("content") {
        None | Some(Value::Null) => return Ok(None),
        Some(value @ (Value::String(_) | Value::Bytes(_))) => value.clone(),
        Some(value) => value.text().ok_or_else(|| wrong("content", "text or binary data", value))?.into(),
    };
    let encoding = map.get("encoding").and_then(Value::text).unwrap_or_default().trim().to_ascii_lowercase();
    let (is_base64, is_gzip) = match encoding.as_str() {
        "gz" | "gzip" => (false, true),
        "gz+base64" | "gzip+base64" | "gz+b64" | "gzip+b64" => (true, true),
        "b64" | "base64" => (true, false),
        "" | "text/plain" => (false, false),
        _ => {
            report.warn(format_args!("{label}: encoding: expected text/plain, b64, gz or gz+b64: it is taken as text"));
            (false, false)
        }
    };
    if is_base64 {
        check_base64(value.bytes().unwrap_or_default(), label, report)?;
    }
    let content = match value {
        value if is_base64 || is_gzip => {
            // What was unpacked to find its length is not paid for again when it is written.
            let is_known = AtomicBool::new(false);
            let decode = move |out: &mut dyn Write| {
                let bytes = value.bytes().unwrap_or_default();
                let mut decoded: Box<dyn BufRead + '_> =
                    if is_base64 { Box::new(Unbase64::new(bytes)) } else { Box::new(bytes) };
                let unpack = if is_known.swap(true, Relaxed) { gzip::unpack_again } else { gzip::unpack_to };
                if is_gzip { unpack(&mut decoded, limit, out) } else { std::io::copy(&mut decoded, out).map(drop) }
            };
            Content::made(decode).map_err(|e| Error::new(format!("content: {e}")))?
        }
        Value::String(text) => text.into(),
        Value::Bytes(bytes) => bytes.into(),
        _ => return Ok(None),
    };
    if content.len() > limit as u64 {
        return Err(Error::new(format!("content: the entries together hold more than {MAX_CONTENTS} bytes")));
    }
    Ok(Some(content))
}

/// Checks base64; as in Python, characters outside its alphabet are ignored.
fn check_base64(bytes: &[u8], label: &dyn Display, report: &Problems) -> Result<()> {
    let letters = bytes.iter().filter(|b| base64::is_letter(**b)).count();
    let others = bytes.iter().filter(|b| **b == b'=' || b.is_ascii_whitespace()).count();
    if letters + others < bytes.len() {
        report.warn(format_args!("{label}: content: characters that are not base64 are ignored"));
    }
    let padding = bytes.iter().rev().filter(|b| !b.is_ascii_whitespace()).take_while(|b| **b == b'=').count();
    if padding < letters.next_multiple_of(4) - letters {
        return Err(Error::new("content: not valid base64: it is cut off"));
    }
    if letters % 4 == 1 {
        return Err(Error::new("content: not valid base64"));
    }
    Ok(())
}

/// How many base64 characters are decoded at a time: a multiple of four.
const BLOCK: usize = 16 << 10;

/// Decodes base64 block by block.
struct Unbase64<'a> {
    encoded: &'a [u8],
    decoded: Vec<u8>,
    /// How many bytes of `decoded` have been read.
    at: usize,
}

impl<'a> Unbase64<'a> {
    fn new(encoded: &'a [u8]) -> Self {
        Unbase64 { encoded, decoded: Vec::new(), at: 0 }
    }

    /// Decodes a block of base64 characters, ignoring others between them.
    fn decode_between_others(&mut self) -> Vec<u8> {
        let mut letters = Vec::with_capacity(BLOCK);
        while let [byte, rest @ ..] = self.encoded
            && letters.len() < BLOCK
        {
            if base64::is_letter(*byte) {
                letters.push(*byte);
            }
            self.encoded = rest;
        }
        base64::decode_loosely(&letters)
    }
}

impl BufRead for Unbase64<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        while self.at >= self.decoded.len() && !self.encoded.is_empty() {
            let (block, rest) = self.encoded.split_at(BLOCK.min(self.encoded.len()));
            // Most content has no line breaks.
            let decoded = base64::decode(block);
            self.encoded = if decoded.is_some() { rest } else { self.encoded };
            self.decoded = decoded.unwrap_or_else(|| self.decode_between_others());
            self.at = 0;
        }
        Ok(self.decoded.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Unbase64<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

/// Decompresses gzip to at most [`MAX_CONTENTS`] bytes.
///
/// # Errors
/// The data is not valid gzip, or is larger.
pub fn gunzip(bytes: &[u8]) -> Result<Vec<u8>> {
    gzip::unpack(bytes, MAX_CONTENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn sources() {
        let of =
            |uri: &str| Source::of(&[("source", [("uri", uri)].into_iter().collect::<Map>())].into_iter().collect());
        for uri in ["/etc/x", "file:/etc/x", "file:///etc/x", "FILE:///etc/x", " file://localhost/etc/x "] {
            assert!(matches!(of(uri), Source::File(path) if path == "/etc/x"), "{uri}");
        }
        for uri in ["file:x", "file://x", "file:", "ftp://h/x", "x"] {
            assert!(matches!(of(uri), Source::Unknown), "{uri}");
        }
        assert!(matches!(of(""), Source::Inline) && matches!(of("HTTPS://h/x"), Source::Http(_)));
    }

    fn decoded(text: &str) -> Result<Option<Vec<u8>>> {
        inline(yaml::parse("t", text).unwrap().as_map().unwrap(), MAX_CONTENTS, &"entry", &Problems::new())
            .map(|content| content.map(|c| c.to_vec()))
    }

    #[test]
    fn every_encoding_in_any_case() {
        let packed = "H4sIAAAAAAACA8tIzcnJ5wIAIDA6NgYAAAA=";
        for (content, encodings) in [
            ("aGVsbG8K", &["b64", "base64", " B64 "][..]),
            (packed, &["gz+b64", "gzip+b64", "gz+base64", "GZIP+BASE64"]),
            ("aGVs\n  bG8K\n", &["b64"]),
            ("'hello\n\n'", &["", "text/plain", "rot13"]),
        ] {
            for encoding in encodings {
                let text = format!("{{content: {:?}, encoding: {encoding:?}}}", content.trim_matches('\''));
                assert_eq!(decoded(&text).unwrap().unwrap().trim_ascii_end(), b"hello", "{text}");
            }
        }
        assert_eq!(decoded(&format!("{{content: !!binary {packed}, encoding: gz}}")).unwrap().unwrap(), b"hello\n");
        assert_eq!(decoded("{}").unwrap(), None);
        assert_eq!(decoded("{content: 5}").unwrap().unwrap(), b"5");
    }

    #[test]
    fn decodes_long_content_while_writing() {
        let plain: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for (packed, encoding) in [(plain.clone(), "b64"), (gzip::pack(&plain), "gz+b64")] {
            let lines: Vec<String> = packed.chunks(57).map(base64::encode).collect();
            let text = format!("encoding: {encoding}\ncontent: |\n  {}\n", lines.join("\n  "));
            assert_eq!(decoded(&text).unwrap().unwrap(), plain, "{encoding}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_an_error() {
        for text in [
            "{content: zzz, encoding: gzip}",
            "{content: aGVsbG8, encoding: b64}",
            "{content: [a]}",
            "{content: aGVsbG8K, encoding: gz+b64}",
        ] {
            assert!(decoded(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let zeros = vec![0; 1 << 20];
        for _ in 0..65 {
            std::io::Write::write_all(&mut encoder, &zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 100_000);
        assert!(gunzip(&bomb).unwrap_err().to_string().contains("unpacks to more than"));
    }
}
