//! The EC2 metadata service: a token, a tree of names, user-data, the identity document.
//!
//! Follows the EC2 user guide, "Instance metadata and user data".

use super::tree::{Service, Tokens, VALUE_TRIES};
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, json};
use crate::link::http::{Client, Request};

/// Versions of the tree, newest first; every service has the last.
const VERSIONS: [&str; 4] = ["2021-03-23", "2018-09-24", "2016-09-02", "2009-04-04"];
/// The largest identity document.
const MAX_IDENTITY: usize = 256 << 10;
const TOKENS: Tokens = Tokens { header: "X-aws-ec2-metadata-token", lifetime: "X-aws-ec2-metadata-token-ttl-seconds" };

/// What the service says.
#[derive(Debug, Default)]
pub struct Crawled {
    pub metadata: Map,
    pub user_data: Option<Vec<u8>>,
    /// The identity document; null where there is none.
    pub identity: Value,
    pub problems: Vec<String>,
}

/// Reads everything from the service at `base`. With a token from the start where `needs_token`, as version 2 of the
/// service demands; elsewhere a token is fetched once the service asks for one (401).
///
/// # Errors
///
/// No answer, no token where there must be one, or an answer that is not an EC2 service's.
pub fn crawl(client: &Client, base: &str, needs_token: bool) -> Result<Crawled> {
    let service = Service::new(client, base, Some(&TOKENS));
    if needs_token {
        service.renew("")?;
    }
    let (version, id) = newest(&service, base)?;
    let root = format!("{base}/{version}");
    let mut crawled = Crawled::default();
    let user_data = format!("{root}/user-data");
    let identity = format!("{root}/dynamic/instance-identity/document");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let user_data = service.get(&Request::get(&user_data));
            let limited = Request { limit: MAX_IDENTITY, tries: VALUE_TRIES, ..Request::get(&identity) };
            (user_data, service.get(&limited))
        });
        crawled.metadata = service.tree(&format!("{root}/meta-data"), &id, &mut crawled.problems);
        let Ok((user_data, identity)) = other.join() else { return };
        match user_data {
            Ok(found) => crawled.user_data = found.filter(|b| !b.is_empty()),
            Err(e) => crawled.problems.push(format!("{e}; the boot goes on without user-data")),
        }
        match identity {
            Ok(Some(bytes)) => match json::parse("instance-identity/document", &bytes) {
                Ok(value) => crawled.identity = value,
                Err(e) => crawled.problems.push(e.to_string()),
            },
            Ok(None) => {}
            Err(e) => crawled.problems.push(e.to_string()),
        }
    });
    crawled.metadata.insert("instance-id", id);
    Ok(crawled)
}

/// The newest version that has an instance-id, and the id.
fn newest(service: &Service, base: &str) -> Result<(&'static str, String)> {
    for version in VERSIONS {
        if let Some(id) = service.instance_id(&format!("{base}/{version}/meta-data/instance-id"))? {
            return Ok((version, id));
        }
    }
    Err(Error::new(format!("{base} answers, and has no EC2 metadata")))
}
