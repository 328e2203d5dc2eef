//! The values of a template: those of Python that documents can have.
//!
//! Lists and mappings are shared and mutable, so that a template could build cycles, and chains of any
//! length. A [`Heap`] holds all of them until the template is done, and then empties one after the other.

use super::budget::{Budget, MAX_DEPTH, Step, fail};
use super::call::Callable;
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

/// The size of a value in a list or mapping, in bytes.
const ITEM: usize = 32;
/// The size of a mapping's entry besides its string, in bytes.
const ENTRY: usize = 160;

/// The greatest depth and length of a tuple used as a key.
const MAX_KEY: (usize, usize) = (2, 8);
/// The longest text that is a mapping's key, in bytes: to look it up takes a step, whatever its length.
const MAX_KEY_TEXT: usize = 8192;
/// How many items one step goes over.
pub const ITEMS_PER_STEP: usize = 4;

/// A string: from the template, from instance-data, or a new one.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Text::Borrowed(text),
            Cow::Owned(text) => Text::Owned(text.into()),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// An undefined variable, by its name.
    Undefined(Text<'a>),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Text<'a>),
    List(Rc<List<'a>>),
    Dict(Rc<Dict<'a>>),
    /// The result of `namespace()`, whose attributes can be set.
    Namespace(Rc<Dict<'a>>),
    Callable(Rc<Callable<'a>>),
}

/// A list, or a tuple.
#[derive(Debug)]
pub struct List<'a> {
    pub items: RefCell<Vec<Value<'a>>>,
    pub is_tuple: bool,
}

impl<'a> List<'a> {
    /// How many items there are now.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// The item at a position from 0.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        self.items.borrow().get(index).cloned()
    }

    /// The items as they are now.
    pub fn to_vec(&self) -> Vec<Value<'a>> {
        self.items.borrow().clone()
    }
}

/// A mapping, in the order in which its keys were added.
#[derive(Debug, Default)]
pub struct Dict<'a>(RefCell<Entries<'a>>);

#[derive(Debug, Default)]
struct Entries<'a> {
    list: Vec<(Value<'a>, Value<'a>)>,
    index: HashMap<Key<'a>, usize>,
}

/// A key. As in Python, 1, 1.0 and True are equal.
#[derive(Debug, Clone)]
enum Key<'a> {
    None,
    Number(u64),
    Text(Text<'a>),
    Tuple(Vec<Key<'a>>),
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::None, Key::None) => true,
            (Key::Number(a), Key::Number(b)) => a == b,
            (Key::Text(a), Key::Text(b)) => **a == **b,
            (Key::Tuple(a), Key::Tuple(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Key::None => 0.hash(state),
            Key::Number(bits) => bits.hash(state),
            Key::Text(text) => text.hash(state),
            Key::Tuple(keys) => keys.hash(state),
        }
    }
}

fn key<'a>(value: &Value<'a>, depth: usize) -> Step<Key<'a>> {
    Ok(match value {
        Value::None => Key::None,
        Value::Text(text) if text.len() <= MAX_KEY_TEXT => Key::Text(text.clone()),
        Value::Text(_) => return fail(format!("a key longer than {MAX_KEY_TEXT} bytes")),
        Value::Bool(b) => Key::Number((f64::from(u8::from(*b))).to_bits()),
        // Integers that a float cannot represent exactly are keys of their own.
        Value::Int(i) if (*i as f64) as i64 == *i => Key::Number((*i as f64).to_bits()),
        Value::Int(i) => Key::Tuple(vec![Key::Number(*i as u64)]),
        Value::Float(f) => Key::Number((f + 0.0).to_bits()),
        Value::List(list) if list.is_tuple && depth < MAX_KEY.0 && list.len() <= MAX_KEY.1 => {
            Key::Tuple(list.items.borrow().iter().map(|v| key(v, depth + 1)).collect::<Step<_>>()?)
        }
        other => return fail(format!("{} cannot be a key", other.kind())),
    })
}

impl<'a> Dict<'a> {
    /// The value at a key; None if the key is absent, or cannot be one.
    pub fn get(&self, at: &Value<'a>) -> Option<Value<'a>> {
        let entries = self.0.borrow();
        let position = entries.index.get(&key(at, 0).ok()?)?;
        entries.list.get(*position).map(|(_, value)| value.clone())
    }

    /// The same for a text.
    pub fn get_text(&self, name: &str) -> Option<Value<'a>> {
        // A key with a shorter lifetime cannot be looked up in the map.
        let key = Key::Text(Text::Owned(name.into()));
        let entries = self.0.borrow();
        entries.index.get(&key).and_then(|i| entries.list.get(*i)).map(|(_, value)| value.clone())
    }

    /// Sets a key.
    ///
    /// # Errors
    /// The key is a list or mapping, or there is no room.
    pub fn insert(&self, at: Value<'a>, value: Value<'a>, budget: &Budget<'_>) -> Step<()> {
        let key = key(&at, 0)?;
        budget.step(1)?;
        let mut entries = self.0.borrow_mut();
        match entries.index.get(&key).copied() {
            Some(position) => {
                if let Some((_, old)) = entries.list.get_mut(position) {
                    *old = value;
                }
            }
            None => {
                budget.take(ENTRY)?;
                let position = entries.list.len();
                entries.index.insert(key, position);
                entries.list.push((at, value));
            }
        }
        Ok(())
    }

    /// Removes a key.
    pub fn remove(&self, at: &Value<'a>, budget: &Budget<'_>) -> Step<Option<Value<'a>>> {
        let key = key(at, 0)?;
        let mut entries = self.0.borrow_mut();
        let Some(position) = entries.index.remove(&key) else { return Ok(None) };
        budget.step(entries.list.len())?;
        entries.index.values_mut().filter(|i| **i > position).for_each(|i| *i -= 1);
        Ok(Some(entries.list.remove(position).1))
    }

    /// The entry at a position from 0.
    pub fn entry(&self, index: usize) -> Option<(Value<'a>, Value<'a>)> {
        self.0.borrow().list.get(index).cloned()
    }

    /// The entries as they are now.
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        self.0.borrow().list.clone()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.borrow().list.len()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        let old = std::mem::take(&mut *self.0.borrow_mut());
        drop(old);
    }
}

/// Creates values, and holds lists and mappings until the end.
#[derive(Debug)]
pub struct Heap<'a, 'b> {
    pub budget: &'b Budget<'b>,
    lists: RefCell<Vec<Rc<List<'a>>>>,
    dicts: RefCell<Vec<Rc<Dict<'a>>>>,
}

impl<'a, 'b> Heap<'a, 'b> {
    pub fn new(budget: &'b Budget<'b>) -> Self {
        Heap { budget, lists: RefCell::default(), dicts: RefCell::default() }
    }

    /// A new text.
    pub fn text(&self, text: impl Into<Rc<str>>) -> Step<Value<'a>> {
        let text = text.into();
        self.budget.take(ITEM + text.len())?;
        Ok(Value::Text(Text::Owned(text)))
    }

    /// A new list.
    pub fn list(&self, items: Vec<Value<'a>>) -> Step<Value<'a>> {
        self.shared(items, false).map(Value::List)
    }

    /// A new tuple.
    pub fn tuple(&self, items: Vec<Value<'a>>) -> Step<Value<'a>> {
        self.shared(items, true).map(Value::List)
    }

    pub fn shared(&self, items: Vec<Value<'a>>, is_tuple: bool) -> Step<Rc<List<'a>>> {
        self.budget.take(ITEM * (items.len() + 3))?;
        let list = Rc::new(List { items: RefCell::new(items), is_tuple });
        self.lists.borrow_mut().push(list.clone());
        Ok(list)
    }

    /// A new mapping.
    pub fn dict(&self, entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Step<Rc<Dict<'a>>> {
        self.budget.take(ENTRY)?;
        let dict = Rc::new(Dict::default());
        self.dicts.borrow_mut().push(dict.clone());
        for (key, value) in entries {
            dict.insert(key, value, self.budget)?;
        }
        Ok(dict)
    }

    /// Adds an item to a list.
    pub fn push(&self, list: &List<'a>, item: Value<'a>) -> Step<()> {
        self.budget.take(ITEM)?;
        list.items.borrow_mut().push(item);
        Ok(())
    }

    /// The items to iterate over: a list's items, a mapping's keys, a string's characters; none for an
    /// undefined variable.
    ///
    /// # Errors
    /// A number, a boolean, none or a function.
    pub fn items(&self, value: &Value<'a>) -> Step<Rc<List<'a>>> {
        match value {
            Value::List(list) => {
                self.budget.step(list.len() / ITEMS_PER_STEP)?;
                Ok(list.clone())
            }
            Value::Dict(dict) => self.shared(dict.entries().into_iter().map(|(key, _)| key).collect(), false),
            Value::Undefined(_) => self.shared(Vec::new(), false),
            Value::Text(text) => {
                self.budget.take(text.len() * ITEM)?;
                let characters = text.chars().map(|c| Value::Text(Text::Owned((&*c.encode_utf8(&mut [0; 4])).into())));
                self.shared(characters.collect(), false)
            }
            other => fail(format!("{} is not iterable", other.kind())),
        }
    }
}

impl Drop for Heap<'_, '_> {
    fn drop(&mut self) {
        // All lists and mappings are still held here, so that emptying one never drops another recursively.
        self.lists.borrow().iter().for_each(|list| list.items.borrow_mut().clear());
        self.dicts.borrow().iter().for_each(|dict| dict.clear());
    }
}

impl<'a> Value<'a> {
    /// A text that lives as long as the template.
    pub fn borrowed(text: &'a str) -> Self {
        Value::Text(Text::Borrowed(text))
    }

    /// The value of a variable that does not exist.
    pub fn undefined(name: &'a str) -> Self {
        Value::Undefined(Text::Borrowed(name))
    }

    /// The type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "an undefined variable",
            Value::None => "none",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Text(_) => "a string",
            Value::List(list) if list.is_tuple => "a tuple",
            Value::List(_) => "a list",
            Value::Dict(_) => "a mapping",
            Value::Namespace(_) => "a namespace",
            Value::Callable(_) => "a function",
        }
    }

    /// Python's truth value.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => list.len() > 0,
            Value::Dict(dict) => dict.len() > 0,
            Value::Namespace(_) | Value::Callable(_) => true,
        }
    }

    /// The text, if this is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if this is one; True and False are 1 and 0.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            Value::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The number, if this is one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(f) => Some(*f),
            other => other.as_int().map(|i| i as f64),
        }
    }

    /// The length of a string, list or mapping.
    pub fn len(&self) -> Option<usize> {
        match self {
            Value::Undefined(_) => Some(0),
            Value::Text(text) => Some(text.chars().count()),
            Value::List(list) => Some(list.len()),
            Value::Dict(dict) => Some(dict.len()),
            _ => None,
        }
    }

    /// Python's `==`.
    ///
    /// # Errors
    /// Lists nested too deep, or too many steps.
    pub fn equals(&self, other: &Self, budget: &Budget<'_>) -> Step<bool> {
        equals(self, other, budget, 0)
    }

    /// Python's order.
    ///
    /// # Errors
    /// Values without an order, such as a text and a number.
    pub fn compare(&self, other: &Self, budget: &Budget<'_>) -> Step<Ordering> {
        compare(self, other, budget, 0)
    }
}

fn equals<'a>(a: &Value<'a>, b: &Value<'a>, budget: &Budget<'_>, depth: usize) -> Step<bool> {
    budget.step(1)?;
    if depth > MAX_DEPTH {
        return fail("lists nested too deep to compare");
    }
    Ok(match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Text(a), Value::Text(b)) => {
            budget.read(a.len())?;
            **a == **b
        }
        (Value::List(a), Value::List(b)) => {
            if a.is_tuple != b.is_tuple || a.len() != b.len() {
                return Ok(false);
            }
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            for (a, b) in (0..).map_while(|i| a.get(i).zip(b.get(i))) {
                if !equals(&a, &b, budget, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in (0..).map_while(|i| a.entry(i)) {
                match b.get(&key) {
                    Some(other) if equals(&value, &other, budget, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Callable(a), Value::Callable(b)) => Rc::ptr_eq(a, b),
        _ => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
            (Some(a), Some(b), ..) => a == b,
            (.., Some(a), Some(b)) => a == b,
            _ => false,
        },
    })
}

fn compare<'a>(a: &Value<'a>, b: &Value<'a>, budget: &Budget<'_>, depth: usize) -> Step<Ordering> {
    budget.step(1)?;
    if depth > MAX_DEPTH {
        return fail("lists nested too deep to compare");
    }
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            budget.read(a.len().min(b.len()))?;
            Ok((**a).cmp(&**b))
        }
        (Value::List(a), Value::List(b)) if a.is_tuple == b.is_tuple => {
            for (a, b) in (0..).map_while(|i| a.get(i).zip(b.get(i))) {
                // Items that are equal need no order.
                if !equals(&a, &b, budget, depth + 1)? {
                    return compare(&a, &b, budget, depth + 1);
                }
            }
            Ok(a.len().cmp(&b.len()))
        }
        (Value::Undefined(name), _) | (_, Value::Undefined(name)) => fail(format!("{} is undefined", &**name)),
        _ => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
            (Some(a), Some(b), ..) => Ok(a.cmp(&b)),
            (.., Some(a), Some(b)) => Ok(a.partial_cmp(&b).unwrap_or(Ordering::Equal)),
            _ => fail(format!("{} and {} have no order", a.kind(), b.kind())),
        },
    }
}
