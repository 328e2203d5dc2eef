//! Calls in templates: macros, methods, loops and jinja's functions.

use super::budget::{MAX_RANGE, Step, fail};
use super::methods;
use super::render::Renderer;
use super::scope::Scope;
use super::syntax::{Function, Loop};
use super::value::{Heap, List, Text, Value};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The evaluated arguments of a call.
#[derive(Default)]
pub struct Bound<'a> {
    pub positional: Vec<Value<'a>>,
    pub named: Vec<(Text<'a>, Value<'a>)>,
}

impl<'a> Bound<'a> {
    /// Assigns the arguments to parameters.
    ///
    /// # Errors
    /// One that is given twice, has another name, or is one too many.
    pub fn by_name<const N: usize>(self, names: [&str; N]) -> Step<[Option<Value<'a>>; N]> {
        let mut values = [const { None }; N];
        if self.positional.len() > N {
            return fail(format!("{} arguments where {N} are expected at most", self.positional.len()));
        }
        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match names.iter().position(|n| *n == &*name).and_then(|i| values.get_mut(i)) {
                Some(slot @ None) => *slot = Some(value),
                Some(_) => return fail(format!("{} is given twice", &*name)),
                None => return fail(format!("there is no argument {}", &*name)),
            }
        }
        Ok(values)
    }
}

/// Something that can be called.
#[derive(Debug)]
pub enum Callable<'a> {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    /// A method of a string, number, list or mapping.
    Method(Value<'a>, &'static str),
    /// A macro, and the scope in which it is defined.
    Macro(Rc<Function<'a>>, Weak<Scope<'a>>),
    /// The `loop` of a loop.
    Loop(LoopState<'a>),
    /// `loop.cycle`, `loop.changed`, `cycler.next` and `cycler.reset`.
    Part(Rc<Callable<'a>>, &'static str),
    /// The result of `cycler(…)`.
    Cycle(Rc<List<'a>>, Cell<usize>),
    /// The result of `joiner(…)`, and whether it has been called.
    Join(Value<'a>, Cell<bool>),
}

/// How jinja2 prints an item that a list does not have.
pub const NOTHING: &str = "None";

/// A running loop.
#[derive(Debug)]
pub struct LoopState<'a> {
    pub items: Rc<List<'a>>,
    pub at: Cell<usize>,
    pub tag: Rc<Loop<'a>>,
    pub scope: Weak<Scope<'a>>,
    pub depth: usize,
    /// The arguments of the last call of `loop.changed`.
    changed: RefCell<Option<Rc<List<'a>>>>,
}

impl<'a> LoopState<'a> {
    pub fn new(items: Rc<List<'a>>, tag: &Rc<Loop<'a>>, scope: &Rc<Scope<'a>>, depth: usize) -> Self {
        let (tag, scope) = (tag.clone(), Rc::downgrade(scope));
        LoopState { items, at: Cell::new(0), tag, scope, depth, changed: RefCell::new(None) }
    }

    fn attribute(&self, name: &str) -> Option<Value<'a>> {
        let (at, length) = (self.at.get(), self.items.len());
        let number = |n: usize| i64::try_from(n).map_or(Value::None, Value::Int);
        Some(match name {
            "index" => number(at + 1),
            "index0" => number(at),
            "revindex" => number(length.saturating_sub(at)),
            "revindex0" => number(length.saturating_sub(at + 1)),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 >= length),
            "length" => number(length),
            "depth" => number(self.depth + 1),
            "depth0" => number(self.depth),
            "previtem" => at.checked_sub(1).and_then(|i| self.items.get(i)).unwrap_or(Value::undefined(NOTHING)),
            "nextitem" => self.items.get(at + 1).unwrap_or(Value::undefined(NOTHING)),
            _ => return None,
        })
    }
}

impl<'a> Callable<'a> {
    /// One of jinja's functions.
    pub fn global(name: &str) -> Option<Self> {
        Some(match name {
            "range" => Callable::Range,
            "dict" => Callable::Dict,
            "namespace" => Callable::Namespace,
            "cycler" => Callable::Cycler,
            "joiner" => Callable::Joiner,
            _ => return None,
        })
    }

    /// An attribute of a loop, a macro or a cycler.
    pub fn attribute(self: &Rc<Self>, name: &str, heap: &Heap<'a, '_>) -> Step<Value<'a>> {
        let part = |name| Ok(Value::Callable(Rc::new(Callable::Part(self.clone(), name))));
        match (&**self, name) {
            (Callable::Loop(_), "cycle") => return part("cycle"),
            (Callable::Loop(_), "changed") => return part("changed"),
            (Callable::Cycle(..), "next") => return part("next"),
            (Callable::Cycle(..), "reset") => return part("reset"),
            (Callable::Cycle(items, at), "current") => {
                return Ok(items.get(at.get() % items.len().max(1)).unwrap_or(Value::None));
            }
            (Callable::Macro(function, _), "name") => return Ok(Value::borrowed(function.name)),
            (Callable::Loop(state), name) => {
                if let Some(value) = state.attribute(name) {
                    return Ok(value);
                }
            }
            _ => {}
        }
        match heap.text(name)? {
            Value::Text(name) => Ok(Value::Undefined(name)),
            other => Ok(other),
        }
    }
}

impl<'a> Renderer<'a, '_> {
    /// Calls a value.
    ///
    /// # Errors
    /// It cannot be called, or the arguments are invalid.
    pub fn call(&self, callee: &Value<'a>, given: Bound<'a>) -> Step<Value<'a>> {
        let callable = match callee {
            Value::Callable(callable) => callable,
            Value::Undefined(name) => return fail(format!("{} is undefined", &**name)),
            other => return fail(format!("{} cannot be called", other.kind())),
        };
        match &**callable {
            Callable::Range => self.range(given),
            Callable::Dict => self.dict(given).map(Value::Dict),
            Callable::Namespace => self.dict(given).map(Value::Namespace),
            Callable::Cycler => {
                let items = self.heap.shared(given.positional, true)?;
                Ok(Value::Callable(Rc::new(Callable::Cycle(items, Cell::new(0)))))
            }
            Callable::Joiner => {
                let [glue] = given.by_name(["sep"])?;
                let glue = match glue {
                    Some(glue @ Value::Text(_)) => glue,
                    _ => Value::borrowed(", "),
                };
                Ok(Value::Callable(Rc::new(Callable::Join(glue, Cell::new(false)))))
            }
            Callable::Method(value, name) => methods::call(self, value, name, given),
            Callable::Macro(function, scope) => match scope.upgrade() {
                Some(scope) => self.budget().deeper(|| self.expand(function, &scope, given)),
                None => fail(format!("the macro {} is called outside of the tag that it is in", function.name)),
            },
            Callable::Loop(state) if state.tag.recursive => match given.by_name(["iterable"])? {
                [Some(over)] => self.again(state, &over),
                _ => fail("loop: expected what to go over"),
            },
            Callable::Loop(_) => fail("loop is called, and the loop is not recursive"),
            Callable::Part(whole, name) => self.part(whole, name, given),
            Callable::Join(glue, used) => Ok(if used.replace(true) { glue.clone() } else { Value::borrowed("") }),
            Callable::Cycle(..) => fail("a cycler cannot be called"),
        }
    }

    fn part(&self, whole: &Callable<'a>, name: &str, given: Bound<'a>) -> Step<Value<'a>> {
        match (whole, name) {
            (Callable::Cycle(items, at), "next") => {
                let value = items.get(at.get()).unwrap_or(Value::None);
                at.set((at.get() + 1) % items.len().max(1));
                Ok(value)
            }
            (Callable::Cycle(_, at), _) => {
                at.set(0);
                Ok(Value::None)
            }
            (Callable::Loop(_), "cycle") if given.positional.is_empty() => fail("loop.cycle: expected values"),
            (Callable::Loop(state), "cycle") => {
                let at = state.at.get() % given.positional.len();
                Ok(given.positional.into_iter().nth(at).unwrap_or(Value::None))
            }
            (Callable::Loop(state), _) => {
                let now = self.heap.shared(given.positional, true)?;
                let before = state.changed.replace(Some(now.clone()));
                let same = before.map_or(Ok(false), |b| Value::List(b).equals(&Value::List(now), self.budget()))?;
                Ok(Value::Bool(!same))
            }
            _ => fail("no such function"),
        }
    }

    fn range(&self, given: Bound<'a>) -> Step<Value<'a>> {
        let numbers: Option<Vec<i64>> = given.positional.iter().map(Value::as_int).collect();
        let (start, end, step) = match numbers.as_deref() {
            Some([end]) => (0, *end, 1),
            Some([start, end]) => (*start, *end, 1),
            Some([start, end, step]) if *step != 0 => (*start, *end, *step),
            _ => return fail("range: expected one to three integers, the third not 0"),
        };
        let span = i128::from(end) - i128::from(start);
        let count = (span + i128::from(step) - i128::from(step.signum())) / i128::from(step);
        match usize::try_from(count.max(0)) {
            Ok(count) if count <= MAX_RANGE => {
                let numbers = std::iter::successors(Some(start), |n| n.checked_add(step)).take(count);
                self.heap.list(numbers.map(Value::Int).collect())
            }
            _ => fail(format!("range: more than {MAX_RANGE} numbers")),
        }
    }

    fn dict(&self, given: Bound<'a>) -> Step<Rc<super::value::Dict<'a>>> {
        let dict = self.heap.dict([])?;
        for value in given.positional {
            self.update(&dict, &value)?;
        }
        for (name, value) in given.named {
            dict.insert(Value::Text(name), value, self.budget())?;
        }
        Ok(dict)
    }

    /// Adds the entries of a mapping, or of a list of pairs.
    ///
    /// # Errors
    /// It is neither.
    pub fn update(&self, dict: &super::value::Dict<'a>, other: &Value<'a>) -> Step<()> {
        match other {
            Value::Dict(other) | Value::Namespace(other) => {
                let entries = other.entries();
                entries.into_iter().try_for_each(|(key, value)| dict.insert(key, value, self.budget()))
            }
            other => {
                for pair in self.heap.items(other)?.to_vec() {
                    let pair = self.heap.items(&pair)?;
                    let (Some(key), Some(value), 2) = (pair.get(0), pair.get(1), pair.len()) else {
                        return fail("dict: expected pairs");
                    };
                    dict.insert(key, value, self.budget())?;
                }
                Ok(())
            }
        }
    }
}
