//! Tokenizes a template: the text between tags, and what is in tags (jinja2's lexer with `trim_blocks`).

use super::budget::{Step, fail};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Operators and punctuation; one that begins with another comes before it.
pub const SIGNS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",",
];

/// The longest name, in bytes: to look it up takes a step, whatever its length.
const MAX_NAME: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
pub enum Token<'a> {
    /// Text outside of all tags.
    Data(&'a str),
    /// `{{` and `}}`.
    PrintBegin,
    PrintEnd,
    /// `{%` and `%}`.
    BlockBegin,
    BlockEnd,
    Name(&'a str),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Sign(&'static str),
    End,
}

/// The kind of the current tag, which decides its end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Data,
    Print,
    Block,
}

/// Produces tokens on demand.
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    mode: Mode,
    /// The open brackets in the tag.
    brackets: Vec<char>,
    /// Whether the start of the following text is stripped: the previous tag ended in `-`, or is a block and
    /// a line break follows.
    strip_next: bool,
    ahead: VecDeque<(Token<'a>, usize)>,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer {
            text,
            at: 0,
            line: 1,
            mode: Mode::Data,
            brackets: Vec::new(),
            strip_next: false,
            ahead: VecDeque::new(),
        }
    }

    /// The line of the next token, from 1.
    pub fn line(&self) -> usize {
        self.ahead.front().map_or(self.line, |(_, line)| *line)
    }

    /// The next token, without consuming it; [`Token::End`] at the end, any number of times.
    pub fn peek(&mut self) -> Step<&Token<'a>> {
        self.peek_at(0)
    }

    /// The token after `skip` others, without consuming it.
    pub fn peek_at(&mut self, skip: usize) -> Step<&Token<'a>> {
        while self.ahead.len() <= skip {
            let token = self.scan()?;
            self.ahead.push_back(token);
        }
        Ok(self.ahead.get(skip).map_or(&Token::End, |(token, _)| token))
    }

    /// Consumes the next token.
    pub fn next(&mut self) -> Step<Token<'a>> {
        self.peek()?;
        Ok(self.ahead.pop_front().map_or(Token::End, |(token, _)| token))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        self.at += taken.len();
        self.line += taken.matches('\n').count();
        taken
    }

    fn scan(&mut self) -> Step<(Token<'a>, usize)> {
        loop {
            let found = if self.mode == Mode::Data { self.data()? } else { Some(self.inside()?) };
            if let Some(token) = found {
                return Ok(token);
            }
        }
    }

    /// The text up to the next tag, or the beginning of the tag if there is no text. None after a comment.
    fn data(&mut self) -> Step<Option<(Token<'a>, usize)>> {
        if std::mem::take(&mut self.strip_next) {
            let blanks = self.rest().len() - self.rest().trim_start().len();
            self.take(blanks);
        }
        let line = self.line;
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(Some((Token::End, line)));
        }
        let opening =
            rest.match_indices('{').find(|(i, _)| rest.as_bytes().get(i + 1).is_some_and(|b| b"{%#".contains(b)));
        let Some((start, _)) = opening else { return Ok(Some((Token::Data(self.take(rest.len())), line))) };
        let tag = rest.get(start..).unwrap_or_default();
        let sign = tag.as_bytes().get(2).copied().filter(|b| matches!(b, b'-' | b'+'));
        let mut data = self.take(start);
        if sign == Some(b'-') {
            data = data.trim_end();
        }
        if !data.is_empty() {
            return Ok(Some((Token::Data(data), line)));
        }
        let line = self.line;
        match tag.as_bytes().get(1) {
            Some(b'#') => self.comment().map(|()| None),
            Some(b'%') => {
                self.take(2 + usize::from(sign.is_some()));
                if let Some(raw) = self.raw()? {
                    return Ok(Some((Token::Data(raw), line)));
                }
                self.mode = Mode::Block;
                Ok(Some((Token::BlockBegin, line)))
            }
            _ => {
                self.take(2 + usize::from(sign.is_some()));
                self.mode = Mode::Print;
                Ok(Some((Token::PrintBegin, line)))
            }
        }
    }

    /// After a block or comment: with `-` the white space that follows is skipped, and without `+` a line
    /// break.
    fn after_block(&mut self, sign: Option<u8>) {
        match sign {
            Some(b'-') => self.strip_next = true,
            Some(_) => {}
            None if self.rest().starts_with('\n') => drop(self.take(1)),
            None => {}
        }
    }

    fn comment(&mut self) -> Step<()> {
        self.take(2);
        if self.rest().starts_with(['-', '+']) {
            self.take(1);
        }
        let Some(end) = self.rest().find("#}") else { return fail("a comment that does not end") };
        let inside = self.take(end);
        let sign = inside.bytes().last().filter(|b| matches!(b, b'-' | b'+'));
        self.take(2);
        self.after_block(sign);
        Ok(())
    }

    /// The text between `{% raw %}` and `{% endraw %}`, if the tag just opened is the former.
    fn raw(&mut self) -> Step<Option<&'a str>> {
        let Some((width, sign)) = lone_word(self.rest(), "raw") else { return Ok(None) };
        self.take(width);
        // jinja2 keeps the line break after the opening tag.
        let ends = self.rest().match_indices("{%").find_map(|(start, _)| {
            let tag = self.rest().get(start + 2..)?;
            let open = tag.as_bytes().first().copied().filter(|b| matches!(b, b'-' | b'+'));
            let (width, close) = lone_word(tag.get(usize::from(open.is_some())..)?, "endraw")?;
            Some((start, 2 + usize::from(open.is_some()) + width, open, close))
        });
        let Some((start, width, open, close)) = ends else { return fail("a raw block that does not end") };
        let mut raw = self.take(start);
        self.take(width);
        self.after_block(close);
        if sign == Some(b'-') {
            raw = raw.trim_start();
        }
        if open == Some(b'-') {
            raw = raw.trim_end();
        }
        Ok(Some(raw))
    }

    fn inside(&mut self) -> Step<(Token<'a>, usize)> {
        let blanks = self.rest().len() - self.rest().trim_start().len();
        self.take(blanks);
        let (line, rest) = (self.line, self.rest());
        if self.brackets.is_empty()
            && let Some(end) = self.tag_end()
        {
            return Ok((end, line));
        }
        let Some(first) = rest.chars().next() else { return fail("a tag that does not end") };
        let token = match first {
            '"' | '\'' => self.string(first)?,
            c if c.is_ascii_digit() => self.number()?,
            c if c == '_' || c.is_alphabetic() => {
                let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
                if end > MAX_NAME {
                    return fail(format!("a name longer than {MAX_NAME} bytes"));
                }
                Token::Name(self.take(end))
            }
            _ => self.sign()?,
        };
        Ok((token, line))
    }

    fn tag_end(&mut self) -> Option<Token<'a>> {
        let rest = self.rest();
        let (close, token) = match self.mode {
            Mode::Print => ("}}", Token::PrintEnd),
            _ => ("%}", Token::BlockEnd),
        };
        let sign = rest.as_bytes().first().copied().filter(|b| matches!(b, b'-' | b'+'));
        let signed = sign.filter(|_| rest.get(1..).is_some_and(|r| r.starts_with(close)));
        if signed.is_none() && !rest.starts_with(close) {
            return None;
        }
        self.take(2 + usize::from(signed.is_some()));
        match self.mode {
            Mode::Block => self.after_block(signed),
            _ => self.strip_next = signed == Some(b'-'),
        }
        self.mode = Mode::Data;
        Some(token)
    }

    fn sign(&mut self) -> Step<Token<'a>> {
        let Some(sign) = SIGNS.iter().find(|s| self.rest().starts_with(**s)) else {
            return fail("a character that no expression has");
        };
        self.take(sign.len());
        match *sign {
            "(" => self.brackets.push(')'),
            "[" => self.brackets.push(']'),
            "{" => self.brackets.push('}'),
            ")" | "]" | "}" if self.brackets.pop().is_none_or(|open| !sign.starts_with(open)) => {
                return fail(format!("a {sign} without its opening bracket"));
            }
            _ => {}
        }
        Ok(Token::Sign(sign))
    }

    fn string(&mut self, quote: char) -> Step<Token<'a>> {
        self.take(1);
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return fail("a string that does not end") };
        let text = self.take(end);
        self.take(1);
        Ok(Token::Text(if text.contains('\\') { unescaped(text)?.into() } else { text.into() }))
    }

    /// Python's numbers: `1_000`, `0x1f`, `0o17`, `0b11`, `1.5`, `1e3`.
    fn number(&mut self) -> Step<Token<'a>> {
        let rest = self.rest();
        for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
            if rest.starts_with(prefixes[0]) || rest.starts_with(prefixes[1]) {
                let digits = rest.get(2..).unwrap_or_default();
                let end = digits.find(|c: char| c != '_' && !c.is_digit(radix)).unwrap_or(digits.len());
                let text = self.take(2 + end).get(2..).unwrap_or_default().replace('_', "");
                return i64::from_str_radix(&text, radix).map(Token::Int).or_else(|_| fail("a number out of range"));
            }
        }
        let digits = |text: &str| text.find(|c: char| c != '_' && !c.is_ascii_digit()).unwrap_or(text.len());
        let mut end = digits(rest);
        let mut float = false;
        let after = |end: usize| rest.get(end..).unwrap_or_default();
        if after(end).starts_with('.') && after(end + 1).starts_with(|c: char| c.is_ascii_digit()) {
            end += 1 + digits(after(end + 1));
            float = true;
        }
        if after(end).starts_with(['e', 'E']) {
            let sign = usize::from(after(end + 1).starts_with(['+', '-']));
            let exponent = digits(after(end + 1 + sign));
            if exponent > 0 {
                end += 1 + sign + exponent;
                float = true;
            }
        }
        let text = self.take(end).replace('_', "");
        let number = if float { text.parse().ok().map(Token::Float) } else { text.parse().ok().map(Token::Int) };
        number.map_or_else(|| fail("a number out of range"), Ok)
    }
}

/// If `word` is all that is inside a tag: the length up to and including the tag's end, and the sign before
/// that end.
fn lone_word(inside: &str, word: &str) -> Option<(usize, Option<u8>)> {
    let rest = inside.trim_start().strip_prefix(word)?.trim_start();
    let sign = rest.as_bytes().first().copied().filter(|b| matches!(b, b'-' | b'+'));
    let after = rest.get(usize::from(sign.is_some())..)?.strip_prefix("%}")?;
    Some((inside.len() - after.len(), sign))
}

/// Python's escapes.
fn unescaped(text: &str) -> Step<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let Some(sign) = after.chars().next() else { break };
        let mut width = sign.len_utf8();
        let digits = match sign {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        match sign {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'v' => out.push('\u{b}'),
            '\\' | '\'' | '"' => out.push(sign),
            '\n' => {}
            '0'..='7' => {
                width = after.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let code = u32::from_str_radix(after.get(..width).unwrap_or_default(), 8).ok().and_then(char::from_u32);
                out.extend(code);
            }
            _ if digits > 0 => {
                let code = after.get(1..=digits).and_then(|d| u32::from_str_radix(d, 16).ok()).and_then(char::from_u32);
                let Some(code) = code else { return fail("an escape that is not a character's code") };
                out.push(code);
                width += digits;
            }
            other => {
                out.push('\\');
                out.push(other);
            }
        }
        rest = after.get(width..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(out)
}
