//! Instance-data as a template sees it, and values as a template prints them.

use super::MISSING;
use crate::document::{MAX_DEPTH, Value as Data};
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// The characters that jinja takes for operators; a run of them in a name becomes one `_` in its alias.
const OPERATORS: &[char] =
    &['+', '-', '/', '*', '%', '~', '[', ']', '(', ')', '{', '}', '=', '!', '<', '>', '.', ':', '|', ',', ';'];

/// The variables of a template. Names of `globals` that instance-data does not have are left to the engine.
pub fn top(data: &Data, globals: HashSet<String>) -> Value {
    let encoded: HashSet<&str> = ["base64_encoded_keys", "base64-encoded-keys"]
        .into_iter()
        .filter_map(|key| data.get(key).and_then(Data::as_list))
        .flatten()
        .filter_map(Data::as_str)
        .collect();
    Value::from_object(Variables { entries: entries(data, "", &encoded, 0), globals })
}

fn entries(data: &Data, path: &str, encoded: &HashSet<&str>, depth: usize) -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    let Some(map) = data.as_map().filter(|_| depth < MAX_DEPTH) else { return entries };
    for (key, data) in map.sorted() {
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
        let value = match data {
            Data::Map(_) => {
                let inner = self::entries(data, &path, encoded, depth + 1);
                if is_version(key) {
                    entries.extend(inner.clone());
                }
                Value::from_object(Variables { entries: inner, globals: HashSet::new() })
            }
            other => plain(other, encoded.contains(path.as_str()), depth),
        };
        let alias = alias(key);
        if alias != key {
            entries.insert(alias, value.clone());
        }
        entries.insert(key.to_owned(), value);
    }
    entries
}

fn plain(data: &Data, encoded: bool, depth: usize) -> Value {
    match data {
        Data::Null => Value::from(()),
        Data::Bool(b) => Value::from(*b),
        Data::Int(i) => Value::from(*i),
        Data::Float(f) => Value::from(*f),
        Data::String(s) => match crate::base::base64::decode(s.as_bytes()) {
            Some(bytes) if encoded => Value::from(String::from_utf8_lossy(&bytes)),
            _ => Value::from(s.as_str()),
        },
        Data::Bytes(b) => Value::from(String::from_utf8_lossy(b)),
        Data::List(_) | Data::Map(_) if depth >= MAX_DEPTH => Value::from(()),
        Data::List(list) => list.iter().map(|item| plain(item, false, depth + 1)).collect(),
        Data::Map(_) => Value::from_object(Variables {
            entries: entries(data, "", &HashSet::new(), depth + 1),
            globals: HashSet::new(),
        }),
    }
}

/// `v1`, `v2`: what stands there stands at the top as well.
pub fn is_version(key: &str) -> bool {
    key.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A key's second name, its own where it needs none: each run of operators is one `_`.
pub fn alias(key: &str) -> String {
    key.split(OPERATORS).enumerate().filter(|(i, part)| *i == 0 || !part.is_empty() || key.ends_with(OPERATORS)).fold(
        String::new(),
        |mut alias, (i, part)| {
            if i > 0 && !alias.ends_with('_') {
                alias.push('_');
            }
            alias + part
        },
    )
}

/// A mapping whose missing keys are values too, which print their name.
#[derive(Debug)]
struct Variables {
    entries: BTreeMap<String, Value>,
    globals: HashSet<String>,
}

impl Object for Variables {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        match self.entries.get(&name) {
            Some(value) => Some(value.clone()),
            None if self.globals.contains(&name) => None,
            None => Some(Value::from_object(Missing(name))),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(self.entries.keys().map(|k| Value::from(k.as_str())).collect::<Vec<_>>().into_iter()))
    }

    /// Python's methods of a mapping.
    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        match (method, args) {
            ("items", []) => {
                Ok(self.entries.iter().map(|(k, v)| Value::from(vec![Value::from(k.as_str()), v.clone()])).collect())
            }
            ("keys", []) => Ok(self.entries.keys().map(|k| Value::from(k.as_str())).collect()),
            ("values", []) => Ok(self.entries.values().cloned().collect()),
            ("get", [key, rest @ ..]) => {
                let found = key.as_str().and_then(|k| self.entries.get(k)).or(rest.first());
                Ok(found.cloned().unwrap_or_else(|| Value::from(())))
            }
            _ => Err(ErrorKind::UnknownMethod.into()),
        }
    }
}

/// A variable that does not exist: false, empty, and printed by its name.
#[derive(Debug)]
struct Missing(String);

impl Object for Missing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, _: &Value) -> Option<Value> {
        Some(Value::from(Error::new(ErrorKind::UndefinedError, "a key of a variable that does not exist")))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Empty
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MISSING}{}", self.0)
    }
}

/// Whether a value stands for what does not exist.
pub fn is_missing(value: &Value) -> bool {
    value.is_undefined() || value.downcast_object_ref::<Missing>().is_some()
}

/// A value as Python prints it: `True`, `None`, `['a', 1]`.
pub fn printed(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => MISSING.to_owned(),
        None => representation(value, 0),
    }
}

fn representation(value: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "...".into();
    }
    if is_missing(value) {
        return value.to_string();
    }
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool if value.is_true() => "True".into(),
        ValueKind::Bool => "False".into(),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            format!("[{}]", items().map(|v| representation(&v, depth + 1)).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Map => {
            let pairs = items().map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", representation(&key, depth + 1), representation(&item, depth + 1))
            });
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    if text.contains('\'') && !text.contains('"') {
        format!("\"{escaped}\"")
    } else {
        format!("'{}'", escaped.replace('\'', "\\'"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn aliases() {
        for (key, alias) in [
            ("a-b", "a_b"),
            ("v1.0", "v1_0"),
            ("my/safe-key", "my_safe_key"),
            ("plain", "plain"),
            ("-x", "_x"),
            ("x.", "x_"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(super::alias(key), alias, "{key}");
        }
    }
}
