//! Oracle Cloud Infrastructure.
//!
//! Follows Oracle's documentation, "Getting Instance Metadata", and cloud-init's, "Oracle".

mod network;

use super::closed::{Closing, ServiceAddress};
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, limits};
use super::table::Source;
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value, json};
use crate::instance::Instance;
use crate::link::http::{Client, Request};
use crate::link::{Reach, Uplink};
use crate::network::input::ConfigOrigin;
use crate::source::keys::public_keys;
use network::Here;

pub static SOURCE: Source = Source {
    name: "Oracle",
    marks: &[Mark::asset_tag("OracleCloud.com")],
    service: Some(service_job),
    // The source's configuration already contains the network of an iSCSI root.
    network_order: &[ConfigOrigin::Cmdline, ConfigOrigin::SystemCfg, ConfigOrigin::Datasource, ConfigOrigin::Initramfs],
    closing: Closing {
        addresses: &[ServiceAddress::tcp("169.254.169.254", &[80]), ServiceAddress::tcp("fd00:c1::a9fe:a9fe", &[80])],
        stays: "DNS, DHCP, TFTP and NTP of the same addresses; the boot volume of bare metal",
    },
    settings: &[
        (
            "configure_secondary_nics",
            "true: further VNICs get their addresses where the initramfs configured the primary one; elsewhere they always do",
        ),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
    ],
    docs: "Oracle Cloud Infrastructure. Read from http://169.254.169.254/opc/v2 and http://[fd00:c1::a9fe:a9fe]/opc/v2, whichever \
        answers first, with the header that version 2 of the service demands; from version 1 where there is no version 2. \
        Where the initramfs configured the network (an iSCSI root), that configuration is kept; else the primary VNIC uses DHCP \
        and the others have the addresses of the metadata, with an MTU of 9000. Further VNICs of bare metal beside an iSCSI root \
        are not configured. Where the service has no VNICs, the network is configured as without a datasource.",
    ..Source::NEW
};

/// Version 2 of the service requires this header, which a program that was tricked into requesting a URL does
/// not send.
const AUTHORIZATION: (&str, &str) = ("Authorization", "Bearer Oracle");
/// How often the VNICs are tried.
const VNIC_TRIES: u32 = 5;
/// The largest document of an instance, in bytes: all of it is kept. Oracle allows 32,000 bytes of metadata.
const MAX_INSTANCE: usize = 1 << 20;

fn service_job(search: &mut Search) -> Option<Job> {
    let configured = search.settings(SOURCE.name).and_then(|s| s.get("configure_secondary_nics"));
    let here = Here::of(search.machine, configured.is_some_and(Value::is_true));
    let fetch = move |client: &Client, base: &str| read(client, base, &here);
    Some(Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name)))
}

fn urls(uplink: &Uplink) -> Vec<String> {
    match uplink.reach {
        Reach::Ipv4 => vec!["http://169.254.169.254".into()],
        Reach::Ipv6Routed => vec!["http://[fd00:c1::a9fe:a9fe]".into()],
        Reach::Ipv6LinkLocal => Vec::new(),
    }
}

fn request(url: &str, version: u32) -> Request<'_> {
    let headers: &[(&str, &str)] = if version == 2 { &[AUTHORIZATION] } else { &[] };
    Request { headers, ..Request::get(url) }
}

/// The instance's document, and the URL of its version. Both versions are tried a few times
/// before the newer one is tried until the deadline: the network may need a moment, and a service may have
/// one of them disabled.
fn instance_document(client: &Client, host: &str) -> Result<(Value, u32, String)> {
    let mut reasons: Vec<String> = Vec::new();
    for (version, tries) in [(2, 2), (1, 2), (2, u32::MAX), (1, u32::MAX)] {
        let base = format!("{host}/opc/v{version}/");
        let url = format!("{base}instance/");
        let first = tries == u32::MAX;
        match client.document(&Request { tries, first, limit: MAX_INSTANCE, ..request(&url, version) }) {
            Ok(Some(body)) => return Ok((json::parse(&url, &body)?, version, base)),
            Ok(None) => reasons.push(format!("{url}: 404 Not Found")),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    reasons.dedup();
    Err(Error::new(reasons.join("; ")))
}

fn read(client: &Client, host: &str, here: &Here) -> Result<Found> {
    let (document, version, base) = instance_document(client, host)?;
    let text = |key: &str| document.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let id = text("id").ok_or_else(|| {
        Error::new(format!("{base}instance/: expected a mapping with an id: another service answers there"))
    })?;
    let problems = Problems::new();
    let vnics = if here.needs_vnics() { vnics(client, &base, version, &problems) } else { Vec::new() };
    let keys = document.at(&["metadata", "ssh_authorized_keys"]).cloned().unwrap_or_default();
    let user_data = document.at(&["metadata", "user_data"]).and_then(Value::as_str).filter(|t| !t.is_empty());
    let (zone, hostname) = (text("ociAdName"), text("hostname"));
    let or_null = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let metadata: Map = [
        ("availability-zone", or_null(&zone)),
        ("instance-id", Value::from(id.as_str())),
        ("launch-index", Value::Int(0)),
        ("local-hostname", or_null(&hostname)),
        ("name", or_null(&text("displayName"))),
        ("public_keys", keys.clone()),
    ]
    .into_iter()
    .collect();
    let instance = Instance {
        source: SOURCE.name.into(),
        class: "DataSourceOracle".into(),
        platform: "oracle".into(),
        cloud_name: "oracle".into(),
        subplatform: format!("metadata ({base})"),
        instance_id: id,
        local_hostname: hostname,
        availability_zone: zone,
        launch_index: Some(0),
        public_keys: public_keys(Some(&keys)),
        user_data: user_data.map(|text| Bytes::from(base64::decode_loosely(text.as_bytes()))),
        network: here.config(&vnics, &problems),
        metadata: Value::Map(metadata),
        ds: document.as_map().cloned().unwrap_or_default(),
        problems,
        ..Instance::default()
    };
    Ok(Found { instance, place: base })
}

/// The VNICs, the primary one first. Empty, with a problem, if they cannot be read.
fn vnics(client: &Client, base: &str, version: u32, problems: &Problems) -> Vec<Value> {
    let url = format!("{base}vnics/");
    let body = client.document(&Request { tries: VNIC_TRIES, first: true, ..request(&url, version) });
    let body = body.and_then(|body| body.ok_or_else(|| Error::new(format!("{url}: 404 Not Found"))));
    match body.and_then(|body| json::parse(&url, &body)) {
        Ok(Value::List(list)) => return list,
        Ok(_) => problems.warn(format!("{url}: expected a list; the network is configured as without a datasource")),
        Err(e) => problems.warn(format!("{e}; the network is configured as without a datasource")),
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::link::http::Findings;
    use crate::link::http::Redirects;
    use crate::link::http::script::{Answer, Script};
    use crate::machine::Machine;
    use std::sync::Arc;
    use std::time::Duration;

    const HOST: &str = "http://169.254.169.254";
    const INSTANCE: &str = r#"{"id": "ocid1.x", "hostname": "web1", "displayName": "Web", "ociAdName": "phx-ad-3",
        "metadata": {"ssh_authorized_keys": "ssh-rsa A\nssh-rsa B", "user_data": "IyEvYmluL3NoCg=="}}"#;

    fn read_from(script: Script) -> (Result<Found>, Vec<(String, usize)>) {
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(100));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let found = read(&client, HOST, &Here::of(&Machine::default(), false));
        (found, script.sent().into_iter().map(|s| (s.url.replace(HOST, ""), s.headers.len())).collect())
    }

    fn with(script: Script, path: &str, status: u16, body: &str) -> Script {
        script.with("GET", &format!("{HOST}{path}"), Answer::new(status, body))
    }

    #[test]
    fn version_2_sends_its_header_before_version_1() {
        let both = with(with(Script::default(), "/opc/v2/instance/", 200, INSTANCE), "/opc/v2/vnics/", 200, "[]");
        let (found, sent) = read_from(both);
        let instance = found.unwrap().instance;
        assert_eq!(sent, [("/opc/v2/instance/".to_owned(), 1), ("/opc/v2/vnics/".to_owned(), 1)]);
        assert_eq!(instance.subplatform, "metadata (http://169.254.169.254/opc/v2/)");
        assert_eq!((instance.instance_id.as_str(), instance.launch_index), ("ocid1.x", Some(0)));
        assert_eq!(instance.public_keys, ["ssh-rsa A", "ssh-rsa B"]);
        assert_eq!(*instance.user_data.unwrap(), *b"#!/bin/sh\n");
        // `ds` is the whole document, as cloud-init's.
        assert_eq!(Value::Map(instance.ds), json::parse("t", INSTANCE.as_bytes()).unwrap());

        let old = with(Script::default(), "/opc/v2/instance/", 404, "");
        let old = with(with(old, "/opc/v1/instance/", 200, INSTANCE), "/opc/v1/vnics/", 404, "");
        let (found, sent) = read_from(old);
        assert_eq!(sent.iter().map(|(_, headers)| headers).collect::<Vec<_>>(), [&1, &0, &0]);
        let instance = found.unwrap().instance;
        assert!(instance.network.is_none() && instance.problems.len() == 1, "{:?}", instance.problems);
    }

    #[test]
    fn another_services_answer_is_an_error() {
        for body in ["{}", "[]", "<html>", r#"{"id": ""}"#] {
            let (found, _) = read_from(with(Script::default(), "/opc/v2/instance/", 200, body));
            assert!(found.is_err(), "{body}");
        }
        let (found, sent) = read_from(Script::default());
        let error = found.unwrap_err().to_string();
        assert!(error.contains("/opc/v2/instance/") && error.contains("/opc/v1/instance/"), "{error}");
        assert!(sent.len() > 6 && sent.len() < 40, "{}", sent.len());
    }
}
