//! UpCloud.
//!
//! Follows UpCloud's documentation, "Metadata service".

use super::documents::{
    instance, items, mapping, nic_name, physical, record, renamed, set_network, user_data, version_1,
};
use super::search::{Found, Search};
use super::service::{Job, RETRIES, SECONDS_BETWEEN, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "UpCloud",
    marks: &[Mark::vendor("UpCloud")],
    service: Some(service_job),
    settings: &[
        ("metadata_url", "the address of the metadata document"),
        TIMEOUT,
        RETRIES,
        ("wait_retry", SECONDS_BETWEEN),
    ],
    docs: "UpCloud. Read from http://169.254.169.254/metadata/v1.json. The network configuration has every address of the \
        metadata, floating ones included.",
    ..Source::NEW
};

const URL: &str = "http://169.254.169.254/metadata/v1.json";

fn service_job(search: &mut Search) -> Option<Job> {
    let url = text_setting(search, SOURCE.name, "metadata_url", URL);
    let Some(uuid) = search.machine.uuid() else {
        search.problem("UpCloud: the machine has no DMI UUID: expected the server's".into());
        return None;
    };
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| {
        let document = mapping(client, &Request::first(url))?;
        let keys = [("hostname", "local-hostname"), ("network", "network"), ("public_keys", "public-keys")];
        let mut metadata = renamed(&document, &keys);
        for (theirs, ours, default) in
            [("instance_id", "instance-id", uuid.as_str()), ("region", "availability_zone", "default")]
        {
            metadata.insert(ours, document.get(theirs).cloned().unwrap_or_else(|| default.into()));
        }
        let mut found = instance(SOURCE.name, metadata);
        found.class = "DataSourceUpCloudLocal".into();
        found.subplatform = format!("metadata ({url})");
        found.user_data = user_data(document.get("user_data"));
        found.vendor_data = document.get("vendor_data").cloned().unwrap_or_default();
        set_network(&mut found, network(&document, &nics));
        Ok(Found { instance: found, place: url.into() })
    };
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// All interfaces of the metadata, with their addresses.
fn network(document: &Map, nics: &[Nic]) -> Result<Value> {
    let network = document.get("network").filter(|n| n.as_map().is_some_and(|n| !n.is_empty()));
    let network = network.ok_or_else(|| Error::new("the metadata has no network"))?;
    let servers = items(network.get("dns"));
    let mut config = Vec::new();
    for interface in items(network.get("interfaces")) {
        let mac = interface.get("mac");
        let subnets = items(interface.get("ip_addresses")).iter().map(|address| subnet(address, servers)).collect();
        config.push(Value::Map(physical(&nic_name(nics, mac)?, mac, subnets)));
    }
    if !servers.is_empty() {
        config.push(record(vec![("type", "nameserver".into()), ("address", servers.to_vec().into())]));
    }
    Ok(version_1(config))
}

fn subnet(address: &Value, servers: &[Value]) -> Value {
    let get = |key: &str| address.get(key).cloned().unwrap_or_default();
    let six = get("family").as_str() == Some("IPv6");
    if get("dhcp").is_true() {
        // The router advertises the IPv6 addresses.
        return record(vec![("type", if six { "ipv6_dhcpv6-stateless" } else { "dhcp" }.into())]);
    }
    let prefix = get("network").as_str().and_then(|n| n.split_once('/')).map_or(Value::Null, |(_, p)| p.into());
    let own = items(address.get("dns"));
    let own = if own.is_empty() || own == servers { Value::Null } else { own.to_vec().into() };
    let gateway = get("gateway").text().filter(|g| !g.is_empty()).map_or(Value::Null, Value::from);
    record(vec![
        ("type", if six { "static6" } else { "static" }.into()),
        ("control", "auto".into()),
        ("address", get("address")),
        ("netmask", prefix),
        ("gateway", gateway),
        ("dns_nameservers", own),
    ])
}
