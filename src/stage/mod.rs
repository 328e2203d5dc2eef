//! What runs when: apply (in the initramfs: find the source, and provision the new root), the later stages of the real root,
//! and the hand-over between them.

mod again;
pub mod apply;
pub mod boot;
pub mod config;
mod demand;
mod diff;
mod feedback;
pub mod find;
pub mod first_process;
pub mod handover;
pub mod hotplug;
pub mod image;
pub mod later;
pub mod modules;
mod mount_root;
pub mod network;
mod output;
pub mod outside;
mod part_handlers;
pub mod plan;
pub mod provision;
pub mod refresh;
mod reporting;
pub mod single;
pub mod web;

use crate::base::clock;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::logging::{self, Message};
use crate::base::report::Report;
use crate::document::Map;
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::{Attr, Root};
use crate::source::none;
use std::time::Duration;

/// How long the stages in the initramfs may take, unless `prepivot.timeout=` on the kernel command line says otherwise.
pub const BUDGET: Duration = Duration::from_secs(120);
/// The longest that `prepivot.timeout=` may ask for.
const MAX_BUDGET: Duration = Duration::from_secs(3600);

/// Options of a stage on the command line.
#[derive(Debug, Default)]
pub struct Asked {
    /// Configuration above all other, by the files' names; the first takes precedence.
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

/// The line that begins a stage, in cloud-init's words: programs that watch a console or a log wait for it.
fn welcome(action: &str) -> String {
    let (version, uptime) = (env!("CARGO_PKG_VERSION"), status::uptime());
    format!("Cloud-init v. {version} running '{action}' at {}. Up {uptime:.2} seconds.", clock::now())
}

/// cloud-init's log.
const LOG: &str = "/var/log/cloud-init.log";

/// Makes status.json readable below /run where the disk did not take it.
fn rescue(status: &Status, root: &mut Root, report: &mut Report) {
    if report.keep(status.rescue(root)) == Some(true) {
        commit(root, report);
    }
}

/// Carries out the changes that an earlier run left, before anything is read; a failure is an error of the report.
fn recover(root: &mut Root) -> Report {
    let mut report = Report::new();
    for error in root.recover() {
        log::error!("{error}");
        report.error(error);
    }
    report
}

/// Carries out the changes so far; those that fail are errors of the report.
fn commit(root: &mut Root, report: &mut Report) {
    root.commit().iter().for_each(|e| report.error(e));
}

/// The group that may read logs.
const LOG_GROUP: &str = "adm";
/// How much of the log is kept when lines are added, in bytes.
const MAX_LOG: u64 = 4 << 20;

/// Adds a stage's messages to the log.
fn append_log(root: &mut Root, messages: &[Message]) -> Result<()> {
    append_to_log(root, logging::to_file_lines(messages).as_bytes())
}

/// Adds lines to the log. It keeps the mode and owner that it has; a new one is the group adm's to read, where there is one.
fn append_to_log(root: &mut Root, lines: &[u8]) -> Result<()> {
    let attr = Attr { gid: root.group_id(LOG_GROUP).unwrap_or(0), ..Attr::root(0o640) };
    if root.stat(LOG).is_some_and(|s| s.size > MAX_LOG) {
        return root.rewrite(LOG, lines, attr);
    }
    root.append(LOG, lines, attr)
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
