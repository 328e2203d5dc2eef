//! What runs when: probe (initramfs: find the source), apply (initramfs: provision the new root), the later stages of the
//! real root, and the hand-over between them.

pub mod apply;
pub mod config;
mod diff;
pub mod find;
pub mod handover;
pub mod image;
pub mod later;
pub mod modules;
pub mod network;
mod output;
pub mod outside;
pub mod plan;
pub mod probe;
pub mod provision;
pub mod refresh;
pub mod single;
pub mod web;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::logging::{self, DEPRECATED, Message};
use crate::base::report::{Report, Severity};
use crate::document::Map;
use crate::instance::status::Status;
use crate::instance::{Instance, state};
use crate::machine::Machine;
pub use crate::root::RUN;
use crate::root::{Attr, Root};
use crate::source::none;
use std::time::Duration;

/// How long the stages in the initramfs may take, unless `prepivot.timeout=` on the kernel command line says otherwise.
pub const BUDGET: Duration = Duration::from_secs(120);
/// The longest that `prepivot.timeout=` may ask for.
const MAX_BUDGET: Duration = Duration::from_secs(3600);

/// What the command line asks of a stage.
#[derive(Debug, Default)]
pub struct Asked {
    /// Configuration above all other, by the files' names; the first counts most.
    pub files: Vec<(String, Map)>,
    /// Modules run although there is no instance.
    pub force: bool,
}

impl Asked {
    /// The instance of this boot; where there is none and it is asked for, one that says nothing.
    fn instance(&self, root: &Root) -> Option<Instance> {
        state::cached(root).or_else(|| self.force.then(|| none::instance(None)))
    }
}

/// Logs what a report has.
pub(crate) fn log_report(report: &Report) {
    for entry in report.entries() {
        match entry.severity {
            Severity::Error => log::error!("{entry}"),
            Severity::Warning => log::warn!("{entry}"),
            Severity::Deprecated => log::warn!(target: DEPRECATED, "{entry}"),
        }
    }
}

/// The stage's deadline: `prepivot.timeout=SECONDS`, else [`BUDGET`].
pub fn deadline(machine: &Machine) -> Deadline {
    let asked = machine.cmdline.value("prepivot.timeout").and_then(|v| match v.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds).min(MAX_BUDGET)),
        Err(_) => {
            log::warn!("kernel command line: prepivot.timeout: expected a number of seconds");
            None
        }
    });
    Deadline::after(asked.unwrap_or(BUDGET))
}

/// Whether a failure stops the boot: `prepivot.fail=emergency`.
pub fn fails_loudly(machine: &Machine) -> bool {
    machine.cmdline.value("prepivot.fail") == Some("emergency")
}

/// What went wrong in a stage, one line each: it goes to status.json and makes the exit code.
#[derive(Debug, Default)]
pub struct Errors(Vec<String>);

impl Errors {
    /// Keeps an error, and gives what there is where there is none.
    pub fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|e| self.0.push(e.to_string())).ok()
    }

    /// Keeps all of them.
    pub fn all<E: ToString>(&mut self, errors: impl IntoIterator<Item = E>) {
        self.0.extend(errors.into_iter().map(|e| e.to_string()));
    }

    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    /// The lines, and the warnings of the stage that are not among them.
    pub fn with_warnings(mut self, messages: &[Message]) -> Vec<String> {
        for message in messages.iter().filter(|m| m.level <= log::Level::Warn) {
            if !self.0.contains(&message.text) {
                self.0.push(message.text.clone());
            }
        }
        self.0
    }
}

/// cloud-init's log.
const LOG: &str = "/var/log/cloud-init.log";

/// Sees to it that status.json can be read, whatever the disk took of it.
fn rescue(status: &Status, root: &mut Root, errors: &mut Errors) {
    if errors.keep(status.rescue(root)) == Some(true) {
        errors.all(root.commit());
    }
}

/// Lines for the log, from an initramfs that had nothing else to write to the disk.
const LOG_LATER: &str = "/run/prepivot/log";
/// How much of the log is kept when lines are added, in bytes.
const MAX_LOG: u64 = 4 << 20;

/// Adds a stage's messages to the log, which only root and its group may read.
fn append_log(root: &mut Root, messages: &[Message]) -> Result<()> {
    let lines = logging::to_file_lines(messages);
    if root.stat(LOG).is_some_and(|s| s.size > MAX_LOG) {
        return root.rewrite(LOG, lines, Attr::root(0o640));
    }
    root.append(LOG, lines.as_bytes(), Attr::root(0o640))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cmdline;

    #[test]
    fn the_stage_has_two_minutes_or_what_the_kernel_command_line_says() {
        let seconds = |line: &str| {
            let machine = Machine { cmdline: Cmdline::new(line), ..Machine::default() };
            deadline(&machine).left().as_secs_f64().round()
        };
        assert_eq!(seconds("quiet"), 120.0);
        assert_eq!(seconds("prepivot.timeout=7"), 7.0);
        assert_eq!(seconds("prepivot.timeout=0"), 0.0);
        assert_eq!(seconds("prepivot.timeout=99999"), MAX_BUDGET.as_secs_f64());
        assert_eq!(seconds("prepivot.timeout=soon"), 120.0);
    }
}
