//! `modules`: a stage of the real root.

use super::program::Program;
use super::real_root;
use super::verb::Verb;
use crate::base::deprecated;
use crate::base::logging::DEPRECATED;
use crate::root::Stage;
use crate::stage::{self, Options};
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// run the modules of a stage in the real root
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "modules", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Modules {
    /// the stage; default: config
    #[argh(option, short = 'm', arg_name = "init|config|final", default = "Stage::Config", from_str_fn(mode))]
    mode: Stage,
    /// a configuration file that takes precedence over all others; may be given again, the first takes precedence
    #[argh(option, short = 'f', arg_name = "path")]
    file: Vec<String>,
}

fn mode(name: &str) -> Result<Stage, String> {
    Stage::WITH_MODULES.into_iter().find(|s| s.name() == name).ok_or_else(|| "expected init, config or final".into())
}

impl Verb for Modules {
    fn run(self, program: &Program) -> ExitCode {
        let is_old = self.mode == Stage::Network;
        if is_old {
            log::info!(target: DEPRECATED, "{}", deprecated::MODE_INIT.about(""));
        }
        let action = is_old.then_some("modules:init");
        real_root::run(program, &self.file, |root, machine, asked| {
            let asked = Options { action, files: asked.files.clone(), ..*asked };
            stage::run(root, machine, self.mode, &asked)
        })
    }
}
