//! VMware: guestinfo, the environment of a container, and guest customization.
//!
//! Follows cloud-init's documentation, "VMware".

mod customization;
mod host;
mod marks;
mod report;
mod values;

use super::documents::{availability_zone, cloud_name, launch_index};
use super::keys::public_keys;
use super::search::{Found, Search};
use super::table::Update;
use super::{Hotplug, RealRoot, Source};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::detect::{Guestinfo, Mark};
use crate::document::{Bytes, Map, Value, json, wrong, yaml};
use crate::instance::{Instance, NetworkData, state};
use values::Values;

pub static SOURCE: Source = Source {
    name: "VMware",
    described: "[seed={kind}]",
    marks: &[Mark::Check(
        "VMX_GUESTINFO and its data in the environment; guestinfo, in the running system by VMware's tools; guest customization \
         that disable_vmware_customization: false switches on",
        marks::mark,
    )],
    read: Some(read),
    real_root: RealRoot { unseen: Some(marks::unseen), metadata: Some(host::RUNNING), ..RealRoot::NEW },
    hotplug: Hotplug { rules: host::hotplug_rules, ..Hotplug::NEW },
    updates: &[Update::NewInstance, Update::Hotplug],
    provisioned: Some(report::report),
    settings: &[
        ("allow_raw_data", "false: no customization with cloud-init's own metadata and user-data is taken"),
        (
            "vmware_cust_file_max_wait",
            "seconds that a customization is waited for, where it is switched on or VMware is the only source; 15 unless given",
        ),
    ],
    docs: "VMware vSphere, Workstation and Fusion. The first of these that has metadata, userdata or vendordata: variables \
        VMX_GUESTINFO_METADATA and so on, with VMX_GUESTINFO set; guestinfo.metadata and so on, each with a .encoding of base64 or \
        gzip+base64, by vmware-rpctool or vmtoolsd in the running system, or by the hypervisor's VM socket before the pivot, \
        where the initramfs has its drivers (vmw_vmci, vmw_vsock_vmci_transport) and the hypervisor offers it; a guest \
        customization (cust.cfg) in the running system, with its hostname, time zone, instance-id, network and root password. Custom \
        scripts of a customization are not run. Values that metadata names under redact are cleared once they are on the disk. \
        The metadata also has the machine's host names (hostname, local-hostname, local_hostname) and, in the running system, its \
        addresses (local-ipv4, local-ipv6, network.interfaces): a template in user-data that names those waits for the network stage, \
        which waits for the network, and for the addresses that wait-on-network asks for. network-drivers lists the drivers of the \
        network devices that are configured when they are added.",
    ..Source::NEW
};

/// Reads the first transport that has data.
fn read(search: &mut Search) -> Result<Option<Found>> {
    if let Some(values) = of_environment(search) {
        return found(search, values);
    }
    let is_vmware = search.machine.dmi("product_name").is_some_and(|p| p.to_ascii_lowercase().contains("vmware"));
    if !is_vmware || !search.first_time(SOURCE.name) {
        return Ok(None);
    }
    let guestinfo = Guestinfo::of(search.machine, search.root, &search.tools);
    if let Some(values) =
        guestinfo.and_then(|g| Values::read("guestinfo (guestinfo.metadata)", search.taken(), |key| g.get(key)))
    {
        return found(search, values);
    }
    match customization::read(search)? {
        Some(values) => found(search, values),
        None => Ok(None),
    }
}

fn of_environment(search: &Search) -> Option<Values> {
    search.machine.variable(marks::VARIABLE)?;
    let place = format!("envvar ({})", marks::variable("metadata"));
    Values::read(&place, search.taken(), |key| search.machine.variable(&marks::variable(key)))
}

/// The instance from a transport's values.
fn found(search: &mut Search, values: Values) -> Result<Option<Found>> {
    let problems = values.problems;
    let mut metadata = match values.metadata {
        Some(Value::Map(map)) => map,
        Some(other) => {
            problems.warn(wrong("VMware: metadata", "a mapping", &other).to_string());
            Map::new()
        }
        None => Map::new(),
    };
    if metadata.is_empty() && values.user_data.is_none() && values.vendor_data.is_none() {
        problems.entries().iter().for_each(|problem| search.problem(problem.to_string()));
        return Ok(None);
    }
    let network = network(&mut metadata, &problems);
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    const KEYS: [&str; 4] = ["public-keys-data", "public_keys_data", "public-keys", "public_keys"];
    let keys = KEYS.iter().find_map(|key| metadata.get(key));
    // Even in a container, which sees the host's file.
    let uuid = || Some(search.machine.fact("sys/class/dmi/id/product_uuid")?.trim().to_ascii_lowercase());
    let id = text("instance-id").or_else(uuid).unwrap_or_else(|| "iid-datasource".into());
    let mut instance = Instance {
        source: SOURCE.name.into(),
        class: "DataSourceVMware".into(),
        platform: "vmware".into(),
        cloud_name: cloud_name(&metadata, "vmware"),
        launch_index: launch_index(&metadata),
        subplatform: values.place.clone(),
        instance_id: id,
        local_hostname: text("local-hostname"),
        availability_zone: availability_zone(&metadata),
        region: text("region"),
        public_keys: public_keys(keys),
        user_data: values.user_data.map(Bytes::from),
        vendor_data: values.vendor_data.map_or(Value::Null, Value::of_bytes),
        network: network.map(NetworkData::Cloud),
        config: values.config,
        files: values.files,
        stale_files: values.stale_files,
        problems,
        ..Instance::default()
    };
    metadata.insert("instance-id", instance.instance_id.as_str());
    host::add_names(search.root, &mut metadata);
    instance.metadata = Value::Map(metadata);
    keep_cleared(search, &mut instance);
    Ok(Some(Found { instance, place: values.place }))
}

/// Keeps the user-data and vendor-data that an earlier boot of this instance read, and then cleared in guestinfo as its metadata
/// asks.
fn keep_cleared(search: &Search, instance: &mut Instance) {
    let cleared = report::cleared(instance);
    if cleared.is_empty() {
        return;
    }
    let is_this = |known: &Instance| known.source == SOURCE.name && known.instance_id == instance.instance_id;
    let Some(known) = state::cached(search.root).filter(is_this) else { return };
    if instance.user_data.is_none() && cleared.iter().any(|key| key == "userdata") {
        instance.user_data = known.user_data;
    }
    if instance.vendor_data.is_null() && cleared.iter().any(|key| key == "vendordata") {
        instance.vendor_data = known.vendor_data;
    }
}

/// The network configuration in the metadata: a mapping, or an encoded text. It is kept as cloud-init keeps
/// it.
fn network(metadata: &mut Map, problems: &Problems) -> Option<Value> {
    let encoding = metadata.remove("network.encoding").and_then(|e| e.text());
    let config = match metadata.remove("network")? {
        map @ Value::Map(_) => map,
        Value::String(text) if text.is_empty() => return None,
        Value::String(text) => {
            let document = "metadata: network";
            let decoded = values::decoded(document, encoding.as_deref(), &text);
            match decoded.and_then(|bytes| document_of(document, &bytes)) {
                Ok(config) => config,
                Err(e) => {
                    problems.warn(e.to_string());
                    return None;
                }
            }
        }
        Value::Null => return None,
        other => {
            problems.warn(wrong("metadata: network", "a mapping or a text", &other).to_string());
            return None;
        }
    };
    metadata.insert("network", [("config", config.clone())].into_iter().collect::<Map>());
    Some(config)
}

/// Parses a JSON or YAML document.
fn document_of(name: &str, bytes: &[u8]) -> Result<Value> {
    json::parse(name, bytes).or_else(|_| yaml::parse(name, &String::from_utf8_lossy(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::machine::Tools;
    use crate::machine::tools::ToolAnswer;
    use crate::root::{Attr, Use};

    /// The instance in the environment of a machine's first process.
    fn read_from(variables: &[(&str, &str)]) -> Option<Instance> {
        let dir = TempDir::new("vmware");
        std::fs::create_dir_all(dir.0.join("proc/1")).unwrap();
        let environment: String = variables.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        dir.write("proc/1/environ", environment);
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let mut search =
            Search::new(&machine, &root, &Value::Null, Deadline::after(std::time::Duration::from_secs(20)));
        read(&mut search).unwrap().map(|found| found.instance)
    }

    #[test]
    fn an_instance_by_its_environment() {
        // The network is {version: 2, ethernets: {}} in base64.
        let metadata = "{instance-id: i-1, local-hostname: vm-1, public_keys: ssh-ed25519 A, placement: {availability-zone: z}, \
            network: e3ZlcnNpb246IDIsIGV0aGVybmV0czoge319, network.encoding: base64}";
        let found = read_from(&[
            ("VMX_GUESTINFO", "1"),
            ("VMX_GUESTINFO_METADATA", metadata),
            ("VMX_GUESTINFO_USERDATA", "I2Nsb3VkLWNvbmZpZwo="),
            ("VMX_GUESTINFO_USERDATA_ENCODING", "base64"),
            ("VMX_GUESTINFO_VENDORDATA", "---"),
        ])
        .unwrap();
        assert_eq!((found.instance_id.as_str(), found.local_hostname.as_deref()), ("i-1", Some("vm-1")));
        assert_eq!(found.subplatform, "envvar (VMX_GUESTINFO_METADATA)");
        assert_eq!(
            (found.public_keys, found.availability_zone.as_deref()),
            (vec!["ssh-ed25519 A".to_owned()], Some("z"))
        );
        assert_eq!((found.user_data.as_deref(), found.vendor_data), (Some(&b"#cloud-config\n"[..]), Value::Null));
        let Some(NetworkData::Cloud(network)) = found.network else { panic!() };
        assert_eq!(network.get("version"), Some(&Value::Int(2)));
        assert_eq!(found.problems.len(), 0, "{:?}", found.problems);
    }

    #[test]
    fn cleared_values_stay_with_their_instance() {
        let dir = TempDir::new("vmware-cleared");
        dir.write("sys/class/dmi/id/product_name", "VMware7,1\n");
        let mut root = dir.root(Use::Tree);
        root.write("/usr/bin/vmtoolsd", "", Attr::root(0o755)).unwrap();
        let known = Instance {
            source: SOURCE.name.into(),
            instance_id: "i-1".into(),
            user_data: Some(b"#!/bin/sh".to_vec().into()),
            ..Instance::default()
        };
        state::store(&mut root, &known).unwrap();
        assert_eq!(root.commit(), []);
        let machine = dir.machine();
        for (metadata, is_kept) in [
            ("{instance-id: i-1, redact: [userdata]}", true),
            ("{instance-id: i-1, cleanup-guestinfo: userdata}", true),
            ("{instance-id: i-1, redact: [vendordata]}", false),
            ("{instance-id: i-1}", false),
            ("{instance-id: i-2, redact: [userdata]}", false),
        ] {
            let limit = std::time::Duration::from_secs(20);
            let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(limit));
            search.tools = Tools::new(move |words, _| {
                let is_metadata = words.last().is_some_and(|word| word.ends_with("guestinfo.metadata"));
                let answer = if is_metadata { metadata } else { "---" };
                Some(ToolAnswer { success: true, stdout: answer.as_bytes().to_vec() })
            });
            let found = read(&mut search).unwrap().unwrap().instance;
            assert_eq!(found.user_data, known.user_data.clone().filter(|_| is_kept), "{metadata}");
        }
    }

    #[test]
    fn an_environment_without_data_is_none() {
        assert!(read_from(&[]).is_none());
        assert!(read_from(&[("VMX_GUESTINFO", "1"), ("VMX_GUESTINFO_USERDATA", "--- ")]).is_none());
        assert!(read_from(&[("VMX_GUESTINFO_METADATA", "{instance-id: i}")]).is_none());
    }
}
