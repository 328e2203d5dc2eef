//! The error type: the failed action, its object, and the remedy.

use std::fmt;

/// A failure, as one line for a person. Never contains a secret: no password, key or user-data.
///
/// One word in size, so that a `Result<()>` is returned in a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Message>);

/// Boxed, so that an error is one pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message(String);

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with the text `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Error::of(message.into())
    }

    #[cold]
    fn of(message: String) -> Self {
        Error(Box::new(Message(message)))
    }

    /// Prefixes the error with what was being done: `what: cause`.
    pub fn context(self, what: impl fmt::Display) -> Self {
        Error::of(format!("{what}: {}", self.0.0))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl std::error::Error for Error {}

/// Adds to an error what was being done. Called once at each boundary that the error crosses.
pub trait Context<T> {
    /// `Err(cause)` becomes `Err("what(): cause")`.
    fn context<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| joined(&what(), &e))
    }
}

/// Not generic, because it is called from hundreds of places.
#[cold]
fn joined(what: &dyn fmt::Display, cause: &dyn fmt::Display) -> Error {
    Error::of(format!("{what}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_stands_before_its_cause() {
        let io: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(2));
        let error = io.context(|| "failed to open /dev/sr0").unwrap_err();
        assert_eq!(error.to_string(), "failed to open /dev/sr0: No such file or directory (os error 2)");
        assert_eq!(
            error.context("probe").to_string(),
            "probe: failed to open /dev/sr0: No such file or directory (os error 2)"
        );
    }
}
