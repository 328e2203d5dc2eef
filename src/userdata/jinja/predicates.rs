//! Jinja's tests: the names allowed after `is`.

use super::budget::{Step, fail};
use super::filters;
use super::operators;
use super::render::Renderer;
use super::syntax::Comparison;
use super::value::Value;
use std::rc::Rc;

/// The tests that compare with their argument.
const COMPARISONS: &[(&str, Comparison)] = &[
    ("eq", Comparison::Equal),
    ("==", Comparison::Equal),
    ("equalto", Comparison::Equal),
    ("ne", Comparison::Unequal),
    ("!=", Comparison::Unequal),
    ("lt", Comparison::Less),
    ("<", Comparison::Less),
    ("lessthan", Comparison::Less),
    ("le", Comparison::LessOrEqual),
    ("<=", Comparison::LessOrEqual),
    ("gt", Comparison::Greater),
    (">", Comparison::Greater),
    ("greaterthan", Comparison::Greater),
    ("ge", Comparison::GreaterOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("in", Comparison::In),
];

/// The other tests.
const NAMES: &[&str] = &[
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Whether there is a test of that name.
pub fn exists(name: &str) -> bool {
    NAMES.contains(&name) || COMPARISONS.iter().any(|(n, _)| *n == name)
}

/// Whether a value passes a test.
///
/// # Errors
/// An unknown test, or a value or argument that it does not take.
pub fn test<'a>(cx: &Renderer<'a, '_>, name: &str, value: &Value<'a>, arguments: &[Value<'a>]) -> Step<bool> {
    let argument = || arguments.first().map_or_else(|| fail(format!("the test {name}: expected an argument")), Ok);
    if let Some((_, comparison)) = COMPARISONS.iter().find(|(n, _)| *n == name) {
        return cx.compare(*comparison, value, argument()?);
    }
    let remainder = |divisor: &Value<'a>| -> Step<bool> {
        let rest = operators::apply(super::syntax::Operator::Remainder, value, divisor, &cx.heap)?;
        rest.as_float().map_or_else(|| fail(format!("the test {name}: expected a number")), |rest| Ok(rest == 0.0))
    };
    let two = Value::Int(2);
    Ok(match name {
        "defined" => !matches!(value, Value::Undefined(_)),
        "undefined" => matches!(value, Value::Undefined(_)),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => value.as_text().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" | "iterable" => {
            matches!(value, Value::Undefined(_) | Value::Text(_) | Value::List(_) | Value::Dict(_))
        }
        "callable" => matches!(value, Value::Callable(_) | Value::Undefined(_)),
        "escaped" => false,
        "even" => remainder(&two)?,
        "odd" => !remainder(&two)?,
        "divisibleby" => remainder(argument()?)?,
        "lower" | "upper" => {
            let text = super::print::printed(value, cx.budget())?;
            let (lower, upper) = (text.contains(char::is_lowercase), text.contains(char::is_uppercase));
            if name == "lower" { lower && !upper } else { upper && !lower }
        }
        "sameas" => match (value, argument()?) {
            (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b),
            (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
            (a, b) if a.kind() == b.kind() => a.equals(b, cx.budget())?,
            _ => false,
        },
        "filter" => value.as_text().is_some_and(filters::exists),
        "test" => value.as_text().is_some_and(exists),
        _ => return fail(format!("there is no test {name}")),
    })
}
