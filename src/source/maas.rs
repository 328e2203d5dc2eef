//! MAAS: Canonical's Metal as a Service, over HTTP with OAuth.
//!
//! Follows cloud-init's documentation, "MAAS".

use super::Source;
use super::documents;
use super::search::{Found, Search};
use super::service::is_id;
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, limits};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value, yaml};
use crate::drive::Files;
use crate::instance::Instance;
use crate::link::Uplink;
use crate::link::http::oauth::OAuth;
use crate::link::http::{Client, Request, refused};
use crate::network::input::ConfigOrigin;

pub static SOURCE: Source = Source {
    name: "MAAS",
    described: "[{place}]",
    read: Some(read),
    service: Some(service_job),
    has_no_address: true,
    seed: Some(|_, files, place| files.contains(ID).then(|| of_files(files, place).ok())?),
    // curtin has written the network configuration into the image; the initramfs's is for the installation.
    network_order: &[ConfigOrigin::Cmdline, ConfigOrigin::SystemCfg, ConfigOrigin::Datasource, ConfigOrigin::Initramfs],
    settings: &[
        ("metadata_url", "address of the service: http://HOST:5240/MAAS/metadata/"),
        ("consumer_key", "OAuth: requests are signed where this, token_key and token_secret are given"),
        ("consumer_secret", "OAuth: usually empty"),
        ("token_key", "OAuth"),
        ("token_secret", "OAuth"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
    ],
    docs: "Canonical's MAAS: read from metadata_url, which MAAS writes into the image that it deploys, with OAuth 1.0 signatures; \
        where the server refuses one and the clocks differ, its time is used. The folder /var/lib/cloud/seed/maas takes \
        precedence, with meta-data/instance-id, meta-data/local-hostname, meta-data/public-keys, meta-data/vendor-data and \
        user-data. The network is the image's own configuration, before what the initramfs configured. Progress is reported to \
        MAAS where the configuration has a webhook (reporting).",
    ..Source::NEW
};

const SEED: &str = "/var/lib/cloud/seed/maas";
/// The version of the API.
const VERSION: &str = "2012-03-01";
const ID: &str = "meta-data/instance-id";
const HOSTNAME: &str = "meta-data/local-hostname";
const KEYS: &str = "meta-data/public-keys";
const VENDOR_DATA: &str = "meta-data/vendor-data";
const USER_DATA: &str = "user-data";
/// How often the first document is tried while the server says that it does not exist: the server may not
/// know the machine yet.
const FIRST_TRIES: u32 = 3;

fn read(search: &mut Search) -> Result<Option<Found>> {
    let Some(files) = search.seed_folder(SEED) else { return Ok(None) };
    of_files(&files, SEED).map(|instance| Some(Found { instance, place: SEED.into() }))
}

fn of_files(files: &Files, place: &str) -> Result<Instance> {
    instance(&|path| Ok(files.get(path).map(<[u8]>::to_vec)), place)
}

fn service_job(search: &mut Search) -> Option<Job> {
    let settings = search.settings(SOURCE.name)?;
    let url = settings.get("metadata_url").and_then(Value::text).filter(|url| !url.is_empty())?;
    let oauth = match OAuth::of(settings) {
        Ok(oauth) => oauth,
        Err(e) => {
            search.problem(format!("datasource: {}: {e}; the service is not asked", SOURCE.name));
            return None;
        }
    };
    let fetch = move |client: &Client, url: &str| {
        let get =
            |path: &str| get(client, oauth.as_ref(), &format!("{}/{VERSION}/{path}", url.trim_end_matches('/')), path);
        let instance = instance(&get, url)?;
        Ok(Found { instance, place: url.into() })
    };
    let urls = move |uplink: &Uplink| if uplink.reaches(&url) { vec![url.clone()] } else { Vec::new() };
    Some(Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name)))
}

/// A document of the service. None if it does not exist.
fn get(client: &Client, oauth: Option<&OAuth>, url: &str, path: &str) -> Result<Option<Vec<u8>>> {
    let request = match path {
        ID => Request { retry: &[404], tries: FIRST_TRIES, ..Request::get(url) },
        _ => Request::get(url),
    };
    let reply = match oauth {
        Some(oauth) => oauth.send(client, &request),
        None => client.send(&request),
    }?;
    match reply.status {
        200..=299 => Ok(Some(reply.body)),
        404 | 410 => Ok(None),
        status => Err(refused("GET", url, status)),
    }
}

/// Builds the instance from documents, which `get` returns by path. `place` names their origin.
fn instance(get: &dyn Fn(&str) -> Result<Option<Vec<u8>>>, place: &str) -> Result<Instance> {
    let text = |path: &str| -> Result<Option<String>> {
        let Some(bytes) = get(path)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{place}: {path}: expected UTF-8")))?;
        Ok(Some(text.trim().to_owned()))
    };
    let missing = |path: &str| Error::new(format!("{place}: expected {path}"));
    let id = text(ID)?.ok_or_else(|| missing(ID))?;
    if !is_id(&id) {
        return Err(Error::new(format!("{place}: {ID}: expected an instance-id: another service answers there")));
    }
    // It may be empty: then the machine gets the default name.
    let hostname = text(HOSTNAME)?.ok_or_else(|| missing(HOSTNAME))?;
    let problems = Problems::new();
    // If it exists and cannot be read that is an error, because the instance would lack it for good.
    let keys = get(KEYS)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let vendor_data = get(VENDOR_DATA)?;
    let user_data = get(USER_DATA)?.filter(|bytes| !bytes.is_empty());
    let vendor_data = vendor_data.map(|bytes| yaml::parse(VENDOR_DATA, &String::from_utf8_lossy(&bytes)));
    let vendor_data = vendor_data.unwrap_or(Ok(Value::Null)).unwrap_or_else(|e| {
        problems.warn(format!("{e}; the boot goes on without it"));
        Value::Null
    });
    let mut metadata = Map::from_iter([("instance-id", id.as_str()), ("local-hostname", hostname.as_str())]);
    if let Some(keys) = &keys {
        metadata.insert("public-keys", keys.as_str());
    }
    Ok(Instance {
        subplatform: format!("seed-dir ({place})"),
        user_data: user_data.map(Bytes::from),
        vendor_data,
        problems,
        ..documents::instance(SOURCE.name, metadata)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::link::http::Findings;
    use crate::link::http::Redirects;
    use crate::link::http::script::{Answer, Script};
    use crate::root::Use;
    use std::sync::Arc;
    use std::time::Duration;

    fn of(documents: &[(&str, &str)]) -> Result<Instance> {
        instance(
            &|path| Ok(documents.iter().find(|(p, _)| *p == path).map(|(_, text)| text.as_bytes().to_vec())),
            "http://maas/",
        )
    }

    #[test]
    fn what_the_documents_say() {
        let both = [(ID, "4y3h7n\n"), (HOSTNAME, "node1")];
        let got = of(&[
            &both[..],
            &[(KEYS, "ssh-rsa A\nssh-rsa B\n"), (VENDOR_DATA, "cloud-init: ['#!/bin/sh']"), (USER_DATA, "u")],
        ]
        .concat());
        let got = got.unwrap();
        assert_eq!((got.instance_id.as_str(), got.local_hostname.as_deref()), ("4y3h7n", Some("node1")));
        assert_eq!((got.public_keys.len(), got.user_data.unwrap()), (2, b"u".to_vec().into()));
        assert_eq!(crate::instance::vendor_document(&got.vendor_data), &Value::List(vec!["#!/bin/sh".into()]));
        assert!(of(&both).unwrap().problems.is_empty());
        let broken = of(&[&both[..], &[(VENDOR_DATA, "{a: ")]].concat()).unwrap();
        assert_eq!((broken.vendor_data, broken.problems.len()), (Value::Null, 1));
        for missing in both {
            assert!(of(&[missing]).is_err());
        }
        assert!(of(&[(ID, "<html>"), both[1]]).is_err() && of(&[(ID, " "), both[1]]).is_err());
        assert_eq!(of(&[both[0], (HOSTNAME, "\n")]).unwrap().local_hostname, None);
        for unreadable in [KEYS, VENDOR_DATA, USER_DATA] {
            let get = |path: &str| match path {
                path if path == unreadable => Err(refused("GET", path, 503)),
                path => Ok(both.iter().find(|(p, _)| *p == path).map(|(_, text)| text.as_bytes().to_vec())),
            };
            assert!(instance(&get, "http://maas/").is_err(), "{unreadable}");
        }
    }

    #[test]
    fn asks_again_while_server_lacks_the_machine() {
        let url = "http://maas/x";
        let script = Script::default().with("GET", url, Answer::new(404, "")).with("GET", url, Answer::new(200, "i"));
        let (script, deadline) = (Arc::new(script), Deadline::after(Duration::from_secs(60)));
        let client = |script: &Arc<Script>| {
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default())
        };
        assert_eq!(get(&client(&script), None, url, ID).unwrap().as_deref(), Some(&b"i"[..]));
        let never = Arc::new(Script::default().with("GET", url, Answer::new(404, "")));
        assert!(get(&client(&never), None, url, USER_DATA).unwrap().is_none());
        assert_eq!(never.sent().len(), 1);
        let refused = Arc::new(Script::default().with("GET", url, Answer::new(401, "")));
        assert!(get(&client(&refused), None, url, KEYS).is_err());
    }

    #[test]
    fn a_folder_of_the_image_needs_no_service() {
        let dir = TempDir::new("maas");
        let search = |files: &[(&str, &str)], config: &str| {
            for (path, text) in files {
                let path = dir.0.join(SEED.trim_start_matches('/')).join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let config = yaml::parse("t", config).unwrap();
            let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
            let found = read(&mut search);
            let has_job = service_job(&mut search).is_some();
            (found, has_job, search.problems().len())
        };
        let (found, has_job, problems) = search(&[], "{}");
        assert!(found.unwrap().is_none() && !has_job && problems == 0);
        let (_, has_job, _) = search(&[], "datasource: {MAAS: {metadata_url: 'http://maas/'}}");
        assert!(has_job);
        let (_, has_job, problems) = search(&[], "datasource: {MAAS: {metadata_url: 'http://maas/', token_key: a}}");
        assert!(!has_job && problems == 1);
        let (found, _, _) = search(&[(USER_DATA, "u")], "{}");
        assert!(found.unwrap_err().to_string().ends_with("expected meta-data/instance-id"));
        let (found, _, _) = search(&[(ID, "i"), (HOSTNAME, "h")], "{}");
        assert_eq!(found.unwrap().unwrap().instance.subplatform, format!("seed-dir ({SEED})"));
    }
}
