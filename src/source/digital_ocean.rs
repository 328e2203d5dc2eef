//! DigitalOcean droplets.
//!
//! Follows DigitalOcean's documentation, "Droplet metadata API".

use super::documents::{
    instance, items, mapping, nic_name, physical, record, renamed, set_network, user_data, version_1,
};
use super::search::{Found, Search};
use super::service::{Job, RETRIES, SECONDS_BETWEEN, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::deprecated;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "DigitalOcean",
    marks: &[Mark::vendor("DigitalOcean")],
    service: Some(service_job),
    deprecated: |_, _, report| report.deprecated(deprecated::DIGITAL_OCEAN.about("")),
    settings: &[
        ("metadata_url", "the address of the metadata document"),
        TIMEOUT,
        RETRIES,
        ("wait_retry", SECONDS_BETWEEN),
    ],
    unused: &["use_ip4LL"],
    docs: "DigitalOcean. Read from http://169.254.169.254/metadata/v1.json, with a link-local address where the link has no DHCP. \
        The public interface is named eth0 and the private one eth1. Droplets of newer images have a config drive, which \
        ConfigDrive reads without a network.",
    ..Source::NEW
};

const URL: &str = "http://169.254.169.254/metadata/v1.json";

fn service_job(search: &mut Search) -> Option<Job> {
    let url = text_setting(search, SOURCE.name, "metadata_url", URL);
    let Some(droplet) = search.machine.dmi("product_serial").filter(|id| !id.is_empty()) else {
        search.problem("DigitalOcean: the machine's DMI serial number is missing: expected the droplet's ID".into());
        return None;
    };
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| {
        let document = mapping(client, &Request::first(url))?;
        let mut metadata = renamed(&document, &[("interfaces", "interfaces"), ("public_keys", "public-keys")]);
        for (theirs, ours, default) in [
            ("droplet_id", "instance-id", droplet.as_str()),
            ("hostname", "local-hostname", &droplet),
            ("region", "availability_zone", "default"),
        ] {
            metadata.insert(ours, document.get(theirs).cloned().unwrap_or_else(|| default.into()));
        }
        let mut found = instance(SOURCE.name, metadata);
        found.subplatform = format!("metadata ({url})");
        found.user_data = user_data(document.get("user_data"));
        found.vendor_data = document.get("vendor_data").cloned().unwrap_or_default();
        set_network(&mut found, network(&document, &nics));
        Ok(Found { instance: found, place: url.into() })
    };
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// The first interface of each kind, with DigitalOcean's names.
fn network(document: &Map, nics: &[Nic]) -> Result<Value> {
    let interfaces = document.get("interfaces").and_then(Value::as_map).filter(|map| !map.is_empty());
    let interfaces = interfaces.ok_or_else(|| Error::new("the metadata has no interfaces"))?;
    let mut config = Vec::new();
    for (_, group) in interfaces.iter() {
        let Some(interface) = items(Some(group)).first() else { continue };
        let mac = interface.get("mac");
        let own = nic_name(nics, mac)?;
        let kind = interface.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = match kind {
            "public" => "eth0",
            "private" => "eth1",
            _ => &own,
        };
        let addresses = ["ipv4", "ipv6", "anchor_ipv4", "anchor_ipv6"];
        let subnets = addresses.iter().filter_map(|key| {
            let address = interface.get(key).filter(|a| a.as_map().is_some_and(|a| !a.is_empty()))?;
            Some(subnet(address, kind == "public" && !key.starts_with("anchor")))
        });
        config.push(Value::Map(physical(name, mac, subnets.collect())));
    }
    let servers = document.get("dns").and_then(|dns| dns.get("nameservers"));
    if !items(servers).is_empty() {
        config.push(record(vec![("type", "nameserver".into()), ("address", items(servers).to_vec().into())]));
    }
    Ok(version_1(config))
}

/// A static address; with its gateway if `routed`.
fn subnet(address: &Value, routed: bool) -> Value {
    let get = |key: &str| address.get(key).cloned().unwrap_or_default();
    let ip = get("ip_address").text().unwrap_or_default();
    let prefix = get("cidr").text().filter(|_| ip.contains(':'));
    let netmask = if ip.contains(':') { Value::Null } else { get("netmask") };
    record(vec![
        ("type", "static".into()),
        ("control", "auto".into()),
        ("address", prefix.map_or(ip.clone(), |prefix| format!("{ip}/{prefix}")).into()),
        ("netmask", netmask),
        ("gateway", if routed { get("gateway") } else { Value::Null }),
    ])
}
