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
pub mod outside;
pub mod plan;
pub mod probe;
pub mod provision;
pub mod web;

use crate::deadline::Deadline;
use crate::machine::Machine;
use std::time::Duration;

/// How long the stages in the initramfs may take, unless `prepivot.timeout=` on the kernel command line says otherwise.
pub const BUDGET: Duration = Duration::from_secs(120);
/// The longest that `prepivot.timeout=` may ask for.
const MAX_BUDGET: Duration = Duration::from_secs(3600);
/// What the initramfs leaves for the real root, below /run; it moves along when the root is pivoted.
pub const RUN: &str = "/run/prepivot";

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
