//! Documents from outside as plain data: YAML 1.1 as PyYAML reads it, and JSON, with one value type for both. XML as elements.

mod bytes;
pub mod json;
mod path;
mod scalar;
mod text;
pub mod xml;
pub mod yaml;
mod yaml_write;

pub use bytes::Bytes;
pub use path::Path;
pub use text::Text;
pub use yaml_write::{to_yaml, write_yaml};

use crate::base::error::{Error, Result};
use std::collections::HashMap;

/// How deep a document may nest.
pub const MAX_DEPTH: usize = 100;
/// How many nodes a document may have, aliases expanded.
pub const MAX_NODES: usize = 250_000;

/// A document or a part of one.
///
/// Timestamps stay the text they were.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits: its decimal digits, with `-` before them where it is negative.
    Big(Text),
    Float(f64),
    String(Text),
    /// `!!binary` whose bytes are not UTF-8; binary that is UTF-8 is a `String`.
    Bytes(Bytes),
    List(Vec<Value>),
    Map(Map),
}

/// A mapping that keeps the order of its document. Keys that are not strings are held as their text (`true`, `null`,
/// `1`). For duplicate keys, the last value is used, in the place of the first, as in Python. Two are equal whatever
/// their order.
#[derive(Clone, Default)]
pub struct Map {
    entries: Vec<(String, Value)>,
    /// An index by key, once there are so many entries that a linear search would be slow.
    index: Option<Box<Index>>,
}

/// Boxed, so that a `Value` is four words: most mappings have none.
#[derive(Clone)]
struct Index(HashMap<String, usize>);

/// Up to this many entries are searched in order; beyond it an index is kept.
const INDEX_FROM: usize = 16;

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl Map {
    /// An empty mapping.
    pub fn new() -> Self {
        Self::default()
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.entries.len() < INDEX_FROM {
            self.entries.iter().position(|(k, _)| k == key)
        } else {
            self.index.as_ref()?.0.get(key).copied()
        }
    }

    fn reindex(&mut self) {
        let index = || self.entries.iter().enumerate().map(|(i, (k, _))| (k.clone(), i)).collect();
        self.index = (self.entries.len() >= INDEX_FROM).then(|| Box::new(Index(index())));
    }

    /// The value at `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).and_then(|i| self.entries.get(i)).map(|(_, v)| v)
    }

    /// The value at `key`, to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let i = self.position(key)?;
        self.entries.get_mut(i).map(|(_, v)| v)
    }

    /// Sets `key`, in its old place if it had one, and gives back what was there.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        self.entries.push((key.clone(), value));
        match self.entries.len() {
            n if n == INDEX_FROM => self.reindex(),
            n => {
                if let Some(index) = &mut self.index {
                    index.0.insert(key, n - 1);
                }
            }
        }
        None
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let i = self.position(key)?;
        let (_, value) = self.entries.remove(i);
        self.reindex();
        Some(value)
    }

    /// Takes several keys out.
    pub fn remove_all(&mut self, keys: &[String]) {
        if !keys.is_empty() {
            let keys: std::collections::HashSet<&str> = keys.iter().map(String::as_str).collect();
            self.entries.retain(|(k, _)| !keys.contains(k.as_str()));
            self.reindex();
        }
    }

    /// Whether `key` is there, whatever its value.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Entries in the document's order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Entries by key.
    pub fn sorted(&self) -> Vec<(&str, &Value)> {
        let mut entries: Vec<_> = self.iter().collect();
        crate::base::sort::by_key(&mut entries, |(key, _)| *key);
        entries
    }

    /// Keys in the document's order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(k, _)| k.as_str())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, owned, in the document's order.
    pub fn into_entries(self) -> Vec<(String, Value)> {
        self.entries
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Map::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl Value {
    /// The value at `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map().and_then(|m| m.get(key))
    }

    /// The value at a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The list, if this is one.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(l) => Some(l),
            _ => None,
        }
    }

    /// The mapping, if this is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(m) => Some(m),
            _ => None,
        }
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// A scalar as the text that a file would hold: strings as they are, numbers in decimal, `true` and `false`.
    /// None for null, lists, mappings and bytes.
    pub fn text(&self) -> Option<String> {
        match self {
            Value::String(s) | Value::Big(s) => Some(s.to_string()),
            Value::Int(i) => Some(i.to_string()),
            Value::Float(f) => Some(json::float(*f)),
            Value::Bool(b) => Some(b.to_string()),
            _ => None,
        }
    }

    /// The texts ([`Value::text`]) of a list, or the one text where the value is no list.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Value::List(list) => list.iter().filter_map(Value::text).collect(),
            one => one.text().into_iter().collect(),
        }
    }

    /// The bytes of a string or of binary data.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::String(s) => Some(s.as_bytes()),
            Value::Bytes(b) => Some(b),
            _ => None,
        }
    }

    /// Whether cloud-init takes this as true: true itself, and the words true, 1, on, yes in any case (`util.is_true`).
    pub fn is_true(&self) -> bool {
        self.text().is_some_and(|t| ["true", "1", "on", "yes"].contains(&t.trim().to_ascii_lowercase().as_str()))
    }

    /// Whether cloud-init takes this as false: false itself, and the words off, 0, no, false in any case (`util.is_false`).
    pub fn is_false(&self) -> bool {
        self.text().is_some_and(|t| ["off", "0", "no", "false"].contains(&t.trim().to_ascii_lowercase().as_str()))
    }

    /// The value that holds `bytes`: a string where they are UTF-8.
    pub fn of_bytes(bytes: Vec<u8>) -> Value {
        match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(e) => Value::Bytes(e.into_bytes().into()),
        }
    }

    /// What kind of value this is, for an error message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Big(_) => "an integer",
            Value::Float(_) => "a number",
            Value::String(_) => "a string",
            Value::Bytes(_) => "binary data",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// The error for a key of a document that holds the wrong kind of value. It names the key, never the value.
pub fn wrong(key: &str, expected: &str, found: &Value) -> Error {
    Error::new(format!("{key}: expected {expected}, found {}", found.kind()))
}

/// The value of a key as a mapping; None where it is absent or null.
///
/// # Errors
/// It is something else. The error names `key`.
pub fn optional_map<'v>(key: &str, value: Option<&'v Value>) -> Result<Option<&'v Map>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(other) => Err(wrong(key, "a mapping", other)),
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Value::$variant(value.into())
            }
        }
    )*};
}
from!(bool => Bool, i64 => Int, i32 => Int, u32 => Int, &str => String, String => String, Text => String, Bytes => Bytes, Map => Map, Vec<Value> => List);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_keeps_order_and_the_last_of_two_wins() {
        let mut map = Map::new();
        for i in 0..40 {
            map.insert(format!("k{i}"), i);
        }
        map.insert("k3", "three");
        assert_eq!(map.remove("k20"), Some(Value::Int(20)));
        assert_eq!(map.get("k39"), Some(&Value::Int(39)));
        assert_eq!(map.iter().nth(3), Some(("k3", &Value::from("three"))));
        assert_eq!(map.len(), 39);
        assert!(!map.contains_key("k20"));
    }
}
