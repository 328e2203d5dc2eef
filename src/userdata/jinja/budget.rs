//! The limits of a template: steps, memory and nesting, checked while it is parsed and rendered.

use std::cell::Cell;

/// The most steps of all templates of one source together. A step is one evaluated node of the syntax tree,
/// or [`STEP_BYTES`] bytes that are copied or searched.
const MAX_STEPS: usize = 4_000_000;
/// How many bytes are copied or searched in one step.
const STEP_BYTES: usize = 64;
/// The most bytes of all values of one template, including those no longer used.
const MAX_VALUES: usize = 12 << 20;
/// The most nodes of a template's syntax tree.
const MAX_NODES: usize = 100_000;
/// The greatest depth of the syntax tree, and of macro calls within it.
pub const MAX_DEPTH: usize = 100;
/// The longest range (jinja2's sandbox, `MAX_RANGE`).
pub const MAX_RANGE: usize = 100_000;

/// An error in a template and its line, from 1; 0 while the line is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub what: String,
    pub line: usize,
}

/// The result of an operation.
pub type Step<T> = Result<T, Box<Failure>>;

impl Failure {
    /// Sets the line, unless it is known.
    pub fn at(mut self: Box<Self>, line: usize) -> Box<Self> {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

/// An error whose line the caller sets.
pub fn fail<T>(what: impl Into<String>) -> Step<T> {
    Err(Box::new(Failure { what: what.into(), line: 0 }))
}

/// The remaining steps of one source's templates.
#[derive(Debug)]
pub struct Fuel(Cell<usize>);

impl Default for Fuel {
    fn default() -> Self {
        Fuel(Cell::new(MAX_STEPS))
    }
}

/// The remaining budget of one template.
#[derive(Debug)]
pub struct Budget<'f> {
    fuel: &'f Fuel,
    values: Cell<usize>,
    nodes: Cell<usize>,
    depth: Cell<usize>,
}

impl<'f> Budget<'f> {
    /// A template's budget, which takes its steps from `fuel`.
    pub fn new(fuel: &'f Fuel) -> Self {
        Budget { fuel, values: Cell::new(MAX_VALUES), nodes: Cell::new(MAX_NODES), depth: Cell::new(0) }
    }

    /// Uses steps.
    ///
    /// # Errors
    /// None are left.
    pub fn step(&self, steps: usize) -> Step<()> {
        match self.fuel.0.get().checked_sub(steps) {
            Some(left) => {
                self.fuel.0.set(left);
                Ok(())
            }
            None => {
                self.fuel.0.set(0);
                fail("it takes too many steps")
            }
        }
    }

    /// Uses the steps for reading or copying `bytes` bytes.
    ///
    /// # Errors
    /// None are left.
    pub fn read(&self, bytes: usize) -> Step<()> {
        self.step(bytes / STEP_BYTES)
    }

    /// Uses memory for a value.
    ///
    /// # Errors
    /// There is not that much left.
    pub fn take(&self, bytes: usize) -> Step<()> {
        match self.values.get().checked_sub(bytes) {
            Some(left) => self.values.set(left),
            None => return fail(format!("its values take more than {MAX_VALUES} bytes")),
        }
        self.read(bytes)
    }

    /// Counts a node of the syntax tree.
    ///
    /// # Errors
    /// There are too many.
    pub fn node(&self) -> Step<()> {
        match self.nodes.get().checked_sub(1) {
            Some(left) => {
                self.nodes.set(left);
                Ok(())
            }
            None => fail(format!("it has more than {MAX_NODES} expressions and tags")),
        }
    }

    /// Calls `inner` one level deeper.
    ///
    /// # Errors
    /// That of `inner`, or too deep a nesting.
    pub fn deeper<T>(&self, inner: impl FnOnce() -> Step<T>) -> Step<T> {
        let depth = self.depth.get();
        if depth >= MAX_DEPTH {
            return fail(format!("it nests deeper than {MAX_DEPTH}"));
        }
        self.depth.set(depth + 1);
        let result = inner();
        self.depth.set(depth);
        result
    }
}
