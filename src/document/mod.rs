//! Documents as plain data: YAML 1.1 as PyYAML reads it and JSON, with one value type for both, and XML as
//! elements.

mod bytes;
pub mod json;
mod json_write;
mod path;
mod scalar;
mod taken;
#[doc(hidden)]
pub mod testing;
mod text;
pub mod xml;
pub mod yaml;
mod yaml_write;

pub use bytes::Bytes;
pub use path::Path;
pub use scalar::float_text;
pub use taken::{InstancePart, Raw, Taken};
pub use text::Text;
pub use yaml_write::{to_yaml, write_yaml};

use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The greatest depth of a document.
pub const MAX_DEPTH: usize = 100;
/// The most nodes of a document, with aliases expanded.
pub const MAX_NODES: usize = 250_000;

/// A document, or a part of one.
///
/// Timestamps are strings.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits: its decimal digits, with a leading `-` if it is negative.
    Big(Text),
    Float(f64),
    String(Text),
    /// `!!binary` that is not UTF-8; otherwise it is a `String`.
    Bytes(Bytes),
    List(Vec<Value>),
    Map(Map),
}

/// A mapping that keeps the order of its document. Keys that are not strings become their text (`true`,
/// `null`, `1`). As in Python, the last value of a duplicate key is used, in the place of the first. Equality
/// ignores the order.
///
/// A copy shares the entries until one of the two changes: metadata is in several documents, and a configuration is copied for each part
/// that is merged into it.
#[derive(Clone, Default)]
pub struct Map(Option<Arc<Entries>>);

#[derive(Clone, Default)]
struct Entries {
    list: Vec<(String, Value)>,
    /// An index by key, if there are too many entries for a linear search.
    index: Option<Index>,
}

/// Up to this many entries are searched linearly; beyond it there is an index.
const INDEX_FROM: usize = 16;

/// The places of keys in a list, by their hashes: four bytes for each, where a `HashMap` has a copy of the key.
#[derive(Clone)]
struct Index {
    state: RandomState,
    /// A power of two. A place that is taken leads to the next.
    places: Vec<u32>,
}

const FREE: u32 = u32::MAX;

impl Index {
    /// The index of a list, with room for more.
    fn of(list: &[(String, Value)]) -> Index {
        let mut index =
            Index { state: RandomState::new(), places: vec![FREE; (list.len() * 2).next_power_of_two() * 2] };
        (0..list.len()).for_each(|at| index.add(list, at));
        index
    }

    /// The place in `places` of a key that is in the list, or the one that is free for it; and the place in the list.
    fn find(&self, list: &[(String, Value)], key: &str) -> (usize, Option<usize>) {
        let mask = self.places.len() - 1;
        let mut at = self.state.hash_one(key) as usize & mask;
        loop {
            let place = self.places.get(at).filter(|place| **place != FREE).map(|place| *place as usize);
            match place.map(|place| list.get(place)) {
                Some(Some((found, _))) if found == key => return (at, place),
                Some(_) => at = (at + 1) & mask,
                None => return (at, None),
            }
        }
    }

    fn add(&mut self, list: &[(String, Value)], at: usize) {
        let Some((key, _)) = list.get(at) else { return };
        let (free, _) = self.find(list.get(..at).unwrap_or_default(), key);
        if let (Some(place), Ok(at)) = (self.places.get_mut(free), u32::try_from(at)) {
            *place = at;
        }
    }
}

impl Entries {
    fn reindex(&mut self) {
        self.index = (self.list.len() >= INDEX_FROM).then(|| Index::of(&self.list));
    }
}

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

    fn list(&self) -> &[(String, Value)] {
        self.0.as_ref().map_or(&[], |entries| &entries.list)
    }

    fn entries_mut(&mut self) -> &mut Entries {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    fn position(&self, key: &str) -> Option<usize> {
        let entries = self.0.as_ref()?;
        match &entries.index {
            Some(index) => index.find(&entries.list, key).1,
            None => entries.list.iter().position(|(k, _)| k == key),
        }
    }

    /// The value at `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).and_then(|i| self.list().get(i)).map(|(_, v)| v)
    }

    /// The value at `key`, mutable.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let i = self.position(key)?;
        self.entries_mut().list.get_mut(i).map(|(_, v)| v)
    }

    /// Sets `key`, in its place if it exists, and returns the old value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        let entries = self.entries_mut();
        entries.list.push((key, value));
        let last = entries.list.len() - 1;
        match &mut entries.index {
            Some(index) if entries.list.len() * 4 <= index.places.len() * 3 => index.add(&entries.list, last),
            _ => entries.reindex(),
        }
        None
    }

    /// Removes `key`, and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let i = self.position(key)?;
        let entries = self.entries_mut();
        let (_, value) = entries.list.remove(i);
        entries.reindex();
        Some(value)
    }

    /// Removes several keys.
    pub fn remove_all(&mut self, keys: &[String]) {
        if !keys.is_empty() {
            let keys: std::collections::HashSet<&str> = keys.iter().map(String::as_str).collect();
            let entries = self.entries_mut();
            entries.list.retain(|(k, _)| !keys.contains(k.as_str()));
            entries.reindex();
        }
    }

    /// Whether it has `key`, whatever its value.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The entries in the document's order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.list().iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The entries sorted by key.
    pub fn sorted(&self) -> Vec<(&str, &Value)> {
        let mut entries: Vec<_> = self.iter().collect();
        crate::base::sort::by_key(&mut entries, |(key, _)| *key);
        entries
    }

    /// The keys in the document's order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.list().iter().map(|(k, _)| k.as_str())
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.list().len()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// The entries, owned, in the document's order.
    pub fn into_entries(self) -> Vec<(String, Value)> {
        let entries = self.0.unwrap_or_default();
        Arc::try_unwrap(entries).map_or_else(|shared| shared.list.clone(), |entries| entries.list)
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
    /// The value at `key`; None if it is absent or this is not a mapping.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map().and_then(|m| m.get(key))
    }

    /// The value at a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The string; None for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The integer; None for other types.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The boolean; None for other types.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The list; None for other types.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(l) => Some(l),
            _ => None,
        }
    }

    /// The mapping; None for other types.
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

    /// A scalar as text: strings as they are, numbers in decimal, `true` and `false`. None for null, lists,
    /// mappings and bytes.
    pub fn text(&self) -> Option<String> {
        match self {
            Value::String(s) | Value::Big(s) => Some(s.to_string()),
            Value::Int(i) => Some(i.to_string()),
            Value::Float(f) => Some(float_text(*f)),
            Value::Bool(b) => Some(b.to_string()),
            _ => None,
        }
    }

    /// The texts ([`Value::text`]) of a list's items; for any other value, its own.
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

    /// Whether cloud-init considers this true: true itself, and the words true, 1, on, yes in any case
    /// (`util.is_true`).
    pub fn is_true(&self) -> bool {
        self.text().is_some_and(|t| ["true", "1", "on", "yes"].contains(&t.trim().to_ascii_lowercase().as_str()))
    }

    /// Whether cloud-init considers this false: false itself, and the words off, 0, no, false in any case
    /// (`util.is_false`).
    pub fn is_false(&self) -> bool {
        self.text().is_some_and(|t| ["off", "0", "no", "false"].contains(&t.trim().to_ascii_lowercase().as_str()))
    }

    /// The value for `bytes`: a string if they are UTF-8.
    pub fn of_bytes(bytes: Vec<u8>) -> Value {
        match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(e) => Value::Bytes(e.into_bytes().into()),
        }
    }

    /// The type of the value, for error messages.
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

/// What a stage's budget ([`budget::take`]) pays for a node, in bytes: with its copies, while it is merged and written. Measured by
/// `tests/bounds/run`.
const NODE_COST: usize = 140;
/// The same for a mapping's key, which is in an index, too, beside its node and its value's.
const KEY_COST: usize = 80;
/// How often a text is in memory: as it was read, and in a value.
const TEXT_COPIES: usize = 2;

/// The size of a value with aliases expanded: nodes, of which keys are too, the keys among them, and bytes of text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Size {
    pub nodes: usize,
    pub keys: usize,
    pub bytes: usize,
}

impl Size {
    /// What it costs of a stage's budget.
    pub fn cost(self) -> usize {
        self.nodes * NODE_COST + self.keys * KEY_COST + self.bytes * TEXT_COPIES
    }

    /// Whether a stage's budget has room for it.
    ///
    /// # Errors
    /// It has not.
    pub fn fits(self) -> Result<()> {
        budget::check(self.cost())
    }

    /// The size of `value`.
    pub fn of(value: &Value) -> Size {
        let mut size = Size { nodes: 1, ..Size::default() };
        match value {
            Value::String(text) | Value::Big(text) => size.bytes = text.len(),
            Value::Bytes(bytes) => size.bytes = bytes.len(),
            Value::List(list) => list.iter().for_each(|item| size.add(Size::of(item))),
            Value::Map(map) => map.iter().for_each(|(key, value)| {
                size.add(Size { nodes: 1, keys: 1, bytes: key.len() });
                size.add(Size::of(value));
            }),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
        }
        size
    }

    /// Adds another size.
    pub fn add(&mut self, more: Size) {
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.keys = self.keys.saturating_add(more.keys);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Whether a document of so many bytes fits into the stage's budget if it is one text: before any of it is read.
///
/// # Errors
/// It does not. The error has the name of the document.
fn text_fits(document: &str, bytes: usize) -> Result<()> {
    Size { bytes, ..Size::default() }.fits().context(|| document)
}

/// The error for a value of the wrong type. It names the key, never the value.
pub fn wrong(key: &str, expected: &str, found: &Value) -> Error {
    Error::new(format!("{key}: expected {expected}, found {}", found.kind()))
}

/// The value of a key as a mapping; None if it is absent or null.
///
/// # Errors
/// It is another type. The error names `key`.
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
    fn map_keeps_order_and_last_duplicate_wins() {
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
        let mut copy = map.clone();
        copy.insert("k39", "other");
        copy.insert("new", 1);
        assert_eq!((map.get("k39"), map.get("new"), copy.len()), (Some(&Value::Int(39)), None, 40));
        assert!(map.keys().all(|key| copy.contains_key(key)) && copy.remove("none").is_none());
        assert_eq!(copy.into_entries().len(), 40);
        assert!(size_of::<Value>() <= 4 * size_of::<usize>() && Map::new().into_entries().is_empty());
    }
}
