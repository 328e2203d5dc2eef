//! VMware: guestinfo and guest customization.

use super::Source;
use crate::detect::{Facts, Finding, Mark, virt};
use crate::document::Value;

pub static SOURCE: Source = Source {
    name: "VMware",
    marks: &[Mark::Check(
        "VMX_GUESTINFO and its data in the environment; guestinfo, in the running system by VMware's tools; guest customization \
         that disable_vmware_customization: false switches on",
        mark,
    )],
    ..Source::NEW
};

/// VMware: variables of a container, guestinfo, or guest customization where the image switches it on.
fn mark(facts: &Facts) -> Option<Finding> {
    const KEYS: [&str; 3] = ["metadata", "userdata", "vendordata"];
    let variable = |key: &&str| facts.variable(&format!("VMX_GUESTINFO_{}", key.to_ascii_uppercase())).is_some();
    if facts.variable("VMX_GUESTINFO").is_some()
        && let Some(key) = KEYS.iter().find(|key| variable(key))
    {
        return Finding::found(format!("VMX_GUESTINFO and its {key} are in the environment"));
    }
    let guestinfo = facts.platform.guestinfo.as_ref().filter(|_| facts.platform.virt == virt::VMWARE)?;
    if let Some(key) = KEYS.iter().find(|key| guestinfo.get(key).is_some()) {
        return Finding::found(format!("guestinfo has {key}"));
    }
    if !facts.own.get("disable_vmware_customization").is_some_and(Value::is_false) {
        return None;
    }
    let plugin = plugin(facts)?;
    Finding::found(format!("guest customization is switched on and {plugin} is there"))
}

/// The plugin of VMware's tools that takes customizations.
fn plugin(facts: &Facts) -> Option<String> {
    const FOLDERS: [&str; 5] = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/i386-linux-gnu",
    ];
    let path = |folder: &str, tools: &str| format!("{folder}/{tools}/plugins/vmsvc/libdeployPkgPlugin.so");
    let mut paths = FOLDERS.iter().flat_map(|f| ["vmware-tools", "open-vm-tools"].map(|tools| path(f, tools)));
    paths.find(|path| facts.root.is_file(path))
}
