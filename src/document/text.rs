//! The strings of documents.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Strings of at least this many bytes are shared by all copies: a reference count costs less than copying
/// them.
const SHARED_FROM: usize = 128;

/// A string of a document; a long one is shared by all copies.
#[derive(Clone)]
pub struct Text(Kept);

#[derive(Clone)]
enum Kept {
    Own(String),
    Shared(Arc<String>),
}

impl Text {
    /// The string.
    pub fn as_str(&self) -> &str {
        self
    }

    /// Whether other copies have the same memory.
    pub fn is_shared(&self) -> bool {
        matches!(&self.0, Kept::Shared(text) if Arc::strong_count(text) > 1)
    }

    /// The string; copied only if it is shared.
    pub fn into_string(self) -> String {
        match self.0 {
            Kept::Own(text) => text,
            Kept::Shared(text) => Arc::try_unwrap(text).unwrap_or_else(|text| text.as_str().to_owned()),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Kept::Own(text) => text,
            Kept::Shared(text) => text,
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(if text.len() < SHARED_FROM { Kept::Own(text) } else { Kept::Shared(Arc::new(text)) })
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        text.to_owned().into()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        **self == **other
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        (**self).fmt(f)
    }
}
