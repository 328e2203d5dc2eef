//! Hetzner Cloud.
//!
//! Follows Hetzner's documentation of the metadata service, "Server metadata", and cloud-init's, "Hetzner Cloud".

use super::closed::{Closing, ServiceAddress};
use super::documents::{
    as_mapping, decoded, hotplug_of, instance, items, needed, nic_name, physical, record, renamed, set_network,
};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, SECONDS_BETWEEN, TIMEOUT, text_setting};
use super::table::{Hotplug, Source, Update};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value, yaml};
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "Hetzner",
    marks: &[Mark::vendor("Hetzner")],
    service: Some(service_job),
    // Interfaces of private networks have MAC addresses that begin with 86.
    hotplug: Hotplug { rules: |_| hotplug_of("ATTR{address}", "86:*"), ..Hotplug::NEW },
    updates: &[Update::NewInstance, Update::Boot, Update::Hotplug],
    closing: Closing {
        addresses: &[ServiceAddress::whole("169.254.169.254"), ServiceAddress::whole("fe80::a9fe:a9fe")],
        stays: "",
    },
    settings: &[
        ("metadata_path", "the path of the metadata below /hetzner/v1/, instead of metadata"),
        ("metadata_private_networks_path", "that of the private networks, instead of metadata/private-networks"),
        ("userdata_path", "that of the user-data, instead of userdata"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        ("wait_retry", SECONDS_BETWEEN),
        ("sleep_time", "the same"),
    ],
    docs: "Hetzner Cloud. Read from http://[fe80::a9fe:a9fe] on every link and from http://169.254.169.254, whichever answers \
        first. The instance-id must be the DMI serial number. The network configuration is the service's, with DHCP on the \
        interface of each private network. User-data may be base64.",
    ..Source::NEW
};

/// How often an optional document is tried.
const OPTIONAL_TRIES: u32 = 5;

fn service_job(search: &mut Search) -> Option<Job> {
    let path = |key: &str, default: &str| text_setting(search, SOURCE.name, key, default);
    let metadata = path("metadata_path", "metadata");
    let networks = path("metadata_private_networks_path", "metadata/private-networks");
    let user_data = path("userdata_path", "userdata");
    let (serial, nics) = (search.machine.dmi("product_serial"), search.machine.nics());
    let urls = ["http://[fe80::a9fe:a9fe%25LINK]", "http://169.254.169.254"].map(|host| format!("{host}/hetzner/v1"));
    let fetch = move |client: &Client, base: &str| {
        let url = |path: &str| format!("{base}/{path}");
        let document = read(&url(&metadata), &needed(client, &Request::first(&url(&metadata)))?)?;
        let document = as_mapping(&url(&metadata), document)?;
        let keys = [
            ("instance-id", "instance-id"),
            ("hostname", "local-hostname"),
            ("network-config", "network-config"),
            ("public-keys", "public-keys"),
        ];
        let mut found = instance(SOURCE.name, renamed(&document, &keys));
        if document.get("instance-id").is_none() || Some(&found.instance_id) != serial.as_ref() {
            return Err(Error::new(format!("{base}: expected the machine's DMI serial number as the instance-id")));
        }
        let networks = url(&networks);
        let private = client.document(&Request { tries: OPTIONAL_TRIES, ..Request::get(&networks) });
        let private = match private.and_then(|body| body.map_or(Ok(Value::Null), |body| read(&networks, &body))) {
            Ok(private) => private,
            Err(e) => {
                found.problems.warn(format!("{e}; the private networks are not configured"));
                Value::Null
            }
        };
        let config = network(&document, items(Some(&private)), &nics, &found.problems);
        set_network(&mut found, config);
        let mut metadata = found.metadata.as_map().cloned().unwrap_or_default();
        if let Some(crate::instance::NetworkData::Cloud(network)) = &found.network {
            metadata.insert("network-config", network.clone());
        }
        metadata.insert("private-networks", Value::from(items(Some(&private)).to_vec()));
        found.metadata = Value::Map(metadata);
        found.vendor_data = document.get("vendor_data").cloned().unwrap_or_default();
        let body = client.get(&url(&user_data))?.filter(|body| !body.is_empty());
        found.user_data = body.map(|body| Bytes::from(decoded(body)));
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, urls.into(), Box::new(fetch)))
}

fn read(url: &str, body: &[u8]) -> Result<Value> {
    yaml::parse(url, &String::from_utf8_lossy(body))
}

/// The metadata's configuration, plus DHCP on the interface of each private network. A private network whose
/// interface does not exist is left out with a problem: it may have been detached, or be attached later.
fn network(document: &Map, private: &[Value], nics: &[Nic], problems: &Problems) -> Result<Value> {
    let config = document.get("network-config").and_then(Value::as_map);
    let mut config = config.cloned().ok_or_else(|| Error::new("the metadata has no network-config"))?;
    let mut all = items(config.get("config")).to_vec();
    for network in private {
        let mac = network.get("mac_address");
        let subnet = record(vec![("ipv4", true.into()), ("type", "dhcp".into())]);
        match nic_name(nics, mac) {
            Ok(name) => all.push(Value::Map(physical(&name, mac, vec![subnet]))),
            Err(e) => problems.warn(format!("a private network is not configured: {e}")),
        }
    }
    config.insert("config", all);
    Ok(Value::Map(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_interface_costs_only_its_private_network() {
        let document =
            yaml::parse("t", "network-config: {version: 1, config: [{type: physical, name: eth0}]}").unwrap();
        let private =
            yaml::parse("t", "[{mac_address: '86:00:00:00:00:01'}, {mac_address: '86:00:00:00:00:02'}]").unwrap();
        let nics = [Nic { name: "enp7s0".into(), mac: "86:00:00:00:00:02".into(), ..Nic::default() }];
        let problems = Problems::new();
        let config = network(document.as_map().unwrap(), items(Some(&private)), &nics, &problems).unwrap();
        let names: Vec<_> = items(config.get("config")).iter().filter_map(|entry| entry.get("name")?.text()).collect();
        assert_eq!((names, problems.len()), (vec!["eth0".to_owned(), "enp7s0".to_owned()], 1));
    }
}
