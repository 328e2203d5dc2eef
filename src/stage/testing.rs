//! Shared by the unit tests: the boot in which a stage runs.

use super::Options;
use super::boot::Boot;
use crate::document::yaml;
use crate::machine::Machine;
use crate::root::Root;
use crate::system::Nothing;

/// A boot of this root and machine, without options, and with nothing outside them.
pub fn boot<'a>(root: &Root, machine: &'a Machine) -> Boot<'a> {
    Boot::new(root, machine, &Options::default(), &Nothing)
}

/// [`boot`] with this merged cloud-config, in YAML.
pub fn boot_with<'a>(root: &Root, machine: &'a Machine, config: &str) -> Boot<'a> {
    let mut boot = boot(root, machine);
    boot.config = Some(yaml::parse("cloud-config", config).expect("the test's cloud-config is YAML").into());
    boot
}
