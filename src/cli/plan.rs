//! `plan`: shows what provisioning a tree would change.

use super::program::{Program, print, report};
use super::verb::Verb;
use crate::stage::plan;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::PathBuf;
use std::process::ExitCode;

/// show what provisioning would change, and change nothing
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "plan", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Plan {
    /// the root
    #[argh(option, arg_name = "dir")]
    root: PathBuf,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option, arg_name = "path")]
    seed: PathBuf,
    /// one JSON object a line
    #[argh(switch)]
    json: bool,
}

impl Verb for Plan {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        match plan::plan(&self.root, &self.seed) {
            Ok(plan) => {
                print(&if self.json { plan.to_json_lines() } else { plan.to_text() });
                report(program, &plan.errors)
            }
            Err(e) => program.fail(e),
        }
    }
}
