//! The filters, tests, functions and string methods that documents use. The engine's own set would add 250 KB.

use super::variables::{is_missing, printed};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

/// The longest list that `range` makes.
const MAX_RANGE: i64 = 100_000;

/// Adds them all to an environment.
pub fn add(environment: &mut Environment) {
    add_filters(environment);
    add_tests(environment);
    environment.add_function("range", range);
    environment.add_function("dict", |values: Kwargs| {
        Value::from_pairs(values.args().filter_map(|name| Some((name, values.get::<Value>(name).ok()?))))
    });
    environment.set_unknown_method_callback(method);
}

fn add_filters(environment: &mut Environment) {
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    for name in ["length", "count"] {
        environment.add_filter(name, |v: &Value| v.len().ok_or_else(|| no(v, "a length")));
    }
    environment.add_filter("string", |v: &Value| printed(v));
    environment.add_filter("lower", |v: &Value| printed(v).to_lowercase());
    environment.add_filter("upper", |v: &Value| printed(v).to_uppercase());
    environment.add_filter("capitalize", |v: &Value| capitalize(&printed(v)));
    environment.add_filter("trim", |v: &Value| printed(v).trim().to_owned());
    environment.add_filter("replace", |v: &Value, from: &str, to: &str| replace(&printed(v), from, to));
    environment.add_filter("first", |v: &Value| Ok::<_, Error>(v.try_iter()?.next().unwrap_or_default()));
    environment.add_filter("last", |v: &Value| Ok::<_, Error>(v.try_iter()?.last().unwrap_or_default()));
    environment.add_filter("list", |v: &Value| Ok::<_, Error>(Value::from(items(v)?)));
    environment.add_filter("reverse", |v: &Value| Ok::<_, Error>(items(v)?.into_iter().rev().collect::<Value>()));
    environment.add_filter("sort", |v: &Value| {
        let mut items = items(v)?;
        items.sort();
        Ok::<_, Error>(Value::from(items))
    });
    environment.add_filter("unique", |v: &Value| {
        let mut seen = std::collections::BTreeSet::new();
        Ok::<_, Error>(items(v)?.into_iter().filter(|i| seen.insert(i.clone())).collect::<Value>())
    });
    environment.add_filter("join", |v: &Value, glue: Option<&str>| join(v, glue.unwrap_or_default()));
    environment.add_filter("int", |v: &Value, default: Option<i64>| {
        let text = printed(v);
        text.trim().parse().ok().or_else(|| v.as_i64()).or(default).unwrap_or(0)
    });
    environment.add_filter("indent", |v: &Value, width: Option<usize>, first: Option<bool>| {
        let pad = " ".repeat(width.unwrap_or(4).min(1000));
        let text = printed(v);
        let lines = text.split('\n').enumerate();
        let padded = lines.map(|(i, l)| match i {
            0 if first != Some(true) => l.to_owned(),
            _ if l.is_empty() => String::new(),
            _ => format!("{pad}{l}"),
        });
        padded.collect::<Vec<_>>().join("\n")
    });
}

fn add_tests(environment: &mut Environment) {
    environment.add_test("defined", |v: &Value| !is_missing(v));
    environment.add_test("undefined", is_missing);
    environment.add_test("string", |v: &Value| v.kind() == ValueKind::String);
    environment.add_test("number", |v: &Value| v.kind() == ValueKind::Number);
    environment.add_test("integer", |v: &Value| v.is_integer());
    environment.add_test("boolean", |v: &Value| v.kind() == ValueKind::Bool);
    environment.add_test("mapping", |v: &Value| v.kind() == ValueKind::Map);
    environment.add_test("sequence", |v: &Value| v.kind() == ValueKind::Seq);
    environment.add_test("iterable", |v: &Value| v.try_iter().is_ok());
    environment.add_test("true", |v: &Value| v.kind() == ValueKind::Bool && v.is_true());
    environment.add_test("false", |v: &Value| v.kind() == ValueKind::Bool && !v.is_true());
    environment.add_test("in", |v: &Value, list: &Value| Ok::<_, Error>(items(list)?.contains(v)));
}

fn no(value: &Value, what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{} has not {what}", value.kind()))
}

fn items(value: &Value) -> Result<Vec<Value>, Error> {
    Ok(value.try_iter()?.collect())
}

fn default(value: &Value, other: Option<Value>, also_false: Option<bool>) -> Value {
    if is_missing(value) || (also_false == Some(true) && !value.is_true()) {
        return other.unwrap_or_else(|| Value::from(""));
    }
    value.clone()
}

fn join(value: &Value, glue: &str) -> Result<String, Error> {
    Ok(value.try_iter()?.map(|v| printed(&v)).collect::<Vec<_>>().join(glue))
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect()).unwrap_or_default()
}

/// An empty pattern is between all characters, and no way to grow without bound.
fn replace(text: &str, from: &str, to: &str) -> String {
    if from.is_empty() { text.to_owned() } else { text.replace(from, to) }
}

fn range(first: i64, end: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, end, step) = (if end.is_some() { first } else { 0 }, end.unwrap_or(first), step.unwrap_or(1));
    let span = i128::from(end) - i128::from(start);
    let count = if step == 0 { -1 } else { (span + i128::from(step) - i128::from(step.signum())) / i128::from(step) };
    match i64::try_from(count.max(0)) {
        Ok(count) if step != 0 && count <= MAX_RANGE => Ok((0..count).map(|i| start + i * step).collect()),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "range: too long, or a step of 0")),
    }
}

/// Python's methods of a string.
fn method(_: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return Err(ErrorKind::UnknownMethod.into()) };
    let args: Vec<&str> = args.iter().map(|a| a.as_str().unwrap_or_default()).collect();
    let trim = |text: &str| text.trim().to_owned();
    Ok(match (method, args.as_slice()) {
        ("lower", []) => text.to_lowercase().into(),
        ("upper", []) => text.to_uppercase().into(),
        ("capitalize", []) => capitalize(text).into(),
        ("title", []) => text.split_inclusive(|c: char| !c.is_alphabetic()).map(capitalize).collect::<String>().into(),
        ("strip", []) => trim(text).into(),
        ("lstrip", []) => text.trim_start().into(),
        ("rstrip", []) => text.trim_end().into(),
        ("strip", [chars]) => text.trim_matches(|c| chars.contains(c)).into(),
        ("lstrip", [chars]) => text.trim_start_matches(|c| chars.contains(c)).into(),
        ("rstrip", [chars]) => text.trim_end_matches(|c| chars.contains(c)).into(),
        ("startswith", [prefix]) => text.starts_with(prefix).into(),
        ("endswith", [suffix]) => text.ends_with(suffix).into(),
        ("replace", [from, to]) => replace(text, from, to).into(),
        ("split", []) => text.split_whitespace().map(Value::from).collect(),
        ("split", [by, ..]) if !by.is_empty() => text.split(by).map(Value::from).collect(),
        ("splitlines", []) => text.lines().map(Value::from).collect(),
        _ => return Err(ErrorKind::UnknownMethod.into()),
    })
}
