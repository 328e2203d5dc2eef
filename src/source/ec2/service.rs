//! The EC2 metadata service: a token, a tree of names, user-data, the identity document.
//!
//! Follows the EC2 user guide, "Instance metadata and user data".

use super::tree::{Service, Tokens, VALUE_TRIES};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::link::http::{Client, Request};

/// Versions of the metadata, newest first. Every service has the last one.
const VERSIONS: [&str; 4] = ["2021-03-23", "2018-09-24", "2016-09-02", "2009-04-04"];
/// How often a version is tried that the service may not have.
const VERSION_TRIES: u32 = 2;
/// The largest identity document, in bytes.
const MAX_IDENTITY: usize = 256 << 10;
const TOKENS: Tokens = Tokens { header: "X-aws-ec2-metadata-token", lifetime: "X-aws-ec2-metadata-token-ttl-seconds" };

/// The service's answers.
#[derive(Debug, Default)]
pub struct Crawled {
    /// The version of the documents.
    pub version: &'static str,
    pub metadata: Map,
    pub user_data: Option<Vec<u8>>,
    /// The identity document; null if there is none.
    pub identity: Value,
    pub problems: Problems,
}

/// Reads everything from the service at `base`. If it `is_aws`, a token is used from the start, as version 2
/// of the service requires, and the identity document is read; otherwise a token is only fetched if the
/// service asks for one (401).
///
/// # Errors
/// No response, no token where one is required, or a response that is not an EC2 service's.
pub fn crawl(client: &Client, base: &str, is_aws: bool) -> Result<Crawled> {
    let service = Service::new(client, base, Some(&TOKENS));
    let (version, id) = newest(&service, base, is_aws)?;
    let root = format!("{base}/{version}");
    let mut crawled = Crawled { version, ..Crawled::default() };
    let control = format!("{root}/meta-data/instance-id");
    let user_data = format!("{root}/user-data");
    let identity = format!("{root}/dynamic/instance-identity/document");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let user_data = service.get(&Request::bounded(&user_data, &control));
            let limited = Request { limit: MAX_IDENTITY, tries: VALUE_TRIES, ..Request::get(&identity) };
            (user_data, if is_aws { service.get(&limited) } else { Ok(None) })
        });
        crawled.metadata = service.tree(&format!("{root}/meta-data"), &id, &crawled.problems);
        let Ok((user_data, identity)) = other.join() else { return };
        match user_data {
            Ok(found) => crawled.user_data = found.filter(|b| !b.is_empty()),
            Err(e) => crawled.problems.warn(format!("{e}; the boot goes on without user-data")),
        }
        match identity {
            Ok(Some(bytes)) => match json::parse("instance-identity/document", &bytes) {
                Ok(value) => crawled.identity = value,
                Err(e) => crawled.problems.warn(e.to_string()),
            },
            Ok(None) => {}
            Err(e) => crawled.problems.warn(e.to_string()),
        }
    });
    crawled.metadata.insert("instance-id", id);
    Ok(crawled)
}

/// The newest version that has an instance-id, and that id. Newer versions are tried only once the service
/// has responded: with a token, or for the oldest version, which every service has. If no version has an
/// instance-id, the oldest is waited for.
fn newest(service: &Service, base: &str, is_aws: bool) -> Result<(&'static str, String)> {
    let ask = |version: &str, tries: u32, first: bool| {
        let url = format!("{base}/{version}/meta-data/instance-id");
        service.instance_id(Request { tries, first, ..Request::get(&url) })
    };
    let [newer @ .., oldest] = VERSIONS;
    let mut known = None;
    if is_aws {
        service.renew("")?;
    } else {
        known = ask(oldest, u32::MAX, false).inspect_err(|e| log::debug!("{e}")).ok();
    }
    for version in newer {
        match ask(version, VERSION_TRIES, false) {
            Ok(id) => return Ok((version, id)),
            Err(e) => log::debug!("{e}"),
        }
    }
    Ok((oldest, known.map_or_else(|| ask(oldest, u32::MAX, true), Ok)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::document::Taken;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Limits, Redirects};
    use std::sync::Arc;
    use std::time::Duration;

    const BASE: &str = "http://169.254.169.254";

    /// The version that is used, how many times it was asked for, and how many requests there were.
    fn version(answers: &[(&str, u16)]) -> (Result<(&'static str, String)>, usize) {
        let script = answers.iter().fold(Script::default(), |script, (version, status)| {
            script.with("GET", &format!("{BASE}/{version}/meta-data/instance-id"), Answer::new(*status, "i-1"))
        });
        let (script, deadline) = (Arc::new(script), Deadline::after(Duration::from_secs(100)));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let client = client.limited(Limits { marked: true, ..Limits::default() });
        let service = Service::new(&client, BASE, Some(&TOKENS));
        (newest(&service, BASE, false), script.sent().len())
    }

    /// What a trust policy measures: each answer of the tree, and not the user-data or the token.
    #[test]
    fn documents_are_listed_by_their_paths() {
        let answer = |script: Script, path: &str, text: &str| {
            script.with("GET", &format!("{BASE}/2021-03-23/{path}"), Answer::new(200, text))
        };
        let tree = [
            ("meta-data/", "user-data\ninstance-id\n"),
            ("meta-data/instance-id", "i-1"),
            ("meta-data/user-data", "not the user's"),
            ("user-data", "#cloud-config\n"),
            ("dynamic/instance-identity/document", "{}"),
        ];
        let script = tree.iter().fold(Script::default(), |script, (path, text)| answer(script, path, text));
        let script = script.with("PUT", &format!("{BASE}/latest/api/token"), Answer::new(200, "token"));
        let deadline = Deadline::after(Duration::from_secs(100));
        let uplink = Uplink::system();
        let client = Client::over(Arc::new(script), &uplink, Redirects::SameOrigin, deadline, &Findings::default());
        let client = client.keeping(Taken::keeping());
        let crawled = crawl(&client, BASE, true).unwrap();
        assert_eq!(crawled.user_data.as_deref(), Some(&b"#cloud-config\n"[..]));
        let raw = client.taken().raw().unwrap();
        let [metadata, network, vendor_data, _] = raw.0;
        assert_eq!((network, vendor_data), (None, None));
        let list = String::from_utf8(metadata.unwrap().to_vec()).unwrap();
        let names: Vec<&str> = list.lines().filter_map(|line| line.get(66..)).collect();
        let expected = [tree[4].0, tree[0].0, tree[1].0, tree[2].0].map(|path| format!("2021-03-23/{path}"));
        assert_eq!(names, expected);
    }

    #[test]
    fn service_may_fail_for_versions_it_lacks() {
        let old = [("2021-03-23", 500), ("2018-09-24", 400), ("2016-09-02", 503)];
        let (found, requests) = version(&[&old[..], &[("2009-04-04", 404), ("2009-04-04", 200)]].concat());
        assert_eq!(found.unwrap(), ("2009-04-04", "i-1".to_owned()));
        assert!(requests < 10, "{requests}");
        let new = [("2021-03-23", 404), ("2018-09-24", 200), ("2009-04-04", 200)];
        assert_eq!(version(&new).0.unwrap().0, "2018-09-24");
        assert_eq!(version(&[("2009-04-04", 404), ("2016-09-02", 200)]).0.unwrap().0, "2016-09-02");
        assert!(version(&[("2009-04-04", 404)]).0.is_err());
    }
}
