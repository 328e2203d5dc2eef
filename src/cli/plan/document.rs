//! The documents that a plan is made of, with the places of their keys.

use crate::base::gzip;
use crate::document::{Map, Path, Value, yaml};
use crate::userdata::MAX_UNPACKED;
use crate::userdata::kind::PartKind;
use std::collections::HashMap;

/// The most keys and list entries of a document whose places are looked up.
const MAX_PLACES: usize = 50_000;

/// What a document is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    UserData,
    NetworkConfig,
}

impl Use {
    /// cloud-init's name of such a document.
    pub fn name(self) -> &'static str {
        match self {
            Use::UserData => "user-data",
            Use::NetworkConfig => "network-config",
        }
    }
}

/// Where something is in a document: line and column, from 1.
pub type Place = (usize, usize);

/// A document that somebody wrote.
pub struct Document {
    pub usage: Use,
    /// The path as it was given.
    pub path: String,
    /// The whole text; of a document that is not UTF-8, nothing.
    pub text: String,
    /// The mapping in it; of a template, as far as it can be told before it is filled in. None if it is not a single YAML
    /// document: a script, several parts.
    pub outline: Option<Map>,
    is_template: bool,
    /// Why it is not YAML, and where.
    pub mistake: Option<(String, Place)>,
    places: HashMap<String, Place>,
}

impl Document {
    /// Reads a document: its places, and what keeps it from being read.
    pub fn new(usage: Use, path: &str, bytes: &[u8]) -> Document {
        let unpacked = gzip::is_gzip(bytes).then(|| gzip::unpack(bytes, MAX_UNPACKED).ok()).flatten();
        let bytes = unpacked.unwrap_or_else(|| bytes.to_vec());
        let mut document = Document {
            usage,
            path: path.to_owned(),
            text: String::new(),
            outline: None,
            is_template: false,
            mistake: None,
            places: HashMap::new(),
        };
        let is_yaml = usage == Use::NetworkConfig || PartKind::of_content(&bytes) == Some(PartKind::CloudConfig);
        document.text = String::from_utf8(bytes).unwrap_or_default();
        if is_yaml {
            document.read();
        } else if let Some(outline) = outline_of(&document.text) {
            document.is_template = true;
            if let Ok(Value::Map(outline)) = yaml::parse(usage.name(), &outline) {
                document.keep(outline);
            }
        }
        document
    }

    /// The mapping in it. None if it is not a single YAML document: a script, a template, several parts.
    pub fn config(&self) -> Option<&Map> {
        self.outline.as_ref().filter(|_| !self.is_template)
    }

    /// The list at a path of keys; empty if there is none.
    pub fn list(&self, path: &str) -> &[Value] {
        let found = self.outline.as_ref().and_then(|outline| at(outline, path));
        found.and_then(Value::as_list).unwrap_or_default()
    }

    fn keep(&mut self, outline: Map) {
        let mut paths = Vec::new();
        walk(&outline, &mut paths);
        let text = if self.is_template { outline_of(&self.text).unwrap_or_default() } else { self.text.clone() };
        self.places = yaml::places(&text, paths.into_iter());
        self.outline = Some(outline);
    }

    fn read(&mut self) {
        match yaml::parse_or_place(self.usage.name(), &self.text) {
            Ok(Value::Map(config)) => self.keep(config),
            Ok(_) => {}
            Err((e, line, column)) => {
                let what = e.to_string();
                let reason = what.split_once(" column ").and_then(|(_, rest)| rest.split_once(": "));
                let what = reason.map_or(what.as_str(), |(_, reason)| reason).to_owned();
                self.mistake = Some((format!("not valid YAML: {what}"), (line, column)));
            }
        }
    }

    /// The place of a key or list entry, by its path: `users.0.name`.
    pub fn place(&self, path: &str) -> Option<Place> {
        self.places.get(path).copied()
    }

    /// The place of the innermost key or entry of a path that the document has, and how much of the path that is.
    pub fn nearest<'p>(&self, path: &'p str) -> Option<(&'p str, Place)> {
        let mut above = std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(above, _)| above));
        above.find_map(|path| Some((path, self.place(path)?)))
    }

    /// All keys and entries with their places, in the order of the text.
    pub fn all_places(&self) -> Vec<(&str, Place)> {
        let mut all: Vec<(&str, Place)> = self.places.iter().map(|(path, place)| (path.as_str(), *place)).collect();
        crate::base::sort::by(&mut all, |a, b| (a.1, a.0.len(), a.0).cmp(&(b.1, b.0.len(), b.0)));
        all
    }
}

/// A template of cloud-config with something else in the place of what is filled in, and nothing in that of statements and comments,
/// so that lines and columns stay. None if it is no template, or of something else.
fn outline_of(text: &str) -> Option<String> {
    let (_, body) = text.split_once('\n').filter(|_| PartKind::of_content(text.as_bytes()) == Some(PartKind::Jinja))?;
    if PartKind::of_content(body.trim_start().as_bytes()) != Some(PartKind::CloudConfig) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (before, inside) = rest.split_at(start);
        out += before;
        let (end, instead) = match inside.as_bytes().get(1) {
            Some(b'{') => ("}}", 'x'),
            Some(b'%') => ("%}", ' '),
            _ => ("#}", ' '),
        };
        let length = inside.find(end).map_or(inside.len(), |at| at + end.len());
        let (inside, after) = inside.split_at(length);
        out.extend(inside.chars().map(|c| if c == '\n' { c } else { instead }));
        rest = after;
    }
    Some(out + rest)
}

/// The paths of all keys and list entries.
fn walk(config: &Map, paths: &mut Vec<String>) {
    let mut path = Path::default();
    for (key, value) in config.iter() {
        step(&key, value, &mut path, paths);
    }
}

fn step(key: &dyn std::fmt::Display, value: &Value, path: &mut Path, paths: &mut Vec<String>) {
    if paths.len() >= MAX_PLACES {
        return;
    }
    path.enter(key);
    paths.push(path.as_str().to_owned());
    match value {
        Value::Map(map) => map.iter().for_each(|(key, value)| step(&key, value, path, paths)),
        Value::List(list) => list.iter().enumerate().for_each(|(at, value)| step(&at, value, path, paths)),
        _ => {}
    }
    path.leave();
}

/// The value at a path of mappings, with dots between its keys.
pub fn at<'m>(map: &'m Map, path: &str) -> Option<&'m Value> {
    let mut keys = path.split('.');
    let first = map.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))
}

/// A mapping.
pub fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().collect::<Map>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_entries_have_lines_and_columns() {
        let text = "#cloud-config\nusers:\n- default\n- name: a\n  uid: 3\nntp: {pools: [x]}\n";
        let document = Document::new(Use::UserData, "u", text.as_bytes());
        assert_eq!(document.place("users.1.uid"), Some((5, 3)));
        assert_eq!(document.place("ntp.pools"), Some((6, 7)));
        assert_eq!(document.nearest("users.1.sudo.0"), Some(("users.1", (4, 3))));
        assert_eq!(document.nearest("nothing"), None);
        let broken = Document::new(Use::UserData, "u", b"#cloud-config\na: [\n");
        let (what, place) = broken.mistake.unwrap();
        assert!(what.starts_with("not valid YAML: ") && place.0 >= 2, "{what} {place:?}");
        assert!(Document::new(Use::UserData, "u", b"#!/bin/sh\n").outline.is_none());
    }

    #[test]
    fn keys_of_templates_have_their_places() {
        let text = "## template: jinja\n#cloud-config\n{% if v1.a %}\nhostname: {{ v1.b }}\n{% endif %}\n{# a: #}\n\
                    users: [{name: 'x{{ v1.c }}y', uid: 3}]\n";
        let document = Document::new(Use::UserData, "u", text.as_bytes());
        assert!(document.config().is_none());
        assert_eq!([document.place("hostname"), document.place("users.0.uid")], [Some((4, 1)), Some((7, 32))]);
        assert_eq!(document.place("a"), None);
    }
}
