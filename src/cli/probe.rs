//! `probe`: the first of the two stages in the initramfs.

use super::initramfs;
use super::program::Program;
use super::verb::Verb;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage::probe;
use argh::{ArgsInfo, FromArgs};
use std::path::Path;
use std::process::ExitCode;

/// in the initramfs: read the drives while the root device is awaited
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "probe",
    help_triggers("-h", "--help"),
    error_code(0, "done; or it failed, and the kernel command line lacks prepivot.fail=emergency"),
    error_code(1, "it failed, with prepivot.fail=emergency")
)]
pub struct Probe {
    /// the initramfs framework
    #[argh(option, arg_name = "dracut|mkinitcpio|initramfs-tools")]
    #[allow(dead_code)]
    framework: Option<String>,
}

impl Verb for Probe {
    fn run(self, _: &Program) -> ExitCode {
        logging::to_kmsg();
        let machine = Machine::read(Path::new("/"));
        let problems: Vec<String> = probe::run(&machine).err().into_iter().map(|e| e.to_string()).collect();
        initramfs::finish(&machine, &problems, true)
    }
}
