//! Reading a mapping key by key: what has the wrong kind is reported by its path and left out, and the rest goes on.

use crate::document::{Map, Value};
use crate::network::address::{Ip, Net};

/// The keys of one mapping that have not been read yet.
pub struct Fields {
    path: String,
    map: Map,
}

/// Says that a key is left out because its value is not what it has to be.
pub fn reject(path: &str, expected: &str, found: &str) {
    log::warn!("network configuration: {path}: expected {expected}, found {found}; it is left out");
}

/// Whether a text may stand in a line of a configuration file.
fn printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Whether the text can be a device's name or the id of its configuration, which both become parts of file names.
pub fn valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '"' | '\\'))
}

/// The longest id that is taken. Linux itself takes 15 bytes for a device's name.
const MAX_NAME: usize = 128;

impl Fields {
    /// The mapping at `path` of the document. None, and a report, where the value is no mapping; null is an empty one.
    pub fn new(path: impl Into<String>, value: Value) -> Option<Fields> {
        let path = path.into();
        match value {
            Value::Map(map) => Some(Fields { path, map }),
            Value::Null => Some(Fields { path, map: Map::new() }),
            other => {
                reject(&path, "a mapping", other.kind());
                None
            }
        }
    }

    /// Where the mapping stands in the document.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of one of its keys.
    pub fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Takes a key; null is not there.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|v| !v.is_null())
    }

    fn parse<T>(&mut self, key: &str, expected: &str, parse: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(key)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            reject(&self.path_of(key), expected, value.kind());
        }
        parsed
    }

    /// A scalar as one line of text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.parse(key, "one line of text", |v| v.text().filter(|t| printable(t)))
    }

    /// A device's name.
    pub fn name(&mut self, key: &str) -> Option<String> {
        self.parse(key, "a device's name", |v| v.text().filter(|t| valid_name(t)))
    }

    /// A boolean, or one of cloud-init's words for it.
    pub fn boolean(&mut self, key: &str) -> Option<bool> {
        self.parse(key, "true or false", |v| if v.is_true() { Some(true) } else { v.is_false().then_some(false) })
    }

    /// A number, also as text.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &str) -> Option<T> {
        self.parse(key, "a number in range", |v| match v {
            Value::Int(i) => T::try_from(*i).ok(),
            Value::String(s) => s.trim().parse().ok().and_then(|i: i64| T::try_from(i).ok()),
            _ => None,
        })
    }

    /// An IP address.
    pub fn ip(&mut self, key: &str) -> Option<Ip> {
        self.parse(key, "an IP address", |v| v.text().and_then(|t| Ip::parse(&t)))
    }

    /// An address with a prefix; one without is a host.
    pub fn net(&mut self, key: &str) -> Option<Net> {
        self.parse(key, "an IP address with a prefix", |v| v.text().and_then(|t| Net::parse_or_host(&t)))
    }

    /// Texts: a list, or one text with several words.
    pub fn words(&mut self, key: &str) -> Vec<String> {
        let values = match self.take(key) {
            None => return Vec::new(),
            Some(Value::List(list)) => list,
            Some(other) => vec![other],
        };
        let mut out = Vec::new();
        for value in values {
            match value.text().filter(|t| printable(t)) {
                Some(text) => out.extend(text.split([' ', ',']).filter(|w| !w.is_empty()).map(str::to_owned)),
                None => reject(&self.path_of(key), "texts", value.kind()),
            }
        }
        out
    }

    /// Names of devices.
    pub fn names(&mut self, key: &str) -> Vec<String> {
        let path = self.path_of(key);
        let mut words = self.words(key);
        words.retain(|w| {
            let valid = valid_name(w);
            if !valid {
                reject(&path, "names of devices", "another text");
            }
            valid
        });
        words
    }

    /// A mapping; none where the key is not there.
    pub fn map(&mut self, key: &str) -> Option<Fields> {
        let value = self.take(key)?;
        Fields::new(self.path_of(key), value)
    }

    /// The mappings of a list; one mapping is a list of one.
    pub fn list(&mut self, key: &str) -> Vec<Fields> {
        let path = self.path_of(key);
        match self.take(key) {
            None => Vec::new(),
            Some(Value::List(list)) => {
                list.into_iter().enumerate().filter_map(|(i, v)| Fields::new(format!("{path}[{i}]"), v)).collect()
            }
            Some(Value::Map(map)) => Vec::from_iter(Fields::new(path, Value::Map(map))),
            Some(other) => {
                reject(&path, "a list", other.kind());
                Vec::new()
            }
        }
    }

    /// The entries, in order.
    pub fn entries(self) -> impl Iterator<Item = (String, Value)> {
        self.map.into_entries().into_iter()
    }

    /// What has not been read, without nulls.
    pub fn rest(self) -> Map {
        self.map.into_entries().into_iter().filter(|(_, v)| !v.is_null()).collect()
    }

    /// Reports what has not been read as unknown.
    pub fn finish(self) {
        for (key, _) in self.map.iter().filter(|(_, v)| !v.is_null()) {
            log::warn!("network configuration: {}.{key}: not known; it is left out", self.path);
        }
    }
}
