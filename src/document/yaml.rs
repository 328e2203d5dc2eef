//! YAML 1.1 as PyYAML's SafeLoader reads it: the parser's events composed into a [`Value`], plain scalars resolved by
//! YAML 1.1's rules, `<<` merged, the last of duplicate keys taken.

use super::{MAX_DEPTH, MAX_NODES, Map, Value};
use crate::document::scalar;
use crate::error::{Error, Result};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// The largest YAML text that is read, in bytes.
pub const MAX_BYTES: usize = 16 << 20;

/// Reads one YAML document; an empty text is null. Errors name `document`, the line and the column, never the content.
pub fn parse(document: &str, text: &str) -> Result<Value> {
    if text.len() > MAX_BYTES {
        return Err(Error::new(format!("{document}: larger than {MAX_BYTES} bytes")));
    }
    let fail = |mark: &Marker, what: &str| {
        Error::new(format!("{document}: not valid YAML at line {} column {}: {what}", mark.line(), mark.col() + 1))
    };
    let mut composer = Composer::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| fail(e.marker(), e.info()))?;
        composer.take(event).map_err(|what| fail(&span.start, &what))?;
    }
    Ok(composer.root.unwrap_or_default())
}

#[derive(Default)]
struct Composer {
    open: Vec<Frame>,
    anchors: HashMap<usize, (Value, usize)>,
    nodes: usize,
    root: Option<Value>,
    documents: usize,
}

struct Frame {
    anchor: usize,
    /// How many nodes had been read when this collection began, for the size of an alias to it.
    began: usize,
    kind: Kind,
}

enum Kind {
    List { items: Vec<Value>, pairs: bool },
    Map { entries: Vec<(Key, Value)>, key: Option<Key>, set: bool },
}

enum Key {
    Merge,
    Text(String),
}

type Step = std::result::Result<(), String>;

impl Composer {
    fn take(&mut self, event: Event<'_>) -> Step {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("expected a single document".into());
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if plain && tag.is_none() && text == "<<" && self.wants_key() {
                    if let Some(Frame { kind: Kind::Map { key, .. }, .. }) = self.open.last_mut() {
                        *key = Some(Key::Merge);
                    }
                    return Ok(());
                }
                let value = resolve(text, plain, tag.as_deref())?;
                self.node(value, anchor, 1)?;
            }
            Event::SequenceStart(anchor, tag) => {
                let pairs = match tag.as_deref().map(tag_name).transpose()?.as_deref() {
                    None | Some("seq") => false,
                    Some("omap" | "pairs") => true,
                    Some(other) => return Err(format!("the tag !!{other} does not fit a list")),
                };
                self.push(anchor, Kind::List { items: Vec::new(), pairs })?;
            }
            Event::MappingStart(anchor, tag) => {
                let set = match tag.as_deref().map(tag_name).transpose()?.as_deref() {
                    None | Some("map") => false,
                    Some("set") => true,
                    Some(other) => return Err(format!("the tag !!{other} does not fit a mapping")),
                };
                self.push(anchor, Kind::Map { entries: Vec::new(), key: None, set })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop()?,
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err("an alias to a node that is not complete".into());
                };
                self.node(value, 0, size)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Frame { kind: Kind::Map { key: None, .. }, .. }))
    }

    fn push(&mut self, anchor: usize, kind: Kind) -> Step {
        if self.wants_key() {
            return Err("a list or mapping cannot be a key".into());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.open.push(Frame { anchor, began: self.nodes, kind });
        Ok(())
    }

    fn pop(&mut self) -> Step {
        let Some(frame) = self.open.pop() else { return Ok(()) };
        let size = self.nodes - frame.began + 1;
        let value = match frame.kind {
            Kind::List { items, pairs: false } => Value::List(items),
            Kind::List { items, pairs: true } => Value::Map(pairs_of(items)),
            Kind::Map { entries, set, .. } => {
                let map = flatten(entries)?;
                if set {
                    Value::Map(map.into_entries().into_iter().map(|(k, _)| (k, Value::Null)).collect())
                } else {
                    Value::Map(map)
                }
            }
        };
        self.nodes = frame.began;
        self.node(value, frame.anchor, size)
    }

    /// Puts a complete node of `size` nodes where it belongs.
    fn node(&mut self, value: Value, anchor: usize, size: usize) -> Step {
        self.nodes += size;
        if self.nodes > MAX_NODES {
            return Err(format!("more than {MAX_NODES} nodes, aliases expanded"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.open.last_mut().map(|f| &mut f.kind) {
            None => self.root = Some(value),
            Some(Kind::List { items, .. }) => items.push(value),
            Some(Kind::Map { entries, key, .. }) => match key.take() {
                Some(k) => entries.push((k, value)),
                None => *key = Some(Key::Text(key_text(value)?)),
            },
        }
        Ok(())
    }
}

fn key_text(value: Value) -> std::result::Result<String, String> {
    match value {
        Value::Null => Ok("null".into()),
        Value::List(_) | Value::Map(_) | Value::Bytes(_) => {
            Err("a list, mapping or binary data cannot be a key".into())
        }
        scalar => scalar.text().ok_or_else(|| "not a key".into()),
    }
}

/// Merged mappings come first and explicit keys win; of several merged ones the earlier wins (YAML merge key, as PyYAML does).
fn flatten(entries: Vec<(Key, Value)>) -> std::result::Result<Map, String> {
    let mut merged: Vec<Map> = Vec::new();
    let mut own = Vec::new();
    for (key, value) in entries {
        match (key, value) {
            (Key::Text(key), value) => own.push((key, value)),
            (Key::Merge, Value::Map(map)) => merged.push(map),
            (Key::Merge, Value::List(list)) => {
                for item in list.into_iter().rev() {
                    let Value::Map(map) = item else { return Err("<< expects mappings".into()) };
                    merged.push(map);
                }
            }
            (Key::Merge, _) => return Err("<< expects a mapping or a list of mappings".into()),
        }
    }
    Ok(merged.into_iter().flat_map(Map::into_entries).chain(own).collect())
}

fn pairs_of(items: Vec<Value>) -> Map {
    items
        .into_iter()
        .filter_map(|item| match item {
            Value::Map(map) => Some(map.into_entries()),
            _ => None,
        })
        .flatten()
        .collect()
}

fn tag_name(tag: &Tag) -> std::result::Result<Cow<'_, str>, String> {
    match (tag.handle.as_str(), tag.suffix.as_str()) {
        ("tag:yaml.org,2002:" | "!!", name) => Ok(name.into()),
        ("", name) if name.starts_with("tag:yaml.org,2002:") => Ok(name["tag:yaml.org,2002:".len()..].into()),
        ("" | "!", "" | "!") => Ok("str".into()),
        _ => Err("a tag that is not one of YAML's own".into()),
    }
}

fn resolve(text: Cow<'_, str>, plain: bool, tag: Option<&Tag>) -> std::result::Result<Value, String> {
    let Some(tag) = tag else {
        return Ok(if plain { scalar::resolve(&text) } else { Value::String(text.into_owned()) });
    };
    let name = tag_name(tag)?;
    let value = match &*name {
        "str" | "timestamp" => Some(Value::String(text.to_string())),
        "null" => Some(Value::Null),
        "bool" => scalar::boolean(&text).map(Value::Bool),
        "int" => scalar::integer(&text),
        "float" => scalar::float(&text).or_else(|| text.parse().ok()).map(Value::Float),
        "binary" => scalar::binary(&text),
        other => return Err(format!("the tag !!{other} does not fit a scalar")),
    };
    value.ok_or_else(|| format!("not a valid !!{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn yaml(text: &str) -> String {
        parse("t", text).map_or_else(|e| e.to_string(), |v| json::to_string(&v))
    }

    #[test]
    fn scalars_are_yaml_1_1() {
        for (text, expected) in [
            ("0644", "420"),
            ("0o644", "\"0o644\""),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("1_000", "1000"),
            ("1:30", "90"),
            ("yes", "true"),
            ("Off", "false"),
            ("y", "\"y\""),
            ("~", "null"),
            ("", "null"),
            ("1e3", "\"1e3\""),
            ("1.0e+3", "1000.0"),
            (".5", "0.5"),
            ("1.", "1.0"),
            ("08", "\"08\""),
            ("2032-09-01", "\"2032-09-01\""),
            ("'yes'", "\"yes\""),
            ("!!str 12", "\"12\""),
            ("!!binary aGk=", "\"hi\""),
            ("!!int '3'", "3"),
            ("+12", "12"),
            ("-0x10", "-16"),
            ("{on: 1, 5: x, null: y}", r#"{"true":1,"5":"x","null":"y"}"#),
        ] {
            assert_eq!(yaml(text), expected, "{text}");
        }
    }

    #[test]
    fn anchors_merges_and_duplicates() {
        assert_eq!(yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n"), r#"{"a":{"p":1,"q":2},"b":{"p":1,"q":3}}"#);
        assert_eq!(yaml("<<: [{a: 1}, {a: 2, b: 3}]\n"), r#"{"a":1,"b":3}"#);
        assert_eq!(yaml("a: 1\nb: 2\na: 3\n"), r#"{"a":3,"b":2}"#);
        assert_eq!(yaml("- &a [1]\n- *a\n"), "[[1],[1]]");
    }

    #[test]
    fn hostile_documents_are_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..10 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        assert!(yaml(&bomb).contains("nodes"), "{}", yaml(&bomb));
        assert!(yaml(&"[".repeat(100_000)).contains("not valid YAML"));
        assert!(yaml(&"- ".repeat(50_000)).contains("not valid YAML"));
        assert!(yaml("!!python/object:os.system x").contains("not valid YAML"));
        assert!(yaml("a: *nowhere").contains("not valid YAML"));
        assert!(yaml("&a [*a]").contains("not complete"));
        assert!(yaml("a: 1\n---\nb: 2\n").contains("single document"));
        assert!(yaml("? [1]\n: 2\n").contains("key"));
    }
}
