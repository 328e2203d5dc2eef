//! The content of an entry: where it comes from, and how it is encoded.

use crate::base::base64;
use crate::base::error::{Context, Error, Result};
use crate::base::report::Report;
use crate::document::{Map, Value, wrong};
use crate::root::MAX_READ;
use crate::userdata::gzip;

/// Where the content comes from.
pub(super) enum Source {
    Inline,
    /// A file of the root.
    File(String),
    Http(String),
    Unknown,
}

impl Source {
    /// By `source.uri`.
    pub(super) fn of(map: &Map) -> Source {
        let uri =
            map.get("source").and_then(|s| s.get("uri")).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let scheme = uri.split_once("://").map(|(s, _)| s.to_ascii_lowercase());
        match scheme.as_deref() {
            _ if uri.is_empty() => Source::Inline,
            _ if uri.starts_with('/') => Source::File(uri.to_owned()),
            Some("file") => match uri.get("file://".len()..) {
                Some(path) if path.starts_with('/') => Source::File(path.to_owned()),
                _ => Source::Unknown,
            },
            Some("http" | "https") => Source::Http(uri.to_owned()),
            _ => Source::Unknown,
        }
    }

    /// Whether it takes a network.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Source::Http(_))
    }
}

/// How many bytes the entries' own contents may hold together once they are decoded.
pub(super) const MAX_CONTENTS: usize = 24 << 20;

/// The entry's own content, decoded. None where it has none.
///
/// # Errors
/// It is no text, cannot be decoded, or is larger than `limit`.
pub(super) fn inline(map: &Map, limit: usize, label: &str, report: &mut Report) -> Result<Option<Vec<u8>>> {
    let bytes = match map.get("content") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => match value.bytes() {
            Some(bytes) => bytes.to_vec(),
            None => value.text().ok_or_else(|| wrong("content", "text or binary data", value))?.into_bytes(),
        },
    };
    let encoding = map.get("encoding").and_then(Value::text).unwrap_or_default().trim().to_ascii_lowercase();
    let decoded = match encoding.as_str() {
        "gz" | "gzip" => gzip::unpack(&bytes, limit).context(|| "content")?,
        "gz+base64" | "gzip+base64" | "gz+b64" | "gzip+b64" => {
            gzip::unpack(&unbase64(&bytes, label, report)?, limit).context(|| "content")?
        }
        "b64" | "base64" => unbase64(&bytes, label, report)?,
        "" | "text/plain" => bytes,
        _ => {
            report.warn(format_args!("{label}: encoding: expected text/plain, b64, gz or gz+b64: it is taken as text"));
            bytes
        }
    };
    if decoded.len() > limit {
        return Err(Error::new(format!("content: the entries together hold more than {MAX_CONTENTS} bytes")));
    }
    Ok(Some(decoded))
}

/// Base64 in which characters outside its alphabet are ignored, as in Python.
fn unbase64(bytes: &[u8], label: &str, report: &mut Report) -> Result<Vec<u8>> {
    let known = |b: &u8| base64::is_letter(*b);
    if bytes.iter().any(|b| !known(b) && *b != b'=' && !b.is_ascii_whitespace()) {
        report.warn(format_args!("{label}: content: characters that are not base64 are ignored"));
    }
    let kept: Vec<u8> = bytes.iter().copied().filter(known).collect();
    let padding = bytes.iter().rev().filter(|b| !b.is_ascii_whitespace()).take_while(|b| **b == b'=').count();
    if padding < kept.len().next_multiple_of(4) - kept.len() {
        return Err(Error::new("content: not valid base64: it is cut off"));
    }
    if kept.len() % 4 == 1 {
        return Err(Error::new("content: not valid base64"));
    }
    Ok(base64::decode_loosely(&kept))
}

/// What gzip has packed, of at most [`MAX_READ`] bytes.
pub fn gunzip(bytes: &[u8]) -> Result<Vec<u8>> {
    gzip::unpack(bytes, usize::try_from(MAX_READ).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    fn decoded(text: &str) -> Result<Option<Vec<u8>>> {
        inline(yaml::parse("t", text).unwrap().as_map().unwrap(), MAX_CONTENTS, "entry", &mut Report::new())
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
