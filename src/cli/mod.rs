//! Every verb, option and exit code: the table of verbs, one file for each or for what belongs together.
//!
//! The program answers to cloud-init's names too: `cloud-init` takes the same verbs, `cloud-id` and `cloud-init-per` are verbs
//! that are programs of their own.

mod analyze;
mod args;
mod clean;
mod cloud_id;
mod collect_logs;
mod detect;
mod devel;
mod files;
mod per;
mod query;
mod schema;
mod stages;
mod status;
mod units;

use crate::base::logging;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Exit codes (cloud-init's, and argparse's for a wrong command line).
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// The version of cloud-init whose behaviour this program follows: what scripts find that parse `cloud-init --version`.
const CLOUD_INIT_VERSION: &str = "26.2";

/// cloud-init's job, done before the root pivot
#[derive(FromArgs, ArgsInfo)]
#[argh(
    help_triggers("-h", "--help"),
    note = "Called cloud-init, it takes the same commands, and --version prints the version of cloud-init that it follows \
            before its own."
)]
struct Cli {
    /// show the version
    #[argh(switch, short = 'v')]
    version: bool,
    /// show what is done on standard error
    #[argh(switch, short = 'd')]
    debug: bool,
    /// run the modules of a stage although there is no datasource
    #[argh(switch)]
    force: bool,
    /// run the stages of the real root one after the other: for a system without systemd
    #[argh(switch)]
    all_stages: bool,
    #[argh(subcommand)]
    verb: Option<Verb>,
}

#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand)]
enum Verb {
    Probe(stages::Probe),
    Apply(stages::Apply),
    Plan(stages::Plan),
    Detect(detect::Detect),
    Init(stages::Init),
    Modules(stages::Modules),
    Single(stages::Single),
    Status(status::Status),
    Query(query::Query),
    CloudId(cloud_id::CloudId),
    Clean(clean::Clean),
    CollectLogs(collect_logs::CollectLogs),
    Analyze(analyze::Analyze),
    Schema(schema::Schema),
    Features(Features),
    Devel(devel::Devel),
}

/// name what network configuration is understood
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "features", help_triggers("-h", "--help"))]
struct Features {}

/// What every verb knows.
struct Program {
    /// The name it was called by.
    name: String,
    debug: bool,
    force: bool,
}

impl Program {
    /// Messages to people go to standard error, up to `level`, or all of them with --debug.
    fn log(&self, level: LevelFilter) {
        logging::to_stderr(if self.debug { LevelFilter::Debug } else { level });
    }

    /// Tells what failed.
    fn fail(&self, what: impl Display) -> ExitCode {
        self.say(what);
        ExitCode::from(FAILED)
    }

    /// Tells what is wrong with the command line.
    fn usage(&self, what: impl Display) -> ExitCode {
        self.say(what);
        ExitCode::from(USAGE)
    }

    fn say(&self, what: impl Display) {
        let _ = writeln!(std::io::stderr(), "{}: {what}", self.name);
    }

    /// Needs root.
    fn need_root(&self) -> Result<(), ExitCode> {
        if is_root() { Ok(()) } else { Err(self.fail("this needs root; try it with sudo")) }
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Writes to standard output. Nobody reading it any more is no error of ours; an output that takes no more ends the program,
/// so that nobody takes a part for the whole.
fn print(text: &str) {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("prepivot: failed to write to standard output: {e}");
            std::process::exit(FAILED.into());
        }
        _ => {}
    }
}

/// Runs the command line `args`, whose first is the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let path = args.next().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    let name = path.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or("prepivot").to_owned();
    if per::NAMES.contains(&name.as_str()) {
        return per::main(&name, args.collect());
    }
    let words = args.map(|a| a.to_string_lossy().into_owned());
    let mut program = Program { name, debug: false, force: false };
    if program.name == cloud_id::NAME {
        return parse::<cloud_id::CloudId>(&program, words).map_or_else(|code| code, |verb| verb.run(&program));
    }
    let cli = match parse::<Cli>(&program, words) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    (program.debug, program.force) = (cli.debug, cli.force);
    if cli.version {
        print(&version(&path, &program.name));
        return ExitCode::SUCCESS;
    }
    if cli.all_stages {
        return stages::all(&program);
    }
    match cli.verb {
        None => program.usage(format_args!("expected a command; see {} --help", program.name)),
        Some(Verb::Probe(verb)) => verb.run(),
        Some(Verb::Apply(verb)) => verb.run(&program),
        Some(Verb::Plan(verb)) => verb.run(&program),
        Some(Verb::Detect(verb)) => verb.run(&program),
        Some(Verb::Init(verb)) => verb.run(&program),
        Some(Verb::Modules(verb)) => verb.run(&program),
        Some(Verb::Single(verb)) => verb.run(&program),
        Some(Verb::Status(verb)) => verb.run(&program),
        Some(Verb::Query(verb)) => verb.run(&program),
        Some(Verb::CloudId(verb)) => verb.run(&program),
        Some(Verb::Clean(verb)) => verb.run(&program),
        Some(Verb::CollectLogs(verb)) => verb.run(&program),
        Some(Verb::Analyze(verb)) => verb.run(&program),
        Some(Verb::Schema(verb)) => verb.run(&program),
        Some(Verb::Devel(verb)) => verb.run(&program),
        Some(Verb::Features(Features {})) => {
            print("NETWORK_CONFIG_V1\nNETWORK_CONFIG_V2\n");
            ExitCode::SUCCESS
        }
    }
}

/// The command line as `T`, or the exit code where it is wrong or asks for help.
fn parse<T: FromArgs + ArgsInfo>(program: &Program, words: impl Iterator<Item = String>) -> Result<T, ExitCode> {
    let words = args::expand(&T::get_args_info(), words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    T::from_args(&[&program.name], &words).map_err(|exit| {
        if exit.status.is_ok() {
            print(&format!("{}\n", exit.output.trim_end()));
            ExitCode::SUCCESS
        } else {
            program.usage(exit.output.trim_end())
        }
    })
}

/// `/usr/bin/cloud-init 26.2 (prepivot 0.1.0)` as cloud-init's, `prepivot 0.1.0` as our own.
fn version(path: &str, name: &str) -> String {
    let own = concat!("prepivot ", env!("CARGO_PKG_VERSION"));
    if name == "cloud-init" { format!("{path} {CLOUD_INIT_VERSION} ({own})\n") } else { format!("{own}\n") }
}
