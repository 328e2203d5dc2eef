//! Builds shell scripts from lists of commands, and edits files of shell variables.

use crate::base::error::{Error, Result};
use crate::document::{Value, wrong};

/// The script for `runcmd` or `bootcmd`: a string is copied as a line, a list becomes a command with quoted
/// words, null is ignored.
///
/// # Errors
/// `value` is not a list, or an entry is neither a string nor a list; the error has its number.
pub fn script(key: &str, value: &Value) -> Result<String> {
    let list = value.as_list().ok_or_else(|| wrong(key, "a list", value))?;
    let mut script = String::from("#!/bin/sh\n");
    for (number, entry) in list.iter().enumerate() {
        match entry {
            Value::Null => continue,
            Value::String(line) => script.push_str(line),
            Value::List(words) => {
                let words: Option<Vec<String>> = words.iter().map(|w| word(w).map(|w| quoted(&w))).collect();
                let words = words.ok_or_else(|| {
                    Error::new(format!("{key}: entry {}: expected words, found a list or a mapping", number + 1))
                })?;
                script.push_str(&words.join(" "));
            }
            other => return Err(wrong(&format!("{key}: entry {}", number + 1), "a string or a list", other)),
        }
        script.push('\n');
    }
    Ok(script)
}

/// A scalar as Python's `str` writes it, which is what cloud-init uses in scripts and arguments: `True`,
/// `None`, `1.0`.
pub fn word(value: &Value) -> Option<String> {
    match value {
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        Value::Null => Some("None".into()),
        other => other.text(),
    }
}

/// The words of a command.
///
/// # Errors
/// `value` is empty, or not a list of scalars.
pub fn words(key: &str, value: &Value) -> Result<Vec<String>> {
    let list = value.as_list().filter(|l| !l.is_empty()).ok_or_else(|| wrong(key, "a list of words", value))?;
    list.iter().map(|w| word(w).ok_or_else(|| wrong(key, "a list of words", w))).collect()
}

/// A word in single quotes.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A word in single quotes if it has characters that are special to a shell (Python's `shlex.quote`).
pub fn quoted_if_needed(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { quoted(word) }
}

/// Sets `key=value` in a file of such lines: in place of the first line that sets it, else at the end. Other
/// lines stay.
pub fn set_variable(text: &str, key: &str, value: &str) -> String {
    let mut out = String::new();
    let mut done = false;
    for line in text.lines() {
        let sets = line.trim_start().strip_prefix("export ").unwrap_or(line.trim_start()).split_once('=');
        if sets.is_some_and(|(name, _)| name == key) {
            if !done {
                out.push_str(&format!("{key}={value}\n"));
            }
            done = true;
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    if !done {
        out.push_str(&format!("{key}={value}\n"));
    }
    out
}

/// The unquoted value of `key` in a file of `key=value` lines.
pub fn variable<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text.lines().rev().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn lists_are_quoted_and_strings_are_not() {
        let list = yaml::parse("t", "[echo $HOME, [echo, \"it's $x\", 1, true, null], null, 'true']").unwrap();
        assert_eq!(
            script("runcmd", &list).unwrap(),
            "#!/bin/sh\necho $HOME\n'echo' 'it'\\''s $x' '1' 'True' 'None'\ntrue\n"
        );
        for (text, error) in [
            ("ls", "runcmd: expected a list, found a string"),
            ("[ls, 1]", "runcmd: entry 2: expected a string or a list, found an integer"),
            ("[[ls, [a]]]", "runcmd: entry 1: expected words, found a list or a mapping"),
        ] {
            assert_eq!(script("runcmd", &yaml::parse("t", text).unwrap()).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn sets_a_variable_in_place_keeping_rest() {
        let text = "# c\nLANG=\"C\"\nX=1\nLANG=D\n";
        assert_eq!(set_variable(text, "LANG", "de_DE.UTF-8"), "# c\nLANG=de_DE.UTF-8\nX=1\n");
        assert_eq!(set_variable("", "LANG", "C"), "LANG=C\n");
        assert_eq!(variable(text, "LANG"), Some("D"));
        assert_eq!(variable(text, "LAN"), None);
    }
}
