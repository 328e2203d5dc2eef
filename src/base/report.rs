//! Problems as values.
//!
//! Parsers, sources, renderers and modules add problems to a [`Report`] that their caller passes. Stages log
//! it and put it into status.json. A log message alone never changes the status.

use super::mask;
use super::text::{self, MAX_MESSAGE};
use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

/// The most entries of a report; the rest is only counted.
const MAX_ENTRIES: usize = 10_000;
/// Once all entries together have this many bytes, a further one has at most [`SHORT`] instead of [`MAX_MESSAGE`].
const MAX_ALL: usize = 2 << 20;
const SHORT: usize = 256;

/// How serious an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something that was asked for was not done. The stage fails (cloud-init's `errors`).
    Error,
    /// Something was ignored or replaced by a default (cloud-init's `recoverable_errors`, `WARNING`).
    Warning,
    /// A key or value that a later version will not accept (`recoverable_errors`, `DEPRECATED`).
    Deprecated,
}

impl Severity {
    /// cloud-init's name for the level, as in status.json and its log.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Deprecated => "DEPRECATED",
        }
    }
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub severity: Severity,
    /// One line for a person: document, key, the expectation, the action taken instead. Contains no secrets.
    pub text: String,
    pub time: SystemTime,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Errors, warnings and deprecations, in the order in which they were found, without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    entries: Vec<Entry>,
    /// The texts in `entries`, for fast lookup.
    seen: HashSet<(Severity, String)>,
    /// How many entries were dropped because there were too many.
    dropped: usize,
    /// How many bytes the texts have.
    size: usize,
}

impl Report {
    /// An empty report.
    pub fn new() -> Report {
        Report::default()
    }

    /// Adds something that was asked for and not done.
    pub fn error(&mut self, text: impl fmt::Display) {
        self.push(Severity::Error, &text);
    }

    /// Adds something that was ignored or replaced by a default.
    pub fn warn(&mut self, text: impl fmt::Display) {
        self.push(Severity::Warning, &text);
    }

    /// Adds a use of something deprecated.
    pub fn deprecated(&mut self, text: impl fmt::Display) {
        self.push(Severity::Deprecated, &text);
    }

    /// Adds the error of a result; returns its value otherwise.
    pub fn keep<T, E: fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|e| self.error(e)).ok()
    }

    /// Adds the entries of another report.
    pub fn absorb(&mut self, other: Report) {
        self.dropped += other.dropped;
        for entry in other.entries {
            self.add(entry);
        }
    }

    /// Adds the entries of another report whose texts are not `known`.
    pub fn absorb_new(&mut self, mut other: Report, known: &[String]) {
        other.entries.retain(|entry| !known.contains(&entry.text));
        self.absorb(other);
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The texts of one severity, oldest first.
    pub fn texts(&self, severity: Severity) -> Vec<&str> {
        self.entries.iter().filter(|e| e.severity == severity).map(|e| e.text.as_str()).collect()
    }

    /// The errors, one line each, oldest first.
    pub fn errors(&self) -> Vec<String> {
        self.texts(Severity::Error).into_iter().map(str::to_owned).collect()
    }

    /// Whether there is an entry of this severity.
    pub fn has(&self, severity: Severity) -> bool {
        self.entries.iter().any(|e| e.severity == severity)
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries were dropped because there were too many.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    fn push(&mut self, severity: Severity, text: &dyn fmt::Display) {
        let mut line = one_line(&text.to_string());
        text::cut(&mut line, if self.size > MAX_ALL { SHORT } else { MAX_MESSAGE });
        self.add(Entry { severity, text: line, time: SystemTime::now() });
    }

    fn add(&mut self, entry: Entry) {
        if self.entries.len() == MAX_ENTRIES {
            self.dropped += 1;
        } else if self.seen.insert((entry.severity, entry.text.clone())) {
            self.size += entry.text.len();
            self.entries.push(entry);
        }
    }
}

/// The text on one line, without the credentials of URLs. Documents control parts of it, and a line break
/// must not forge another line.
fn one_line(text: &str) -> String {
    mask::urls(text).replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_once_and_on_one_line() {
        let mut report = Report::new();
        report.warn("a\nb");
        report.warn("a\nb");
        report.error("a\nb");
        assert_eq!(report.keep(Err::<(), _>("c")), None);
        let mut other = Report::new();
        other.deprecated("http://me:pw@d");
        other.warn("a\nb");
        report.absorb(other);
        assert_eq!(report.texts(Severity::Warning), ["a\u{fffd}b"]);
        assert_eq!(report.texts(Severity::Error), ["a\u{fffd}b", "c"]);
        assert_eq!(report.texts(Severity::Deprecated), ["http://********@d"]);
        assert!(report.has(Severity::Deprecated) && !Report::new().has(Severity::Error));
    }

    #[test]
    fn its_size_is_bounded() {
        let mut report = Report::new();
        (0..MAX_ENTRIES + 5).for_each(|i| report.warn(i));
        assert_eq!((report.entries().len(), report.dropped()), (MAX_ENTRIES, 5));
        let mut long = Report::new();
        (0..MAX_ENTRIES).for_each(|i| long.error(format!("{i:06}{}", "é".repeat(10_000))));
        let bytes: usize = long.entries().iter().map(|entry| entry.text.len()).sum();
        assert!(long.entries().len() == MAX_ENTRIES && bytes < 6 << 20, "{bytes}");
        assert!(long.entries()[0].text.ends_with("é\u{2026}"));
    }
}
