//! `analyze`: the time that each part of a boot took, from the events in the log.

mod boot;
pub mod events;
mod picture;
mod records;

use super::files;
use super::program::{FAILED, Program, print};
use super::verb::Verb;
use crate::base::error::{Context, Error, Result};
use crate::base::{gzip, tar};
use crate::document::{Value, json};
use crate::root::CLOUD_INIT_LOG;
use argh::{ArgsInfo, FromArgs};
use events::Event;
use log::LevelFilter;
use picture::Boot;
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
    /// draw what show prints: a picture of the log's last boots
    #[argh(switch)]
    svg: bool,
    /// the same as a page, with the times, requests, waits and problems as tables
    #[argh(switch)]
    html: bool,
    /// another log or archive, whose last boot is drawn beside this one's
    #[argh(option, arg_name = "path")]
    against: Option<String>,
    /// show: the events in order; blame: by the time they took; dump: as JSON; boot: when the kernel and the first stage began
    #[argh(positional, arg_name = "show|blame|dump|boot")]
    what: What,
    /// how show prints an event; default: %I%D @%Es +%ds
    #[argh(option, short = 'f', default = "String::from(\"%I%D @%Es +%ds\")")]
    format: String,
    /// another log, one of cloud-init's own, what dump wrote or an archive of collect-logs; -: standard input
    #[argh(option, short = 'i', arg_name = "path", default = "String::from(CLOUD_INIT_LOG)")]
    infile: String,
    /// the file to write; default: -, standard output
    #[argh(option, short = 'o', arg_name = "path", default = "String::from(\"-\")")]
    outfile: String,
}

/// The most bytes of an unpacked archive.
const MAX_ARCHIVE: usize = 256 << 20;

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
        let events = events::read(&read(&self.infile)?);
        let drawn = self.svg || self.html;
        if (drawn && !matches!(self.what, What::Show)) || (self.svg && self.html) || (self.against.is_some() && !drawn)
        {
            return Err(Error::new("--svg or --html, and --against with one of them, are for show"));
        }
        let (text, found) = match self.what {
            What::Show if self.svg => (picture::svg(&boots(&self.infile, self.against.as_deref())?), true),
            What::Show if self.html => (page(&self.infile, self.against.as_deref())?, true),
            What::Show => (records::show(&events, &self.format), true),
            What::Blame => (records::blame(&events), true),
            What::Dump => (dump(&events), true),
            What::Boot => boot::report(&events),
        };
        write(&self.outfile, &text)?;
        Ok(found)
    }
}

/// The log at `path`: a log itself, what `dump` wrote, or an archive with one.
fn read(path: &str) -> Result<Vec<u8>> {
    let mut bytes = files::read(if path == "-" { "/dev/stdin" } else { path })?;
    if gzip::is_gzip(&bytes) {
        let archive = gzip::unpack(&bytes, MAX_ARCHIVE).context(|| format!("failed to unpack {path}"))?;
        let log = tar::member(&archive, "/cloud-init.log");
        bytes = log.ok_or_else(|| Error::new(format!("{path} has no cloud-init.log")))?.to_vec();
    }
    if bytes.trim_ascii().is_empty() {
        return Err(Error::new(format!("{path} is empty")));
    }
    Ok(bytes)
}

/// The boots to draw: the last ones of a log; or its last one, and that of another log.
fn boots(path: &str, against: Option<&str>) -> Result<Vec<Boot>> {
    let of = |path: &str| read(path).map(|log| Boot::of_log(path, &events::read(&log), &events::marks(&log)));
    let mut boots = of(path)?;
    if let Some(against) = against {
        boots = boots.pop().into_iter().chain(of(against)?.pop()).collect();
    }
    if boots.is_empty() {
        return Err(Error::new(format!("{path} has no events of a boot")));
    }
    Ok(boots)
}

/// The page of the boots of a log, and of another one's last boot beside its last one.
///
/// # Errors
/// A log cannot be read, or has no events.
pub fn page(path: &str, against: Option<&str>) -> Result<String> {
    Ok(picture::html(&boots(path, against)?))
}

/// Writes `text` to a file, or to standard output if `path` is `-`.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &str, text: &str) -> Result<()> {
    match path {
        "-" => print(text),
        path => std::fs::write(path, text).context(|| format!("failed to write {path}"))?,
    }
    Ok(())
}

fn dump(events: &[Event]) -> String {
    json::to_string_sorted(&Value::List(events.iter().map(Event::to_value).collect())) + "\n"
}
