//! A path to a place in a document.

use std::fmt;

/// How many characters of a key are shown in messages.
const MAX_NAME: usize = 64;

/// The keys and list indexes from the top, separated by dots: `users.0.name`.
#[derive(Debug, Default)]
pub struct Path {
    text: String,
    /// The length of the text before each step.
    before: Vec<usize>,
}

impl Path {
    /// Appends a key or list index. Control characters, and the rest of a very long key, are left out.
    pub fn enter(&mut self, step: &dyn fmt::Display) {
        self.before.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.extend(step.to_string().chars().filter(|c| !c.is_control()).take(MAX_NAME));
    }

    /// Removes the last step.
    pub fn leave(&mut self) {
        self.text.truncate(self.before.pop().unwrap_or(0));
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let mut path = Path::default();
        path.enter(&"users");
        path.enter(&0);
        path.enter(&"na\x1b[2Jme");
        assert_eq!(path.as_str(), "users.0.na[2Jme");
        path.leave();
        path.leave();
        path.enter(&"x".repeat(100_000));
        assert_eq!(path.as_str().len(), "users.".len() + MAX_NAME);
        path.leave();
        path.leave();
        path.leave();
        assert_eq!(path.as_str(), "");
    }
}
