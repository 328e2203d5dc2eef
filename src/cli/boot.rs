//! `boot`: mounts and provisions the root, in the child process of the initramfs's first process.

use super::initramfs;
use super::program::{FAILED, Program};
use super::verb::Verb;
use crate::base::logging;
use crate::machine::Machine;
use crate::stage::first_process;
use argh::{ArgsInfo, FromArgs};
use std::path::Path;
use std::process::ExitCode;

/// in an initramfs of this program alone: mount the root that root= names, and provision it
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "boot", help_triggers("-h", "--help"), note = "The program as /init starts it.")]
pub struct Boot {}

impl Verb for Boot {
    const HIDDEN: bool = true;

    fn run(self, program: &Program) -> ExitCode {
        logging::to_kmsg();
        let machine = Machine::read(Path::new("/"));
        match first_process::prepare(&machine) {
            Ok(ended) => initramfs::finish(&machine, &ended),
            Err(e) => {
                logging::console(&e.to_string());
                program.say(e);
                ExitCode::from(FAILED)
            }
        }
    }
}

/// Whether the program is the first process of an initramfs.
pub fn is_first_process(program: &Program) -> bool {
    program.name == "init" && rustix::process::getpid().is_init()
}
