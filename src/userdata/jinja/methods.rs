//! The methods of Python's texts, lists and mappings.

use super::budget::{Budget, Step, fail};
use super::call::Bound;
use super::filters::text::{capitalize, split_lines};
use super::format;
use super::operators;
use super::print::printed;
use super::render::Renderer;
use super::value::{Dict, ITEMS_PER_STEP, List, Text, Value};
use std::rc::Rc;

const TEXT: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const LIST: &[&str] =
    &["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
const DICT: &[&str] = &["clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// The memory of one piece in a list of pieces of text, in bytes.
pub const PIECE: usize = 16;

/// The method of that name that a value has.
pub fn find(value: &Value<'_>, name: &str) -> Option<&'static str> {
    let methods = match value {
        Value::Text(_) => TEXT,
        Value::List(list) if list.is_tuple => &["count", "index"],
        Value::List(_) => LIST,
        Value::Dict(_) => DICT,
        _ => return None,
    };
    methods.iter().find(|method| **method == name).copied()
}

/// Calls a method.
///
/// # Errors
/// Arguments that do not fit, or what the method itself finds wrong.
pub fn call<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>, name: &str, given: Bound<'a>) -> Step<Value<'a>> {
    cx.budget().step(1)?;
    match value {
        Value::Text(text) => text_method(cx, text, name, given),
        Value::List(list) => list_method(cx, list, name, given),
        Value::Dict(dict) => dict_method(cx, dict, name, given),
        other => fail(format!("{} has no methods", other.kind())),
    }
}

fn text_method<'a>(cx: &Renderer<'a, '_>, text: &Text<'a>, name: &str, given: Bound<'a>) -> Step<Value<'a>> {
    let (heap, budget) = (&cx.heap, cx.budget());
    budget.take(text.len())?;
    if name == "format" {
        let find = |base: Option<&Value<'a>>, name: &str| match base {
            None => {
                budget.step(given.named.len() / ITEMS_PER_STEP)?;
                let named = given.named.iter().find(|(n, _)| **n == *name).map(|(_, value)| value.clone());
                named.map_or_else(|| fail(format!("format: {name} is not given")), Ok)
            }
            Some(base) => match name.parse() {
                Ok(index) => cx.item(base, &Value::Int(index)),
                Err(_) => cx.item(base, &heap.text(name)?),
            },
        };
        return heap.text(format::braces(text, &given.positional, &find, budget)?);
    }
    let names = match name {
        "split" | "rsplit" => ["sep", "maxsplit", ""],
        "splitlines" => ["keepends", "", ""],
        "expandtabs" => ["tabsize", "", ""],
        _ => ["", "", ""],
    };
    let arguments = given.by_name(names)?;
    let [first, second, third] = &arguments;
    let words = |values: Vec<&str>| -> Step<Value<'a>> {
        budget.take(values.iter().map(|v| v.len() + 32).sum())?;
        heap.list(values.into_iter().map(|v| Value::Text(Text::Owned(v.into()))).collect())
    };
    let needle = || -> Step<&str> {
        first.as_ref().and_then(Value::as_text).map_or_else(|| fail(format!("{name}: expected a string")), Ok)
    };
    let strip = |start: bool, end: bool| {
        let chars = first.as_ref().and_then(Value::as_text);
        budget.read(text.len().saturating_mul(chars.map_or(0, str::len)))?;
        let cut = |c: char| match chars {
            Some(chars) => chars.contains(c),
            None => c.is_whitespace(),
        };
        let text = if start { text.trim_start_matches(cut) } else { text };
        heap.text(if end { text.trim_end_matches(cut) } else { text })
    };
    let all = |test: fn(char) -> bool| Value::Bool(!text.is_empty() && text.chars().all(test));
    let cased =
        |test: fn(char) -> bool, other: fn(char) -> bool| Value::Bool(text.contains(test) && !text.contains(other));
    match name {
        "lower" | "casefold" => heap.text(text.to_lowercase()),
        "upper" => heap.text(text.to_uppercase()),
        "capitalize" => heap.text(capitalize(text)),
        "title" => heap.text(text.split_inclusive(|c: char| !c.is_alphabetic()).map(capitalize).collect::<String>()),
        "swapcase" => {
            let swap = |c: char| {
                if c.is_uppercase() { c.to_lowercase().collect::<String>() } else { c.to_uppercase().collect() }
            };
            heap.text(text.chars().map(swap).collect::<String>())
        }
        "strip" => strip(true, true),
        "lstrip" => strip(true, false),
        "rstrip" => strip(false, true),
        "removeprefix" => heap.text(text.strip_prefix(needle()?).unwrap_or(text)),
        "removesuffix" => heap.text(text.strip_suffix(needle()?).unwrap_or(text)),
        "startswith" | "endswith" => {
            let holds =
                |affix: &str| if name == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) };
            Ok(Value::Bool(match first {
                Some(Value::List(list)) => {
                    let mut any = false;
                    for affix in (0..).map_while(|i| list.get(i)) {
                        budget.step(1)?;
                        budget.read(affix.as_text().map_or(0, str::len))?;
                        any |= affix.as_text().is_some_and(holds);
                    }
                    any
                }
                _ => holds(needle()?),
            }))
        }
        "replace" => {
            let Some(to) = second.as_ref().and_then(Value::as_text) else {
                return fail("replace: expected two strings");
            };
            let count = third.as_ref().and_then(Value::as_int).unwrap_or(-1);
            heap.text(replace(text, needle()?, to, count, budget)?)
        }
        "split" | "rsplit" => {
            words(split(text, first.as_ref().and_then(Value::as_text), second, name == "rsplit", budget)?)
        }
        "splitlines" => words(split_lines(text, first.as_ref().is_some_and(Value::is_true), budget)?),
        "partition" | "rpartition" => {
            let glue = needle()?;
            let parts = if name == "partition" { text.split_once(glue) } else { text.rsplit_once(glue) };
            let parts = match parts {
                Some((before, after)) => [before, glue, after],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            let parts: Vec<_> = parts.into_iter().map(|part| heap.text(part)).collect::<Step<_>>()?;
            heap.tuple(parts)
        }
        "join" => {
            let items = heap.items(first.as_ref().unwrap_or(&Value::None))?;
            let mut joined = String::new();
            for (i, item) in (0..).map_while(|i| Some((i, items.get(i)?))) {
                let Some(item) = item.as_text() else { return fail("join: expected strings") };
                budget.take(item.len() + text.len())?;
                joined.push_str(if i > 0 { text } else { "" });
                joined.push_str(item);
            }
            heap.text(joined)
        }
        "count" => int(match needle()? {
            "" => text.chars().count() + 1,
            needle => text.matches(needle).count(),
        }),
        "find" | "index" | "rfind" | "rindex" => {
            let needle = needle()?;
            let found = if name.starts_with('r') { text.rfind(needle) } else { text.find(needle) };
            match found.and_then(|at| text.get(..at)) {
                Some(before) => int(before.chars().count()),
                None if name.ends_with("index") => fail(format!("{name}: not found")),
                None => Ok(Value::Int(-1)),
            }
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let Some(width) = first.as_ref().and_then(Value::as_int) else {
                return fail(format!("{name}: expected a width"));
            };
            let fill = second.as_ref().and_then(Value::as_text).and_then(|f| f.chars().next()).unwrap_or(' ');
            let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
            budget.take(missing.saturating_mul(4))?;
            let run = |fill, n: usize| std::iter::repeat_n(fill, n).collect::<String>();
            let left = missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1);
            let digits = text.trim_start_matches(['+', '-']);
            heap.text(match name {
                "ljust" => format!("{}{}", &**text, run(fill, missing)),
                "rjust" => format!("{}{}", run(fill, missing), &**text),
                "center" => format!("{}{}{}", run(fill, left), &**text, run(fill, missing - left)),
                _ => format!(
                    "{}{}{digits}",
                    text.get(..text.len() - digits.len()).unwrap_or_default(),
                    run('0', missing)
                ),
            })
        }
        "expandtabs" => {
            let width = first.as_ref().and_then(Value::as_int).and_then(|w| usize::try_from(w).ok()).unwrap_or(8);
            let mut column: usize = 0;
            let mut expanded = String::new();
            for c in text.chars() {
                let wanted =
                    if c == '\t' { width.min(1000) - column.checked_rem(width.min(1000)).unwrap_or(0) } else { 1 };
                budget.take(wanted)?;
                column = if c == '\n' { 0 } else { column + wanted };
                if c == '\t' { expanded.extend(std::iter::repeat_n(' ', wanted)) } else { expanded.push(c) }
            }
            heap.text(expanded)
        }
        "isalnum" => Ok(all(char::is_alphanumeric)),
        "isalpha" => Ok(all(char::is_alphabetic)),
        "isascii" => Ok(Value::Bool(text.is_ascii())),
        "isdecimal" | "isdigit" | "isnumeric" => Ok(all(char::is_numeric)),
        "isspace" => Ok(all(char::is_whitespace)),
        "islower" => Ok(cased(char::is_lowercase, char::is_uppercase)),
        "isupper" => Ok(cased(char::is_uppercase, char::is_lowercase)),
        _ => fail(format!("{name}: there is no such method")),
    }
}

fn int<'a>(n: usize) -> Step<Value<'a>> {
    Ok(Value::Int(i64::try_from(n).unwrap_or(i64::MAX)))
}

/// Replaces up to `count` occurrences, all if it is negative, none if `from` is empty.
pub fn replace(text: &str, from: &str, to: &str, count: i64, budget: &Budget<'_>) -> Step<String> {
    if from.is_empty() {
        return Ok(text.to_owned());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    budget.read(text.len())?;
    let found = text.matches(from).take(count).count();
    budget.take(text.len().saturating_add(found.saturating_mul(to.len())))?;
    Ok(text.replacen(from, to, count))
}

fn split<'t>(
    text: &'t str,
    glue: Option<&str>,
    most: &Option<Value<'_>>,
    from_end: bool,
    budget: &Budget<'_>,
) -> Step<Vec<&'t str>> {
    let parts = match glue {
        Some(glue) => text.matches(glue).count(),
        None => text.split_whitespace().count(),
    };
    budget.take(parts.saturating_mul(PIECE))?;
    let most = most.as_ref().and_then(Value::as_int).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = match glue {
        Some("") => return fail("split: an empty separator"),
        Some(glue) if from_end => text.rsplitn(most.saturating_add(1), glue).collect(),
        Some(glue) => text.splitn(most.saturating_add(1), glue).collect(),
        None => {
            let mut parts = Vec::new();
            let edge = |rest: &'t str| if from_end { rest.trim_end() } else { rest.trim_start() };
            let mut rest = edge(text);
            while !rest.is_empty() && parts.len() < most {
                let at = if from_end { rest.rfind(char::is_whitespace) } else { rest.find(char::is_whitespace) };
                let Some(at) = at else { break };
                let (before, after) = rest.split_at(at);
                let (part, left) = if from_end { (after.trim_start(), before) } else { (before, after) };
                parts.push(part);
                rest = edge(left);
            }
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
            parts
        }
    };
    if from_end {
        parts.reverse();
    }
    Ok(parts)
}

fn list_method<'a>(cx: &Renderer<'a, '_>, list: &Rc<List<'a>>, name: &str, given: Bound<'a>) -> Step<Value<'a>> {
    let names = if name == "sort" { ["reverse", ""] } else { ["", ""] };
    let [first, second] = given.by_name(names)?;
    let find = |wanted: &Value<'a>| -> Step<usize> {
        for (i, item) in (0..).map_while(|i| Some((i, list.get(i)?))) {
            if item.equals(wanted, cx.budget())? {
                return Ok(i);
            }
        }
        fail(format!("{name}: there is no such item"))
    };
    if matches!(name, "insert" | "pop" | "remove" | "reverse") {
        cx.budget().step(list.len() / ITEMS_PER_STEP)?;
    }
    match (name, first, second) {
        ("append", Some(item), None) => cx.heap.push(list, item)?,
        ("extend", Some(items), None) => {
            for item in cx.heap.items(&items)?.to_vec() {
                cx.heap.push(list, item)?;
            }
        }
        ("insert", Some(at), Some(item)) => {
            let Some(at) = at.as_int() else { return fail("insert: expected a position") };
            let length = list.len();
            cx.budget().take(32)?;
            let end = if at < 0 { 0 } else { length };
            list.items.borrow_mut().insert(operators::position(at, length).unwrap_or(end), item);
        }
        ("pop", at, None) => {
            let at = at.map_or(Some(-1), |at| at.as_int());
            let Some(at) = at.and_then(|at| operators::position(at, list.len())) else {
                return fail("pop: there is no such item");
            };
            return Ok(list.items.borrow_mut().remove(at));
        }
        ("remove", Some(item), None) => {
            let at = find(&item)?;
            let removed = list.items.borrow_mut().remove(at);
            drop(removed);
        }
        ("index", Some(item), None) => return int(find(&item)?),
        ("count", Some(wanted), None) => {
            let mut count = 0;
            for item in (0..).map_while(|i| list.get(i)) {
                count += usize::from(item.equals(&wanted, cx.budget())?);
            }
            return int(count);
        }
        ("copy", None, None) => return cx.heap.list(list.to_vec()),
        ("clear", None, None) => {
            let old = std::mem::take(&mut *list.items.borrow_mut());
            drop(old);
        }
        ("reverse", None, None) => list.items.borrow_mut().reverse(),
        ("sort", reverse, None) => {
            let sorted = super::filters::sequence::sorted(list.to_vec(), reverse.is_some_and(|r| r.is_true()), cx)?;
            *list.items.borrow_mut() = sorted;
        }
        _ => return fail(format!("{name}: the arguments do not fit")),
    }
    Ok(Value::None)
}

fn dict_method<'a>(cx: &Renderer<'a, '_>, dict: &Rc<Dict<'a>>, name: &str, given: Bound<'a>) -> Step<Value<'a>> {
    let budget = cx.budget();
    if name == "update" {
        given.positional.iter().try_for_each(|other| cx.update(dict, other))?;
        let mut named = given.named.into_iter();
        named.try_for_each(|(name, value)| dict.insert(Value::Text(name), value, budget))?;
        return Ok(Value::None);
    }
    let [first, second] = given.by_name(["", "default"])?;
    match (name, first, second) {
        ("items", None, None) => pairs(cx, dict),
        ("keys", None, None) => cx.heap.list(dict.entries().into_iter().map(|(key, _)| key).collect()),
        ("values", None, None) => cx.heap.list(dict.entries().into_iter().map(|(_, value)| value).collect()),
        ("get", Some(key), default) => Ok(dict.get(&key).or(default).unwrap_or(Value::None)),
        ("pop", Some(key), default) => match dict.remove(&key, budget)?.or(default) {
            Some(value) => Ok(value),
            None => fail(format!("pop: there is no key {}", printed(&key, budget)?)),
        },
        ("popitem", None, None) => match dict.entry(dict.len().wrapping_sub(1)) {
            Some((key, value)) => {
                dict.remove(&key, budget)?;
                cx.heap.tuple(vec![key, value])
            }
            None => fail("popitem: the mapping is empty"),
        },
        ("setdefault", Some(key), default) => match dict.get(&key) {
            Some(value) => Ok(value),
            None => {
                let value = default.unwrap_or(Value::None);
                dict.insert(key, value.clone(), budget)?;
                Ok(value)
            }
        },
        ("copy", None, None) => cx.heap.dict(dict.entries()).map(Value::Dict),
        ("clear", None, None) => {
            dict.clear();
            Ok(Value::None)
        }
        _ => fail(format!("{name}: the arguments do not fit")),
    }
}

/// The entries of a mapping as pairs.
pub fn pairs<'a>(cx: &Renderer<'a, '_>, dict: &Dict<'a>) -> Step<Value<'a>> {
    let pairs = dict.entries().into_iter().map(|(key, value)| cx.heap.tuple(vec![key, value]));
    cx.heap.list(pairs.collect::<Step<_>>()?)
}
