//! How verbs that run in the initramfs end.

use super::program::FAILED;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage;
use crate::stage::local::Ended;
use crate::stage::trust::Stop;
use rustix::system::{RebootCommand, reboot};
use std::process::ExitCode;

/// Prints the first of the problems on the console, in one line, and returns the exit code: [`FAILED`] if not everything was
/// written, the kernel command line has `prepivot.fail=emergency`, or the trust policy stops the boot. Only in the latter two cases
/// does the boot stop. Does not return if the policy switches the machine off.
pub fn finish(machine: &Machine, ended: &Ended) -> ExitCode {
    let Some(first) = ended.problems.first() else { return ExitCode::SUCCESS };
    let more = match ended.problems.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more: /run/cloud-init/status.json)"),
    };
    logging::console(&format!("{first}{more}"));
    if ended.stop == Some(Stop::PowerOff) {
        rustix::fs::sync();
        if let Err(e) = reboot(RebootCommand::PowerOff) {
            logging::console(&format!("the machine could not be switched off: {e}"));
        }
    }
    let fails = !ended.written || ended.stop.is_some() || stage::fails_loudly(machine);
    if fails { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
