//! Every verb, option and exit code.
//!
//! The program answers to cloud-init's names too: `cloud-init` takes the same verbs.

mod detect;

use crate::logging;
use crate::machine::Machine;
use crate::root::{Root, Stage, Use};
use crate::stage::{self, apply, later, plan, probe};
use argh::FromArgs;
use log::LevelFilter;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit codes (cloud-init's, and argparse's for a wrong command line).
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// cloud-init's job, done before the root pivot
#[derive(FromArgs)]
struct Cli {
    /// show the version
    #[argh(switch, short = 'v')]
    version: bool,
    /// show what is done on standard error
    #[argh(switch, short = 'd')]
    debug: bool,
    /// run a stage although it ran already
    #[argh(switch)]
    #[allow(dead_code)]
    force: bool,
    /// run the stages of the real root one after the other: for a system without systemd
    #[argh(switch)]
    all_stages: bool,
    #[argh(subcommand)]
    verb: Option<Verb>,
}

#[derive(FromArgs)]
#[argh(subcommand)]
enum Verb {
    #[allow(dead_code)]
    Probe(Probe),
    Apply(Apply),
    Plan(PlanVerb),
    Detect(detect::Detect),
    Init(Init),
    Modules(Modules),
}

/// in the initramfs: look at the drives that are there
#[derive(FromArgs)]
#[argh(subcommand, name = "probe")]
struct Probe {
    /// the initramfs framework: dracut, mkinitcpio or initramfs-tools
    #[argh(option)]
    #[allow(dead_code)]
    framework: Option<String>,
}

/// provision a root: in the initramfs with what the machine's datasource says, or a tree with a seed
#[derive(FromArgs)]
#[argh(subcommand, name = "apply")]
struct Apply {
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
#[derive(FromArgs)]
#[argh(subcommand, name = "plan")]
struct PlanVerb {
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
#[derive(FromArgs)]
#[argh(subcommand, name = "init")]
struct Init {
    /// the local stage
    #[argh(switch, short = 'l')]
    local: bool,
}

/// run the modules of a stage in the real root
#[derive(FromArgs)]
#[argh(subcommand, name = "modules")]
struct Modules {
    /// the stage: init, config or final
    #[argh(option, short = 'm', default = "String::from(\"config\")")]
    mode: String,
}

/// Runs the command line `args`, whose first is the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().map(|a| a.to_string_lossy().into_owned());
    let name = args.next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or("prepivot").to_owned();
    let rest: Vec<String> = args.flat_map(split_equals).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match Cli::from_args(&[&name], &rest) {
        Ok(cli) => run(cli, &name),
        Err(exit) if exit.status.is_ok() => {
            println!("{}", exit.output.trim_end());
            ExitCode::SUCCESS
        }
        Err(exit) => {
            eprintln!("{}", exit.output.trim_end());
            ExitCode::from(USAGE)
        }
    }
}

/// `--option=value` as the two words that argh takes.
fn split_equals(word: String) -> Vec<String> {
    match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") && option.len() > 2 => vec![option.into(), value.into()],
        _ => vec![word],
    }
}

fn run(cli: Cli, name: &str) -> ExitCode {
    if cli.version {
        println!("{name} {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let level = if cli.debug { LevelFilter::Debug } else { LevelFilter::Info };
    if cli.all_stages {
        logging::to_stderr(level);
        return all_stages();
    }
    let Some(verb) = cli.verb else {
        eprintln!("{name}: expected a command; see {name} --help");
        return ExitCode::from(USAGE);
    };
    match verb {
        Verb::Probe(_) => {
            logging::to_kmsg();
            let machine = Machine::read(Path::new("/"));
            let problems: Vec<String> = probe::run(&machine).err().into_iter().map(|e| e.to_string()).collect();
            in_initramfs(&machine, &problems)
        }
        Verb::Apply(Apply { root, seed: Some(seed), .. }) => {
            logging::to_stderr(level);
            match apply::tree(&root, &seed) {
                Ok(errors) => report(&errors),
                Err(e) => report(&[e.to_string()]),
            }
        }
        Verb::Apply(Apply { root, .. }) => {
            logging::to_kmsg();
            let machine = Machine::read(Path::new("/"));
            let problems = apply::new_root(&root, &machine);
            in_initramfs(&machine, &problems)
        }
        Verb::Plan(verb) => {
            logging::to_stderr(if cli.debug { level } else { LevelFilter::Warn });
            match plan::plan(&verb.root, &verb.seed) {
                Ok(plan) => {
                    print!("{}", if verb.json { plan.to_json_lines() } else { plan.to_text() });
                    report(&plan.errors)
                }
                Err(e) => report(&[e.to_string()]),
            }
        }
        Verb::Detect(verb) => {
            logging::to_stderr(if cli.debug { level } else { LevelFilter::Warn });
            detect::run(&verb)
        }
        Verb::Init(verb) => {
            logging::to_stderr(level);
            in_real_root(if verb.local { None } else { Some(Stage::Init) })
        }
        Verb::Modules(verb) => {
            logging::to_stderr(level);
            match verb.mode.as_str() {
                "init" => in_real_root(Some(Stage::Init)),
                "config" => in_real_root(Some(Stage::Config)),
                "final" => in_real_root(Some(Stage::Final)),
                _ => {
                    eprintln!("{name}: --mode: expected init, config or final");
                    ExitCode::from(USAGE)
                }
            }
        }
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

/// The number of errors, as cloud-init's stages exit.
fn report(errors: &[String]) -> ExitCode {
    for error in errors {
        eprintln!("prepivot: {error}");
    }
    ExitCode::from(u8::try_from(errors.len()).unwrap_or(u8::MAX))
}

fn open_real_root() -> Result<(Root, Machine), ExitCode> {
    let root = Root::open(Path::new("/"), Use::Tree).map_err(|e| report(&[e.to_string()]))?;
    Ok((root, Machine::read(Path::new("/"))))
}

/// One stage of the real root; None is the local one.
fn in_real_root(stage: Option<Stage>) -> ExitCode {
    match open_real_root() {
        Ok((mut root, machine)) => report(&match stage {
            None => later::local(&mut root, &machine),
            Some(stage) => later::stage(&mut root, &machine, stage),
        }),
        Err(code) => code,
    }
}

fn all_stages() -> ExitCode {
    match open_real_root() {
        Ok((mut root, machine)) => {
            let mut errors = later::local(&mut root, &machine);
            for stage in [Stage::Init, Stage::Config, Stage::Final] {
                errors.extend(later::stage(&mut root, &machine, stage));
            }
            report(&errors)
        }
        Err(code) => code,
    }
}
