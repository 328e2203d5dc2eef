//! The table of part types: how content of each type begins, and its MIME type.

/// A kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    CloudConfig,
    CloudConfigArchive,
    CloudConfigJsonp,
    Include,
    IncludeOnce,
    Script,
    ScriptPerBoot,
    ScriptPerInstance,
    ScriptPerOnce,
    Boothook,
    PartHandler,
    Jinja,
}

/// The MIME type of a document that declares none.
pub const NOT_MULTIPART: &str = "text/x-not-multipart";
/// The MIME type of a part that declares none.
pub const PLAIN: &str = "text/plain";

/// Header, MIME type, kind; a header that begins with another comes before it.
const TABLE: &[(&str, &str, PartKind)] = &[
    ("text/x-shellscript-per-instance", "text/x-shellscript-per-instance", PartKind::ScriptPerInstance),
    ("text/x-shellscript-per-boot", "text/x-shellscript-per-boot", PartKind::ScriptPerBoot),
    ("text/x-shellscript-per-once", "text/x-shellscript-per-once", PartKind::ScriptPerOnce),
    ("#cloud-config-archive", "text/cloud-config-archive", PartKind::CloudConfigArchive),
    ("#cloud-config-jsonp", "text/cloud-config-jsonp", PartKind::CloudConfigJsonp),
    ("## template: jinja", "text/jinja2", PartKind::Jinja),
    ("#cloud-boothook", "text/cloud-boothook", PartKind::Boothook),
    ("#include-once", "text/x-include-once-url", PartKind::IncludeOnce),
    ("#cloud-config", "text/cloud-config", PartKind::CloudConfig),
    ("#part-handler", "text/part-handler", PartKind::PartHandler),
    ("#include", "text/x-include-url", PartKind::Include),
    ("#!", "text/x-shellscript", PartKind::Script),
];

/// The MIME types of gzip. Such a part is decompressed first.
const GZIP_TYPES: &[&str] = &[
    "application/gzip",
    "application/gzip-compressed",
    "application/gzipped",
    "application/x-compress",
    "application/x-compressed",
    "application/x-gunzip",
    "application/x-gzip",
    "application/x-gzip-compressed",
];

impl PartKind {
    /// The kind for a MIME type.
    pub fn of_type(mime_type: &str) -> Option<PartKind> {
        TABLE.iter().find(|(_, name, _)| *name == mime_type).map(|(.., kind)| *kind)
    }

    /// The kind according to the content's first bytes, ignoring case and leading white space.
    pub fn of_content(content: &[u8]) -> Option<PartKind> {
        let content = trim_start(content);
        TABLE
            .iter()
            .find(|(header, ..)| {
                content.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header.as_bytes()))
            })
            .map(|(.., kind)| *kind)
    }

    /// The kind's MIME type.
    pub fn mime_type(self) -> &'static str {
        TABLE.iter().find(|(.., kind)| *kind == self).map_or(PLAIN, |(_, name, _)| name)
    }

    /// How content of this kind begins.
    pub fn header(self) -> &'static str {
        TABLE.iter().find(|(.., kind)| *kind == self).map_or("", |(header, ..)| header)
    }
}

/// The headers of all kinds, in order, as text: the possible first lines of user-data.
pub fn headers() -> Vec<&'static str> {
    let mut headers: Vec<&str> = TABLE.iter().map(|(header, ..)| *header).filter(|h| h.starts_with('#')).collect();
    headers.sort_unstable();
    headers
}

/// The MIME types of all kinds.
pub fn types() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(_, name, _)| *name)
}

/// Whether a part's declared type is ignored in favour of its content. This includes scripts, because some
/// programs label every kind of user-data as one.
pub fn is_sniffed(mime_type: &str) -> bool {
    [PLAIN, NOT_MULTIPART, "text/x-shellscript"].contains(&mime_type)
}

/// Whether it is a type of gzip.
pub fn is_gzip(mime_type: &str) -> bool {
    GZIP_TYPES.contains(&mime_type)
}

/// Content without leading white space, ASCII's or Unicode's in UTF-8.
pub fn trim_start(content: &[u8]) -> &[u8] {
    let mut rest = content;
    loop {
        let width = (1..=4.min(rest.len()))
            .find(|n| rest.get(..*n).is_some_and(|b| std::str::from_utf8(b).is_ok_and(|s| s.chars().all(is_space))));
        match width.and_then(|n| rest.get(n..)) {
            Some(after) => rest = after,
            None => return rest,
        }
    }
}

/// White space as in Python's `str.lstrip`, which has four more separators than Unicode's property.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_header_wins_and_prefix_suffices() {
        for (content, kind) in [
            ("#cloud-config\n", Some(PartKind::CloudConfig)),
            ("  \n\t#Cloud-Config", Some(PartKind::CloudConfig)),
            ("\u{2003}\u{1f}#cloud-config", Some(PartKind::CloudConfig)),
            ("#cloud-configuration", Some(PartKind::CloudConfig)),
            ("#cloud-config-archive\n", Some(PartKind::CloudConfigArchive)),
            ("#cloud-config-jsonp\n", Some(PartKind::CloudConfigJsonp)),
            ("#include-once\n", Some(PartKind::IncludeOnce)),
            ("#include http://x", Some(PartKind::Include)),
            ("#!/bin/sh", Some(PartKind::Script)),
            ("## Template: Jinja\n", Some(PartKind::Jinja)),
            ("## template:jinja\n", None),
            ("\u{feff}#cloud-config", None),
            ("#upstart-job", None),
            ("# comment\n#cloud-config", None),
            ("", None),
        ] {
            assert_eq!(PartKind::of_content(content.as_bytes()), kind, "{content:?}");
        }
    }

    #[test]
    fn finds_every_kind_by_type_and_header() {
        for (header, name, kind) in TABLE {
            assert_eq!(PartKind::of_type(name), Some(*kind));
            assert_eq!(PartKind::of_content(header.as_bytes()), Some(*kind));
            assert_eq!((kind.mime_type(), kind.header()), (*name, *header));
        }
    }
}
