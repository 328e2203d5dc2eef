//! How verbs that run in the initramfs end.

use super::program::FAILED;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage;
use std::process::ExitCode;

/// Prints the first of `problems` on the console, in one line, and returns the exit code: [`FAILED`] if the
/// work was not `done` or the kernel command line has `prepivot.fail=emergency`. Only in the latter case does
/// the boot stop.
pub fn finish(machine: &Machine, problems: &[String], done: bool) -> ExitCode {
    let Some(first) = problems.first() else { return ExitCode::SUCCESS };
    let more = match problems.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more: /run/cloud-init/status.json)"),
    };
    logging::console(&format!("{first}{more}"));
    if !done || stage::fails_loudly(machine) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
