//! How a verb ends that runs in the initramfs.

use super::program::FAILED;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage;
use std::process::ExitCode;

/// Prints the first of `problems` on the console, in one line, and returns the exit code. The boot goes on, unless the kernel
/// command line has `prepivot.fail=emergency`.
pub fn finish(machine: &Machine, problems: &[String]) -> ExitCode {
    let Some(first) = problems.first() else { return ExitCode::SUCCESS };
    let more = match problems.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more: /run/cloud-init/status.json)"),
    };
    logging::console(&format!("{first}{more}"));
    if stage::fails_loudly(machine) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
