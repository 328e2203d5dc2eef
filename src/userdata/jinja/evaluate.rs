//! Evaluates expressions.

use super::budget::{Step, fail};
use super::call::{Bound, Callable};
use super::render::Renderer;
use super::scope::Scope;
use super::syntax::{Arguments, Comparison, Expression, Postfix};
use super::value::Value;
use super::{filters, methods, operators, predicates, print};
use std::cmp::Ordering;
use std::rc::Rc;

impl<'a> Renderer<'a, '_> {
    /// The value of an expression.
    ///
    /// # Errors
    /// A value does not support the operation, or the budget is exhausted.
    pub fn evaluate(&self, expression: &Expression<'a>, scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        self.budget().step(1)?;
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Name(name) => self.variable(name, scope),
            _ => self.budget().deeper(|| self.compound(expression, scope)),
        }
    }

    fn compound(&self, expression: &Expression<'a>, scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Name(name) => self.variable(name, scope),
            Expression::List(items) => self.heap.list(self.all(items, scope)?),
            Expression::Tuple(items) => self.heap.tuple(self.all(items, scope)?),
            Expression::Dict(entries) => {
                let dict = self.heap.dict([])?;
                for (key, value) in entries {
                    dict.insert(self.evaluate(key, scope)?, self.evaluate(value, scope)?, self.budget())?;
                }
                Ok(Value::Dict(dict))
            }
            Expression::Chain(first, operations) => {
                let mut value = self.evaluate(first, scope)?;
                for (operator, operand) in operations {
                    value = operators::apply(*operator, &value, &self.evaluate(operand, scope)?, &self.heap)?;
                }
                Ok(value)
            }
            Expression::Concat(operands) => {
                let mut text = String::new();
                for operand in operands {
                    print::print(&self.evaluate(operand, scope)?, &mut text, self.budget())?;
                }
                self.heap.text(text)
            }
            Expression::And(operands) => self.until(operands, false, scope),
            Expression::Or(operands) => self.until(operands, true, scope),
            Expression::Not(operand) => Ok(Value::Bool(!self.evaluate(operand, scope)?.is_true())),
            Expression::Negative(operand) => operators::negative(&self.evaluate(operand, scope)?),
            Expression::Positive(operand) => operators::positive(&self.evaluate(operand, scope)?),
            Expression::Compare(first, operands) => {
                let mut left = self.evaluate(first, scope)?;
                for (comparison, operand) in operands {
                    let right = self.evaluate(operand, scope)?;
                    if !self.compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expression::Conditional(conditional) => {
                if self.evaluate(&conditional.condition, scope)?.is_true() {
                    return self.evaluate(&conditional.then, scope);
                }
                let otherwise = conditional.otherwise.as_ref();
                otherwise.map_or(Ok(Value::undefined("")), |otherwise| self.evaluate(otherwise, scope))
            }
            Expression::Postfix(first, applied) => {
                let value = self.evaluate(first, scope)?;
                applied.iter().try_fold(value, |value, postfix| self.apply(value, postfix, scope))
            }
        }
    }

    fn all(&self, expressions: &[Expression<'a>], scope: &Rc<Scope<'a>>) -> Step<Vec<Value<'a>>> {
        expressions.iter().map(|expression| self.evaluate(expression, scope)).collect()
    }

    /// The first operand whose truth value is `wanted`, else the last one.
    fn until(&self, operands: &[Expression<'a>], wanted: bool, scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        let mut value = Value::None;
        for operand in operands {
            value = self.evaluate(operand, scope)?;
            if value.is_true() == wanted {
                break;
            }
        }
        Ok(value)
    }

    /// Compares two values as an expression does.
    ///
    /// # Errors
    /// The values cannot be ordered, or the right one contains no values.
    pub fn compare(&self, comparison: Comparison, left: &Value<'a>, right: &Value<'a>) -> Step<bool> {
        let order = || left.compare(right, self.budget());
        Ok(match comparison {
            Comparison::Equal => left.equals(right, self.budget())?,
            Comparison::Unequal => !left.equals(right, self.budget())?,
            Comparison::Less => order()? == Ordering::Less,
            Comparison::LessOrEqual => order()? != Ordering::Greater,
            Comparison::Greater => order()? == Ordering::Greater,
            Comparison::GreaterOrEqual => order()? != Ordering::Less,
            Comparison::In => operators::contains(right, left, self.budget())?,
            Comparison::NotIn => !operators::contains(right, left, self.budget())?,
        })
    }

    /// Applies a postfix operation to a value.
    ///
    /// # Errors
    /// The attribute of an undefined value, an unknown filter or test, or an error in one.
    pub fn apply(&self, value: Value<'a>, postfix: &Postfix<'a>, scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        self.budget().step(1)?;
        match postfix {
            Postfix::Attribute(name) => self.attribute(&value, name),
            Postfix::Item(index) => self.item(&value, &self.evaluate(index, scope)?),
            Postfix::Slice(bounds) => {
                let mut values = [Value::None, Value::None, Value::None];
                for (value, bound) in values.iter_mut().zip(bounds.iter()) {
                    if let Some(bound) = bound {
                        *value = self.evaluate(bound, scope)?;
                    }
                }
                operators::slice(&value, &values, &self.heap)
            }
            Postfix::Call(arguments) => self.call(&value, self.bind(arguments, scope)?),
            Postfix::Filter(name, arguments) => filters::apply(self, name, value, self.bind(arguments, scope)?),
            Postfix::Test { name, arguments, negated } => {
                let result = predicates::test(self, name, &value, &self.bind(arguments, scope)?.positional)?;
                Ok(Value::Bool(result != *negated))
            }
        }
    }

    /// Evaluates the call of a `call` tag, whose body is `caller`.
    pub fn evaluate_call(&self, call: &Expression<'a>, caller: Value<'a>, scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        if let Expression::Postfix(first, applied) = call
            && let Some((Postfix::Call(arguments), before)) = applied.split_last()
        {
            let first = self.evaluate(first, scope)?;
            let callee = before.iter().try_fold(first, |value, postfix| self.apply(value, postfix, scope))?;
            let mut bound = self.bind(arguments, scope)?;
            bound.named.push((super::value::Text::Borrowed("caller"), caller));
            return self.call(&callee, bound);
        }
        fail("call: expected a call")
    }

    fn bind(&self, arguments: &Arguments<'a>, scope: &Rc<Scope<'a>>) -> Step<Bound<'a>> {
        let mut bound = Bound { positional: self.all(&arguments.positional, scope)?, named: Vec::new() };
        for (name, value) in &arguments.named {
            bound.named.push((super::value::Text::Borrowed(name), self.evaluate(value, scope)?));
        }
        if let Some(rest) = &arguments.rest {
            let rest = self.heap.items(&self.evaluate(rest, scope)?)?;
            self.budget().take(rest.len() * 32)?;
            bound.positional.extend(rest.to_vec());
        }
        if let Some(rest) = &arguments.named_rest {
            match self.evaluate(rest, scope)? {
                Value::Dict(dict) => {
                    self.budget().take(dict.len() * 64)?;
                    for (key, value) in dict.entries() {
                        let Value::Text(name) = key else { return fail("**: expected names for keys") };
                        bound.named.push((name, value));
                    }
                }
                other => return fail(format!("**: expected a mapping, found {}", other.kind())),
            }
        }
        Ok(bound)
    }

    /// `value.name`: a method, else the item with that name.
    ///
    /// # Errors
    /// What does not exist has no attributes.
    pub fn attribute(&self, value: &Value<'a>, name: &str) -> Step<Value<'a>> {
        match value {
            Value::Undefined(missing) => fail(format!("{} is undefined", &**missing)),
            Value::Callable(callable) => callable.attribute(name, &self.heap),
            other => match (methods::find(other, name), other) {
                (Some(method), _) => Ok(Value::Callable(Rc::new(Callable::Method(other.clone(), method)))),
                (None, Value::Dict(dict) | Value::Namespace(dict)) => {
                    dict.get_text(name).map_or_else(|| self.missing(name), Ok)
                }
                // The result of `groupby` is pairs with these two names.
                (None, Value::List(list))
                    if list.is_tuple && list.len() == 2 && ["grouper", "list"].contains(&name) =>
                {
                    Ok(list.get(usize::from(name == "list")).unwrap_or(Value::None))
                }
                _ => self.missing(name),
            },
        }
    }

    /// `value[key]`: an item, else the attribute with that name.
    ///
    /// # Errors
    /// What does not exist has no items.
    pub fn item(&self, value: &Value<'a>, key: &Value<'a>) -> Step<Value<'a>> {
        let found = match (value, key) {
            (Value::Undefined(missing), _) => return fail(format!("{} is undefined", &**missing)),
            (Value::Dict(dict), key) => dict.get(key),
            (Value::List(list), key) => {
                key.as_int().and_then(|i| operators::position(i, list.len())).and_then(|i| list.get(i))
            }
            (Value::Text(text), key) => {
                self.budget().read(text.len())?;
                let position = key.as_int().and_then(|i| operators::position(i, text.chars().count()));
                let character = position.and_then(|i| text.chars().nth(i));
                character.map(|c| self.heap.text(c.to_string())).transpose()?
            }
            _ => None,
        };
        match (found, key) {
            (Some(found), _) => Ok(found),
            (None, Value::Text(name)) => self.attribute(value, name),
            (None, other) => self.missing(&print::printed(other, self.budget())?),
        }
    }

    fn missing(&self, name: &str) -> Step<Value<'a>> {
        match self.heap.text(name)? {
            Value::Text(name) => Ok(Value::Undefined(name)),
            other => Ok(other),
        }
    }
}
