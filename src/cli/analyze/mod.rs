//! `analyze`: the time that each part of a boot took, from the events in the log.

mod boot;
mod events;
mod records;

use super::files;
use super::program::{FAILED, Program, print};
use super::verb::Verb;
use crate::base::error::{Context, Error, Result};
use crate::document::{Value, json};
use crate::root::CLOUD_INIT_LOG;
use argh::{ArgsInfo, FromArgs};
use events::Event;
use log::LevelFilter;
use std::process::ExitCode;

/// show where the time of the boots in the log went
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "analyze",
    help_triggers("-h", "--help"),
    note = "In --format these are replaced by the event's: %d time taken, %E time since the first event, %t time, %D description, %n name, \
            %e type, %r result, %o origin, %I indentation.",
    error_code(1, "the log cannot be read, or boot has no times")
)]
pub struct Analyze {
    /// show: the events in order; blame: by the time they took; dump: as JSON; boot: when the kernel and the first stage began
    #[argh(positional, arg_name = "show|blame|dump|boot")]
    what: What,
    /// how show prints an event; default: %I%D @%Es +%ds
    #[argh(option, short = 'f', default = "String::from(\"%I%D @%Es +%ds\")")]
    format: String,
    /// another log, one of cloud-init's own or what dump wrote; -: standard input
    #[argh(option, short = 'i', arg_name = "path", default = "String::from(CLOUD_INIT_LOG)")]
    infile: String,
    /// the file to write; default: -, standard output
    #[argh(option, short = 'o', arg_name = "path", default = "String::from(\"-\")")]
    outfile: String,
}

enum What {
    Show,
    Blame,
    Dump,
    Boot,
}

impl argh::FromArgValue for What {
    fn from_arg_value(name: &str) -> std::result::Result<What, String> {
        match name {
            "show" => Ok(What::Show),
            "blame" => Ok(What::Blame),
            "dump" => Ok(What::Dump),
            "boot" => Ok(What::Boot),
            _ => Err("expected show, blame, dump or boot".into()),
        }
    }
}

impl Verb for Analyze {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        match self.answer() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(FAILED),
            Err(e) => program.fail(e),
        }
    }
}

impl Analyze {
    /// Prints the answer, and returns whether it is complete.
    fn answer(&self) -> Result<bool> {
        let events = read(&self.infile)?;
        let (text, found) = match self.what {
            What::Show => (records::show(&events, &self.format), true),
            What::Blame => (records::blame(&events), true),
            What::Dump => (dump(&events), true),
            What::Boot => boot::report(&events),
        };
        match self.outfile.as_str() {
            "-" => print(&text),
            path => std::fs::write(path, text).context(|| format!("failed to write {path}"))?,
        }
        Ok(found)
    }
}

fn read(path: &str) -> Result<Vec<Event>> {
    let bytes = files::read(if path == "-" { "/dev/stdin" } else { path })?;
    if bytes.trim_ascii().is_empty() {
        return Err(Error::new(format!("{path} is empty")));
    }
    Ok(events::read(&bytes))
}

fn dump(events: &[Event]) -> String {
    json::to_string_sorted(&Value::List(events.iter().map(Event::to_value).collect())) + "\n"
}
