//! Findings in the formats that services for pull requests and CI read.

use super::findings::{Finding, Level};
use crate::base::percent;
use crate::document::{Map, Value, json};
use std::fmt::Write;

/// Workflow commands of GitHub, which become annotations of the lines (docs.github.com, "Workflow commands for GitHub Actions").
pub fn github(found: &[Finding]) -> String {
    let mut out = String::new();
    for finding in found {
        let name = match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "notice",
        };
        out += &format!("::{name} file={}", property(&finding.document));
        if let Some((line, column)) = finding.place {
            out += &format!(",line={line},col={column}");
        }
        if !finding.key.is_empty() {
            out += &format!(",title={}", property(&finding.key));
        }
        out += &format!("::{}\n", data(&finding.message()));
    }
    out
}

/// The message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// SARIF 2.1.0 (OASIS), which code scanning takes.
pub fn sarif(found: &[Finding]) -> String {
    let map = |entries: Vec<(&str, Value)>| Value::Map(entries.into_iter().collect::<Map>());
    let text = |text: &str| Value::Map([("text", Value::from(text))].into_iter().collect());
    let rules =
        [("error", "a document is wrong"), ("warning", "something is ignored"), ("note", "something is deprecated")];
    let rules = rules.map(|(id, what)| map(vec![("id", id.into()), ("shortDescription", text(what))]));
    let result = |finding: &Finding| {
        let uri = percent::encode(&finding.document, percent::PATH);
        let mut physical = vec![("artifactLocation", map(vec![("uri", uri.into())]))];
        if let Some((line, column)) = finding.place {
            let number = |n: usize| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
            physical.push(("region", map(vec![("startLine", number(line)), ("startColumn", number(column))])));
        }
        let mut location = vec![("physicalLocation", map(physical))];
        if !finding.key.is_empty() {
            let key = map(vec![("fullyQualifiedName", finding.key.as_str().into())]);
            location.push(("logicalLocations", Value::List(vec![key])));
        }
        map(vec![
            ("ruleId", finding.level.name().into()),
            ("level", finding.level.name().into()),
            ("message", text(&finding.message())),
            ("locations", Value::List(vec![map(location)])),
        ])
    };
    let driver = map(vec![
        ("name", "prepivot".into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("rules", Value::List(rules.to_vec())),
    ]);
    let run = map(vec![
        ("tool", map(vec![("driver", driver)])),
        ("columnKind", "unicodeCodePoints".into()),
        ("results", Value::List(found.iter().map(result).collect())),
    ]);
    let log = map(vec![
        ("$schema", "https://json.schemastore.org/sarif-2.1.0.json".into()),
        ("version", "2.1.0".into()),
        ("runs", Value::List(vec![run])),
    ]);
    json::to_string_indented(&log, "  ") + "\n"
}

/// JUnit's XML, as CI services read it: a test case for each document, which passes if nothing is wrong with it, and one for each
/// finding. What is deprecated passes.
pub fn junit(documents: &[String], found: &[Finding]) -> String {
    let failures = found.iter().filter(|finding| finding.level != Level::Note).count();
    let is_clean = |document: &&String| !found.iter().any(|finding| finding.document == **document);
    let clean: Vec<&String> = documents.iter().filter(is_clean).collect();
    let tests = clean.len() + found.len();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    let _ = writeln!(out, "<testsuites {counts}>\n<testsuite name=\"prepivot plan\" {counts}>");
    for document in clean {
        let _ = writeln!(out, "<testcase classname=\"{}\" name=\"document\"/>", markup(document));
    }
    for finding in found {
        let place = finding.place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
        let (document, line) = (markup(&finding.document), markup(&finding.line()));
        let name = if finding.key.is_empty() { "document" } else { finding.key.as_str() };
        let _ = write!(out, "<testcase classname=\"{document}\" name=\"{}{place}\">", markup(name));
        match finding.level {
            Level::Note => write!(out, "<system-out>{}</system-out>", line.trim_end()),
            level => write!(
                out,
                "<failure type=\"{}\" message=\"{}\">{}</failure>",
                level.name(),
                markup(&finding.message()),
                line.trim_end()
            ),
        }
        .unwrap_or_default();
        out += "</testcase>\n";
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// A text in XML or HTML: what would be markup is escaped, and what XML 1.0 cannot have is replaced.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            // They would change the order in which other text is shown.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(document: &str, what: &str) -> Finding {
        Finding {
            level: Level::Error,
            document: document.into(),
            place: Some((3, 5)),
            key: "a:b,c".into(),
            what: what.into(),
            fix: "Do.".into(),
        }
    }

    #[test]
    fn workflow_commands_cannot_be_forged() {
        let text = github(&[finding("a:b,c%", "x\r\n::error::y 100%")]);
        assert_eq!(
            text,
            "::error file=a%3Ab%2Cc%25,line=3,col=5,title=a%3Ab%2Cc::a:b,c: x%0D%0A::error::y 100%25. Do.\n"
        );
    }

    /// A command as GitHub's runner reads it (actions/runner, ActionCommand.TryParseV2): its name, properties and message.
    fn read_command(line: &str) -> (String, Vec<(String, String)>, String) {
        let (head, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let data = |text: &str| text.replace("%0D", "\r").replace("%0A", "\n");
        let (name, properties) = head.split_once(' ').unwrap();
        let property = |text: &str| {
            let (key, value) = text.split_once('=').unwrap();
            (key.to_owned(), data(value).replace("%3A", ":").replace("%2C", ",").replace("%25", "%"))
        };
        (name.to_owned(), properties.split(',').map(property).collect(), data(message).replace("%25", "%"))
    }

    #[test]
    fn workflow_commands_read_back_as_written() {
        for odd in ["a,b=c:d::e", "100%25 %0A", "x\r\ny", "::error file=a::b", "ä 漢 ]; "] {
            let found = Finding { key: odd.into(), fix: String::new(), ..finding(odd, odd) };
            let text = github(&[found]);
            let [line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
            let (name, properties, message) = read_command(line);
            let expected = [("file", odd), ("line", "3"), ("col", "5"), ("title", odd)];
            assert_eq!(properties, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
            assert_eq!((name.as_str(), message), ("error", format!("{odd}: {odd}")));
        }
    }

    #[test]
    fn control_characters_and_markup_are_escaped() {
        assert_eq!(markup("<a b=\"'&\">\u{1b}\u{202e}\n"), "&lt;a b=&quot;&#39;&amp;&quot;&gt;\u{fffd}\u{fffd}\n");
        let text = junit(&["clean".into()], &[finding("<d>", "x\u{1}")]);
        assert!(text.contains("tests=\"2\" failures=\"1\"") && text.contains("&lt;d&gt;"), "{text}");
        assert!(
            !text.contains('\u{1}') && text.contains("<testcase classname=\"clean\" name=\"document\"/>"),
            "{text}"
        );
    }
}
