//! Runs one half of one module: whether it is due, its mark, and its event in the log.

use super::list::Entry;
use super::{Half, Run};
use crate::base::event::Event;
use crate::instance::{Frequency, state};
use crate::module::{Handler, Module};
use crate::root::run_dir::FileHalf;
use crate::system::ModuleContext;

/// One half of a module that is to run.
pub(super) struct Task<'e> {
    pub(super) module: &'e Module,
    pub(super) handler: Handler,
    pub(super) half: Half,
    pub(super) frequency: Frequency,
    pub(super) args: &'e [String],
}

impl Entry {
    /// The task that the entry asks for. None if the module does not have that half.
    pub(super) fn task(&self, half: Half) -> Option<Task<'_>> {
        let handler = half.handler(self.module)?;
        Some(Task { module: self.module, handler, half, frequency: self.frequency, args: &self.args })
    }
}

impl Run<'_, '_> {
    /// Runs one half of an entry's module, if it has that half, is requested and is due.
    pub(super) fn run_entry(&mut self, entry: &Entry, half: Half) {
        if let Some(task) = entry.task(half).filter(|_| self.is_requested(entry.module)) {
            self.run_if_due(&task);
        }
    }

    /// Runs a task and marks it as done, unless it has already run at its frequency.
    pub(super) fn run_if_due(&mut self, task: &Task) {
        let Task { module, half, frequency, .. } = *task;
        let mark = mark(module, half);
        if state::is_done(self.root, self.instance, &mark, frequency) {
            // Not logged for the file half, which may have run a moment ago.
            if half == Half::Running {
                Event::ran_before(module.name, frequency.name());
            }
            return;
        }
        let is_noted = self.noted.is_some() && half == Half::BeforePivot;
        if is_noted {
            self.root.watch();
        }
        let mut error = None;
        if module.repeats {
            error = self.call(task);
        }
        let marked = state::mark_done(self.root, self.instance, &mark, frequency);
        let is_marked = self.boot.report.keep(marked.map_err(|e| e.context(module.name))).is_some();
        if is_marked && !module.repeats {
            error = self.call(task);
        }
        if let Some(list) = self.noted.as_mut().filter(|_| is_noted) {
            let (paths, error) = (self.root.take_watched(), error.unwrap_or_default());
            list.push(FileHalf { module: module.name.into(), paths, error });
        }
    }

    /// Calls a handler of a module without a mark. A failure is added to the report and returned.
    pub(super) fn call_unmarked(&mut self, module: &Module, handler: Handler, frequency: Frequency) -> Option<String> {
        self.call(&Task { module, handler, half: Half::Running, frequency, args: &[] })
    }

    /// Calls a task's handler. A failure is added to the report and returned.
    pub(super) fn call(&mut self, task: &Task) -> Option<String> {
        let Task { module, handler, frequency, args, .. } = *task;
        if module.is_left_out() && module.idle.is_some_and(|idle| self.with_context(args, idle)) {
            return None;
        }
        let (name, how) = (module.name, frequency.name());
        log::debug!("Running module {name} (cc_{name}) with frequency {how}");
        let mut event = Event::module(name, how);
        self.boot.observe(self.root, "");
        let error = self.with_context(args, handler).err();
        self.boot.observe(self.root, name);
        let error = error.map(|e| format!("module {} failed: {e}", module.name));
        if let Some(error) = &error {
            event.fail();
            self.boot.report.error(error);
        }
        self.boot.log();
        error
    }

    /// Calls `of` with a module's context.
    pub(super) fn with_context<T>(&mut self, args: &[String], of: fn(&mut ModuleContext) -> T) -> T {
        self.with_context_of(args, false, of)
    }

    /// The same; `again`: the file half runs a second time.
    pub(super) fn with_context_of<T>(&mut self, args: &[String], again: bool, of: fn(&mut ModuleContext) -> T) -> T {
        self.boot.open_config(self.root);
        let (root, instance) = (&mut *self.root, self.instance);
        let (distro, outside, retried) = (self.boot.image.distro, self.boot.outside, self.boot.retried);
        let (config, report) = self.boot.config_and_report();
        let context = ModuleContext::new(root, config, instance, &distro, report);
        let mut context = ModuleContext { args, outside, again, retried, ..context };
        let result = of(&mut context);
        let shown = std::mem::take(&mut context.shown);
        self.boot.shown.extend(shown);
        result
    }
}

/// The semaphore's name: cloud-init's for a module with one half, and a second one for the `running` half of a
/// module with two.
pub(super) fn mark(module: &Module, half: Half) -> String {
    let second = half == Half::Running && module.before_pivot.is_some();
    format!("config_{}{}", module.name, if second { ".live" } else { "" })
}
