//! Requests over the network of the real root: included user-data, remote files, phone-home.

use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::file_url::file_path;
use crate::link::http::{Client, Redirects, Request, Settings, refused};
use crate::root::Root;
use crate::system;
use std::path::PathBuf;
use std::time::Duration;

/// How long getting all included user-data may take, including the wait for the network.
const INCLUDES: Duration = Duration::from_secs(120);
/// How long a document that the server refuses is asked for again.
const REFUSED: Duration = Duration::from_secs(10);
/// How much time each try of a module's request adds.
const TRY: Duration = Duration::from_secs(10);
/// The longest time for a module's request.
const LONGEST: Duration = Duration::from_secs(300);

fn client(deadline: Deadline) -> Result<Client> {
    let settings = Settings { redirects: Redirects::Any, image: Some(PathBuf::from("/")) };
    Client::system(&settings, deadline)
}

/// Sends a module's request. It is repeated after a lost connection or a temporary error status, within the
/// time for `tries` tries.
///
/// # Errors
/// There is no response in time, or its status is not a success.
pub fn send(request: &system::WebRequest, tries: u32) -> Result<Vec<u8>> {
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
        let document = self.ask(url);
        log_findings(&self.0);
        document?.ok_or_else(|| refused("GET", url, 404))
    }

    /// A document may be published only while the machine boots: cloud-init asks 11 times in 10 s, whatever the
    /// status (26.2, user_data.py, `_do_include`).
    fn ask(&self, url: &str) -> Result<Option<Vec<u8>>> {
        let request = Request::get(url);
        let mut reply = self.0.send(&request)?;
        if (400..500).contains(&reply.status) {
            let retry: Vec<u16> = (400..500).collect();
            reply = self.0.send(&Request { retry: &retry, within: Some(REFUSED), ..request.clone() })?;
        }
        reply.document(&request)
    }
}

fn log_findings(client: &Client) {
    for warning in client.findings().take().entries() {
        log::warn!("{warning}");
    }
}

/// The content of a file in the root, for a `file:` URL or an absolute path. None for other URLs.
pub fn local(root: &Root, url: &str) -> Option<Result<Vec<u8>>> {
    let path = file_path(url)?;
    Some(
        root.read(path)
            .and_then(|c| c.ok_or_else(|| Error::new(format!("failed to read {path}: there is no such file")))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Transport};
    use crate::root::{Attr, Use};
    use std::sync::Arc;

    const URL: &str = "http://h.example/x";

    #[test]
    fn recognises_each_form_of_a_local_path() {
        let dir = TempDir::new("local-includes");
        let mut root = dir.root(Use::Tree);
        root.write("/opt/x.cfg", "x", Attr::root(0o644)).unwrap();
        for url in
            ["/opt/x.cfg", "file:///opt/x.cfg", "FILE:///opt/x.cfg", "file:/opt/x.cfg", "file://localhost/opt/x.cfg"]
        {
            assert_eq!(local(&root, url).unwrap().unwrap(), b"x", "{url}");
        }
        assert!(local(&root, "/opt/none").unwrap().is_err());
        for url in [URL, "opt/x.cfg", "files:///opt/x.cfg", ""] {
            assert!(local(&root, url).is_none(), "{url}");
        }
    }

    #[test]
    fn asks_again_for_a_missing_document() {
        let get = |answers: &[u16]| {
            let all = answers.iter().map(|status| Answer::new(*status, "x"));
            let script = Arc::new(all.fold(Script::default(), |script, answer| script.with("GET", URL, answer)));
            let before = script.now();
            let deadline = Deadline::after(INCLUDES);
            let client =
                Client::over(script.clone(), &Uplink::system(), Redirects::Any, deadline, &Findings::default());
            let got = Includes(client).get(URL).map_err(|e| e.to_string());
            (got, script.sent().len(), script.now().duration_since(before).unwrap().as_secs())
        };
        assert_eq!(get(&[200]), (Ok(b"x".to_vec()), 1, 0));
        let (got, tries, _) = get(&[404, 403, 451, 200]);
        assert_eq!((got, tries), (Ok(b"x".to_vec()), 4));
        for status in [401, 404, 418, 499] {
            let (got, tries, seconds) = get(&[status]);
            assert!(got.unwrap_err().contains(&status.to_string()));
            assert!((5..=12).contains(&tries) && (3..=10).contains(&seconds), "{status}: {tries} tries, {seconds} s");
        }
    }
}
