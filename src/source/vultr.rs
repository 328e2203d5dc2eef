//! Vultr.
//!
//! Follows Vultr's documentation, "Metadata API", and cloud-init's, "Vultr".

use super::documents::{instance, items, mapping, nic_name, physical, record, set_network, user_data, version_1};
use super::search::{Found, Search};
use super::service::{Job, RETRIES, SECONDS_BETWEEN, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Nic;
use crate::root::installed;

pub static SOURCE: Source = Source {
    name: "Vultr",
    marks: &[Mark::vendor("Vultr"), Mark::Word("vultr"), Mark::File("/etc/vultr")],
    service: Some(service_job),
    settings: &[
        ("url", "the address of the service, without a path"),
        ("user-agent", "the system as reported to the service, which selects the vendor-data by it"),
        TIMEOUT,
        RETRIES,
        ("wait", SECONDS_BETWEEN),
    ],
    docs: "Vultr, virtual machines and bare metal. Read from http://169.254.169.254/v1.json on every link at once; the vendor's \
        script that lists the links to try is not needed and not run. The first interface has DHCP and SLAAC, the others the static \
        addresses of the metadata.",
    ..Source::NEW
};

/// Vultr's name servers.
const NAME_SERVERS: [&str; 2] = ["108.61.10.10", "2001:19f0:300:1704::6"];

fn service_job(search: &mut Search) -> Option<Job> {
    let base = text_setting(search, SOURCE.name, "url", "http://169.254.169.254");
    // The service parses what follows cloud-init's version.
    let distro = installed::distro(search.root).name;
    let agent = format!("Cloud-Init/26.2 - OS: Linux Variant: {distro}");
    let agent = text_setting(search, SOURCE.name, "user-agent", &agent);
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| {
        let headers = [("Metadata-Token", "cloudinit"), ("User-Agent", agent.as_str())];
        let document = mapping(client, &Request { headers: &headers, ..Request::first(url) })?;
        let mut metadata = document.clone();
        let id = document.get("instance-v2-id").cloned();
        metadata.insert("instance-id", id.ok_or_else(|| Error::new(format!("{url}: expected an instance-v2-id")))?);
        let region = document.get("region");
        let region = region.and_then(|r| r.get("countrycode").or_else(|| r.get("regioncode"))?.text());
        metadata.insert("region", region.map_or(Value::Null, |r| r.to_ascii_lowercase().into()));
        let name = document.get("hostname").and_then(Value::text).filter(|name| !name.is_empty());
        metadata.insert("local-hostname", name.unwrap_or_else(|| "guest".into()));
        let mut found = instance(SOURCE.name, metadata);
        found.user_data = user_data(document.get("user-data"));
        found.vendor_data = document.get("vendor-data").cloned().unwrap_or_default();
        set_network(&mut found, network(&document, &nics));
        Ok(Found { instance: found, place: url.into() })
    };
    let url = format!("{}/v1.json", base.trim_end_matches('/'));
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// The service's own configuration with this machine's interface names, or one built from its list of
/// interfaces.
fn network(document: &Map, nics: &[Nic]) -> Result<Value> {
    if let Some(Value::Map(whole)) = document.get("cloud_interfaces") {
        let mut whole = whole.clone();
        let mut config = items(whole.get("config")).to_vec();
        for entry in &mut config {
            if let Value::Map(entry) = entry
                && entry.get("type").and_then(Value::as_str) == Some("physical")
            {
                let name = nic_name(nics, entry.get("mac_address"))?;
                entry.insert("name", name);
            }
        }
        whole.insert("config", config);
        return Ok(Value::Map(whole));
    }
    let servers: Vec<Value> = NAME_SERVERS.map(Value::from).into();
    let mut config = vec![record(vec![("type", "nameserver".into()), ("address", servers.into())])];
    for (index, interface) in items(document.get("interfaces")).iter().enumerate() {
        if index == 0 || !interface.get("unconfigured").is_some_and(Value::is_true) {
            config.push(one(interface, index == 0, nics)?);
        }
    }
    Ok(version_1(config))
}

fn one(interface: &Value, primary: bool, nics: &[Nic]) -> Result<Value> {
    let auto = |kind: &str| vec![("type", Value::from(kind)), ("control", "auto".into())];
    let address = |kind: &str, from: &Value| {
        let get = |key: &str| from.get(key).cloned().unwrap_or_default();
        let mut pairs = auto(kind);
        match (get("network").text(), get("prefix").text()) {
            (Some(network), Some(prefix)) if kind == "static6" => {
                pairs.push(("address", format!("{network}/{prefix}").into()));
            }
            _ => pairs.extend([("address", get("address")), ("netmask", get("netmask"))]),
        }
        pairs.push(("routes", get("routes")));
        record(pairs)
    };
    let (four, six) = (interface.get("ipv4").unwrap_or(&Value::Null), interface.get("ipv6").unwrap_or(&Value::Null));
    let routes = interface.get("routes").cloned().unwrap_or_default();
    let mut subnets = if primary {
        let mut first = auto("dhcp");
        first.push(("routes", routes));
        vec![record(first), record(auto("ipv6_slaac"))]
    } else {
        let get = |key: &str| four.get(key).cloned().unwrap_or_default();
        let mut first = auto("static");
        first.extend([("address", get("address")), ("netmask", get("netmask")), ("routes", routes)]);
        vec![record(first)]
    };
    subnets.extend(items(four.get("additional")).iter().map(|a| address("static", a)));
    subnets.extend(items(six.get("additional")).iter().map(|a| address("static6", a)));
    let mac = interface.get("mac");
    let mut entry = physical(&nic_name(nics, mac)?, mac, subnets);
    if primary {
        entry.insert("accept-ra", 1);
    }
    for key in ["mtu", "accept-ra"] {
        if let Some(value) = interface.get(key) {
            entry.insert(key, value.clone());
        }
    }
    Ok(Value::Map(entry))
}
