//! Reports to the hypervisor from the running system: clears values, and sends the result of a customization
//! and the machine's addresses.

use super::customization;
use crate::base::error::Result;
use crate::detect::Guestinfo;
use crate::document::Value;
use crate::instance::{Frequency, Instance, state};
use crate::link::own_address;
use crate::root::{Attr, Command, Root};
use crate::source::table::{Live, Update};
use std::time::Duration;

/// The mark of what is done once for an instance.
const DONE: &str = "prepivot_vmware_told";
/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The most values that metadata may ask to have cleared.
const MAX_KEYS: usize = 100;

/// Reports to the hypervisor with the running system's tools: addresses and events on each boot, because the
/// hypervisor forgets them when the machine is powered off; everything else once for each instance. A failure
/// is a warning.
///
/// # Errors
/// A mark cannot be written.
pub fn report(live: &mut Live) -> Result<()> {
    let is_first = !state::is_done(live.root, live.instance, DONE, Frequency::Instance);
    let Some(tool) = Guestinfo::commands(live.root).into_iter().next() else { return Ok(()) };
    for call in calls(live.instance, live.config, is_first) {
        let words = tool.iter().cloned().chain([call]);
        if let Err(e) = live.root.run(Command::new(words).limit(LIMIT)) {
            live.report.warn(format_args!("VMware: the hypervisor was not notified: {e}"));
        }
    }
    if !is_first {
        return Ok(());
    }
    if let Some(marker) = customization::marker(live.instance) {
        customization::forget_markers(live.root)?;
        live.root.write(&marker, "", Attr::root(0o644))?;
    }
    state::mark_done(live.root, live.instance, DONE, Frequency::Instance)?;
    commit(live.root)
}

fn commit(root: &mut Root) -> Result<()> {
    root.commit().into_iter().next().map_or(Ok(()), Err)
}

/// The calls, in order. `is_first`: the instance has not been reported before.
fn calls(instance: &Instance, config: &Value, is_first: bool) -> Vec<String> {
    let mut calls = Vec::new();
    let set = |key: &str, value: &str| format!("info-set guestinfo.{key} {value}");
    if is_first {
        for key in cleared(instance) {
            // A value cannot be empty: this is cloud-init's placeholder.
            calls.push(set(&key, "---"));
            calls.push(set(&format!("{key}.encoding"), " "));
        }
    }
    if is_first && instance.subplatform.starts_with("imc") {
        calls.extend(customization::ended(instance));
    }
    for (key, address) in [("local-ipv4", own_address::ipv4()), ("local-ipv6", own_address::ipv6())] {
        calls.extend(address.map(|address| set(key, &address)));
    }
    calls.push(set("cloudinit.updates.supported", "network=boot;boot-new-instance;hotplug"));
    calls.push(set("cloudinit.updates.enabled", &format!("network={}", enabled(config).join(";"))));
    calls
}

/// The keys of guestinfo that the instance's metadata asks to have cleared.
pub fn cleared(instance: &Instance) -> Vec<String> {
    if !instance.subplatform.starts_with("guestinfo") {
        return Vec::new();
    }
    match instance.metadata.get("redact").or_else(|| instance.metadata.get("cleanup-guestinfo")) {
        Some(Value::List(list)) => list.iter().filter_map(Value::text).take(MAX_KEYS).collect(),
        Some(one) => one.text().into_iter().collect(),
        None => Vec::new(),
    }
}

/// The events on which the network is configured again: the configuration's, else the source's.
fn enabled(config: &Value) -> Vec<String> {
    let own = || super::SOURCE.updates.iter().map(|update: &Update| update.name().to_owned()).collect();
    let when = config.at(&["updates", "network", "when"]).and_then(Value::as_list);
    let mut names: Vec<String> = when.map_or_else(own, |list| list.iter().filter_map(Value::text).collect());
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Map, yaml};

    #[test]
    fn values_are_cleared_once_they_are_used() {
        let metadata: Map = [("redact", vec![Value::from("userdata")])].into_iter().collect();
        let instance = Instance {
            subplatform: "guestinfo (guestinfo.metadata)".into(),
            metadata: Value::Map(metadata.clone()),
            ..Instance::default()
        };
        let later = calls(&instance, &Value::Null, false);
        let calls = calls(&instance, &Value::Null, true);
        assert_eq!(calls[2..], later);
        assert_eq!(calls[..2], ["info-set guestinfo.userdata ---", "info-set guestinfo.userdata.encoding  "]);
        assert_eq!(
            calls.last().unwrap(),
            "info-set guestinfo.cloudinit.updates.enabled network=boot-new-instance;hotplug"
        );
        let when = yaml::parse("t", "updates: {network: {when: [hotplug, boot, hotplug]}}").unwrap();
        assert_eq!(enabled(&when), ["boot", "hotplug"]);
        let other =
            Instance { subplatform: "envvar (X)".into(), metadata: Value::Map(metadata), ..Instance::default() };
        assert!(!super::calls(&other, &Value::Null, true).iter().any(|c| c.contains("---")));
    }
}
