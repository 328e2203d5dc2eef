//! Azure: the instance metadata service, the wire server and the provisioning media.

use super::Source;
use crate::detect::{Facts, Mark};

/// The chassis' asset tag of every machine.
const ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

pub static SOURCE: Source = Source {
    name: "Azure",
    marks: &[Mark::asset_tag(ASSET_TAG), Mark::Seed("azure", &["ovf-env.xml"])],
    ..Source::NEW
};

/// Whether the machine is one of Azure's, whose provisioning media looks like an OVF environment.
pub fn is_machine(facts: &Facts) -> bool {
    facts.dmi_matches("chassis_asset_tag", ASSET_TAG)
}
