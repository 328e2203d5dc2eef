//! Values as text: Python's `str` and `repr`, and JSON.

use super::MISSING;
use super::budget::{Budget, MAX_DEPTH, Step, fail};
use super::value::Value;
use crate::document::float_text;

/// A value as `{{ }}` prints it: `True`, `None`, `['a', 1]`.
pub fn print(value: &Value<'_>, out: &mut String, budget: &Budget<'_>) -> Step<()> {
    match value {
        Value::Text(text) => push(out, text, budget),
        // An `if` without `else` has an undefined value without a name.
        Value::Undefined(name) if name.is_empty() => Ok(()),
        Value::Undefined(name) => {
            push(out, MISSING, budget)?;
            push(out, name, budget)
        }
        other => representation(other, out, budget, 0),
    }
}

/// Like [`print`], as a new string.
pub fn printed(value: &Value<'_>, budget: &Budget<'_>) -> Step<String> {
    let mut out = String::new();
    print(value, &mut out, budget)?;
    Ok(out)
}

/// A value as Python prints it in a list.
pub fn represented(value: &Value<'_>, budget: &Budget<'_>) -> Step<String> {
    let mut out = String::new();
    representation(value, &mut out, budget, 0)?;
    Ok(out)
}

fn push(out: &mut String, text: &str, budget: &Budget<'_>) -> Step<()> {
    budget.take(text.len())?;
    out.push_str(text);
    Ok(())
}

fn representation(value: &Value<'_>, out: &mut String, budget: &Budget<'_>, depth: usize) -> Step<()> {
    budget.step(1)?;
    if depth > MAX_DEPTH {
        return fail("lists nested too deep to print");
    }
    let text = match value {
        Value::Undefined(_) => "Undefined".to_owned(),
        Value::None => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) => float(*f),
        Value::Text(text) => {
            budget.take(text.len())?;
            quoted(text)
        }
        Value::List(list) => {
            let (open, close) = if list.is_tuple { ("(", ")") } else { ("[", "]") };
            push(out, open, budget)?;
            for (i, item) in (0..).map_while(|i| Some((i, list.get(i)?))) {
                push(out, if i > 0 { ", " } else { "" }, budget)?;
                representation(&item, out, budget, depth + 1)?;
            }
            push(out, if list.is_tuple && list.len() == 1 { "," } else { "" }, budget)?;
            return push(out, close, budget);
        }
        Value::Dict(dict) => {
            push(out, "{", budget)?;
            for (i, (key, value)) in (0..).map_while(|i| Some((i, dict.entry(i)?))) {
                push(out, if i > 0 { ", " } else { "" }, budget)?;
                representation(&key, out, budget, depth + 1)?;
                push(out, ": ", budget)?;
                representation(&value, out, budget, depth + 1)?;
            }
            return push(out, "}", budget);
        }
        Value::Namespace(_) => "<Namespace>".into(),
        Value::Callable(_) => "<function>".into(),
    };
    push(out, &text, budget)
}

/// A float as Python prints it.
pub fn float(f: f64) -> String {
    match f {
        f if f.is_nan() => "nan".into(),
        f if f.is_infinite() => if f > 0.0 { "inf" } else { "-inf" }.into(),
        f => float_text(f),
    }
}

/// A quoted string, as Python prints it.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x100 && c.is_control() || c == '\u{ad}' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// A value as JSON with sorted keys, safe in HTML, as jinja2's `tojson` returns it. `indent`: spaces for each level, if any.
pub fn to_json(value: &Value<'_>, indent: Option<usize>, budget: &Budget<'_>) -> Step<String> {
    let mut out = String::new();
    write_json(value, indent, &mut out, budget, 0)?;
    Ok(out)
}

fn write_json(
    value: &Value<'_>,
    indent: Option<usize>,
    out: &mut String,
    budget: &Budget<'_>,
    depth: usize,
) -> Step<()> {
    budget.step(1)?;
    if depth > MAX_DEPTH {
        return fail("lists nested too deep for JSON");
    }
    let line = |out: &mut String, depth: usize| match indent {
        Some(width) => push(out, &format!("\n{}", " ".repeat(width.min(MAX_DEPTH) * depth)), budget),
        None => Ok(()),
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value {
        Value::None => push(out, "null", budget),
        Value::Bool(b) => push(out, if *b { "true" } else { "false" }, budget),
        Value::Int(i) => push(out, &i.to_string(), budget),
        Value::Float(f) => push(out, &json_float(*f), budget),
        Value::Text(text) => {
            // A character may become six.
            budget.take(text.len().saturating_mul(5))?;
            push(out, &json_text(text), budget)
        }
        Value::List(list) if list.len() == 0 => push(out, "[]", budget),
        Value::List(list) => {
            push(out, "[", budget)?;
            for (i, item) in (0..).map_while(|i| Some((i, list.get(i)?))) {
                push(out, if i > 0 { comma } else { "" }, budget)?;
                line(out, depth + 1)?;
                write_json(&item, indent, out, budget, depth + 1)?;
            }
            line(out, depth)?;
            push(out, "]", budget)
        }
        Value::Dict(dict) if dict.len() == 0 => push(out, "{}", budget),
        Value::Dict(dict) => {
            budget.take(dict.len() * 64)?;
            let mut entries = dict.entries();
            let mut failed = None;
            crate::base::sort::by(&mut entries, |(a, _), (b, _)| {
                a.compare(b, budget).unwrap_or_else(|e| {
                    failed.get_or_insert(e);
                    std::cmp::Ordering::Equal
                })
            });
            failed.map_or(Ok(()), Err)?;
            push(out, "{", budget)?;
            for (i, (key, value)) in entries.iter().enumerate() {
                push(out, if i > 0 { comma } else { "" }, budget)?;
                line(out, depth + 1)?;
                let key = match key {
                    Value::Text(text) => json_text(text),
                    Value::None => "\"null\"".into(),
                    Value::Bool(b) => format!("\"{b}\""),
                    Value::Int(i) => format!("\"{i}\""),
                    Value::Float(f) => format!("\"{}\"", json_float(*f)),
                    other => return fail(format!("{} cannot be a key in JSON", other.kind())),
                };
                push(out, &key, budget)?;
                push(out, ": ", budget)?;
                write_json(value, indent, out, budget, depth + 1)?;
            }
            line(out, depth)?;
            push(out, "}", budget)
        }
        other => fail(format!("{} cannot be JSON", other.kind())),
    }
}

fn json_float(f: f64) -> String {
    match f {
        f if f.is_nan() => "NaN".into(),
        f if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        f => float_text(f),
    }
}

fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for unit in text.encode_utf16() {
        match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(b'"') => out.push_str("\\\""),
            Some(b'\\') => out.push_str("\\\\"),
            Some(b'\n') => out.push_str("\\n"),
            Some(b'\r') => out.push_str("\\r"),
            Some(b'\t') => out.push_str("\\t"),
            Some(8) => out.push_str("\\b"),
            Some(12) => out.push_str("\\f"),
            Some(b) if b >= 0x20 && !b"<>&'".contains(&b) && b != 0x7f => out.push(char::from(b)),
            Some(0x7f) => out.push('\u{7f}'),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
    out
}
