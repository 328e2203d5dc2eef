//! Converts between JSON and [`Value`].

pub use super::json_write::{Writer, to_string, to_string_indented, to_string_sorted, write_sorted};

use super::{MAX_NODES, Map, Size, Text, Value, scalar, text_fits};
use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

/// Parses a JSON document; `document` is its name in errors. serde_json limits the depth (128), [`MAX_NODES`]
/// the number of nodes, and the stage's budget the memory.
///
/// # Errors
/// It is not valid JSON, or too large. The error has the line and column.
pub fn parse(document: &str, bytes: &[u8]) -> Result<Value> {
    text_fits(document, bytes.len())?;
    let (value, size) = parse_while(document, bytes, &|size| {
        if size.nodes > MAX_NODES {
            return Err(Error::new(format!("more than {MAX_NODES} values")));
        }
        size.fits()
    })?;
    budget::take(size.cost()).context(|| document)?;
    Ok(value)
}

/// Like [`parse`], for a document of up to `max` nodes that an earlier stage wrote: the budget does not refuse it.
///
/// # Errors
/// As [`parse`].
pub fn parse_up_to(max: usize, document: &str, bytes: &[u8]) -> Result<Value> {
    let (value, size) = parse_while(document, bytes, &|size| {
        if size.nodes > max { Err(Error::new(format!("more than {max} values"))) } else { Ok(()) }
    })?;
    budget::take_all(size.cost());
    Ok(value)
}

/// Parses a document while `check` allows its size so far.
fn parse_while(document: &str, bytes: &[u8], check: &dyn Fn(Size) -> Result<()>) -> Result<(Value, Size)> {
    let (size, failure) = (Cell::default(), RefCell::new(None));
    let bytes = whole_characters(bytes);
    let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
    let bounded = Bounded { size: &size, check, failure: &failure };
    let value = bounded.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    let value = value.map_err(|e| {
        let what = failure.borrow().as_ref().map_or("not valid JSON".into(), Error::to_string);
        Error::new(format!("{document}: {what} at line {} column {}", e.line(), e.column()))
    })?;
    Ok((value, size.get()))
}

/// The value with the keys of every mapping sorted.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::List(list) => Value::List(list.iter().map(sorted).collect()),
        Value::Map(map) => Value::Map(map.sorted().into_iter().map(|(k, v)| (k, sorted(v))).collect()),
        other => other.clone(),
    }
}

/// serde_json represents a number that may not fit into 64 bits as a mapping from this key to its text.
const NUMBER: &str = "$serde_json::private::Number";

fn number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Some(scalar::decimal(text.to_owned()));
    }
    text.parse().ok().map(Value::Float)
}

/// JSON in which unpaired surrogates (`\ud83d` alone) are replaced by U+FFFD: Python accepts them, so they
/// must not be refused.
fn whole_characters(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut whole = Cow::Borrowed(bytes);
    let mut at = 0;
    while let Some(ahead) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\\')) {
        at += ahead;
        at += match [at, at + 6].map(|at| half(bytes, at)) {
            [Some(0xd800..0xdc00), Some(0xdc00..)] => 12,
            [Some(_), _] => {
                if let Some(code) = whole.to_mut().get_mut(at + 2..at + 6) {
                    code.copy_from_slice(b"fffd");
                }
                6
            }
            [None, _] => 2,
        };
    }
    whole
}

/// The code of the escape at `at`, if it is a surrogate.
fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let code = std::str::from_utf8(bytes.get(at..at + 6)?.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(code, 16).ok().filter(|code| (0xd800..0xe000).contains(code))
}

/// Deserialises a value, while its size is allowed.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    size: &'a Cell<Size>,
    check: &'a dyn Fn(Size) -> Result<()>,
    failure: &'a RefCell<Option<Error>>,
}

impl Bounded<'_> {
    fn add<E: serde::de::Error>(self, more: Size) -> std::result::Result<(), E> {
        let mut size = self.size.get();
        size.add(more);
        self.size.set(size);
        (self.check)(size).map_err(|e| {
            *self.failure.borrow_mut() = Some(e);
            E::custom("too large")
        })
    }

    fn text<E: serde::de::Error>(self, text: impl Into<Text>) -> std::result::Result<Value, E> {
        let text = text.into();
        self.add(Size { bytes: text.len(), ..Size::default() })?;
        Ok(Value::String(text))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        self.add(Size { nodes: 1, ..Size::default() })?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> std::result::Result<Value, E> {
        Ok(Value::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> std::result::Result<Value, E> {
        Ok(scalar::decimal(v.to_string()))
    }
    fn visit_str<E: serde::de::Error>(self, v: &str) -> std::result::Result<Value, E> {
        self.text(v)
    }
    fn visit_string<E: serde::de::Error>(self, v: String) -> std::result::Result<Value, E> {
        self.text(v)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let before = self.size.get();
            let value = entries.next_value_seed(self)?;
            if key == NUMBER
                && let Some(number) = value.as_str().and_then(number)
            {
                // The number is the node of the mapping.
                self.size.set(before);
                return Ok(number);
            }
            self.add(Size { nodes: 0, keys: 1, bytes: key.len() })?;
            map.insert(key, value);
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_all_levels_count() {
        let lists = vec![format!("[{}1]", "1,".repeat(999)); 260].join(",");
        assert!(
            parse("t", format!("[{lists}]").as_bytes()).unwrap_err().to_string().contains("more than 250000 values")
        );
        assert!(parse("t", b"[1,]").unwrap_err().to_string().contains("t: not valid JSON at line 1"));
        assert!(parse("t", b"[1] 2").is_err());
    }

    #[test]
    fn reads_and_writes_what_it_read() {
        let text = r#"{"b":1,"a":[true,null,1.5,"é"],"n":{}}"#;
        let value = parse("t", text.as_bytes()).unwrap();
        assert_eq!(to_string(&value), text);
        assert_eq!(
            to_string_sorted(&value),
            "{\n \"a\": [\n  true,\n  null,\n  1.5,\n  \"é\"\n ],\n \"b\": 1,\n \"n\": {}\n}"
        );
    }

    #[test]
    fn rounds_a_long_number_to_the_nearest_float() {
        for text in ["1e400", "5e-324", "9007199254740993.0", "0.1000000000000000055"] {
            let Value::Float(read) = parse("t", text.as_bytes()).unwrap() else { panic!("{text} is a float") };
            assert_eq!(Ok(read), text.parse(), "{text}");
        }
    }

    #[test]
    fn integers_keep_their_digits() {
        let text = r#"[18446744073709551615,-123456789012345678901234567890,9223372036854775807]"#;
        let value = parse("t", text.as_bytes()).unwrap();
        assert_eq!(to_string(&value), text);
        assert_eq!(value.texts()[0], "18446744073709551615");
        assert_eq!(to_string_sorted(&value), text.replace(',', ",\n ").replace('[', "[\n ").replace(']', "\n]"));
        for (text, same) in [
            ("-0", "0"),
            ("1E2", "100.0"),
            (r#"{"$serde_json::private::Number": "x"}"#, r#"{"$serde_json::private::Number":"x"}"#),
        ] {
            assert_eq!(to_string(&parse("t", text.as_bytes()).unwrap()), same);
        }
        let numbers = format!("[{}1]", "1,".repeat(MAX_NODES - 2));
        assert!(parse("t", numbers.as_bytes()).is_ok());
    }

    #[test]
    fn halves_of_characters() {
        for (text, read) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\uDE00\uD83Dx\uD83D\uD83D\uDE00""#, "\u{fffd}\u{fffd}x\u{fffd}😀"),
            (r#""\\ud83d""#, "\\ud83d"),
        ] {
            assert_eq!(parse("t", text.as_bytes()), Ok(read.into()), "{text}");
        }
        for text in [r#""\ud8"#, r#""\"#, r#""\u"#, r#""\ud83d\u"#] {
            assert!(parse("t", text.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_broken_document_is_named_with_the_place() {
        let error = parse("meta_data.json", b"{\n\"a\": }").unwrap_err();
        assert_eq!(error.to_string(), "meta_data.json: not valid JSON at line 2 column 6");
        assert!(parse("deep", "[".repeat(100_000).as_bytes()).is_err());
    }
}
