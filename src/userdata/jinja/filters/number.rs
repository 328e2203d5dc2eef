//! Filters for numbers.

use super::super::budget::{Step, fail};
use super::super::call::Bound;
use super::super::render::Renderer;
use super::super::value::Value;
use super::{int_of, is_true};

pub fn abs<'a>(_: &Renderer<'a, '_>, value: Value<'a>, _: Bound<'a>) -> Step<Value<'a>> {
    match (value.as_int(), value.as_float()) {
        (Some(i), _) => i.checked_abs().map_or_else(|| fail("a number out of range"), |i| Ok(Value::Int(i))),
        (_, Some(f)) => Ok(Value::Float(f.abs())),
        _ => fail(format!("expected a number, found {}", value.kind())),
    }
}

pub fn int<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [default, base] = given.by_name(["default", "base"])?;
    let base = int_of(base.as_ref(), 10)?;
    if let Value::Undefined(name) = &value {
        return fail(format!("{} is undefined", &**name));
    }
    let parsed = match &value {
        Value::Text(text) => {
            cx.budget().read(text.len())?;
            parse(text, base)
        }
        other => other.as_int(),
    };
    let truncated = float_of(cx, &value)?.and_then(whole);
    Ok(parsed.or(truncated).map_or_else(|| default.unwrap_or(Value::Int(0)), Value::Int))
}

/// A float without its fraction, if that fits an integer.
fn whole(f: f64) -> Option<i64> {
    (f.is_finite() && f.abs() < 9e18).then_some(f as i64)
}

/// Python's `int(text, base)`.
fn parse(text: &str, base: i64) -> Option<i64> {
    let text = text.trim().to_lowercase();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefix = prefixes.iter().find(|(prefix, radix)| digits.starts_with(prefix) && (base == 0 || base == *radix));
    let radix = prefix.map_or(if base == 0 { 10 } else { base }, |(_, radix)| *radix);
    let digits = prefix.and_then(|(prefix, _)| digits.strip_prefix(prefix)).unwrap_or(digits);
    let radix = u32::try_from(radix).ok().filter(|r| (2..=36).contains(r))?;
    let underscores = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if underscores || digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), radix).ok()
}

/// The number that a value is, or that its text is one.
fn float_of<'a>(cx: &Renderer<'a, '_>, value: &Value<'a>) -> Step<Option<f64>> {
    let Value::Text(text) = value else { return Ok(value.as_float()) };
    cx.budget().read(text.len())?;
    Ok(text.trim().replace('_', "").parse().ok())
}

pub fn float<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [default] = given.by_name(["default"])?;
    if let Value::Undefined(name) = &value {
        return fail(format!("{} is undefined", &**name));
    }
    Ok(float_of(cx, &value)?.map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
}

pub fn round<'a>(_: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [precision, method] = given.by_name(["precision", "method"])?;
    let precision = int_of(precision.as_ref(), 0)?.clamp(-30, 30) as i32;
    let method = method.as_ref().map_or(Some("common"), Value::as_text);
    let Some(number) = value.as_float() else { return fail(format!("expected a number, found {}", value.kind())) };
    let scale = 10f64.powi(precision);
    Ok(match (method, value.as_int()) {
        (Some("common"), Some(i)) if precision >= 0 => Value::Int(i),
        (Some("common"), Some(i)) => {
            let unit = 10i128.pow(precision.unsigned_abs());
            let (floor, rest) = (i128::from(i).div_euclid(unit), i128::from(i).rem_euclid(unit));
            let up = rest * 2 > unit || (rest * 2 == unit && floor % 2 != 0);
            let rounded = (floor + i128::from(up)) * unit;
            i64::try_from(rounded).map_or_else(|_| fail("a number out of range"), |i| Ok(Value::Int(i)))?
        }
        (Some("common"), None) if precision >= 0 => {
            let digits = precision.unsigned_abs() as usize;
            Value::Float(format!("{number:.digits$}").parse().unwrap_or(number))
        }
        (Some("common"), None) => Value::Float((number * scale).round_ties_even() / scale),
        (Some("ceil"), _) => Value::Float((number * scale).ceil() / scale),
        (Some("floor"), _) => Value::Float((number * scale).floor() / scale),
        _ => return fail("method: expected common, ceil or floor"),
    })
}

pub fn filesizeformat<'a>(cx: &Renderer<'a, '_>, value: Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
    let [binary] = given.by_name(["binary"])?;
    let Some(bytes) = float_of(cx, &value)?.filter(|f| f.is_finite()) else { return fail("expected a number") };
    let (base, units) = match is_true(binary.as_ref()) {
        true => (1024f64, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]),
        false => (1000f64, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]),
    };
    if bytes == 1.0 {
        return Ok(Value::borrowed("1 Byte"));
    }
    if bytes < base {
        return cx.heap.text(format!("{} Bytes", bytes.trunc()));
    }
    let mut amount = bytes / base;
    let mut unit = 0;
    while amount >= base && unit + 1 < units.len() {
        amount /= base;
        unit += 1;
    }
    cx.heap.text(format!("{amount:.1} {}", units.get(unit).copied().unwrap_or_default()))
}
