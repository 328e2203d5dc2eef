//! `single`: one module in the real root.

use super::program::{FAILED, Program};
use super::real_root;
use super::verb::Verb;
use crate::instance::Frequency;
use crate::module;
use crate::stage::single;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// run one module in the real root, whatever stage it belongs to
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "single",
    help_triggers("-h", "--help"),
    error_code(1, "it failed, there is no such module, or there is no datasource and no --force")
)]
pub struct Single {
    /// the module
    #[argh(option, short = 'n')]
    name: String,
    /// how often; default: the module's own frequency
    #[argh(option, arg_name = "instance|always|once", from_str_fn(frequency))]
    frequency: Option<Frequency>,
    /// accepted for cloud-init's sake, without effect
    #[argh(switch)]
    #[allow(dead_code)]
    report: bool,
    /// a configuration file that takes precedence over all others; may be given again, the first takes precedence
    #[argh(option, short = 'f', arg_name = "path")]
    file: Vec<String>,
    /// arguments for the module
    #[argh(positional)]
    arguments: Vec<String>,
}

fn frequency(name: &str) -> Result<Frequency, String> {
    let named = Frequency::named(name).filter(|_| ["instance", "always", "once"].contains(&name));
    named.ok_or_else(|| "expected instance, always or once".into())
}

impl Verb for Single {
    fn run(self, program: &Program) -> ExitCode {
        let Some(module) = module::find(&self.name) else {
            return program.fail(format_args!("there is no module called {}", self.name));
        };
        let code = real_root::run(program, &self.file, |root, machine, asked| {
            single::run(root, machine, asked, module, self.frequency, &self.arguments)
        });
        if code == ExitCode::SUCCESS { code } else { ExitCode::from(FAILED) }
    }
}
