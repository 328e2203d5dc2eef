//! Bytes in a JSON document.

use crate::base::base64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that are held once, however many values have them. JSON holds them as text where they are UTF-8 and do not begin with
/// the mark, else as `base64:` and their base64.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(Arc<Vec<u8>>);

const MARK: &str = "base64:";

impl Bytes {
    /// The bytes; a copy where they are shared.
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

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self) {
            Ok(text) if !text.starts_with(MARK) => serializer.serialize_str(text),
            _ => serializer.collect_str(&base64::Marked(MARK, self)),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.strip_prefix(MARK) {
            Some(text) => base64::decode(text.as_bytes())
                .map(Bytes::from)
                .ok_or_else(|| serde::de::Error::custom("not valid base64")),
            None => Ok(text.into_bytes().into()),
        }
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
