//! Example Cloud: a whole datasource of a cloud that does not exist, to copy from. Only tests compile it.
//!
//! Its service at 169.254.42.42 has three documents:
//!
//! | path | content |
//! |---|---|
//! | /v1/instance.json | `{"id": "i-1", "hostname": "web-1", "zone": "a", "keys": ["ssh-ed25519 …"]}` |
//! | /v1/network.json | `{"mac": "02:00:00:00:01:00", "address": "192.0.2.10/24", "gateway": "192.0.2.1", "dns": ["192.0.2.53"]}` |
//! | /v1/user-data | user-data; 404 if the instance has none |

use super::documents::{instance, mapping, nic_name, physical, record, renamed, set_network, version_1};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "Example",
    marks: &[Mark::vendor("Example Cloud")],
    service: Some(service_job),
    settings: &[
        ("metadata_url", "address of the service, instead of http://169.254.42.42"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
    ],
    docs: "Example Cloud. Read from http://169.254.42.42. The network configuration is the service's: one static address.",
    ..Source::NEW
};

const URL: &str = "http://169.254.42.42";

/// How the service is asked: here what the fetch needs of the machine and the settings is read, and nothing is sent. None would
/// mean that this machine has no such service.
fn service_job(search: &mut Search) -> Option<Job> {
    let url = text_setting(search, SOURCE.name, "metadata_url", URL);
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| read(client, url, &nics);
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// Reads the instance from the service at `base`. An error means that the service does not have this machine's instance.
fn read(client: &Client, base: &str, nics: &[Nic]) -> Result<Found> {
    let url = |document: &str| format!("{}/v1/{document}", base.trim_end_matches('/'));
    // The document that the service is known by. It is asked for again while the service does not know the machine yet.
    let document = mapping(client, &Request::first(&url("instance.json")))?;
    if document.get("id").and_then(Value::text).is_none() {
        return Err(Error::new(format!("{}: expected an id", url("instance.json"))));
    }
    // cloud-init's names for what the metadata says, from which `instance` takes the identity.
    let keys =
        [("id", "instance-id"), ("hostname", "local-hostname"), ("zone", "availability-zone"), ("keys", "public-keys")];
    let mut found = instance(SOURCE.name, renamed(&document, &keys));
    found.subplatform = format!("metadata ({base})");
    // None on 404; any other failure is an error. Bytes, since user-data may be compressed.
    found.user_data = client.get(&url("user-data"))?.filter(|body| !body.is_empty()).map(Bytes::from);
    // Without a usable configuration the instance is used all the same, with a warning and DHCP.
    let config = mapping(client, &Request::get(&url("network.json"))).and_then(|document| network(&document, nics));
    set_network(&mut found, config);
    Ok(Found { instance: found, place: base.into() })
}

/// The service's network configuration as cloud-init's version 1.
fn network(document: &Map, nics: &[Nic]) -> Result<Value> {
    let get = |key: &str| document.get(key).cloned().unwrap_or_default();
    let subnet = record(vec![
        ("type", "static".into()),
        ("address", get("address")),
        ("gateway", get("gateway")),
        ("dns_nameservers", get("dns")),
    ]);
    let mac = document.get("mac");
    Ok(version_1(vec![physical(&nic_name(nics, mac)?, mac, vec![subnet]).into()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::problem::Problems;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::NetworkData;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use crate::link::{Reach, Uplink};
    use crate::root::Use;
    use std::sync::Arc;
    use std::time::Duration;

    const INSTANCE: &str = r#"{"id": "i-1", "hostname": "web-1", "zone": "a", "keys": ["ssh-ed25519 AAAA ada"]}"#;
    const NETWORK: &str =
        r#"{"mac": "02:00:00:00:01:00", "address": "192.0.2.10/24", "gateway": "192.0.2.1", "dns": ["192.0.2.53"]}"#;

    /// The result for a service with these documents, by their paths; all others are 404.
    fn answer(documents: &[(&str, &str)]) -> Result<Found> {
        let script = ["instance.json", "network.json", "user-data"].iter().fold(Script::default(), |script, path| {
            let body = documents.iter().find(|(of, _)| of == path);
            let answer = body.map_or(Answer::new(404, ""), |(_, body)| Answer::new(200, *body));
            script.with("GET", &format!("{URL}/v1/{path}"), answer)
        });
        let deadline = Deadline::after(Duration::from_secs(60));
        let client =
            Client::over(Arc::new(script), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let nic = Nic { name: "enp1s0".into(), mac: "02:00:00:00:01:00".into(), physical: true, ..Nic::default() };
        read(&client, URL, &[nic])
    }

    #[test]
    fn an_instance_with_all_its_documents() {
        let found = answer(&[("instance.json", INSTANCE), ("network.json", NETWORK), ("user-data", "#!/bin/sh\n")]);
        let instance = found.unwrap().instance;
        assert_eq!((instance.instance_id.as_str(), instance.local_hostname.as_deref()), ("i-1", Some("web-1")));
        assert_eq!((instance.class.as_str(), instance.availability_zone.as_deref()), ("DataSourceExample", Some("a")));
        assert_eq!(instance.public_keys, ["ssh-ed25519 AAAA ada"]);
        assert_eq!(instance.user_data.as_deref(), Some(&b"#!/bin/sh\n"[..]));
        let expected =
            "{version: 1, config: [{type: physical, name: enp1s0, mac_address: '02:00:00:00:01:00', subnets: [
            {type: static, address: 192.0.2.10/24, gateway: 192.0.2.1, dns_nameservers: [192.0.2.53]}]}]}";
        assert_eq!(instance.network, Some(NetworkData::Cloud(yaml::parse("t", expected).unwrap())));
        assert_eq!(instance.problems, Problems::new());
    }

    #[test]
    fn asks_the_service_at_the_configured_address() {
        let dir = TempDir::new("example");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let own = yaml::parse("t", "datasource: {Example: {metadata_url: 'http://192.0.2.1/x'}}").unwrap();
        for (config, url) in [(Value::Null, URL), (own, "http://192.0.2.1/x")] {
            let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
            let job = SOURCE.service.unwrap()(&mut search).unwrap();
            assert_eq!((job.urls)(&Uplink::of("eth0", 2, Reach::Ipv4)), [url]);
        }
    }

    #[test]
    fn what_is_missing() {
        let instance = answer(&[("instance.json", INSTANCE)]).unwrap().instance;
        assert_eq!((instance.user_data, instance.network, instance.problems.len()), (None, None, 1));
        assert!(answer(&[("instance.json", "{}"), ("network.json", NETWORK)]).is_err());
        assert!(answer(&[]).is_err());
    }
}
