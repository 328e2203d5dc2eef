//! HTTP for metadata services, seeds and reports (RFC 9110, RFC 9112).
//!
//! [`Client`] has the policy: repeats, redirects, deadlines. A [`Transport`] carries a request: over the
//! network, or in a test from a script. A datasource only sees the client, so its code is the same in the
//! initramfs, in the real root and in the conformance tests.

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
use crate::base::problem::Problems;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The largest body that is read, in bytes, unless a request sets a lower limit.
pub const MAX_BODY: usize = 16 << 20;

/// How often and how long a document is tried before the boot continues without it: the service exists, but one of its documents
/// may fail permanently.
const TRIES: u32 = 7;
pub const WITHIN: Duration = Duration::from_secs(20);
/// How long one such try may take. For dynamic vendor-data nova waits for other services (5 s each by default).
const OPTIONAL_ATTEMPT: Duration = Duration::from_secs(12);

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// `GET`, `PUT`, … Only a GET follows redirects.
    pub method: &'a str,
    /// An http or https URL. The zone of a link-local address is ignored: the uplink decides the link.
    pub url: &'a str,
    /// Names and values. A `Host` replaces the URL's. None is sent to another origin after a redirect.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// The largest accepted body of a response, in bytes.
    pub limit: usize,
    /// The most times that it is sent. The deadline may end it earlier.
    pub tries: u32,
    /// How long one attempt may take. None: 30 s. The image's `timeout` setting ([`Limits::attempt`]) takes precedence.
    pub timeout: Option<Duration>,
    /// How long all tries may take together; the last one may end later. A request that is rate-limited (429)
    /// has longer. None: until the deadline.
    pub within: Option<Duration>,
    /// The URL of a document that the service has served before. If the service turns this request away (503)
    /// but serves that one in turn with it, each time, the request ends. None: it is repeated until the deadline.
    pub control: Option<&'a str>,
    /// Statuses that are repeated like a lost connection, besides 408, 429, 500, 502, 503 and 504.
    pub retry: &'a [u16],
    /// Whether this is the document that identifies the service. A service that returns 4xx (but not
    /// 401, which asks for credentials) or an empty body may not know the machine yet; if there is reason to
    /// wait for it ([`Limits::marked`]), it is asked again like one that does not answer.
    pub first: bool,
    /// The local TCP port, for services that only answer privileged ports (Scaleway: 1 to 1023). None: any.
    pub source_port: Option<u16>,
}

impl<'a> Request<'a> {
    /// A GET, repeated until the deadline.
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

    /// A GET of the document that identifies a service ([`Request::first`]).
    pub fn first(url: &'a str) -> Self {
        Request { first: true, ..Request::get(url) }
    }

    /// A GET of an optional document of a service that has served `control`: the boot goes on without it if it fails for good.
    pub fn bounded(url: &'a str, control: &'a str) -> Self {
        Request {
            tries: TRIES,
            timeout: Some(OPTIONAL_ATTEMPT),
            within: Some(WITHIN),
            control: Some(control),
            ..Request::get(url)
        }
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

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case and values, in the order of the response.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The address of the server. None over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// This machine's address on the connection. None over a Unix socket.
    pub local: Option<IpAddr>,
}

impl Reply {
    /// The body of a successful response to `request`; None if the document does not exist (404, or 410).
    ///
    /// # Errors
    /// Any other status. The message names the URL without its query and credentials.
    pub fn document(self, request: &Request) -> crate::base::error::Result<Option<Vec<u8>>> {
        match self.status {
            200..=299 => Ok(Some(self.body)),
            404 | 410 => Ok(None),
            status => Err(refused(request.method, request.url, status)),
        }
    }

    /// The first header with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Why an attempt gave no response.
#[derive(Debug, Clone)]
pub enum Failure {
    /// No response: refused, unreachable, timed out, lost. Repeated until the deadline.
    Silent(String),
    /// The response was not HTTP. Repeated a few times.
    Invalid(String),
    /// The host name has no address. Repeated a few times.
    Nameless(String),
    /// Repeating the request would fail again.
    Final(Error),
}

/// The transport of requests.
pub trait Transport: Send + Sync {
    /// Sends a request once and reads the response, whatever its status, within `timeout`. Redirects are not
    /// followed.
    ///
    /// # Errors
    /// There was no response, or an unacceptable one.
    fn exchange(&self, request: &Request, timeout: Duration) -> Result<Reply, Failure>;

    /// The addresses of a host name, within `timeout`. Empty if it has none.
    fn resolve(&self, name: &str, timeout: Duration) -> Vec<IpAddr>;

    /// Waits. Returns false if cancelled.
    fn wait(&self, time: Duration) -> bool;

    /// The time left until `deadline`.
    fn left(&self, deadline: Deadline) -> Duration {
        deadline.left()
    }

    /// The time of day.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// How a client is created.
#[derive(Debug, Clone)]
pub struct Settings {
    pub redirects: Redirects,
    /// The root whose CA certificates, and the machine's own, are used. They are read when https is first needed.
    pub image: Option<PathBuf>,
}

/// Shared by the clients of one search: the number of requests, and the warnings.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU32,
    problems: Problems,
}

impl Findings {
    /// How many requests were sent, including repeats and redirects.
    pub fn requests(&self) -> u32 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Takes the warnings since the last call.
    pub fn take(&self) -> Problems {
        self.0.problems.take()
    }

    /// Adds a warning.
    pub fn warn(&self, text: impl std::fmt::Display) {
        self.0.problems.warn(text);
    }

    fn count(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }
}
