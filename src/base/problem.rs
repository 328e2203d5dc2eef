//! Problems as values.
//!
//! Parsers, sources, HTTP clients, renderers and modules add each [`Problem`] to the [`Problems`] that their caller passes, from any
//! thread. Its text is made only where a stage logs it or writes it to status.json. A log message alone never changes the status.

use super::budget;
use super::error::{Error, Result};
use super::mask;
use super::text::{self, MAX_MESSAGE};
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The most problems that are kept; the rest is only counted.
const MAX_ENTRIES: usize = 10_000;
/// Once all problems together have this many bytes, a further one has at most [`SHORT`] instead of [`MAX_MESSAGE`].
const MAX_ALL: usize = 2 << 20;
const SHORT: usize = 256;
/// What a problem takes in memory besides its texts.
const ENTRY_COST: usize = 200;
/// The most problems that one error lists.
const MAX_LISTED: usize = 100;

/// How serious a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Severity {
    /// Something that was asked for was not done. The stage fails (cloud-init's `errors`).
    Error,
    /// Something was ignored or replaced by a default (cloud-init's `recoverable_errors`, `WARNING`).
    #[default]
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

/// One problem. Displayed, it is one line for a person: `origin: key: reason`. Contains no secrets.
#[derive(Debug, Clone)]
pub struct Problem {
    pub severity: Severity,
    /// The document or source that has the problem. Empty if the reason says it.
    pub origin: String,
    /// The path of the key in the document. Empty if the problem is not about one.
    pub key: String,
    /// The expectation, and the action taken instead.
    pub reason: String,
    pub time: SystemTime,
}

impl Problem {
    /// A problem found now.
    pub fn new(severity: Severity, origin: &str, key: &str, reason: impl fmt::Display) -> Problem {
        Problem::of(severity, origin, key, reason.to_string())
    }

    /// The same problem of a document that was read at `place`, a device, a folder or a URL.
    pub fn below(self, place: &str) -> Problem {
        let origin = if self.origin.is_empty() { place.to_owned() } else { format!("{place}: {}", self.origin) };
        Problem { origin, ..self }
    }

    fn of(severity: Severity, origin: &str, key: &str, reason: String) -> Problem {
        Problem { severity, origin: origin.to_owned(), key: key.to_owned(), reason, time: SystemTime::now() }
    }

    /// What makes two problems the same: not the time.
    fn identity(&self) -> (Severity, &str, &str, &str) {
        (self.severity, &self.origin, &self.key, &self.reason)
    }

    /// Makes each part one line, and all together at most `most` bytes.
    fn bound(&mut self, most: usize) {
        let mut left = most;
        for part in [&mut self.origin, &mut self.key, &mut self.reason] {
            *part = if left == 0 { String::new() } else { one_line(part) };
            let is_cut = part.len() > left;
            text::cut(part, left);
            let separator = if part.is_empty() { 0 } else { ": ".len() };
            left = if is_cut { 0 } else { left.saturating_sub(part.len() + separator) };
        }
    }

    fn len(&self) -> usize {
        self.origin.len() + self.key.len() + self.reason.len()
    }
}

impl Eq for Problem {}

impl PartialEq for Problem {
    fn eq(&self, other: &Problem) -> bool {
        self.identity() == other.identity()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for part in [&self.origin, &self.key, &self.reason].into_iter().filter(|part| !part.is_empty()) {
            f.write_str(separator)?;
            f.write_str(part)?;
            separator = ": ";
        }
        Ok(())
    }
}

/// Errors, warnings and deprecations, in the order in which they were found, without duplicates. Shared by all that report to it,
/// across threads too.
#[derive(Debug, Default)]
pub struct Problems(Mutex<Inner>);

#[derive(Debug, Clone, Default)]
struct Inner {
    entries: Vec<Problem>,
    /// The digests of `entries`, for fast lookup.
    seen: HashSet<u64, RandomState>,
    /// How many problems were dropped because there were too many.
    dropped: usize,
    /// How many bytes the texts have.
    size: usize,
}

impl Problems {
    /// No problems.
    pub fn new() -> Problems {
        Problems::default()
    }

    /// Adds something that was asked for and not done.
    pub fn error(&self, reason: impl fmt::Display) {
        self.about("").push(Severity::Error, "", &reason);
    }

    /// Adds something that was ignored or replaced by a default.
    pub fn warn(&self, reason: impl fmt::Display) {
        self.about("").push(Severity::Warning, "", &reason);
    }

    /// Adds a use of something deprecated.
    pub fn deprecated(&self, reason: impl fmt::Display) {
        self.about("").push(Severity::Deprecated, "", &reason);
    }

    /// The sink for the problems of one document or source.
    pub fn about<'p>(&'p self, origin: &'p str) -> About<'p> {
        About { problems: self, origin }
    }

    /// Adds the error of a result; returns its value otherwise.
    pub fn keep<T, E: fmt::Display>(&self, result: std::result::Result<T, E>) -> Option<T> {
        result.map_err(|e| self.error(e)).ok()
    }

    /// Adds one problem.
    pub fn push(&self, mut problem: Problem) {
        let mut inner = self.lock();
        problem.bound(if inner.size > MAX_ALL { SHORT } else { MAX_MESSAGE });
        let cost = problem.len() + ENTRY_COST;
        if inner.add(problem) {
            // It is never refused, since what all of them may take is bounded, and takes nothing of what is left to changes: a
            // document whose files are refused must not cost a user the keys.
            let _ = budget::take(cost);
        }
    }

    /// Adds those of another.
    pub fn absorb(&self, other: Problems) {
        self.absorb_new(other, &[]);
    }

    /// Adds those of another whose texts, as status.json has them, are not `known`.
    pub fn absorb_new(&self, other: Problems, known: &[String]) {
        let other = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.lock();
        inner.dropped += other.dropped;
        let known: HashSet<&str> = known.iter().map(String::as_str).collect();
        let is_new = |problem: &Problem| known.is_empty() || !known.contains(problem.to_string().as_str());
        other.entries.into_iter().filter(is_new).for_each(|problem| _ = inner.add(problem));
    }

    /// Adds those of another, each below `place`.
    pub fn absorb_below(&self, place: &str, other: &Problems) {
        other.entries().into_iter().for_each(|problem| self.push(problem.below(place)));
    }

    /// Combines all into one error on one line: the first [`MAX_LISTED`], and the number of further ones. Ok if there are none.
    ///
    /// # Errors
    /// There is a problem.
    pub fn into_result(self) -> Result<()> {
        let inner = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut texts: Vec<String> = inner.entries.iter().take(MAX_LISTED).map(Problem::to_string).collect();
        match inner.entries.len() + inner.dropped - texts.len() {
            0 if texts.is_empty() => return Ok(()),
            0 => {}
            more => texts.push(format!("and {more} more")),
        }
        Err(Error::new(texts.join("; ")))
    }

    /// Takes all, and leaves none.
    pub fn take(&self) -> Problems {
        Problems(Mutex::new(std::mem::take(&mut *self.lock())))
    }

    /// The problems, oldest first.
    pub fn entries(&self) -> Vec<Problem> {
        self.since(0)
    }

    /// The problems without the first `count`.
    pub fn since(&self, count: usize) -> Vec<Problem> {
        self.lock().entries.get(count..).unwrap_or_default().to_vec()
    }

    /// The texts of one severity, oldest first.
    pub fn texts(&self, severity: Severity) -> Vec<String> {
        self.lock().entries.iter().filter(|e| e.severity == severity).map(Problem::to_string).collect()
    }

    /// The errors, one line each, oldest first.
    pub fn errors(&self) -> Vec<String> {
        self.texts(Severity::Error)
    }

    /// Whether there is a problem of this severity.
    pub fn has(&self, severity: Severity) -> bool {
        self.lock().entries.iter().any(|e| e.severity == severity)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// How many problems were dropped because there were too many.
    pub fn dropped(&self) -> usize {
        self.lock().dropped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Problems {
    fn clone(&self) -> Problems {
        Problems(Mutex::new(self.lock().clone()))
    }
}

impl Eq for Problems {}

impl PartialEq for Problems {
    fn eq(&self, other: &Problems) -> bool {
        self.entries() == other.entries()
    }
}

impl Inner {
    /// Returns whether it was added.
    fn add(&mut self, problem: Problem) -> bool {
        if self.entries.len() == MAX_ENTRIES {
            self.dropped += 1;
            return false;
        }
        let is_new = self.seen.insert(self.seen.hasher().hash_one(problem.identity()));
        if is_new {
            self.size += problem.len();
            self.entries.push(problem);
        }
        is_new
    }
}

/// [`Problems`] for one document or source.
#[derive(Debug, Clone, Copy)]
pub struct About<'p> {
    problems: &'p Problems,
    origin: &'p str,
}

impl About<'_> {
    /// Adds something about the whole that was ignored or replaced by a default.
    pub fn warn(&self, reason: impl fmt::Display) {
        self.push(Severity::Warning, "", &reason);
    }

    /// Adds a value that was ignored or replaced by a default.
    pub fn warn_key(&self, key: &str, reason: impl fmt::Display) {
        self.push(Severity::Warning, key, &reason);
    }

    /// Adds something that was asked for and not done.
    pub fn error(&self, reason: impl fmt::Display) {
        self.push(Severity::Error, "", &reason);
    }

    /// Adds a warning about an ignored value: the expected value, and the one found.
    pub fn reject(&self, key: &str, expected: &str, found: &str) {
        let reason = format!("expected {expected}, found {found}; it is ignored");
        self.problems.push(Problem::of(Severity::Warning, self.origin, key, reason));
    }

    /// Adds a use of something deprecated, which names its document itself.
    pub fn deprecated(&self, reason: impl fmt::Display) {
        self.problems.deprecated(reason);
    }

    fn push(&self, severity: Severity, key: &str, reason: &dyn fmt::Display) {
        self.problems.push(Problem::of(severity, self.origin, key, reason.to_string()));
    }
}

/// The text on one line, without the credentials of URLs. Documents control parts of it, and a line break
/// must not forge another line.
fn one_line(text: &str) -> String {
    mask::hidden(text).replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_once_and_on_one_line() {
        let report = Problems::new();
        report.warn("a\nb");
        report.warn("a\nb");
        report.error("a\nb");
        assert_eq!(report.keep(Err::<(), _>("c")), None);
        let other = Problems::new();
        other.deprecated("http://me:pw@d");
        other.warn("a\nb");
        report.absorb(other);
        assert_eq!(report.texts(Severity::Warning), ["a\u{fffd}b"]);
        assert_eq!(report.texts(Severity::Error), ["a\u{fffd}b", "c"]);
        assert_eq!(report.texts(Severity::Deprecated), ["http://********@d"]);
        assert!(report.has(Severity::Deprecated) && !Problems::new().has(Severity::Error));
    }

    #[test]
    fn problem_names_origin_key_and_reason() {
        let problems = Problems::new();
        let about = problems.about("network configuration");
        about.reject("ethernets.a", "a mapping", "a list");
        about.reject("ethernets.a", "a mapping", "a list");
        about.warn("too much");
        problems.about("").warn_key("k", "");
        let texts = problems.texts(Severity::Warning);
        assert_eq!(texts[0], "network configuration: ethernets.a: expected a mapping, found a list; it is ignored");
        assert_eq!(texts[1..], ["network configuration: too much", "k"]);
        assert_eq!(problems.entries()[0].key, "ethernets.a");
    }

    #[test]
    fn threads_share_one_sink() {
        let problems = Problems::new();
        std::thread::scope(|scope| {
            (0..4).for_each(|n| {
                drop(scope.spawn({
                    let problems = &problems;
                    move || problems.warn(n)
                }))
            })
        });
        assert_eq!((problems.len(), problems.take().len(), problems.is_empty()), (4, 4, true));
    }

    #[test]
    fn its_size_is_bounded() {
        let report = Problems::new();
        (0..MAX_ENTRIES + 5).for_each(|i| report.warn(i));
        assert_eq!((report.len(), report.dropped()), (MAX_ENTRIES, 5));
        let long = Problems::new();
        (0..MAX_ENTRIES).for_each(|i| long.error(format!("{i:06}{}", "é".repeat(10_000))));
        let bytes: usize = long.errors().iter().map(String::len).sum();
        assert!(long.len() == MAX_ENTRIES && bytes < 6 << 20, "{bytes}");
        assert!(long.errors()[0].ends_with("é\u{2026}"));
    }

    #[test]
    fn texts_use_the_stages_budget() {
        let left = || (0..).map(|n| n << 16).take_while(|bytes| budget::check(*bytes).is_ok()).last().unwrap_or(0);
        budget::begin();
        let before = left();
        let problems = Problems::new();
        (0..MAX_ENTRIES).for_each(|i| problems.error(format!("{i:06}{}", "x".repeat(10_000))));
        let after = left();
        assert!((4 << 20..8 << 20).contains(&(before - after)), "{before} {after}");
        // Those that are moved are paid for.
        Problems::new().absorb(problems);
        assert_eq!(left(), after);
    }

    #[test]
    fn an_error_lists_100_problems() {
        let error = |count: usize| {
            let problems = Problems::new();
            (0..count).for_each(|n| problems.error(format_args!("x{n}")));
            problems.into_result().unwrap_err().to_string()
        };
        assert_eq!(error(2), "x0; x1");
        assert_eq!(error(100).matches('x').count(), 100);
        assert!(error(20_000).ends_with("x99; and 19900 more") && error(20_000).len() < 600);
        assert_eq!(Problems::new().into_result(), Ok(()));
    }

    #[test]
    fn long_key_is_cut_as_in_one_text() {
        let (key, reason) = ("é".repeat(10_000), "r".repeat(10_000));
        for (key, reason) in [(key.as_str(), "r"), ("k", reason.as_str())] {
            let (parts, whole) = (Problems::new(), Problems::new());
            parts.about("o").warn_key(key, reason);
            whole.warn(format_args!("o: {key}: {reason}"));
            assert_eq!(parts.texts(Severity::Warning), whole.texts(Severity::Warning));
        }
    }
}
