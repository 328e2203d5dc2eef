//! Rootbox: cloud.json on a drive labelled CLOUDMD.
//!
//! Follows cloud-init's documentation, "Rbx Cloud".

use super::Source;
use super::search::{Found, Search};
use super::table::{Live, Update};
use crate::base::error::{Context, Error, Result};
use crate::detect::Mark;
use crate::document::{Map, Value, json};
use crate::drive::Files;
use crate::instance::{Instance, NetworkData};
use crate::machine::distro::DEFAULT_SUDO;
use crate::root::{Command, Root, installed};
use std::net::Ipv4Addr;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "RbxCloud",
    marks: &[Mark::Label(LABEL)],
    labels: &[LABEL],
    read: Some(read),
    seed: Some(|search, files, _| files.contains(FILE).then(|| of_files(search, files).ok())?),
    updates: &[Update::NewInstance, Update::Boot, Update::BootLegacy],
    provisioned: Some(announce),
    needs_network: Some(|root, instance| {
        announced_by(root, instance).is_some_and(|(_, network)| !announcements(network).is_empty())
    }),
    docs: "Rootbox: cloud.json and user.data on a drive labelled CLOUDMD, of FAT. It names the default user, with password and \
        SSH keys, and each adapter's addresses. In the network stage each address is announced to the routers with arping, \
        where that is installed.",
    ..Source::NEW
};

const LABEL: &str = "CLOUDMD";
const FILE: &str = "cloud.json";
/// The most addresses that are announced, and how long one may take.
const MAX_ANNOUNCED: usize = 32;
const ANNOUNCEMENT: Duration = Duration::from_secs(5);

/// Reads the first drive with a cloud.json.
fn read(search: &mut Search) -> Result<Option<Found>> {
    for drive in
        search.drives_of(&|probed| probed.superblock().is_some_and(|s| s.kind == "vfat" && s.is_labelled(LABEL)))
    {
        let Some(files) = search.open_drive(&drive) else { continue };
        if files.contains(FILE) {
            let instance = of_files(search, &files).context(|| drive.clone())?;
            return Ok(Some(Found { instance, place: drive }));
        }
        search.problem(format!("{drive} is labelled {LABEL} and has no {FILE}: it is not used"));
    }
    Ok(None)
}

fn of_files(search: &Search, files: &Files) -> Result<Instance> {
    let document = json::parse(FILE, files.get(FILE).unwrap_or_default())?;
    let vm = |key: &str| document.at(&["vm", key]).and_then(Value::text).filter(|t| !t.is_empty());
    let missing = |key: &str| Error::new(format!("{FILE}: {key}: expected a value"));
    let id = vm("_id").ok_or_else(|| missing("vm: _id"))?;
    let name = vm("name").ok_or_else(|| missing("vm: name"))?;
    let network = network(document.get("netadp").and_then(Value::as_list).ok_or_else(|| missing("netadp"))?)?;
    let metadata = [
        ("instance-id", Value::from(id.as_str())),
        ("local-hostname", name.as_str().into()),
        ("public-keys", Vec::new().into()),
    ];
    Ok(Instance {
        source: SOURCE.name.into(),
        class: "DataSourceRbxCloud".into(),
        platform: "rbxcloud".into(),
        cloud_name: "rbxcloud".into(),
        subplatform: "unknown".into(),
        instance_id: id,
        local_hostname: Some(name),
        user_data: files.shared("user.data").filter(|b| !b.is_empty()).cloned(),
        config: config(search, document.get("additionalMetadata").unwrap_or(&Value::Null), &network),
        network: Some(NetworkData::Cloud(network)),
        metadata: Value::Map(metadata.into_iter().collect()),
        ..Instance::default()
    })
}

/// The default user with its password and keys, and whether cloud-init manages /etc/hosts.
fn config(search: &Search, more: &Value, network: &Value) -> Value {
    let mut user = Map::new();
    if let Some(name) = more.get("username").and_then(Value::as_str) {
        user.insert("name", name);
        user.insert("gecos", name);
    }
    user.insert("sudo", vec![Value::from(DEFAULT_SUDO)]);
    if let Some(hash) = more.at(&["password", "sha512"]).and_then(Value::as_str) {
        user.insert("passwd", hash);
    }
    user.insert("lock_passwd", false);
    user.insert("ssh_authorized_keys", more.get("sshKeys").cloned().unwrap_or_else(|| Vec::new().into()));
    let info: Map = [("default_user", user)].into_iter().collect();
    let config = [
        ("ssh_pwauth", Value::Bool(true)),
        ("disable_root", Value::Bool(true)),
        ("system_info", info.into()),
        ("network_config", network.clone()),
        ("manage_etc_hosts", search.root.text("/etc/hosts").is_empty().into()),
    ];
    Value::Map(config.into_iter().collect())
}

/// Version 1 of the network configuration: an interface for each adapter, eth0 and on.
fn network(adapters: &[Value]) -> Result<Value> {
    let interface = |(index, adapter): (usize, &Value)| {
        let of = |path: &[&str]| adapter.at(path).cloned();
        let missing = |key: &str| Error::new(format!("{FILE}: netadp[{index}]: {key}: expected a value"));
        let mac = adapter.get("macaddress").and_then(Value::as_str).ok_or_else(|| missing("macaddress"))?;
        let subnet = |ip: &Value| {
            let mut subnet: Map = [("type", "static"), ("control", "auto")].into_iter().collect();
            subnet.insert("address", ip.get("address").cloned().ok_or_else(|| missing("ip: address"))?);
            subnet.insert("netmask", of(&["network", "netmask"]).ok_or_else(|| missing("network: netmask"))?);
            for (key, path) in
                [("gateway", &["network", "gateway"][..]), ("dns_nameservers", &["network", "dns", "nameservers"])]
            {
                of(path).map(|value| subnet.insert(key, value));
            }
            Ok(Value::Map(subnet))
        };
        let addresses = adapter.get("ip").and_then(Value::as_list).unwrap_or_default();
        let interface = [
            ("type", Value::from("physical")),
            ("name", format!("eth{index}").into()),
            ("mac_address", mac.to_ascii_lowercase().into()),
            ("subnets", addresses.iter().map(subnet).collect::<Result<Vec<_>>>()?.into()),
        ];
        Ok(Value::Map(interface.into_iter().collect()))
    };
    let interfaces = adapters.iter().enumerate().map(interface).collect::<Result<Vec<_>>>()?;
    Ok(Value::Map([("version", Value::Int(1)), ("config", interfaces.into())].into_iter().collect()))
}

/// Announces each address to its gateway and to the two routers behind it. A failure is a warning: their
/// tables expire.
fn announce(live: &mut Live) -> Result<()> {
    let Some((arping, network)) = announced_by(live.root, live.instance) else { return Ok(()) };
    let distro = installed::distro(live.root);
    let source_option = if ["fedora", "centos", "rhel"].contains(&distro.name) { "-s" } else { "-S" };
    for (source, router) in announcements(network).into_iter().take(MAX_ANNOUNCED) {
        let words = [&arping, "-c", "2", source_option, &source, &router];
        if let Err(e) = live.root.run(Command::new(words).limit(ANNOUNCEMENT)) {
            live.report.warn(format_args!("the address {source} is not announced to {router}: {e}"));
        }
    }
    Ok(())
}

/// The path of arping, and the network configuration whose addresses it announces.
fn announced_by<'a>(root: &Root, instance: &'a Instance) -> Option<(String, &'a Value)> {
    match &instance.network {
        Some(NetworkData::Cloud(network)) => Some((installed::which(root, "arping")?, network)),
        _ => None,
    }
}

/// Addresses, each with a router that has to learn it.
fn announcements(network: &Value) -> Vec<(String, String)> {
    let interfaces = network.get("config").and_then(Value::as_list).unwrap_or_default();
    let subnets = interfaces.iter().flat_map(|i| i.get("subnets").and_then(Value::as_list).unwrap_or_default());
    let of_subnet = |subnet: &Value| {
        let address = |key: &str| subnet.get(key)?.as_str()?.parse::<Ipv4Addr>().ok();
        let (source, gateway) = (address("address")?, address("gateway")?.to_bits());
        let routers = [0, 2, 3].map(|n| Ipv4Addr::from_bits(gateway.wrapping_add(n)));
        Some(routers.map(|router| (source.to_string(), router.to_string())))
    };
    subnets.filter_map(of_subnet).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_routers_know_each_address() {
        let adapter = r#"[{"macaddress": "00:15:5D:FF:0F:03", "ip": [{"address": "10.0.0.9"}],
            "network": {"netmask": "255.255.255.0", "gateway": "10.0.0.1"}}]"#;
        let adapters = json::parse("t", adapter.as_bytes()).unwrap();
        let announced = announcements(&network(adapters.as_list().unwrap()).unwrap());
        let routers: Vec<_> = announced.iter().map(|(_, router)| router.as_str()).collect();
        assert_eq!(routers, ["10.0.0.1", "10.0.0.3", "10.0.0.4"]);
        assert!(announced.iter().all(|(source, _)| source == "10.0.0.9"));
        let without = json::parse("t", br#"[{"ip": []}]"#).unwrap();
        let error = network(without.as_list().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "cloud.json: netadp[0]: macaddress: expected a value");
    }
}
