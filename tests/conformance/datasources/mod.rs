//! cloud-init's datasources: each case describes a machine and its surroundings, and what the source says of itself there.

mod case;
mod compare;
mod service;
mod surroundings;
mod tree;

use crate::cases::{Outcome, Vectors};
use case::Case;
use libtest_mimic::Trial;
use prepivot::base::deadline::Deadline;
use prepivot::base::report::Report;
use prepivot::base::testing::TempDir;
use prepivot::document::Value;
use prepivot::drive;
use prepivot::drive::devices::Places;
use prepivot::instance::{DsMode, Instance};
use prepivot::machine::Machine;
use prepivot::root::{Root, Use};
use prepivot::source::{self, Live, Source};
use service::Asked;
use std::path::Path;
use std::time::Duration;

/// How long drives may take.
const READING: Duration = Duration::from_secs(60);

const EC2_ROUTER: &str =
    "a further interface without a lease has a default route in its table too: its subnet's first address";

const EXCEPTIONS: &[(&str, &str)] = &[
    ("NoCloud/written/disc_without_user_data_skipped", "a drive with meta-data or user-data alone is used"),
    ("ConfigDrive/written/unlabelled_whole_disk", "a drive is found by its label; every drive that nova makes has one"),
    ("Ec2/TestEc2/test_classic_instance_true", EC2_ROUTER),
    ("Ec2/TestEc2/test_classic_instance_false", EC2_ROUTER),
    ("Ec2/TestEc2/test_get_instance_tags", EC2_ROUTER),
    (
        "Ec2/written/two_nics_other_renderer",
        "a further interface's traffic goes out by it under every network stack, and not under netplan alone",
    ),
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
    let dir = TempDir::new("datasources");
    let built = tree::build(&case, &dir.0).and_then(|()| surroundings::set_up(&case, &dir.0));
    if let Err(reason) = built {
        return Outcome::Skipped(reason);
    }
    let expected = value.get("expected").expect("an expectation");
    let asked = Asked::default();
    let mut wrong = match read(source, &case, &dir.0, &asked) {
        Ok(found) => compare::differences(&case, expected, found.as_ref(), &dir.0),
        Err(e) => compare::of_error(expected, &e),
    };
    wrong.extend(asked.differences(&case));
    Outcome::of(wrong)
}

/// Reads the source on the machine of the case: what is there without a network, then its service. None where it is not there.
fn read(source: &Source, case: &Case, dir: &Path, asked: &Asked) -> Result<Option<Instance>, String> {
    let mut root = Root::open(dir, Use::Tree).map_err(|e| e.to_string())?;
    let machine = Machine::read(dir);
    let found = {
        let mut search = source::Search::new(&machine, &root, &case.config, Deadline::after(READING));
        let local = match source.read {
            Some(read) => {
                let places = Places { sys: dir.join("sys/class/block"), dev: dir.join("dev") };
                let mut drives = drive::Search::new(&source::labels(), places);
                drives.scan(search.deadline).map_err(|e| e.to_string())?;
                search.set_drives(drives.seen());
                read(&mut search).map_err(|e| e.to_string())?.map(|found| found.instance)
            }
            None => None,
        };
        match (local, source.service) {
            (Some(instance), _) => Some(instance),
            (None, Some(prepare)) => match prepare(&mut search) {
                Some(job) => service::ask(&job, case, asked)?,
                None => None,
            },
            (None, None) => None,
        }
    };
    let found = found.filter(|instance| instance.dsmode != DsMode::Disabled);
    if let (Some(instance), Some(act)) = (&found, source.provisioned) {
        let client = asked.client();
        let mut report = Report::new();
        let mut live = Live {
            root: &mut root,
            machine: &machine,
            instance,
            config: &case.config,
            client: &client,
            failed: None,
            report: &mut report,
        };
        act(&mut live).map_err(|e| e.to_string())?;
    }
    Ok(found)
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "datasources.json", exceptions: EXCEPTIONS }.trials(check)
}
