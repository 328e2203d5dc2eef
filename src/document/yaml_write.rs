//! A [`Value`] as YAML: block style, two spaces, strings quoted only where another reader could take them for something else.

use super::yaml::is_printable;
use super::{Map, Value, json, scalar};

/// The value as one YAML document without `---`, ending in a newline. What it writes, [`super::yaml::parse`] reads back the same;
/// so do PyYAML and libyaml.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Map(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::List(list) if !list.is_empty() => write_list(&mut out, list, 0),
        scalar => {
            out.push_str(&inline(scalar, 2));
            out.push('\n');
        }
    }
    out
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn write_map(out: &mut String, map: &Map, indent: usize) {
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 || indent == 0 || out.ends_with('\n') {
            pad(out, indent);
        }
        out.push_str(&string(key));
        out.push(':');
        match value {
            Value::Map(map) if !map.is_empty() => {
                out.push('\n');
                write_map(out, map, indent + 2);
            }
            Value::List(list) if !list.is_empty() => {
                out.push('\n');
                write_list(out, list, indent);
            }
            scalar => {
                out.push(' ');
                out.push_str(&inline(scalar, indent + 2));
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, list: &[Value], indent: usize) {
    for (i, value) in list.iter().enumerate() {
        if i > 0 || indent == 0 || out.ends_with('\n') {
            pad(out, indent);
        }
        out.push_str("- ");
        match value {
            Value::Map(map) if !map.is_empty() => write_map(out, map, indent + 2),
            Value::List(list) if !list.is_empty() => write_list(out, list, indent + 2),
            scalar => {
                out.push_str(&inline(scalar, indent + 2));
                out.push('\n');
            }
        }
    }
}

fn inline(value: &Value, indent: usize) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) if f.is_nan() => ".nan".into(),
        Value::Float(f) if f.is_infinite() => if *f > 0.0 { ".inf" } else { "-.inf" }.into(),
        Value::Float(f) => exponent(&json::float(*f)),
        Value::Bytes(b) => format!("!!binary {}", crate::base::base64::encode(b)),
        Value::String(s) => literal(s, indent).unwrap_or_else(|| string(s)),
        Value::List(_) => "[]".into(),
        Value::Map(_) => "{}".into(),
    }
}

/// YAML 1.1 wants a point and a signed exponent.
fn exponent(text: &str) -> String {
    match text.split_once('e') {
        Some((m, e)) => {
            let point = if m.contains('.') { "" } else { ".0" };
            let sign = if e.starts_with(['-', '+']) { "" } else { "+" };
            format!("{m}{point}e{sign}{e}")
        }
        None => text.to_owned(),
    }
}

/// Whether every reader takes a character for itself, unescaped, in a line.
fn is_plain(c: char) -> bool {
    is_printable(c) && !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Several plain lines as a literal block.
fn literal(text: &str, indent: usize) -> Option<String> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let printable = |c: char| c == '\n' || c == '\t' || is_plain(c);
    let fits = body.contains('\n')
        && text.chars().all(printable)
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with('\n')
        && body.lines().all(|l| l.trim_end().len() == l.len());
    if !fits {
        return None;
    }
    let mut out = String::from(if text.ends_with('\n') { "|" } else { "|-" });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(&mut out, indent);
            out.push_str(line);
        }
    }
    Some(out)
}

fn string(text: &str) -> String {
    let plain_chars = |c: char| {
        c.is_ascii_alphanumeric() || "_-./+@%=,:^~$()[]{} ".contains(c) || (c as u32 > 0xa0 && c.is_alphanumeric())
    };
    let safe = !text.is_empty()
        && text.chars().all(plain_chars)
        && text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '+' | '$' | '(' | '^'))
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.contains([',', '[', ']', '{', '}'])
        && !looks_typed(text);
    if safe {
        return text.to_owned();
    }
    if text.chars().all(is_plain) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    // JSON's escapes are a subset of YAML's, but for code points that YAML wants escaped and JSON does not.
    let json = json::to_string(&Value::from(text));
    json.chars().map(|c| if !is_plain(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect()
}

/// Whether some YAML reader, 1.1 or 1.2, takes the plain text for something other than a string.
fn looks_typed(text: &str) -> bool {
    !matches!(scalar::resolve(text), Value::String(_))
        || matches!(text, "y" | "Y" | "n" | "N" | "=" | "<<")
        || text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+')
            && text.chars().all(|c| c.is_ascii_hexdigit() || "+-._:xoTtZz ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn reads_back_what_it_wrote() {
        let text = "a: 'yes'\nb: ['0644', 420, 1.5, null, '', ' x', 'a: b', '# c', \"tab\\there\", \"bell\\a\", 2032-09-01]\n\
                    c: {d: {}, e: [], f: [[1, 2], {g: h, i: [j]}]}\nk: \"two\\nlines\\n\"\nl: \"two\\nlines\"\n\
                    m: \"  indented\\nlines\"\nn: 1.0e+20\ns: -1.5e-300\n'null': x\n'- y': \"trail \\n x\"\no: '12:30:45'\np: 'é ü'\nq: \"\\u2028\"\n";
        let value = yaml::parse("t", text).unwrap();
        let written = to_yaml(&value);
        assert_eq!(yaml::parse("t", &written).unwrap(), value, "{written}");
        assert_eq!(to_yaml(&Value::from("two\nlines\n")), "|\n  two\n  lines\n");
        assert!(written.contains("k: |\n  two\n  lines\n"), "{written}");
        assert!(written.contains("- - 1\n"), "{written}");
    }
}
