//! Vendor-data: what its JSON holds, and whether and how it is used.

use super::Script;
use crate::base::error::Result;
use crate::base::report::Report;
use crate::document::{Bytes, Map, Value, wrong};
use crate::instance::vendor_document;
use std::collections::HashSet;

/// The documents in vendor_data.json: a string is one, or bytes such as gzip's (NoCloud's vendor-data), a list is several, a mapping's `cloud-init` key is either. A mapping
/// without that key is for someone else.
///
/// # Errors
/// Anything else. Entries of a list that are not text are reported and skipped.
pub fn documents(data: &Value, report: &mut Report) -> Result<Vec<Bytes>> {
    match vendor_document(data) {
        Value::Null | Value::Bool(false) | Value::Int(0) => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.as_bytes().into()]),
        Value::Bytes(bytes) => Ok(vec![bytes.clone()]),
        Value::List(list) => Ok(list.iter().enumerate().filter_map(|(i, item)| entry(i, item, report)).collect()),
        Value::Map(map) if map.is_empty() => Ok(Vec::new()),
        other => Err(wrong("vendor-data", "a string, a list, or one of them under cloud-init", other)),
    }
}

fn entry(index: usize, item: &Value, report: &mut Report) -> Option<Bytes> {
    let bytes = item.bytes().map(Bytes::from);
    if bytes.is_none() {
        report.warn(format_args!("vendor-data: entry {} ignored: expected text, found {}", index + 1, item.kind()));
    }
    bytes
}

/// How the configuration wants one kind of vendor-data: its `vendor_data` or `vendor_data2` key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub enabled: bool,
    /// The MIME types that are left out.
    pub disabled_handlers: Vec<String>,
    /// What vendor scripts are run with: a program and its arguments.
    pub prefix: Vec<String>,
}

impl Settings {
    /// Reads `key` of a configuration that has no vendor-data in it. An invalid value disables it; so does that there is none.
    pub fn read(config: &Map, key: &str, exists: bool, report: &mut Report) -> Settings {
        let settings = match config.get(key).filter(|_| exists) {
            None => return Settings::default(),
            Some(Value::Map(settings)) => settings,
            Some(other) => {
                report.warn(format_args!("{}; it is disabled", wrong(key, "a mapping", other)));
                return Settings::default();
            }
        };
        Settings {
            enabled: settings.get("enabled").is_some_and(Value::is_true),
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

/// Both kinds of vendor-data keep their scripts in one folder. One of vendor-data2 whose name is taken gets a name of its own,
/// so that both run.
pub fn keep_apart(first: &[Script], second: &mut [Script]) {
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
            assert_eq!(documents(&value(text), &mut Report::new()).ok(), expected, "{text}");
        }
        assert_eq!(
            documents(&Value::Bytes(vec![31, 139].into()), &mut Report::new()).ok(),
            Some(vec![vec![31, 139].into()])
        );
    }

    #[test]
    fn settings() {
        let read = |text: &str| match value(text) {
            Value::Map(map) => Settings::read(&map, "vendor_data", true, &mut Report::new()),
            _ => panic!("{text}"),
        };
        assert!(read(r#"{"vendor_data": {"enabled": true}}"#).enabled);
        assert!(read(r#"{"vendor_data": {"enabled": "yes"}}"#).enabled);
        assert!(!read(r#"{"vendor_data": {"enabled": "false"}}"#).enabled);
        assert!(!read(r#"{"vendor_data": {}}"#).enabled);
        assert!(!read(r#"{"vendor_data": true}"#).enabled);
        assert!(!read("{}").enabled);
        let mut report = Report::new();
        let Value::Map(off) = value(r#"{"vendor_data": false}"#) else { panic!() };
        for (exists, warnings) in [(false, 0), (true, 1)] {
            assert_eq!(Settings::read(&off, "vendor_data", exists, &mut report), Settings::default());
            assert_eq!(report.entries().len(), warnings);
        }
        let settings =
            read(r#"{"vendor_data": {"enabled": 1, "prefix": "strace", "disabled_handlers": ["text/x-shellscript"]}}"#);
        assert_eq!(settings.prefix, ["strace"]);
        assert_eq!(settings.disabled_handlers, ["text/x-shellscript"]);
    }
}
