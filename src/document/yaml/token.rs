//! Tokenizes YAML 1.1 like PyYAML's scanner: indentation and simple keys become tokens.

use super::cursor::{Cursor, Failure, Mark, Step};
use crate::document::MAX_DEPTH;
use std::collections::VecDeque;

/// The greatest distance between a simple key's start and its `:`, in characters; both must be on one line.
const MAX_SIMPLE_KEY: usize = 1024;
/// How long a directive or a tag may be, in bytes. Known ones are shorter.
const MAX_TAG: usize = 1024;
/// The length of a scalar, in bytes, from which on it keeps no room that it does not need.
const LONG_SCALAR: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    End,
    /// A `%` line: its words.
    Directive(Vec<String>),
    DocumentStart,
    DocumentEnd,
    BlockSequence,
    BlockMapping,
    BlockEnd,
    FlowSequence,
    FlowSequenceEnd,
    FlowMapping,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// The handle (`!`, `!!`, `!name!`; empty for a verbatim tag) and the suffix.
    Tag(String, String),
    /// The text, and whether it is plain.
    Scalar(String, bool),
}

/// A position where a simple key may have begun; only a following `:` decides.
#[derive(Debug, Clone, Copy)]
struct SimpleKey {
    token: usize,
    required: bool,
    mark: Mark,
}

/// Produces tokens on demand.
pub struct Tokens<'a> {
    pub(super) cursor: Cursor<'a>,
    queue: VecDeque<(Token, Mark)>,
    taken: usize,
    /// The column of the current block; None outside of all blocks.
    pub(super) indent: Option<usize>,
    indents: Vec<Option<usize>>,
    pub(super) key_allowed: bool,
    /// By flow level.
    keys: Vec<Option<SimpleKey>>,
    ended: bool,
}

/// The key's place, because the next token is often on another line.
fn without_colon(key: Mark) -> Box<Failure> {
    Box::new(Failure { what: "expected a ':' after a key".into(), mark: key })
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Self {
        let cursor = Cursor::new(text.strip_prefix('\u{feff}').unwrap_or(text));
        Tokens {
            cursor,
            queue: VecDeque::new(),
            taken: 0,
            indent: None,
            indents: Vec::new(),
            key_allowed: true,
            keys: vec![None],
            ended: false,
        }
    }

    /// The next token, without consuming it; [`Token::End`] at the end, any number of times.
    pub fn peek(&mut self) -> Step<&Token> {
        while self.needs_more()? {
            self.fetch()?;
        }
        Ok(self.queue.front().map_or(&Token::End, |(token, _)| token))
    }

    /// Consumes the next token.
    pub fn next(&mut self) -> Step<Token> {
        self.peek()?;
        self.taken += 1;
        Ok(self.queue.pop_front().map_or(Token::End, |(token, _)| token))
    }

    /// The position of the next token.
    pub fn mark(&self) -> Mark {
        self.queue.front().map_or(self.cursor.mark, |(_, mark)| *mark)
    }

    pub(super) fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Whether more text has to be scanned, because the next token may turn out to be a key.
    fn needs_more(&mut self) -> Step<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.queue.is_empty() {
            return Ok(true);
        }
        self.drop_stale_keys()?;
        Ok(self.keys.iter().flatten().any(|key| key.token == self.taken))
    }

    fn drop_stale_keys(&mut self) -> Step<()> {
        let here = self.cursor.mark;
        for key in &mut self.keys {
            if let Some(k) = key.filter(|k| k.mark.line != here.line || here.column - k.mark.column > MAX_SIMPLE_KEY) {
                if k.required {
                    return Err(without_colon(k.mark));
                }
                *key = None;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: Token) {
        self.queue.push_back((token, self.cursor.mark));
    }

    fn fetch(&mut self) -> Step<()> {
        self.skip_blanks()?;
        self.drop_stale_keys()?;
        let column = self.cursor.mark.column;
        self.close_blocks(Some(column));
        let blank_after = self.cursor.is_blank_at(1);
        let flow = self.in_flow();
        match self.cursor.peek() {
            None => self.end(),
            Some(b'%') if column == 0 => self.directive(),
            Some(b'-') if self.cursor.at_document_mark("---") => self.document_mark(Token::DocumentStart),
            Some(b'.') if self.cursor.at_document_mark("...") => self.document_mark(Token::DocumentEnd),
            Some(b'[') => self.open_flow(Token::FlowSequence),
            Some(b'{') => self.open_flow(Token::FlowMapping),
            Some(b']') => self.close_flow(Token::FlowSequenceEnd),
            Some(b'}') => self.close_flow(Token::FlowMappingEnd),
            Some(b',') => {
                self.key_allowed = true;
                self.drop_key()?;
                self.sign(Token::FlowEntry)
            }
            Some(b'-') if blank_after => self.block_sign(Token::BlockEntry, Token::BlockSequence),
            Some(b'?') if flow || blank_after => self.block_sign(Token::Key, Token::BlockMapping),
            Some(b':') if flow || blank_after => self.value(),
            Some(b'*') => self.name(Token::Alias),
            Some(b'&') => self.name(Token::Anchor),
            Some(b'!') => {
                self.node_begins(false)?;
                let mark = self.cursor.mark;
                let tag = self.tag()?;
                self.queue.push_back((tag, mark));
                Ok(())
            }
            Some(b'|') if !flow => self.scalar(true, |s| s.block_scalar(false)),
            Some(b'>') if !flow => self.scalar(true, |s| s.block_scalar(true)),
            Some(b'\'') => self.scalar(false, |s| s.quoted(false)),
            Some(b'"') => self.scalar(false, |s| s.quoted(true)),
            Some(b'-') => self.plain(),
            Some(b'?' | b':') if !flow => self.plain(),
            Some(b'?' | b':' | b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t') => {
                self.cursor.fail("a character that cannot begin a value")
            }
            Some(_) => self.plain(),
        }
    }

    /// Skips white space, comments and line breaks. A tab is white space, except if it would be
    /// indentation.
    fn skip_blanks(&mut self) -> Step<()> {
        loop {
            let tabs = self.in_flow() || !self.key_allowed;
            self.cursor.take_while(|c| c == ' ' || (tabs && c == '\t'));
            if self.cursor.peek() == Some(b'#') {
                self.cursor.take_while(|_| true);
            }
            if self.cursor.take_break().is_empty() {
                return Ok(());
            }
            self.key_allowed |= !self.in_flow();
        }
    }

    /// A node begins here, which may be a simple key; a block scalar may not.
    fn node_begins(&mut self, block: bool) -> Step<()> {
        if block {
            self.key_allowed = true;
            return self.drop_key();
        }
        if self.key_allowed {
            let mark = self.cursor.mark;
            let required = !self.in_flow() && self.indent == Some(mark.column);
            self.drop_key()?;
            let token = self.taken + self.queue.len();
            if let Some(key) = self.keys.last_mut() {
                *key = Some(SimpleKey { token, required, mark });
            }
        }
        self.key_allowed = false;
        Ok(())
    }

    fn drop_key(&mut self) -> Step<()> {
        match self.keys.last_mut().and_then(Option::take) {
            Some(key) if key.required => Err(without_colon(key.mark)),
            _ => Ok(()),
        }
    }

    fn close_blocks(&mut self, column: Option<usize>) {
        while !self.in_flow() && self.indent > column {
            self.indent = self.indents.pop().flatten();
            self.push(Token::BlockEnd);
        }
    }

    /// Opens a block at a column if that is deeper than the current one. Returns whether it did.
    fn open_block(&mut self, column: usize) -> Step<bool> {
        if self.in_flow() || self.indent >= Some(column) {
            return Ok(false);
        }
        if self.indents.len() > MAX_DEPTH {
            return self.cursor.fail(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.indents.push(self.indent);
        self.indent = Some(column);
        Ok(true)
    }

    fn end(&mut self) -> Step<()> {
        self.close_blocks(None);
        self.drop_key()?;
        self.keys = vec![None];
        self.ended = true;
        self.push(Token::End);
        Ok(())
    }

    fn between_documents(&mut self) -> Step<()> {
        self.close_blocks(None);
        self.drop_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn directive(&mut self) -> Step<()> {
        self.between_documents()?;
        let line = self.cursor.take_while(|_| true);
        if line.len() > MAX_TAG {
            return self.cursor.fail("a directive that is too long");
        }
        let words = line.split_whitespace().take_while(|w| !w.starts_with('#')).map(str::to_owned);
        self.push(Token::Directive(words.collect()));
        Ok(())
    }

    fn document_mark(&mut self, token: Token) -> Step<()> {
        self.between_documents()?;
        self.push(token);
        self.cursor.take(3);
        Ok(())
    }

    fn sign(&mut self, token: Token) -> Step<()> {
        self.push(token);
        self.cursor.take(1);
        Ok(())
    }

    fn open_flow(&mut self, token: Token) -> Step<()> {
        self.node_begins(false)?;
        if self.keys.len() > MAX_DEPTH {
            return self.cursor.fail(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.keys.push(None);
        self.key_allowed = true;
        self.sign(token)
    }

    fn close_flow(&mut self, token: Token) -> Step<()> {
        self.drop_key()?;
        if self.in_flow() {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.sign(token)
    }

    fn block_sign(&mut self, token: Token, block: Token) -> Step<()> {
        if !self.in_flow() {
            if !self.key_allowed {
                return self.cursor.fail("a list or mapping cannot begin here");
            }
            if self.open_block(self.cursor.mark.column)? {
                self.push(block);
            }
        }
        self.key_allowed = token == Token::BlockEntry || !self.in_flow();
        self.drop_key()?;
        self.sign(token)
    }

    fn value(&mut self) -> Step<()> {
        if let Some(key) = self.keys.last_mut().and_then(Option::take) {
            let at = key.token - self.taken;
            self.queue.insert(at, (Token::Key, key.mark));
            if self.open_block(key.mark.column)? {
                self.queue.insert(at, (Token::BlockMapping, key.mark));
            }
            self.key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.key_allowed {
                    return self.cursor.fail("a mapping's value cannot stand here");
                }
                if self.open_block(self.cursor.mark.column)? {
                    self.push(Token::BlockMapping);
                }
            }
            self.key_allowed = !self.in_flow();
        }
        self.sign(Token::Value)
    }

    /// The name of an anchor or alias.
    fn name(&mut self, token: impl Fn(String) -> Token) -> Step<()> {
        self.node_begins(false)?;
        let mark = self.cursor.mark;
        self.cursor.take(1);
        let name = self.cursor.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let ends = self.cursor.is_blank_at(0) || self.cursor.peek().is_some_and(|b| b"?:,]}%@`".contains(&b));
        if name.is_empty() || !ends {
            return self.cursor.fail("an anchor's name is letters, digits, '-' and '_'");
        }
        self.queue.push_back((token(name.to_owned()), mark));
        Ok(())
    }

    fn tag(&mut self) -> Step<Token> {
        let uri = |c: char| c.is_ascii_alphanumeric() || "-;/?:@&=+$,_.~*'()[]%".contains(c);
        let start = self.cursor.mark.offset;
        self.cursor.take(1);
        let tag = if self.cursor.peek() == Some(b'<') {
            self.cursor.take(1);
            let name = self.cursor.take_while(|c| uri(c) || c == '!').to_owned();
            if self.cursor.take(1) != ">" {
                return self.cursor.fail("a tag in <> wants its >");
            }
            Token::Tag(String::new(), name)
        } else {
            let first = self.cursor.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).to_owned();
            if self.cursor.peek() == Some(b'!') {
                self.cursor.take(1);
                Token::Tag(format!("!{first}!"), self.cursor.take_while(|c| uri(c) || c == '!').to_owned())
            } else {
                Token::Tag("!".into(), first + self.cursor.take_while(|c| uri(c) || c == '!'))
            }
        };
        if !self.cursor.is_blank_at(0) {
            return self.cursor.fail("white space expected after a tag");
        }
        if self.cursor.mark.offset - start > MAX_TAG {
            return self.cursor.fail("a tag that is too long");
        }
        Ok(tag)
    }

    fn scalar(&mut self, block: bool, scan: impl Fn(&mut Self) -> Step<String>) -> Step<()> {
        self.node_begins(block)?;
        let mark = self.cursor.mark;
        let text = scan(self)?;
        self.scalar_ends(text, false, mark);
        Ok(())
    }

    fn plain(&mut self) -> Step<()> {
        self.node_begins(false)?;
        let mark = self.cursor.mark;
        let text = self.plain_text();
        self.scalar_ends(text, true, mark);
        Ok(())
    }

    /// A long text, which grew by doubling, gives back what it does not fill: the document's tree keeps it.
    fn scalar_ends(&mut self, mut text: String, is_plain: bool, mark: Mark) {
        if text.len() >= LONG_SCALAR {
            text.shrink_to_fit();
        }
        self.queue.push_back((Token::Scalar(text, is_plain), mark));
    }
}
