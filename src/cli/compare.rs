//! `compare`: what prepivot would have made of a machine that cloud-init has provisioned, against what is there.

use super::program::{FAILED, Program, print};
use super::verb::Verb;
use crate::stage::compare;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::PathBuf;
use std::process::ExitCode;

/// compare what cloud-init has made of a machine or image with what prepivot would make, and change nothing
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "compare",
    help_triggers("-h", "--help"),
    note = "It reads cloud-init's cached instance. Without root it compares what the user may read, and notes the rest.",
    error_code(1, "something differs that is not stated, or nothing could be compared")
)]
pub struct Compare {
    /// the root, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "PathBuf::from(\"/\")")]
    root: PathBuf,
    /// as JSON
    #[argh(switch)]
    json: bool,
}

impl Verb for Compare {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Off);
        match compare::compare(&self.root) {
            Ok(found) => {
                print(&if self.json { found.to_json() } else { found.to_text() });
                if found.is_explained() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
            }
            Err(e) => program.fail(e),
        }
    }
}
