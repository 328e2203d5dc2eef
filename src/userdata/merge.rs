//! Merges cloud-config documents by a strategy (`merge_how`).

use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{MAX_DEPTH, Map, Value, wrong};

/// The default strategy for documents of one source: a key of a later document replaces the earlier value.
pub const REPLACE: &str = "dict(replace)+list()+str()";
/// The default strategy for layers of configuration: the higher layer takes precedence, and mappings are
/// merged recursively.
pub const KEEP: &str = "list()+dict()+str()";

/// How two documents are merged: a merger per type. Values of other types stay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Strategy {
    mapping: Option<MappingMerger>,
    list: Option<ListMerger>,
    string: Option<StringMerger>,
}

#[derive(Debug, Clone, PartialEq)]
struct MappingMerger {
    replace: bool,
    delete: bool,
    recurse_string: bool,
    recurse_list: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct ListMerger {
    method: ListMethod,
    recurse_string: bool,
    recurse_list: bool,
    recurse_mapping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ListMethod {
    Append,
    Prepend,
    /// Index by index, up to the length of the shorter list.
    Replace,
    Keep,
}

#[derive(Debug, Clone, PartialEq)]
struct StringMerger {
    append: bool,
}

impl Strategy {
    /// Parses a strategy such as `list(append)+dict(no_replace,recurse_list)+str()`.
    ///
    /// # Errors
    /// A merger does not exist, or its syntax is wrong.
    pub fn parse(text: &str) -> Result<Strategy> {
        let mut strategy = Strategy::default();
        strategy.add_text(text)?;
        Ok(strategy)
    }

    /// Removes `merge_how`, else `merge_type`, from a document. None if it has neither or an empty one: then
    /// a MIME header or the default applies. The first merger for a type takes precedence, so that a header
    /// only adds what the document leaves open.
    ///
    /// # Errors
    /// A merger does not exist, or its syntax is wrong.
    pub fn take(document: &mut Map, header: Option<&str>) -> Result<Option<Strategy>> {
        let mut strategy = Strategy::default();
        let how = ["merge_how", "merge_type"].into_iter().find_map(|k| document.remove(k).filter(|v| !v.is_null()));
        match how {
            None => {}
            Some(Value::String(text)) => strategy.add_text(&text)?,
            Some(Value::List(list)) => list.iter().try_for_each(|item| strategy.add_item(item))?,
            Some(other) => return Err(wrong("merge_how", "a string or a list", &other)),
        }
        strategy.add_text(header.unwrap_or_default())?;
        Ok((strategy != Strategy::default()).then_some(strategy))
    }

    fn add_text(&mut self, text: &str) -> Result<()> {
        for merger in text.split('+') {
            let merger = merger.trim().to_ascii_lowercase().replace('-', "_");
            if merger.is_empty() {
                continue;
            }
            // As lenient as cloud-init: the options are the text between the first and the last bracket.
            let parts = merger.strip_suffix(')').and_then(|m| m.split_once('('));
            let Some((name, options)) = parts.filter(|(name, _)| is_name(name)) else {
                return Err(Error::new("merge_how: expected mergers like list(append)+dict(no_replace)+str()"));
            };
            let options: Vec<&str> = options.split(',').map(str::trim).collect();
            self.add(name, &options)?;
        }
        Ok(())
    }

    /// Parses `{name: list, settings: [append]}` or `[list, append]`.
    fn add_item(&mut self, item: &Value) -> Result<()> {
        let (name, options) = match item {
            Value::Map(map) => {
                let settings = map.get("settings").unwrap_or(&Value::Null);
                let one = settings.as_str().map_or(&[] as &[Value], |_| std::slice::from_ref(settings));
                (map.get("name"), settings.as_list().unwrap_or(one))
            }
            Value::List(list) => (list.first(), list.get(1..).unwrap_or_default()),
            other => return Err(wrong("merge_how", "mappings with name and settings, or lists", other)),
        };
        let Some(name) = name.and_then(Value::as_str) else {
            return Err(Error::new("merge_how: a merger without a name"));
        };
        let options: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
        self.add(name.replace('-', "_").trim(), &options)
    }

    fn add(&mut self, name: &str, options: &[&str]) -> Result<()> {
        let has = |option: &str| options.contains(&option);
        let recurse_list = has("recurse_list") || has("recurse_array");
        let recurse_string = has("recurse_str");
        match name.strip_prefix("m_").unwrap_or(name) {
            "dict" => {
                let merger = MappingMerger {
                    replace: has("replace"),
                    delete: has("allow_delete"),
                    recurse_string,
                    recurse_list,
                };
                self.mapping.get_or_insert(merger);
            }
            "list" => {
                let methods = [("append", ListMethod::Append), ("prepend", ListMethod::Prepend)];
                let methods =
                    methods.into_iter().chain([("replace", ListMethod::Replace), ("no_replace", ListMethod::Keep)]);
                let method = methods.into_iter().find(|(o, _)| has(o)).map_or(ListMethod::Replace, |(_, m)| m);
                self.list.get_or_insert(ListMerger {
                    method,
                    recurse_string,
                    recurse_list,
                    recurse_mapping: has("recurse_dict"),
                });
            }
            "str" => {
                self.string.get_or_insert(StringMerger { append: has("append") });
            }
            _ => return Err(Error::new("merge_how: expected mergers named dict, list or str")),
        }
        Ok(())
    }

    /// Merges `new` into `base`.
    ///
    /// # Errors
    /// The values cannot be merged, such as a number appended to a list. The error does not have the key.
    pub fn merge(&self, base: Value, new: Value) -> Result<Value> {
        self.merge_at(base, new, 0)
    }

    fn merge_at(&self, base: Value, new: Value, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(Error::new(format!("merging nests deeper than {MAX_DEPTH}")));
        }
        match (base, &self.mapping, &self.list, &self.string) {
            (Value::Map(base), Some(merger), ..) => match new {
                Value::Map(new) => self.mappings(merger, base, new, depth).map(Value::Map),
                _ => Ok(Value::Map(base)),
            },
            (Value::List(base), _, Some(merger), _) => self.lists(merger, base, new, depth),
            (Value::String(base), _, _, Some(merger)) => match new {
                Value::String(new) if merger.append => Ok((base.into_string() + &new).into()),
                new if merger.append => Err(wrong("appending to a string", "a string", &new)),
                new => Ok(new),
            },
            (base, ..) => Ok(base),
        }
    }

    fn mappings(&self, merger: &MappingMerger, mut base: Map, new: Map, depth: usize) -> Result<Map> {
        if base.is_empty() {
            return Ok(new);
        }
        let mut deleted = Vec::new();
        for (key, new) in new.into_entries() {
            let Some(slot) = base.get_mut(&key) else {
                base.insert(key, new);
                continue;
            };
            if new.is_null() && merger.delete {
                deleted.push(key);
                continue;
            }
            let recurse = match &new {
                Value::List(_) => merger.recurse_list,
                Value::String(_) => merger.recurse_string,
                Value::Map(_) => true,
                _ => false,
            };
            if merger.replace {
                *slot = new;
            } else if recurse {
                *slot = self.merge_at(std::mem::take(slot), new, depth + 1)?;
            }
        }
        base.remove_all(&deleted);
        Ok(base)
    }

    fn lists(&self, merger: &ListMerger, mut base: Vec<Value>, new: Value, depth: usize) -> Result<Value> {
        let mut new = match new {
            Value::List(new) => new,
            new if merger.method == ListMethod::Replace => return Ok(new),
            _ if merger.method == ListMethod::Keep => return Ok(Value::List(base)),
            new => return Err(wrong("appending to a list", "a list", &new)),
        };
        match merger.method {
            ListMethod::Append => base.append(&mut new),
            ListMethod::Prepend => {
                new.append(&mut base);
                base = new;
            }
            ListMethod::Keep => {}
            ListMethod::Replace => {
                for (slot, new) in base.iter_mut().zip(new) {
                    let recurse = match &new {
                        Value::List(_) => merger.recurse_list,
                        Value::String(_) => merger.recurse_string,
                        Value::Map(_) => merger.recurse_mapping,
                        _ => false,
                    };
                    *slot = if recurse { self.merge_at(std::mem::take(slot), new, depth + 1)? } else { new };
                }
            }
        }
        Ok(Value::List(base))
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Merges layers of configuration, the highest first. Each layer's own `merge_how` determines how it is
/// merged below those above it; an invalid one is reported under the layer's name, and the default used.
pub fn layers(layers: impl IntoIterator<Item = (String, Map)>, report: &Problems) -> Map {
    let mut merged = Value::Map(Map::new());
    for (name, mut layer) in layers {
        let strategy = Strategy::take(&mut layer, None).unwrap_or_else(|e| {
            report.warn(format_args!("{name}: {e}; the default is used"));
            None
        });
        let strategy = strategy.or_else(|| Strategy::parse(KEEP).ok()).unwrap_or_default();
        match strategy.merge(merged.clone(), Value::Map(layer)) {
            Ok(value) => merged = value,
            Err(e) => report.warn(format_args!("{name}: ignored, failed to merge it: {e}")),
        }
    }
    match merged {
        Value::Map(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{json, yaml};

    fn merged(how: &str, base: &str, new: &str) -> String {
        let value = |text: &str| yaml::parse("t", text).unwrap();
        Strategy::parse(how)
            .and_then(|s| s.merge(value(base), value(new)))
            .map_or_else(|e| e.to_string(), |v| json::to_string(&v))
    }

    #[test]
    fn strategies() {
        for (how, base, new, expected) in [
            (REPLACE, "{a: {x: 1}, b: 1}", "{a: {y: 2}, c: null}", r#"{"a":{"y":2},"b":1,"c":null}"#),
            (KEEP, "{a: {x: 1}, l: [1]}", "{a: {x: 2, y: 2}, l: [2]}", r#"{"a":{"x":1,"y":2},"l":[1]}"#),
            ("dict(recurse_list)+list()", "{l: [a, b]}", "{l: [c]}", r#"{"l":["c","b"]}"#),
            ("dict(recurse_list)+list(append,prepend)", "{l: [a]}", "{l: [c, d]}", r#"{"l":["a","c","d"]}"#),
            ("dict(recurse_array)+LIST( prepend )", "{l: [a]}", "{l: [c]}", r#"{"l":["c","a"]}"#),
            ("dict(recurse-list)+list(no-replace)", "{l: [a]}", "{l: [c]}", r#"{"l":["a"]}"#),
            ("dict(recurse_str)+str(append)", "{s: a}", "{s: b}", r#"{"s":"ab"}"#),
            ("dict(recurse_str)+str()", "{s: a}", "{s: b}", r#"{"s":"b"}"#),
            ("dict(allow_delete)", "{s: a, t: 1}", "{s: null}", r#"{"t":1}"#),
            ("dict()", "{s: a}", "{s: null, l: 1}", r#"{"s":"a","l":1}"#),
            ("list(append)dict()", "[1]", "[2]", "[2]"),
            ("", "{a: 1}", "{b: 2}", r#"{"a":1}"#),
            ("dict(recurse_list)+list(append)", "{l: [1]}", "{l: [2], m: 1}", r#"{"l":[1,2],"m":1}"#),
        ] {
            assert_eq!(merged(how, base, new), expected, "{how}");
        }
        for how in ["list", "nosuch()", "dict(", "1dict()", "di ct()"] {
            assert!(merged(how, "{}", "{}").starts_with("merge_how: expected"), "{how}");
        }
    }

    #[test]
    fn a_document_says_how() {
        for (text, replace) in [
            ("{merge_how: 'dict(replace)', merge_type: 1}", Some(true)),
            ("{merge_type: [{name: dict, settings: [no_replace]}]}", Some(false)),
            ("{merge_how: [[dict, replace], [dict]]}", Some(true)),
            ("{merge_how: [{name: dict, settings: replace}]}", Some(true)),
            ("{merge_how: '', a: 1}", None),
            ("{merge_how: null}", None),
            ("{}", None),
        ] {
            let Ok(Value::Map(mut map)) = yaml::parse("t", text) else { panic!("{text}") };
            let strategy = Strategy::take(&mut map, None).unwrap();
            assert_eq!(strategy.and_then(|s| s.mapping).map(|m| m.replace), replace, "{text}");
            assert!(!map.contains_key("merge_how"));
        }
        let mut map = Map::new();
        assert!(Strategy::take(&mut map, Some("list(append)")).unwrap().is_some());
        map.insert("merge_how", 3);
        assert!(Strategy::take(&mut map, None).is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let deep = || (0..5000).fold(Value::Null, |v, _| Value::Map([("a", v)].into_iter().collect()));
        let result = Strategy::parse(KEEP).unwrap().merge(deep(), deep());
        assert!(result.is_err());
    }
}
