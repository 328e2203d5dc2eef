//! Filters for texts.

use super::super::budget::{Budget, Step, fail};
use super::super::call::Bound;
use super::super::methods;
use super::super::print::{printed, represented, to_json};
use super::super::render::Renderer;
use super::super::value::Value;
use super::{is_true, size_of};
use crate::base::percent;

/// The widest that a text is padded or indented to.
const MAX_WIDTH: usize = 10_000;

pub fn string<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    match value {
        Value::Text(_) => Ok(value),
        other => cx.heap.text(printed(&other, cx.budget())?),
    }
}

fn with<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>, change: impl Fn(&str) -> String) -> Step<Value<'a>> {
    let text = printed(value, cx.budget())?;
    cx.budget().take(text.len())?;
    cx.heap.text(change(&text))
}

pub fn lower<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    with(cx, &value, str::to_lowercase)
}

pub fn upper<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    with(cx, &value, str::to_uppercase)
}

pub fn capitalized<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    with(cx, &value, capitalize)
}

/// The first character in upper case, the rest in lower case.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect()).unwrap_or_default()
}

pub fn title<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let begins = |c: char| c.is_whitespace() || "-({[<".contains(c);
    with(cx, &value, |text| text.split_inclusive(begins).map(capitalize).collect())
}

pub fn trim<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [chars] = given.by_name(["chars"])?;
    let chars = chars.as_ref().and_then(Value::as_text);
    cx.budget().read(value.as_text().map_or(0, str::len).saturating_mul(chars.map_or(0, str::len)))?;
    with(cx, &value, |text| match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => text.trim().to_owned(),
    })
}

pub fn replaced<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [old, new, count] = given.by_name(["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else { return fail("expected two texts") };
    let (old, new) = (printed(&old, cx.budget())?, printed(&new, cx.budget())?);
    let count = count.and_then(|c| c.as_int()).unwrap_or(-1);
    let text = printed(&value, cx.budget())?;
    cx.heap.text(methods::replace(&text, &old, &new, count, cx.budget())?)
}

/// A text's lines (Python's `splitlines`), with their line ends if `keep` is set.
pub fn split_lines<'t>(text: &'t str, keep: bool, budget: &Budget<'_>) -> Step<Vec<&'t str>> {
    let is_end = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    budget.take(text.matches(is_end).count().saturating_mul(methods::PIECE))?;
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(is_end).unwrap_or(rest.len());
        let end = rest.get(at..).unwrap_or_default();
        let width = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(0, char::len_utf8) };
        lines.push(rest.get(..if keep { at + width } else { at }).unwrap_or_default());
        rest = rest.get(at + width..).unwrap_or_default();
    }
    Ok(lines)
}

pub fn indent<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [width, first, blank] = given.by_name(["width", "first", "blank"])?;
    let indentation = match &width {
        Some(Value::Text(text)) => text.to_string(),
        width => " ".repeat(size_of(width.as_ref(), 4)?.min(MAX_WIDTH)),
    };
    let mut text = printed(&value, cx.budget())?;
    text.push('\n');
    let (first, blank) = (is_true(first.as_ref()), is_true(blank.as_ref()));
    let lines = split_lines(&text, false, cx.budget())?;
    let mut out = String::new();
    for (i, line) in lines.into_iter().enumerate() {
        let indented = if i == 0 { first } else { blank || !line.is_empty() };
        cx.budget().take(line.len() + 1 + if indented { indentation.len() } else { 0 })?;
        out.push_str(if i > 0 { "\n" } else { "" });
        out.push_str(if indented { &indentation } else { "" });
        out.push_str(line);
    }
    cx.heap.text(out)
}

pub fn center<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [width] = given.by_name(["width"])?;
    let width = Value::Int(size_of(width.as_ref(), 80)?.min(MAX_WIDTH) as i64);
    let text = string(cx, value, Bound::default())?;
    methods::call(cx, &text, "center", Bound { positional: vec![width], ..Bound::default() })
}

pub fn truncate<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [length, killwords, end, leeway] = given.by_name(["length", "killwords", "end", "leeway"])?;
    let (length, leeway) = (size_of(length.as_ref(), 255)?, size_of(leeway.as_ref(), 5)?);
    let end = end.map_or(Ok("...".to_owned()), |end| printed(&end, cx.budget()))?;
    let width = end.chars().count();
    if length < width {
        return fail("the length is less than that of the end");
    }
    let text = printed(&value, cx.budget())?;
    if value.len().is_some_and(|n| n <= length.saturating_add(leeway)) {
        return Ok(value);
    }
    let cut: String = text.chars().take(length - width).collect();
    let cut = match cut.rsplit_once(' ') {
        Some((words, _)) if !is_true(killwords.as_ref()) => words.to_owned(),
        _ => cut,
    };
    cx.heap.text(cut + &end)
}

pub fn wordcount<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let text = printed(&value, cx.budget())?;
    let words = text.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| !word.is_empty());
    Ok(Value::Int(i64::try_from(words.count()).unwrap_or(i64::MAX)))
}

pub fn wordwrap<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [width, long, glue, _] = given.by_name(["width", "break_long_words", "wrapstring", "break_on_hyphens"])?;
    let width = size_of(width.as_ref(), 79)?.max(1);
    let glue = glue.map_or(Ok("\n".to_owned()), |glue| printed(&glue, cx.budget()))?;
    let text = printed(&value, cx.budget())?;
    let breaks = long.is_none_or(|long| long.is_true());
    let mut out = String::new();
    for (i, line) in split_lines(&text, false, cx.budget())?.into_iter().enumerate() {
        cx.budget().take(glue.len())?;
        out.push_str(if i > 0 { &glue } else { "" });
        let mut column = 0;
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let mut word = word;
            let mut length = word.chars().count();
            cx.budget().take(word.len() + glue.len() + 1)?;
            if column > 0 && column + 1 + length <= width {
                out.push(' ');
                column += 1;
            } else if column > 0 {
                out.push_str(&glue);
                column = 0;
            }
            while breaks && length > width {
                let at = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
                let (now, later) = word.split_at(at);
                cx.budget().take(glue.len())?;
                out.push_str(now);
                out.push_str(&glue);
                (word, length) = (later, length - width);
            }
            out.push_str(word);
            column += length;
        }
    }
    cx.heap.text(out)
}

pub fn escape<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let text = printed(&value, cx.budget())?;
    cx.budget().take(text.len() * 5)?;
    cx.heap.text(escaped(&text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

pub fn striptags<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    with(cx, &value, |text| {
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let end = if after.starts_with("!--") { "-->" } else { ">" };
            let Some((_, after)) = after.split_once(end) else { break };
            plain.push_str(before);
            rest = after;
        }
        plain.push_str(rest);
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        let entities =
            [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", "\""), ("&quot;", "\""), ("&amp;", "&")];
        entities.iter().fold(plain, |text, (entity, sign)| text.replace(entity, sign))
    })
}

pub fn xmlattr<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [space] = given.by_name(["autospace"])?;
    let Value::Dict(dict) = &value else { return fail(format!("expected a mapping, found {}", value.kind())) };
    let mut out = String::new();
    cx.budget().step(dict.len())?;
    for (key, value) in dict.entries() {
        if matches!(value, Value::None | Value::Undefined(_)) {
            continue;
        }
        let (key, value) = (printed(&key, cx.budget())?, printed(&value, cx.budget())?);
        if key.contains(|c: char| c.is_whitespace() || "/>=".contains(c)) {
            return fail("a character that an attribute's name cannot have");
        }
        cx.budget().take((key.len() + value.len()) * 5)?;
        out.push_str(if out.is_empty() && space.as_ref().is_some_and(|s| !s.is_true()) { "" } else { " " });
        out.push_str(&format!("{}=\"{}\"", escaped(&key), escaped(&value)));
    }
    cx.heap.text(out)
}

pub fn urlencode<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    let quote = |value: &Value<'a>, escaped| -> Step<String> {
        let text = printed(value, cx.budget())?;
        cx.budget().take(text.len() * 3)?;
        Ok(percent::encode(&text, escaped))
    };
    let pairs = match &value {
        Value::Dict(_) => items(cx, &value)?,
        Value::List(list) => list.clone(),
        Value::Undefined(_) => return Ok(Value::borrowed("")),
        other => return cx.heap.text(quote(other, percent::PATH)?),
    };
    let mut out = String::new();
    for pair in (0..).map_while(|i| pairs.get(i)) {
        let pair = cx.heap.items(&pair)?;
        let (Some(key), Some(value), 2) = (pair.get(0), pair.get(1), pair.len()) else { return fail("expected pairs") };
        let field = |value: &Value<'a>| quote(value, percent::ALL).map(|text| text.replace("%20", "+"));
        out.push_str(if out.is_empty() { "" } else { "&" });
        out.push_str(&field(&key)?);
        out.push('=');
        out.push_str(&field(&value)?);
    }
    cx.heap.text(out)
}

fn items<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>) -> Step<std::rc::Rc<super::super::value::List<'a>>> {
    let pairs = super::sequence::items(cx, value.clone(), Bound::default())?;
    cx.heap.items(&pairs)
}

pub fn format<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let pattern = printed(&value, cx.budget())?;
    let arguments = if given.named.is_empty() {
        given.positional
    } else {
        let named = given.named.into_iter().map(|(name, value)| (Value::Text(name), value));
        vec![Value::Dict(cx.heap.dict(named)?)]
    };
    cx.heap.text(super::super::format::percent(&pattern, &arguments, false, cx.budget())?)
}

pub fn pprint<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    cx.heap.text(represented(&value, cx.budget())?)
}

pub fn tojson<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [indent] = given.by_name(["indent"])?;
    let indent = indent.filter(|i| !matches!(i, Value::None)).map(|i| size_of(Some(&i), 0)).transpose()?;
    cx.heap.text(to_json(&value, indent, cx.budget())?)
}
