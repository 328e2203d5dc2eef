//! Python's two ways to format: `'%05.1f' % x` and `'{:>5}'.format(x)`.

use super::budget::{Budget, Step, fail};
use super::print::{float, printed, represented};
use super::value::Value;

/// The widest field and the most digits.
const MAX_WIDTH: usize = 10_000;

/// How a field is written.
#[derive(Debug, Default, Clone)]
struct Field {
    fill: Option<char>,
    /// `<`, `>`, `^` or `=`.
    align: Option<char>,
    /// `+`, a space, or nothing.
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    separator: Option<char>,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `pattern % arguments`; a single mapping is for `%(name)s`. `spare`: arguments may stay unused.
///
/// # Errors
/// A pattern that is not valid, or does not fit the arguments.
pub fn percent(pattern: &str, arguments: &[Value<'_>], spare: bool, budget: &Budget<'_>) -> Step<String> {
    let mut out = String::new();
    let mut next = arguments.iter();
    let mut named = false;
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        push(&mut out, before, budget)?;
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            push(&mut out, "%", budget)?;
            rest = after;
            continue;
        }
        let mut value = None;
        if let Some(after) = rest.strip_prefix('(') {
            let Some((name, after)) = after.split_once(')') else { return fail("%( without its )") };
            let Some(Value::Dict(dict)) = arguments.first() else { return fail("%(name): expected a mapping") };
            value = dict.get_text(name);
            if value.is_none() {
                return fail(format!("%({name}): there is no such key"));
            }
            named = true;
            rest = after;
        }
        let mut field = Field::default();
        rest = percent_flags(rest, &mut field);
        let mut number = |rest: &mut &str| -> Step<Option<usize>> {
            if let Some(after) = rest.strip_prefix('*') {
                *rest = after;
                let width = next.next().and_then(Value::as_int).and_then(|w| usize::try_from(w).ok());
                return width.map_or_else(|| fail("%*: expected a width"), |w| Ok(Some(w)));
            }
            take_number(rest)
        };
        field.width = number(&mut rest)?.unwrap_or(0);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            field.precision = Some(number(&mut rest)?.unwrap_or(0));
        }
        rest = rest.trim_start_matches(['l', 'h', 'L']);
        let Some(kind) = rest.chars().next() else { return fail("a % at the end") };
        rest = rest.get(kind.len_utf8()..).unwrap_or_default();
        let Some(value) = value.as_ref().or_else(|| next.next()) else { return fail("too few values for a format") };
        push(&mut out, &percent_field(kind, field, value, budget)?, budget)?;
    }
    if next.next().is_some() && !named && !spare {
        return fail("too many values for a format");
    }
    push(&mut out, rest, budget)?;
    Ok(out)
}

fn percent_flags<'t>(mut rest: &'t str, field: &mut Field) -> &'t str {
    loop {
        match rest.chars().next() {
            Some('-') => field.align = Some('<'),
            Some('0') => field.zero = true,
            Some('#') => field.alternate = true,
            Some('+') => field.sign = Some('+'),
            Some(' ') if field.sign.is_none() => field.sign = Some(' '),
            Some(' ') => {}
            _ => return rest,
        }
        rest = rest.get(1..).unwrap_or_default();
    }
}

fn percent_field(kind: char, mut field: Field, value: &Value<'_>, budget: &Budget<'_>) -> Step<String> {
    let text = |text: String, mut field: Field| {
        field.zero = false;
        field.align = field.align.or(Some('>'));
        field.kind = None;
        pad(&cut(&text, field.precision), "", &field)
    };
    field.kind = Some(kind);
    match kind {
        's' => text(printed(value, budget)?, field),
        'r' | 'a' => text(represented(value, budget)?, field),
        'c' => match value {
            Value::Int(i) => match u32::try_from(*i).ok().and_then(char::from_u32) {
                Some(c) => text(c.to_string(), field),
                None => fail("%c: not a character's code"),
            },
            other => text(printed(other, budget)?, field),
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            field.kind = Some(if "iu".contains(kind) { 'd' } else { kind });
            let truncated = match value {
                Value::Float(f) if kind != 'x' && kind != 'X' && kind != 'o' && f.is_finite() => Value::Int(*f as i64),
                other => other.clone(),
            };
            // A precision of an integer is its least number of digits.
            let least = field.precision.take().unwrap_or(0);
            number(&truncated, &field, least)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => number(value, &field, 0),
        _ => fail("a format that Python does not have"),
    }
}

/// `pattern.format(…)`. Fields name an argument by its position or name, and their values' items and attributes.
///
/// # Errors
/// A pattern that is not valid, or does not fit the arguments.
pub fn braces<'a>(
    pattern: &str,
    positional: &[Value<'a>],
    find: &dyn Fn(Option<&Value<'a>>, &str) -> Step<Value<'a>>,
    budget: &Budget<'_>,
) -> Step<String> {
    let mut out = String::new();
    let mut automatic = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        push(&mut out, rest.get(..at).unwrap_or_default(), budget)?;
        let sign = rest.get(at..at + 1).unwrap_or_default();
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix(sign) {
            push(&mut out, sign, budget)?;
            rest = after;
            continue;
        }
        let Some((inside, after)) = rest.split_once('}').filter(|_| sign == "{") else {
            return fail("a single { or } in a format");
        };
        rest = after;
        let (name, field) = inside.split_once(':').unwrap_or((inside, ""));
        if field.contains('{') {
            return fail("a format inside of a format");
        }
        let (name, conversion) = name.split_once('!').unwrap_or((name, ""));
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, path) = name.split_at(end);
        let position = if first.is_empty() { Some(automatic) } else { first.parse::<usize>().ok() };
        automatic += usize::from(first.is_empty());
        let mut value = match position {
            Some(i) => positional.get(i).cloned().map_or_else(|| fail("too few values for a format"), Ok)?,
            None => find(None, first)?,
        };
        for step in path.split(['.', '[']).skip(1) {
            value = find(Some(&value), step.trim_end_matches(']'))?;
        }
        let text = match conversion {
            "r" | "a" => Some(represented(&value, budget)?),
            "s" => Some(printed(&value, budget)?),
            _ => None,
        };
        push(&mut out, &field_of(field, &value, text, budget)?, budget)?;
    }
    push(&mut out, rest, budget)?;
    Ok(out)
}

/// `[[fill]align][sign][#][0][width][,][.precision][type]`
fn field_of(spec: &str, value: &Value<'_>, text: Option<String>, budget: &Budget<'_>) -> Step<String> {
    let mut field = Field::default();
    let mut characters = spec.chars();
    let (first, second) = (characters.next(), characters.next());
    let is_align = |c: Option<char>| c.is_some_and(|c| "<>^=".contains(c));
    let mut rest = spec;
    let skip = |bytes: usize, rest: &mut &str| *rest = rest.get(bytes..).unwrap_or_default();
    if is_align(second) {
        (field.fill, field.align) = (first, second);
        skip(first.map_or(0, char::len_utf8) + 1, &mut rest);
    } else if is_align(first) {
        field.align = first;
        skip(1, &mut rest);
    }
    if let Some(sign) = rest.chars().next().filter(|c| "+- ".contains(*c)) {
        field.sign = Some(sign).filter(|c| *c != '-');
        skip(1, &mut rest);
    }
    if rest.starts_with('#') {
        field.alternate = true;
        skip(1, &mut rest);
    }
    if rest.starts_with('0') {
        field.zero = true;
        skip(1, &mut rest);
    }
    field.width = take_number(&mut rest)?.unwrap_or(0);
    if let Some(separator) = rest.chars().next().filter(|c| ",_".contains(*c)) {
        field.separator = Some(separator);
        skip(1, &mut rest);
    }
    if let Some(after) = rest.strip_prefix('.') {
        rest = after;
        field.precision = take_number(&mut rest)?;
    }
    field.kind = rest.chars().next();
    if rest.len() > 1 {
        return fail("a format that Python does not have");
    }
    match (&text, value.as_float()) {
        (None, Some(_)) if field.kind != Some('s') && !matches!(value, Value::Bool(_) if spec.is_empty()) => {
            number(value, &field, 0)
        }
        _ if field.kind.is_none_or(|k| k == 's') => {
            let text = text.map_or_else(|| printed(value, budget), Ok)?;
            field.align = field.align.or(Some('<'));
            field.kind = None;
            pad(&cut(&text, field.precision), "", &field)
        }
        _ => fail(format!("{} does not have this format", value.kind())),
    }
}

/// A number's digits with its sign, padded.
fn number(value: &Value<'_>, field: &Field, least: usize) -> Step<String> {
    let precision = field.precision.unwrap_or(6).min(MAX_WIDTH);
    let (negative, digits) = match (value.as_int(), value.as_float(), field.kind) {
        (Some(i), _, None | Some('d')) => (i < 0, i.unsigned_abs().to_string()),
        (Some(i), _, Some('x')) => (i < 0, format!("{:x}", i.unsigned_abs())),
        (Some(i), _, Some('X')) => (i < 0, format!("{:X}", i.unsigned_abs())),
        (Some(i), _, Some('o')) => (i < 0, format!("{:o}", i.unsigned_abs())),
        (Some(i), _, Some('b')) => (i < 0, format!("{:b}", i.unsigned_abs())),
        (_, Some(f), None) if field.precision.is_none() => (f.is_sign_negative(), float(f.abs())),
        (_, Some(f), Some('f' | 'F')) => (f.is_sign_negative(), format!("{:.precision$}", f.abs())),
        (_, Some(f), Some('%')) => (f.is_sign_negative(), format!("{:.precision$}%", f.abs() * 100.0)),
        (_, Some(f), Some('e')) => (f.is_sign_negative(), exponent(f.abs(), precision)),
        (_, Some(f), Some('E')) => (f.is_sign_negative(), exponent(f.abs(), precision).to_uppercase()),
        (_, Some(f), None | Some('g')) => (f.is_sign_negative(), general(f.abs(), precision)),
        (_, Some(f), Some('G')) => (f.is_sign_negative(), general(f.abs(), precision).to_uppercase()),
        _ => return fail(format!("{} does not have this format", value.kind())),
    };
    let mut digits = format!("{digits:0>width$}", width = least.min(MAX_WIDTH));
    if let Some(separator) = field.separator {
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        (1..end).rev().filter(|i| (end - i) % 3 == 0).for_each(|i| digits.insert(i, separator));
    }
    let prefix = match (field.alternate, field.kind) {
        (true, Some('x')) => "0x",
        (true, Some('X')) => "0X",
        (true, Some('o')) => "0o",
        (true, Some('b')) => "0b",
        _ => "",
    };
    let sign = if negative { "-".to_owned() } else { field.sign.map(String::from).unwrap_or_default() };
    pad(&digits, &(sign + prefix), field)
}

/// C's `%e`: an exponent of two digits at least.
fn exponent(f: f64, precision: usize) -> String {
    let text = format!("{f:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// C's `%g`.
fn general(f: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let scientific = exponent(f, precision - 1);
    let power: i64 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let digits = i64::try_from(precision).unwrap_or(i64::MAX);
    if power < -4 || power >= digits {
        return match scientific.split_once('e') {
            Some((mantissa, exponent)) => format!("{}e{exponent}", trim(mantissa)),
            None => scientific,
        };
    }
    let decimals = usize::try_from(digits - 1 - power).unwrap_or(0);
    trim(&format!("{f:.decimals$}"))
}

fn pad(body: &str, sign: &str, field: &Field) -> Step<String> {
    if field.width > MAX_WIDTH {
        return fail(format!("a field wider than {MAX_WIDTH}"));
    }
    let missing = field.width.saturating_sub(body.chars().count() + sign.chars().count());
    let align = match field.align {
        Some(align) => align,
        None if field.zero => '=',
        None => '>',
    };
    let fill = field.fill.unwrap_or(if field.zero && align != '<' { '0' } else { ' ' });
    let run = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(match align {
        '<' => format!("{sign}{body}{}", run(missing)),
        '^' => format!("{}{sign}{body}{}", run(missing / 2), run(missing - missing / 2)),
        '=' => format!("{sign}{}{body}", run(missing)),
        _ => format!("{}{sign}{body}", run(missing)),
    })
}

fn cut(text: &str, precision: Option<usize>) -> String {
    precision.map_or_else(|| text.to_owned(), |n| text.chars().take(n).collect())
}

fn take_number(rest: &mut &str) -> Step<Option<usize>> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    match digits.parse() {
        Ok(n) if n <= MAX_WIDTH => Ok(Some(n)),
        Err(_) if digits.is_empty() => Ok(None),
        _ => fail(format!("a field wider than {MAX_WIDTH}")),
    }
}

fn push(out: &mut String, text: &str, budget: &Budget<'_>) -> Step<()> {
    budget.take(text.len())?;
    out.push_str(text);
    Ok(())
}
