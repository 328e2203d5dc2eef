//! `init`: the local or the network stage of the real root.

use super::program::Program;
use super::real_root;
use super::verb::Verb;
use crate::root::Stage;
use crate::stage;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// run the local or the network stage in the real root
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "init", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Init {
    /// the local stage
    #[argh(switch, short = 'l')]
    local: bool,
    /// a configuration file that takes precedence over all others; may be given again, the first takes precedence
    #[argh(option, short = 'f', arg_name = "path")]
    file: Vec<String>,
}

impl Verb for Init {
    fn run(self, program: &Program) -> ExitCode {
        real_root::run(program, &self.file, |root, machine, asked| {
            let which = if self.local { Stage::Local } else { Stage::Network };
            stage::run(root, machine, which, asked)
        })
    }
}
