//! Decodes the values of a transport.

use super::{document_of, marks};
use crate::base::base64;
use crate::base::error::{Context, Error, Result};
use crate::base::gzip;
use crate::base::problem::Problems;
use crate::document::{Bytes, InstancePart, Taken, Value};

/// The largest decompressed value, in bytes.
const MAX_UNPACKED: usize = 16 << 20;

/// The decoded values of a transport.
#[derive(Debug, Default)]
pub struct Values {
    /// cloud-init's name of the transport and of its metadata's place.
    pub place: String,
    pub metadata: Option<Value>,
    pub user_data: Option<Vec<u8>>,
    pub vendor_data: Option<Vec<u8>>,
    /// The source's configuration, apart from vendor-data.
    pub config: Value,
    /// Files that replace those of the image.
    pub files: Vec<(String, Bytes)>,
    /// Files to remove once the data is on the disk.
    pub stale_files: Vec<String>,
    pub problems: Problems,
}

impl Values {
    /// Reads the values that `get` returns by key, each with its `KEY.encoding`. None if there is none. A
    /// value that cannot be decoded is a problem. All but user-data are noted as they came.
    pub fn read(place: &str, taken: &Taken, get: impl Fn(&str) -> Option<String>) -> Option<Values> {
        let get = |key: &str| {
            let value = get(key)?;
            // The encodings, too: they are part of what a value means.
            let part = match key.split('.').next() {
                Some("userdata") => InstancePart::UserData,
                Some("vendordata") => InstancePart::VendorData,
                _ => InstancePart::Metadata,
            };
            taken.add_to(part, key, value.as_bytes());
            Some(value)
        };
        let mut values = Values { place: place.to_owned(), ..Values::default() };
        let mut value = |key: &str| {
            let text = get(key).map(|text| text.trim_end().to_owned()).filter(|t| !t.is_empty() && t != "---")?;
            let encoding = get(&format!("{key}.encoding"));
            match decoded(key, encoding.as_deref(), &text) {
                Ok(bytes) => Some(bytes),
                Err(e) => {
                    values.problems.warn(e.to_string());
                    Some(Vec::new())
                }
            }
        };
        let [metadata, user_data, vendor_data] = marks::KEYS.map(&mut value);
        if metadata.is_none() && user_data.is_none() && vendor_data.is_none() {
            return None;
        }
        values.metadata = match metadata.filter(|bytes| !bytes.is_empty()).map(|bytes| document_of("metadata", &bytes))
        {
            Some(Ok(document)) => Some(document),
            Some(Err(e)) => {
                values.problems.warn(e.to_string());
                None
            }
            None => None,
        };
        values.user_data = user_data.filter(|bytes| !bytes.is_empty());
        values.vendor_data = vendor_data.filter(|bytes| !bytes.is_empty());
        Some(values)
    }
}

/// Decodes a value: `base64` or `b64`, `gzip+base64` or `gz+b64`; with any other encoding it stays as it is.
///
/// # Errors
/// It is not in that encoding, or is larger than 16 MiB.
pub fn decoded(key: &str, encoding: Option<&str>, text: &str) -> Result<Vec<u8>> {
    let encoding = encoding.map(str::trim).unwrap_or_default();
    let is_packed = matches!(encoding, "gzip+base64" | "gz+b64");
    if !is_packed && !matches!(encoding, "base64" | "b64") {
        return Ok(text.as_bytes().to_vec());
    }
    let what = || format!("{key}: expected {encoding}, as its encoding says");
    let packed = base64::decode_lines(text.as_bytes()).ok_or_else(|| Error::new("it is no base64")).context(what)?;
    if !is_packed {
        return Ok(packed);
    }
    gzip::unpack(&packed, MAX_UNPACKED).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        let of = |encoding: &str, text: &str| decoded("userdata", Some(encoding), text);
        assert_eq!(of("b64", "aGk=\n"), Ok(b"hi".to_vec()));
        assert_eq!(of("", "aGk="), Ok(b"aGk=".to_vec()));
        let packed = base64::encode(&crate::base::tar::stored_gzip(b"hi"));
        assert_eq!(of("gzip+base64", &packed), Ok(b"hi".to_vec()));
        let error = of("gz+b64", "aGk=").unwrap_err().to_string();
        assert!(error.starts_with("userdata: expected gz+b64, as its encoding says: "), "{error}");
        assert!(of("base64", "!").is_err());
    }

    #[test]
    fn empty_values_are_none() {
        assert!(Values::read("p", &Taken::default(), |_| Some("--- \n".into())).is_none());
        let values =
            Values::read("p", &Taken::default(), |key| (key == "userdata").then(|| "#!/bin/sh\n".into())).unwrap();
        assert_eq!(values.user_data.as_deref(), Some(&b"#!/bin/sh"[..]));
        let broken = Values::read("p", &Taken::default(), |key| {
            Some(if key.ends_with("encoding") { "b64" } else { "!!" }.into())
        })
        .unwrap();
        assert_eq!((broken.problems.len(), broken.metadata.is_none()), (3, true));
    }
}
