//! Hotplug: whether network devices that are added to the running system are configured.

use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::Instance;
use crate::root::{Attr, Root};
use crate::source::{self, Source, Update};

/// The udev rule that reports added devices, at cloud-init's path, because users look for it there.
pub const RULE: &str = "/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules";
/// Written by `devel hotplug-hook enable`.
const ENABLED: &str = "/var/lib/cloud/hotplug.enabled";
/// The word for network devices in that file.
const NETWORK: &str = "network";

/// Whether `updates: {network: {when: […]}}` contains hotplug. None if there is no such list. Unknown events
/// are reported and ignored.
pub fn asked(config: &Value, report: &Problems) -> Option<bool> {
    let list = config.at(&["updates", "network", "when"])?.as_list()?;
    let known = [Update::NewInstance, Update::Boot, Update::BootLegacy, Update::Hotplug].map(Update::name);
    if list.iter().any(|event| !event.as_str().is_some_and(|e| known.contains(&e))) {
        report.warn(format_args!("updates.network.when: expected {}: another word is ignored", known.join(", ")));
    }
    Some(list.iter().any(|event| event.as_str() == Some(Update::Hotplug.name())))
}

/// The source that is asked about added devices. None if hotplug is off: neither the configuration nor a
/// command switches it on and the source does not by default, or the source is unknown.
pub fn source(root: &Root, config: &Value, instance: &Instance, report: &Problems) -> Option<&'static Source> {
    let asked = asked(config, report);
    let by_itself = |s: &Source| s.updates.contains(&Update::Hotplug);
    source::named(&instance.source).filter(|s| asked.unwrap_or_else(|| by_itself(s)) || is_enabled(root))
}

/// Whether a command switched it on.
fn is_enabled(root: &Root) -> bool {
    scopes(root).iter().any(|scope| scope.as_str() == Some(NETWORK))
}

fn scopes(root: &Root) -> Vec<Value> {
    let document = json::parse(ENABLED, root.text(ENABLED).as_bytes()).ok();
    document.as_ref().and_then(|d| d.get("scopes")?.as_list()).map(<[Value]>::to_vec).unwrap_or_default()
}

/// Switches it on for this system. Returns whether it was off.
///
/// # Errors
/// The file cannot be written.
pub fn enable(root: &mut Root) -> Result<bool> {
    if is_enabled(root) {
        return Ok(false);
    }
    let mut scopes = scopes(root);
    scopes.push(Value::from(NETWORK));
    let document: Map = [("scopes", scopes)].into_iter().collect();
    root.write(ENABLED, json::to_string(&Value::Map(document)), Attr::root(0o640)).map(|()| true)
}
