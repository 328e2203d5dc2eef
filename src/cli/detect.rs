//! `prepivot detect`: which datasources a machine can have, and why.

use crate::deadline::Deadline;
use crate::machine::Machine;
use crate::root::{Root, Use};
use crate::source::detect::{Facts, Platform, identify};
use crate::stage::image::Image;
use argh::FromArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long reading the block devices may take.
const DRIVES: Duration = Duration::from_secs(15);

/// say which datasources a machine can have, and why; exits with 0 if one is found, 1 if none is, 2 if it is disabled
#[derive(FromArgs)]
#[argh(subcommand, name = "detect")]
pub(super) struct Detect {
    /// the machine: a folder with its etc, var, proc, sys and dev
    #[argh(option, default = "PathBuf::from(\"/\")")]
    root: PathBuf,
    /// one JSON object
    #[argh(switch)]
    json: bool,
}

pub(super) fn run(verb: &Detect) -> ExitCode {
    let live = verb.root == Path::new("/");
    let root = match Root::open(&verb.root, if live { Use::Tree } else { Use::Plan }) {
        Ok(root) => root,
        Err(e) => return super::report(&[e.to_string()]),
    };
    let machine = Machine::read(&verb.root);
    let image = Image::read(&root, &machine);
    let platform = Platform::of(&machine, &root).with_filesystems(&machine, Deadline::after(DRIVES));
    let facts = Facts::new(&machine, &root, &image.own, platform);
    let report = identify(&facts);
    print!("{}", if verb.json { report.to_json(&facts) } else { report.to_text() });
    ExitCode::from(report.outcome.exit_code())
}
