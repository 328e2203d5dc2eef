//! Parses expressions, from the lowest precedence to the highest.

use super::super::budget::{Step, fail};
use super::super::lexer::Token;
use super::super::syntax::{Arguments, Comparison, Conditional, Expression, Operator, Postfix};
use super::super::value::{Text, Value};
use super::{Parser, described};

const SUM: &[(&str, Operator)] = &[("+", Operator::Add), ("-", Operator::Subtract)];
const PRODUCT: &[(&str, Operator)] =
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("//", Operator::FloorDivide), ("%", Operator::Remainder)];
const POWER: &[(&str, Operator)] = &[("**", Operator::Power)];
const COMPARISONS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

impl<'a> Parser<'a, '_> {
    /// An expression, or a tuple without brackets.
    pub(super) fn tuple(&mut self) -> Step<Expression<'a>> {
        self.items(Self::expression)
    }

    /// Like [`Parser::tuple`], without `… if … else …`: a loop's `if` is its filter.
    pub(super) fn tuple_without_condition(&mut self) -> Step<Expression<'a>> {
        self.items(|parser| parser.budget.deeper(|| parser.or()))
    }

    fn items(&mut self, item: impl Fn(&mut Self) -> Step<Expression<'a>>) -> Step<Expression<'a>> {
        let first = item(self)?;
        if !self.is_sign(",")? {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.accept(&Token::Sign(","))? {
            let ends = [Token::PrintEnd, Token::BlockEnd, Token::Sign(")"), Token::Name("in")];
            if ends.contains(self.lexer.peek()?) {
                break;
            }
            items.push(item(self)?);
        }
        Ok(Expression::Tuple(items))
    }

    pub(super) fn expression(&mut self) -> Step<Expression<'a>> {
        self.budget.deeper(|| self.conditional())
    }

    fn conditional(&mut self) -> Step<Expression<'a>> {
        let mut expression = self.or()?;
        while self.accept_name("if")? {
            self.budget.node()?;
            let condition = self.or()?;
            let otherwise = if self.accept_name("else")? { Some(self.expression()?) } else { None };
            let nested = matches!(expression, Expression::Conditional(_));
            if nested {
                return fail("a second if without else");
            }
            expression = Expression::Conditional(Box::new(Conditional { condition, then: expression, otherwise }));
        }
        Ok(expression)
    }

    fn or(&mut self) -> Step<Expression<'a>> {
        let mut operands = vec![self.and()?];
        while self.accept_name("or")? {
            operands.push(self.and()?);
        }
        Ok(one_or(operands, Expression::Or))
    }

    fn and(&mut self) -> Step<Expression<'a>> {
        let mut operands = vec![self.not()?];
        while self.accept_name("and")? {
            operands.push(self.not()?);
        }
        Ok(one_or(operands, Expression::And))
    }

    fn not(&mut self) -> Step<Expression<'a>> {
        if self.accept_name("not")? {
            return self.budget.deeper(|| Ok(Expression::Not(Box::new(self.not()?))));
        }
        let first = self.sum()?;
        let mut operands = Vec::new();
        while let Some(comparison) = self.comparison()? {
            operands.push((comparison, self.sum()?));
        }
        Ok(if operands.is_empty() { first } else { Expression::Compare(Box::new(first), operands) })
    }

    fn comparison(&mut self) -> Step<Option<Comparison>> {
        let found = match self.lexer.peek()? {
            Token::Sign(sign) => COMPARISONS.iter().find(|(s, _)| s == sign).map(|(_, c)| *c),
            Token::Name("in") => Some(Comparison::In),
            Token::Name("not") => Some(Comparison::NotIn),
            _ => None,
        };
        if found == Some(Comparison::NotIn) {
            if *self.lexer.peek_at(1)? != Token::Name("in") {
                return Ok(None);
            }
            self.lexer.next()?;
        }
        if found.is_some() {
            self.lexer.next()?;
        }
        Ok(found)
    }

    fn sum(&mut self) -> Step<Expression<'a>> {
        self.chain(SUM, Self::concat)
    }

    fn concat(&mut self) -> Step<Expression<'a>> {
        let mut operands = vec![self.product()?];
        while self.accept(&Token::Sign("~"))? {
            operands.push(self.product()?);
        }
        Ok(one_or(operands, Expression::Concat))
    }

    fn product(&mut self) -> Step<Expression<'a>> {
        self.chain(PRODUCT, |parser| parser.chain(POWER, |parser| parser.unary(true)))
    }

    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        operand: impl Fn(&mut Self) -> Step<Expression<'a>>,
    ) -> Step<Expression<'a>> {
        let first = operand(self)?;
        let mut operations = Vec::new();
        while let Token::Sign(sign) = self.lexer.peek()?
            && let Some((_, operator)) = operators.iter().find(|(s, _)| s == sign)
        {
            self.lexer.next()?;
            operations.push((*operator, operand(self)?));
        }
        Ok(if operations.is_empty() { first } else { Expression::Chain(Box::new(first), operations) })
    }

    /// A sign binds tighter than a filter: `-1|abs` is `(-1)|abs`.
    fn unary(&mut self, filters: bool) -> Step<Expression<'a>> {
        self.budget.node()?;
        let mut expression = if self.accept(&Token::Sign("-"))? {
            self.budget.deeper(|| Ok(Expression::Negative(Box::new(self.unary(false)?))))?
        } else if self.accept(&Token::Sign("+"))? {
            self.budget.deeper(|| Ok(Expression::Positive(Box::new(self.unary(false)?))))?
        } else {
            self.primary()?
        };
        let mut applied = Vec::new();
        self.postfix(&mut applied)?;
        if filters {
            self.filters_and_tests(&mut applied)?;
        }
        if !applied.is_empty() {
            expression = Expression::Postfix(Box::new(expression), applied);
        }
        Ok(expression)
    }

    fn primary(&mut self) -> Step<Expression<'a>> {
        Ok(match self.lexer.next()? {
            Token::Name("true" | "True") => Expression::Literal(Value::Bool(true)),
            Token::Name("false" | "False") => Expression::Literal(Value::Bool(false)),
            Token::Name("none" | "None") => Expression::Literal(Value::None),
            Token::Name(name) => Expression::Name(name),
            Token::Int(i) => Expression::Literal(Value::Int(i)),
            Token::Float(f) => Expression::Literal(Value::Float(f)),
            Token::Text(text) => {
                let mut text = text;
                while let Token::Text(more) = self.lexer.peek()? {
                    text.to_mut().push_str(more);
                    self.lexer.next()?;
                }
                self.budget.take(if matches!(text, std::borrow::Cow::Owned(_)) { text.len() } else { 0 })?;
                Expression::Literal(Value::Text(Text::from(text)))
            }
            Token::Sign("(") => {
                if self.accept(&Token::Sign(")"))? {
                    return Ok(Expression::Tuple(Vec::new()));
                }
                let inner = self.tuple()?;
                self.expect(&Token::Sign(")"))?;
                inner
            }
            Token::Sign("[") => {
                let mut items = Vec::new();
                while !self.accept(&Token::Sign("]"))? {
                    if !items.is_empty() {
                        self.expect(&Token::Sign(","))?;
                        if self.accept(&Token::Sign("]"))? {
                            break;
                        }
                    }
                    items.push(self.expression()?);
                }
                Expression::List(items)
            }
            Token::Sign("{") => {
                let mut entries = Vec::new();
                while !self.accept(&Token::Sign("}"))? {
                    if !entries.is_empty() {
                        self.expect(&Token::Sign(","))?;
                        if self.accept(&Token::Sign("}"))? {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect(&Token::Sign(":"))?;
                    entries.push((key, self.expression()?));
                }
                Expression::Dict(entries)
            }
            other => return fail(format!("{} where a value is expected", described(&other))),
        })
    }

    /// Attributes, items and calls.
    fn postfix(&mut self, applied: &mut Vec<Postfix<'a>>) -> Step<()> {
        loop {
            let next = if self.accept(&Token::Sign("."))? {
                match self.lexer.next()? {
                    Token::Name(name) => Postfix::Attribute(name),
                    Token::Int(i) => Postfix::Item(Box::new(Expression::Literal(Value::Int(i)))),
                    other => return fail(format!("{} where a name is expected", described(&other))),
                }
            } else if self.accept(&Token::Sign("["))? {
                self.item()?
            } else if self.is_sign("(")? {
                Postfix::Call(self.arguments()?)
            } else {
                return Ok(());
            };
            self.budget.node()?;
            applied.push(next);
        }
    }

    /// The index or slice in square brackets after a value.
    fn item(&mut self) -> Step<Postfix<'a>> {
        let mut bounds = [None, None, None];
        let mut colons = 0;
        while !self.accept(&Token::Sign("]"))? {
            if self.accept(&Token::Sign(":"))? {
                colons += 1;
                if colons > 2 {
                    return fail("a slice with more than two colons");
                }
                continue;
            }
            let bound = if colons == 0 { self.tuple()? } else { self.expression()? };
            match bounds.get_mut(colons) {
                Some(slot @ None) => *slot = Some(bound),
                _ => return fail("a value where ] is expected"),
            }
        }
        match (colons, bounds) {
            (0, [Some(index), None, None]) => Ok(Postfix::Item(Box::new(index))),
            (0, _) => fail("] where a value is expected"),
            (_, bounds) => Ok(Postfix::Slice(Box::new(bounds))),
        }
    }

    /// Any number of `| filter(…)` and `is test …`, each of which may be called.
    fn filters_and_tests(&mut self, applied: &mut Vec<Postfix<'a>>) -> Step<()> {
        loop {
            if self.is_sign("|")? {
                applied.extend(self.filters(false)?);
            } else if self.accept_name("is")? {
                let test = self.test()?;
                applied.push(test);
            } else if self.is_sign("(")? {
                let arguments = self.arguments()?;
                applied.push(Postfix::Call(arguments));
            } else {
                return Ok(());
            }
            self.budget.node()?;
        }
    }

    /// `| a | b(c)`; `begun`: the first without its `|`.
    pub(super) fn filters(&mut self, begun: bool) -> Step<Vec<Postfix<'a>>> {
        let mut filters = Vec::new();
        while (begun && filters.is_empty()) || self.accept(&Token::Sign("|"))? {
            self.budget.node()?;
            let name = self.name()?;
            let arguments = if self.is_sign("(")? { self.arguments()? } else { Arguments::default() };
            filters.push(Postfix::Filter(name, arguments));
        }
        Ok(filters)
    }

    /// A test after `is`. A single argument needs no brackets.
    fn test(&mut self) -> Step<Postfix<'a>> {
        let negated = self.accept_name("not")?;
        let name = self.name()?;
        let mut arguments = Arguments::default();
        if self.is_sign("(")? {
            arguments = self.arguments()?;
        } else {
            let begins = match self.lexer.peek()? {
                Token::Name("is") => return fail("two tests in a chain"),
                Token::Name(name) => !["else", "or", "and", "in", "not", "if", "recursive"].contains(name),
                Token::Text(_) | Token::Int(_) | Token::Float(_) | Token::Sign("[" | "{") => true,
                _ => false,
            };
            if begins {
                let mut applied = Vec::new();
                let value = self.budget.deeper(|| self.primary())?;
                self.postfix(&mut applied)?;
                let plain = applied.is_empty();
                arguments.positional.push(if plain { value } else { Expression::Postfix(Box::new(value), applied) });
            }
        }
        Ok(Postfix::Test { name, arguments, negated })
    }

    fn arguments(&mut self) -> Step<Arguments<'a>> {
        self.expect(&Token::Sign("("))?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.accept(&Token::Sign(")"))? {
            if !std::mem::take(&mut first) {
                self.expect(&Token::Sign(","))?;
                if self.accept(&Token::Sign(")"))? {
                    break;
                }
            }
            self.budget.node()?;
            if self.accept(&Token::Sign("**"))? {
                arguments.named_rest = Some(Box::new(self.expression()?));
            } else if self.accept(&Token::Sign("*"))? {
                arguments.rest = Some(Box::new(self.expression()?));
            } else if let Token::Name(name) = *self.lexer.peek()?
                && *self.lexer.peek_at(1)? == Token::Sign("=")
            {
                self.lexer.next()?;
                self.lexer.next()?;
                arguments.named.push((name, self.expression()?));
            } else if arguments.named.is_empty() {
                arguments.positional.push(self.expression()?);
            } else {
                return fail("an argument without a name after one with a name");
            }
        }
        Ok(arguments)
    }
}

/// A single operand as it is, or several under an operator.
fn one_or<'a>(
    mut operands: Vec<Expression<'a>>,
    several: impl Fn(Vec<Expression<'a>>) -> Expression<'a>,
) -> Expression<'a> {
    match (operands.pop(), operands.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            operands.extend(last);
            several(operands)
        }
    }
}
