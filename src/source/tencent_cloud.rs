//! Tencent Cloud CVM.
//!
//! Follows Tencent Cloud's documentation, "Querying Instance Metadata": one document for each value below /latest/meta-data, with
//! 404 for one that does not exist, and the user-data at /latest/user-data. The host name and the SSH keys are not in its table; the
//! service lists them (`hostname`, `public-keys/`).

use super::closed::{Closing, ServiceAddress};
use super::documents::{instance, needed, nic_name, physical, record, set_network, version_1};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT, text_setting};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::base::text::quoted;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Nic;

pub static SOURCE: Source = Source {
    name: "TencentCloud",
    marks: &[Mark::vendor("Tencent Cloud")],
    service: Some(service_job),
    closing: Closing { addresses: &[ServiceAddress::tcp("169.254.0.23", &[80])], stays: "what else has the address" },
    settings: &[("metadata_url", "address of the service, instead of http://169.254.0.23"), MAX_WAIT, TIMEOUT, RETRIES],
    docs: "Tencent Cloud CVM, which cloud-init has no datasource for. Read from http://169.254.0.23, the address of \
        metadata.tencentyun.com, which needs no name server. The first interface has DHCP. Without a host name in the metadata, \
        the instance-id is it.",
    ..Source::NEW
};

const URL: &str = "http://169.254.0.23";
/// How many of an instance's SSH keys are read; each is a request.
const MAX_KEYS: usize = 16;

fn service_job(search: &mut Search) -> Option<Job> {
    let url = text_setting(search, SOURCE.name, "metadata_url", URL);
    let nics = search.machine.nics();
    let fetch = move |client: &Client, url: &str| read(client, url, &nics);
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}

/// Reads the instance from the service at `base`. An error means that the service does not have this machine's instance.
fn read(client: &Client, base: &str, nics: &[Nic]) -> Result<Found> {
    let root = format!("{}/latest", base.trim_end_matches('/'));
    let url = |path: &str| format!("{root}/meta-data/{path}");
    let id = text(needed(client, &Request::first(&url("instance-id")))?);
    if !is_id(&id) {
        return Err(Error::new(format!("{}: expected an instance-id, not {}", url("instance-id"), quoted(&id))));
    }
    let get = |path: &str| Ok(client.get(&url(path))?.map(text).filter(|text| !text.is_empty()).map(Value::from));
    let mut metadata = Map::new();
    metadata.insert("local-hostname", get("hostname")?.unwrap_or_else(|| id.as_str().into()));
    metadata.insert("instance-id", id);
    for (path, key) in [("placement/region", "region"), ("placement/zone", "availability-zone"), ("mac", "mac")] {
        metadata.insert(key, get(path)?.unwrap_or_default());
    }
    // The listing has a line `0` or `0=NAME` for each key.
    let listing = client.get(&url("public-keys/"))?.map(text).unwrap_or_default();
    let numbers = listing.lines().filter_map(|line| line.split(['=', '/']).next()?.trim().parse::<u32>().ok());
    let keys = numbers.take(MAX_KEYS).map(|number| get(&format!("public-keys/{number}/openssh-key")));
    metadata.insert("public-keys", keys.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>());
    let config = network(metadata.get("mac"), nics);
    let mut found = instance(SOURCE.name, metadata);
    found.subplatform = format!("metadata ({base})");
    found.user_data = client.get(&format!("{root}/user-data"))?.filter(|body| !body.is_empty()).map(Bytes::from);
    set_network(&mut found, config);
    Ok(Found { instance: found, place: base.into() })
}

/// A document with one value.
fn text(body: Vec<u8>) -> String {
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// Whether this can be an instance-id (`ins-3g445roi`). Another service may answer with a page.
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// DHCP on the interface with the address that the metadata calls the first one's.
fn network(mac: Option<&Value>, nics: &[Nic]) -> Result<Value> {
    let subnet = record(vec![("type", "dhcp".into())]);
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

    const VALUES: &[(&str, &str)] = &[
        ("meta-data/instance-id", "ins-3g445roi"),
        ("meta-data/hostname", "web-1\n"),
        ("meta-data/placement/region", "ap-guangzhou"),
        ("meta-data/placement/zone", "ap-guangzhou-3"),
        ("meta-data/mac", "52:54:00:BF:B3:51"),
        ("meta-data/public-keys/", "0=skey\n1"),
        ("meta-data/public-keys/0/openssh-key", "ssh-ed25519 AAAA ada"),
        ("meta-data/public-keys/1/openssh-key", "ssh-ed25519 BBBB bob\n"),
        ("user-data", "#!/bin/sh\n"),
    ];

    /// The result for a service with these values; all others are 404.
    fn answer(values: &[(&str, &str)]) -> Result<Found> {
        let script = VALUES.iter().fold(Script::default(), |script, (path, _)| {
            let body = values.iter().find(|(of, _)| of == path);
            let answer = body.map_or(Answer::new(404, ""), |(_, body)| Answer::new(200, *body));
            script.with("GET", &format!("{URL}/latest/{path}"), answer)
        });
        let deadline = Deadline::after(Duration::from_secs(60));
        let client =
            Client::over(Arc::new(script), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let nic = Nic { name: "ens5".into(), mac: "52:54:00:bf:b3:51".into(), physical: true, ..Nic::default() };
        read(&client, URL, &[nic])
    }

    #[test]
    fn reads_an_instance_with_all_its_values() {
        let instance = answer(VALUES).unwrap().instance;
        assert_eq!(
            (instance.instance_id.as_str(), instance.local_hostname.as_deref()),
            ("ins-3g445roi", Some("web-1"))
        );
        assert_eq!(instance.class, "DataSourceTencentCloud");
        assert_eq!(
            (instance.region.as_deref(), instance.availability_zone.as_deref()),
            (Some("ap-guangzhou"), Some("ap-guangzhou-3"))
        );
        assert_eq!(instance.public_keys, ["ssh-ed25519 AAAA ada", "ssh-ed25519 BBBB bob"]);
        assert_eq!(instance.user_data.as_deref(), Some(&b"#!/bin/sh\n"[..]));
        let expected = "{version: 1, config: [
            {type: physical, name: ens5, mac_address: '52:54:00:BF:B3:51', subnets: [{type: dhcp}]}]}";
        assert_eq!(instance.network, Some(NetworkData::Cloud(yaml::parse("t", expected).unwrap())));
        assert_eq!(instance.problems, Problems::new());
    }

    #[test]
    fn missing_values_cost_only_themselves() {
        let instance = answer(&VALUES[..1]).unwrap().instance;
        assert_eq!(instance.local_hostname.as_deref(), Some("ins-3g445roi"));
        assert_eq!((instance.user_data, instance.network, instance.problems.len()), (None, None, 1));
        assert_eq!(instance.public_keys, [""; 0]);
    }

    #[test]
    fn another_service_is_no_instance() {
        for id in ["<html>", "", "a b"] {
            assert!(answer(&[("meta-data/instance-id", id)]).is_err(), "{id}");
        }
        assert!(answer(&VALUES[1..]).is_err());
    }

    #[test]
    fn asks_the_service_at_the_configured_address() {
        let dir = TempDir::new("tencent");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let own = yaml::parse("t", "datasource: {TencentCloud: {metadata_url: 'http://192.0.2.1/x'}}").unwrap();
        for (config, url) in [(Value::Null, URL), (own, "http://192.0.2.1/x")] {
            let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
            let job = SOURCE.service.unwrap()(&mut search).unwrap();
            assert_eq!((job.urls)(&Uplink::of("eth0", 2, Reach::Ipv4)), [url]);
        }
    }
}
