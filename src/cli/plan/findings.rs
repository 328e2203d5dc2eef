//! What is wrong with the documents of a plan, each with its place and what to do.

use super::document::{Document, Place, Use};
use crate::base::problem::Problem;
use crate::base::problem::{Problems, Severity};
use crate::document::Map;
use crate::schema::{self, Deviations};

/// The most that are reported.
const MAX_FINDINGS: usize = 1_000;
/// Messages that only repeat what the schemas say.
const REPEATED: [&str; 2] = ["cloud-config failed schema validation!", "Deprecated cloud-config provided:"];

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The document is not what its reader takes, or something that it asks for is not done.
    Error,
    /// Something is ignored or replaced by a default.
    Warning,
    /// Something is deprecated.
    Note,
}

impl Level {
    /// The level's name, which SARIF has too.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        }
    }
}

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// The document's path as it was given.
    pub document: String,
    /// None: the place in the document is not known.
    pub place: Option<Place>,
    /// `users.0.name`; empty if it is about no key of the document.
    pub key: String,
    /// What is wrong and what was expected.
    pub what: String,
    /// What to do. May be empty.
    pub fix: String,
}

impl Finding {
    /// The message: key, what is wrong, and what to do.
    pub fn message(&self) -> String {
        let colon = if self.key.is_empty() { "" } else { ": " };
        let stop = if self.fix.is_empty() { "" } else { ". " };
        format!("{}{colon}{}{stop}{}", self.key, self.what, self.fix)
    }

    /// A line as compilers print it: `path:line:column: error: message`.
    pub fn line(&self) -> String {
        let place = self.place.map_or_else(String::new, |(line, column)| format!("{line}:{column}:"));
        format!("{}:{place} {}: {}\n", self.document, self.level.name(), self.message())
    }
}

/// What is wrong, in the order of the documents' lines: by their schemas, and by the `report` of the plan.
pub fn find(documents: &[Document], report: &Problems) -> Vec<Finding> {
    let mut found: Vec<Finding> = documents.iter().flat_map(of_document).collect();
    // What belongs to no other document belongs to the first, which is the user-data.
    let first = documents.iter().find(|d| d.usage == Use::UserData).or(documents.first());
    let broken = documents.iter().any(|d| d.mistake.is_some());
    for entry in report.entries() {
        let text = entry.to_string();
        let is_repeated =
            REPEATED.iter().any(|start| text.starts_with(start)) || broken && text.contains("not valid YAML at line ");
        if let Some(document) = first.filter(|_| !is_repeated) {
            found.push(of_message(document, entry.severity, &text));
        }
    }
    found.truncate(MAX_FINDINGS);
    let order = |a: &Finding, b: &Finding| {
        let place = |f: &Finding| f.place.unwrap_or((usize::MAX, 0));
        (&a.document, place(a), a.level).cmp(&(&b.document, place(b), b.level))
    };
    crate::base::sort::by(&mut found, order);
    found
}

fn of_document(document: &Document) -> Vec<Finding> {
    if let Some((what, place)) = &document.mistake {
        return vec![Finding {
            level: Level::Error,
            document: document.path.clone(),
            place: Some(*place),
            key: String::new(),
            what: what.clone(),
            fix: String::new(),
        }];
    }
    let Some(config) = document.config().filter(|_| cfg!(feature = "schema")) else { return Vec::new() };
    let Deviations { errors, deprecations } = match document.usage {
        Use::UserData => schema::cloud_config(config),
        Use::NetworkConfig => schema::network_config(config),
    };
    let errors = errors.iter().map(|problem| of_problem(document, config, Level::Error, problem));
    errors.chain(deprecations.iter().map(|p| of_problem(document, config, Level::Note, p))).collect()
}

fn of_problem(document: &Document, config: &Map, level: Level, problem: &Problem) -> Finding {
    let fix = match document.usage {
        Use::UserData => schema::cloud_config_fix(problem),
        Use::NetworkConfig => schema::network_config_fix(config, problem),
    };
    // The text of a deprecation has its advice at its end.
    let what = problem.reason.trim_start();
    let advised = what.split_once(". ").filter(|_| level == Level::Note).map_or(what, |(start, _)| start);
    Finding {
        level,
        document: document.path.clone(),
        place: document.nearest(&problem.key).map(|(_, place)| place),
        key: problem.key.clone(),
        what: advised.to_owned(),
        fix,
    }
}

/// A message of the plan. It is about a key if it begins with one that the document has: `ntp.pools: …`,
/// `write_files: entry 2: …`.
fn of_message(document: &Document, severity: Severity, text: &str) -> Finding {
    let level = match severity {
        Severity::Error => Level::Error,
        Severity::Warning => Level::Warning,
        Severity::Deprecated => Level::Note,
    };
    let failed = text.strip_prefix("module ").and_then(|rest| rest.split_once(" failed: "));
    let body = failed.map_or(text, |(_, body)| body);
    let start = body.split_once(": ").map(|(start, _)| start).unwrap_or_default();
    let entry = body.split_once(": entry ").filter(|(before, _)| *before == start).and_then(|(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(format!("{start}.{}", digits.parse::<usize>().ok()?.checked_sub(1)?))
    });
    let key = [entry.as_deref(), Some(start)].into_iter().flatten().find(|key| document.place(key).is_some());
    let Some((module, _)) = failed else {
        let key = key.unwrap_or_default().to_owned();
        let what = if key.is_empty() { text } else { text.get(start.len() + 2..).unwrap_or(text) };
        return placed(document, level, key, what);
    };
    // Of what a module cannot do at all, the message stays whole; a key that is missing would be in the nearest one there is.
    let nearest = document.nearest(start).map(|(key, _)| key.to_owned());
    let of_module = || schema::keys(module).into_iter().find(|key| document.place(key).is_some()).map(str::to_owned);
    let key = key.map(str::to_owned).or(nearest).or_else(of_module).unwrap_or_default();
    placed(document, level, key, text)
}

fn placed(document: &Document, level: Level, key: String, what: &str) -> Finding {
    Finding {
        level,
        document: document.path.clone(),
        place: document.place(&key),
        key,
        what: what.to_owned(),
        fix: String::new(),
    }
}

/// The exit code, for CI: 0 if nothing is wrong or only deprecated, 1 with errors, 2 with warnings alone (as `status`).
pub fn exit_code(found: &[Finding]) -> u8 {
    match found.iter().map(|finding| finding.level).min() {
        Some(Level::Error) => 1,
        Some(Level::Warning) => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_document_place_key_and_fix() {
        let text = "#cloud-config\nhostnam: x\nusers:\n- name: a\n  lock-passwd: true\nwrite_files:\n- path: x\n";
        let document = Document::new(Use::UserData, "dir/u.yaml", text.as_bytes());
        let report = Problems::new();
        report.warn("write_files: entry 1 (x): path: expected an absolute path");
        report.warn("cloud-config failed schema validation! and so on");
        report.error("module x failed: y");
        report.error("module users_groups failed: users.0.uid: it is needed");
        report.error("module set_hostname failed: no");
        let found = find(&[document], &report);
        let lines: Vec<String> = found.iter().map(Finding::line).collect();
        assert_eq!(
            lines,
            [
                "dir/u.yaml:2:1: error: hostnam: there is no such key. Write hostname.\n",
                "dir/u.yaml:4:3: error: users.0: module users_groups failed: users.0.uid: it is needed\n",
                "dir/u.yaml:5:3: note: users.0.lock-passwd: Deprecated in version 22.3. Use lock_passwd instead.\n",
                "dir/u.yaml:7:3: warning: write_files.0: entry 1 (x): path: expected an absolute path\n",
                "dir/u.yaml: error: module x failed: y\n",
                "dir/u.yaml: error: module set_hostname failed: no\n",
            ]
        );
        assert_eq!([exit_code(&found), exit_code(&found[3..4]), exit_code(&found[2..3]), exit_code(&[])], [1, 2, 0, 0]);
    }
}
