//! INI files with repeated sections and keys: systemd's and NetworkManager's.

use std::borrow::Cow;
use std::fmt::Write;

/// One section: its name and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    name: Cow<'static, str>,
    lines: Vec<(String, String)>,
}

impl Section {
    /// An empty section.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Section {
        Section { name: name.into(), lines: Vec::new() }
    }

    /// Adds `key=value`. A value is one line, whatever a document has in it.
    pub fn add(&mut self, key: impl Into<String>, value: impl ToString) {
        self.lines.push((key.into(), value.to_string().replace(char::is_control, " ")));
    }

    /// Adds `key=value` if there is a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Adds `key=yes` or `key=no` if there is a value.
    pub fn yes_no(&mut self, key: &str, value: Option<bool>) {
        self.maybe(key, value.map(|v| if v { "yes" } else { "no" }));
    }

    /// Keeps the lines for which `keep`, which may change the value, returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut String) -> bool) {
        self.lines.retain_mut(|(key, value)| keep(key, value));
    }

    /// The name between the brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds another section's lines.
    pub fn append(&mut self, other: Section) {
        self.lines.extend(other.lines);
    }

    /// Whether it has no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The file's text: `header`, and the sections that have lines.
pub fn write(header: &str, sections: &[Section]) -> String {
    let mut out = String::from(header);
    for section in sections.iter().filter(|s| !s.is_empty()) {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "[{}]", section.name);
        for (key, value) in &section.lines {
            let _ = writeln!(out, "{key}={value}");
        }
    }
    out
}
