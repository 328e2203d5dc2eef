//! OpenStack's metadata service: the documents of a config drive, at the same paths, over HTTP.
//!
//! Follows nova's user documentation, "Metadata service". The documents become a tree of files, which the config
//! drive's reader parses.

use super::files::VERSIONS;
use crate::base::error::{Context, Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::link::http::{Client, Request, WITHIN, refused};
use crate::link::{Reach, Uplink};
use crate::source::ec2::{self, tree::Service};
use crate::source::is_chosen;
use std::time::Duration;

/// The documents besides meta_data.json in the order of need, and how often each is tried at most. Services with old versions only may
/// have them too.
const DOCUMENTS: [(&str, u32); 4] = [
    ("user_data", u32::MAX),
    ("network_data.json", u32::MAX),
    ("vendor_data.json", VENDOR_TRIES),
    ("vendor_data2.json", VENDOR_TRIES),
];
/// Vendor-data may come from another service of the provider: it must not delay the boot for long.
const VENDOR_TRIES: u32 = 5;
/// How often the newest version is tried before the list of versions is read: its service may have just started.
const NEWEST_TRIES: u32 = 4;
/// How long an answer is waited for before the next document is asked for beside it. A service that answers sooner gets all requests
/// in turn, on one connection, and none after one that it turned away.
const QUICK: Duration = Duration::from_millis(20);
/// The most block devices whose names are read.
const MAX_DEVICES: usize = 32;
/// The most files that are fetched because the metadata names them, and their largest total size. nova allows
/// 5 of 10 KiB by default.
const MAX_CONTENTS: usize = 100;
const MAX_CONTENT: usize = 16 << 20;

/// The fetched files, with paths as on a config drive (`openstack/2018-08-27/meta_data.json`), and what could
/// not be fetched.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The service's URL, without a path.
    pub base: String,
    pub files: Vec<(String, Vec<u8>)>,
    /// The values of the EC2 tree, as a config drive's document.
    pub ec2_metadata: Option<Vec<u8>>,
    pub problems: Problems,
}

/// The path of that document.
pub const EC2_METADATA: &str = "ec2/latest/meta-data.json";

/// The URLs that `uplink` asks: the configured ones (`metadata_urls`), else the two well-known ones.
pub fn urls(uplink: &Uplink, configured: &[String]) -> Vec<String> {
    if configured.is_empty() {
        return match (uplink.reach, &uplink.link) {
            (Reach::Ipv4, _) => vec!["http://169.254.169.254".into()],
            (Reach::Ipv6LinkLocal, Some(link)) => vec![format!("http://[fe80::a9fe:a9fe%25{link}]")],
            _ => Vec::new(),
        };
    }
    configured.iter().filter(|url| uplink.reaches(url)).map(|url| url.trim_end_matches('/').to_owned()).collect()
}

/// Fetches everything from the service at `base`, with one request for each document and injected file: first
/// one that shows whether this is OpenStack's service, then the others in the order of need, each beside those that take long.
///
/// `disks`: whether the machine has more than one disk, so that their names in the EC2 tree matter.
///
/// # Errors
/// No response, or one that is not OpenStack's. Other documents than meta_data.json that fail are added to
/// `problems`.
pub fn fetch(client: &Client, base: &str, disks: bool) -> Result<Fetched> {
    // The documents are noted when they are read as files, under the names that they have on a config drive.
    let (client, kept) = (&client.apart(), client);
    let mut tries = 0;
    let (version, metadata) = loop {
        tries += 1;
        match metadata(client, base)? {
            Some(found) => break found,
            None if client.wait_for_service(tries) => {}
            None => return Err(Error::new(format!("{base} answers, and has no OpenStack metadata"))),
        }
    };
    let path = |name: &str| format!("openstack/{version}/{name}");
    let url = |name: &str| format!("{base}/openstack/{version}/{name}");
    let control = url("meta_data.json");
    let mut fetched = Fetched { base: base.into(), ..Fetched::default() };
    let contents = contents(&metadata);
    fetched.files.push((path("meta_data.json"), metadata));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (name, tries) in DOCUMENTS {
            let (url, control, caller) = (url(name), control.as_str(), std::thread::current());
            let get = move || {
                let request = Request::bounded(&url, control);
                let answer = client.document(&Request { tries: request.tries.min(tries), ..request });
                caller.unpark();
                answer
            };
            threads.push((name, std::thread::Builder::new().spawn_scoped(scope, get)));
            std::thread::park_timeout(QUICK);
        }
        let injected = || injected(client, base, &contents, &control);
        let injected = (!contents.is_empty()).then(|| std::thread::Builder::new().spawn_scoped(scope, injected));
        for (name, thread) in threads {
            let answer = thread.context(|| "failed to start a thread").and_then(|thread| match thread.join() {
                Ok(answer) => answer,
                Err(_) => Err(Error::new(format!("failed to read {name}"))),
            });
            match answer {
                // Some services return an empty body for a document that does not exist.
                Ok(Some(body)) if !body.is_empty() => fetched.files.push((path(name), body)),
                Ok(_) => {}
                Err(e) => fetched.problems.warn(format!("{e}; the boot goes on without it")),
            }
        }
        match injected.map(|thread| thread.map(std::thread::ScopedJoinHandle::join)) {
            Some(Ok(Ok((files, problems)))) => {
                fetched.files.extend(files);
                fetched.problems.absorb(problems);
            }
            Some(_) => fetched.problems.warn("failed to fetch the files that meta_data.json names"),
            None => {}
        }
    });
    // A build without Ec2 cannot read its tree, and keeps to the disks.
    if const { is_chosen(ec2::SOURCE.name) } && documents_of_user(&fetched.files).any(mentions_ec2_metadata) {
        match ec2_tree(kept, base, &fetched.problems) {
            Ok(json) => fetched.ec2_metadata = Some(json),
            Err(e) => fetched.problems.warn(e.to_string()),
        }
    } else if disks {
        match block_devices(kept, base, &fetched.files, &control) {
            Ok(json) => fetched.ec2_metadata = json,
            Err(e) => fetched.problems.warn(e.to_string()),
        }
    }
    Ok(fetched)
}

/// The files at `paths`, and why some could not be fetched. One that does not exist is left out, and reported
/// by the caller.
fn injected(client: &Client, base: &str, paths: &[String], control: &str) -> (Vec<(String, Vec<u8>)>, Problems) {
    let (mut files, problems, mut left) = (Vec::new(), Problems::new(), MAX_CONTENT);
    for path in paths {
        let url = format!("{base}/{path}");
        match client.document(&Request { limit: left, ..Request::bounded(&url, control) }) {
            Ok(Some(body)) => {
                left = left.saturating_sub(body.len());
                files.push((path.clone(), body));
            }
            Ok(None) => {}
            Err(e) => problems.warn(e.to_string()),
        }
    }
    (files, problems)
}

/// The paths of the files that the metadata names: those to be injected (`files`), and the network
/// configuration used before network_data.json existed. Paths that could lead elsewhere are left out.
fn contents(metadata: &[u8]) -> Vec<String> {
    let Ok(metadata) = json::parse("meta_data.json", metadata) else { return Vec::new() };
    let files = metadata.get("files").and_then(Value::as_list).unwrap_or_default();
    let named = files.iter().chain(metadata.get("network_config")).filter_map(|f| f.get("content_path")?.as_str());
    let mut paths: Vec<String> = Vec::new();
    for path in named.map(|p| p.trim_start_matches('/')) {
        let path = format!("openstack/{path}");
        let is_safe = path.split('/').all(|part| is_name(part) && part != "..");
        if paths.len() < MAX_CONTENTS && is_safe && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// meta_data.json of the newest available version; None if the service has none. The list of versions is only
/// read if the newest does not exist or does not respond: a service that cannot serve that document may exist
/// nevertheless.
fn metadata(client: &Client, base: &str) -> Result<Option<(String, Vec<u8>)>> {
    let mut versions = vec![VERSIONS[0].to_owned()];
    let (mut listed, mut unanswered) = (false, None);
    while let Some(version) = versions.pop() {
        let url = format!("{base}/openstack/{version}/meta_data.json");
        let tries = if listed { u32::MAX } else { NEWEST_TRIES };
        let (body, tried) = match asked(client, &Request { tries, ..Request::get(&url) }) {
            Err(e) if !listed && client.is_patient() => {
                unanswered = Some(e);
                (None, "")
            }
            answer => (answer?, version.as_str()),
        };
        if let Some(body) = body.filter(|b| !b.iter().all(u8::is_ascii_whitespace)) {
            is_openstack(&url, &body)?;
            return Ok(Some((version, body)));
        }
        if !std::mem::replace(&mut listed, true) {
            let list = asked(client, &Request::get(&format!("{base}/openstack")));
            let list = list.map_err(|e| unanswered.take().unwrap_or(e))?.unwrap_or_default();
            versions = candidates(&String::from_utf8_lossy(&list), tried);
        }
    }
    Ok(None)
}

/// A document of a service that may not know the machine yet: None if it refuses.
fn asked(client: &Client, request: &Request) -> Result<Option<Vec<u8>>> {
    let reply = client.send(request)?;
    match reply.status {
        200..=299 => Ok(Some(reply.body)),
        400..=499 => Ok(None),
        status => Err(refused(request.method, request.url, status)),
    }
}

/// The versions to try after reading the list, best last: `latest`, then the known versions in it by age.
fn candidates(list: &str, tried: &str) -> Vec<String> {
    let is_listed = |version: &str| list.lines().any(|l| l.trim().trim_end_matches('/') == version);
    let known = VERSIONS.iter().rev().filter(|v| **v != tried && is_listed(v)).map(|v| (*v).to_owned());
    std::iter::once("latest".to_owned()).chain(known).collect()
}

/// Checks that it is OpenStack's: any server may return 200, but only OpenStack's a JSON mapping with the
/// instance's UUID.
fn is_openstack(url: &str, body: &[u8]) -> Result<()> {
    let document = json::parse(url, body)?;
    match document.get("uuid").and_then(Value::text) {
        Some(uuid) if !uuid.is_empty() => Ok(()),
        _ => Err(Error::new(format!("{url}: expected OpenStack's mapping with a uuid: another service answers there"))),
    }
}

/// User-data and vendor-data.
fn documents_of_user(documents: &[(String, Vec<u8>)]) -> impl Iterator<Item = &[u8]> {
    let is_data = |path: &str| path.ends_with("_data") || path.contains("/vendor_data");
    documents.iter().filter(move |(path, _)| is_data(path)).map(|(_, body)| body.as_slice())
}

/// Whether a document that is compressed, included or encoded may mention anything.
fn hides(body: &[u8]) -> bool {
    const ENCODED: &[u8] = b"Transfer-Encoding: base64";
    body.starts_with(&[0x1f, 0x8b])
        || body.starts_with(b"#include")
        || body.windows(ENCODED.len()).any(|text| text.eq_ignore_ascii_case(ENCODED))
}

/// Whether a document uses `ds.ec2_metadata`. The module disable_ec2_metadata is something else.
fn mentions_ec2_metadata(body: &[u8]) -> bool {
    const NAME: &[u8] = b"ec2_metadata";
    let is_named = |text: &[u8]| text.split_first().is_some_and(|(before, name)| *before != b'_' && name == NAME);
    hides(body) || body.windows(NAME.len() + 1).any(is_named)
}

/// The EC2 tree, in the form of a config drive's ec2 document.
fn ec2_tree(client: &Client, base: &str, problems: &Problems) -> Result<Vec<u8>> {
    let client = client.within(WITHIN);
    let (service, root) = (Service::new(&client, base, None), format!("{base}/latest/meta-data"));
    let id = service.instance_id(Request::get(&format!("{root}/instance-id")))?;
    Ok(json::to_string(&Value::Map(service.tree(&root, &id, problems))).into_bytes())
}

/// Whether a device's name is needed: it is mounted by default, or `documents` mention it.
fn is_wanted(name: &str, documents: &[(String, Vec<u8>)]) -> bool {
    let names = |body: &[u8]| hides(body) || body.windows(name.len()).any(|text| text == name.as_bytes());
    name.starts_with("ephemeral") || name == "swap" || documents_of_user(documents).any(names)
}

/// The names of the needed block devices ([`is_wanted`]), which only the EC2 tree has, in the form of a
/// config drive's ec2 document.
fn block_devices(
    client: &Client,
    base: &str,
    documents: &[(String, Vec<u8>)],
    control: &str,
) -> Result<Option<Vec<u8>>> {
    let folder = format!("{base}/latest/meta-data/block-device-mapping");
    let get = |url: &str| client.document(&Request { limit: 64 << 10, ..Request::bounded(url, control) });
    let Some(list) = get(&format!("{folder}/"))? else { return Ok(None) };
    let mut devices = Map::new();
    for name in String::from_utf8_lossy(&list)
        .lines()
        .map(str::trim)
        .filter(|n| is_name(n) && is_wanted(n, documents))
        .take(MAX_DEVICES)
    {
        if let Some(device) = get(&format!("{folder}/{name}"))? {
            devices.insert(name, String::from_utf8_lossy(&device).trim().to_owned());
        }
    }
    let document = Value::Map([("block-device-mapping", devices)].into_iter().collect());
    Ok(Some(json::to_string(&document).into_bytes()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_listed_version_is_asked_first() {
        let list = "2012-08-10\n2015-10-15/\r\n2018-08-27\n2025-04-04\nlatest\n";
        assert_eq!(candidates(list, VERSIONS[0]), ["latest", "2012-08-10", "2015-10-15"]);
        assert_eq!(candidates("<html>", ""), ["latest"]);
    }

    #[test]
    fn only_devices_that_are_wanted_are_fetched() {
        let wanted = |user_data: &[u8]| {
            let documents = [("openstack/latest/user_data".to_owned(), user_data.to_vec())];
            ["ami", "root", "ebs0", "ephemeral0", "swap"]
                .into_iter()
                .filter(|n| is_wanted(n, &documents))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(wanted(b"#cloud-config\n{}\n"), "ephemeral0 swap");
        assert_eq!(wanted(b"#cloud-config\nmounts: [[ebs0, /srv]]\n"), "ebs0 ephemeral0 swap");
        assert_eq!(wanted(&[0x1f, 0x8b, 8]), "ami root ebs0 ephemeral0 swap");
        let encoded = b"MIME-Version: 1.0\n\n--a\nContent-transfer-encoding: base64\n\nZWJzMA==\n";
        assert_eq!(wanted(encoded), "ami root ebs0 ephemeral0 swap");
    }

    #[test]
    fn reads_ec2_tree_only_if_documents_use_it() {
        assert!(mentions_ec2_metadata(
            b"## template: jinja\n#cloud-config\n{a: '{{ ds.ec2_metadata.public_ipv4 }}'}\n"
        ));
        assert!(mentions_ec2_metadata(b"#!/bin/sh\ncloud-init query \"ds['ec2_metadata']\"\n"));
        assert!(mentions_ec2_metadata(&[0x1f, 0x8b, 8]) && mentions_ec2_metadata(b"#include\nhttp://h/\n"));
        assert!(!mentions_ec2_metadata(b"#cloud-config\ndisable_ec2_metadata: true\n") && !mentions_ec2_metadata(b""));
    }

    #[test]
    fn files_that_the_metadata_names() {
        let of = |text: &str| contents(text.as_bytes()).join(" ");
        let text = r#"{"files": [{"path": "/a", "content_path": "/content/0000"}, {"path": "/b", "content_path": "content/0001"},
            {"path": "/c", "content_path": "/content/0000"}, {"path": "/d", "content_path": "/../latest/user-data"}, {"path": "/e"},
            {"path": "/f", "content_path": "//evil/x?y"}, 7], "network_config": {"content_path": "/content/0002"}}"#;
        assert_eq!(of(text), "openstack/content/0000 openstack/content/0001 openstack/content/0002");
        assert_eq!(of(r#"{"files": {"a": 1}}"#) + &of("nonsense"), "");
    }

    #[test]
    fn not_any_answer_is_openstacks() {
        assert!(is_openstack("u", br#"{"uuid": "x", "hostname": "h"}"#).is_ok());
        for body in [&b"<html>"[..], b"{}", b"[]", br#"{"uuid": ""}"#, br#"{"uuid": null}"#] {
            assert!(is_openstack("u", body).is_err());
        }
    }

    #[test]
    fn configured_addresses_replace_the_well_known() {
        let (four, six) = (Uplink::of("eth0", 2, Reach::Ipv4), Uplink::of("eth0", 2, Reach::Ipv6LinkLocal));
        assert_eq!(urls(&four, &[]), ["http://169.254.169.254"]);
        assert_eq!(urls(&six, &[]), ["http://[fe80::a9fe:a9fe%25eth0]"]);
        assert_eq!(urls(&Uplink::of("eth0", 2, Reach::Ipv6Routed), &[]), Vec::<String>::new());
        let configured = ["http://10.0.0.1:8775/".to_owned()];
        assert_eq!(urls(&four, &configured), ["http://10.0.0.1:8775"]);
        assert_eq!(urls(&six, &configured), Vec::<String>::new());
    }
}
