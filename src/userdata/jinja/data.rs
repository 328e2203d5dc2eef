//! Instance-data as the variables of a template (cloud-init's "instance-data", "jinja templates"): the
//! content of `v1` is also at the top, and a key that contains operators has an alias.

use super::budget::{MAX_DEPTH, Step, fail};
use super::lexer::SIGNS;
use super::value::{Heap, Text, Value};
use crate::document::{Map, Value as Data};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// The variables. They are converted on first use, because a template needs few of them, and some are large.
pub struct Variables<'a> {
    names: HashMap<String, Source<'a>>,
    /// Converted variables.
    used: RefCell<HashMap<String, Value<'a>>>,
    encoded: HashSet<&'a str>,
}

/// The path of a variable: keys separated by `/`.
#[derive(Clone)]
struct Source<'a> {
    path: String,
    data: &'a Data,
}

impl<'a> Variables<'a> {
    /// Variables from instance-data. Values named in `base64_encoded_keys` are decoded.
    pub fn new(data: &'a Data) -> Self {
        let encoded = ["base64_encoded_keys", "base64-encoded-keys"];
        let encoded = encoded.into_iter().filter_map(|key| data.get(key).and_then(Data::as_list)).flatten();
        let encoded = encoded.filter_map(Data::as_str).collect();
        let mut variables = Variables { names: HashMap::new(), used: RefCell::default(), encoded };
        for (key, data) in data.as_map().map(Map::sorted).unwrap_or_default() {
            let path = key.to_owned();
            for (inner, data) in data.as_map().filter(|_| is_version(key)).map(Map::sorted).unwrap_or_default() {
                variables.add(inner, Source { path: format!("{path}/{inner}"), data });
            }
            variables.add(key, Source { path, data });
        }
        variables
    }

    fn add(&mut self, key: &str, source: Source<'a>) {
        let alias = alias(key);
        if alias != key {
            self.names.insert(alias, source.clone());
        }
        self.names.insert(key.to_owned(), source);
    }

    /// The variable with this name; None if there is none.
    ///
    /// # Errors
    /// It is too large, or nests too deep.
    pub fn get(&self, name: &str, heap: &Heap<'a, '_>) -> Step<Option<Value<'a>>> {
        if let Some(value) = self.used.borrow().get(name) {
            return Ok(Some(value.clone()));
        }
        let Some(source) = self.names.get(name) else { return Ok(None) };
        let value = self.value(source.data, &source.path, heap, 0)?;
        self.used.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(Some(value))
    }

    fn value(&self, data: &'a Data, path: &str, heap: &Heap<'a, '_>, depth: usize) -> Step<Value<'a>> {
        let Data::Map(map) = data else {
            return match data {
                Data::String(text) if self.encoded.contains(path) => match crate::base::base64::decode(text.as_bytes())
                {
                    Some(bytes) => heap.text(String::from_utf8_lossy(&bytes)),
                    None => Ok(Value::borrowed(text)),
                },
                other => plain(other, heap, depth),
            };
        };
        if depth > MAX_DEPTH {
            return fail("instance-data nested too deep");
        }
        let dict = heap.dict([])?;
        for (key, data) in map.sorted() {
            let path = format!("{path}/{key}");
            let value = self.value(data, &path, heap, depth + 1)?;
            dict.insert(Value::borrowed(key), value.clone(), heap.budget)?;
            if let (true, Value::Dict(inner)) = (is_version(key), &value) {
                for (key, value) in inner.entries() {
                    dict.insert(key, value, heap.budget)?;
                }
            }
            let alias = alias(key);
            if alias != key {
                dict.insert(heap.text(alias)?, value, heap.budget)?;
            }
        }
        Ok(Value::Dict(dict))
    }
}

/// A value without aliases, which what is in lists does not have.
fn plain<'a>(data: &'a Data, heap: &Heap<'a, '_>, depth: usize) -> Step<Value<'a>> {
    if depth > MAX_DEPTH {
        return fail("instance-data nested too deep");
    }
    Ok(match data {
        Data::Null => Value::None,
        Data::Bool(b) => Value::Bool(*b),
        Data::Int(i) => Value::Int(*i),
        Data::Float(f) => Value::Float(*f),
        Data::String(text) | Data::Big(text) => Value::borrowed(text),
        Data::Bytes(bytes) => heap.text(String::from_utf8_lossy(bytes))?,
        Data::List(list) => heap.list(list.iter().map(|item| plain(item, heap, depth + 1)).collect::<Step<_>>()?)?,
        Data::Map(map) => {
            let dict = heap.dict([])?;
            for (key, value) in map.iter() {
                dict.insert(Value::Text(Text::Borrowed(key)), plain(value, heap, depth + 1)?, heap.budget)?;
            }
            Value::Dict(dict)
        }
    })
}

/// `v1`, `v2`: their keys are at the top as well.
pub fn is_version(key: &str) -> bool {
    key.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The alias of a key, in which jinja's operators are replaced by `_`; the key itself if it contains none.
pub fn alias(key: &str) -> String {
    let mut alias = String::new();
    let mut rest = key;
    while let Some(next) = rest.chars().next() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).copied();
        let width = sign.map_or(next.len_utf8(), str::len);
        alias.push(if sign.is_some() || next == ';' { '_' } else { next });
        rest = rest.get(width..).unwrap_or_default();
    }
    alias
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
            ("a--b", "a__b"),
            ("a//b;c", "a_b_c"),
            ("a!b", "a!b"),
        ] {
            assert_eq!(super::alias(key), alias, "{key}");
        }
    }
}
