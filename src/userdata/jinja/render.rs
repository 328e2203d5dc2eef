//! Executes a template's tags.

use super::MAX_OUTPUT;
use super::budget::{Budget, Step, fail};
use super::call::{Bound, Callable, LoopState};
use super::data::Variables;
use super::print::print;
use super::scope::Scope;
use super::syntax::{Body, Function, Kind, Loop, Node, Postfix, Target};
use super::value::{Heap, List, Value};
use std::cell::Cell;
use std::rc::Rc;

/// The context of evaluation.
pub struct Renderer<'a, 'b> {
    pub heap: Heap<'a, 'b>,
    variables: Variables<'a>,
    /// How many random choices were made.
    pub randoms: Cell<usize>,
}

/// The output.
struct Output<'b> {
    text: String,
    budget: &'b Budget<'b>,
    /// Whether it becomes a value in the template.
    captured: bool,
}

impl Output<'_> {
    fn push(&mut self, text: &str) -> Step<()> {
        if self.captured {
            self.budget.take(text.len())?;
        } else {
            self.budget.read(text.len())?;
        }
        if self.text.len() + text.len() > MAX_OUTPUT {
            return fail(format!("it writes more than {MAX_OUTPUT} bytes"));
        }
        self.text.push_str(text);
        Ok(())
    }
}

impl<'a, 'b> Renderer<'a, 'b> {
    pub fn new(variables: Variables<'a>, budget: &'b Budget<'b>) -> Self {
        Renderer { heap: Heap::new(budget), variables, randoms: Cell::new(0) }
    }

    pub fn budget(&self) -> &'b Budget<'b> {
        self.heap.budget
    }

    /// Renders a whole template.
    ///
    /// # Errors
    /// What cannot be done, with its line.
    pub fn template(&self, body: &Body<'a>) -> Step<String> {
        let mut out = Output { text: String::new(), budget: self.budget(), captured: false };
        self.body(body, &Rc::new(Scope::default()), &mut out)?;
        Ok(out.text)
    }

    /// A variable: set in the template, from instance-data, or built into jinja.
    pub fn variable(&self, name: &'a str, scope: &Scope<'a>) -> Step<Value<'a>> {
        if let Some(value) = scope.get(name) {
            return Ok(value);
        }
        if let Some(value) = self.variables.get(name, &self.heap)? {
            return Ok(value);
        }
        Ok(match Callable::global(name) {
            Some(function) => Value::Callable(Rc::new(function)),
            None => Value::undefined(name),
        })
    }

    fn body(&self, body: &[Node<'a>], scope: &Rc<Scope<'a>>, out: &mut Output<'_>) -> Step<()> {
        self.budget()
            .deeper(|| body.iter().try_for_each(|node| self.node(node, scope, out).map_err(|e| e.at(node.line))))
    }

    /// The output of a body, as a value.
    fn captured(&self, body: &[Node<'a>], scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        let mut out = Output { text: String::new(), budget: self.budget(), captured: true };
        self.body(body, scope, &mut out)?;
        self.heap.text(out.text)
    }

    fn node(&self, node: &Node<'a>, scope: &Rc<Scope<'a>>, out: &mut Output<'_>) -> Step<()> {
        self.budget().step(1)?;
        match &node.kind {
            Kind::Data(text) => out.push(text),
            Kind::Print(expression) => self.print(&self.evaluate(expression, scope)?, out),
            Kind::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.evaluate(condition, scope)?.is_true() {
                        return self.body(body, scope, out);
                    }
                }
                self.body(otherwise, scope, out)
            }
            Kind::For(tag) => {
                let over = self.evaluate(&tag.over, scope)?;
                self.each(tag, &over, scope, 0, out)
            }
            Kind::Set(target, expression) => {
                let value = self.evaluate(expression, scope)?;
                self.assign(target, value, scope)
            }
            Kind::SetBody(target, filters, body) => {
                let value = self.captured(body, &Scope::inside(scope))?;
                let value = self.filtered(value, filters, scope)?;
                self.assign(target, value, scope)
            }
            Kind::Do(expression) => self.evaluate(expression, scope).map(drop),
            Kind::Macro(name, function) => {
                let callable = Callable::Macro(function.clone(), Rc::downgrade(scope));
                scope.set(name, Value::Callable(Rc::new(callable)))
            }
            Kind::Call(function, call) => {
                let caller = Callable::Macro(function.clone(), Rc::downgrade(scope));
                let value = self.evaluate_call(call, Value::Callable(Rc::new(caller)), scope)?;
                self.print(&value, out)
            }
            Kind::Filter(filters, body) => {
                let value = self.captured(body, &Scope::inside(scope))?;
                self.print(&self.filtered(value, filters, scope)?, out)
            }
            Kind::With(values, body) => {
                let inner = Scope::inside(scope);
                for (target, expression) in values {
                    let value = self.evaluate(expression, scope)?;
                    self.assign(target, value, &inner)?;
                }
                self.body(body, &inner, out)
            }
            Kind::Scope(body) => self.body(body, &Scope::inside(scope), out),
        }
    }

    fn print(&self, value: &Value<'a>, out: &mut Output<'_>) -> Step<()> {
        if let Value::Text(text) = value {
            return out.push(text);
        }
        let mut text = String::new();
        print(value, &mut text, self.budget())?;
        out.push(&text)
    }

    fn filtered(&self, value: Value<'a>, filters: &[Postfix<'a>], scope: &Rc<Scope<'a>>) -> Step<Value<'a>> {
        filters.iter().try_fold(value, |value, filter| self.apply(value, filter, scope))
    }

    fn assign(&self, target: &Target<'a>, value: Value<'a>, scope: &Scope<'a>) -> Step<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => match scope.get(name) {
                Some(Value::Namespace(names)) => names.insert(Value::borrowed(attribute), value, self.budget()),
                _ => fail(format!("{name}.{attribute} is set, and {name} is no namespace")),
            },
            Target::Several(targets) => {
                let items = self.heap.items(&value)?;
                if items.len() != targets.len() {
                    return fail(format!("{} variables for {} values", targets.len(), items.len()));
                }
                let items = items.to_vec();
                targets.iter().zip(items).try_for_each(|(target, item)| self.assign(target, item, scope))
            }
        }
    }

    /// Executes a loop. `depth`: how many recursive calls it is in.
    fn each(
        &self,
        tag: &Rc<Loop<'a>>,
        over: &Value<'a>,
        scope: &Rc<Scope<'a>>,
        depth: usize,
        out: &mut Output<'_>,
    ) -> Step<()> {
        let items = self.chosen(tag, self.heap.items(over)?, scope)?;
        let state = Rc::new(Callable::Loop(LoopState::new(items.clone(), tag, scope, depth)));
        let Callable::Loop(position) = &*state else { return Ok(()) };
        let mut index = 0;
        while let Some(item) = items.get(index) {
            self.budget().step(1)?;
            position.at.set(index);
            let inner = Scope::inside(scope);
            inner.set("loop", Value::Callable(state.clone()))?;
            self.assign(&tag.target, item, &inner)?;
            self.body(&tag.body, &inner, out)?;
            index += 1;
        }
        if index == 0 { self.body(&tag.otherwise, &Scope::inside(scope), out) } else { Ok(()) }
    }

    /// The items for which a loop's `if` is true.
    fn chosen(&self, tag: &Loop<'a>, items: Rc<List<'a>>, scope: &Rc<Scope<'a>>) -> Step<Rc<List<'a>>> {
        let Some(condition) = &tag.condition else { return Ok(items) };
        let mut chosen = Vec::new();
        for item in (0..).map_while(|i| items.get(i)) {
            self.budget().step(1)?;
            let inner = Scope::inside(scope);
            self.assign(&tag.target, item.clone(), &inner)?;
            if self.evaluate(condition, &inner)?.is_true() {
                chosen.push(item);
            }
        }
        self.heap.shared(chosen, false)
    }

    /// `loop(items)` in a recursive loop: executes the loop for other items.
    pub fn again(&self, state: &LoopState<'a>, over: &Value<'a>) -> Step<Value<'a>> {
        let Some(scope) = state.scope.upgrade() else { return fail("loop is called outside of its loop") };
        let mut out = Output { text: String::new(), budget: self.budget(), captured: true };
        self.budget().deeper(|| self.each(&state.tag, over, &scope, state.depth + 1, &mut out))?;
        self.heap.text(out.text)
    }

    /// Calls a macro, whose body sees the scope in which it is defined.
    pub fn expand(&self, function: &Function<'a>, around: &Rc<Scope<'a>>, mut given: Bound<'a>) -> Step<Value<'a>> {
        let scope = Scope::inside(around);
        let extra = given.positional.split_off(function.parameters.len().min(given.positional.len()));
        let mut positional = given.positional.into_iter();
        for (name, default) in &function.parameters {
            let named = given.named.iter().position(|(n, _)| **n == **name).map(|i| given.named.swap_remove(i).1);
            let value = match (positional.next(), named, default) {
                (Some(value), None, _) | (None, Some(value), _) => value,
                (Some(_), Some(_), _) => return fail(format!("{}: {name} is given twice", function.name)),
                (None, None, Some(default)) => self.evaluate(default, &scope)?,
                (None, None, None) => Value::undefined(name),
            };
            scope.set(name, value)?;
        }
        if let Some(at) = given.named.iter().position(|(name, _)| **name == *"caller") {
            scope.set("caller", given.named.swap_remove(at).1)?;
        }
        scope.set("varargs", self.heap.tuple(extra)?)?;
        let named = given.named.into_iter().map(|(name, value)| (Value::Text(name), value));
        scope.set("kwargs", Value::Dict(self.heap.dict(named)?))?;
        self.captured(&function.body, &scope)
    }
}
