//! Unfolds a document into parts: decompresses gzip, splits MIME documents and archives, and fetches
//! includes.

use super::kind::{self, PartKind};
use super::{Fetched, Include, MAX_UNPACKED, mime};
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::base::gzip;
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Bytes, Size, Value, yaml};
use crate::trust::sealed::{self, Open, Opened};

/// The greatest depth of includes.
const MAX_INCLUDE_DEPTH: usize = 10;
/// The most errors that are reported for one source.
const MAX_ERRORS: usize = 20;
/// The most characters of a charset's name that are reported.
const MAX_CHARSET: usize = 40;
/// The most URLs that are fetched for one source.
const MAX_FETCHES: usize = 100;

/// One part: its type, name and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The MIME type: declared, or determined by the content's first bytes.
    pub content_type: String,
    /// The name in the header, else `part-NNN` by its position. Not safe in a path yet: see
    /// [`super::file_name`].
    pub filename: String,
    /// The launch index that it is for, from its header or its `launch-index` key.
    pub launch_index: Option<String>,
    /// The header fields of a MIME part, or further keys of an archive's entry.
    pub headers: Vec<(String, String)>,
    pub content: Bytes,
    /// Whether it was encrypted: it is not kept.
    pub is_secret: bool,
}

impl Part {
    /// The header field with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The part as a MIME entity.
    pub fn to_entity(&self) -> mime::Entity {
        let mut headers = self.headers.clone();
        if let Some(index) = self.launch_index.as_ref().filter(|_| self.header(LAUNCH_INDEX).is_none()) {
            headers.push(("Launch-Index".into(), index.clone()));
        }
        mime::Entity {
            content_type: self.content_type.clone(),
            filename: Some(self.filename.clone()),
            charset: None,
            headers,
            content: self.content.clone(),
        }
    }

    /// Whether this part is for the instance with that launch index: it has the same index, or none.
    pub fn is_for(&self, launch_index: Option<i64>) -> bool {
        match (&self.launch_index, launch_index) {
            (Some(own), Some(wanted)) => own.trim().parse() == Ok(wanted),
            _ => true,
        }
    }
}

/// The result of unfolding a source's documents.
#[derive(Debug, Default)]
pub struct Unfolded {
    pub parts: Vec<Part>,
    /// The URLs that have to wait for the network.
    pub deferred: Vec<String>,
    /// The content of each `#include-once`, to be kept for the next boot: URL and content.
    pub fetched_once: Vec<(String, Bytes)>,
}

/// Unfolds the documents of a source, which may be several (vendor-data as a list).
pub struct Unfolder<'a> {
    source: &'a str,
    fetch: &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>,
    open: Open<'a>,
    report: &'a Problems,
    /// Whether what is unfolded now was encrypted.
    is_secret: bool,
    errors: usize,
    fetches: usize,
    /// How many more bytes the parts may have.
    room: usize,
    out: Unfolded,
}

impl<'a> Unfolder<'a> {
    /// `source` is the name of the documents in messages: `user-data`.
    pub fn new(
        source: &'a str,
        fetch: &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>,
        open: Open<'a>,
        report: &'a Problems,
    ) -> Self {
        Unfolder {
            source,
            fetch,
            open,
            report,
            is_secret: false,
            errors: 0,
            fetches: 0,
            room: MAX_UNPACKED,
            out: Unfolded::default(),
        }
    }

    /// The parts so far.
    pub fn finish(self) -> Unfolded {
        self.out
    }

    fn fail(&mut self, error: Error) {
        match self.errors {
            ..MAX_ERRORS => self.report.warn(error.context(self.source)),
            MAX_ERRORS => self.report.warn(format_args!("{}: more errors follow and are not reported", self.source)),
            _ => return,
        }
        self.errors += 1;
    }

    fn take_room(&mut self, bytes: usize) -> Result<()> {
        self.room = self
            .room
            .checked_sub(bytes)
            .ok_or_else(|| Error::new(format!("all parts together are larger than {MAX_UNPACKED} bytes")))?;
        budget::take(bytes)
    }

    /// Unfolds a whole document. Invalid gzip is kept as it is, like any other unknown content.
    pub fn document(&mut self, document: &Bytes) {
        self.document_at(document, 0);
    }

    fn document_at(&mut self, document: &Bytes, depth: usize) {
        let unpacked = match gzip::is_gzip(document).then(|| gzip::unpack(document, self.room)) {
            Some(Ok(unpacked)) => Some(unpacked),
            Some(Err(e)) => {
                self.report.warn(format_args!("{}: {e}; left as it is", self.source));
                None
            }
            None => None,
        };
        let document = &unpacked.map_or_else(|| document.clone(), Bytes::from);
        if let Err(e) = self.take_room(document.len()) {
            return self.fail(e);
        }
        if sealed::encryption(document).is_some() {
            return self.opened(document, None, depth);
        }
        if !mime::is_mime(document) {
            return self.part(
                mime::Entity {
                    content_type: kind::NOT_MULTIPART.into(),
                    filename: None,
                    charset: None,
                    headers: Vec::new(),
                    content: document.clone(),
                },
                depth,
            );
        }
        match mime::parse(document) {
            Ok(parts) => parts.into_iter().for_each(|part| self.part(part, depth)),
            Err(e) => self.fail(e),
        }
    }

    /// Opens what is encrypted, and unfolds it as a document of its own. `name` is that of the part.
    fn opened(&mut self, sealed: &[u8], name: Option<&str>, depth: usize) {
        if depth >= MAX_INCLUDE_DEPTH {
            return self.fail(Error::new(format!("encrypted more often than {MAX_INCLUDE_DEPTH} times")));
        }
        let name = name.map_or(self.source, |name| name.strip_suffix(".cred").unwrap_or(name));
        match (self.open)(sealed, name) {
            Opened::Plain(plain) => {
                let outer = std::mem::replace(&mut self.is_secret, true);
                self.document_at(&plain.into(), depth + 1);
                self.is_secret = outer;
            }
            // It is unfolded again when the real root has the key, as what is remote.
            Opened::Later => self.out.deferred.push(format!("the key of {name}")),
            Opened::Failed(e) => {
                let of = if name == self.source { String::new() } else { format!("{}: ", self.source) };
                self.report.error(e.context(format_args!("{of}{name} cannot be decrypted")));
            }
        }
    }

    fn part(&mut self, mut entity: mime::Entity, depth: usize) {
        if sealed::encryption(&entity.content).is_some() {
            return self.opened(&entity.content, entity.filename.as_deref(), depth);
        }
        if let Some(charset) = &entity.charset {
            let name = self.next_name(&entity);
            let charset: String = charset.chars().take(MAX_CHARSET).collect();
            self.fail(Error::new(format!("{name}: the charset {} is not known; left as it is", quoted(&charset))));
        }
        if kind::is_gzip(&entity.content_type) {
            // A decompression bomb costs time even when it is rejected, so stop after a few.
            let room = if self.errors > MAX_ERRORS { 0 } else { self.room };
            match gzip::unpack(&entity.content, room).and_then(|c| self.take_room(c.len()).map(|()| c)) {
                Ok(content) => entity.content = content.into(),
                Err(e) => return self.fail(e.context(self.next_name(&entity))),
            }
            entity.content_type = kind::PLAIN.into();
            entity.headers.retain(|(name, _)| name.eq_ignore_ascii_case(LAUNCH_INDEX));
        }
        if kind::is_sniffed(&entity.content_type)
            && let Some(kind) = PartKind::of_content(&entity.content)
        {
            entity.content_type = kind.mime_type().into();
        }
        match PartKind::of_type(&entity.content_type) {
            Some(PartKind::Include | PartKind::IncludeOnce) => self.include(&entity.content, depth),
            Some(PartKind::CloudConfigArchive) => {
                if let Err(e) = self.archive(&entity.content) {
                    let name = self.next_name(&entity);
                    self.report.warn(format_args!("{}: {name}: ignored: {e}", self.source));
                }
            }
            _ => self.attach(entity),
        }
    }

    fn next_name(&self, entity: &mime::Entity) -> String {
        entity.filename.clone().unwrap_or_else(|| format!("part-{:03}", self.out.parts.len() + 1))
    }

    fn attach(&mut self, entity: mime::Entity) {
        if self.out.parts.len() >= mime::MAX_PARTS {
            return self.fail(Error::new(format!("more than {} parts; the rest is left out", mime::MAX_PARTS)));
        }
        let filename = self.next_name(&entity);
        let mime::Entity { content_type, headers, content, .. } = entity;
        let mut part = Part { content_type, filename, launch_index: None, headers, content, is_secret: self.is_secret };
        part.launch_index = part.header(LAUNCH_INDEX).map(str::to_owned).or_else(|| launch_index_in(&part));
        self.out.parts.push(part);
    }

    /// Fetches URLs, one per line, ignoring blank lines and comments. The rest of an `#include` line may be
    /// one too.
    fn include(&mut self, content: &[u8], depth: usize) {
        if depth >= MAX_INCLUDE_DEPTH {
            return self.fail(Error::new(format!("includes nested deeper than {MAX_INCLUDE_DEPTH}")));
        }
        let mut once = false;
        for line in String::from_utf8_lossy(content).lines() {
            let mut line = line;
            for (kind, is_once) in [(PartKind::IncludeOnce, true), (PartKind::Include, false)] {
                let header = kind.header();
                if line.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header)) {
                    line = line.get(header.len()..).unwrap_or_default();
                    once = is_once;
                    break;
                }
            }
            let url = line.trim();
            if !url.is_empty() && !line.trim_start().starts_with('#') {
                self.fetch(&Include { url, once }, depth);
            }
        }
    }

    fn fetch(&mut self, include: &Include<'_>, depth: usize) {
        if self.fetches >= MAX_FETCHES {
            return self.fail(Error::new(format!("more than {MAX_FETCHES} URLs to include; the rest is left out")));
        }
        self.fetches += 1;
        match (self.fetch)(include) {
            Ok(Fetched::Content(content)) => {
                let content = Bytes::from(content);
                self.document_at(&content, depth + 1);
                if include.once {
                    self.out.fetched_once.push((include.url.to_owned(), content));
                }
            }
            Ok(Fetched::NoNetwork) => self.out.deferred.push(include.url.to_owned()),
            Err(e) => self.fail(e.context("failed to include a URL")),
        }
    }

    /// Splits a list of strings, or of mappings with `content`, `type`, `filename`, `launch-index` and
    /// further header fields. Entries are not unfolded further.
    fn archive(&mut self, content: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(content).map_err(|_| Error::new("the archive is not UTF-8"))?;
        let entries = match yaml::parse("the archive", text)? {
            Value::List(entries) => entries,
            Value::Null => Vec::new(),
            other => return Err(crate::document::wrong("the archive", "a list", &other)),
        };
        for (i, entry) in entries.into_iter().enumerate() {
            match archive_entry(entry) {
                Ok(Some(entity)) => {
                    self.take_room(entity.content.len())?;
                    self.attach(entity);
                }
                Ok(None) => {}
                Err(e) => self.fail(e.context(format!("archive entry {}", i + 1))),
            }
        }
        Ok(())
    }
}

const LAUNCH_INDEX: &str = "launch-index";

/// The launch index in a cloud-config. Other kinds only have their header.
fn launch_index_in(part: &Part) -> Option<String> {
    if part.content_type != PartKind::CloudConfig.mime_type() {
        return None;
    }
    let text = std::str::from_utf8(&part.content).ok().filter(|text| text.contains(LAUNCH_INDEX))?;
    let config = yaml::parse("launch-index", text).ok()?;
    // It is read again when it is merged.
    budget::give(Size::of(&config).cost());
    let index = config.get(LAUNCH_INDEX)?.text()?;
    index.trim().parse::<i64>().ok().map(|i| i.to_string())
}

/// An entry as a part; None if it is neither a string nor a mapping, which cloud-init skips too.
fn archive_entry(entry: Value) -> Result<Option<mime::Entity>> {
    let map = match entry {
        Value::String(text) => [("content", Value::from(text))].into_iter().collect(),
        Value::Map(map) => map,
        _ => return Ok(None),
    };
    let content = match map.get("content") {
        None => Bytes::default(),
        Some(value) => value.bytes().ok_or_else(|| crate::document::wrong("content", "text", value))?.into(),
    };
    let declared = map.get("type").filter(|t| !t.is_null()).and_then(Value::text).filter(|t| !t.is_empty());
    let content_type = declared.unwrap_or_else(|| {
        let undeclared = match map.get("content") {
            Some(Value::Bytes(_)) => "application/octet-stream",
            _ => PartKind::CloudConfig.mime_type(),
        };
        PartKind::of_content(&content).map_or(undeclared, PartKind::mime_type).into()
    });
    let content_type = mime::media_type(&content_type)
        .ok_or_else(|| Error::new("type: expected a MIME type such as text/cloud-config"))?;
    let own = ["content", "filename", "type", "content-disposition", "content-type", "number-attachments"];
    let headers = map.iter().filter(|(key, _)| !own.contains(&key.to_ascii_lowercase().as_str()));
    let headers = headers.filter_map(|(key, value)| Some((key.to_owned(), value.text()?))).collect();
    let filename = map.get("filename").and_then(Value::text).filter(|name| !name.is_empty());
    Ok(Some(mime::Entity { content_type, filename, charset: None, headers, content }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Severity;

    #[test]
    fn archive_entrys_type_may_have_parameters() {
        let part = |kind: &str| {
            let entry = yaml::parse("t", &format!("{{type: '{kind}', content: x}}")).unwrap();
            archive_entry(entry).map_or_else(|e| e.to_string(), |entity| entity.unwrap().content_type)
        };
        assert_eq!(part("text/cloud-config; charset=utf-8"), "text/cloud-config");
        assert_eq!(part("Text/X-ShellScript;x"), "text/x-shellscript");
        for wrong in ["text", "text/a/b", "text; a/b"] {
            assert_eq!(part(wrong), "type: expected a MIME type such as text/cloud-config");
        }
    }

    #[test]
    fn reports_an_unknown_charset_by_name() {
        let part = |charset: &str, content: &[u8]| {
            let header = format!("--b\nContent-Type: text/x-own; charset=\"{charset}\"\n\n");
            [header.as_bytes(), content, b"\n"].concat()
        };
        let document = [
            b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n".to_vec(),
            part("KOI8-R", b"\xcb\xcf"),
            part("utf-16", b"a\0"),
            part("iso-8859-1", b"\xe9"),
            part("utf-8", b"\xe9"),
            part("us-ascii", b"\xe9"),
            part("x", b"plain"),
            b"--b--\n".to_vec(),
        ];
        let report = Problems::new();
        let mut fetch = |_: &Include<'_>| Ok(Fetched::NoNetwork);
        let mut unfolder = Unfolder::new("user-data", &mut fetch, &|_, _| Opened::Later, &report);
        unfolder.document(&document.concat().into());
        let contents: Vec<Bytes> = unfolder.finish().parts.into_iter().map(|part| part.content).collect();
        let kept: [&[u8]; 6] = [b"\xcb\xcf", b"a\0", "é".as_bytes(), b"\xe9", b"\xe9", b"plain"];
        assert!(contents.iter().map(|c| &**c).eq(kept), "{contents:?}");
        assert_eq!(
            report.texts(Severity::Warning),
            [
                "user-data: part-001: the charset \"KOI8-R\" is not known; left as it is",
                "user-data: part-002: the charset \"utf-16\" is not known; left as it is",
            ]
        );
    }
}
