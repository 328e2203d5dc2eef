//! Filters for lists and mappings.

use super::super::budget::{Failure, Step, fail};
use super::super::call::{Bound, NOTHING};
use super::super::methods;
use super::super::predicates;
use super::super::print::{print, printed};
use super::super::render::Renderer;
use super::super::value::{List, Text, Value};
use super::{is_true, size_of};
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

pub fn default<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let _ = cx;
    let [other, also_false] = given.by_name(["default_value", "boolean"])?;
    if matches!(value, Value::Undefined(_)) || (is_true(also_false.as_ref()) && !value.is_true()) {
        return Ok(other.unwrap_or(Value::borrowed("")));
    }
    Ok(value)
}

pub fn length<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    cx.budget().read(value.as_text().map_or(0, str::len))?;
    let length = value.len().and_then(|n| i64::try_from(n).ok());
    length.map_or_else(|| fail(format!("{} has no length", value.kind())), |n| Ok(Value::Int(n)))
}

pub fn first<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    Ok(cx.heap.items(&value)?.get(0).unwrap_or(Value::undefined(NOTHING)))
}

pub fn last<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let items = cx.heap.items(&value)?;
    Ok(items.len().checked_sub(1).and_then(|i| items.get(i)).unwrap_or(Value::undefined(NOTHING)))
}

pub fn random<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let items = cx.heap.items(&value)?;
    match items.len() {
        0 => Ok(Value::undefined(NOTHING)),
        length => Ok(items.get(cx.random(length)?).unwrap_or(Value::None)),
    }
}

pub fn list<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    cx.heap.list(cx.heap.items(&value)?.to_vec())
}

pub fn items<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    match &value {
        Value::Dict(dict) => methods::pairs(cx, dict),
        Value::Undefined(_) => cx.heap.list(Vec::new()),
        other => fail(format!("expected a mapping, found {}", other.kind())),
    }
}

pub fn reverse<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    if let Value::Text(text) = &value {
        cx.budget().take(text.len())?;
        return cx.heap.text(text.chars().rev().collect::<String>());
    }
    let mut items = cx.heap.items(&value)?.to_vec();
    items.reverse();
    cx.heap.list(items)
}

/// The items to choose from; none if the value is not true.
fn candidates<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>) -> Step<Rc<List<'a>>> {
    if value.is_true() { cx.heap.items(value) } else { cx.heap.shared(Vec::new(), false) }
}

/// The value at a path of attributes and positions separated by points; an integer is a path too.
fn at<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>, path: &Value<'a>) -> Step<Value<'a>> {
    let Value::Text(path) = path else { return cx.item(value, path) };
    cx.budget().read(path.len())?;
    path.split('.').try_fold(value.clone(), |value, name| match name.parse() {
        Ok(position) => cx.item(&value, &Value::Int(position)),
        Err(_) => cx.item(&value, &cx.heap.text(name)?),
    })
}

/// By what items are compared: an attribute, in lower case unless case matters.
fn comparable<'a>(cx: &Renderer<'a, '_>, item: &Value<'a>, by: Option<&Value<'a>>, case: bool) -> Step<Value<'a>> {
    let value = by.map_or_else(|| Ok(item.clone()), |by| at(cx, item, by))?;
    match &value {
        Value::Text(text) if !case => {
            cx.budget().take(text.len())?;
            cx.heap.text(text.to_lowercase())
        }
        _ => Ok(value),
    }
}

/// Sorts by keys that were made before; items with equal keys keep their order.
fn sort_by_keys<'a>(cx: &Renderer<'a, '_>, keyed: &mut Vec<(Value<'a>, Value<'a>)>, reverse: bool) -> Step<()> {
    let mut failed: Option<Box<Failure>> = None;
    crate::base::sort::by(keyed, |(a, _), (b, _)| {
        if failed.is_some() {
            return Ordering::Equal;
        }
        let order = a.compare(b, cx.budget()).unwrap_or_else(|e| {
            failed = Some(e);
            Ordering::Equal
        });
        if reverse { order.reverse() } else { order }
    });
    failed.map_or(Ok(()), Err)
}

/// The items in order.
///
/// # Errors
/// Items without an order.
pub fn sorted<'a>(items: Vec<Value<'a>>, reverse: bool, cx: &Renderer<'a, '_>) -> Step<Vec<Value<'a>>> {
    cx.budget().take(items.len() * 64)?;
    let mut keyed: Vec<_> = items.into_iter().map(|item| (item, Value::None)).collect();
    sort_by_keys(cx, &mut keyed, reverse)?;
    Ok(keyed.into_iter().map(|(item, _)| item).collect())
}

pub fn sort<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [reverse, case, attribute] = given.by_name(["reverse", "case_sensitive", "attribute"])?;
    let (reverse, case) = (is_true(reverse.as_ref()), is_true(case.as_ref()));
    let items = cx.heap.items(&value)?.to_vec();
    cx.budget().take(items.len() * 64)?;
    let mut keyed = Vec::new();
    for item in items {
        // Several attributes have commas between them.
        let key = match &attribute {
            Some(Value::Text(several)) if several.contains(',') => {
                let keys = several.split(',').map(|by| comparable(cx, &item, Some(&cx.heap.text(by)?), case));
                let keys = keys.collect::<Step<_>>()?;
                cx.heap.list(keys)?
            }
            by => comparable(cx, &item, by.as_ref(), case)?,
        };
        keyed.push((key, item));
    }
    sort_by_keys(cx, &mut keyed, reverse)?;
    cx.heap.list(keyed.into_iter().map(|(_, item)| item).collect())
}

pub fn dictsort<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [case, by, reverse] = given.by_name(["case_sensitive", "by", "reverse"])?;
    let by = match by.as_ref().map_or(Some("key"), Value::as_text) {
        Some("key") => Value::Int(0),
        Some("value") => Value::Int(1),
        _ => return fail("by: expected key or value"),
    };
    let pairs = items(cx, value, Bound::default())?;
    let mut keyed = Vec::new();
    for pair in cx.heap.items(&pairs)?.to_vec() {
        keyed.push((comparable(cx, &pair, Some(&by), is_true(case.as_ref()))?, pair));
    }
    sort_by_keys(cx, &mut keyed, is_true(reverse.as_ref()))?;
    cx.heap.list(keyed.into_iter().map(|(_, pair)| pair).collect())
}

pub fn groupby<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [attribute, default, case] = given.by_name(["attribute", "default", "case_sensitive"])?;
    let (Some(attribute), case) = (attribute, is_true(case.as_ref())) else { return fail("expected an attribute") };
    let mut keyed = Vec::new();
    for item in cx.heap.items(&value)?.to_vec() {
        let found = match at(cx, &item, &attribute)? {
            Value::Undefined(_) if default.is_some() => default.clone().unwrap_or(Value::None),
            found => found,
        };
        keyed.push((comparable(cx, &found, None, case)?, cx.heap.tuple(vec![found, item])?));
    }
    sort_by_keys(cx, &mut keyed, false)?;
    let mut groups: Vec<(Value<'a>, Value<'a>, Rc<List<'a>>)> = Vec::new();
    for (key, pair) in keyed {
        let pair = cx.heap.items(&pair)?;
        let (Some(found), Some(item)) = (pair.get(0), pair.get(1)) else { continue };
        match groups.last() {
            Some((last, _, group)) if last.equals(&key, cx.budget())? => cx.heap.push(group, item)?,
            _ => groups.push((key, found, cx.heap.shared(vec![item], false)?)),
        }
    }
    let groups = groups.into_iter().map(|(_, found, group)| cx.heap.tuple(vec![found, Value::List(group)]));
    cx.heap.list(groups.collect::<Step<_>>()?)
}

pub fn unique<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [case, attribute] = given.by_name(["case_sensitive", "attribute"])?;
    let seen = cx.heap.dict([])?;
    let mut kept = Vec::new();
    for item in cx.heap.items(&value)?.to_vec() {
        let key = comparable(cx, &item, attribute.as_ref(), is_true(case.as_ref()))?;
        if seen.get(&key).is_none() {
            seen.insert(key, Value::None, cx.budget())?;
            kept.push(item);
        }
    }
    cx.heap.list(kept)
}

pub fn min<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    extreme(cx, &value, given, Ordering::Less)
}

pub fn max<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    extreme(cx, &value, given, Ordering::Greater)
}

fn extreme<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>, given: Bound<'a>, wanted: Ordering) -> Step<Value<'a>> {
    let [case, attribute] = given.by_name(["case_sensitive", "attribute"])?;
    let mut best: Option<(Value<'a>, Value<'a>)> = None;
    let items = cx.heap.items(value)?;
    for item in (0..).map_while(|i| items.get(i)) {
        let key = comparable(cx, &item, attribute.as_ref(), is_true(case.as_ref()))?;
        let better = match &best {
            Some((best, _)) => key.compare(best, cx.budget())? == wanted,
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(Value::undefined(NOTHING), |(_, item)| item))
}

pub fn sum<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [attribute, start] = given.by_name(["attribute", "start"])?;
    let items = cx.heap.items(&value)?;
    let mut sum = start.unwrap_or(Value::Int(0));
    for item in (0..).map_while(|i| items.get(i)) {
        let item = match attribute.as_ref().filter(|a| !matches!(a, Value::None)) {
            Some(by) => at(cx, &item, by)?,
            None => item,
        };
        sum = super::super::operators::apply(super::super::syntax::Operator::Add, &sum, &item, &cx.heap)?;
    }
    Ok(sum)
}

pub fn join<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [glue, attribute] = given.by_name(["d", "attribute"])?;
    let glue = glue.map_or(Ok(String::new()), |glue| printed(&glue, cx.budget()))?;
    let items = cx.heap.items(&value)?;
    let mut out = String::new();
    for (i, item) in (0..).map_while(|i| Some((i, items.get(i)?))) {
        if i > 0 {
            cx.budget().take(glue.len())?;
            out.push_str(&glue);
        }
        match &attribute {
            Some(by) => print(&at(cx, &item, by)?, &mut out, cx.budget())?,
            None => print(&item, &mut out, cx.budget())?,
        }
    }
    cx.heap.text(out)
}

pub fn batch<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [count, fill] = given.by_name(["linecount", "fill_with"])?;
    let count = size_of(count.as_ref(), 0)?;
    let items = cx.heap.items(&value)?.to_vec();
    if count == 0 {
        return fail("expected how many items a row has");
    }
    let mut rows = Vec::new();
    for row in items.chunks(count) {
        let mut row = row.to_vec();
        if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Value::None)) {
            cx.budget().take((count - row.len()).saturating_mul(32))?;
            row.resize(count, fill.clone());
        }
        rows.push(cx.heap.list(row)?);
    }
    cx.heap.list(rows)
}

pub fn slice<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [slices, fill] = given.by_name(["slices", "fill_with"])?;
    let slices = size_of(slices.as_ref(), 0)?;
    let items = cx.heap.items(&value)?.to_vec();
    if slices == 0 {
        return fail("expected how many columns there are");
    }
    cx.budget().take(slices.saturating_mul(32))?;
    let (each, longer) = (items.len() / slices, items.len() % slices);
    let mut rest = items.into_iter();
    let mut columns = Vec::new();
    for i in 0..slices {
        let mut column: Vec<_> = rest.by_ref().take(each + usize::from(i < longer)).collect();
        if i >= longer && longer > 0 {
            column.extend(fill.clone().filter(|fill| !matches!(fill, Value::None)));
        }
        columns.push(cx.heap.list(column)?);
    }
    cx.heap.list(columns)
}

pub fn attr<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [name] = given.by_name(["name"])?;
    let Some(Value::Text(name)) = name else { return fail("expected a name") };
    match &value {
        // The items of a mapping are not its attributes.
        Value::Dict(_) if methods::find(&value, &name).is_none() => Ok(Value::Undefined(name)),
        value => cx.attribute(value, &name),
    }
}

pub fn map<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, mut given: Bound<'a>) -> Step<Value<'a>> {
    let named = |name: &str, given: &Bound<'a>| given.named.iter().find(|(n, _)| **n == *name).map(|(_, v)| v.clone());
    let items = candidates(cx, &value)?;
    let mut out = Vec::new();
    if given.positional.is_empty() {
        let (attribute, default) = (named("attribute", &given), named("default", &given));
        let Some(attribute) = attribute else { return fail("expected a filter or an attribute") };
        for item in (0..).map_while(|i| items.get(i)) {
            out.push(match (at(cx, &item, &attribute)?, &default) {
                (Value::Undefined(_), Some(default)) => default.clone(),
                (found, _) => found,
            });
        }
        return cx.heap.list(out);
    }
    let Value::Text(name) = given.positional.remove(0) else { return fail("expected a filter's name") };
    for item in (0..).map_while(|i| items.get(i)) {
        let given = Bound { positional: given.positional.clone(), named: given.named.clone() };
        out.push(super::apply(cx, &name, item, given)?);
    }
    cx.heap.list(out)
}

pub fn select<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    chosen(cx, &value, given.positional, None, true)
}

pub fn reject<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    chosen(cx, &value, given.positional, None, false)
}

pub fn selectattr<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    with_attribute(cx, &value, given, true)
}

pub fn rejectattr<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    with_attribute(cx, &value, given, false)
}

fn with_attribute<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>, given: Bound<'a>, wanted: bool) -> Step<Value<'a>> {
    let mut arguments = given.positional;
    if arguments.is_empty() {
        return fail("expected an attribute");
    }
    let attribute = arguments.remove(0);
    chosen(cx, value, arguments, Some(&attribute), wanted)
}

/// The items that pass a test, or whose attribute does; without a test, those that are true.
fn chosen<'a>(
    cx: &Renderer<'a, '_>,
    value: &Value<'a>,
    mut arguments: Vec<Value<'a>>,
    attribute: Option<&Value<'a>>,
    wanted: bool,
) -> Step<Value<'a>> {
    let test: Option<Text<'a>> = match arguments.first() {
        Some(Value::Text(name)) => Some(name.clone()),
        Some(other) => return fail(format!("expected a test's name, found {}", other.kind())),
        None => None,
    };
    arguments.drain(..usize::from(test.is_some()));
    let items = candidates(cx, value)?;
    let mut out = Vec::new();
    for item in (0..).map_while(|i| items.get(i)) {
        let tested = attribute.map_or_else(|| Ok(item.clone()), |by| at(cx, &item, by))?;
        let passes = match &test {
            Some(test) => predicates::test(cx, test, &tested, &arguments)?,
            None => tested.is_true(),
        };
        if passes == wanted {
            out.push(item);
        }
    }
    cx.heap.list(out)
}

impl Renderer<'_, '_> {
    /// A number below `below` that looks random. It depends only on the instance and on how many were asked for before: the
    /// stages of a boot render a template anew, and must get the same text.
    fn random(&self, below: usize) -> Step<usize> {
        let mut hasher = DefaultHasher::new();
        let id = self.variable("instance_id", &Default::default())?;
        printed(&id, self.budget())?.hash(&mut hasher);
        let count = self.randoms.get();
        self.randoms.set(count + 1);
        count.hash(&mut hasher);
        Ok(usize::try_from(hasher.finish() % below.max(1) as u64).unwrap_or(0))
    }
}
