//! Requests over the network of the real root: included user-data, remote files, phone-home.

use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::link::http::{Client, Redirects, Request, Settings, ca_files, refused};
use crate::root::Root;
use crate::system;
use std::path::Path;
use std::time::Duration;

/// How long getting all included user-data may take, including the wait for the network.
const INCLUDES: Duration = Duration::from_secs(120);
/// How much time each try of a module's request adds.
const TRY: Duration = Duration::from_secs(10);
/// The longest time for a module's request.
const LONGEST: Duration = Duration::from_secs(300);

fn client(deadline: Deadline) -> Result<Client> {
    let settings = Settings { redirects: Redirects::Any, ca_files: ca_files(Path::new("/")) };
    Client::system(&settings, deadline)
}

/// Sends a module's request. It is repeated after a lost connection or a temporary error status, within the
/// time for `tries` tries.
///
/// # Errors
/// There is no response in time, or its status is not a success.
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
    /// Starts the deadline.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn new() -> Result<Includes> {
        Ok(Includes(client(Deadline::after(INCLUDES))?))
    }

    /// The document at an http or https URL.
    ///
    /// # Errors
    /// There is no response in time, or no such document.
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

/// The content of a `file://` URL in the root. None for other URLs.
pub fn local(root: &Root, url: &str) -> Option<Result<Vec<u8>>> {
    let path = url.strip_prefix("file://")?;
    Some(
        root.read(path)
            .and_then(|c| c.ok_or_else(|| Error::new(format!("failed to read {path}: there is no such file")))),
    )
}
