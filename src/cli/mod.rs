//! The command line: the table of verbs, and how `argv` selects one. Each verb is one file.
//!
//! The program also has cloud-init's names: called `cloud-init` it takes the same verbs; `cloud-id` and
//! `cloud-init-per` run one verb each.

mod analyze;
mod apply;
mod args;
mod background;
mod boot;
mod clean;
mod cloud_id;
mod collect_logs;
mod compare;
mod completions;
mod detect;
mod devel;
mod dhclient_hook;
mod features;
mod files;
mod init;
mod initramfs;
mod logs;
mod modules;
mod per;
mod plan;
mod program;
mod progress;
mod query;
mod real_root;
mod report;
mod schema;
mod single;
mod status;
mod trust;
mod units;
mod verb;

use crate::base::budget;
use crate::stage::first_process;
use argh::{ArgsInfo, CommandInfo, CommandInfoWithArgs, EarlyExit, FromArgs};
use program::{Program, print};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;
use verb::{Entry, Pick, Table};

/// The verbs, in the order of the help. A verb of a part only fails in a build without that Cargo feature.
static VERBS: &[Entry] = &[
    Entry::of::<apply::Apply>(),
    // A build without tools has the plan of a root and a seed alone.
    if cfg!(feature = "tools") { Entry::of::<plan::Plan>() } else { Entry::of::<plan::Small>() },
    Entry::of::<detect::Detect>(),
    Entry::of::<init::Init>(),
    Entry::of::<modules::Modules>(),
    Entry::of::<single::Single>(),
    Entry::of::<per::Per>(),
    Entry::of::<status::Status>(),
    Entry::of::<query::Query>(),
    Entry::of::<cloud_id::CloudId>(),
    Entry::of::<clean::Clean>(),
    Entry::of_part::<collect_logs::CollectLogs>(cfg!(feature = "tools")),
    Entry::of_part::<compare::Compare>(cfg!(feature = "tools")),
    Entry::of_part::<analyze::Analyze>(cfg!(feature = "tools")),
    Entry::of_part::<report::Report>(cfg!(feature = "tools")),
    Entry::of_part::<schema::Schema>(cfg!(feature = "schema")),
    Entry::of_part::<trust::Trust>(cfg!(feature = "trust")),
    Entry::of::<features::Features>(),
    Entry::of::<background::Background>(),
    Entry::of::<boot::Boot>(),
    Entry::of::<dhclient_hook::DhclientHook>(),
    Entry::of::<devel::Devel>(),
    Entry::of_part::<completions::Completions>(cfg!(feature = "tools")),
];

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
    verb: Option<AnyVerb>,
}

/// The verb named on the command line. An alias because argh's macro does not accept a type with `<`.
type AnyVerb = Pick<Verbs>;

/// The program's table of verbs.
struct Verbs;

impl Table for Verbs {
    fn entries() -> &'static [Entry] {
        VERBS
    }

    fn commands() -> &'static [&'static CommandInfo] {
        static COMMANDS: LazyLock<Vec<&CommandInfo>> = LazyLock::new(|| verb::visible(VERBS));
        &COMMANDS
    }
}

/// Runs the command line `args`, beginning with the program's name, and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    budget::begin();
    let mut args = args.into_iter();
    let path = args.next().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    let name = path.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or("prepivot").to_owned();
    let mut program = Program { path, name, words: args.collect(), debug: false, force: false, command, aliases };
    if boot::is_first_process(&program) {
        first_process::run(&program.words);
    }
    let words: Vec<String> = program.words.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(entry) = VERBS.iter().find(|entry| entry.programs.contains(&program.name.as_str())) {
        return alone(&program, entry, &[&program.name], words);
    }
    // argh accepts only the options that its help shows.
    if let Some((first, rest)) = words.split_first()
        && let Some(entry) = VERBS.iter().find(|entry| entry.hidden && entry.name() == first)
    {
        return alone(&program, entry, &[&program.name, first], rest.to_vec());
    }
    let words = args::expand(&Cli::get_args_info(), words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let cli = match Cli::from_args(&[&program.name], &words) {
        Ok(cli) => cli,
        Err(exit) => return early(&program, &exit, program::USAGE),
    };
    (program.debug, program.force) = (cli.debug, cli.force);
    if cli.version {
        print(&program::version(&program.path, &program.name));
        return ExitCode::SUCCESS;
    }
    if cli.all_stages {
        return real_root::all_stages(&program);
    }
    match cli.verb {
        Some(verb) => verb.run(&program),
        None => program.usage(format_args!("expected a command; see {} --help", program.name)),
    }
}

/// Runs one verb with `words` as its arguments.
fn alone(program: &Program, entry: &Entry, name: &[&str], words: Vec<String>) -> ExitCode {
    let words = args::expand(&(entry.info)(), words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match entry.parse(name, &words) {
        Ok(verb) => verb.run(program),
        Err(exit) => early(program, &exit, entry.usage),
    }
}

/// Prints help or a usage error; returns the exit code, `usage` for the latter.
fn early(program: &Program, exit: &EarlyExit, usage: u8) -> ExitCode {
    let text = exit.output.trim_end();
    if exit.status.is_ok() {
        print(&format!("{text}\n"));
        return ExitCode::SUCCESS;
    }
    program.say(text);
    ExitCode::from(usage)
}

/// The whole command line: all verbs with arguments, help and exit codes.
pub fn command() -> CommandInfoWithArgs {
    CommandInfoWithArgs { name: "prepivot", ..Cli::get_args_info() }
}

/// The program's names that run a single verb, with that verb.
fn aliases() -> Vec<(&'static str, &'static str)> {
    VERBS.iter().flat_map(|entry| entry.programs.iter().map(|name| (*name, entry.name()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FlagInfoKind;
    use std::collections::HashSet;

    /// Calls `check` with each command and the words that lead to it.
    fn each(command: &CommandInfoWithArgs, path: &[&str], check: &mut impl FnMut(&CommandInfoWithArgs, &[&str])) {
        check(command, path);
        for sub in &command.commands {
            each(&sub.command, &[path, &[sub.name]].concat(), check);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for entry in VERBS {
            let names: HashSet<&str> = entry.programs.iter().copied().chain([entry.name()]).collect();
            names.into_iter().for_each(|name| assert!(seen.insert(name), "{name}"));
        }
        each(&command(), &[], &mut |command, path| {
            let mut seen = HashSet::new();
            for flag in command.flags {
                assert!(seen.insert(flag.long.to_owned()), "{path:?} {}", flag.long);
                assert!(flag.short.is_none_or(|c| seen.insert(c.to_string())), "{path:?} {}", flag.long);
            }
        });
    }

    #[test]
    fn options_help_lists_the_words_it_accepts() {
        let parse = |path: &[&str], words: &[&str]| match Cli::from_args(&["prepivot"], &[path, words].concat()) {
            Ok(_) => String::new(),
            Err(exit) => exit.output,
        };
        let mut checked = 0;
        each(&command(), &[], &mut |command, path| {
            for flag in command.flags {
                let FlagInfoKind::Option { arg_name } = flag.kind else { continue };
                if !arg_name.contains('|') {
                    continue;
                }
                let refused = parse(path, &[flag.long, "?"]);
                for word in arg_name.split('|') {
                    let answer = parse(path, &[flag.long, word]);
                    assert!(!answer.contains("Error parsing"), "{path:?} {} {word}: {answer}", flag.long);
                    if refused.contains("Error parsing") {
                        assert!(refused.contains(word), "{path:?} {}: {refused}", flag.long);
                        checked += 1;
                    }
                }
            }
        });
        assert!(checked > 10, "{checked}");
    }
}
