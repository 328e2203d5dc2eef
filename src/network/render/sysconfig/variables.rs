//! Files of shell variables.

use crate::network::render::renderer::{File, HEADER};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Shell variables, sorted by name.
#[derive(Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets a variable.
    pub fn add(&mut self, key: impl Into<String>, value: impl ToString) {
        self.0.insert(key.into(), value.to_string());
    }

    /// Sets a variable if there is a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Sets a variable to `yes` or `no` if there is a value.
    pub fn yes_no(&mut self, key: &str, value: Option<bool>) {
        self.maybe(key, value.map(|v| if v { "yes" } else { "no" }));
    }

    /// Keeps the variables for which `keep`, which may change the value, returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut String) -> bool) {
        self.0.retain(|key, value| keep(key, value));
    }

    /// The file, with quotes where a shell needs them.
    pub fn to_file(&self, path: impl Into<String>) -> File {
        let mut out = String::from(HEADER);
        for (key, value) in &self.0 {
            let _ = writeln!(out, "{key}={}", quoted(value));
        }
        File::public(path, out)
    }
}

/// A value as a single word for a shell.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/=,+%@-".contains(c);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    let mut out = String::from("\"");
    for c in value.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn values_are_one_word_for_a_shell() {
        assert_eq!(quoted("mode=802.3ad"), "mode=802.3ad");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("x$(reboot)`y`\"\\\n"), "\"x\\$(reboot)\\`y\\`\\\"\\\\\"");
    }
}
