//! YAML 1.1 as PyYAML's SafeLoader reads it: plain scalars are resolved by YAML 1.1's rules, `<<` is merged,
//! and of duplicate keys the last takes precedence.
//!
//! An own parser, because existing crates read YAML 1.2 and refuse documents that cloud-init accepts: quoted
//! strings and flow collections whose continuation lines are indented less.

mod compose;
mod cursor;
mod text;
mod token;

use super::{Value, text_fits};
use crate::base::error::{Error, Result};
use compose::Composer;
use cursor::Failure;
use std::collections::HashMap;

pub(super) use cursor::{is_printable, run};

/// The largest YAML text, in bytes.
pub const MAX_BYTES: usize = 16 << 20;

/// Parses one YAML document; an empty text is null. `document` is its name in errors.
///
/// # Errors
/// It is not valid YAML, or too large. The error has the line and column, but no content.
pub fn parse(document: &str, text: &str) -> Result<Value> {
    parse_or_place(document, text).map_err(|(error, ..)| error)
}

/// Like [`parse`]; an error comes with its line and column, from 1.
pub fn parse_or_place(document: &str, text: &str) -> std::result::Result<Value, (Error, usize, usize)> {
    if text.len() > MAX_BYTES {
        return Err((Error::new(format!("{document}: larger than {MAX_BYTES} bytes")), 1, 1));
    }
    if !cursor::all_printable(text) {
        return Err((Error::new(format!("{document}: not valid YAML: a control character")), 1, 1));
    }
    text_fits(document, text.len()).map_err(|e| (e, 1, 1))?;
    Composer::new(text).document().map_err(|failure| {
        let Failure { what, mark } = *failure;
        let (line, column) = (mark.line + 1, mark.column + 1);
        (Error::new(format!("{document}: not valid YAML at line {line} column {column}: {what}")), line, column)
    })
}

/// The lines, from 1, on which `paths` ([`Path`](super::Path)) begin: at the key, or as a list item. Paths that do not
/// exist or are in an alias have no line.
pub fn lines(text: &str, paths: impl Iterator<Item = String>) -> HashMap<String, usize> {
    places(text, paths).into_iter().map(|(path, (line, _))| (path, line)).collect()
}

/// The lines of [`lines`], each with its column, from 1.
pub fn places(text: &str, mut paths: impl Iterator<Item = String>) -> HashMap<String, (usize, usize)> {
    Composer::new(text).places(&mut paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn yaml(text: &str) -> String {
        parse("t", text).map_or_else(|e| e.to_string(), |v| json::to_string(&v))
    }

    #[test]
    fn scalars_are_yaml_1_1() {
        for (text, expected) in [
            ("0644", "420"),
            ("0o644", "\"0o644\""),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("1_000", "1000"),
            ("1:30", "90"),
            ("1:3_0", "\"1:3_0\""),
            ("yes", "true"),
            ("Off", "false"),
            ("y", "\"y\""),
            ("~", "null"),
            ("", "null"),
            ("1e3", "\"1e3\""),
            ("1.0e+3", "1000.0"),
            (".5", "0.5"),
            ("1.", "1.0"),
            ("08", "\"08\""),
            ("2032-09-01", "\"2032-09-01\""),
            ("'yes'", "\"yes\""),
            ("!!str 12", "\"12\""),
            ("!!binary aGk=", "\"hi\""),
            ("!!binary aG....k=", "\"hi\""),
            ("!!int '3'", "3"),
            ("+12", "12"),
            ("-0x10", "-16"),
            ("{on: 1, 5: x, null: y}", r#"{"true":1,"5":"x","null":"y"}"#),
        ] {
            assert_eq!(yaml(text), expected, "{text}");
        }
    }

    #[test]
    fn anchors_merges_and_duplicates() {
        assert_eq!(yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n"), r#"{"a":{"p":1,"q":2},"b":{"p":1,"q":3}}"#);
        assert_eq!(yaml("<<: [{a: 1}, {a: 2, b: 3}]\n"), r#"{"a":1,"b":3}"#);
        assert_eq!(yaml("a: 1\nb: 2\na: 3\n"), r#"{"a":3,"b":2}"#);
        assert_eq!(yaml("- &a [1]\n- *a\n"), "[[1],[1]]");
        for text in ["a: &x 1\nb: &x 2\n", "a: &x\n\nb: &x\n", "a: &x [\n\n&x 1]\n"] {
            let error = yaml(text);
            assert!(error.contains(" at line ") && error.ends_with(": a duplicate anchor"), "{text}: {error}");
        }
        assert!(yaml("a: &x 1\nb: &x 2\n").contains("line 2 column 4"));
        assert!(yaml("a: &x [\n  *x]\n").contains("not complete"));
    }

    #[test]
    fn a_mistake_is_where_its_cause_is() {
        for (text, place) in [
            ("packages:\n- a\nhostname\nusers: []\n", "3 column 1"),
            ("a:\n  b: 1\n  # c\n  d\n\n  e: 2\n", "4 column 3"),
            ("a: 1\n'b'\n", "2 column 1"),
            ("a: 1\nb: [c,\n  d\n", "2 column 4"),
            ("a: &x {b: 1,\n  c: 2\n", "1 column 7"),
            ("{a: 1,\n b: 2\n c: 3}\n", "3 column 3"),
            ("a:\n  b: 1\n c: 2\n", "3 column 2"),
        ] {
            assert!(yaml(text).starts_with(&format!("t: not valid YAML at line {place}: ")), "{text}: {}", yaml(text));
        }
    }

    #[test]
    fn lines_of_paths() {
        let text = "a: 1\nb:\n- x\n-\n  c: {d: [1,\n   2], e: 3}\nf: &f\n  - g\n  - {h: i}\nj: *f\n? k\n: [l: m]\n<<: {n: 1}\n";
        let expected = [
            ("a", 1),
            ("b", 2),
            ("b.0", 3),
            ("b.1", 5),
            ("b.1.c", 5),
            ("b.1.c.d", 5),
            ("b.1.c.d.1", 6),
            ("b.1.c.e", 6),
            ("f", 7),
            ("f.0", 8),
            ("f.1.h", 9),
            ("j", 10),
            ("k", 11),
        ];
        let missing = ["", "j.0", "n", "b.2", "f.0.0"];
        let paths = expected.iter().map(|e| e.0).chain(missing).map(str::to_owned);
        let found = lines(text, paths);
        for (path, line) in expected {
            assert_eq!(found.get(path), Some(&line), "{path}");
        }
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(lines("a: [", ["a".to_owned()].into_iter()).len() == 1);
    }

    #[test]
    fn hostile_documents_are_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..10 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        assert!(yaml(&bomb).contains("nodes"), "{}", yaml(&bomb));
        let aliases = vec!["*a"; 10_000].join(",");
        assert!(yaml(&format!("a: &a {}\nb: [{aliases}]\n", "x".repeat(100_000))).contains("bytes, aliases expanded"));
        let (begin, end): (String, String) = (0..90).map(|i| (format!("&a{i} ["), ']')).unzip();
        assert!(yaml(&format!("{begin}{}{end}", "x".repeat(1 << 20))).contains("bytes, aliases expanded"));
        assert!(yaml(&"[".repeat(100_000)).contains("not valid YAML"));
        assert!(yaml(&"- ".repeat(50_000)).contains("not valid YAML"));
        assert!(yaml("!!python/object:os.system x").contains("not valid YAML"));
        // A refused document is neither kept nor quoted.
        let long = "x ".repeat(1 << 20);
        assert!(yaml(&format!("%TAG {long}\n--- a")).contains("a directive that is too long"));
        assert!(yaml(&format!("!!{} a", "x".repeat(1 << 20))).contains("a tag that is too long"));
        let handles: String = (0..260_000).map(|i| format!("%TAG !{i}! x\n")).collect();
        assert!(yaml(&format!("{handles}--- a")).contains("more than 250000 nodes"));
        assert!(yaml("a: *nowhere").contains("not valid YAML"));
        assert!(yaml("&a [*a]").contains("not complete"));
        assert!(yaml("a: 1\n---\nb: 2\n").contains("single document"));
        assert!(yaml("? [1]\n: 2\n").contains("key"));
        assert!(yaml("a: \u{7}").contains("control character"));
        assert!(yaml(&"? ".repeat(50_000)).contains("not valid YAML"));
        assert!(yaml(&"{a: ".repeat(50_000)).contains("nested deeper"));
        assert!(yaml(&"&a ".repeat(50_000)).contains("not valid YAML"));
        for end in [
            "'",
            "\"",
            "[",
            "{a",
            "- !",
            "a: |",
            "a: >-\n",
            "&",
            "*",
            "!<x",
            "\"\\",
            "\"\\x4",
            "%TAG",
            "? ",
            "a:\n - b\n c",
        ] {
            yaml(end);
            yaml(&format!("x: {end}"));
        }
    }

    /// Documents that other readers refuse or read differently from PyYAML.
    #[test]
    fn documents_as_pyyaml_reads_them() {
        for (text, expected) in [
            ("a:\n  b: \"x\ny\n\n  z\"\n", r#"{"a":{"b":"x y\nz"}}"#),
            ("a:\n  b: 'x\n\ny'\n", r#"{"a":{"b":"x\ny"}}"#),
            ("a: {\nb: 1,\nc: [\n2\n],\n}\n", r#"{"a":{"b":1,"c":[2]}}"#),
            ("- - a\n  - b\n- c: d\n  e:\n  - f\n", r#"[["a","b"],{"c":"d","e":["f"]}]"#),
            ("a: |\n  x\n   y\n\n  z", r#"{"a":"x\n y\n\nz"}"#),
            ("a: >\n  x\n  y\n\n  z\n   w\n  v\n", r#"{"a":"x y\nz\n w\nv\n"}"#),
            ("a: |+ # c\n  x\n\nb: |2-\n    y\n", r#"{"a":"x\n\n","b":"  y"}"#),
            ("a: 'x'#c\nb: [c]#d\n", r#"{"a":"x","b":["c"]}"#),
            ("a: b\n  c\n\n  d # e\n", r#"{"a":"b c\nd"}"#),
            (
                "{\"a\":1, b:2, 'c' : http://x:80/y, ? d : e, f}",
                r#"{"a":1,"b:2":null,"c":"http://x:80/y","d":"e","f":null}"#,
            ),
            ("[a: 1, ? b, c d, 'e': ]", r#"[{"a":1},{"b":null},"c d",{"e":null}]"#),
            ("? a\n: b\n? c\n", r#"{"a":"b","c":null}"#),
            (
                "%YAML 1.1\n%TAG !y! tag:yaml.org,2002:\n---\na: !y!str 1\nb: ! 2\nc: !<tag:yaml.org,2002:str> 3\n...\n",
                r#"{"a":"1","b":2,"c":"3"}"#,
            ),
            ("\u{feff}a: \"\\x41\\u00e9\\U0001F600\\/\\e\\\n   b\"\r\n", "{\"a\":\"Aé😀/\\u001bb\"}"),
            ("a: b\u{85}c: d\u{2028}", r#"{"a":"b","c":"d"}"#),
            ("a: b\t# c\nd: 'e'\t\n", r#"{"a":"b","d":"e"}"#),
            ("--- a\n...\n# end\n", r#""a""#),
            (
                r#"["\ud83d\uDE00", "\ud83d", "\ude00\ud83dx", "\ud83d\u0041"]"#,
                "[\"😀\",\"\u{fffd}\",\"\u{fffd}\u{fffd}x\",\"\u{fffd}A\"]",
            ),
            (
                "[9223372036854775808, -1_2345678901234567890123, 0xffffffffffffffff]",
                "[9223372036854775808,-12345678901234567890123,18446744073709551615]",
            ),
            ("-.4", r#""-.4""#),
            ("._6", r#""._6""#),
        ] {
            assert_eq!(yaml(text), expected, "{text}");
        }
    }
}
