//! `disable_suites`, in both formats of sources.list(5).

use crate::base::problem::Problems;
use std::collections::HashSet;

const REDACTED: &str = "# cloud-init disable_suites redacted: ";

/// Whether a text has sources in the deb822 format, and not one-line ones.
pub fn is_deb822(text: &str, report: &Problems) -> bool {
    if text.lines().any(|l| l.starts_with("deb ") || l.starts_with("deb-src ")) {
        return false;
    }
    let fields = ["Types: ", "Suites: ", "Components: ", "URIs: "];
    let is = text.lines().any(|l| fields.iter().any(|f| l.starts_with(f)));
    if !is {
        report.warn(
            "apt.sources_list: expected sources in the deb822 format, or lines that begin with deb or deb-src: it is written as it is",
        );
    }
    is
}

/// The suite that a word of `disable_suites` means.
fn meant(word: &str, codename: &str) -> String {
    match word {
        "release" => codename.to_owned(),
        "updates" | "backports" | "security" | "proposed" => format!("{codename}-{word}"),
        other => other.replace("${RELEASE}", codename).replace("$RELEASE", codename),
    }
}

/// The text without the suites of `disabled`, which stay in it as comments.
pub fn disable(text: &str, disabled: &[String], codename: &str, deb822: bool) -> String {
    let disabled: HashSet<String> = disabled.iter().map(|word| meant(word, codename)).collect();
    if disabled.is_empty() {
        return text.to_owned();
    }
    if deb822 { stanzas(text, &disabled) } else { lines(text, &disabled) }
}

fn lines(text: &str, disabled: &HashSet<String>) -> String {
    let line = |line: &str| match suite(line).filter(|s| disabled.contains(*s)) {
        Some(_) => format!("# suite disabled by cloud-init: {line}"),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// The suite of a one-line source: the second word after the type and its options in brackets.
fn suite(line: &str) -> Option<&str> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace().skip(1).peekable();
    if words.peek()?.starts_with('[') {
        words.by_ref().find(|word| word.ends_with(']'))?;
    }
    words.nth(1)
}

fn stanzas(text: &str, disabled: &HashSet<String>) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut stanza: Vec<String> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            out.append(&mut without_suites(std::mem::take(&mut stanza)));
            out.push(line.to_owned());
        } else if line.starts_with('#') && stanza.is_empty() {
            out.push(line.to_owned());
        } else if let Some(suites) = line.strip_prefix("Suites:") {
            let kept: Vec<&str> = suites.split_whitespace().filter(|s| !disabled.contains(*s)).collect();
            if kept.len() == suites.split_whitespace().count() {
                stanza.push(line.to_owned());
            } else {
                stanza.push(format!("{REDACTED}{line}"));
                stanza.push(format!("Suites: {}", kept.join(" ")));
            }
        } else {
            stanza.push(line.to_owned());
        }
    }
    // The empty line that ended the last stanza.
    out.pop();
    out.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// A stanza as it is, or as comments if none of its suites is left.
fn without_suites(stanza: Vec<String>) -> Vec<String> {
    let left = |line: &String| line.strip_prefix("Suites:").is_some_and(|s| !s.trim().is_empty());
    let emptied = |line: &String| line.strip_prefix("Suites:").is_some_and(|s| s.trim().is_empty());
    if stanza.iter().any(left) || !stanza.iter().any(emptied) {
        return stanza;
    }
    let lines = stanza.iter().filter(|l| !emptied(l));
    let lines = lines.map(|l| format!("# disabled by cloud-init: {}", l.strip_prefix(REDACTED).unwrap_or(l)));
    ["## Entry disabled by cloud-init, due to disable_suites".to_owned()].into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disabled(text: &str, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        disable(text, &words, "noble", is_deb822(text, &Problems::new()))
    }

    #[test]
    fn lines_are_commented_out() {
        let text = "deb http://a noble main\n#deb http://a noble-updates main\ndeb [ arch=amd64 a=b ] http://a noble-updates main\n\
                    deb http://a\ndeb [x\n";
        let expected = text.replace("deb [ arch", "# suite disabled by cloud-init: deb [ arch");
        assert_eq!(disabled(text, &["updates"]), expected);
        assert_eq!(disabled("deb a mine b", &["mine"]), "# suite disabled by cloud-init: deb a mine b");
        assert_eq!(disabled("deb a noble-x b", &["$RELEASE-x"]), "# suite disabled by cloud-init: deb a noble-x b");
    }

    #[test]
    fn stanzas_lose_suites_or_become_comments() {
        let text = "# top\nTypes: deb\nURIs: http://a\nSuites: noble noble-updates\n# c\nComponents: main\n\n\
                    Types: deb\nSuites: noble-security\n";
        assert_eq!(
            disabled(text, &["updates", "security"]),
            "# top\nTypes: deb\nURIs: http://a\n# cloud-init disable_suites redacted: Suites: noble noble-updates\n\
             Suites: noble\n# c\nComponents: main\n\n## Entry disabled by cloud-init, due to disable_suites\n\
             # disabled by cloud-init: Types: deb\n# disabled by cloud-init: Suites: noble-security\n"
        );
        assert_eq!(disabled(text, &["proposed"]), text);
        assert_eq!(disabled("Types: deb\n", &["updates"]), "Types: deb\n");
    }
}
