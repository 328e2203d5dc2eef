//! cloud-init's datasources: each case describes a machine and its surroundings, and what the source says of itself there.

mod case;
mod compare;
mod host;
mod service;
mod socket;
mod surroundings;
mod tree;

use crate::cases::{Kind, Outcome, Vectors};
use case::Case;
use libtest_mimic::Trial;
use prepivot::base::deadline::Deadline;
use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::document::Value;
use prepivot::drive;
use prepivot::drive::devices::Places;
use prepivot::instance::{DsMode, Instance};
use prepivot::machine::Machine;
use prepivot::root::{Root, Use};
use prepivot::source::{self, Live, Source, none};
use service::Asked;
use std::path::Path;
use std::time::Duration;

/// How long drives may take.
const READING: Duration = Duration::from_secs(60);

const EC2_ROUTER: &str =
    "a further interface without a lease has a default route in its table too: its subnet's first address";

const AZURE_NO_NAMES: &str =
    "without a user name the image's default user keeps its own, and without a host name ovf-env.xml has none";
const AZURE_MARKER: &str = "the mark that a machine of a pool has reported is not left behind: it has an owner by the time that anything is written";
const AZURE_USER_DATA: &str = "user-data is not repeated in the metadata, which everyone on the machine may read";
const NO_PARSE_USER: &str = "context.sh is never run, so that no user is needed to run it";

const KINDS: &[Kind] = &[
    Kind { cases: ": Azure/", places: &["metadata.imds.compute.userData"], reason: AZURE_USER_DATA },
    Kind { cases: ": Azure/", places: &["/var/lib/cloud/data/reported_ready"], reason: AZURE_MARKER },
    Kind { cases: ": Azure/", places: &["/var/lib/waagent/ovf-env.xml", "cfg.system_info"], reason: AZURE_NO_NAMES },
];

const EXCEPTIONS: &[(&str, &str)] = &[
    ("OpenNebula/TestOpenNebulaDataSource/test_get_data_invalid_identity", NO_PARSE_USER),
    ("OpenNebula/written/unknown_parse_user", NO_PARSE_USER),
    ("AltCloud/written/rhev_no_module", "the floppy is read where the kernel shows it: no modprobe is run"),
    ("CloudSigma/written/name_with_blanks", "of a name with dots the first part is the hostname, as everywhere else"),
    ("CloudSigma/written/two_keys", "two lines are two keys"),
    (
        "SmartOS/TestSmartOSDataSource/test_default_vendor_data",
        "the vendor-data that installs the runner of the scripts has another text, and does the same",
    ),
    (
        "RbxCloud/written/no_user_data_file",
        "the machine of the case has no /etc/hosts, and cloud-init looked at the one of the machine that it was run on",
    ),
    ("ConfigDrive/written/unlabelled_whole_disk", "a drive is found by its label; every drive that nova makes has one"),
    ("Ec2/TestEc2/test_classic_instance_true", EC2_ROUTER),
    ("Ec2/TestEc2/test_classic_instance_false", EC2_ROUTER),
    ("Ec2/TestEc2/test_get_instance_tags", EC2_ROUTER),
    (
        "Ec2/written/two_nics_other_renderer",
        "a further interface's traffic goes out by it under every network stack, and not under netplan alone",
    ),
    ("Azure/TestAzureDataSource/test_platform_viable_but_no_devs_should_return_no_datasource", AZURE_NO_NAMES),
    ("Azure/written/imds_old_api_version", AZURE_NO_NAMES),
    ("Azure/TestProvisioning/test_stale_pps[Savable]", AZURE_MARKER),
    ("Azure/TestProvisioning/test_stale_pps[Running]", AZURE_MARKER),
    ("Azure/written/imds_user_data", AZURE_USER_DATA),
    ("Azure/written/imds_custom_data_missing", AZURE_USER_DATA),
    (
        "Azure/written/iso_key_values",
        "SSH keys that the media has as they are may log in whether or not the wire server has certificates",
    ),
    (
        "Azure/written/imds_not_json_no_iso",
        "the failure is reported once, with its reason, and not again as an unhandled exception",
    ),
    (
        "MAAS/TestMAASDataSource/test_get_data_with_retry",
        "user-data that the server says is not there is not asked for again",
    ),
    (
        "Scaleway/TestDataSourceScaleway/test_metadata_ipv4_rate_limit",
        "a name with a dot is a domain name, of which the first label is the host name, as for every other source",
    ),
    ("ConfigDrive/written/v1_drive_dsmode_local", "the network configuration of a version 1 drive is applied"),
];

fn check(value: &Value) -> Outcome {
    let case = match Case::load(value) {
        Ok(case) => case,
        Err(e) => return Outcome::Differs(vec![format!("the case is not understood: {e}")]),
    };
    let source = source::named(&case.datasource).filter(|s| s.is_read() || s.name == none::SOURCE.name);
    let Some(source) = source else {
        return Outcome::Skipped(format!("the source {} is not there yet", case.datasource));
    };
    let dir = TempDir::new("datasources");
    let built = tree::build(&case, &dir.0).and_then(|()| surroundings::set_up(&case, &dir.0));
    if let Err(reason) = built {
        return Outcome::Skipped(reason);
    }
    let expected = &compare::without_fallback(&case, value.get("expected").expect("an expectation"));
    let asked = Asked::default();
    let mut wrong = match read(source, &case, &dir.0, &asked) {
        Ok((found, root)) => {
            let mut wrong = compare::differences(&case, expected, found.as_ref(), &dir.0);
            if found.is_some() {
                wrong.extend(host::missing_commands(expected, &root));
            }
            wrong
        }
        Err(e) => compare::of_error(expected, &e),
    };
    wrong.extend(asked.differences(&case));
    Outcome::of(wrong)
}

/// Reads the source on the machine of the case: what is there without a network, then its service. None where it is not there.
/// With the machine's root, after the source has acted.
fn read(source: &Source, case: &Case, dir: &Path, asked: &Asked) -> Result<(Option<Instance>, Root), String> {
    let mut root = Root::open(dir, Use::Tree).map_err(|e| e.to_string())?;
    let machine = Machine::read(dir);
    let found = {
        let mut search = source::Search::new(&machine, &root, &case.config, Deadline::after(READING));
        search.tools = host::tools(case);
        let places = Places { sys: dir.join("sys/class/block"), dev: dir.join("dev") };
        let mut drives = drive::DriveSearch::new(&source::labels(&case.config), places);
        drives.also(source.filesystems.iter().copied());
        while !drives.scan(search.deadline).map_err(|e| e.to_string())?.is_empty() {}
        search.set_drives(drives.seen());
        let local = match source.read {
            None if source.name == none::SOURCE.name => {
                none::is_configured(&search).then(|| none::found(&search).instance)
            }
            Some(read) => read(&mut search).map_err(|e| e.to_string())?.map(|found| found.instance),
            None => None,
        };
        match (local, source.service) {
            (Some(instance), _) => Some(instance),
            (None, Some(prepare)) => match prepare(&mut search) {
                Some(job) => match (service::ask(&job, case, asked), search.take_otherwise()) {
                    (Ok(None) | Err(_), Some(otherwise)) => Some(otherwise.instance),
                    (answer, _) => answer?,
                },
                None => search.take_otherwise().map(|found| found.instance),
            },
            (None, None) => None,
        }
    };
    let mut found = found.filter(|instance| instance.dsmode != DsMode::Disabled);
    if let (Some(instance), Some(act)) = (&mut found, source.provisioned) {
        host::play(case, &mut root);
        let client = asked.client();
        let report = Problems::new();
        let mut live = Live {
            root: &mut root,
            machine: &machine,
            instance,
            config: &case.config,
            client: &client,
            failed: None,
            public_keys: Vec::new(),
            passwords: Vec::new(),
            report: &report,
        };
        // A report that fails is a warning.
        let _ = act(&mut live);
        let keys = live.public_keys;
        instance.public_keys.extend(keys);
        // Commands that cloud-init ran and this source did not.
        let ran = |argv: &Vec<String>| root.commands().iter().any(|command| command.argv == *argv);
        if let Some(argv) = case.commands.iter().find(|argv| case.datasource == "Azure" && !ran(argv)) {
            return Err(format!("{argv:?} was not run"));
        }
        if let Some(error) = root.commit().first() {
            return Err(error.to_string());
        }
    }
    Ok((found, root))
}

pub fn trials() -> Vec<Trial> {
    let mut trials = host::trials();
    trials.extend(service::trials());
    trials.extend(case::trials());
    trials.extend(vectors());
    trials
}

fn vectors() -> Vec<Trial> {
    Vectors { file: "datasources.json", exceptions: EXCEPTIONS, kinds: KINDS }.trials(check)
}
