//! Runs the modules of a stage: which ones, in what order, how often.

mod adopt;
mod call;
mod demand;
mod list;
#[cfg(test)]
mod tests;

pub use demand::{Demand, Work};

use super::boot::Boot;
use super::commit;
use super::rerun::{Before, has_early_commands};
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::instance::{Instance, state};
use crate::module::{self, Background, BeforeServices, Handler, Module, Role};
use crate::root::run_dir::FileHalf;
use crate::root::{Attr, Root, Stage, run_dir};
use crate::system::service;
pub use adopt::adopt;
use call::{Task, mark};
use list::Entry;
pub use list::{Idle, name_of};

/// The end of the mark of a module's background work.
const END: &str = ".end";

/// A run of modules for one instance.
pub struct Run<'a, 'b> {
    root: &'a mut Root,
    boot: &'a mut Boot<'b>,
    instance: &'a Instance,
    /// The file halves that ran, and what each depends on. None: not recorded.
    noted: Option<Vec<FileHalf>>,
    /// The file halves that may have to run again after the user's early commands.
    before: Before,
}

/// Which half of a module runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The file half: writes files only.
    BeforePivot,
    /// The half that needs the running system.
    Running,
}

impl Half {
    fn handler(self, module: &Module) -> Option<Handler> {
        match self {
            Half::BeforePivot => module.before_pivot,
            Half::Running => module.running,
        }
    }
}

impl<'a, 'b> Run<'a, 'b> {
    /// A run with the merged configuration of `boot`, to whose report problems are added.
    pub fn new(root: &'a mut Root, boot: &'a mut Boot<'b>, instance: &'a Instance) -> Self {
        Run { root, boot, instance, noted: None, before: Before::default() }
    }

    /// Records every file half in `noted`, if that is Some.
    pub fn noting(self, noted: Option<Vec<FileHalf>>) -> Self {
        Run { noted, ..self }
    }

    /// The file halves that ran, if they were recorded.
    pub fn into_noted(self) -> Option<Vec<FileHalf>> {
        self.noted
    }

    /// Runs the file halves of `before` again after the user's early commands, where those changed what they
    /// depend on.
    pub fn after(self, before: Before) -> Self {
        Run { before, ..self }
    }

    /// Runs one half of the modules in a stage's list, in order. One that fails is an error of the report;
    /// the others still run.
    pub fn stage(&mut self, stage: Stage, half: Half) {
        self.boot.turn_to(stage);
        match half {
            Half::BeforePivot => self.before_pivot(stage),
            Half::Running => self.running(stage),
        }
    }

    /// Runs the file halves of a stage's list.
    fn before_pivot(&mut self, stage: Stage) {
        let includes_first = stage == Stage::Network && self.nothing_comes_first();
        for entry in self.entries(stage, Half::BeforePivot) {
            if includes_first || !entry.module.runs_before_services() {
                self.run_entry(&entry, Half::BeforePivot);
            }
        }
    }

    /// Runs the halves of a stage's list that need the running system, but not those that the local stage has run.
    fn running(&mut self, stage: Stage) {
        let done = if stage == Stage::Network { self.root.text(run_dir::BEFORE_SERVICES) } else { String::new() };
        let entries = self.entries(stage, Half::Running);
        self.log_skipped(&entries);
        // Without such a module, the only early commands are boothooks, which have run already.
        let commands = entries.iter().position(|entry| entry.module.runs_commands);
        if commands.is_none() {
            self.rerun_changed();
        }
        for (at, entry) in entries.iter().enumerate() {
            if !done.lines().any(|name| name == entry.module.name) {
                self.run_entry(entry, Half::Running);
            }
            if commands == Some(at) {
                self.rerun_changed();
            }
        }
        if !done.is_empty() && done != run_dir::BEFORE_SERVICES_DUE {
            self.boot.report.keep(self.root.remove(run_dir::BEFORE_SERVICES));
        }
    }

    /// Has the stages after `stage` use the image's configuration as it is now. Returns whether that changed theirs.
    pub fn follow_image(&mut self, stage: Stage) -> bool {
        let may_differ = self.root.is_live() || self.root.has_in_memory(".cfg");
        let next = Stage::ALL.get(stage as usize + 1).filter(|_| may_differ);
        next.is_some_and(|next| self.boot.follow_image(self.root, self.instance, *next))
    }

    /// Runs those file halves again that depend on what the user's commands changed, or whose stage has another configuration since.
    fn rerun_changed(&mut self) {
        let mut before = std::mem::take(&mut self.before);
        if !before.is_empty() {
            commit(self.root, &self.boot.report);
            let is_other = self.follow_image(Stage::Network) || before.has_other_configuration;
            for stage in Stage::WITH_MODULES {
                self.boot.turn_to(stage);
                let in_any_case = is_other && (before.has_other_configuration || stage != Stage::Network);
                for entry in self.entries(stage, Half::Running) {
                    if let Some(half) = before.take_changed(self.root, entry.module.name, in_any_case) {
                        self.rerun(&entry, half);
                    }
                }
            }
            self.boot.turn_to(Stage::Network);
        }
        let ended = before.end(self.root);
        self.boot.report.keep(ended);
    }

    /// Runs a file half again.
    fn rerun(&mut self, entry: &Entry, first: FileHalf) {
        let Some(handler) = entry.module.before_pivot else { return };
        // Its warnings were reported in the first run.
        let known = self.boot.report.take();
        let done = self.with_context_of(&entry.args, true, handler);
        self.boot.report = known;
        match done {
            Ok(()) if !first.error.is_empty() => self.boot.withdrawn.push(first.error),
            Ok(()) => {}
            Err(e) => self.boot.report.error(format_args!("module {} failed: {e}", entry.module.name)),
        }
        self.boot.log();
        commit(self.root, &self.boot.report);
    }

    /// Whether none of the user's commands runs before the network stage's modules: one may prepare what they
    /// find, for example reserve space for a partition.
    fn nothing_comes_first(&self) -> bool {
        !has_early_commands(self.root, self.boot, self.instance)
    }

    /// Has the real root's local stage run [`Run::before_services`], now that the configuration is complete.
    pub fn leave_before_services(&mut self) {
        if self.root.has_run() && self.nothing_comes_first() {
            let left = self.root.write(run_dir::BEFORE_SERVICES, run_dir::BEFORE_SERVICES_DUE, Attr::root(0o600));
            self.boot.report.keep(left);
        }
    }

    /// Does what the modules of the network stage's list do before every service, in the local stage of the real root.
    pub fn before_services(&mut self) {
        let mut done = String::new();
        for entry in self.entries(Stage::Network, Half::Running) {
            let module = entry.module;
            match module.before_services {
                BeforeServices::Nothing => continue,
                BeforeServices::Step(step) => {
                    if self.has_work(&entry) {
                        self.call(&Task {
                            module,
                            handler: step,
                            half: Half::Running,
                            frequency: entry.frequency,
                            args: &entry.args,
                        });
                    }
                    continue;
                }
                BeforeServices::IfReady(is_ready) => {
                    if self.is_due(&entry) && !self.with_context(&entry.args, is_ready) {
                        log::info!("{} is left to the network stage: not all that it needs is there", module.name);
                        break;
                    }
                }
                BeforeServices::Running => {}
            }
            self.run_entry(&entry, Half::Running);
            done += module.name;
            done.push('\n');
        }
        let done = self.root.write(run_dir::BEFORE_SERVICES, done, Attr::root(0o600));
        self.boot.report.keep(done);
    }

    /// Whether an entry's half of the running system is requested and has not run at its frequency.
    fn is_due(&self, entry: &Entry) -> bool {
        let mark = mark(entry.module, Half::Running);
        self.is_requested(entry.module) && !state::is_done(self.root, self.instance, &mark, entry.frequency)
    }

    /// Whether an entry's half of the running system is due, and not known to have nothing to do.
    fn has_work(&mut self, entry: &Entry) -> bool {
        self.is_due(entry) && !entry.module.idle.is_some_and(|idle| self.with_context(&entry.args, idle))
    }

    /// The modules' background work that has not been done for this instance: module, work, mark.
    fn left_to_background(&self) -> Vec<(&'static Module, Background, String)> {
        let modules = module::MODULES.iter().filter_map(|module| Some((*module, module.in_background?)));
        modules
            .map(|(module, work)| (module, work, format!("config_{}{END}", module.name)))
            .filter(|(module, _, mark)| {
                let is_done = || state::is_done(self.root, self.instance, mark, Frequency::Instance);
                self.is_listed(module) && self.is_requested(module) && !is_done()
            })
            .collect()
    }

    /// Whether [`Run::background`] has anything to do.
    pub fn has_background(&mut self) -> bool {
        let left = self.left_to_background();
        left.iter().any(|(_, work, _)| !self.with_context(&[], work.idle))
    }

    /// Does the modules' background work.
    pub fn background(&mut self) {
        for (module, work, mark) in self.left_to_background() {
            self.call_unmarked(module, work.run, Frequency::Instance);
            let marked = state::mark_done(self.root, self.instance, &mark, Frequency::Instance);
            self.boot.report.keep(marked.map_err(|e| e.context(module.name)));
        }
    }

    /// Waits for the network, for what the network stage itself does.
    pub fn await_network(&mut self) {
        self.with_context(&[], service::wait_for_network);
    }

    /// Writes the hostname before anything else, for a boot whose modules wait for remote user-data: network
    /// programs report the hostname to others.
    pub fn hostname(&mut self) {
        let module = module::with_role(Role::Hostname);
        if let Some((module, handler)) = module.and_then(|m| Some((m, m.before_pivot?))) {
            self.call_unmarked(module, handler, Frequency::Always);
        }
    }

    /// Writes SSH keys that arrived after the module ssh ran, if a list names it.
    pub fn logins(&mut self) {
        let module = module::with_role(Role::Ssh).filter(|ssh| self.is_listed(ssh));
        if let Some((module, handler)) = module.and_then(|m| Some((m, m.running?))) {
            self.call_unmarked(module, handler, Frequency::Always);
        }
    }

    /// Whether a list names the module that sets passwords.
    pub fn lists_passwords(&self) -> bool {
        module::with_role(Role::Passwords).is_some_and(|module| self.is_listed(module))
    }

    /// Sets passwords again. Returns the error.
    pub fn set_passwords(&mut self) -> Option<String> {
        let (module, handler) = module::with_role(Role::Passwords).and_then(|m| Some((m, m.before_pivot?)))?;
        self.call_unmarked(module, handler, Frequency::Always)
    }

    /// `cloud-init single`: both halves of one module, whether or not its keys are there.
    pub fn single(&mut self, module: &'static Module, frequency: Option<Frequency>, args: &[String]) {
        self.root.enter(module.stage);
        let frequency = frequency.unwrap_or(module.frequency);
        for half in [Half::BeforePivot, Half::Running] {
            if let Some(handler) = half.handler(module) {
                self.run_if_due(&Task { module, handler, half, frequency, args });
            }
        }
    }
}

/// Stores the instance. If its service brings a password that the stored one does not have, passwords are set again: the service is
/// notified that the machine has it ([`crate::source::Source::provisioned`]).
///
/// # Errors
/// A path cannot be resolved.
pub fn store(root: &mut Root, instance: &Instance) -> Result<()> {
    let password = |of: &Instance| of.config.get("password").cloned();
    let brought = password(instance).filter(|_| instance.from_network);
    // Without a cache, an instance that is not new is one that cloud-init has provisioned, with its password.
    let is_other = || state::last_id(root).as_deref() != Some(&instance.instance_id);
    let is_new = brought.is_some() && state::cached(root).map_or_else(is_other, |stored| password(&stored) != brought);
    if let Some(module) = module::with_role(Role::Passwords).filter(|_| is_new) {
        for half in [Half::BeforePivot, Half::Running] {
            state::mark_due(root, instance, &mark(module, half), Frequency::Instance)?;
        }
    }
    state::store(root, instance)
}
