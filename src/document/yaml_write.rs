//! Writes a [`Value`] as YAML: block style, indented by two spaces, with strings quoted only if a parser
//! could take them for something else.

use super::yaml::{is_printable, run};
use super::{Map, Value, scalar};
use std::io::{self, Write};

/// The longest key that is written without `?`, in bytes: every parser accepts 1,024 characters (YAML 1.1,
/// 9.1.1).
const MAX_SIMPLE_KEY: usize = 1000;

/// The value as one YAML document without `---`, ending in a line feed. [`super::yaml::parse`], PyYAML and
/// libyaml read back the same value.
pub fn to_yaml(value: &Value) -> String {
    let mut out = Out::default();
    match value {
        Value::Map(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::List(list) if !list.is_empty() => write_list(&mut out, list, 0),
        scalar => {
            write_inline(&mut out, scalar, 2);
            out.push('\n');
        }
    }
    out.text
}

/// Writes a mapping as [`to_yaml`] does, piece by piece.
///
/// # Errors
/// Those of `sink`.
pub fn write_yaml(map: &Map, sink: &mut dyn Write) -> io::Result<()> {
    let mut out = Out { sink: Some(sink), ..Out::default() };
    if map.is_empty() {
        out.push_str("{}\n");
    }
    write_map(&mut out, map, 0);
    match out {
        Out { error: Some(e), .. } => Err(e),
        Out { text, sink: Some(sink), .. } => sink.write_all(text.as_bytes()),
        Out { sink: None, .. } => Ok(()),
    }
}

/// How many bytes are buffered before they are written to the sink.
const BUFFER: usize = 16 << 10;

/// The output: to a sink, or collected in memory.
#[derive(Default)]
struct Out<'a> {
    text: String,
    sink: Option<&'a mut dyn Write>,
    error: Option<io::Error>,
}

impl Out<'_> {
    fn push_str(&mut self, text: &str) {
        let is_full = self.text.len() + text.len() > BUFFER;
        let Some(sink) = self.sink.as_mut().filter(|_| is_full) else { return self.text.push_str(text) };
        // The last character is kept, because what follows depends on it.
        let (head, last) = text.split_at(text.char_indices().next_back().map_or(0, |(at, _)| at));
        if self.error.is_none() {
            let written = sink.write_all(self.text.as_bytes()).and_then(|()| sink.write_all(head.as_bytes()));
            self.error = written.err();
        }
        self.text.clear();
        self.text.push_str(last);
    }

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }

    fn ends_with(&self, c: char) -> bool {
        self.text.ends_with(c)
    }
}

fn pad(out: &mut Out, indent: usize) {
    (0..indent).for_each(|_| out.push(' '));
}

fn write_map(out: &mut Out, map: &Map, indent: usize) {
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 || indent == 0 || out.ends_with('\n') {
            pad(out, indent);
        }
        write_key(out, key, indent);
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
                write_inline(out, scalar, indent + 2);
                out.push('\n');
            }
        }
    }
}

/// Writes a key with its `:`. A long key is written with `?`.
fn write_key(out: &mut Out, key: &str, indent: usize) {
    let mut written = Out::default();
    write_string(&mut written, key);
    if written.text.len() > MAX_SIMPLE_KEY {
        out.push_str("? ");
        out.push_str(&written.text);
        out.push('\n');
        pad(out, indent);
    } else {
        out.push_str(&written.text);
    }
    out.push(':');
}

fn write_list(out: &mut Out, list: &[Value], indent: usize) {
    for (i, value) in list.iter().enumerate() {
        if i > 0 || indent == 0 || out.ends_with('\n') {
            pad(out, indent);
        }
        out.push_str("- ");
        match value {
            Value::Map(map) if !map.is_empty() => write_map(out, map, indent + 2),
            Value::List(list) if !list.is_empty() => write_list(out, list, indent + 2),
            scalar => {
                write_inline(out, scalar, indent + 2);
                out.push('\n');
            }
        }
    }
}

fn write_inline(out: &mut Out, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Big(digits) => out.push_str(digits),
        Value::Float(f) if f.is_nan() => out.push_str(".nan"),
        Value::Float(f) if f.is_infinite() => out.push_str(if *f > 0.0 { ".inf" } else { "-.inf" }),
        Value::Float(f) => out.push_str(&exponent(&scalar::float_text(*f))),
        Value::Bytes(b) => {
            out.push_str("!!binary ");
            out.push_str(&crate::base::base64::encode(b));
        }
        Value::String(s) if is_literal(s) => write_literal(out, s, indent),
        Value::String(s) => write_string(out, s),
        Value::List(_) => out.push_str("[]"),
        Value::Map(_) => out.push_str("{}"),
    }
}

/// YAML 1.1 requires a point and a signed exponent.
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

/// Whether every parser accepts the character unescaped within a line.
fn is_plain(c: char) -> bool {
    is_printable(c) && !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Whether a text is written as a literal block: it has several plain lines.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let printable = |c: char| c == '\n' || c == '\t' || is_plain(c);
    body.contains('\n')
        && run(text, printable) == text.len()
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with('\n')
        && body.lines().all(|l| l.trim_end().len() == l.len())
}

fn write_literal(out: &mut Out, text: &str, indent: usize) {
    let body = text.strip_suffix('\n').unwrap_or(text);
    out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
    }
}

/// Writes a string on one line: plain, in single quotes, or in double quotes with escapes.
fn write_string(out: &mut Out, text: &str) {
    let plain_chars = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '_' | '-' | '.' | '/' | '+' | '@' | '%' | '=' | ':' | '^' | '~' | '$' | '(' | ')' | ' ')
            || (c as u32 > 0xa0 && c.is_alphanumeric())
    };
    let safe = !text.is_empty()
        && run(text, plain_chars) == text.len()
        && text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '+' | '$' | '(' | '^'))
        && text.split(':').skip(1).all(|after| !after.starts_with(' '))
        && !text.ends_with([':', ' '])
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !looks_typed(text);
    if safe {
        return out.push_str(text);
    }
    if run(text, is_plain) == text.len() {
        out.push('\'');
        for (i, part) in text.split('\'').enumerate() {
            out.push_str(if i > 0 { "''" } else { "" });
            out.push_str(part);
        }
        return out.push('\'');
    }
    out.push('"');
    let mut rest = text;
    loop {
        let (plain, after) = rest.split_at(run(rest, |c| is_plain(c) && !matches!(c, '"' | '\\')));
        out.push_str(plain);
        let mut chars = after.chars();
        match chars.next() {
            None => break,
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            // Characters that are not plain are below U+10000.
            Some(c) => out.push_str(&format!("\\u{:04x}", c as u32)),
        }
        rest = chars.as_str();
    }
    out.push('"');
}

/// Whether a parser of YAML 1.1 or 1.2 takes the plain text for something other than a string.
fn looks_typed(text: &str) -> bool {
    scalar::typed(text).is_some()
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

    /// A small generator of numbers that are the same in every run (xorshift64*).
    struct Random(u64);

    impl Random {
        fn below(&mut self, below: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
        }

        fn text(&mut self) -> String {
            const PIECES: [&str; 56] = [
                "a", "b c", "0", "1", "12", ".", "-", "- ", "?", "? ", ":", ": ", "#", " #", " ", "  ", "\t", "\n",
                "\n\n", "\r", "\r\n", "'", "\"", "\\", "|", ">", "%", "@", "`", "!", "&", "*", "<<", "=", "~", "null",
                "yes", "1e3", "0x1f", "1:30", "---", "...", "[", "]", "{", "}", ",", "\u{85}", "\u{2028}", "\u{feff}",
                "\u{a0}", "\0", "\u{7f}", "é", "😀", "\u{ffff}",
            ];
            let length = [0, 1, 1, 2, 3, 5, 9, 400, 1500][self.below(9)];
            (0..length).map(|_| PIECES[self.below(PIECES.len())]).collect()
        }

        fn value(&mut self, depth: usize) -> Value {
            match self.below(if depth == 0 { 8 } else { 12 }) {
                0 => Value::Null,
                1 => Value::Bool(self.below(2) == 0),
                2 => Value::Int([0, 7, -7, i64::MAX, i64::MIN][self.below(5)]),
                3 => Value::Float([0.5, -1e300, 1e-7, 1e16, f64::INFINITY, f64::NEG_INFINITY, 123.0][self.below(7)]),
                4 => Value::Bytes(vec![0xff; 1 + self.below(2000)].into()),
                5 | 6 => self.text().into(),
                7 => Value::Big("-123456789012345678901234567890".into()),
                8 | 9 => Value::List((0..self.below(5)).map(|_| self.value(depth - 1)).collect()),
                _ => Value::Map((0..self.below(5)).map(|_| (self.text(), self.value(depth - 1))).collect()),
            }
        }
    }

    #[test]
    fn whatever_is_written_reads_back() {
        let mut random = Random(1);
        for _ in 0..3000 {
            let value = random.value(4);
            let written = to_yaml(&value);
            assert_eq!(yaml::parse("t", &written).as_ref(), Ok(&value), "{written}");
        }
    }

    #[test]
    fn piece_by_piece_it_is_the_same() {
        let mut random = Random(2);
        for length in [0, 1, 20_000] {
            let lines = "é line\n".repeat(length);
            let map: Map = [
                ("lines", Value::from(lines.as_str())),
                ("any", random.value(4)),
                ("one line", lines.replace('\n', " ").into()),
                ("escaped", lines.replace('\n', "\u{7}").into()),
                ("list", Value::List(vec![lines.into(), random.value(3)])),
            ]
            .into_iter()
            .collect();
            let mut written = Vec::new();
            write_yaml(&map, &mut written).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), to_yaml(&Value::Map(map)));
        }
        let mut empty = Vec::new();
        write_yaml(&Map::new(), &mut empty).unwrap();
        assert_eq!(empty, b"{}\n");
        assert!(write_yaml(&Map::new(), &mut [0; 1].as_mut_slice()).is_err());
    }

    /// A key that is not explicit is at most 1,024 characters long (YAML 1.1, 9.1.1).
    #[test]
    fn long_keys_are_explicit() {
        let key = "k".repeat(1100);
        let list = Value::List(vec![Value::Map(
            [(key.as_str(), Value::List(vec![1.into()])), ("b", 2.into())].into_iter().collect(),
        )]);
        let written = to_yaml(&list);
        assert_eq!(written, format!("- ? {key}\n  :\n  - 1\n  b: 2\n"));
        assert_eq!(yaml::parse("t", &written).as_ref(), Ok(&list));
    }
}
