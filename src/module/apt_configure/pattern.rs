//! The regular expression of `add_apt_repo_match` (Python's `re`, without back references, look-around and counts).
//!
//! By hand: the smallest crate for this adds 57 KB to the program for one rarely used setting. A pattern becomes a list of
//! steps that are followed in parallel, so that the time is the product of both lengths, whatever the pattern.

use crate::base::error::{Error, Result};

/// The longest pattern, in characters.
const MAX_PATTERN: usize = 256;
/// How deep groups may be nested.
const MAX_DEPTH: usize = 16;

/// A pattern, ready to be searched for.
pub struct Pattern(Vec<Step>);

/// Targets are relative to the step.
#[derive(Clone)]
enum Step {
    /// One character: whether it must not be one of these, and the sets.
    One(bool, Vec<Set>),
    Start,
    End,
    Split(isize, isize),
}

#[derive(Clone, Copy)]
enum Set {
    Range(char, char),
    /// `\w`, `\d` or `\s`; with true, their opposite.
    Class(char, bool),
}

impl Set {
    fn has(self, c: char) -> bool {
        match self {
            Set::Range(from, to) => (from..=to).contains(&c),
            Set::Class(class, negated) => {
                let is_in = match class {
                    'w' => c.is_alphanumeric() || c == '_',
                    'd' => c.is_numeric(),
                    _ => c.is_whitespace(),
                };
                is_in != negated
            }
        }
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is longer than 256 characters, malformed, or uses what is not supported.
    pub fn new(text: &str) -> Result<Pattern> {
        let mut parser = Parser { rest: text.chars().collect(), at: 0 };
        if parser.rest.len() > MAX_PATTERN {
            return Err(Error::new(format!("a pattern longer than {MAX_PATTERN} characters")));
        }
        let steps = parser.alternatives(0)?;
        match parser.next() {
            None => Ok(Pattern(steps)),
            Some(_) => Err(Error::new("an unbalanced parenthesis in the pattern")),
        }
    }

    /// Whether the pattern occurs somewhere in `text` (`re.search`).
    pub fn is_in(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let mut waiting: Vec<usize> = Vec::new();
        for at in 0..=text.len() {
            waiting.push(0);
            let mut seen = vec![false; self.0.len()];
            let mut next = Vec::new();
            while let Some(index) = waiting.pop() {
                let Some(step) = self.0.get(index) else { return true };
                if std::mem::replace(&mut seen[index], true) {
                    continue;
                }
                match step {
                    Step::One(negated, sets) => {
                        if text.get(at).is_some_and(|c| sets.iter().any(|s| s.has(*c)) != *negated) {
                            next.push(index + 1);
                        }
                    }
                    Step::Start if at == 0 => waiting.push(index + 1),
                    Step::End if text.get(at..).is_some_and(|rest| matches!(rest, [] | ['\n'])) => {
                        waiting.push(index + 1)
                    }
                    Step::Start | Step::End => {}
                    Step::Split(one, other) => {
                        waiting.extend([one, other].iter().filter_map(|to| index.checked_add_signed(**to)));
                    }
                }
            }
            waiting = next;
        }
        false
    }
}

struct Parser {
    rest: Vec<char>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn takes(&mut self, c: char) -> bool {
        let is_next = self.peek() == Some(c);
        self.at += usize::from(is_next);
        is_next
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Step>> {
        if depth > MAX_DEPTH {
            return Err(Error::new("too many groups in each other in the pattern"));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.takes('|') {
            all.push(self.sequence(depth)?);
        }
        let last = all.pop().unwrap_or_default();
        Ok(all.into_iter().rfold(last, |rest, one| {
            let (over, end) = (one.len() as isize + 2, rest.len() as isize + 1);
            [vec![Step::Split(1, over)], one, vec![Step::Split(end, end)], rest].concat()
        }))
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        while self.peek().is_some_and(|c| !matches!(c, '|' | ')')) {
            let atom = self.atom(depth)?;
            let length = atom.len() as isize;
            let repeated = match self.peek() {
                Some('*') => {
                    [vec![Step::Split(1, length + 2)], atom, vec![Step::Split(-length - 1, -length - 1)]].concat()
                }
                Some('+') => [atom, vec![Step::Split(-length, 1)]].concat(),
                Some('?') => [vec![Step::Split(1, length + 1)], atom].concat(),
                Some('{') => return Err(Error::new("counts in braces are not supported in the pattern")),
                _ => {
                    steps.extend(atom);
                    continue;
                }
            };
            self.at += 1;
            // Whether as much or as little as possible is taken makes no difference to whether it occurs.
            self.takes('?');
            steps.extend(repeated);
        }
        Ok(steps)
    }

    fn atom(&mut self, depth: usize) -> Result<Vec<Step>> {
        let one = |set| vec![Step::One(false, vec![set])];
        Ok(match self.next() {
            Some('^') => vec![Step::Start],
            Some('$') => vec![Step::End],
            Some('.') => vec![Step::One(true, vec![Set::Range('\n', '\n')])],
            Some('(') => {
                if self.takes('?') && !self.takes(':') {
                    return Err(Error::new("only plain groups are supported in the pattern"));
                }
                let group = self.alternatives(depth + 1)?;
                if !self.takes(')') {
                    return Err(Error::new("an unbalanced parenthesis in the pattern"));
                }
                group
            }
            Some('[') => vec![self.class()?],
            Some('\\') => one(self.escape()?),
            Some('*' | '+' | '?') | None => return Err(Error::new("nothing to repeat in the pattern")),
            Some(c) => one(Set::Range(c, c)),
        })
    }

    fn escape(&mut self) -> Result<Set> {
        match self.next() {
            Some(c @ ('w' | 'd' | 's')) => Ok(Set::Class(c, false)),
            Some(c @ ('W' | 'D' | 'S')) => Ok(Set::Class(c.to_ascii_lowercase(), true)),
            Some(c) if !c.is_alphanumeric() => Ok(Set::Range(c, c)),
            _ => Err(Error::new("an escape of the pattern is not supported")),
        }
    }

    fn class(&mut self) -> Result<Step> {
        let negated = self.takes('^');
        let mut sets = Vec::new();
        loop {
            let set = match self.next() {
                None => return Err(Error::new("an unterminated class in the pattern")),
                Some(']') if !sets.is_empty() => return Ok(Step::One(negated, sets)),
                Some('\\') => self.escape()?,
                Some(c) => Set::Range(c, c),
            };
            let is_range = self.peek() == Some('-') && self.rest.get(self.at + 1).is_some_and(|c| *c != ']');
            match set {
                Set::Range(from, _) if is_range => {
                    self.at += 1;
                    match self.next() {
                        Some(to) if to != '\\' => sets.push(Set::Range(from, to)),
                        _ => return Err(Error::new("an unsupported range in the pattern")),
                    }
                }
                set => sets.push(set),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_as_python_finds_them() {
        for (pattern, text, expected) in [
            (r"^[\w-]+:\w", "ppa:user/name", true),
            (r"^[\w-]+:\w", "cloud-archive:x", true),
            (r"^[\w-]+:\w", "deb http://x y z", false),
            (r"^[\w-]+:\w", "Types: deb", false),
            ("^special:", "special:x", true),
            ("^special:", "a special:x", false),
            ("special", "a special:x", true),
            ("^(ppa|cloud-archive):", "cloud-archive:x", true),
            ("^(?:ppa|cloud-archive):", "archive:x", false),
            ("a.?c$", "xabc", true),
            ("a.?c$", "xabbc", false),
            ("a.*?c", "abbbc", true),
            ("^[^a-c]+$", "def", true),
            ("^[^a-c]+$", "dbf", false),
            (r"\.com/[]x]", "a.com/]", true),
            ("", "", true),
            ("(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false),
            ("()*x", "x", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().is_in(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn malformed_or_unsupported_pattern_is_an_error() {
        let deep = "(".repeat(100);
        let long = "a".repeat(1000);
        for pattern in ["(", ")", "a{2}", "(?=a)", r"\b", r"\1", "[a", "[]", "*", "+a", "\\", &deep, &long] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
