//! Checks a document against a schema, walking through both.

use super::grammar::{Alternative, Fields, Grammar, Old, Range, Shape, Takes};
use super::{Deviations, MAX_PROBLEMS, text};
use crate::base::problem::{Problem, Severity};
use crate::document::{Map, Path, Value};
use std::collections::HashSet;
use std::mem::take;

/// A walk through one document.
pub struct Walk<'a> {
    grammar: &'a Grammar,
    path: Path,
    found: Deviations,
}

impl<'a> Walk<'a> {
    /// Checks a document against the schema's top-level keys.
    pub fn top(grammar: &'a Grammar, config: &Map) -> Deviations {
        let mut walk = Walk { grammar, path: Path::default(), found: Deviations::default() };
        walk.map(&grammar.top, config);
        let mut found = walk.found;
        if found.errors.len() >= MAX_PROBLEMS {
            found.errors.truncate(MAX_PROBLEMS);
            let what = format!("there may be more than these {MAX_PROBLEMS} mistakes");
            found.errors.push(Problem::new(Severity::Error, "", "", what));
        }
        found
    }

    fn is_full(&self) -> bool {
        self.found.errors.len() >= MAX_PROBLEMS
    }

    fn error(&mut self, what: impl std::fmt::Display) {
        if !self.is_full() {
            let path = self.path.as_str().to_owned();
            self.found.errors.push(Problem::new(Severity::Error, "", &path, what));
        }
    }

    fn deprecated(&mut self, old: Old) {
        if self.found.deprecations.len() >= MAX_PROBLEMS {
            return;
        }
        let how = if old.version.starts_with('^') { "Changed" } else { "Deprecated" };
        let version = old.version.get(1..).unwrap_or_default();
        let advice = match old.advice.strip_prefix('"') {
            Some(text) => text.trim_end_matches('"').to_owned(),
            None => format!("Use **{}** instead.", old.advice),
        };
        // Programs that parse cloud-init's messages expect two blanks after the path's colon.
        let what = format!(" {how} in version {version}. {advice}");
        self.found.deprecations.push(Problem::new(Severity::Deprecated, "", self.path.as_str(), what));
    }

    fn node(&mut self, node: &'a [Alternative], value: &Value) {
        match node {
            [one] => self.alternative(one, value),
            _ => self.one_of(node, value),
        }
    }

    /// Uses the first alternative that the value matches. If it matches none, the errors are those of the
    /// closest alternative.
    fn one_of(&mut self, node: &'a [Alternative], value: &Value) {
        let before = take(&mut self.found);
        let mut nearest: Option<Deviations> = None;
        for alternative in node {
            self.alternative(alternative, value);
            let trial = take(&mut self.found);
            if trial.errors.is_empty() {
                nearest = Some(trial);
                break;
            }
            let nearer = nearest.as_ref().is_none_or(|n| trial.errors.len() < n.errors.len());
            if nearer && self.is_meant(alternative, value) {
                nearest = Some(trial);
            }
        }
        self.found = before;
        if let Some(nearest) = nearest {
            let room = MAX_PROBLEMS.saturating_sub(self.found.deprecations.len());
            self.found.deprecations.extend(nearest.deprecations.into_iter().take(room));
            return self.found.errors.extend(nearest.errors);
        }
        let types: Vec<&Alternative> = node.iter().filter_map(|a| self.type_of(a)).flatten().collect();
        match value.get("type") {
            Some(found) if !types.is_empty() => {
                self.path.enter(&"type");
                self.mismatch(&types, found);
                self.path.leave();
            }
            _ => self.mismatch(&node.iter().collect::<Vec<_>>(), value),
        }
    }

    /// Whether a value that does not match was meant as this alternative; for mappings, also whether its
    /// `type` fits.
    fn is_meant(&self, alternative: &'a Alternative, value: &Value) -> bool {
        match (&alternative.shape, value) {
            (Shape::List { .. }, Value::List(_)) => true,
            (Shape::Map(_), Value::Map(map)) => match (self.type_of(alternative), map.get("type")) {
                (Some(types), Some(found)) => types.iter().any(|t| is_word(&t.shape, found)),
                _ => true,
            },
            (Shape::Part(name), _) => self.grammar.part(name).iter().any(|a| self.is_meant(a, value)),
            _ => false,
        }
    }

    /// The possible values of a mapping's `type`, if these distinguish alternatives.
    fn type_of(&self, alternative: &'a Alternative) -> Option<&'a [Alternative]> {
        match &alternative.shape {
            Shape::Map(fields) => match fields.named("type")? {
                Takes::Node(node) => Some(node),
                Takes::Same(_) => None,
            },
            Shape::Part(name) => self.grammar.part(name).first().and_then(|a| self.type_of(a)),
            _ => None,
        }
    }

    fn alternative(&mut self, alternative: &'a Alternative, value: &Value) {
        match (&alternative.shape, value) {
            (Shape::List { item, count, unique }, Value::List(list)) => self.list(item, *count, *unique, list),
            (Shape::Map(fields), Value::Map(map)) => self.map(fields, map),
            (Shape::Part(name), _) => self.node(self.grammar.part(name), value),
            (shape, _) if is_scalar(shape, value) => {}
            _ => self.mismatch(&[alternative], value),
        }
        if let Some(old) = alternative.old {
            self.deprecated(old);
        }
    }

    fn list(&mut self, item: &'a [Alternative], count: Range, unique: bool, list: &[Value]) {
        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if !count.holds(length) {
            self.error(format!("expected {}, found {length}", count.of("entries")));
        }
        let mut seen = HashSet::new();
        if unique && !list.iter().filter_map(Value::as_str).all(|text| seen.insert(text)) {
            self.error("expected no entry twice");
        }
        for (at, value) in list.iter().enumerate() {
            if self.is_full() {
                return;
            }
            self.path.enter(&at);
            self.node(item, value);
            self.path.leave();
        }
    }

    fn map(&mut self, fields: &'a Fields, map: &Map) {
        self.rules(fields, map);
        for (name, _) in fields.groups.iter().flat_map(|g| &g.keys).filter(|k| k.1 && !map.contains_key(k.0)) {
            self.error(format!("the key {name} is missing"));
        }
        for (key, value) in map.iter() {
            if self.is_full() {
                return;
            }
            self.path.enter(&key);
            self.entry(fields, key, value);
            self.path.leave();
        }
    }

    fn entry(&mut self, fields: &'a Fields, key: &str, value: &Value) {
        match (fields.named(key), &fields.rest) {
            (Some(Takes::Node(node)), _) => self.node(node, value),
            (Some(Takes::Same(old)), _) => {
                self.entry(fields, old.advice, value);
                self.deprecated(*old);
            }
            (None, None) => self.error("there is no such key"),
            (None, Some((check, node))) => match text::check(check, key) {
                (_, true) => self.node(node, value),
                (expected, false) => self.error(format!("expected as a key {expected}")),
            },
        }
    }

    fn rules(&mut self, fields: &'a Fields, map: &Map) {
        if fields.not_empty && map.is_empty() {
            self.error("expected a key at least");
        }
        for rule in &fields.rules {
            let Some((name, keys)) = rule.split_first() else { continue };
            let present = keys.iter().filter(|k| map.contains_key(k)).count();
            match *name {
                "also" => {
                    if let Some(Alternative { shape: Shape::Map(fields), .. }) =
                        self.grammar.part(keys.concat().as_str()).first()
                    {
                        self.map(fields, map);
                    }
                }
                "one" if present > 1 => self.error(format!("expected only one of the keys {}", keys.join(", "))),
                "one" | "some" if present == 0 => self.error(format!("expected one of the keys {}", keys.join(", "))),
                "single" => self.both_names(fields, map),
                _ => {}
            }
        }
    }

    fn both_names(&mut self, fields: &Fields, map: &Map) {
        for group in &fields.groups {
            let (Takes::Same(old), Some((name, _))) = (&group.takes, group.keys.first()) else { continue };
            if map.contains_key(name) && map.contains_key(old.advice) {
                self.error(format!("expected only one of the keys {}, {name}", old.advice));
            }
        }
    }

    /// Reports what was expected, without deprecated alternatives.
    fn mismatch(&mut self, node: &[&'a Alternative], found: &Value) {
        let mut names: Vec<String> = Vec::new();
        let mut words: Vec<&str> = Vec::new();
        let mut same_kind = false;
        for alternative in node {
            self.describe(alternative, found, &mut names, &mut words, &mut same_kind);
        }
        match words.as_slice() {
            [] => {}
            [one] => names.push((*one).to_owned()),
            _ => names.push(format!("one of {}", words.join(", "))),
        }
        let mut what = format!("expected {}", names.join(" or "));
        if !same_kind {
            what += &format!(", found {}", found.kind());
        }
        self.error(what);
    }

    fn describe(
        &self,
        alternative: &'a Alternative,
        found: &Value,
        names: &mut Vec<String>,
        words: &mut Vec<&'a str>,
        same_kind: &mut bool,
    ) {
        let name = match &alternative.shape {
            Shape::Part(name) => {
                return self.grammar.part(name).iter().for_each(|a| self.describe(a, found, names, words, same_kind));
            }
            Shape::Words(list) => {
                *same_kind |= match found {
                    Value::Int(_) => list.iter().all(|word| number(word).is_some()),
                    _ => matches!(found, Value::String(_)),
                };
                if alternative.old.is_none() {
                    words.extend(list);
                }
                return;
            }
            Shape::Int(range) => {
                *same_kind |= matches!(found, Value::Int(_) | Value::Big(_));
                range.of("an integer")
            }
            Shape::Number(range) => {
                *same_kind |= matches!(found, Value::Int(_) | Value::Big(_) | Value::Float(_));
                range.of("a number")
            }
            Shape::Text(check) => {
                *same_kind |= matches!(found, Value::String(_));
                text::check(check, "").0.to_owned()
            }
            Shape::Any => "anything".to_owned(),
            Shape::Null => Value::Null.kind().to_owned(),
            Shape::Bool => Value::Bool(true).kind().to_owned(),
            Shape::List { .. } => Value::List(Vec::new()).kind().to_owned(),
            Shape::Map(_) => Value::Map(Map::new()).kind().to_owned(),
        };
        if alternative.old.is_none() && !names.contains(&name) {
            names.push(name);
        }
    }
}

impl Range {
    fn holds(self, number: i64) -> bool {
        self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
    }

    /// The expected value, with the bounds.
    fn of(self, what: &str) -> String {
        match (self.min, self.max) {
            (None, None) => what.to_owned(),
            (Some(min), None) => format!("{what} ({min} at least)"),
            (None, Some(max)) => format!("{what} ({max} at most)"),
            (Some(min), Some(max)) if min == max => format!("{what} ({min} of them)"),
            (Some(min), Some(max)) => format!("{what} (from {min} to {max})"),
        }
    }
}

fn is_scalar(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Any, _) | (Shape::Null, Value::Null) | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int(range) | Shape::Number(range), Value::Int(number)) => range.holds(*number),
        (Shape::Int(range) | Shape::Number(range), Value::Big(digits)) => {
            range.holds(if digits.starts_with('-') { i64::MIN } else { i64::MAX })
        }
        (Shape::Number(range), Value::Float(number)) => range.min.is_none_or(|min| *number >= min as f64),
        (Shape::Text(check), Value::String(text)) => text::check(check, text).1,
        (Shape::Text(check), Value::Bytes(_)) => check.is_empty(),
        (Shape::Words(_), _) => is_word(shape, value),
        _ => false,
    }
}

fn number(word: &str) -> Option<i64> {
    word.parse().ok()
}

/// Whether a value is one of the words. `true`, `false` and numbers are compared as such, not as strings.
fn is_word(shape: &Shape, value: &Value) -> bool {
    let Shape::Words(words) = shape else { return false };
    match value {
        Value::Bool(flag) => words.contains(&if *flag { "true" } else { "false" }),
        Value::Int(value) => words.iter().any(|w| number(w) == Some(*value)),
        Value::String(text) => {
            !matches!(text.as_str(), "true" | "false") && number(text).is_none() && words.contains(&text.as_str())
        }
        _ => false,
    }
}
