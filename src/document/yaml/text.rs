//! Scans scalars: plain, quoted, and block scalars.

use super::cursor::{Step, is_break, run};
use super::token::Tokens;

impl Tokens<'_> {
    /// A plain scalar, which continues on lines that are indented more than the surrounding block (YAML 1.1,
    /// 9.1.3).
    pub(super) fn plain_text(&mut self) -> String {
        let indent = self.indent.map_or(0, |i| i + 1);
        let mut text = String::new();
        let mut spaces = String::new();
        loop {
            let run = self.plain_run();
            if run == 0 {
                return text;
            }
            self.key_allowed = false;
            text.push_str(&spaces);
            text.push_str(self.cursor.take(run));
            spaces = self.plain_spaces();
            let outdented = !self.in_flow() && self.cursor.mark.column < indent;
            if spaces.is_empty() || self.cursor.peek() == Some(b'#') || outdented {
                return text;
            }
        }
    }

    /// How many bytes continue a plain scalar: up to white space, or a character that ends it.
    fn plain_run(&self) -> usize {
        let flow = self.in_flow();
        let rest = self.cursor.rest();
        if rest.starts_with('#') {
            return 0;
        }
        let mut at = 0;
        loop {
            at += run(rest.get(at..).unwrap_or_default(), |c| match c {
                ' ' | '\t' | ':' => false,
                ',' | '[' | ']' | '{' | '}' => !flow,
                c => !is_break(c),
            });
            let ends = self.cursor.peek_at(at) != Some(b':')
                || self.cursor.is_blank_at(at + 1)
                || (flow && self.cursor.peek_at(at + 1).is_some_and(|b| b",[]{}".contains(&b)));
            if ends {
                return at;
            }
            at += 1;
        }
    }

    /// The white space between words; a single line break becomes a space. Empty if the document ends.
    fn plain_spaces(&mut self) -> String {
        let blanks = self.cursor.take_while(|c| matches!(c, ' ' | '\t'));
        if !self.cursor.is_break() {
            return blanks.to_owned();
        }
        let first = self.cursor.take_break();
        self.key_allowed |= !self.in_flow();
        let mut breaks = String::new();
        loop {
            if self.cursor.at_document_mark("---") || self.cursor.at_document_mark("...") {
                return String::new();
            }
            self.cursor.take_while(|c| c == ' ');
            match self.cursor.take_break() {
                "" => return folded(first, &breaks),
                more => breaks.push_str(more),
            }
        }
    }

    /// A quoted scalar (YAML 1.1, 9.1.1 and 9.1.2). Its lines may be indented arbitrarily.
    pub(super) fn quoted(&mut self, double: bool) -> Step<String> {
        let quote = if double { b'"' } else { b'\'' };
        let mut text = String::new();
        self.cursor.take(1);
        loop {
            text.push_str(self.cursor.take_while(|c| !matches!(c, ' ' | '\t' | '\'' | '"') && (!double || c != '\\')));
            match self.cursor.peek() {
                None => return self.cursor.fail("a quoted text that does not end"),
                Some(b'\'') if !double && self.cursor.peek_at(1) == Some(b'\'') => {
                    text.push('\'');
                    self.cursor.take(2);
                }
                Some(b) if b == quote => {
                    self.cursor.take(1);
                    return Ok(text);
                }
                Some(b'\\') if double => self.escape(&mut text)?,
                Some(b'\'' | b'"') => text.push_str(self.cursor.take(1)),
                Some(_) => self.quoted_spaces(&mut text)?,
            }
        }
    }

    fn quoted_spaces(&mut self, text: &mut String) -> Step<()> {
        let blanks = self.cursor.take_while(|c| matches!(c, ' ' | '\t'));
        if !self.cursor.is_break() {
            text.push_str(blanks);
            return Ok(());
        }
        let first = self.cursor.take_break();
        let breaks = self.quoted_breaks()?;
        text.push_str(&folded(first, &breaks));
        Ok(())
    }

    /// Empty lines, and the white space at the start of the next line.
    fn quoted_breaks(&mut self) -> Step<String> {
        let mut breaks = String::new();
        loop {
            if self.cursor.at_document_mark("---") || self.cursor.at_document_mark("...") {
                return self.cursor.fail("a document's end inside of a quoted text");
            }
            self.cursor.take_while(|c| matches!(c, ' ' | '\t'));
            match self.cursor.take_break() {
                "" => return Ok(breaks),
                more => breaks.push_str(more),
            }
        }
    }

    /// An escape of a double-quoted scalar (YAML 1.1, 5.6).
    fn escape(&mut self, text: &mut String) -> Step<()> {
        self.cursor.take(1);
        if self.cursor.is_break() {
            self.cursor.take_break();
            text.push_str(&self.quoted_breaks()?);
            return Ok(());
        }
        let digits = match self.cursor.peek() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            sign => {
                let Some(c) = sign.and_then(escaped) else {
                    return self.cursor.fail("an escape that YAML does not have");
                };
                text.push(c);
                self.cursor.take(1);
                return Ok(());
            }
        };
        let rest = self.cursor.rest();
        let code = |from: usize, digits: usize| {
            let code = rest.get(from..from + digits).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
            code.and_then(|code| u32::from_str_radix(code, 16).ok())
        };
        let mut width = 1 + digits;
        let character = match code(1, digits) {
            // JSON, which is also YAML, escapes a character beyond U+FFFF as two surrogates.
            Some(first @ 0xd800..0xe000) => {
                let is_escape = rest.get(width..).is_some_and(|rest| rest.starts_with("\\u"));
                match code(width + 2, 4).filter(|_| is_escape) {
                    Some(second @ 0xdc00..0xe000) if first < 0xdc00 => {
                        width += 6;
                        char::from_u32(0x10000 + ((first & 0x3ff) << 10 | second & 0x3ff))
                    }
                    _ => Some(char::REPLACEMENT_CHARACTER),
                }
            }
            code => code.and_then(char::from_u32),
        };
        let Some(character) = character else {
            return self.cursor.fail("an escape that is not a character's code");
        };
        text.push(character);
        self.cursor.take(width);
        Ok(())
    }

    /// A literal or folded block scalar (YAML 1.1, 9.2). If the text does not end in a line break, neither
    /// does the value.
    pub(super) fn block_scalar(&mut self, folds: bool) -> Step<String> {
        self.cursor.take(1);
        let (keep, increment) = self.block_header()?;
        let least = self.indent.map_or(1, |i| i + 1);
        let mut breaks = String::new();
        let indent = match increment {
            Some(increment) => least + increment - 1,
            None => self.widest_blank_line(&mut breaks).max(least),
        };
        self.block_breaks(indent, &mut breaks);
        let mut text = String::new();
        let mut line_break = "";
        while self.cursor.mark.column == indent && !self.cursor.at_end() {
            text.push_str(&breaks);
            breaks.clear();
            let leading_blank = matches!(self.cursor.peek(), Some(b' ' | b'\t'));
            text.push_str(self.cursor.take_while(|_| true));
            line_break = self.cursor.take_break();
            self.block_breaks(indent, &mut breaks);
            if self.cursor.mark.column != indent || self.cursor.at_end() {
                break;
            }
            let blank = matches!(self.cursor.peek(), Some(b' ' | b'\t'));
            let folded = folds && line_break == "\n" && !leading_blank && !blank;
            if !folded {
                text.push_str(line_break);
            } else if breaks.is_empty() {
                text.push(' ');
            }
        }
        if keep != Some(false) {
            text.push_str(line_break);
        }
        if keep == Some(true) {
            text.push_str(&breaks);
        }
        Ok(text)
    }

    /// A block header: `+` or `-`, an indentation from 1 to 9, in either order, and optionally a comment.
    fn block_header(&mut self) -> Step<(Option<bool>, Option<usize>)> {
        let (mut keep, mut increment) = (None, None);
        for _ in 0..2 {
            match self.cursor.peek() {
                Some(sign @ (b'+' | b'-')) if keep.is_none() => keep = Some(sign == b'+'),
                Some(digit @ b'1'..=b'9') if increment.is_none() => increment = Some(usize::from(digit - b'0')),
                _ => break,
            }
            self.cursor.take(1);
        }
        let blanks = self.cursor.take_while(|c| matches!(c, ' ' | '\t'));
        if self.cursor.peek() == Some(b'#') && !blanks.is_empty() {
            self.cursor.take_while(|_| true);
        }
        if self.cursor.take_break().is_empty() && !self.cursor.at_end() {
            return self.cursor.fail("a block's first line holds only its sign, '+' or '-', and a digit");
        }
        Ok((keep, increment))
    }

    /// The indentation of a block's first line; consumes the empty lines before it.
    fn widest_blank_line(&mut self, breaks: &mut String) -> usize {
        let mut widest = 0;
        loop {
            self.cursor.take_while(|c| c == ' ');
            widest = widest.max(self.cursor.mark.column);
            match self.cursor.take_break() {
                "" => return widest,
                more => breaks.push_str(more),
            }
        }
    }

    /// Skips empty lines, up to the indentation.
    fn block_breaks(&mut self, indent: usize, breaks: &mut String) {
        loop {
            let spaces = self.cursor.rest().bytes().take_while(|b| *b == b' ').count();
            self.cursor.take(spaces.min(indent.saturating_sub(self.cursor.mark.column)));
            match self.cursor.take_break() {
                "" => return,
                more => breaks.push_str(more),
            }
        }
    }
}

/// Folds a line break and the empty lines after it: a single line break becomes a space.
fn folded(first: &str, breaks: &str) -> String {
    match (first, breaks) {
        ("\n", "") => " ".into(),
        ("\n", breaks) => breaks.to_owned(),
        (first, breaks) => format!("{first}{breaks}"),
    }
}

fn escaped(sign: u8) -> Option<char> {
    Some(match sign {
        b'0' => '\0',
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b't' | b'\t' => '\t',
        b'n' => '\n',
        b'v' => '\u{b}',
        b'f' => '\u{c}',
        b'r' => '\r',
        b'e' => '\u{1b}',
        b' ' | b'"' | b'\\' | b'/' => char::from(sign),
        b'N' => '\u{85}',
        b'_' => '\u{a0}',
        b'L' => '\u{2028}',
        b'P' => '\u{2029}',
        _ => return None,
    })
}
