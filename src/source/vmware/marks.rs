//! How VMware's data is recognised.

use crate::detect::{Facts, Finding, virt};
use crate::document::Value;
use crate::root::Root;

/// The keys of the values that are data.
pub const KEYS: [&str; 3] = ["metadata", "userdata", "vendordata"];
/// The environment variable that announces values in the environment.
pub const VARIABLE: &str = "VMX_GUESTINFO";

/// The environment variable of a value: `VMX_GUESTINFO_METADATA`.
pub fn variable(key: &str) -> String {
    format!("{VARIABLE}_{}", key.to_ascii_uppercase().replace('.', "_"))
}

/// Recognises VMware by a container's environment, by guestinfo, or by guest customization if the image
/// enables it.
pub fn mark(facts: &Facts) -> Option<Finding> {
    if facts.variable(VARIABLE).is_some()
        && let Some(key) = KEYS.iter().find(|key| facts.variable(&variable(key)).is_some())
    {
        return Finding::found(format!("{VARIABLE} and its {key} are in the environment"));
    }
    let guestinfo = facts.platform.guestinfo.as_ref().filter(|_| facts.platform.virt == virt::VMWARE)?;
    if let Some(key) = KEYS.iter().find(|key| guestinfo.get(key).is_some()) {
        return Finding::found(format!("guestinfo has {key}"));
    }
    if !customizes(facts.own) {
        return None;
    }
    let plugin = plugin(facts.root)?;
    Finding::found(format!("guest customization is switched on and {plugin} is there"))
}

/// Whether the image's configuration enables guest customization.
pub fn customizes(config: &Value) -> bool {
    config.get("disable_vmware_customization").is_some_and(Value::is_false)
}

/// Whether the image's configuration takes customizations with cloud-init's own metadata and user-data.
pub fn takes_raw_data(config: &Value) -> bool {
    !config.at(&["datasource", super::SOURCE.name, "allow_raw_data"]).is_some_and(Value::is_false)
}

/// Why the initramfs cannot know whether there is data: VMware's tools, which read it, run in the real root.
pub fn unseen(facts: &Facts) -> Option<String> {
    facts.unseen_guestinfo().or_else(|| {
        let here = facts.platform.virt == virt::VMWARE && (customizes(facts.own) || takes_raw_data(facts.own));
        let plugin = here.then(|| plugin(facts.root))??;
        Some(format!("a guest customization is written by {plugin}, which runs in the real root"))
    })
}

/// The path of the VMware tools' plugin for customizations.
pub fn plugin(root: &Root) -> Option<String> {
    const FOLDERS: [&str; 5] = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/i386-linux-gnu",
    ];
    let path = |folder: &str, tools: &str| format!("{folder}/{tools}/plugins/vmsvc/libdeployPkgPlugin.so");
    let mut paths = FOLDERS.iter().flat_map(|f| ["vmware-tools", "open-vm-tools"].map(|tools| path(f, tools)));
    paths.find(|path| root.is_file(path))
}
