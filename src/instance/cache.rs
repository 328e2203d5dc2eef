//! The instance as a JSON document, from which later stages and boots load it: a mapping of the fields by
//! name.

use super::{DsMode, Instance, NetworkData};
use crate::base::error::Result;
use crate::base::problem::{Problem, Problems, Severity};
use crate::document::json::{self, Writer};
use crate::document::{Bytes, MAX_NODES, Map, Raw, Value, wrong};
use std::io::{self, Write};

/// The most values: this many of a datasource's documents are fields.
const MAX_VALUES: usize = 8 * MAX_NODES;

/// Calls a macro with the names of all fields, in the order in which they are written.
macro_rules! with_fields {
    ($call:ident) => {
        $call! {
            source class platform cloud_name subplatform described instance_id from_network machine_uuid metadata ds ec2_metadata
            user_data envelope raw signature vendor_data vendor_data2 network dsmode local_hostname availability_zone region launch_index public_keys config
            files private_files stale_files random_seed device_names problems
        }
    };
}

/// Parses the instance in the cache; `document` is its name in errors. A missing field, which an earlier
/// version did not know, gets its default.
///
/// # Errors
/// It is not JSON, or a field has the wrong type.
pub fn read(document: &str, bytes: &[u8]) -> Result<Instance> {
    let mut map = match json::parse_up_to(MAX_VALUES, document, bytes)? {
        Value::Map(map) => map,
        other => return Err(wrong(document, "a mapping", &other)),
    };
    macro_rules! instance {
        ($($name:ident)*) => { Instance { $($name: take(document, &mut map, stringify!($name))?),* } };
    }
    Ok(with_fields!(instance))
}

/// Writes the instance as [`read`] reads it.
///
/// # Errors
/// Those of `out`.
pub fn write(instance: &Instance, out: &mut dyn Write) -> io::Result<()> {
    write_without(instance, &[], out)
}

/// The same without some of the fields.
///
/// # Errors
/// Those of `out`.
pub fn write_without(instance: &Instance, left_out: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let mut json = Writer::new(out);
    json.begin("{")?;
    macro_rules! fields {
        ($($name:ident)*) => { $(
            if !left_out.contains(&stringify!($name)) && !instance.$name.is_omitted() {
                json.key(stringify!($name))?;
                instance.$name.write(&mut json)?;
            }
        )* };
    }
    with_fields!(fields);
    json.end("}")
}

/// Removes the field `name` from `map` and converts it.
fn take<T: Field + Default>(document: &str, map: &mut Map, name: &str) -> Result<T> {
    match map.remove(name) {
        None => Ok(T::default()),
        Some(value) => T::of(value).map_err(|value| wrong(&format!("{document}: {name}"), T::KIND, &value)),
    }
}

/// A type that fields have.
trait Field: Sized {
    const KIND: &'static str;

    /// Converts a value. One of the wrong type, or the wrong part of it, is the error.
    fn of(value: Value) -> std::result::Result<Self, Value>;

    /// Writes the value that [`Field::of`] converts.
    fn write(&self, json: &mut Writer) -> io::Result<()>;

    /// Whether the field is not written at all.
    fn is_omitted(&self) -> bool {
        false
    }
}

impl Field for Value {
    const KIND: &'static str = "a value";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        Ok(value)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.value(self)
    }
}

impl Field for Map {
    const KIND: &'static str = "a mapping";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        match value {
            Value::Map(map) => Ok(map),
            other => Err(other),
        }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.map(self)
    }
}

impl Field for String {
    const KIND: &'static str = "a string";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        match value {
            Value::String(text) => Ok(text.into_string()),
            other => Err(other),
        }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.string(self)
    }
}

impl Field for Bytes {
    const KIND: &'static str = "a string, or base64";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        Bytes::of_text(String::of(value)?).ok_or(Value::Null)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        self.write_json(json)
    }
}

impl Field for bool {
    const KIND: &'static str = "true or false";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        value.as_bool().ok_or(value)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.value(&(*self).into())
    }
}

impl Field for i64 {
    const KIND: &'static str = "an integer";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        value.as_int().ok_or(value)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.value(&(*self).into())
    }
}

impl<T: Field> Field for Option<T> {
    const KIND: &'static str = T::KIND;

    fn of(value: Value) -> std::result::Result<Self, Value> {
        if value.is_null() { Ok(None) } else { T::of(value).map(Some) }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        match self {
            Some(field) => field.write(json),
            None => json.value(&Value::Null),
        }
    }
}

impl<T: Field> Field for Vec<T> {
    const KIND: &'static str = "a list";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        match value {
            Value::List(list) => list.into_iter().map(T::of).collect(),
            other => Err(other),
        }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.begin("[")?;
        for field in self {
            json.item()?;
            field.write(json)?;
        }
        json.end("]")
    }
}

/// A path and the content of its file.
impl Field for (String, Bytes) {
    const KIND: &'static str = "a path and bytes";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        let Value::List(pair) = value else { return Err(value) };
        match <[Value; 2]>::try_from(pair) {
            Ok([path, bytes]) => Ok((String::of(path)?, Bytes::of(bytes)?)),
            Err(other) => Err(Value::List(other)),
        }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        let (path, bytes) = self;
        json.begin("[")?;
        json.item()?;
        json.string(path)?;
        json.item()?;
        bytes.write(json)?;
        json.end("]")
    }
}

impl Field for DsMode {
    const KIND: &'static str = "local, net, pass or disabled";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        value.as_str().and_then(DsMode::named).ok_or(value)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        json.string(self.name())
    }
}

/// The reason, as earlier versions wrote the whole text, or a mapping if there is an origin or a key. An instance has only warnings.
impl Field for Problem {
    const KIND: &'static str = "a text, or a mapping of origin, key and reason";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        let part = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let reason = match &value {
            Value::Map(_) => part("reason"),
            other => other.as_str().ok_or_else(|| other.clone())?,
        };
        Ok(Problem::new(Severity::Warning, part("origin"), part("key"), reason))
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        if self.origin.is_empty() && self.key.is_empty() {
            return json.string(&self.reason);
        }
        json.begin("{")?;
        for (key, part) in [("origin", &self.origin), ("key", &self.key), ("reason", &self.reason)] {
            json.key(key)?;
            json.string(part)?;
        }
        json.end("}")
    }
}

impl Field for Problems {
    const KIND: &'static str = "a list";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        let problems = Problems::new();
        Vec::<Problem>::of(value)?.into_iter().for_each(|problem| problems.push(problem));
        Ok(problems)
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        self.entries().write(json)
    }
}

/// The documents by their fields. Most machines have no trust policy, and their caches no such field.
impl Field for Option<Raw> {
    const KIND: &'static str = "a mapping of documents";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        let mut map = match value {
            Value::Null => return Ok(None),
            other => Map::of(other)?,
        };
        let mut raw = Raw::default();
        for (bytes, (_, _, name)) in raw.0.iter_mut().zip(Raw::PARTS) {
            *bytes = Field::of(map.remove(name).unwrap_or_default())?;
        }
        Ok(Some(raw))
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        let Some(raw) = self else { return json.value(&Value::Null) };
        json.begin("{")?;
        for (bytes, (_, _, name)) in raw.0.iter().zip(Raw::PARTS) {
            json.key(name)?;
            bytes.write(json)?;
        }
        json.end("}")
    }

    fn is_omitted(&self) -> bool {
        self.is_none()
    }
}

const OPENSTACK: &str = "openstack";
const CLOUD: &str = "cloud";
const ENI: &str = "eni";

impl Field for NetworkData {
    const KIND: &'static str = "a mapping of format (openstack, cloud or eni) and data";

    fn of(value: Value) -> std::result::Result<Self, Value> {
        let mut map = Map::of(value)?;
        let data = map.remove("data").unwrap_or_default();
        match map.get("format").and_then(Value::as_str) {
            Some(OPENSTACK) => Ok(NetworkData::Openstack(data)),
            Some(CLOUD) => Ok(NetworkData::Cloud(data)),
            Some(ENI) => String::of(data).map(NetworkData::Eni),
            _ => Err(Value::Map(map)),
        }
    }

    fn write(&self, json: &mut Writer) -> io::Result<()> {
        let (format, data) = match self {
            NetworkData::Openstack(data) => (OPENSTACK, data),
            NetworkData::Cloud(data) => (CLOUD, data),
            NetworkData::Eni(text) => (ENI, &text.as_str().into()),
        };
        json.begin("{")?;
        json.key("format")?;
        json.string(format)?;
        json.key("data")?;
        json.value(data)?;
        json.end("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_went_in() {
        let instance = Instance {
            instance_id: "a/b".into(),
            from_network: true,
            user_data: Some(Bytes::from(vec![0, 159, 146])),
            metadata: json::parse("t", br#"{"uuid": "u", "meta": {"a": 1}}"#).unwrap(),
            network: Some(NetworkData::Eni("auto lo\n".into())),
            dsmode: DsMode::Local,
            launch_index: Some(-1),
            public_keys: vec!["ssh-ed25519 k".into()],
            files: vec![
                ("/etc/x".into(), Bytes::from(b"y".to_vec())),
                ("/etc/y".into(), Bytes::from(b"base64:".to_vec())),
            ],
            ..Instance::default()
        };
        let data = || json::parse("t", br#"{"links": []}"#).unwrap();
        for network in
            [instance.network.clone(), Some(NetworkData::Openstack(data())), Some(NetworkData::Cloud(data())), None]
        {
            let instance = Instance { network, ..instance.clone() };
            let mut text = Vec::new();
            write(&instance, &mut text).unwrap();
            assert_eq!(read("t", &text).unwrap(), instance, "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn caches_problems_and_reads_old_texts() {
        let instance = Instance::default();
        instance.problems.about("meta_data.json").warn_key("files", "expected a list");
        instance.problems.warn("a, b");
        let mut text = Vec::new();
        write(&instance, &mut text).unwrap();
        assert_eq!(read("t", &text).unwrap(), instance);
        let old = read("t", br#"{"problems": ["meta_data.json: files: expected a list", "a, b"]}"#).unwrap();
        assert_eq!(old.problems.texts(Severity::Warning), instance.problems.texts(Severity::Warning));
        let wrong = read("t", br#"{"problems": [1]}"#).unwrap_err().to_string();
        assert!(wrong.starts_with("t: problems: expected a list"), "{wrong}");
    }

    #[test]
    fn reads_other_versions_cache_and_names_bad_one() {
        let read = |text: &str| read("datasource.json", text.as_bytes());
        let instance = read(r#"{"instance_id": "i-1", "dsmode": "pass", "launch_index": null, "later": [1]}"#).unwrap();
        assert_eq!(instance, Instance { instance_id: "i-1".into(), dsmode: DsMode::Pass, ..Instance::default() });
        for (text, expected) in [
            ("[]", "datasource.json: expected a mapping"),
            ("{\"a\": }", "datasource.json: not valid JSON at line 1 column 7"),
            (r#"{"source": 1}"#, "datasource.json: source: expected a string"),
            (r#"{"public_keys": ["k", {}]}"#, "datasource.json: public_keys: expected a list"),
            (r#"{"files": [["/a", "b", "c"]]}"#, "datasource.json: files: expected a list"),
            (r#"{"user_data": "base64:!"}"#, "datasource.json: user_data: expected a string, or base64"),
            (r#"{"dsmode": "Net"}"#, "datasource.json: dsmode: expected local, net, pass or disabled"),
            (r#"{"network": {"format": "eni", "data": {}}}"#, "datasource.json: network: expected a mapping of format"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
