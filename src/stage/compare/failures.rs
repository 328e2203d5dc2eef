//! What cloud-init could not do, by its log: files that it would have made may be missing.

use crate::document::{Map, Value};
use crate::module::{self, MODULES};
use crate::root::Stage;
use crate::stage::modules::name_of;
use crate::stage::plan::NETWORK;
use std::collections::BTreeSet;

/// What cloud-init's log says of a module that failed: the module's name is between them.
const FAILED: (&str, &str) = (super::RUNNING, ") failed");
/// What its log says of work that a module could not do, which does not fail it, and the module.
const PARTLY_FAILED: [(&str, &str); 2] =
    [("Applying SSH credentials failed!", "ssh"), ("Decode error, failed to add key: ", "apt_configure")];
/// What its log says of a stage that ended by an exception, and the stages' names there. The first one is that of the network.
const FAILED_STAGE: &str = "[ERROR]: failed stage ";
const STAGES: [(&str, Stage); 4] = [
    ("init-local", Stage::Local),
    ("init", Stage::Network),
    ("modules-config", Stage::Config),
    ("modules-final", Stage::Final),
];
/// What its log says of a module that ended well: the module's name is between them.
const SUCCESS: (&str, &str) = ("/config-", ": SUCCESS: ");
const RAN: &str = " ran successfully";
/// What its log says of a cloud-config that it could not read.
const UNREAD: &str = "Failed at merging in cloud config part from ";
/// Of the log's lines that name a failure, the one that is meant for people.
const WARNING: &str = "[WARNING]: ";

/// What cloud-init could not do, by its log.
#[derive(Default)]
pub struct Failures {
    /// With `_` in their names.
    modules: BTreeSet<String>,
    stages: Vec<Stage>,
    /// The modules that ended well: a stage that failed may have run them before.
    done: BTreeSet<String>,
    /// A cloud-config was not read.
    pub is_unread: bool,
}

impl Failures {
    /// Of the text of cloud-init's log.
    pub fn of(log: &str) -> Self {
        let mut found = Failures::default();
        for line in log.lines() {
            if let Some((_, name)) = line.split_once(FAILED_STAGE) {
                found.stages.extend(STAGES.iter().find(|(stage, _)| *stage == name).map(|(_, stage)| *stage));
            }
            if let Some((name, end)) = line.split_once(SUCCESS.0).and_then(|(_, rest)| rest.split_once(SUCCESS.1))
                && end.contains(RAN)
            {
                found.done.insert(with_underlines(name));
            }
            let Some((_, text)) = line.split_once(WARNING) else { continue };
            found.is_unread |= text.starts_with(UNREAD);
            if let Some((_, module)) = PARTLY_FAILED.iter().find(|(failure, _)| text.starts_with(failure)) {
                found.modules.insert((*module).to_owned());
            }
            if let Some(name) = text.strip_prefix(FAILED.0).filter(|rest| rest.ends_with(FAILED.1)) {
                found.modules.insert(with_underlines(name.split(' ').next().unwrap_or_default()));
            }
        }
        found
    }

    /// Whether nothing failed.
    pub fn are_none(&self) -> bool {
        self.modules.is_empty() && self.stages.is_empty() && !self.is_unread
    }

    /// Why what `module` makes may not be there.
    pub fn reason(&self, module: &str) -> Option<&'static str> {
        if module == NETWORK {
            return self.stages.contains(&Stage::Local).then_some("cloud-init's first stage failed, by its log");
        }
        if self.modules.contains(module) {
            return Some("cloud-init's module failed, by its log");
        }
        let stage = MODULES.iter().find(|known| known.name == module).map(|known| known.stage);
        let has_failed = stage.is_some_and(|stage| self.stages.contains(&stage)) && !self.done.contains(module);
        has_failed.then_some("cloud-init's stage failed, by its log")
    }

    /// Configuration above `config` with which prepivot does no work that failed: the lists of modules without some.
    pub fn left_out(&self, config: &Value) -> Map {
        let has_run = |entry: &&Value| {
            name_of(entry).and_then(|name| module::find(&name)).is_none_or(|m| self.reason(m.name).is_none())
        };
        let mut above = Map::new();
        for key in Stage::WITH_MODULES.map(Stage::list_key) {
            let list = config.get(key).and_then(Value::as_list).unwrap_or_default();
            above.insert(key, list.iter().filter(has_run).cloned().collect::<Vec<_>>());
        }
        above
    }
}

/// A module's name: the log has either notation.
fn with_underlines(name: &str) -> String {
    name.replace('-', "_")
}
