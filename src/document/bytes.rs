//! Bytes in a JSON document.

use crate::base::base64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that JSON holds as text where they are UTF-8 and do not begin with the mark, else as `base64:` and their base64.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

const MARK: &str = "base64:";

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with(MARK) => serializer.serialize_str(text),
            _ => serializer.serialize_str(&format!("{MARK}{}", base64::encode(&self.0))),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.strip_prefix(MARK) {
            Some(text) => {
                base64::decode(text.as_bytes()).map(Bytes).ok_or_else(|| serde::de::Error::custom("not valid base64"))
            }
            None => Ok(Bytes(text.into_bytes())),
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes(bytes)
    }
}
