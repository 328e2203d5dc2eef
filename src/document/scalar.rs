//! YAML 1.1's plain scalars, by the patterns of PyYAML's resolver (YAML 1.1 type repository: bool, float,
//! int, null), and floats as text.

use super::Value;

/// The value of a plain scalar; None if it is a string, as timestamps are.
pub fn typed(text: &str) -> Option<Value> {
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Some(Value::Null);
    }
    if let Some(b) = boolean(text) {
        return Some(Value::Bool(b));
    }
    // Long texts are rarely numbers, and are not copied to find out.
    let of_number = |b: u8| b.is_ascii_hexdigit() || b"+-._:xiInN".contains(&b);
    if !text.bytes().all(of_number) {
        return None;
    }
    integer(text).or_else(|| float(text).map(Value::Float))
}

/// yes, no, true, false, on, off in lower, Title or UPPER case.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Binary, octal (a leading 0), hexadecimal, decimal and sexagesimal integers, with `_` between digits.
/// Beyond 127 bits only decimal ones; others stay strings.
pub fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = signed(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let clean: String = digits.chars().filter(|c| *c != '_').collect();
    let parse = |digits: &str, radix| (!digits.is_empty()).then(|| i128::from_str_radix(digits, radix).ok()).flatten();
    let sign = if negative { "-" } else { "" };
    let magnitude = if let Some(binary) = clean.strip_prefix("0b") {
        parse(binary, 2)?
    } else if let Some(hex) = clean.strip_prefix("0x") {
        parse(hex, 16)?
    } else if let Some((_, seconds)) = digits.split_once(':') {
        if digits.starts_with('0') || seconds.contains('_') {
            return None;
        }
        sexagesimal(&clean)?
    } else if clean.len() > 1 && clean.starts_with('0') {
        parse(&clean, 8)?
    } else {
        return digits_only(&clean).then(|| decimal(format!("{sign}{clean}")));
    };
    Some(decimal(format!("{sign}{magnitude}")))
}

/// The integer of decimal digits, optionally with a leading `-`.
pub fn decimal(digits: String) -> Value {
    digits.parse().map_or_else(|_| Value::Big(digits.into()), Value::Int)
}

fn sexagesimal(text: &str) -> Option<i128> {
    let mut parts = text.split(':');
    let mut value: i128 = parts.next()?.parse().ok()?;
    for part in parts {
        if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let part: i128 = part.parse().ok().filter(|p| *p < 60)?;
        value = value.checked_mul(60)?.checked_add(part)?;
    }
    Some(value)
}

/// Decimal floats with a point (an exponent needs its sign), sexagesimal floats, `.inf` and `.nan`.
pub fn float(text: &str) -> Option<f64> {
    let (negative, body) = signed(text);
    let sign = if negative { -1.0 } else { 1.0 };
    match body {
        ".inf" | ".Inf" | ".INF" => return Some(sign * f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" if body.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let clean: String = body.chars().filter(|c| *c != '_').collect();
    let (whole, rest) = clean.split_once('.')?;
    if let Some((high, low)) = whole.rsplit_once(':') {
        let minutes = sexagesimal(&format!("{high}:{low}"))?;
        let fraction: f64 =
            if rest.is_empty() { 0.0 } else { digits_only(rest).then(|| format!("0.{rest}").parse().ok())?? };
        return Some(sign * (minutes as f64 + fraction));
    }
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(i) => (&rest[..i], Some(&rest[i + 1..])),
        None => (rest, None),
    };
    let exponent_ok = exponent.is_none_or(|e| e.strip_prefix(['+', '-']).is_some_and(digits_only));
    let digits_ok = (digits_only(whole) || (whole.is_empty() && digits_only(fraction)))
        && (fraction.is_empty() || digits_only(fraction));
    // Without digits before it, the point has to be the first character and be followed by a digit: `-.5` and
    // `._5` are strings.
    let start_ok = body.starts_with(|c: char| c.is_ascii_digit())
        || (body.len() == text.len() && body.starts_with('.') && !body.starts_with("._"));
    if !exponent_ok || !digits_ok || !start_ok {
        return None;
    }
    clean.trim_end_matches('.').parse::<f64>().ok().map(|f| sign * f)
}

/// A float as Python writes it: `1.0`, not `1`; exponents as in `1e+16` and `1e-05`.
pub fn float_text(f: f64) -> String {
    let magnitude = f.abs();
    if f != 0.0 && f.is_finite() && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{f:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    if f.fract() == 0.0 { format!("{f:.1}") } else { f.to_string() }
}

/// Decodes base64 with arbitrary characters in between, as PyYAML does (documents use dots for omissions); a
/// string if it is UTF-8. None if the padding is wrong.
pub fn binary(text: &str) -> Option<Value> {
    let letters = text.bytes().take_while(|b| *b != b'=').filter(|b| crate::base::base64::is_letter(*b)).count();
    let padding = text.bytes().filter(|b| *b == b'=').count();
    if !matches!((letters % 4, padding), (0, _) | (2, 2..) | (3, 1..)) {
        return None;
    }
    let bytes = crate::base::base64::decode_loosely(text.as_bytes());
    Some(Value::of_bytes(bytes))
}

fn signed(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn digits_only(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        for (f, text) in
            [(1.0, "1.0"), (0.5, "0.5"), (1.5e300, "1.5e+300"), (1e16, "1e+16"), (-1e-5, "-1e-05"), (0.0, "0.0")]
        {
            assert_eq!(float_text(f), text);
        }
    }
}
