//! What work the modules of a stage have in the running system, and the marks of those that have none.

use super::call::mark;
use super::list::{Entry, entry, list};
use super::{Half, Run};
use crate::base::problem::Problems;
use crate::instance::{Frequency, state};
use crate::module::Module;
use crate::root::{Stage, run_dir};

/// What work a stage has in the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    None,
    /// Work that needs no network.
    Local,
    /// Work that may need the network.
    Remote,
}

/// Which work the halves of the running system of a stage have.
pub struct Demand {
    pub work: Work,
    /// The marks of modules that are due but have nothing to do.
    idle: Vec<(String, Frequency)>,
}

impl Demand {
    /// The lines that [`Run::mark_idle`] reads: one for each mark that outlives the boot.
    pub fn marks(&self) -> String {
        let lasting = self.idle.iter().filter(|(_, frequency)| *frequency != Frequency::Always);
        lasting.map(|(mark, frequency)| format!("{mark} {}\n", frequency.name())).collect()
    }
}

impl Run<'_, '_> {
    /// What work the halves of the running system of a stage's modules have in this boot. Only the modules for which `counts`
    /// returns true are considered.
    pub fn demand(&mut self, stage: Stage, counts: &dyn Fn(&Module) -> bool) -> Demand {
        self.boot.turn_to(stage);
        let config = self.boot.config();
        // Entries that cannot run were reported already.
        let entries: Vec<_> =
            list(config, stage).iter().filter_map(|v| entry(v, Half::Running, &Problems::new())).collect();
        let mut demand = Demand { work: Work::None, idle: Vec::new() };
        for Entry { module, frequency, args } in entries {
            let mark = mark(module, Half::Running);
            let is_done = || state::is_done(self.root, self.instance, &mark, frequency);
            if !counts(module) || module.running.is_none() || !self.is_requested(module) || is_done() {
                continue;
            }
            if module.idle.is_some_and(|idle| self.with_context(&args, idle)) {
                demand.idle.push((mark, frequency));
            } else if !module.offline {
                demand.work = Work::Remote;
            } else if demand.work == Work::None {
                demand.work = Work::Local;
            }
        }
        self.boot.turn_to(Stage::Network);
        demand
    }

    /// Marks the modules as done that skipped stages would have found idle, so that a later configuration
    /// does not run them.
    pub fn mark_idle(&mut self) {
        for name in self.root.list(run_dir::IDLE) {
            let path = format!("{}/{name}", run_dir::IDLE);
            for (mark, frequency) in self.root.text(&path).lines().filter_map(|line| line.split_once(' ')) {
                if let Some(frequency) = Frequency::named(frequency) {
                    let marked = state::mark_done(self.root, self.instance, mark, frequency);
                    self.boot.report.keep(marked);
                }
            }
        }
    }
}
