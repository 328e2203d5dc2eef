//! Edits files of sections with `key = value` lines. Comments and order stay.

use crate::base::error::{Error, Result};

/// A file of sections, of which the first has no name.
#[derive(Debug, Default)]
pub struct Ini {
    sections: Vec<(String, Vec<Line>)>,
}

#[derive(Debug)]
enum Line {
    Pair(String, String),
    /// A comment.
    Other(String),
}

impl Ini {
    /// Parses a file, without blank lines and white space around names and values. With `strict`, every pair
    /// has to be in a section, as in Python's configparser.
    ///
    /// # Errors
    /// A line is neither a section, a pair nor a comment; the error has its number.
    pub fn parse(path: &str, text: &str, strict: bool) -> Result<Ini> {
        let mut ini = Ini { sections: vec![(String::new(), Vec::new())] };
        for (number, line) in text.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty()) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.split_once(']')).map(|(name, _)| name) {
                ini.sections.push((name.to_owned(), Vec::new()));
                continue;
            }
            let unnamed = ini.sections.len() == 1;
            let Some((_, lines)) = ini.sections.last_mut() else { break };
            lines.push(match line.split_once(['=', ':']) {
                _ if line.starts_with(['#', ';']) => Line::Other(line.to_owned()),
                Some((key, value)) if !(strict && unnamed) => {
                    Line::Pair(key.trim_end().to_owned(), value.trim_start().to_owned())
                }
                _ => {
                    return Err(Error::new(format!(
                        "{path}: line {}: expected [SECTION], or KEY = VALUE below one",
                        number + 1
                    )));
                }
            });
        }
        Ok(ini)
    }

    /// Sets a value, in place if it exists. A missing section is added at the end; "" is the one without a
    /// name.
    pub fn set(&mut self, section: &str, key: &str, value: &str) {
        let at = self.sections.iter().position(|(name, _)| name == section).unwrap_or_else(|| {
            self.sections.push((section.to_owned(), Vec::new()));
            self.sections.len() - 1
        });
        let Some((_, lines)) = self.sections.get_mut(at) else { return };
        let same = |line: &&mut Line| matches!(line, Line::Pair(k, _) if k == key);
        match lines.iter_mut().find(same) {
            Some(Line::Pair(_, old)) => *old = value.to_owned(),
            _ => lines.push(Line::Pair(key.to_owned(), value.to_owned())),
        }
    }

    /// The file's text, with `end` after each named section.
    pub fn to_text(&self, end: &str) -> String {
        let mut text = String::new();
        for (name, lines) in &self.sections {
            if !name.is_empty() {
                text.push_str(&format!("[{name}]\n"));
            }
            for line in lines {
                match line {
                    Line::Pair(key, value) => text.push_str(&format!("{key} = {value}\n")),
                    Line::Other(line) => text.push_str(&format!("{line}\n")),
                }
            }
            if !name.is_empty() {
                text.push_str(end);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_set_and_the_rest_stays() {
        let mut ini = Ini::parse("f", "# top\na=1\n\n [s]\n  b : 2\n;c\n", false).unwrap();
        ini.set("", "a", "3");
        ini.set("s", "d", "4");
        ini.set("t", "e", "5");
        assert_eq!(ini.to_text("\n"), "# top\na = 3\n[s]\nb = 2\n;c\nd = 4\n\n[t]\ne = 5\n\n");
        assert_eq!(Ini::default().to_text("\n"), "");
    }

    #[test]
    fn names_the_line_of_a_non_pair() {
        for (text, strict) in [("\nword", false), ("a = 1", true), ("[s]\nword", true)] {
            assert!(Ini::parse("f", text, strict).unwrap_err().to_string().starts_with("f: line "), "{text}");
        }
    }
}
