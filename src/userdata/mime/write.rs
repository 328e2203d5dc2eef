//! Writes parts as one MIME multipart: user-data of several parts, and the processed user-data that cloud-init
//! keeps beside the raw one (user-data.txt.i).

use super::Entity;
use crate::base::{base64, percent};
use std::io::{self, Write};

/// The boundary. A part that contains it is written in base64, which never does.
const BOUNDARY: &str = "===============prepivot==";
/// The bytes in a line of base64, which are 76 characters: the longest allowed (RFC 2045, 6.8).
const LINE: usize = 57;

/// The parts as user-data, in ASCII: cloud-init cannot read other text without a transfer encoding.
/// [`super::parse`] reads them back unchanged.
pub fn write(parts: Vec<Entity>) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = writer_of(parts, true)(&mut out);
    out
}

/// Returns a function that writes the parts as user-data.txt.i, piece by piece, and can be called repeatedly. People
/// read this file: text stays as it is. [`super::parse`] reads the parts back unchanged.
pub fn writer(parts: Vec<Entity>) -> impl Fn(&mut dyn Write) -> io::Result<()> {
    writer_of(parts, false)
}

/// Returns a function that writes a multipart/mixed. `Number-Attachments` is the number of parts.
fn writer_of(parts: Vec<Entity>, ascii: bool) -> impl Fn(&mut dyn Write) -> io::Result<()> {
    // Found out once: it takes longer than writing the part.
    let encoding = |part: &Entity| match &*part.content {
        content if is_kept(content) && (!ascii || content.is_ascii()) => Encoding::EightBit,
        content if ascii && std::str::from_utf8(content).is_ok() => Encoding::Base64Text,
        _ => Encoding::Base64,
    };
    let encodings: Vec<Encoding> = parts.iter().map(encoding).collect();
    move |out| {
        writeln!(
            out,
            "Content-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\nMIME-Version: 1.0\nNumber-Attachments: {}\n",
            parts.len()
        )?;
        for (part, encoding) in parts.iter().zip(&encodings) {
            writeln!(out, "--{BOUNDARY}")?;
            write_part(part, *encoding, out)?;
        }
        writeln!(out, "--{BOUNDARY}--")
    }
}

/// How a part is written.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    /// Text as it is, in UTF-8.
    EightBit,
    /// Text in UTF-8, encoded.
    Base64Text,
    Base64,
}

fn write_part(part: &Entity, how: Encoding, out: &mut dyn Write) -> io::Result<()> {
    let is_text = part.content_type.starts_with("text/") && how != Encoding::Base64;
    let charset = if is_text { "; charset=\"utf-8\"" } else { "" };
    let encoding = if how == Encoding::EightBit { "8bit" } else { "base64" };
    let mut header = format!(
        "Content-Type: {}{charset}\nMIME-Version: 1.0\nContent-Transfer-Encoding: {encoding}\n",
        one_line(&part.content_type)
    );
    if let Some(name) = &part.filename {
        header += &format!("Content-Disposition: {}\n", disposition(name));
    }
    for (name, value) in &part.headers {
        header += &format!("{}: {}\n", one_line(name), one_line(value));
    }
    writeln!(out, "{header}")?;
    if how == Encoding::EightBit {
        out.write_all(&part.content)?;
    } else {
        part.content.chunks(LINE).try_for_each(|line| writeln!(out, "{}", base64::encode(line)))?;
    }
    out.write_all(b"\n")
}

/// Whether the content is text that can be written unencoded.
fn is_kept(content: &[u8]) -> bool {
    // One pass per byte: a search for several characters takes ten times as long.
    !content.contains(&b'\r')
        && !content.contains(&0)
        && std::str::from_utf8(content).is_ok_and(|text| !text.contains(BOUNDARY))
}

/// The `Content-Disposition` of a part with that name, as Python's email package writes it.
pub fn disposition(name: &str) -> String {
    if name.is_ascii() {
        return format!("attachment; filename=\"{}\"", one_line(name).replace('\\', "\\\\").replace('"', "\\\""));
    }
    format!("attachment; filename*=utf-8''{}", percent::encode(name, percent::PARAMETER))
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userdata::mime::parse;

    #[test]
    fn reads_back_the_same() {
        let part = |content_type: &str, filename: Option<&str>, content: &[u8]| Entity {
            content_type: content_type.into(),
            filename: filename.map(Into::into),
            charset: None,
            headers: vec![("Merge-Type".into(), "list(append)+dict()".into())],
            content: content.into(),
        };
        let parts = [
            part("text/cloud-config", Some("part-001"), b"#cloud-config\na: caf\xc3\xa9\n"),
            part("text/x-shellscript", Some("a \"b\" \\c"), b"#!/bin/sh\n--===============prepivot==\n"),
            part("application/octet-stream", Some("caf\u{e9} x"), b"\xff\0\r\n"),
            part("text/x-not-multipart", None, b"\r"),
            part("text/plain", Some(";"), b""),
        ];
        assert_eq!(parse(&write(parts.to_vec())).unwrap(), parts);
        let mut processed = Vec::new();
        writer(parts.to_vec())(&mut processed).unwrap();
        assert_eq!(parse(&processed).unwrap(), parts);
        assert!(String::from_utf8_lossy(&processed).contains("\na: café\n"));
        // cloud-init reads a part without transfer encoding as ASCII.
        let made = String::from_utf8(write(parts.to_vec())).unwrap();
        assert!(made.is_ascii() && made.contains("text/cloud-config; charset=\"utf-8\"\n"), "{made}");
        assert!(parse(&write(Vec::new())).unwrap().is_empty());
        // All boundaries that could be tried.
        let every = part("text/plain", None, format!("--{BOUNDARY}{}", "0".repeat(1 << 20)).as_bytes());
        let before = crate::base::testing::cpu_time();
        assert_eq!(parse(&write(vec![every.clone()])).unwrap(), [every]);
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(5));
    }
}
