//! Parses a part's header: fields and their parameters (RFC 2045, 5.1; RFC 2231).

use super::{Lines, encoding};

/// The most fields of a header that are kept.
const MAX_FIELDS: usize = 100;
/// The most pieces of a parameter (RFC 2231, 3).
const MAX_PIECES: usize = 100;

/// Fields that describe how content is encoded, which are generated anew when it is written.
const WRAPPING: &[&str] = &["content-type", "content-disposition", "content-transfer-encoding", "mime-version"];

/// The fields of a header, in order.
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Splits a part into its header and body. If the first line is not a field, the body begins there.
    pub fn split(data: &[u8]) -> (Headers, &[u8]) {
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut lines = Lines::new(data);
        let mut first = true;
        loop {
            let body = lines.rest();
            let Some(line) = lines.next() else { return (Headers(fields), body) };
            let text = String::from_utf8_lossy(line);
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                return (Headers(fields), lines.rest());
            }
            if text.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push_str(text);
                }
            } else if let Some((name, value)) = field(text) {
                if fields.len() < MAX_FIELDS && !name.is_empty() {
                    fields.push((name.to_owned(), value.trim_start_matches([' ', '\t']).to_owned()));
                }
            } else if !(first && text.starts_with("From ")) {
                return (Headers(fields), body);
            }
            first = false;
        }
    }

    /// The first field with this name, ignoring case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The media type in lower case; `text/plain` if it is invalid.
    pub fn content_type(&self) -> Option<String> {
        Some(media_type(self.get("content-type")?).unwrap_or_else(|| "text/plain".into()))
    }

    /// The file name in the header.
    pub fn filename(&self) -> Option<String> {
        self.parameter("content-disposition", "filename")
            .or_else(|| self.parameter("content-type", "name"))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
    }

    /// A field's parameter, assembled from its pieces and decoded.
    pub fn parameter(&self, field: &str, name: &str) -> Option<String> {
        let parameters = parameters(self.get(field)?);
        let find = |wanted: &str| parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(wanted)).map(|(_, v)| v);
        if let Some(value) = find(name) {
            return Some(value.clone());
        }
        if let Some(value) = find(&format!("{name}*")) {
            return Some(extended(value));
        }
        let (mut joined, mut encoded) = (String::new(), false);
        for i in 0..MAX_PIECES {
            if let Some(piece) = find(&format!("{name}*{i}")) {
                joined.push_str(piece);
            } else if let Some(piece) = find(&format!("{name}*{i}*")) {
                encoded = true;
                joined.push_str(piece);
            } else if i == 0 {
                return None;
            } else {
                break;
            }
        }
        Some(if encoded { extended(&joined) } else { joined })
    }

    /// The fields that do not describe how content is encoded.
    pub fn others(self) -> Vec<(String, String)> {
        let wrapping = |name: &str| WRAPPING.iter().any(|w| name.eq_ignore_ascii_case(w));
        self.0.into_iter().filter(|(name, _)| !wrapping(name)).collect()
    }
}

/// The media type without its parameters, in lower case. None if it is invalid.
pub fn media_type(value: &str) -> Option<String> {
    let media = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (media.split('/').count() == 2).then_some(media)
}

fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    name.bytes().all(|b| b.is_ascii_graphic()).then_some((name, value))
}

/// The parameters of a field: names and unquoted values.
fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    // A field may begin with parameters, without a value before them.
    let mut rest = value;
    while !rest.is_empty() && found.len() < MAX_PIECES {
        let (mut quoted, mut escaped, mut end) = (false, false, rest.len());
        for (i, c) in rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                ';' if !quoted => {
                    end = i;
                    break;
                }
                _ => {}
            }
        }
        let (parameter, after) = rest.split_at(end);
        rest = after.strip_prefix(';').unwrap_or(after);
        if let Some((name, value)) = parameter.split_once('=') {
            found.push((name.trim().to_owned(), unquote(value.trim())));
        }
    }
    found
}

fn unquote(value: &str) -> String {
    match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(inner) => inner.replace("\\\\", "\\").replace("\\\"", "\""),
        None => value.to_owned(),
    }
}

/// Decodes `charset'language'text%20with%20escapes` (RFC 2231, 4).
fn extended(value: &str) -> String {
    let (charset, text) = match value.splitn(3, '\'').collect::<Vec<_>>().as_slice() {
        [charset, _, text] => (charset.to_string(), text.to_string()),
        _ => (String::new(), value.to_owned()),
    };
    let bytes = encoding::to_utf8(&charset, crate::base::percent::decode(&text), usize::MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filename(disposition: &str) -> Option<String> {
        Headers::split(format!("Content-Disposition: {disposition}\n\n").as_bytes()).0.filename()
    }

    #[test]
    fn file_names() {
        for (disposition, name) in [
            ("attachment; filename=a.sh", Some("a.sh")),
            ("attachment; FileName=\"a b;c.sh\"; x=y", Some("a b;c.sh")),
            ("attachment; filename*=utf-8'en'caf%C3%A9", Some("café")),
            ("attachment; filename*=iso-8859-1''caf%E9", Some("café")),
            ("attachment; filename*0=\"long\"; filename*1=\"er.sh\"", Some("longer.sh")),
            ("attachment; filename*0*=utf-8''a%20; filename*1=b", Some("a b")),
            ("attachment; filename=\"\"", None),
            ("attachment", None),
            ("attachment; filename", None),
            ("filename=a.sh", Some("a.sh")),
            ("attachment; filename=\"open", Some("\"open")),
        ] {
            assert_eq!(filename(disposition).as_deref(), name, "{disposition}");
        }
    }

    #[test]
    fn fields() {
        let (headers, body) = Headers::split(b"From me\nA: 1\n\tand 2\nb:3\n: none\n\nbody");
        assert_eq!(headers.get("a"), Some("1\tand 2"));
        assert_eq!(headers.get("B"), Some("3"));
        assert_eq!(body, b"body");
        assert_eq!(headers.others().len(), 2);
    }
}
