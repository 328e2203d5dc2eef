//! Runs the modules of a stage: which, in what order, how often.

use super::config::log_all;
use crate::base::event::Event;
use crate::base::report::Report;
use crate::document::Value;
use crate::instance::Frequency;
use crate::instance::{Instance, state};
use crate::machine::Distro;
use crate::module::{self, Handler, Module};
use crate::root::{Root, Stage};
use crate::system::{Context, Outside};

/// What the modules of one run share.
pub struct Run<'a> {
    pub root: &'a mut Root,
    pub config: &'a Value,
    pub instance: &'a Instance,
    pub distro: &'a Distro,
    pub outside: &'a dyn Outside,
}

/// Which half of the modules runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Files only: before the pivot.
    Provision,
    /// What needs the running system.
    Live,
}

/// An entry of a stage's list.
struct Entry {
    module: &'static Module,
    frequency: Frequency,
    args: Vec<String>,
}

/// `- name`, `- [name, frequency, args…]` or `- {name:, frequency:, args:}` (cloud-init's module list). Those that cannot run are
/// reported once.
fn entry(value: &Value, config: &Value, half: Half) -> Option<Entry> {
    let (name, frequency, args) = match value {
        Value::String(name) => (name.clone(), None, Vec::new()),
        Value::List(list) => {
            let mut texts = list.iter().filter_map(Value::text);
            (texts.next()?, texts.next(), texts.collect())
        }
        Value::Map(map) => {
            let args = map.get("args").and_then(Value::as_list).unwrap_or_default();
            (
                map.get("name")?.text()?,
                map.get("frequency").and_then(Value::text),
                args.iter().filter_map(Value::text).collect(),
            )
        }
        _ => return None,
    };
    let Some(module) = module::find(&name).filter(|m| m.is_supported()) else {
        if half == Half::Provision {
            not_run(&name, config);
        }
        return None;
    };
    let frequency = frequency.as_deref().map(Frequency::named).unwrap_or(Some(module.frequency));
    if frequency.is_none() {
        log::warn!("module {name}: expected always, once-per-instance or once: its default frequency is used");
    }
    Some(Entry { module, frequency: frequency.unwrap_or(module.frequency), args })
}

/// Reports why a name in a list runs nothing, if the configuration needs it to.
fn not_run(name: &str, config: &Value) {
    match module::find(name) {
        Some(module) => {
            if let Some(key) = module::requested(module, config) {
                log::warn!("cloud-config: {key}: the module {} is not supported yet", module.name);
            }
        }
        None if module::is_removed(name) => {
            log::info!("module {name} was removed from cloud-init: its name is ignored")
        }
        None => log::warn!("there is no module called {name}"),
    }
}

impl Run<'_> {
    /// Runs one half of the modules that a stage's list names, in its order. Gives one line for each that failed; the
    /// others run.
    pub fn stage(&mut self, stage: Stage, half: Half) -> Vec<String> {
        let empty = Value::default();
        let list = self.config.get(module::list_key(stage)).unwrap_or(&empty);
        let entries: Vec<Entry> =
            list.as_list().unwrap_or_default().iter().filter_map(|v| entry(v, self.config, half)).collect();
        entries.iter().filter_map(|e| self.one(e, stage, half).err()).collect()
    }

    /// Runs one half of one module, if it is its time.
    fn one(&mut self, entry: &Entry, stage: Stage, half: Half) -> Result<(), String> {
        let module = entry.module;
        let handler = match half {
            Half::Provision => module.provision,
            Half::Live => module.live,
        };
        let Some(handler) = handler else { return Ok(()) };
        if !self.is_asked_for(module) {
            return Ok(());
        }
        let mark = mark(module, half);
        if state::is_done(self.root, self.instance, &mark, entry.frequency) {
            return Ok(());
        }
        state::mark_done(self.root, self.instance, &mark, entry.frequency)
            .map_err(|e| format!("{}: {e}", module.name))?;
        self.call(handler, module, stage, &entry.args)
    }

    /// Whether the cloud-config has a key of the module's, and the distribution is one that it is for.
    fn is_asked_for(&self, module: &Module) -> bool {
        let has_key = module.keys.is_empty() || module.keys.iter().any(|k| self.config.get(k).is_some());
        let unverified = || {
            let list = self.config.get("unverified_modules").and_then(Value::as_list).unwrap_or_default();
            list.iter().any(|v| v.as_str() == Some(module.name))
        };
        has_key && (module.distros.is_empty() || module.distros.contains(&self.distro.name) || unverified())
    }

    fn call(&mut self, handler: Handler, module: &Module, stage: Stage, args: &[String]) -> Result<(), String> {
        let mut report = Report::new();
        let mut context = Context {
            root: self.root,
            config: self.config,
            instance: self.instance,
            distro: self.distro,
            args,
            stage,
            outside: self.outside,
            report: &mut report,
        };
        let mut event = Event::module(module.name);
        let result = handler(&mut context);
        log_all(&report);
        result.map_err(|e| {
            event.fail();
            let text = format!("module {} failed: {e}", module.name);
            log::warn!("{text}");
            text
        })
    }

    /// Writes the hostname before any other module, for a boot whose modules wait for the network: the network's own
    /// programs tell it to others.
    pub fn hostname(&mut self) -> Option<String> {
        let module = module::find("set_hostname")?;
        self.call(module.provision?, module, Stage::Init, &[]).err()
    }

    /// `cloud-init single`: both halves of one module, whether its keys are there or not.
    pub fn single(&mut self, module: &'static Module, frequency: Option<Frequency>, args: &[String]) -> Vec<String> {
        let frequency = frequency.unwrap_or(module.frequency);
        if !module.is_supported() {
            return vec![format!("the module {} is not supported yet", module.name)];
        }
        let mut errors = Vec::new();
        for (half, handler) in [(Half::Provision, module.provision), (Half::Live, module.live)] {
            let Some(handler) = handler else { continue };
            let mark = mark(module, half);
            if state::is_done(self.root, self.instance, &mark, frequency) {
                continue;
            }
            let marked = state::mark_done(self.root, self.instance, &mark, frequency).map_err(|e| e.to_string());
            errors.extend(marked.and_then(|()| self.call(handler, module, module.stage, args)).err());
        }
        errors
    }
}

/// The semaphore's name: cloud-init's, and one of its own for the live half of a module that has two.
fn mark(module: &Module, half: Half) -> String {
    let second = half == Half::Live && module.provision.is_some();
    format!("config_{}{}", module.name, if second { ".live" } else { "" })
}
