//! Parses tags into a syntax tree. The grammar is that of jinja2's template designer documentation, without
//! the tags that read other templates.

mod expression;

use super::budget::{Budget, Step, fail};
use super::lexer::{Lexer, Token};
use super::syntax::{Body, Expression, Function, Kind, Loop, Node, Target};
use std::rc::Rc;

pub struct Parser<'a, 'b> {
    lexer: Lexer<'a>,
    budget: &'b Budget<'b>,
}

/// Parses a template whose lines end in `\n`.
///
/// # Errors The first syntax error, with its line.
pub fn parse<'a>(template: &'a str, budget: &Budget<'_>) -> Step<Body<'a>> {
    let mut parser = Parser { lexer: Lexer::new(template), budget };
    let body = parser.body(&[]);
    let line = parser.lexer.line();
    body.map(|(body, _)| body).map_err(|e| e.at(line))
}

impl<'a> Parser<'a, '_> {
    /// The nodes up to a tag in `ends`, whose name is consumed and returned; without `ends`, up to the end.
    fn body(&mut self, ends: &[&str]) -> Step<(Body<'a>, &'a str)> {
        self.budget.deeper(|| self.nodes(ends))
    }

    fn nodes(&mut self, ends: &[&str]) -> Step<(Body<'a>, &'a str)> {
        let mut body = Vec::new();
        loop {
            self.lexer.peek()?;
            let line = self.lexer.line();
            let kind = match self.lexer.next()? {
                Token::End if ends.is_empty() => return Ok((body, "")),
                Token::End => return fail(format!("the end of the template where {} is expected", ends.join(" or "))),
                Token::Data(text) => Kind::Data(text),
                Token::PrintBegin => {
                    let printed = self.tuple()?;
                    self.expect(&Token::PrintEnd)?;
                    Kind::Print(printed)
                }
                _ => {
                    let name = self.name()?;
                    if ends.contains(&name) {
                        return Ok((body, name));
                    }
                    self.tag(name).map_err(|e| e.at(self.lexer.line()))?
                }
            };
            self.budget.node()?;
            body.push(Node { line, kind });
        }
    }

    /// The body of a tag, including its end tag.
    fn body_until(&mut self, end: &'static str) -> Step<Body<'a>> {
        self.end_of_tag()?;
        let (body, _) = self.body(&[end])?;
        // `endblock` may repeat the block's name.
        if end == "endblock" && matches!(self.lexer.peek()?, Token::Name(_)) {
            self.lexer.next()?;
        }
        self.end_of_tag()?;
        Ok(body)
    }

    fn tag(&mut self, name: &'a str) -> Step<Kind<'a>> {
        match name {
            "if" => self.branches(),
            "for" => self.loop_tag(),
            "set" => self.set(),
            "do" => {
                let expression = self.tuple()?;
                self.end_of_tag()?;
                Ok(Kind::Do(expression))
            }
            "macro" => {
                let name = self.name()?;
                let parameters = self.parameters()?;
                let body = self.body_until("endmacro")?;
                Ok(Kind::Macro(name, Rc::new(Function { name, parameters, body })))
            }
            "call" => {
                let parameters = if self.is_sign("(")? { self.parameters()? } else { Vec::new() };
                let call = self.expression()?;
                let body = self.body_until("endcall")?;
                Ok(Kind::Call(Rc::new(Function { name: "caller", parameters, body }), call))
            }
            "filter" => {
                let filters = self.filters(true)?;
                Ok(Kind::Filter(filters, self.body_until("endfilter")?))
            }
            "with" => {
                let mut values = Vec::new();
                while !self.is(&Token::BlockEnd)? {
                    if !values.is_empty() {
                        self.expect(&Token::Sign(","))?;
                    }
                    let target = self.target()?;
                    self.expect(&Token::Sign("="))?;
                    values.push((target, self.expression()?));
                }
                Ok(Kind::With(values, self.body_until("endwith")?))
            }
            "block" => {
                self.name()?;
                while matches!(self.lexer.peek()?, Token::Name("scoped" | "required")) {
                    self.lexer.next()?;
                }
                Ok(Kind::Scope(self.body_until("endblock")?))
            }
            "include" | "import" | "from" | "extends" => fail(format!("{name}: there are no other templates")),
            _ => fail(format!("an unknown tag, {name}")),
        }
    }

    fn branches(&mut self) -> Step<Kind<'a>> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple()?;
            self.end_of_tag()?;
            let (body, end) = self.body(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            match end {
                "elif" => self.budget.node()?,
                "else" => return Ok(Kind::If(branches, self.body_until("endif")?)),
                _ => {
                    self.end_of_tag()?;
                    return Ok(Kind::If(branches, Vec::new()));
                }
            }
        }
    }

    fn loop_tag(&mut self) -> Step<Kind<'a>> {
        let target = self.targets()?;
        if !self.accept_name("in")? {
            return fail("in expected after the variables of a loop");
        }
        let over = self.tuple_without_condition()?;
        let condition = if self.accept_name("if")? { Some(self.expression()?) } else { None };
        let recursive = self.accept_name("recursive")?;
        self.end_of_tag()?;
        let (body, end) = self.body(&["else", "endfor"])?;
        let otherwise = if end == "else" {
            self.body_until("endfor")?
        } else {
            self.end_of_tag()?;
            Vec::new()
        };
        Ok(Kind::For(Rc::new(Loop { target, over, condition, recursive, body, otherwise })))
    }

    fn set(&mut self) -> Step<Kind<'a>> {
        let target = self.targets()?;
        if self.accept(&Token::Sign("="))? {
            let value = self.tuple()?;
            self.end_of_tag()?;
            return Ok(Kind::Set(target, value));
        }
        let filters = self.filters(false)?;
        Ok(Kind::SetBody(target, filters, self.body_until("endset")?))
    }

    /// One or several assignment targets, separated by commas.
    fn targets(&mut self) -> Step<Target<'a>> {
        let first = self.target()?;
        if !self.is_sign(",")? {
            return Ok(first);
        }
        let mut several = vec![first];
        while self.accept(&Token::Sign(","))? {
            if matches!(self.lexer.peek()?, Token::Name("in") | Token::Sign("=") | Token::BlockEnd) {
                break;
            }
            several.push(self.target()?);
        }
        Ok(Target::Several(several))
    }

    fn target(&mut self) -> Step<Target<'a>> {
        self.budget.node()?;
        if self.accept(&Token::Sign("("))? {
            let inner = self.budget.deeper(|| self.targets())?;
            self.expect(&Token::Sign(")"))?;
            return Ok(inner);
        }
        let name = self.name()?;
        if ["true", "false", "none", "True", "False", "None"].contains(&name) {
            return fail(format!("an assignment to {name}"));
        }
        if self.accept(&Token::Sign("."))? {
            return Ok(Target::Attribute(name, self.name()?));
        }
        Ok(Target::Name(name))
    }

    fn parameters(&mut self) -> Step<Vec<(&'a str, Option<Expression<'a>>)>> {
        self.expect(&Token::Sign("("))?;
        let mut parameters = Vec::new();
        while !self.accept(&Token::Sign(")"))? {
            if !parameters.is_empty() {
                self.expect(&Token::Sign(","))?;
            }
            let name = self.name()?;
            let default = if self.accept(&Token::Sign("="))? { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default): &(_, Option<_>)| default.is_some()) {
                return fail(format!("the parameter {name} without a value after one with a value"));
            }
            self.budget.node()?;
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    fn name(&mut self) -> Step<&'a str> {
        match self.lexer.next()? {
            Token::Name(name) => Ok(name),
            other => fail(format!("{} where a name is expected", described(&other))),
        }
    }

    fn is(&mut self, token: &Token<'a>) -> Step<bool> {
        Ok(self.lexer.peek()? == token)
    }

    fn is_sign(&mut self, sign: &'static str) -> Step<bool> {
        self.is(&Token::Sign(sign))
    }

    /// Consumes the next token if it is this one.
    fn accept(&mut self, token: &Token<'a>) -> Step<bool> {
        let found = self.is(token)?;
        if found {
            self.lexer.next()?;
        }
        Ok(found)
    }

    fn accept_name(&mut self, name: &'static str) -> Step<bool> {
        self.accept(&Token::Name(name))
    }

    fn expect(&mut self, token: &Token<'a>) -> Step<()> {
        let next = self.lexer.peek()?;
        if next == token {
            self.lexer.next()?;
            return Ok(());
        }
        fail(format!("{} where {} is expected", described(next), described(token)))
    }

    fn end_of_tag(&mut self) -> Step<()> {
        self.expect(&Token::BlockEnd)
    }
}

/// A token for messages. Quoted strings are left out, because they may be secret.
fn described(token: &Token<'_>) -> String {
    match token {
        Token::Data(_) => "text".into(),
        Token::PrintBegin => "{{".into(),
        Token::PrintEnd => "}}".into(),
        Token::BlockBegin => "{%".into(),
        Token::BlockEnd => "%}".into(),
        Token::Name(name) => format!("the name {name}"),
        Token::Int(_) | Token::Float(_) => "a number".into(),
        Token::Text(_) => "a string".into(),
        Token::Sign(sign) => (*sign).into(),
        Token::End => "the end of the template".into(),
    }
}
