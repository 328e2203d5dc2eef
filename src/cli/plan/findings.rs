//! What is wrong with the documents of a plan, each with its place and what to do.

use super::document::{Document, Place, Use};
use super::subject::{self, Subject};
use crate::base::problem::Problem;
use crate::base::problem::{Problems, Severity};
use crate::document::Map;
use crate::module::{MODULES, Module};
use crate::network::model::ORIGIN;
use crate::schema::{self, Deviations};
use crate::stage::modules::Idle;

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
    fn of(severity: Severity) -> Level {
        match severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
            Severity::Deprecated => Level::Note,
        }
    }

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

/// What is wrong, in the order of the documents' lines: by their schemas, and by the `report` of the plan. `modules` has the module
/// that each problem of the report came from, or an empty name; `idle` the modules that never run there.
pub fn find(documents: &[Document], report: &Problems, modules: &[&str], idle: &[(&Module, Idle)]) -> Vec<Finding> {
    let mut found: Vec<Finding> = documents.iter().flat_map(of_document).collect();
    found.extend(without_effect(documents, idle));
    let broken = documents.iter().any(|d| d.mistake.is_some());
    for (at, problem) in report.entries().iter().take(MAX_FINDINGS).enumerate() {
        let text = problem.to_string();
        let is_repeated =
            REPEATED.iter().any(|start| text.starts_with(start)) || broken && text.contains("not valid YAML at line ");
        if let Some(document) = document_of(documents, problem).filter(|_| !is_repeated) {
            let Subject { key, what } = subject::of(document, problem, modules.get(at).copied().unwrap_or_default());
            found.push(Finding {
                level: Level::of(problem.severity),
                document: document.path.clone(),
                place: document.place(&key),
                key,
                what,
                fix: String::new(),
            });
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

/// The document that a problem is about. What belongs to no other document belongs to the first, which is the user-data.
fn document_of<'d>(documents: &'d [Document], problem: &Problem) -> Option<&'d Document> {
    let is_network = problem.origin.ends_with(ORIGIN);
    let of = |usage: Use| documents.iter().find(|document| document.usage == usage);
    of(Use::NetworkConfig).filter(|_| is_network).or_else(|| of(Use::UserData)).or(documents.first())
}

/// The keys of the user-data that no module reads: those that could are all `idle`.
fn without_effect(documents: &[Document], idle: &[(&Module, Idle)]) -> Vec<Finding> {
    let keys_of: Vec<(&str, Vec<&str>)> =
        MODULES.iter().map(|module| (module.name, schema::keys(module.name))).collect();
    let reason = |module: &str| idle.iter().find(|(other, _)| other.name == module);
    let of_key = |document: &Document, key: &str| {
        let mut readers = keys_of.iter().filter(|(_, keys)| keys.contains(&key));
        let (module, why) = reason(readers.next()?.0)?;
        let name = module.name;
        let (why, fix) = match why {
            Idle::NotListed => {
                (format!("no list of modules has {name}"), format!("Add {name} to {}.", module.stage.list_key()))
            }
            Idle::OtherDistribution => (
                format!("the module {name} is not for this distribution"),
                format!("Add {name} to unverified_modules to run it nevertheless."),
            ),
        };
        readers.all(|(other, _)| reason(other).is_some()).then(|| Finding {
            level: Level::Warning,
            document: document.path.clone(),
            place: document.place(key),
            key: key.to_owned(),
            what: format!("it has no effect: {why}"),
            fix,
        })
    };
    let user_data = documents.iter().filter(|document| document.usage == Use::UserData);
    let keys =
        user_data.flat_map(|document| document.outline.iter().flat_map(Map::keys).map(move |key| (document, key)));
    keys.filter_map(|(document, key)| of_key(document, key)).collect()
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
        let found = find(&[document], &report, &[], &[]);
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
