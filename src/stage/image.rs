//! What the image itself says: its distribution, its configuration, and whether it wants to be provisioned at all.

use crate::document::Value;
use crate::machine::{Distro, Machine};
use crate::root::Root;
use crate::source::detect;

/// cloud-init's marker for an image that is not to be provisioned.
const DISABLED: &str = "/etc/cloud/cloud-init.disabled";

/// An image: the root as its maker left it.
pub struct Image {
    pub distro: Distro,
    /// Its configuration, below everything that the datasource says.
    pub config: Value,
    /// What of it the image and the kernel command line say themselves, with nothing that holds by default.
    pub own: Value,
}

impl Image {
    /// Reads the image. The distribution is what os-release says, or `system_info: distro` where that does not say.
    pub fn read(root: &Root, machine: &Machine) -> Image {
        let mut os_release = root.text("/etc/os-release");
        if os_release.is_empty() {
            os_release = root.text("/usr/lib/os-release");
        }
        let mut distro = Distro::of_os_release(&os_release);
        let base = super::config::base(root, machine, &distro);
        let (config, own) = (Value::Map(base.config), Value::Map(base.own));
        if distro.name == "unknown"
            && let Some(name) = config.at(&["system_info", "distro"]).and_then(Value::as_str)
        {
            distro = Distro::named(name);
        }
        Image { distro, config, own }
    }
}

/// Why nothing is to be done, if so: the marker file, `cloud-init=disabled` on the kernel command line, or ds-identify's policy.
pub fn disabled(root: &Root, machine: &Machine) -> Option<String> {
    if machine.cmdline.has("cloud-init=enabled") {
        return None;
    }
    if machine.cmdline.has("cloud-init=disabled") {
        return Some("cloud-init=disabled is on the kernel command line".into());
    }
    let marker = root.exists(DISABLED).then(|| format!("{DISABLED} is there"));
    marker.or_else(|| detect::disabled_by_policy(root, &machine.cmdline))
}
