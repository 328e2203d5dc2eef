//! `prepivot detect`: which datasources a machine can have, and why.

use super::program::{Program, print};
use super::verb::Verb;
use crate::base::deadline::Deadline;
use crate::detect::{Facts, Platform, Report, identify};
use crate::document::{Map, Value, json};
use crate::machine::Machine;
use crate::root::{Root, Use};
use crate::source::candidates;
use crate::source::choose;
use crate::stage::image::Image;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long reading the block devices may take.
const DRIVES: Duration = Duration::from_secs(15);

/// say which datasources a machine can have, and why
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "detect",
    help_triggers("-h", "--help"),
    error_code(0, "one is found"),
    error_code(1, "none is found"),
    error_code(2, "provisioning is disabled")
)]
pub struct Detect {
    /// the machine: a folder with its etc, var, proc, sys and dev
    #[argh(option, arg_name = "dir", default = "PathBuf::from(\"/\")")]
    root: PathBuf,
    /// one JSON object
    #[argh(switch)]
    json: bool,
}

impl Verb for Detect {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        let live = self.root == Path::new("/");
        let root = match Root::open(&self.root, if live { Use::Tree } else { Use::Plan }) {
            Ok(root) => root,
            Err(e) => return program.fail(e),
        };
        let machine = Machine::read(&self.root);
        let image = Image::read(&root, &machine, &crate::base::problem::Problems::new());
        let platform = Platform::of(&machine, &root).with_filesystems(&machine, Deadline::after(DRIVES));
        let facts = Facts::new(&machine, &root, &image.own, platform);
        let report = identify(&facts, &candidates());
        print(&if self.json { to_json(&report, &facts) } else { report.to_text() });
        ExitCode::from(report.outcome.exit_code())
    }
}

/// One JSON object on one line: the verdicts, and which services may be asked.
fn to_json(report: &Report, facts: &Facts) -> String {
    let service =
        |s: choose::Service| Value::Map(Map::from_iter([("source", s.source.name), ("certainty", s.certainty.name())]));
    let mut map = report.to_map(facts);
    map.insert("network", choose::services(report, facts).into_iter().map(service).collect::<Vec<_>>());
    json::to_string(&Value::Map(map)) + "\n"
}
