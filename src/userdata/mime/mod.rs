//! Reads and writes MIME documents (RFC 2045, 2046, 2183, 2231) like Python's email package.
//!
//! An own parser, because a boundary only counts at the start of a line, and content must be preserved byte
//! for byte.

mod encoding;
mod header;
mod write;

pub use header::media_type;
pub use write::{disposition, write, writer};

use super::MAX_UNPACKED;
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::document::Bytes;
use header::Headers;

/// The greatest depth of nested multiparts.
const MAX_DEPTH: usize = 20;
/// The most parts of a document.
pub const MAX_PARTS: usize = 1000;
/// How many bytes at a document's start are searched for MIME.
const SIGNATURE_WINDOW: usize = 4096;
const SIGNATURE: &[u8] = b"mime-version:";

/// A part that is not a multipart, with its transfer encoding decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// The media type in lower case, without parameters.
    pub content_type: String,
    pub filename: Option<String>,
    /// The declared charset, if the content could not be converted from it to UTF-8.
    pub charset: Option<String>,
    /// The other fields of the part's header, in order, without those that describe content and encoding.
    pub headers: Vec<(String, String)>,
    pub content: Bytes,
}

/// Whether a document is MIME, which its start says, in any case.
pub fn is_mime(data: &[u8]) -> bool {
    let window = data.get(..SIGNATURE_WINDOW).unwrap_or(data);
    window.windows(SIGNATURE.len()).any(|w| w.eq_ignore_ascii_case(SIGNATURE))
}

/// The media type in the header of a document that is read as MIME, whatever the order of its fields. None if it is not
/// MIME, or its header declares none.
pub fn declared_type(data: &[u8]) -> Option<String> {
    is_mime(data).then(|| Headers::split(data).0.content_type())?
}

/// The parts of a document in order, with nested multiparts flattened. A document without a header is a
/// single `text/plain` part.
///
/// # Errors
/// There are more than [`MAX_PARTS`] parts, or multiparts are nested too deep.
pub fn parse(data: &[u8]) -> Result<Vec<Entity>> {
    let mut parts = Vec::new();
    entity(data, "text/plain", 0, &mut parts)?;
    Ok(parts)
}

fn entity(data: &[u8], default_type: &str, depth: usize, parts: &mut Vec<Entity>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::new(format!("multiparts nested deeper than {MAX_DEPTH}")));
    }
    let (headers, body) = Headers::split(data);
    let content_type = headers.content_type().unwrap_or_else(|| default_type.to_owned());
    if content_type.starts_with("multipart/") {
        let Some(boundary) = headers.parameter("content-type", "boundary") else { return Ok(()) };
        let inner = if content_type == "multipart/digest" { "message/rfc822" } else { "text/plain" };
        for part in Sections::new(body, boundary.trim_end()) {
            entity(part, inner, depth + 1, parts)?;
        }
        return Ok(());
    }
    if content_type.starts_with("message/") {
        return entity(body, "text/plain", depth + 1, parts);
    }
    if parts.len() >= MAX_PARTS {
        return Err(Error::new(format!("more than {MAX_PARTS} parts")));
    }
    budget::check(body.len())?;
    let mut content = encoding::decode(headers.get("content-transfer-encoding").unwrap_or_default(), body);
    let mut charset = headers.parameter("content-type", "charset").filter(|_| content_type.starts_with("text/"));
    if let Some(declared) = &charset {
        let taken = parts.iter().map(|part| part.content.len()).sum();
        content = encoding::to_utf8(declared, content, MAX_UNPACKED.saturating_sub(taken));
    }
    budget::take(content.len())?;
    charset.take_if(|declared| !encoding::is_unknown(declared, &content));
    let filename = headers.filename();
    parts.push(Entity { content_type, filename, charset, headers: headers.others(), content: content.into() });
    Ok(())
}

/// The sections between a multipart's boundary lines.
struct Sections<'a> {
    rest: Lines<'a>,
    boundary: &'a str,
    body: &'a [u8],
    closed: bool,
}

impl<'a> Sections<'a> {
    fn new(body: &'a [u8], boundary: &'a str) -> Self {
        let mut sections = Sections { rest: Lines::new(body), boundary, body, closed: false };
        sections.closed = sections.seek().is_none_or(|(_, closing)| closing);
        sections
    }

    /// Moves past the next boundary line. Returns its start, and whether it is the last.
    fn seek(&mut self) -> Option<(usize, bool)> {
        loop {
            let start = self.rest.position;
            let line = self.rest.next()?;
            let Some(after) = line.strip_prefix(b"--").and_then(|l| l.strip_prefix(self.boundary.as_bytes())) else {
                continue;
            };
            let closing = after.strip_prefix(b"--");
            if closing.unwrap_or(after).iter().all(|b| b" \t\r\n".contains(b)) {
                return Some((start, closing.is_some()));
            }
        }
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.closed {
            let start = self.rest.position;
            let (end, closing) = self.seek().unwrap_or((self.body.len(), true));
            self.closed = closing;
            if end > start {
                return self.body.get(start..end).map(without_line_end);
            }
        }
        None
    }
}

/// The line end before a boundary belongs to the boundary (RFC 2046, 5.1.1).
fn without_line_end(data: &[u8]) -> &[u8] {
    let data = data.strip_suffix(b"\n").map_or(data, |d| d);
    data.strip_suffix(b"\r").unwrap_or(data)
}

/// Lines including their ends: `\n`, `\r\n` or `\r`.
struct Lines<'a> {
    data: &'a [u8],
    position: usize,
}

impl<'a> Lines<'a> {
    fn new(data: &'a [u8]) -> Self {
        Lines { data, position: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.data.get(self.position..).unwrap_or_default()
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let width = match rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            Some(i) if rest.get(i..).is_some_and(|end| end.starts_with(b"\r\n")) => i + 2,
            Some(i) => i + 1,
            None if rest.is_empty() => return None,
            None => rest.len(),
        };
        self.position += width;
        rest.get(..width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(String, Option<String>, String)> {
        let parts = parse(text.as_bytes()).unwrap();
        parts.into_iter().map(|p| (p.content_type, p.filename, String::from_utf8_lossy(&p.content).into())).collect()
    }

    #[test]
    fn a_boundary_counts_only_as_a_whole_line() {
        let text = "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\npreamble\n--b\n\
                    Content-Type: text/x-shellscript\n\n#!/bin/sh\ncurl --b x\n--bc\n\n--b  \n--b\nContent-Type: text/foo\n\n--b--\nepilogue\n--b\n\nx";
        assert_eq!(
            shown(text),
            [
                ("text/x-shellscript".into(), None, "#!/bin/sh\ncurl --b x\n--bc\n".into()),
                ("text/foo".into(), None, String::new())
            ]
        );
    }

    #[test]
    fn crlf_nesting_and_no_end() {
        let text = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed;\r\n boundary=\"o o\"\r\n\r\n--o o\r\n\
                    Content-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\n\r\na\r\n--i--\r\n\r\n--o o\r\n\
                    Content-Type: TEXT/Cloud-Config; charset=x\r\nContent-Disposition: attachment; filename=\"a \\\"b\\\".yaml\"\r\n\r\nb: 1\r\n";
        assert_eq!(
            shown(text),
            [
                ("text/plain".into(), None, "a".into()),
                ("text/cloud-config".into(), Some("a \"b\".yaml".into()), "b: 1".into())
            ]
        );
    }

    #[test]
    fn finds_declared_type_whatever_the_order() {
        for (text, found) in [
            ("Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n", Some("multipart/mixed")),
            ("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n", Some("multipart/mixed")),
            ("mime-version: 1.0\r\ncontent-type:\r\n\tMultipart/Alternative\r\n\r\n", Some("multipart/alternative")),
            (
                "From nobody Fri Nov  7\nSubject: x\nMime-Version:1.0\nContent-type:multipart/mixed\n",
                Some("multipart/mixed"),
            ),
            ("MIME-Version: 1.0\nContent-Type: text/cloud-config\n\n#cloud-config\n", Some("text/cloud-config")),
            // No header, or one that a boot does not read either.
            ("MIME-Version: 1.0\n\nContent-Type: multipart/mixed\n", None),
            ("\nMIME-Version: 1.0\nContent-Type: multipart/mixed\n", None),
            ("x\nMIME-Version: 1.0\nContent-Type: multipart/mixed\n", None),
            ("Content-Type: multipart/mixed; boundary=b\n\n", None),
        ] {
            assert_eq!(declared_type(text.as_bytes()).as_deref(), found, "{text:?}");
        }
    }

    #[test]
    fn what_has_no_header_is_plain_text() {
        for (text, content) in [
            ("#cloud-config\n# mime-version: 1.0\n", "#cloud-config\n# mime-version: 1.0\n"),
            ("\nContent-Type: text/foo\n", "Content-Type: text/foo\n"),
            ("Subject: x\nno header here\n", "no header here\n"),
            ("", ""),
        ] {
            assert_eq!(shown(text), [("text/plain".into(), None, content.into())], "{text:?}");
        }
        assert!(shown("Content-Type: multipart/mixed\n\n--b\n\nx\n--b--\n").is_empty());
        assert_eq!(shown("Content-Type: strange\n\nx")[0].0, "text/plain");
    }

    #[test]
    fn depth_and_count_are_bounded() {
        let mut deep = String::new();
        for i in 0..100 {
            deep += &format!("Content-Type: multipart/mixed; boundary=b{i}x\n\n--b{i}x\n");
        }
        assert!(parse(deep.as_bytes()).unwrap_err().to_string().contains("nested deeper"));
        let many = format!("Content-Type: multipart/mixed; boundary=b\n\n{}", "--b\n\nx\n".repeat(MAX_PARTS + 1));
        assert!(parse(many.as_bytes()).unwrap_err().to_string().contains("more than 1000 parts"));
        let nested = "Content-Type: message/rfc822\n\n".repeat(100_000);
        assert!(parse(nested.as_bytes()).is_err());
    }
}
