//! Variables set in a template, and their scopes.

use super::budget::{Step, fail};
use super::value::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The most variables of one scope.
const MAX_NAMES: usize = 1000;

/// The variables of a body, and the surrounding scope.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    names: RefCell<HashMap<&'a str, Value<'a>>>,
    around: Option<Rc<Scope<'a>>>,
}

impl<'a> Scope<'a> {
    /// An empty scope inside another.
    pub fn inside(around: &Rc<Scope<'a>>) -> Rc<Scope<'a>> {
        Rc::new(Scope { names: RefCell::default(), around: Some(around.clone()) })
    }

    /// The variable in the innermost scope that defines it.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        let own = self.names.borrow().get(name).cloned();
        own.or_else(|| self.around.as_ref()?.get(name))
    }

    /// Sets a variable of this scope.
    ///
    /// # Errors
    /// There are too many.
    pub fn set(&self, name: &'a str, value: Value<'a>) -> Step<()> {
        let mut names = self.names.borrow_mut();
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            return fail(format!("more than {MAX_NAMES} variables are set in one place"));
        }
        names.insert(name, value);
        Ok(())
    }
}
