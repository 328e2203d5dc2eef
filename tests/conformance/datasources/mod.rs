//! cloud-init's datasources: each case describes a machine and its surroundings, and what the source says of itself there.

mod case;
mod compare;
mod tree;

use crate::cases::{Outcome, Vectors};
use case::Case;
use libtest_mimic::Trial;
use prepivot::base::deadline::Deadline;
use prepivot::base::testing::TempDir;
use prepivot::document::Value;
use prepivot::drive;
use prepivot::drive::devices::Places;
use prepivot::instance::{DsMode, Instance};
use prepivot::machine::Machine;
use prepivot::root::{Root, Use};
use prepivot::source::{self, Source};
use std::path::Path;
use std::time::Duration;

const EXCEPTIONS: &[(&str, &str)] = &[
    ("NoCloud/written/disc_without_user_data_skipped", "a drive with meta-data or user-data alone is used"),
    (
        "NoCloud/written/cmdline_local_seedfrom",
        "the platform's detail names the folder, and not that the command line named it",
    ),
    ("ConfigDrive/written/unlabelled_whole_disk", "a drive is found by its label; every drive that nova makes has one"),
    ("ConfigDrive/written/v1_drive_dsmode_local", "the network configuration of a version 1 drive is applied"),
];

fn check(value: &Value) -> Outcome {
    let case = match Case::load(value) {
        Ok(case) => case,
        Err(e) => return Outcome::Differs(vec![format!("the case is not understood: {e}")]),
    };
    let source = source::named(&case.datasource).filter(|s| s.is_read());
    let Some(source) = source else {
        return Outcome::Skipped(format!("the source {} is not there yet", case.datasource));
    };
    if let Some(need) = case.needs.first() {
        return Outcome::Skipped(format!("the harness does not answer {need} yet"));
    }
    let dir = TempDir::new("datasources");
    if let Err(tool) = tree::build(&case, &dir.0) {
        return Outcome::Skipped(tool);
    }
    let expected = value.get("expected").expect("an expectation");
    match read(source, &case, &dir.0) {
        Ok(found) => Outcome::of(compare::differences(&case, expected, found.as_ref(), &dir.0)),
        Err(e) => Outcome::of(compare::of_error(expected, &e)),
    }
}

/// Reads the source on the machine of the case. None where it is not there.
fn read(source: &Source, case: &Case, dir: &Path) -> Result<Option<Instance>, String> {
    let Some(read) = source.read else { return Ok(None) };
    let root = Root::open(dir, Use::Tree).map_err(|e| e.to_string())?;
    let machine = Machine::read(dir);
    let deadline = Deadline::after(Duration::from_secs(60));
    let places = Places { sys: dir.join("sys/class/block"), dev: dir.join("dev") };
    let mut drives = drive::Search::new(&source::labels(), places);
    drives.scan(deadline).map_err(|e| e.to_string())?;
    let mut search = source::Search::new(&machine, &root, &case.config, deadline);
    search.set_drives(drives.seen());
    let found = read(&mut search).map_err(|e| e.to_string())?;
    Ok(found.map(|f| f.instance).filter(|i| i.dsmode != DsMode::Disabled))
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "datasources.json", exceptions: EXCEPTIONS }.trials(check)
}
