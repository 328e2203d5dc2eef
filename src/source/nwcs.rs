//! NWCS.

use super::documents::{instance, items, mapping, nic_name, renamed, set_network, user_data};
use super::search::{Found, Search};
use super::service::{Job, RETRIES, SECONDS_BETWEEN, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Map, Value};
use crate::instance::NetworkData;
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "NWCS",
    marks: &[Mark::vendor("NWCS")],
    service: Some(service_job),
    settings: &[
        ("metadata_url", "the address of the metadata document; or `url`"),
        ("url", "the same, as cloud-init's manual names it; its code does not read that"),
        TIMEOUT,
        RETRIES,
        ("wait", SECONDS_BETWEEN),
        ("wait_retry", "the same"),
    ],
    docs: "NWCS. Read from http://169.254.169.254/api/v1/metadata. The service's network configuration is used with the names that \
        the interfaces have on this machine.",
    ..Source::NEW
};

const URL: &str = "http://169.254.169.254/api/v1/metadata";

fn service_job(search: &mut Search) -> Option<Job> {
    let url = text_setting(search, SOURCE.name, "url", URL);
    let url = text_setting(search, SOURCE.name, "metadata_url", &url);
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| {
        let document = mapping(client, &Request::first(url))?;
        let keys = [
            ("instance-id", "instance-id"),
            ("public-keys", "public-keys"),
            ("network", "network"),
            ("hostname", "local-hostname"),
        ];
        if let Some((missing, _)) = keys.iter().find(|(key, _)| !document.contains_key(key)) {
            return Err(Error::new(format!("{url}: expected the key {missing}")));
        }
        let mut found = instance(SOURCE.name, renamed(&document, &keys));
        found.subplatform = format!("metadata ({url})");
        found.user_data = user_data(document.get("userdata"));
        found.vendor_data = document.get("vendordata").cloned().unwrap_or_default();
        set_network(&mut found, network(&document, &nics));
        if let (Some(NetworkData::Cloud(network)), Value::Map(metadata)) = (&found.network, &mut found.metadata) {
            metadata.insert("network", network.clone());
        }
        Ok(Found { instance: found, place: url.into() })
    };
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// The service's configuration, with this machine's interface names.
fn network(document: &Map, nics: &[Nic]) -> Result<Value> {
    let mut network = document.get("network").and_then(Value::as_map).cloned().unwrap_or_default();
    let mut config = items(network.get("config")).to_vec();
    if config.is_empty() {
        return Err(Error::new("the metadata has no network configuration"));
    }
    for entry in &mut config {
        if let Value::Map(entry) = entry
            && let Ok(name) = nic_name(nics, entry.get("mac_address"))
        {
            entry.insert("name", name);
        }
    }
    network.insert("config", config);
    Ok(Value::Map(network))
}
