//! Jinja's filters: one table, and a function for each.

mod number;
pub mod sequence;
pub mod text;

use super::budget::{Step, fail};
use super::call::Bound;
use super::render::Renderer;
use super::value::Value;

type Filter = for<'a> fn(&Renderer<'a, '_>, Value<'a>, Bound<'a>) -> Step<Value<'a>>;

const FILTERS: &[(&str, Filter)] = &[
    ("abs", number::abs),
    ("attr", sequence::attr),
    ("batch", sequence::batch),
    ("capitalize", text::capitalized),
    ("center", text::center),
    ("count", sequence::length),
    ("d", sequence::default),
    ("default", sequence::default),
    ("dictsort", sequence::dictsort),
    ("e", text::escape),
    ("escape", text::escape),
    ("filesizeformat", number::filesizeformat),
    ("first", sequence::first),
    ("float", number::float),
    ("forceescape", text::escape),
    ("format", text::format),
    ("groupby", sequence::groupby),
    ("indent", text::indent),
    ("int", number::int),
    ("items", sequence::items),
    ("join", sequence::join),
    ("last", sequence::last),
    ("length", sequence::length),
    ("list", sequence::list),
    ("lower", text::lower),
    ("map", sequence::map),
    ("max", sequence::max),
    ("min", sequence::min),
    ("pprint", text::pprint),
    ("random", sequence::random),
    ("reject", sequence::reject),
    ("rejectattr", sequence::rejectattr),
    ("replace", text::replaced),
    ("reverse", sequence::reverse),
    ("round", number::round),
    ("safe", text::string),
    ("select", sequence::select),
    ("selectattr", sequence::selectattr),
    ("slice", sequence::slice),
    ("sort", sequence::sort),
    ("string", text::string),
    ("striptags", text::striptags),
    ("sum", sequence::sum),
    ("title", text::title),
    ("tojson", text::tojson),
    ("trim", text::trim),
    ("truncate", text::truncate),
    ("unique", sequence::unique),
    ("upper", text::upper),
    ("urlencode", text::urlencode),
    ("wordcount", text::wordcount),
    ("wordwrap", text::wordwrap),
    ("xmlattr", text::xmlattr),
];

fn find(name: &str) -> Option<Filter> {
    FILTERS.iter().find(|(n, _)| *n == name).map(|(_, filter)| *filter)
}

/// Whether there is a filter of that name.
pub fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// Applies a filter.
///
/// # Errors
/// An unknown filter, arguments that do not fit, or what the filter itself finds wrong.
pub fn apply<'a>(cx: &Renderer<'a, '_>, name: &str, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let Some(filter) = find(name) else { return fail(format!("there is no filter {name}")) };
    cx.budget().step(1)?;
    cx.budget().deeper(|| filter(cx, value, given)).map_err(|mut e| {
        e.what = format!("the filter {name}: {}", e.what);
        e
    })
}

/// An argument's integer.
fn int_of(value: Option<&Value<'_>>, default: i64) -> Step<i64> {
    match value {
        None => Ok(default),
        Some(value) => value.as_int().map_or_else(|| fail(format!("expected an integer, found {}", value.kind())), Ok),
    }
}

/// An argument's number of items or characters.
fn size_of(value: Option<&Value<'_>>, default: usize) -> Step<usize> {
    Ok(match value {
        None => default,
        Some(_) => usize::try_from(int_of(value, 0)?).unwrap_or(0),
    })
}

fn is_true(value: Option<&Value<'_>>) -> bool {
    value.is_some_and(Value::is_true)
}
