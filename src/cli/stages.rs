//! The verbs that provision: in the initramfs, in the real root, by hand.

use super::{FAILED, Program, files, print};
use crate::base::error::Result;
use crate::base::logging;
use crate::document::{Value, wrong, yaml};
use crate::instance::Frequency;
use crate::machine::Machine;
use crate::module;
use crate::root::{self, Root, Use};
use crate::stage::{self, Asked, apply, later, plan, probe, single};
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// in the initramfs: look at the drives that are there
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "probe", help_triggers("-h", "--help"))]
pub struct Probe {
    /// the initramfs framework: dracut, mkinitcpio or initramfs-tools
    #[argh(option)]
    #[allow(dead_code)]
    framework: Option<String>,
}

/// provision a root: in the initramfs with what the machine's datasource says, or a tree with a seed
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "apply", help_triggers("-h", "--help"))]
pub struct Apply {
    /// the root
    #[argh(option)]
    root: PathBuf,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option)]
    seed: Option<PathBuf>,
    /// the initramfs framework: dracut, mkinitcpio or initramfs-tools
    #[argh(option)]
    #[allow(dead_code)]
    framework: Option<String>,
}

/// show what provisioning would change, and change nothing
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "plan", help_triggers("-h", "--help"))]
pub struct Plan {
    /// the root
    #[argh(option)]
    root: PathBuf,
    /// a config drive, an image of one, or a folder with its files
    #[argh(option)]
    seed: PathBuf,
    /// one JSON object a line
    #[argh(switch)]
    json: bool,
}

/// run the local or the network stage in the real root
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "init", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Init {
    /// the local stage
    #[argh(switch, short = 'l')]
    local: bool,
    /// a configuration file that counts above all others; may be given again, the first counts most
    #[argh(option, short = 'f')]
    file: Vec<String>,
}

/// run the modules of a stage in the real root
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "modules", help_triggers("-h", "--help"), note = "The exit code is the number of errors.")]
pub struct Modules {
    /// the stage: init, config (the default) or final
    #[argh(option, short = 'm', default = "root::Stage::Config", from_str_fn(stage))]
    mode: root::Stage,
    /// a configuration file that counts above all others; may be given again, the first counts most
    #[argh(option, short = 'f')]
    file: Vec<String>,
}

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
    /// how often: instance, always or once; default: the module's own frequency
    #[argh(option, from_str_fn(frequency))]
    frequency: Option<Frequency>,
    /// accepted for cloud-init's sake; there is nobody to report to
    #[argh(switch)]
    #[allow(dead_code)]
    report: bool,
    /// a configuration file that counts above all others; may be given again, the first counts most
    #[argh(option, short = 'f')]
    file: Vec<String>,
    /// arguments for the module
    #[argh(positional)]
    arguments: Vec<String>,
}

fn stage(name: &str) -> std::result::Result<root::Stage, String> {
    [root::Stage::Init, root::Stage::Config, root::Stage::Final]
        .into_iter()
        .find(|s| s.name() == name)
        .ok_or_else(|| "expected init, config or final".into())
}

fn frequency(name: &str) -> std::result::Result<Frequency, String> {
    let named = Frequency::named(name).filter(|_| ["instance", "always", "once"].contains(&name));
    named.ok_or_else(|| "expected instance, always or once".into())
}

impl Probe {
    pub fn run(self) -> ExitCode {
        logging::to_kmsg();
        let machine = Machine::read(Path::new("/"));
        let problems: Vec<String> = probe::run(&machine).err().into_iter().map(|e| e.to_string()).collect();
        in_initramfs(&machine, &problems)
    }
}

impl Apply {
    pub fn run(self, program: &Program) -> ExitCode {
        let Some(seed) = self.seed else {
            logging::to_kmsg();
            let machine = Machine::read(Path::new("/"));
            let problems = apply::new_root(&self.root, &machine);
            return in_initramfs(&machine, &problems);
        };
        program.log(LevelFilter::Info);
        match apply::tree(&self.root, &seed) {
            Ok(errors) => report(program, &errors),
            Err(e) => program.fail(e),
        }
    }
}

impl Plan {
    pub fn run(self, program: &Program) -> ExitCode {
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

impl Init {
    pub fn run(self, program: &Program) -> ExitCode {
        in_real_root(program, &self.file, |root, machine, asked| {
            if self.local {
                later::local(root, machine, asked)
            } else {
                later::stage(root, machine, root::Stage::Init, asked)
            }
        })
    }
}

impl Modules {
    pub fn run(self, program: &Program) -> ExitCode {
        in_real_root(program, &self.file, |root, machine, asked| later::stage(root, machine, self.mode, asked))
    }
}

impl Single {
    pub fn run(self, program: &Program) -> ExitCode {
        let Some(module) = module::find(&self.name) else {
            return program.fail(format_args!("there is no module called {}", self.name));
        };
        let code = in_real_root(program, &self.file, |root, machine, asked| {
            single::run(root, machine, asked, module, self.frequency, &self.arguments)
        });
        if code == ExitCode::SUCCESS { code } else { ExitCode::from(FAILED) }
    }
}

/// `--all-stages`: the stages of the real root, one after the other.
pub fn all(program: &Program) -> ExitCode {
    in_real_root(program, &[], |root, machine, asked| {
        let mut errors = later::local(root, machine, asked);
        for stage in [root::Stage::Init, root::Stage::Config, root::Stage::Final] {
            errors.extend(later::stage(root, machine, stage, asked));
        }
        errors
    })
}

/// Does `work` in the running system.
fn in_real_root(
    program: &Program,
    named: &[String],
    work: impl FnOnce(&mut Root, &Machine, &Asked) -> Vec<String>,
) -> ExitCode {
    program.log(LevelFilter::Info);
    let files = named.iter().map(|path| configuration(path)).collect::<Result<Vec<_>>>();
    let asked = match files {
        Ok(files) => Asked { files, force: program.force },
        Err(e) => return program.fail(e),
    };
    match Root::open(Path::new("/"), Use::Tree) {
        Ok(mut root) => report(program, &work(&mut root, &Machine::read(Path::new("/")), &asked)),
        Err(e) => program.fail(e),
    }
}

/// A configuration file that the command line names.
fn configuration(path: &str) -> Result<(String, crate::document::Map)> {
    match yaml::parse(path, &files::text(path)?)? {
        Value::Map(map) => Ok((path.to_owned(), map)),
        Value::Null => Ok((path.to_owned(), Default::default())),
        other => Err(wrong(path, "a mapping", &other)),
    }
}

/// Tells the problems on the console, in one line. The boot goes on, unless the kernel command line says otherwise.
fn in_initramfs(machine: &Machine, problems: &[String]) -> ExitCode {
    if let Some(first) = problems.first() {
        let more = match problems.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more: /run/cloud-init/status.json)"),
        };
        logging::console(&format!("{first}{more}"));
        if stage::fails_loudly(machine) {
            return ExitCode::from(FAILED);
        }
    }
    ExitCode::SUCCESS
}

/// Tells the errors. Their number is the exit code, as with cloud-init's stages.
fn report(program: &Program, errors: &[String]) -> ExitCode {
    for error in errors.iter().filter(|e| !logging::was_told(e)) {
        program.say(error);
    }
    ExitCode::from(u8::try_from(errors.len()).unwrap_or(u8::MAX))
}
