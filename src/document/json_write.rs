//! Writes values as JSON, piece by piece: a long string goes to the output in the pieces between its escapes, and is not copied.

use super::{Map, Value, scalar};
use crate::base::{base64, sort};
use std::io::{self, Write};

/// The value as JSON on one line. Bytes that are not UTF-8 become `ci-b64:` and their base64, as in
/// cloud-init's instance-data.
pub fn to_string(value: &Value) -> String {
    collected(|out| Writer::new(out).value(value))
}

/// The value as JSON with sorted keys, indented by one space: the format of cloud-init's own files
/// (`util.json_dumps`).
pub fn to_string_sorted(value: &Value) -> String {
    collected(|out| Writer::sorted(out).value(value))
}

/// The value as JSON, indented by `indent` per level.
pub fn to_string_indented(value: &Value, indent: &str) -> String {
    collected(|out| Writer { indent: Some(indent), ..Writer::new(out) }.value(value))
}

/// Writes the mapping of `entries` as [`to_string_sorted`] does.
///
/// # Errors
/// Those of `out`.
pub fn write_sorted(entries: Vec<(&str, &Value)>, out: &mut dyn Write) -> io::Result<()> {
    Writer::sorted(out).entries(entries)
}

/// Written once to know how long it is: a text that grows by doubling takes up to three times its length.
fn collected(write: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
    let mut length = Length(0);
    // Writing to memory does not fail.
    let _ = write(&mut length);
    let mut out = Vec::with_capacity(length.0);
    let _ = write(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Counts the bytes that are written.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes one JSON document.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    /// The indentation of a level. None: everything is on one line.
    indent: Option<&'a str>,
    is_sorted: bool,
    depth: usize,
    /// Whether nothing is in the innermost list or mapping yet.
    is_empty: bool,
}

impl<'a> Writer<'a> {
    /// Everything on one line, keys in the order of their mappings.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Writer { out, indent: None, is_sorted: false, depth: 0, is_empty: true }
    }

    fn sorted(out: &'a mut dyn Write) -> Self {
        Writer { indent: Some(" "), is_sorted: true, ..Writer::new(out) }
    }

    /// Begins a list or mapping with its bracket.
    ///
    /// # Errors
    /// Those of the output, as for all that follows.
    pub fn begin(&mut self, bracket: &str) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        self.raw(bracket)
    }

    /// Writes the separator before an item of a list.
    pub fn item(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_empty) {
            self.raw(",")?;
        }
        self.line()
    }

    /// Writes the separator before an entry, and its `key`.
    pub fn key(&mut self, key: &str) -> io::Result<()> {
        self.item()?;
        self.string(key)?;
        self.raw(if self.indent.is_some() { ": " } else { ":" })
    }

    /// Ends a list or mapping.
    pub fn end(&mut self, bracket: &str) -> io::Result<()> {
        self.depth -= 1;
        if !std::mem::take(&mut self.is_empty) {
            self.line()?;
        }
        self.raw(bracket)
    }

    /// A new line, if each item has its own.
    fn line(&mut self) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        self.raw("\n")?;
        (0..self.depth).try_for_each(|_| self.raw(indent))
    }

    /// A value with all that is in it.
    pub fn value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Null => self.raw("null"),
            Value::Bool(b) => self.raw(if *b { "true" } else { "false" }),
            Value::Int(i) => write!(self.out, "{i}"),
            Value::Big(digits) => self.raw(digits),
            Value::Float(f) if f.is_finite() => self.raw(&scalar::float_text(*f)),
            Value::Float(_) => self.raw("null"),
            Value::String(text) => self.string(text),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.string(text),
                Err(_) => self.base64("ci-b64:", bytes),
            },
            Value::List(list) => {
                self.begin("[")?;
                for value in list {
                    self.item()?;
                    self.value(value)?;
                }
                self.end("]")
            }
            Value::Map(map) => self.map(map),
        }
    }

    /// A mapping.
    pub fn map(&mut self, map: &Map) -> io::Result<()> {
        self.entries(map.iter().collect())
    }

    fn entries(&mut self, mut entries: Vec<(&str, &Value)>) -> io::Result<()> {
        if self.is_sorted {
            sort::by_key(&mut entries, |(key, _)| *key);
        }
        self.begin("{")?;
        for (key, value) in entries {
            self.key(key)?;
            self.value(value)?;
        }
        self.end("}")
    }

    /// A string of `mark`, which needs no escapes, and the base64 of `bytes`.
    pub fn base64(&mut self, mark: &str, bytes: &[u8]) -> io::Result<()> {
        write!(self.out, "\"{}\"", base64::Marked(mark, bytes))
    }

    /// A string.
    pub fn string(&mut self, text: &str) -> io::Result<()> {
        self.raw("\"")?;
        let mut left = text.as_bytes();
        while let Some((plain, [byte, after @ ..])) = left.split_at_checked(plain(left)) {
            self.out.write_all(plain)?;
            match byte {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\t' => self.raw("\\t"),
                b'\r' => self.raw("\\r"),
                8 => self.raw("\\b"),
                12 => self.raw("\\f"),
                other => write!(self.out, "\\u{other:04x}"),
            }?;
            left = after;
        }
        self.out.write_all(left)?;
        self.raw("\"")
    }

    /// Text that is JSON already.
    fn raw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }
}

/// How many bytes there are before the first that has to be escaped (RFC 8259, 7).
fn plain(bytes: &[u8]) -> usize {
    // Eight at a time: the highest bit of each byte is set if subtracting `n` from the byte borrows, which it does if the byte is
    // less. A borrow from the next byte can set it wrongly, but only above a byte where it is rightly set.
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let any_below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & (ONES << 7);
    let any_is = |word: u64, byte: u8| any_below(word ^ (ONES * u64::from(byte)), 1);
    let is_plain = |word: u64| any_below(word, b' '.into()) | any_is(word, b'"') | any_is(word, b'\\') == 0;
    let (words, _) = bytes.as_chunks();
    let many = words.iter().take_while(|word| is_plain(u64::from_ne_bytes(**word))).count() * 8;
    let rest = bytes.get(many..).unwrap_or_default();
    many + rest.iter().take_while(|byte| **byte >= b' ' && !matches!(byte, b'"' | b'\\')).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Bytes;

    #[test]
    fn strings_are_those_of_serde_json() {
        let escaped: String = (0..=0x100).filter_map(char::from_u32).collect();
        for around in ["", "x", "1234567", "12345678", "12 34 56 78 90", "é\u{7f}\u{80}\u{ffff}😀"] {
            for c in escaped.chars() {
                for text in [format!("{around}{c}"), format!("{c}{around}"), format!("{around}{c}{c}{around}")] {
                    assert_eq!(to_string(&text.as_str().into()), serde_json::to_string(&text).unwrap(), "{text:?}");
                }
            }
        }
        assert_eq!(to_string(&escaped.as_str().into()), serde_json::to_string(&escaped).unwrap());
    }

    #[test]
    fn numbers_are_those_of_python() {
        let floats = [0.0, -0.0, 1.0, 1e-4, 1e-5, 1e-7, 1e15, 1e16, 1.5e300, 0.1, f64::MIN_POSITIVE, f64::NAN];
        let floats: Vec<_> = floats.into_iter().map(Value::Float).collect();
        assert_eq!(
            to_string(&floats.into()),
            "[0.0,-0.0,1.0,0.0001,1e-05,1e-07,1000000000000000.0,1e+16,1.5e+300,0.1,2.2250738585072014e-308,null]"
        );
        assert_eq!(
            to_string(&vec![Value::Int(i64::MIN), Value::Null, true.into()].into()),
            "[-9223372036854775808,null,true]"
        );
    }

    #[test]
    fn what_is_empty_is_on_one_line() {
        let value = super::super::json::parse("t", br#"{"b":[[],{},[{}]],"a":{"c":[],"b":""}}"#).unwrap();
        assert_eq!(to_string(&value), r#"{"b":[[],{},[{}]],"a":{"c":[],"b":""}}"#);
        let lines = "{\n \"a\": {\n  \"b\": \"\",\n  \"c\": []\n },\n \"b\": [\n  [],\n  {},\n  [\n   {}\n  ]\n ]\n}";
        assert_eq!(to_string_sorted(&value), lines);
        assert_eq!(to_string_indented(&Value::List(Vec::new()), "  "), "[]");
        let bytes: Value = Bytes::from(vec![0xff, b'"']).into();
        assert_eq!(to_string(&bytes), "\"ci-b64:/yI=\"");
    }
}
