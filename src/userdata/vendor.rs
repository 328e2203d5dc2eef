//! Vendor-data: its documents, and the settings for using it.

use super::UserScript;
use crate::base::budget;
use crate::base::deprecated;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value, wrong};
use crate::instance::vendor_document;
use std::collections::HashSet;

/// The documents in vendor_data.json: a string or bytes (NoCloud's vendor-data) are one document, a list
/// several, and a mapping has either at `cloud-init`. A mapping without that key is for other programs.
///
/// # Errors
/// It is of another type. Items of a list that are not strings are reported and skipped.
pub fn documents(data: &Value, report: &Problems) -> Result<Vec<Bytes>> {
    match vendor_document(data) {
        Value::Null | Value::Bool(false) | Value::Int(0) => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![copy(text.as_bytes())?]),
        Value::Bytes(bytes) => Ok(vec![bytes.clone()]),
        Value::List(list) => Ok(list.iter().enumerate().filter_map(|(i, item)| entry(i, item, report)).collect()),
        Value::Map(map) if map.is_empty() => Ok(Vec::new()),
        other => Err(wrong("vendor-data", "a string, a list, or one of them under cloud-init", other)),
    }
}

fn entry(index: usize, item: &Value, report: &Problems) -> Option<Bytes> {
    let number = index + 1;
    let Some(bytes) = item.bytes() else {
        report.warn(format_args!("vendor-data: entry {number} ignored: expected text, found {}", item.kind()));
        return None;
    };
    copy(bytes).map_err(|e| report.warn(format_args!("vendor-data: entry {number} ignored: {e}"))).ok()
}

/// A document beside the text in which the source has it.
fn copy(bytes: &[u8]) -> Result<Bytes> {
    budget::take(bytes.len())?;
    Ok(bytes.into())
}

/// The configuration's settings for one kind of vendor-data: its `vendor_data` or `vendor_data2` key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub enabled: bool,
    /// The MIME types to leave out.
    pub disabled_handlers: Vec<String>,
    /// The program and arguments that run vendor scripts.
    pub prefix: Vec<String>,
}

impl Settings {
    /// Reads `key` of a configuration without vendor-data. An invalid value disables vendor-data; so does
    /// `exists` being false.
    pub fn read(config: &Map, key: &str, exists: bool, report: &Problems) -> Settings {
        let settings = match config.get(key).filter(|_| exists) {
            None => return Settings::default(),
            Some(Value::Map(settings)) => settings,
            Some(other) => {
                report.warn(format_args!("{}; it is disabled", wrong(key, "a mapping", other)));
                return Settings::default();
            }
        };
        let enabled = settings.get("enabled");
        if let Some(text) = enabled.filter(|v| v.is_true()).and_then(Value::as_str) {
            report.deprecated(deprecated::VENDOR_TEXT.about(text));
        }
        Settings {
            enabled: enabled.is_some_and(Value::is_true),
            disabled_handlers: texts(settings.get("disabled_handlers")),
            prefix: texts(settings.get("prefix")),
        }
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
        Some(other) => other.text().filter(|t| !t.is_empty()).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Renames those scripts of vendor-data2 whose names vendor-data also has: both are kept in one folder, and
/// both have to run.
pub fn keep_apart(first: &[UserScript], second: &mut [UserScript]) {
    let taken: HashSet<_> = first.iter().map(|s| (s.name.clone(), s.when as u8)).collect();
    for script in second.iter_mut().filter(|s| taken.contains(&(s.name.clone(), s.when as u8))) {
        script.name = format!("vendor_data2-{}", script.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn value(text: &str) -> Value {
        json::parse("t", text.as_bytes()).unwrap()
    }

    #[test]
    fn documents_in_json() {
        for (text, expected) in [
            (r#""x""#, Some(vec!["x"])),
            (r#"["a", 1, "b"]"#, Some(vec!["a", "b"])),
            (r#"{"cloud-init": "x"}"#, Some(vec!["x"])),
            (r#"{"cloud-init": ["x"], "other": 1}"#, Some(vec!["x"])),
            (r#"{"other": 1}"#, Some(vec![])),
            (r#"{"cloud-init": {"cloud-init": "x"}}"#, None),
            ("null", Some(vec![])),
            ("{}", Some(vec![])),
            (r#""""#, Some(vec![])),
            ("5", None),
        ] {
            let expected = expected.map(|e| e.into_iter().map(|t| t.as_bytes().into()).collect::<Vec<_>>());
            assert_eq!(documents(&value(text), &Problems::new()).ok(), expected, "{text}");
        }
        assert_eq!(
            documents(&Value::Bytes(vec![31, 139].into()), &Problems::new()).ok(),
            Some(vec![vec![31, 139].into()])
        );
    }

    #[test]
    fn settings() {
        let read = |text: &str| match value(text) {
            Value::Map(map) => Settings::read(&map, "vendor_data", true, &Problems::new()),
            _ => panic!("{text}"),
        };
        assert!(read(r#"{"vendor_data": {"enabled": true}}"#).enabled);
        assert!(read(r#"{"vendor_data": {"enabled": "yes"}}"#).enabled);
        assert!(!read(r#"{"vendor_data": {"enabled": "false"}}"#).enabled);
        assert!(!read(r#"{"vendor_data": {}}"#).enabled);
        assert!(!read(r#"{"vendor_data": true}"#).enabled);
        assert!(!read("{}").enabled);
        let report = Problems::new();
        let Value::Map(off) = value(r#"{"vendor_data": false}"#) else { panic!() };
        for (exists, warnings) in [(false, 0), (true, 1)] {
            assert_eq!(Settings::read(&off, "vendor_data", exists, &report), Settings::default());
            assert_eq!(report.entries().len(), warnings);
        }
        let settings =
            read(r#"{"vendor_data": {"enabled": 1, "prefix": "strace", "disabled_handlers": ["text/x-shellscript"]}}"#);
        assert_eq!(settings.prefix, ["strace"]);
        assert_eq!(settings.disabled_handlers, ["text/x-shellscript"]);
    }
}
