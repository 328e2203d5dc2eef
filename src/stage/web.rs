//! Requests over the network in the real root: included user-data, remote files, phone-home.

use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::link::http::{Client, Redirects, Request, Settings, ca_files, refused};
use crate::root::Root;
use crate::system;
use std::path::Path;
use std::time::Duration;

/// How long included user-data may take, the wait for a network with it.
const INCLUDES: Duration = Duration::from_secs(120);
/// What one try of a module's request adds to the time it has.
const TRY: Duration = Duration::from_secs(10);
/// The longest that a module's request may take.
const LONGEST: Duration = Duration::from_secs(300);

fn client(deadline: Deadline) -> Result<Client> {
    let settings = Settings { redirects: Redirects::Any, ca_files: ca_files(Path::new("/")) };
    Client::system(&settings, deadline)
}

/// Sends a module's request: again after an answer that says "later" and after a lost connection, for as long as `tries` tries take.
pub fn send(request: &system::Request, tries: u32) -> Result<Vec<u8>> {
    let client = client(Deadline::after((TRY * tries.max(1)).min(LONGEST)))?;
    let headers: Vec<(&str, &str)> = request.headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let reply = client.send(&Request {
        method: request.method,
        headers: &headers,
        body: &request.body,
        limit: request.limit,
        tries,
        ..Request::get(&request.url)
    });
    log_findings(&client);
    let reply = reply?;
    match reply.status {
        200..=299 => Ok(reply.body),
        status => Err(refused(request.method, &request.url, status)),
    }
}

/// Gets included documents, all within one deadline.
pub struct Includes(Client);

impl Includes {
    /// A getter whose time begins now.
    pub fn new() -> Result<Includes> {
        Ok(Includes(client(Deadline::after(INCLUDES))?))
    }

    /// The document at an http or https URL.
    pub fn get(&self, url: &str) -> Result<Vec<u8>> {
        let document = self.0.get(url);
        log_findings(&self.0);
        document?.ok_or_else(|| refused("GET", url, 404))
    }
}

fn log_findings(client: &Client) {
    for warning in client.findings().take().entries() {
        log::warn!("{warning}");
    }
}

/// A `file://` URL's content, from the root. None where the URL is of another kind.
pub fn local(root: &Root, url: &str) -> Option<Result<Vec<u8>>> {
    let path = url.strip_prefix("file://")?;
    Some(
        root.read(path)
            .and_then(|c| c.ok_or_else(|| Error::new(format!("failed to read {path}: there is no such file")))),
    )
}
