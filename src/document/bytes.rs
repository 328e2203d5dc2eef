//! Bytes in a document.

use super::json::Writer;
use crate::base::base64;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that all copies share. In JSON they are a string if they are UTF-8 and do not begin with the mark,
/// else `base64:` and their base64.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(Arc<Vec<u8>>);

const MARK: &str = "base64:";

impl Bytes {
    /// The bytes of the JSON string `text`. None if it begins with the mark but is not base64.
    pub fn of_text(text: String) -> Option<Self> {
        match text.strip_prefix(MARK) {
            Some(text) => base64::decode(text.as_bytes()).map(Bytes::from),
            None => Some(text.into_bytes().into()),
        }
    }

    /// Writes the JSON string that [`Bytes::of_text`] reads.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_json(&self, json: &mut Writer) -> io::Result<()> {
        match std::str::from_utf8(self) {
            Ok(text) if !text.starts_with(MARK) => json.string(text),
            _ => json.base64(MARK, self),
        }
    }

    /// Whether there are other copies.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The bytes; copied only if they are shared.
    pub fn into_vec(self) -> Vec<u8> {
        Arc::try_unwrap(self.0).unwrap_or_else(|bytes| bytes.as_slice().to_vec())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes(Arc::new(bytes))
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}
