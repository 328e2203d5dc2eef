//! JSON Patch (RFC 6902) with JSON Pointers (RFC 6901), for `#cloud-config-jsonp`.

use crate::base::error::{Error, Result};
use crate::document::yaml::MAX_BYTES;
use crate::document::{MAX_DEPTH, MAX_NODES, Size, Value};

/// The most operations of a patch.
const MAX_OPERATIONS: usize = 10_000;

/// How many entries of lists and mappings all operations may move: each that adds or removes one moves those after it.
const MAX_MOVED: usize = 2_000_000;

/// The limits of growth and moves by operations.
struct Bounds {
    /// Upper bound of the document's size so far.
    size: Size,
    /// How many entries were moved.
    moved: usize,
}

impl Bounds {
    /// A copy of the document into itself doubles it and nests it deeper.
    fn grown(&mut self, value: Value, pointer: &str) -> Result<Value> {
        self.size.add(Size::of(&value));
        if let Some(limit) = exceeded(self.size) {
            return Err(Error::new(format!("the document grows to more than {limit}")));
        }
        if pointer.matches('/').count() + depth(&value) > MAX_DEPTH {
            return Err(Error::new(format!("the document nests deeper than {MAX_DEPTH}")));
        }
        Ok(value)
    }

    /// A removed or replaced value takes no more room. It has taken time, so its nodes still count.
    fn shrunk(&mut self, value: &Value) {
        self.size.bytes = self.size.bytes.saturating_sub(Size::of(value).bytes);
    }

    fn moves(&mut self, entries: usize) -> Result<()> {
        self.moved = self.moved.saturating_add(entries);
        if self.moved > MAX_MOVED { Err(Error::new("the patch changes lists and mappings too often")) } else { Ok(()) }
    }
}

/// Applies all operations of a patch in order, or none.
///
/// # Errors
/// An operation is malformed or does not fit the document; the error has its number, from 1.
pub fn apply(document: Value, patch: &Value) -> Result<Value> {
    let Value::List(operations) = patch else {
        return Err(crate::document::wrong("the patch", "a list of operations", patch));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(Error::new(format!("the patch has more than {MAX_OPERATIONS} operations")));
    }
    let mut bounds = Bounds { size: Size::of(&document), moved: 0 };
    let mut result = document;
    for (i, operation) in operations.iter().enumerate() {
        step(&mut result, operation, &mut bounds).map_err(|e| e.context(format!("operation {}", i + 1)))?;
    }
    Ok(result)
}

fn step(document: &mut Value, operation: &Value, bounds: &mut Bounds) -> Result<()> {
    let text = |key: &str| {
        operation.get(key).and_then(Value::as_str).ok_or_else(|| Error::new(format!("{key}: expected a string")))
    };
    let value = || operation.get("value").cloned().ok_or_else(|| Error::new("value: missing"));
    let path = text("path")?;
    match text("op")? {
        "add" => add(document, path, value()?, bounds),
        "remove" => {
            let removed = remove(document, path, bounds)?;
            bounds.shrunk(&removed);
            Ok(())
        }
        "replace" => {
            let place = find(document, path)?;
            bounds.shrunk(place);
            *place = bounds.grown(value()?, path)?;
            Ok(())
        }
        "move" => {
            let from = text("from")?;
            if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
                return Err(Error::new("from: a value cannot be moved into itself"));
            }
            let moved = remove(document, from, bounds)?;
            bounds.shrunk(&moved);
            add(document, path, moved, bounds)
        }
        "copy" => {
            let copied = find(document, text("from")?)?.clone();
            add(document, path, copied, bounds)
        }
        "test" if is_same(find(document, path)?, &value()?) => Ok(()),
        "test" => Err(Error::new("the test failed")),
        _ => Err(Error::new("op: expected add, remove, replace, move, copy or test")),
    }
}

/// Equality by RFC 6902, section 4.6: numbers are equal if their values are, so that 1 is 1.0.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(int), Value::Float(float)) | (Value::Float(float), Value::Int(int)) => *int as f64 == *float,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}

/// The limit of one document that this size exceeds. A text that is shared in memory takes room each time that it is written.
pub fn exceeded(size: Size) -> Option<String> {
    match size {
        Size { nodes, .. } if nodes > MAX_NODES => Some(format!("{MAX_NODES} nodes")),
        Size { bytes, .. } if bytes > MAX_BYTES => Some(format!("{MAX_BYTES} bytes")),
        _ => None,
    }
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::List(list) => list.iter().map(depth).max(),
        Value::Map(map) => map.iter().map(|(_, value)| depth(value)).max(),
        _ => None,
    };
    1 + inner.unwrap_or(0)
}

/// The parent and the last token of a pointer; None for the whole document.
fn split(pointer: &str) -> Result<Option<(&str, String)>> {
    match pointer.rsplit_once('/') {
        Some((parent, last)) if pointer.starts_with('/') => Ok(Some((parent, unescape(last)))),
        None if pointer.is_empty() => Ok(None),
        _ => Err(Error::new("a path that does not begin with /")),
    }
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// A list index: digits without leading zeros.
fn index(token: &str) -> Result<usize> {
    let valid = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    token.parse().ok().filter(|_| valid).ok_or_else(|| Error::new("a path whose list index is not a number"))
}

fn missing() -> Error {
    Error::new("a path that is not there")
}

fn find<'a>(document: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    if split(pointer)?.is_none() {
        return Ok(document);
    }
    pointer.split('/').skip(1).try_fold(document, |value, token| match value {
        Value::Map(map) => map.get_mut(&unescape(token)).ok_or_else(missing),
        Value::List(list) => list.get_mut(index(token)?).ok_or_else(missing),
        _ => Err(missing()),
    })
}

fn add(document: &mut Value, pointer: &str, value: Value, bounds: &mut Bounds) -> Result<()> {
    let value = bounds.grown(value, pointer)?;
    let Some((parent, last)) = split(pointer)? else {
        *document = value;
        return Ok(());
    };
    match find(document, parent)? {
        Value::Map(map) => {
            map.insert(last, value);
        }
        Value::List(list) if last == "-" => list.push(value),
        Value::List(list) => match index(&last)? {
            i if i <= list.len() => {
                bounds.moves(list.len() - i)?;
                list.insert(i, value);
            }
            _ => return Err(missing()),
        },
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove(document: &mut Value, pointer: &str, bounds: &mut Bounds) -> Result<Value> {
    let Some((parent, last)) = split(pointer)? else { return Ok(std::mem::take(document)) };
    match find(document, parent)? {
        Value::Map(map) => {
            bounds.moves(map.len())?;
            map.remove(&last).ok_or_else(missing)
        }
        Value::List(list) => match index(&last)? {
            i if i < list.len() => {
                bounds.moves(list.len() - i)?;
                Ok(list.remove(i))
            }
            _ => Err(missing()),
        },
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn patched(document: &str, patch: &str) -> String {
        let value = |text: &str| json::parse("t", text.as_bytes()).unwrap();
        apply(value(document), &value(patch)).map_or_else(|e| e.to_string(), |v| json::to_string(&v))
    }

    /// The examples of RFC 6902, appendix A.
    #[test]
    fn the_standards_examples() {
        for (document, patch, expected) in [
            (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux"}]"#, r#"{"foo":"bar","baz":"qux"}"#),
            (
                r#"{"foo":["bar","baz"]}"#,
                r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
                r#"{"foo":["bar","qux","baz"]}"#,
            ),
            (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
            (r#"{"foo":["bar","qux","baz"]}"#, r#"[{"op":"remove","path":"/foo/1"}]"#, r#"{"foo":["bar","baz"]}"#),
            (r#"{"baz":"qux"}"#, r#"[{"op":"replace","path":"/baz","value":"boo"}]"#, r#"{"baz":"boo"}"#),
            (
                r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
                r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
                r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
            ),
            (
                r#"{"foo":["a","b","c"]}"#,
                r#"[{"op":"move","from":"/foo/0","path":"/foo/2"}]"#,
                r#"{"foo":["b","c","a"]}"#,
            ),
            (r#"{"baz":["a",2]}"#, r#"[{"op":"test","path":"/baz/1","value":2}]"#, r#"{"baz":["a",2]}"#),
            (r#"{"baz":"qux"}"#, r#"[{"op":"test","path":"/baz","value":"bar"}]"#, "operation 1: the test failed"),
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#,
                "operation 1: a path that is not there",
            ),
            (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
            (r#"{"foo":["bar"]}"#, r#"[{"op":"add","path":"/foo/-","value":["abc"]}]"#, r#"{"foo":["bar",["abc"]]}"#),
            (r#"{"a":[{"b":1}]}"#, r#"[{"op":"test","path":"","value":{"a":[{"b":1.0}]}}]"#, r#"{"a":[{"b":1}]}"#),
            (r#"{"a":1}"#, r#"[{"op":"copy","from":"","path":"/b"}]"#, r#"{"a":1,"b":{"a":1}}"#),
            (r#"{"a":1}"#, r#"[{"op":"add","path":"","value":[]}]"#, "[]"),
        ] {
            assert_eq!(patched(document, patch), expected, "{patch}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for patch in [
            r#"{}"#,
            r#"[1]"#,
            r#"[{"op":"add","path":"/a"}]"#,
            r#"[{"op":"nosuch","path":"/a"}]"#,
            r#"[{"op":"add","path":"a","value":1}]"#,
            r#"[{"op":"remove","path":"/zzz"}]"#,
            r#"[{"op":"add","path":"/l/01","value":1}]"#,
            r#"[{"op":"add","path":"/l/9","value":1}]"#,
            r#"[{"op":"remove","path":"/l/99999999999999999999"}]"#,
            r#"[{"op":"move","from":"/l","path":"/l/0"}]"#,
        ] {
            assert!(patched(r#"{"a":1,"l":[1]}"#, patch) != r#"{"a":1,"l":[1]}"#, "{patch}");
        }
        let copies = |path: fn(usize) -> String| {
            let copies: Vec<String> =
                (0..150).map(|i| format!(r#"{{"op":"copy","from":"","path":"/{}"}}"#, path(i))).collect();
            patched(r#"{"a":1}"#, &format!("[{}]", copies.join(",")))
        };
        assert!(copies(|i| format!("x{i}")).contains(&format!("more than {MAX_NODES} nodes")));
        assert!(copies(|_| "x".into()).contains("deeper than 100"));
    }

    /// Each copy of a text or of a key is one node, however long it is.
    #[test]
    fn copies_of_long_texts_and_keys_are_refused() {
        let long = "x".repeat(1 << 20);
        for document in [format!(r#"{{"a":"{long}"}}"#), format!(r#"{{"a":{{"{long}":1}}}}"#)] {
            let copies: Vec<String> =
                (0..100).map(|i| format!(r#"{{"op":"copy","from":"/a","path":"/b{i}"}}"#)).collect();
            let patched = patched(&document, &format!("[{}]", copies.join(",")));
            assert!(patched.contains("the document grows to more than"), "{} bytes", patched.len());
        }
        // A move or a replacement does not add to the size.
        let document = format!(r#"{{"a":"{}"}}"#, "x".repeat(10 << 20));
        let patch = r#"[{"op":"move","from":"/a","path":"/b"},{"op":"copy","from":"/b","path":"/c"}]"#;
        assert!(patched(&document, patch).contains("operation 2: the document grows to more than"));
        let patch = r#"[{"op":"move","from":"/a","path":"/b"},{"op":"move","from":"/b","path":"/a"},{"op":"remove","path":"/a"}]"#;
        assert_eq!(patched(&document, patch), "{}");
    }

    /// Each operation that removes an entry moves those after it.
    #[test]
    fn many_small_changes_of_large_document_end() {
        let document: String = (0..20_000).map(|i| format!("\"k{i}\":1,")).collect();
        let document = format!("{{{document}\"l\":[{}1]}}", "1,".repeat(20_000));
        for operation in [r#"{"op":"remove","path":"/kN"}"#, r#"{"op":"remove","path":"/l/0"}"#] {
            let patch: Vec<String> = (0..MAX_OPERATIONS).map(|i| operation.replace('N', &i.to_string())).collect();
            let before = crate::base::testing::cpu_time();
            let error = patched(&document, &format!("[{}]", patch.join(",")));
            assert!(error.contains("changes lists and mappings too often"), "{} bytes", error.len());
            assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(30));
        }
    }
}
