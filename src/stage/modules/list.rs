//! The lists of modules in the configuration: which entries they have, and which of them are skipped.

use super::{Half, Run};
use crate::base::deprecated;
use crate::base::problem::Problems;
use crate::document::Value;
use crate::instance::Frequency;
use crate::module::{self, Module};
use crate::root::Stage;

/// An entry of a stage's module list.
pub(super) struct Entry {
    pub(super) module: &'static Module,
    pub(super) frequency: Frequency,
    pub(super) args: Vec<String>,
}

/// Why a module never runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// It is in no stage's list.
    NotListed,
    /// It is not for this distribution.
    OtherDistribution,
}

/// Parses `- name`, `- [name, frequency, args…]` or `- {name:, frequency:, args:}` (cloud-init's module
/// list). Entries that cannot run are reported in one half only.
pub(super) fn entry(value: &Value, half: Half, report: &Problems) -> Option<Entry> {
    let name = name_of(value)?;
    let (frequency, args) = match value {
        Value::List(list) => {
            let args = list.iter().skip(2).filter_map(Value::text).collect();
            (list.get(1).and_then(Value::text), args)
        }
        Value::Map(map) => {
            let args = map.get("args").and_then(Value::as_list).unwrap_or_default();
            (map.get("frequency").and_then(Value::text), args.iter().filter_map(Value::text).collect())
        }
        _ => (None, Vec::new()),
    };
    let Some(module) = module::find(&name) else {
        if half == Half::BeforePivot && module::is_removed(&name) {
            log::info!("module {name} was removed from cloud-init: its name is ignored");
        } else if half == Half::BeforePivot {
            report.warn(format_args!("Could not find module named {name}"));
        }
        return None;
    };
    let frequency = frequency.as_deref().map(str::trim).filter(|word| !word.is_empty());
    if let Some(word) = frequency.filter(|word| Frequency::named(word).is_none()) {
        report.deprecated(deprecated::FREQUENCY.about(&format!("{name} has an unknown frequency {word}")));
    }
    if let Some(names) = module::renamed(&name) {
        report.deprecated(deprecated::RENAMED.about(&names));
    }
    Some(Entry { module, frequency: frequency.and_then(Frequency::named).unwrap_or(module.frequency), args })
}

/// A stage's module list.
pub(super) fn list(config: &Value, stage: Stage) -> &[Value] {
    config.get(stage.list_key()).and_then(Value::as_list).unwrap_or_default()
}

/// The module that an entry of a list names.
pub fn name_of(entry: &Value) -> Option<String> {
    match entry {
        Value::List(list) => list.first()?.text(),
        Value::Map(map) => map.get("name")?.text(),
        name => name.as_str().map(str::to_owned),
    }
}

impl Run<'_, '_> {
    /// The entries of a stage's list.
    pub(super) fn entries(&mut self, stage: Stage, half: Half) -> Vec<Entry> {
        let (config, report) = self.boot.config_and_report();
        let entries = list(config, stage).iter().filter_map(|v| entry(v, half, report)).collect();
        self.boot.log();
        entries
    }

    /// The names of the modules that the lists of all stages have.
    fn listed(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for entry in Stage::WITH_MODULES.iter().flat_map(|stage| list(self.boot.config(), *stage)) {
            let name = name_of(entry).and_then(|name| module::find(&name)).map(|module| module.name);
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    /// Whether the list of any stage names the module.
    pub fn is_listed(&self, module: &Module) -> bool {
        self.listed().contains(&module.name)
    }

    /// Logs in cloud-init's words which modules of a list are skipped, and why: tools look for these lines.
    pub(super) fn log_skipped(&self, entries: &[Entry]) {
        let names = |skipped: &dyn Fn(&Module) -> bool| {
            let names: Vec<&str> = entries.iter().map(|e| e.module).filter(|m| skipped(m)).map(|m| m.name).collect();
            Some(names.join(",")).filter(|names| !names.is_empty())
        };
        if let Some(names) = names(&|m| !self.has_key(m)) {
            log::info!("Skipping modules '{names}' because no applicable config is provided.");
        }
        if let Some(names) = names(&|m| self.has_key(m) && !self.is_requested(m)) {
            let distro = self.boot.image.distro.name;
            log::info!(
                "Skipping modules '{names}' because they are not verified on distro '{distro}'.  To run anyway, add them to \
                 'unverified_modules' in config."
            );
        }
    }

    /// The modules that run in no stage whatever the cloud-config has, and why.
    pub fn idle_modules(&self) -> Vec<(&'static Module, Idle)> {
        let listed = self.listed();
        let idle = |module: &&'static Module| match (listed.contains(&module.name), self.is_for_distribution(module)) {
            (false, _) => Some((*module, Idle::NotListed)),
            (_, false) => Some((*module, Idle::OtherDistribution)),
            _ => None,
        };
        module::MODULES.iter().filter_map(idle).collect()
    }

    fn has_key(&self, module: &Module) -> bool {
        module.keys.is_empty() || module.keys.iter().any(|k| self.boot.config().get(k).is_some())
    }

    /// Whether the cloud-config has a key of the module, and the module is for this distribution.
    pub(super) fn is_requested(&self, module: &Module) -> bool {
        self.has_key(module) && self.is_for_distribution(module)
    }

    fn is_for_distribution(&self, module: &Module) -> bool {
        let unverified = || {
            let list = self.boot.config().get("unverified_modules").and_then(Value::as_list).unwrap_or_default();
            list.iter().filter_map(Value::as_str).any(|name| module::find(name).is_some_and(|m| m.name == module.name))
        };
        module.distros.is_empty() || module.distros.contains(&self.boot.image.distro.name) || unverified()
    }
}
