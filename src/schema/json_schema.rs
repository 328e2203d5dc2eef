//! Writes the schemas as JSON Schema (draft 7), which editors complete and check documents by.

use super::grammar::{Alternative, Fields, Grammar, Old, Range, Shape, Takes};
use super::{text, texts};
use crate::document::{Map, Value};

/// A kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    CloudConfig,
    /// A network configuration, with or without `network:` around it.
    Network1,
    Network2,
}

/// Patterns of the checks of [`text`]. A line feed at the end is allowed, as there.
const PATTERNS: [(&str, &str); 10] = [
    ("line", "^[^\\n]+\\n?$"),
    ("line_or_nothing", "^[^\\n]*\\n?$"),
    ("pair", "^[^\\n]+:[^\\n]+\\n?$"),
    ("size", "^([0-9]*\\.)?[0-9]+[BKMGT]\\n?$"),
    ("minutes", "^\\+?[0-9]+\\n?$"),
    ("tags", "^[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*\\n?$"),
    ("date", "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"),
    ("host_key", "^(rsa|ecdsa|ed25519)_(private|public|certificate)\\n?$"),
    ("repository", "^[ -_a-z]+\\n?$"),
    ("option", "^[A-Za-z0-9_]+\\n?$"),
];

/// The JSON Schema of a kind of document.
pub fn json_schema(kind: Form) -> Value {
    let (title, grammar, top) = match kind {
        Form::CloudConfig => {
            let grammar = Grammar::new(texts::cloud_config());
            let mut top = fields(&grammar.top);
            describe(&mut top);
            ("cloud-config", grammar, top)
        }
        Form::Network1 => ("network-config, version 1", Grammar::new(texts::network()), network("$v1")),
        Form::Network2 => ("network-config, version 2", Grammar::new(texts::network()), network("$v2")),
    };
    let mut schema = Map::new();
    schema.insert("$schema", "http://json-schema.org/draft-07/schema#");
    schema.insert("title", title);
    schema.insert("description", concat!("As prepivot ", env!("CARGO_PKG_VERSION"), " checks it: prepivot schema"));
    for (key, value) in top.iter() {
        schema.insert(key, value.clone());
    }
    let parts = grammar.parts().map(|(name, part)| (name.trim_start_matches('$'), Value::Map(node(part))));
    schema.insert("definitions", Value::Map(parts.collect()));
    Value::Map(schema)
}

/// A network configuration whose content is the part `name`.
fn network(name: &str) -> Map {
    let mut around = Map::new();
    around.insert("type", "object");
    around.insert("properties", map([("network", Value::Map(reference(name)))]));
    around.insert("required", list(["network"]));
    around.insert("additionalProperties", false);
    map([("anyOf", Value::List(vec![Value::Map(around), Value::Map(reference(name))]))])
}

/// Adds to each key what its module does: the beginning of its documentation.
fn describe(top: &mut Map) {
    let Some(Value::Map(properties)) = top.get_mut("properties") else { return };
    for (names, schema) in texts::modules() {
        let Some(docs) = names.split(' ').next().and_then(texts::docs) else { continue };
        let first = docs.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        for (key, _) in Grammar::new(schema).top.groups.iter().flat_map(|group| &group.keys) {
            if let Some(Value::Map(property)) = properties.get_mut(key)
                && !property.contains_key("description")
            {
                property.insert("description", first.as_str());
            }
        }
    }
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Map {
    entries.into_iter().collect()
}

fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::List(texts.into_iter().map(Value::from).collect())
}

fn reference(name: &str) -> Map {
    map([("$ref", format!("#/definitions/{}", name.trim_start_matches('$')).into())])
}

/// One of several alternatives.
fn node(node: &[Alternative]) -> Map {
    match node {
        [one] => alternative(one),
        _ => map([("anyOf", Value::List(node.iter().map(|one| Value::Map(alternative(one))).collect()))]),
    }
}

fn alternative(alternative: &Alternative) -> Map {
    let shape = shape(&alternative.shape);
    match alternative.old {
        Some(old) => deprecated(shape, old),
        None => shape,
    }
}

/// Marks something as deprecated. A reference has no other keys in draft 7.
fn deprecated(schema: Map, old: Old) -> Map {
    let advice = match old.advice.strip_prefix('"') {
        Some(text) => text.trim_end_matches('"').to_owned(),
        None => format!("Use {} instead.", old.advice),
    };
    let how = if old.version.starts_with('^') { "Changed" } else { "Deprecated" };
    let text = format!("{how} in version {}. {advice}", old.version.get(1..).unwrap_or_default());
    let mut marked =
        if schema.contains_key("$ref") { map([("allOf", Value::List(vec![Value::Map(schema)]))]) } else { schema };
    marked.insert("deprecated", true);
    marked.insert("deprecationMessage", text.as_str());
    marked.insert("description", text);
    marked
}

fn shape(shape: &Shape) -> Map {
    match shape {
        Shape::Any => Map::new(),
        Shape::Null => of_type("null"),
        Shape::Bool => of_type("boolean"),
        Shape::Int(range) => limits(of_type("integer"), *range, ["minimum", "maximum"]),
        Shape::Number(range) => limits(of_type("number"), *range, ["minimum", "maximum"]),
        Shape::Text(check) => checked_text(check),
        Shape::Words(words) => map([("enum", Value::List(words.iter().map(|word| value_of(word)).collect()))]),
        Shape::List { item, count, unique } => {
            let mut schema = limits(of_type("array"), *count, ["minItems", "maxItems"]);
            schema.insert("items", node(item));
            if *unique {
                schema.insert("uniqueItems", true);
            }
            schema
        }
        Shape::Map(inner) => fields(inner),
        Shape::Part(name) => reference(name),
    }
}

fn of_type(name: &str) -> Map {
    map([("type", name.into())])
}

fn limits(mut schema: Map, range: Range, [least, most]: [&str; 2]) -> Map {
    for (key, limit) in [(least, range.min), (most, range.max)] {
        if let Some(limit) = limit {
            schema.insert(key, Value::Int(limit));
        }
    }
    schema
}

/// A word as the value that it is in YAML.
fn value_of(word: &str) -> Value {
    match word {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => word.parse().map_or_else(|_| word.into(), Value::Int),
    }
}

fn checked_text(check: &str) -> Map {
    let mut schema = of_type("string");
    match check {
        "" => {}
        "device" => drop(schema.insert("maxLength", Value::Int(crate::machine::nic::MAX_DEVICE_NAME as i64))),
        "module" => {
            let names = texts::modules().flat_map(|(names, _)| names.split(' '));
            let both = names.flat_map(|name| [name.to_owned(), name.replace('_', "-")]);
            let mut both: Vec<String> = both.collect();
            both.sort();
            both.dedup();
            schema.insert("enum", list(both.iter().map(String::as_str)));
        }
        _ => {
            if let Some(pattern) = pattern(check) {
                schema.insert("pattern", pattern);
            }
            schema.insert("description", text::check(check, "").0);
        }
    }
    schema
}

fn pattern(check: &str) -> Option<&'static str> {
    PATTERNS.iter().find(|(name, _)| *name == check).map(|(_, pattern)| *pattern)
}

fn fields(of: &Fields) -> Map {
    let mut schema = of_type("object");
    let mut properties = Map::new();
    for group in &of.groups {
        for (key, _) in &group.keys {
            let property = match &group.takes {
                Takes::Node(inner) => node(inner),
                Takes::Same(old) => deprecated(same(of, old.advice), *old),
            };
            properties.insert(*key, property);
        }
    }
    let needed = of.groups.iter().flat_map(|group| &group.keys).filter(|key| key.1).map(|(key, _)| *key);
    let needed: Vec<&str> = needed.collect();
    if !properties.is_empty() {
        schema.insert("properties", properties);
    }
    if !needed.is_empty() {
        schema.insert("required", list(needed));
    }
    match &of.rest {
        None => drop(schema.insert("additionalProperties", false)),
        Some((check, inner)) => match pattern(check) {
            None => drop(schema.insert("additionalProperties", node(inner))),
            Some(pattern) => {
                schema.insert("patternProperties", map([(pattern, Value::Map(node(inner)))]));
                schema.insert("additionalProperties", false);
            }
        },
    }
    if of.not_empty {
        schema.insert("minProperties", Value::Int(1));
    }
    let rules: Vec<Value> = of.rules.iter().flat_map(|rule| of_rule(of, rule)).collect();
    if !rules.is_empty() {
        schema.insert("allOf", rules);
    }
    schema
}

/// The values of the key whose old name another key is.
fn same(of: &Fields, key: &str) -> Map {
    match of.named(key) {
        Some(Takes::Node(inner)) => node(inner),
        _ => Map::new(),
    }
}

fn of_rule(of: &Fields, rule: &[&str]) -> Vec<Value> {
    let Some((name, keys)) = rule.split_first() else { return Vec::new() };
    let each = || Value::List(keys.iter().map(|key| Value::Map(map([("required", list([*key]))]))).collect());
    let both = |old: &str, new: &str| Value::Map(map([("not", Value::Map(map([("required", list([old, new]))])))]));
    match *name {
        "one" => vec![Value::Map(map([("oneOf", each())]))],
        "some" => vec![Value::Map(map([("anyOf", each())]))],
        "single" => {
            let old = of.groups.iter().filter_map(|group| match &group.takes {
                Takes::Same(old) => Some((group.keys.first()?.0, old.advice)),
                Takes::Node(_) => None,
            });
            old.map(|(old, new)| both(old, new)).collect()
        }
        "also" => keys.iter().map(|part| Value::Map(reference(part))).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_pattern() {
        for table in [texts::cloud_config(), texts::network()] {
            for check in
                table.split("/").skip(1).map(|rest| rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next())
            {
                let check = check.unwrap_or_default();
                let is_check = text::check(check, "").0 != "a string";
                assert!(!is_check || matches!(check, "device" | "module") || pattern(check).is_some(), "{check}");
            }
        }
    }

    #[test]
    fn keys_have_descriptions_and_old_names_are_deprecated() {
        let schema = json_schema(Form::CloudConfig);
        let property = |path: &[&str]| schema.at(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert!(property(&["properties", "timezone", "description"]).starts_with("Sets the time zone"));
        assert!(property(&["properties", "ca-certs", "description"]).contains("Use ca_certs instead."));
        assert_eq!(schema.at(&["properties", "ca-certs", "deprecated"]), Some(&Value::Bool(true)));
        let mode = ["definitions", "v1", "properties", "version", "enum"];
        assert_eq!(json_schema(Form::Network1).at(&mode), Some(&Value::List(vec![Value::Int(1)])));
    }
}
