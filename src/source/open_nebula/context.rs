//! Parses context.sh, a shell script of assignments, without a shell.
//!
//! Follows POSIX.1-2024, "Shell Command Language", sections 2.2 (quoting) and 2.6.2 (parameter expansion), as
//! far as assignments need them. Nothing is executed: commands and command substitutions are problems.

use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value};

/// The most bytes of all values together: values may refer to each other.
const MAX_TEXT: usize = 8 << 20;
/// The most assignments and problems that are kept.
const MAX_ASSIGNMENTS: usize = 10_000;
const MAX_PROBLEMS: usize = 20;

/// The variables that a context.sh sets.
#[derive(Debug, Default)]
pub struct Context {
    /// Variables and their values, in the script's order.
    pub variables: Map,
    /// Ignored parts, one line each, without values.
    pub problems: Problems,
}

/// Reads the assignments of a script: `NAME=value` in any quoting, with or without `export`, and with `$NAME`
/// of earlier ones.
///
/// # Errors
/// A quote is not terminated, or there are too many assignments or too much text.
pub fn parse(text: &str) -> Result<Context> {
    let mut reader = Reader { text, at: 0, left: MAX_TEXT, context: Context::default() };
    while reader.statement()? {}
    Ok(reader.context)
}

struct Reader<'a> {
    text: &'a str,
    /// The offset of the next character, in bytes.
    at: usize,
    /// How many more bytes values may have.
    left: usize,
    context: Context,
}

/// The value of a word; None if it needs a shell.
type Word = Option<String>;

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Takes the text up to the next `end`, and `end`.
    fn until(&mut self, end: char) -> Result<&'a str> {
        let (inside, _) =
            self.rest().split_once(end).ok_or_else(|| self.error(&format!("there is no closing {end}")))?;
        self.at += inside.len() + end.len_utf8();
        Ok(inside)
    }

    /// Skips characters.
    fn skip(&mut self, passes: impl Fn(char) -> bool) {
        self.at += self.rest().len() - self.rest().trim_start_matches(passes).len();
    }

    fn error(&self, what: &str) -> Error {
        Error::new(format!("context.sh: line {}: {what}", self.line()))
    }

    fn line(&self) -> usize {
        1 + self.text.get(..self.at).unwrap_or_default().matches('\n').count()
    }

    fn problem(&mut self, what: &str) {
        if self.context.problems.len() < MAX_PROBLEMS {
            let problem = self.error(what).to_string();
            self.context.problems.warn(problem);
        }
    }

    /// Reads to the end of the next assignment, command or comment. Returns false at the end of the script.
    fn statement(&mut self) -> Result<bool> {
        self.skip(|c| c.is_whitespace() || c == ';');
        let name = name(self.rest());
        match self.rest().strip_prefix(name) {
            None | Some("") if name.is_empty() => return Ok(false),
            Some(after) if after.starts_with('#') && name.is_empty() => self.skip(|c| c != '\n'),
            Some(after) if after.starts_with('=') && !name.is_empty() => {
                self.at += name.len() + 1;
                self.assignment(name)?;
            }
            // An exported variable is assigned in the same line, or was before.
            Some(after) if name == "export" && after.starts_with(char::is_whitespace) => self.at += name.len(),
            _ => self.command()?,
        }
        Ok(true)
    }

    fn assignment(&mut self, name: &str) -> Result<()> {
        if self.context.variables.len() >= MAX_ASSIGNMENTS {
            return Err(self.error("there are too many assignments"));
        }
        match self.word()? {
            Some(value) => drop(self.context.variables.insert(name, value)),
            None => self.problem(&format!("{name} needs a shell, which is never used: it is ignored")),
        }
        Ok(())
    }

    /// Skips a command.
    fn command(&mut self) -> Result<()> {
        self.problem("this is no assignment, and commands are never run: it is ignored");
        while self.peek().is_some_and(|c| c != '\n' && c != ';') {
            self.word()?;
            self.skip(|c| c != '\n' && c != ';' && (c.is_whitespace() || is_operator(c)));
        }
        Ok(())
    }

    /// Reads a word, in any quoting, up to white space or an operator.
    fn word(&mut self) -> Result<Word> {
        let mut word = Some(String::new());
        while let Some(c) = self.peek().filter(|c| !c.is_whitespace() && !is_operator(*c)) {
            self.at += c.len_utf8();
            match c {
                '\'' => {
                    let text = self.until('\'')?;
                    self.add(&mut word, text)?;
                }
                '"' => self.double_quoted(&mut word)?,
                '\\' => self.escaped(&mut word, |_| true)?,
                '$' | '`' => self.expansion(c, &mut word)?,
                c => self.add(&mut word, c.encode_utf8(&mut [0; 4]))?,
            }
        }
        Ok(word)
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<()> {
        loop {
            match self.next() {
                None => return Err(self.error("there is no closing \"")),
                Some('"') => return Ok(()),
                Some('\\') => self.escaped(word, |c| matches!(c, '$' | '`' | '"' | '\\'))?,
                Some(c @ ('$' | '`')) => self.expansion(c, word)?,
                Some(c) => self.add(word, c.encode_utf8(&mut [0; 4]))?,
            }
        }
    }

    /// A backslash sequence: it quotes the characters for which `quotes` is true, and joins lines; before other
    /// characters the backslash is literal.
    fn escaped(&mut self, word: &mut Word, quotes: fn(char) -> bool) -> Result<()> {
        match self.next() {
            Some('\n') => Ok(()),
            Some(c) => {
                if !quotes(c) {
                    self.add(word, "\\")?;
                }
                self.add(word, c.encode_utf8(&mut [0; 4]))
            }
            None => self.add(word, "\\"),
        }
    }

    /// An expansion after `$` or a backquote: the value of an earlier variable, or something that needs a shell.
    fn expansion(&mut self, first: char, word: &mut Word) -> Result<()> {
        let variable = match (first, self.peek()) {
            ('`', _) => {
                self.until('`')?;
                None
            }
            (_, Some('{')) => {
                self.at += 1;
                let inside = self.until('}')?;
                Some(inside).filter(|inside| !inside.is_empty() && name(inside) == *inside)
            }
            (_, Some('(')) => {
                self.parentheses()?;
                None
            }
            // A special parameter of the shell.
            (_, Some('0'..='9' | '@' | '*' | '#' | '?' | '-' | '$' | '!')) => None,
            _ => match name(self.rest()) {
                "" => return self.add(word, "$"),
                name => {
                    self.at += name.len();
                    Some(name)
                }
            },
        };
        match variable {
            // A word that is ignored anyway needs no values.
            Some(_) if word.is_none() => Ok(()),
            Some(name) => {
                let value = self.context.variables.get(name).and_then(Value::text).unwrap_or_default();
                self.add(word, &value)
            }
            None => {
                *word = None;
                Ok(())
            }
        }
    }

    /// Skips a command substitution.
    fn parentheses(&mut self) -> Result<()> {
        let mut open = 0usize;
        loop {
            match self.next() {
                None => return Err(self.error("there is no closing )")),
                Some('(') => open += 1,
                Some(')') => open -= 1,
                Some(quote @ ('\'' | '"')) => drop(self.until(quote)?),
                Some(_) => {}
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    fn add(&mut self, word: &mut Word, text: &str) -> Result<()> {
        if let Some(word) = word {
            self.left = self.left.checked_sub(text.len()).ok_or_else(|| self.error("the values are too long"))?;
            word.push_str(text);
        }
        Ok(())
    }
}

/// The variable name at the beginning of `text`; empty if there is none.
fn name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    text.get(..end).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())).unwrap_or_default()
}

/// Characters that end a word without being part of it.
fn is_operator(c: char) -> bool {
    matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_in_any_quoting() {
        let script = "# Context\nA='it'\\''s'\nB=\"a \\\"b\\\" \\x $A\" C=x\\ y; export D=${C}z\nE='two\nlines' # c\nF=\nG=$ H=\"a\\\nb\"\nA=last\n";
        let context = parse(script).unwrap();
        let all: Vec<(&str, String)> = context.variables.iter().map(|(k, v)| (k, v.text().unwrap())).collect();
        let expected = [
            ("A", "last"),
            ("B", "a \"b\" \\x it's"),
            ("C", "x y"),
            ("D", "x yz"),
            ("E", "two\nlines"),
            ("F", ""),
            ("G", "$"),
            ("H", "ab"),
        ];
        assert_eq!(all, expected.map(|(k, v)| (k, v.to_owned())));
        assert_eq!(context.problems, Problems::new());
    }

    #[test]
    fn nothing_is_run() {
        let script = "A=$(touch /tmp/x; echo ')')\nB=`id`\nC=1\nrm -rf \"/a b\" >x && y\nD=${C:-2}\nE=$1\nF=ok\n";
        let context = parse(script).unwrap();
        assert_eq!(context.variables.keys().collect::<Vec<_>>(), ["C", "F"]);
        assert_eq!(context.problems.len(), 5, "{:?}", context.problems);
        assert!(
            context.problems.entries()[2].to_string().starts_with("context.sh: line 4: this is no assignment"),
            "{:?}",
            context.problems
        );
    }

    #[test]
    fn unterminated_or_oversized_input_is_an_error() {
        for script in ["A='x", "A=\"x", "A=`x", "A=$(x", "A=${x", "cmd 'x"] {
            assert!(parse(script).unwrap_err().to_string().starts_with("context.sh: line "), "{script}");
        }
        let mut doubling = format!("A={}\n", "x".repeat(1000));
        (0..40).for_each(|_| doubling.push_str("A=$A$A\n"));
        assert!(parse(&doubling).is_err());
        assert!(parse(&"a\n".repeat(200_000)).unwrap().problems.len() <= MAX_PROBLEMS);
        let valid = "A='it'\\''s'\nB=\"a $A ${A}\" C=$(x) `y` # z\nexport D=é\n";
        crate::base::testing::mutations(valid.as_bytes(), 3000, |bytes| {
            match parse(&String::from_utf8_lossy(bytes)) {
                // No command's output takes the place of a value.
                Ok(context) => {
                    assert!(context.variables.iter().all(|(variable, _)| name(variable) == variable), "{bytes:?}")
                }
                Err(e) => assert!(e.to_string().starts_with("context.sh: line "), "{e}"),
            }
        });
    }

    /// A word that needs a shell is ignored, and what it names is not copied for each time that it is named.
    #[test]
    fn what_is_ignored_costs_nothing() {
        let script = format!("A='{}'\nB=$1{}\nC=c\n", "x".repeat(1 << 20), "$A".repeat(200_000));
        let before = crate::base::testing::cpu_time();
        let context = parse(&script).unwrap();
        assert_eq!((context.variables.len(), context.problems.len()), (2, 1));
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(5));
    }
}
