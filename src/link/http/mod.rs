//! HTTP for metadata services, seeds and reports (RFC 9110, RFC 9112).
//!
//! A [`Client`] is the policy: repeats, redirects, deadlines. What carries a request is a [`Transport`]: the network, or a
//! script in a test. A datasource's code sees the client only, so it is the same in the initramfs, in the real root and in
//! the conformance tests.

mod client;
mod network;
pub mod oauth;
#[doc(hidden)]
pub mod script;

pub use client::{Client, Limits, refused};

use super::uplink::Uplink;
pub use super::url::{Redirects, said};
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::report::Report;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The largest body that is read, in bytes, unless a request sets a lower limit.
pub const MAX_BODY: usize = 16 << 20;

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// `GET`, `PUT`, … Only a GET follows redirects.
    pub method: &'a str,
    /// An http or https URL. The zone of a link-local address is ignored: the uplink decides the link.
    pub url: &'a str,
    /// Names and values. A `Host` replaces the URL's. None of them follows a redirect to another origin.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// The largest body of an answer that is accepted, in bytes.
    pub limit: usize,
    /// How often it is sent at most. The deadline may end it earlier.
    pub tries: u32,
    /// How long one attempt may take. None: 30 s. The image's `timeout` setting ([`Limits::attempt`]) takes precedence.
    pub timeout: Option<Duration>,
    /// How long all tries may take together; the last one may end later. A service that limits its rate (429) has longer. None:
    /// until the deadline.
    pub within: Option<Duration>,
    /// A document that the service has given before. Where the service turns this request away (503) and gives that one each
    /// time, the request ends. None: a request that is turned away is sent until the deadline.
    pub control: Option<&'a str>,
    /// Statuses that are asked again like a lost connection, besides 408, 429, 500, 502, 503 and 504.
    pub retry: &'a [u16],
    /// Whether it is what the service is known by: one that answers 4xx, or nothing, may not know the machine yet, and is asked
    /// again like one that does not answer, where there is reason to wait for it ([`Limits::marked`]). Not 401, which asks for
    /// credentials.
    pub first: bool,
    /// The local TCP port, for services that answer only privileged ports (Scaleway: 1 to 1023). None: any.
    pub source_port: Option<u16>,
}

impl<'a> Request<'a> {
    /// A GET of a document of at most [`MAX_BODY`], repeated until the deadline.
    pub fn get(url: &'a str) -> Self {
        Request {
            method: "GET",
            url,
            headers: &[],
            body: &[],
            limit: MAX_BODY,
            tries: u32::MAX,
            timeout: None,
            within: None,
            control: None,
            retry: &[],
            first: false,
            source_port: None,
        }
    }

    /// A GET of the document that a service is known by ([`Request::first`]).
    pub fn first(url: &'a str) -> Self {
        Request { first: true, ..Request::get(url) }
    }

    /// A POST of `body`, repeated until the deadline.
    pub fn post(url: &'a str, body: &'a [u8]) -> Self {
        Request { method: "POST", body, ..Request::get(url) }
    }

    /// A PUT of `body`, repeated until the deadline.
    pub fn put(url: &'a str, body: &'a [u8]) -> Self {
        Request { method: "PUT", body, ..Request::get(url) }
    }
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case and values, in the order of the answer.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The address that answered. None over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// This machine's own address on the connection. None over a Unix socket.
    pub local: Option<IpAddr>,
}

impl Reply {
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Why an attempt gave no answer.
#[derive(Debug, Clone)]
pub enum Failure {
    /// No answer: refused, unreachable, timed out, lost. Asked again until the deadline.
    Silent(String),
    /// The answer was not HTTP, or the host name has no address. Asked again a few times.
    Invalid(String),
    /// A repeated request would fail again.
    Final(Error),
}

/// What carries requests.
pub trait Transport: Send + Sync {
    /// Sends a request once and reads its answer, whatever its status, within `timeout`. Redirects are not followed.
    ///
    /// # Errors
    /// There was no answer, or none that is acceptable.
    fn exchange(&self, request: &Request, timeout: Duration) -> Result<Reply, Failure>;

    /// The addresses of a host name, within `timeout`. Empty if it has none.
    fn resolve(&self, name: &str, timeout: Duration) -> Vec<IpAddr>;

    /// Waits. False if the wait was cancelled.
    fn wait(&self, time: Duration) -> bool;

    /// How long there is until `deadline`.
    fn left(&self, deadline: Deadline) -> Duration {
        deadline.left()
    }

    /// The time of day.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// How clients are made.
#[derive(Debug, Clone)]
pub struct Settings {
    pub redirects: Redirects,
    /// Files of CA certificates in PEM. The first that exists is read, once https is asked for.
    pub ca_files: Vec<PathBuf>,
}

/// Where distributions keep the certificates of the authorities that they trust, in one file. None of them is a symbolic link:
/// they are read from a root that may not be `/`.
const CA_FILES: [&str; 5] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "var/lib/ca-certificates/ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];

/// The certificate files of the root at `path`.
pub fn ca_files(path: &Path) -> Vec<PathBuf> {
    CA_FILES.iter().map(|file| path.join(file)).collect()
}

/// What the clients of one search share: how many requests they sent, and their warnings.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU32,
    report: Mutex<Report>,
}

impl Findings {
    /// How many requests were sent, repeats and redirects included.
    pub fn requests(&self) -> u32 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Takes the warnings since the last call.
    pub fn take(&self) -> Report {
        std::mem::take(&mut *self.report())
    }

    /// Adds a warning.
    pub fn warn(&self, text: impl std::fmt::Display) {
        self.report().warn(text);
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.0.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }
}
