//! Composes tokens into a [`Value`]: anchors, tags, merge keys, and limits on the size.

use super::MAX_BYTES;
use super::cursor::{Failure, Mark, Step};
use super::token::{Token, Tokens};
use crate::base::budget;
use crate::document::{MAX_DEPTH, MAX_NODES, Map, Path, Size, Value, scalar};
use std::collections::HashMap;

/// The handle `!!`, expanded.
const YAML_TAGS: &str = "tag:yaml.org,2002:";

/// A mapping's entries as written.
type Entries = Vec<(Key, Value)>;

/// Reads a document's tokens from first to last.
pub struct Composer<'a> {
    tokens: Tokens<'a>,
    /// Values with their sizes; None until the node is complete.
    anchors: HashMap<String, Option<(Value, Size)>>,
    /// Tag handles declared by the document.
    handles: HashMap<String, String>,
    read: Size,
    /// The total size of `anchors`.
    anchored: Size,
    depth: usize,
    places: Option<Places>,
}

/// Finds the lines of some paths while the document is parsed.
struct Places {
    path: Path,
    /// The paths, with the lines and columns found, from 1.
    found: HashMap<String, (usize, usize)>,
}

/// The position of a node, which determines what is allowed.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Flow,
    Block,
    /// A mapping's key or value, in which a list needs no indentation.
    InMapping,
}

enum Key {
    Merge,
    Text(String),
}

impl<'a> Composer<'a> {
    pub fn new(text: &'a str) -> Self {
        let tokens = Tokens::new(text);
        Composer {
            tokens,
            anchors: HashMap::new(),
            handles: HashMap::new(),
            read: Size::default(),
            anchored: Size::default(),
            depth: 0,
            places: None,
        }
    }

    /// The lines and columns, from 1, at which `paths` begin: at the key, or as a list item. Content of aliases has none.
    pub fn places(mut self, paths: &mut dyn Iterator<Item = String>) -> HashMap<String, (usize, usize)> {
        self.places = Some(Places { path: Path::default(), found: paths.map(|path| (path, (0, 0))).collect() });
        let _ = self.read();
        let mut found = self.places.map_or_else(HashMap::new, |p| p.found);
        found.retain(|_, (line, _)| *line > 0);
        found
    }

    /// Descends to the next node, or to the node at `mark`.
    fn enter(&mut self, step: &dyn std::fmt::Display, mark: Option<Mark>) -> Step<()> {
        let Some(places) = &mut self.places else { return Ok(()) };
        places.path.enter(step);
        if let Some(place) = places.found.get_mut(places.path.as_str()) {
            self.tokens.peek()?;
            let mark = mark.unwrap_or_else(|| self.tokens.mark());
            *place = (mark.line + 1, mark.column + 1);
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(places) = &mut self.places {
            places.path.leave();
        }
    }

    /// The only document in the text.
    pub fn document(mut self) -> Step<Value> {
        let value = self.read()?;
        let taken = budget::take(self.read.cost());
        if let Err(e) = taken { self.fail(e.to_string()) } else { Ok(value) }
    }

    fn read(&mut self) -> Step<Value> {
        self.skip_document_ends()?;
        self.directives()?;
        if self.is(&Token::DocumentStart)? {
            self.tokens.next()?;
        }
        let value = match self.tokens.peek()? {
            Token::End | Token::DocumentEnd | Token::DocumentStart | Token::Directive(_) => Value::Null,
            _ => self.node(Place::Block)?,
        };
        self.skip_document_ends()?;
        match self.tokens.peek()? {
            Token::End => Ok(value),
            Token::DocumentStart | Token::Directive(_) => self.fail("expected a single document"),
            _ => self.fail("expected the document's end"),
        }
    }

    fn skip_document_ends(&mut self) -> Step<()> {
        while self.is(&Token::DocumentEnd)? {
            self.tokens.next()?;
        }
        Ok(())
    }

    fn directives(&mut self) -> Step<()> {
        while let Token::Directive(words) = self.tokens.peek()?.clone() {
            self.count(1, 0)?;
            if let [name, handle, prefix] = words.as_slice()
                && name == "%TAG"
            {
                self.handles.insert(handle.clone(), prefix.clone());
            }
            self.tokens.next()?;
            if !matches!(self.tokens.peek()?, Token::Directive(_) | Token::DocumentStart) {
                return self.fail("expected --- after directives");
            }
        }
        Ok(())
    }

    fn is(&mut self, token: &Token) -> Step<bool> {
        Ok(self.tokens.peek()? == token)
    }

    /// Takes the next token if it is this one.
    fn accept(&mut self, token: &Token) -> Step<bool> {
        let found = self.is(token)?;
        if found {
            self.tokens.next()?;
        }
        Ok(found)
    }

    fn fail<T>(&self, what: impl Into<String>) -> Step<T> {
        Err(Box::new(Failure { what: what.into(), mark: self.tokens.mark() }))
    }

    /// An error at the next token; at `begin`, of a flow collection, where the text ends without closing it.
    fn fail_in<T>(&mut self, begin: Mark, what: &str) -> Step<T> {
        let mark = if self.is(&Token::End)? { begin } else { self.tokens.mark() };
        Self::at(mark, Err(what.to_owned()))
    }

    /// The position of an error is the beginning of the node.
    fn at<T>(mark: Mark, result: std::result::Result<T, String>) -> Step<T> {
        result.map_err(|what| Box::new(Failure { what, mark }))
    }

    fn count(&mut self, nodes: usize, bytes: usize) -> Step<()> {
        self.add(Size { nodes, bytes, keys: 0 })
    }

    fn add(&mut self, size: Size) -> Step<()> {
        self.read.add(size);
        self.check(self.read)
    }

    fn check(&self, size: Size) -> Step<()> {
        if size.nodes > MAX_NODES {
            return self.fail(format!("more than {MAX_NODES} nodes, aliases expanded"));
        }
        if size.bytes > MAX_BYTES {
            return self.fail(format!("more than {MAX_BYTES} bytes, aliases expanded"));
        }
        size.fits().or_else(|e| self.fail(e.to_string()))
    }

    /// Parses a node with everything in it.
    fn node(&mut self, place: Place) -> Step<Value> {
        let before = self.read;
        let mark = self.tokens.mark();
        let (mut anchor, mut tag) = (None, None);
        while let token @ (Token::Alias(_) | Token::Anchor(_) | Token::Tag(..)) = self.tokens.peek()? {
            let token = token.clone();
            match token {
                Token::Alias(name) if anchor.is_none() && tag.is_none() => {
                    let Some((value, size)) = self.anchors.get(&name).cloned().flatten() else {
                        return self.fail("an alias to a node that is not there or not complete");
                    };
                    self.add(size)?;
                    self.tokens.next()?;
                    return Ok(value);
                }
                Token::Anchor(name) if anchor.is_none() => {
                    // PyYAML, composer.py, `compose_node`: a document has each anchor once.
                    if self.anchors.insert(name.clone(), None).is_some() {
                        return self.fail("a duplicate anchor");
                    }
                    anchor = Some(name);
                }
                Token::Tag(handle, suffix) if tag.is_none() => tag = Some(self.full_tag(&handle, &suffix)?),
                _ => break,
            }
            self.tokens.next()?;
        }
        self.count(1, 0)?;
        if self.depth >= MAX_DEPTH {
            return self.fail(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let may_be_empty = anchor.is_some() || tag.is_some();
        let value = self.content(place, may_be_empty, tag.flatten().as_deref(), mark)?;
        self.depth -= 1;
        if let Some(name) = anchor {
            let Size { nodes, keys, bytes } = self.read;
            let size = Size { nodes: nodes - before.nodes, keys: keys - before.keys, bytes: bytes - before.bytes };
            self.anchored.add(size);
            self.check(self.anchored)?;
            self.anchors.insert(name, Some((value.clone(), size)));
        }
        Ok(value)
    }

    fn content(&mut self, place: Place, may_be_empty: bool, tag: Option<&str>, mark: Mark) -> Step<Value> {
        match self.tokens.peek()? {
            Token::Scalar(..) => match self.tokens.next()? {
                Token::Scalar(text, plain) => {
                    self.count(0, text.len())?;
                    Self::at(mark, resolve(text, plain, tag))
                }
                _ => Ok(Value::Null),
            },
            Token::BlockEntry if place == Place::InMapping => self.list(tag, mark, Self::indentless_items),
            Token::BlockSequence if place != Place::Flow => self.list(tag, mark, Self::block_items),
            Token::FlowSequence => self.list(tag, mark, Self::flow_items),
            Token::BlockMapping if place != Place::Flow => self.mapping(tag, mark, Self::block_entries),
            Token::FlowMapping => self.mapping(tag, mark, Self::flow_entries),
            _ if may_be_empty => Self::at(mark, resolve(String::new(), true, tag)),
            _ => self.fail("expected a value"),
        }
    }

    /// Parses a node, or returns null at a token that ends it.
    fn node_unless(&mut self, place: Place, ends: &[Token]) -> Step<Value> {
        if ends.contains(self.tokens.peek()?) {
            self.count(1, 0)?;
            return Ok(Value::Null);
        }
        self.node(place)
    }

    fn list(&mut self, tag: Option<&str>, mark: Mark, items: fn(&mut Self) -> Step<Vec<Value>>) -> Step<Value> {
        let pairs = match Self::at(mark, tag.map(tag_name).transpose())? {
            None | Some("seq") => false,
            Some("omap" | "pairs") => true,
            Some(other) => return self.fail(format!("the tag !!{other} does not fit a list")),
        };
        let items = items(self)?;
        Ok(if pairs { Value::Map(pairs_of(items)) } else { Value::List(items) })
    }

    fn block_items(&mut self) -> Step<Vec<Value>> {
        self.tokens.next()?;
        let mut items = Vec::new();
        while self.accept(&Token::BlockEntry)? {
            self.enter(&items.len(), None)?;
            items.push(self.node_unless(Place::Block, &[Token::BlockEntry, Token::BlockEnd])?);
            self.leave();
        }
        if !self.accept(&Token::BlockEnd)? {
            return self.fail("expected a further entry of the list, or its end");
        }
        Ok(items)
    }

    fn indentless_items(&mut self) -> Step<Vec<Value>> {
        let ends = [Token::BlockEntry, Token::Key, Token::Value, Token::BlockEnd];
        let mut items = Vec::new();
        while self.accept(&Token::BlockEntry)? {
            self.enter(&items.len(), None)?;
            items.push(self.node_unless(Place::Block, &ends)?);
            self.leave();
        }
        Ok(items)
    }

    fn flow_items(&mut self) -> Step<Vec<Value>> {
        let ends = [Token::FlowEntry, Token::FlowSequenceEnd];
        let begin = self.tokens.mark();
        self.tokens.next()?;
        let mut items = Vec::new();
        while !self.accept(&Token::FlowSequenceEnd)? {
            if !items.is_empty() && !self.accept(&Token::FlowEntry)? {
                return self.fail_in(begin, "expected , or ]");
            }
            if self.accept(&Token::Key)? {
                let key = self.key(Place::Flow, &[Token::Value, Token::FlowEntry, Token::FlowSequenceEnd])?;
                let value = self.value(Place::Flow, &ends)?;
                self.count(1, 0)?;
                items.push(Self::at(self.tokens.mark(), flatten(vec![(key, value)]).map(Value::Map))?);
            } else if !self.is(&Token::FlowSequenceEnd)? {
                self.enter(&items.len(), None)?;
                items.push(self.node(Place::Flow)?);
                self.leave();
            }
        }
        Ok(items)
    }

    fn mapping(&mut self, tag: Option<&str>, mark: Mark, entries: fn(&mut Self) -> Step<Entries>) -> Step<Value> {
        let set = match Self::at(mark, tag.map(tag_name).transpose())? {
            None | Some("map") => false,
            Some("set") => true,
            Some(other) => return self.fail(format!("the tag !!{other} does not fit a mapping")),
        };
        let entries = entries(self)?;
        let map = Self::at(mark, flatten(entries))?;
        Ok(Value::Map(if set { map.into_entries().into_iter().map(|(k, _)| (k, Value::Null)).collect() } else { map }))
    }

    fn block_entries(&mut self) -> Step<Entries> {
        let ends = [Token::Key, Token::Value, Token::BlockEnd];
        self.tokens.next()?;
        let mut entries = Vec::new();
        while self.accept(&Token::Key)? {
            entries.push(self.entry(Place::InMapping, &ends, &ends)?);
        }
        if !self.accept(&Token::BlockEnd)? {
            return self.fail("expected a further key of the mapping, or its end");
        }
        Ok(entries)
    }

    fn flow_entries(&mut self) -> Step<Entries> {
        let ends = [Token::FlowEntry, Token::FlowMappingEnd];
        let begin = self.tokens.mark();
        self.tokens.next()?;
        let mut entries = Vec::new();
        while !self.accept(&Token::FlowMappingEnd)? {
            if !entries.is_empty() && !self.accept(&Token::FlowEntry)? {
                return self.fail_in(begin, "expected , or }");
            }
            if self.accept(&Token::Key)? {
                let key_ends = [Token::Value, Token::FlowEntry, Token::FlowMappingEnd];
                entries.push(self.entry(Place::Flow, &key_ends, &ends)?);
            } else if !self.is(&Token::FlowMappingEnd)? {
                entries.push((self.key(Place::Flow, &[])?, Value::Null));
            }
        }
        Ok(entries)
    }

    fn entry(&mut self, place: Place, key_ends: &[Token], ends: &[Token]) -> Step<(Key, Value)> {
        self.tokens.peek()?;
        let mark = self.tokens.mark();
        let key = self.key(place, key_ends)?;
        self.enter(if let Key::Text(name) = &key { name } else { &"<<" }, Some(mark))?;
        let value = self.value(place, ends)?;
        self.leave();
        Ok((key, value))
    }

    fn key(&mut self, place: Place, ends: &[Token]) -> Step<Key> {
        if *self.tokens.peek()? == Token::Scalar("<<".into(), true) {
            self.tokens.next()?;
            return Ok(Key::Merge);
        }
        let mark = self.tokens.mark();
        self.read.keys += 1;
        let value = self.node_unless(place, ends)?;
        Self::at(mark, key_text(value).map(Key::Text))
    }

    fn value(&mut self, place: Place, ends: &[Token]) -> Step<Value> {
        if self.accept(&Token::Value)? { self.node_unless(place, ends) } else { Ok(Value::Null) }
    }

    /// The expanded tag; None for a lone `!`, which no value has.
    fn full_tag(&self, handle: &str, suffix: &str) -> Step<Option<String>> {
        let prefix = match (self.handles.get(handle), handle) {
            (Some(prefix), _) => prefix,
            (None, "!!") => YAML_TAGS,
            (None, "" | "!") => handle,
            (None, _) => return self.fail("a tag handle that is not declared"),
        };
        Ok(Some(format!("{prefix}{suffix}")).filter(|tag| tag != "!"))
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

/// Merged mappings come first, and explicit keys override them; of several merged mappings the first takes
/// precedence (YAML merge key, as in PyYAML).
fn flatten(entries: Entries) -> std::result::Result<Map, String> {
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

fn tag_name(tag: &str) -> std::result::Result<&str, String> {
    tag.strip_prefix(YAML_TAGS).ok_or_else(|| "a tag that is not one of YAML's own".into())
}

fn resolve(text: String, plain: bool, tag: Option<&str>) -> std::result::Result<Value, String> {
    let Some(tag) = tag else {
        let typed = plain.then(|| scalar::typed(&text)).flatten();
        return Ok(typed.unwrap_or_else(|| text.into()));
    };
    let name = tag_name(tag)?;
    let value = match name {
        "str" | "timestamp" => Some(text.into()),
        "null" => Some(Value::Null),
        "bool" => scalar::boolean(&text).map(Value::Bool),
        "int" => scalar::integer(&text),
        "float" => scalar::float(&text).or_else(|| text.parse().ok()).map(Value::Float),
        "binary" => scalar::binary(&text),
        other => return Err(format!("the tag !!{other} does not fit a scalar")),
    };
    value.ok_or_else(|| format!("not a valid !!{name}"))
}
