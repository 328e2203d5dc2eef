//! `report`: a boot as a page to look at.

use super::analyze;
use super::program::Program;
use super::verb::Verb;
use crate::root::CLOUD_INIT_LOG;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::process::ExitCode;

/// draw the boots of a log, with requests, waits and problems, as a page for a browser
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "report",
    help_triggers("-h", "--help"),
    note = "The page needs no network and no script. analyze show --html writes the same page.",
    error_code(1, "the log cannot be read, or has no boot")
)]
pub struct Report {
    /// a log of prepivot or cloud-init, or an archive of collect-logs; default: this system's log
    #[argh(positional, arg_name = "path", default = "String::from(CLOUD_INIT_LOG)")]
    log: String,
    /// another log or archive, whose last boot is drawn beside this one's
    #[argh(option, arg_name = "path")]
    against: Option<String>,
    /// the file to write; default: prepivot-report.html; -: standard output
    #[argh(option, short = 'o', arg_name = "path", default = "String::from(\"prepivot-report.html\")")]
    outfile: String,
}

impl Verb for Report {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        let page = analyze::page(&self.log, self.against.as_deref());
        match page.and_then(|page| analyze::write(&self.outfile, &page)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => program.fail(e),
        }
    }
}
