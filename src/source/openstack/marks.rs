//! How OpenStack's service and its config drive are recognised.

use crate::detect::{Facts, Finding, Mark, Verdict, judge, label_reason};
use crate::source::ibm_cloud;

/// cloud-init's names of the two sources.
pub const SERVICE: &str = "OpenStack";
pub const CONFIG_DRIVE: &str = "ConfigDrive";

/// The label of a config drive, in any case (nova writes config-2).
pub const LABEL: &str = "config-2";
/// Folders of the root that replace a drive.
pub const SEEDS: [&str; 2] = ["/config-drive", "/var/lib/cloud/seed/config_drive"];

/// The marks of the service.
pub static SERVICE_MARKS: &[Mark] = &[
    Mark::Unless(has_config_drive),
    Mark::product("OpenStack Nova"),
    Mark::product("OpenStack Compute"),
    Mark::Check("product_name OpenStack Nova in the environment of PID 1", container),
    Mark::asset_tag("OpenTelekomCloud"),
    Mark::asset_tag("SAP CCloud VM"),
    Mark::asset_tag("HUAWEICLOUD"),
    Mark::asset_tag("Samsung Cloud Platform"),
    Mark::asset_tag("OpenStack Nova"),
    Mark::asset_tag("OpenStack Compute"),
    Mark::Check("a machine other than a PC, which may have no DMI: maybe", without_dmi),
];

/// Whether a drive may still appear: nova created the machine, and may have attached one.
pub fn drive_is_due(facts: &Facts) -> bool {
    [SERVICE, CONFIG_DRIVE].iter().all(|name| facts.requested.is_listed(name))
        && judge(SERVICE_MARKS, facts).verdict == Verdict::Found
}

/// Recognises a config drive, in a folder of the image or on a device. On IBM Cloud it belongs to that
/// source, if it is in the list.
pub fn config_drive_mark(facts: &Facts) -> Option<Finding> {
    if let Some(folder) = SEEDS.iter().find(|folder| has_openstack(facts, folder)) {
        return Finding::found(format!("{folder} has OpenStack's metadata"));
    }
    if facts.requested.is_listed(ibm_cloud::NAME)
        && let Some(why) = ibm_cloud::recognised(facts)
    {
        return Finding::never(format!("the drive is IBMCloud's: {why}"));
    }
    Finding::found(label_reason(facts.labelled(LABEL)?, LABEL))
}

/// Rules the service out if there is a config drive.
fn has_config_drive(facts: &Facts) -> Option<String> {
    let drive = config_drive_mark(facts).filter(|f| f.verdict == Verdict::Found)?;
    Some(format!("there is a config drive: {}", drive.why))
}

fn has_openstack(facts: &Facts, folder: &str) -> bool {
    let folder = format!("{folder}/openstack");
    let has_metadata = |version: &str| facts.root.is_file(&format!("{folder}/{version}/meta_data.json"));
    has_metadata("latest") || facts.root.list(&folder).iter().any(|v| is_date(v) && has_metadata(v))
}

/// `2018-08-27`.
fn is_date(name: &str) -> bool {
    let form = |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    name.len() == 10 && name.starts_with('2') && name.bytes().enumerate().all(form)
}

/// Recognises a nova container by the environment of its PID 1.
fn container(facts: &Facts) -> Option<Finding> {
    let told = facts.variable_of_init("product_name")?;
    if told == "OpenStack Nova" {
        Finding::found(format!("product_name in the environment of PID 1 is {told}"))
    } else {
        None
    }
}

/// Machines other than PCs may have no DMI.
fn without_dmi(facts: &Facts) -> Option<Finding> {
    let machine = facts.platform.kernel.machine.as_str();
    let pc = machine == "x86_64" || (machine.len() == 4 && machine.starts_with('i') && machine.ends_with("86"));
    if pc { None } else { Finding::maybe(format!("a machine of the kind {machine} may have no DMI to tell by")) }
}
