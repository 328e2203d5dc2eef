//! `background`: the final stage's background work, in a separate process.

use super::program::Program;
use super::real_root;
use super::verb::Verb;
use crate::stage;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// make what nothing waits for: the RSA host key
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "background", help_triggers("-h", "--help"), note = "The final stage starts it.")]
pub struct Background {}

impl Verb for Background {
    const HIDDEN: bool = true;

    fn run(self, program: &Program) -> ExitCode {
        real_root::run(program, &[], stage::background)
    }
}
