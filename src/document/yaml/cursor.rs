//! A position in YAML text: lookahead, line breaks, and runs of characters.

/// An error and its position: line and column from 0.
#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub mark: Mark,
}

/// The result of a parsing step.
pub type Step<T> = Result<T, Box<Failure>>;

/// A position: line and column from 0, in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
    /// The offset in bytes.
    pub offset: usize,
}

/// Reads forward through a text.
pub struct Cursor<'a> {
    text: &'a str,
    pub mark: Mark,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Cursor { text, mark: Mark::default() }
    }

    /// The remaining text.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.mark.offset..).unwrap_or_default()
    }

    /// The next byte; None at the end. All of YAML's indicators are ASCII.
    pub fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// The byte `ahead` bytes after the position.
    pub fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.mark.offset + ahead).copied()
    }

    /// Whether white space, a line break or the end is `ahead` bytes after the position.
    pub fn is_blank_at(&self, ahead: usize) -> bool {
        let rest = self.text.get(self.mark.offset + ahead..).unwrap_or_default();
        rest.is_empty() || rest.starts_with([' ', '\t']) || break_width(rest) > 0
    }

    pub fn is_break(&self) -> bool {
        break_width(self.rest()) > 0
    }

    pub fn at_end(&self) -> bool {
        self.mark.offset >= self.text.len()
    }

    /// Consumes text on one line, and returns it.
    pub fn take(&mut self, bytes: usize) -> &'a str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        self.mark.offset += taken.len();
        self.mark.column += if taken.is_ascii() { taken.len() } else { taken.chars().count() };
        taken
    }

    /// Consumes characters for which `kind` is true, up to a line break, and returns them.
    pub fn take_while(&mut self, kind: impl Fn(char) -> bool) -> &'a str {
        self.take(run(self.rest(), |c| !is_break(c) && kind(c)))
    }

    /// Consumes a line break, and returns its value: `\n`, or a Unicode line break as it is. Empty if there
    /// is none.
    pub fn take_break(&mut self) -> &'a str {
        let rest = self.rest();
        let width = break_width(rest);
        if width == 0 {
            return "";
        }
        self.mark.offset += width;
        self.mark.line += 1;
        self.mark.column = 0;
        if width == 3 { rest.get(..3).unwrap_or_default() } else { "\n" }
    }

    /// Whether `---` or `...` stands here as a word at the start of a line.
    pub fn at_document_mark(&self, mark: &str) -> bool {
        self.mark.column == 0 && self.rest().starts_with(mark) && self.is_blank_at(mark.len())
    }

    /// An error at this position.
    pub fn fail<T>(&self, what: impl Into<String>) -> Step<T> {
        Err(Box::new(Failure { what: what.into(), mark: self.mark }))
    }
}

/// The characters that end a line (YAML 1.1, 4.1.4).
pub fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn break_width(text: &str) -> usize {
    match text.chars().next() {
        Some('\r') if text.starts_with("\r\n") => 2,
        Some(c) if is_break(c) => c.len_utf8(),
        _ => 0,
    }
}

/// How many bytes at the start of a text are characters of a kind. ASCII, which most of a large document is,
/// is checked byte by byte: decoding characters takes ten times as long.
pub fn run(text: &str, kind: impl Fn(char) -> bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let c =
            if byte.is_ascii() { Some(char::from(*byte)) } else { text.get(at..).and_then(|rest| rest.chars().next()) };
        match c {
            Some(c) if kind(c) => at += c.len_utf8(),
            _ => break,
        }
    }
    at
}

/// Whether all characters are allowed in YAML text.
pub fn all_printable(text: &str) -> bool {
    run(text, is_printable) == text.len()
}

/// Whether a character is allowed in YAML text (YAML 1.1, 4.1.1).
pub fn is_printable(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}
