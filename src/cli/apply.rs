//! `apply`: provisions a root, in the initramfs or as a tree.

use super::initramfs;
use super::program::{Program, report};
use super::verb::Verb;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage::{end_in_time, local};
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// provision a root: in the initramfs from the machine's datasource, or a tree from a seed
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "apply",
    help_triggers("-h", "--help"),
    note = "Without --seed it is for the initramfs: it reads the machine's datasource, logs to the kernel, and fails only where \
            something could not be written, with prepivot.fail=emergency on the kernel command line, or if the trust policy \
            stops the boot. With --seed the exit \
            code is the number of errors."
)]
pub struct Apply {
    /// the root
    #[argh(option, arg_name = "dir")]
    root: PathBuf,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option, arg_name = "path")]
    seed: Option<PathBuf>,
    /// the initramfs framework
    #[argh(option, arg_name = "dracut|mkinitcpio|initramfs-tools")]
    #[allow(dead_code)]
    framework: Option<String>,
}

impl Verb for Apply {
    fn run(self, program: &Program) -> ExitCode {
        let Some(seed) = self.seed else {
            logging::to_kmsg();
            let machine = Machine::read(Path::new("/"));
            end_in_time(&machine);
            let ended = local::new_root(&self.root, &machine);
            return initramfs::finish(&machine, &ended);
        };
        program.log(LevelFilter::Info);
        match local::tree(&self.root, &seed) {
            Ok(errors) => report(program, &errors),
            Err(e) => program.fail(e),
        }
    }
}
