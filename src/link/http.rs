//! HTTP for metadata services and seeds: one client for each way, with the stage's deadline.
//!
//! No proxy from the environment, bounded bodies, connections kept between requests, repeats with a back-off that
//! spreads machines. A missing document is no value, not an error.

use super::dns::WayResolver;
use super::rng::Rng;
use super::tcp::LinkConnector;
use super::url::{redirected, said, unscoped};
use super::way::Way;
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Uri, header::HeaderMap};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::{Connector, RustlsConnector};

/// The largest document that is read, in bytes, unless a request says less.
pub const MAX_BODY: usize = 16 << 20;
/// How long a service may take to accept a connection, and for one whole attempt.
const CONNECT: Duration = Duration::from_secs(10);
const ATTEMPT: Duration = Duration::from_secs(30);
/// The first wait before a repeat; doubled each time up to the longest, each time by a random factor.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);
/// How often an answer that makes no sense is asked for again.
const MAX_GARBAGE: u32 = 3;
const MAX_REDIRECTS: u32 = 5;
/// The answers that are worth a repeat: those by which a service says "later".
const TRANSIENT: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// Every request says who asks, as cloud-init does.
const USER_AGENT: &str = concat!("prepivot/", env!("CARGO_PKG_VERSION"));

/// Where a redirect may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// To the same scheme, host and port only: a metadata service's.
    SameOrigin,
    /// Anywhere over HTTP, never from https to http: a seed's, an include's.
    Any,
}

/// How clients are made.
#[derive(Debug, Clone)]
pub struct Settings {
    pub redirects: Redirects,
    /// Files of CA certificates in PEM; the first that exists is read, and only once https is asked for.
    pub ca_files: Vec<PathBuf>,
}

/// Where distributions keep the certificates of the authorities that they trust, in one file. No symbolic links among them:
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

/// What an image's owner says about how long a service is asked. None: as everywhere. The deadline counts above all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long the service is looked for before it has answered once. Zero: one request, and those that it asks for by
    /// `Retry-After`.
    pub search: Option<Duration>,
    /// How long one attempt may take.
    pub attempt: Option<Duration>,
    /// How often a document is asked for again once the service has answered.
    pub retries: Option<u32>,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// The largest body that is taken, in bytes.
    pub limit: usize,
    /// How often it is sent at most; the deadline ends it before.
    pub tries: u32,
}

impl<'a> Request<'a> {
    /// A GET of a document of at most [`MAX_BODY`], repeated until the deadline.
    pub fn get(url: &'a str) -> Self {
        Request { method: "GET", url, headers: &[], body: &[], limit: MAX_BODY, tries: u32::MAX }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Asks by one way. May be shared between threads.
pub struct Client {
    way: Way,
    cancel: Cancel,
    deadline: Deadline,
    settings: Settings,
    plain: Agent,
    tls: Arc<OnceLock<Result<Agent>>>,
    rng: Arc<Mutex<Rng>>,
    requests: Arc<AtomicU32>,
    limits: Limits,
    /// When the search for the service ends, and whether it has: the service has answered.
    search: Deadline,
    answered: AtomicBool,
}

/// Why an attempt came to nothing.
enum Failure {
    /// Worth a repeat.
    Silence(String),
    /// Worth a few repeats.
    Garbage(String),
    Final(Error),
}

impl Client {
    /// A client that asks by `way` until `deadline` or `cancel`; each attempt is counted in `requests`.
    pub fn new(way: &Way, settings: &Settings, deadline: Deadline, cancel: Cancel, requests: Arc<AtomicU32>) -> Self {
        let connector = LinkConnector { link: way.link.clone(), cancel: cancel.clone(), connect: CONNECT };
        let resolver = WayResolver { way: way.clone(), cancel: cancel.clone() };
        let plain = Agent::with_parts(config().build(), connector, resolver);
        Client {
            way: way.clone(),
            cancel,
            deadline,
            settings: settings.clone(),
            plain,
            tls: Arc::default(),
            rng: Arc::new(Mutex::new(Rng::new(way.name().as_bytes()))),
            requests,
            limits: Limits::default(),
            search: deadline,
            answered: AtomicBool::new(false),
        }
    }

    /// The same client for one service, whose search begins now.
    pub fn limited(&self, limits: Limits) -> Client {
        Client {
            way: self.way.clone(),
            cancel: self.cancel.clone(),
            deadline: self.deadline,
            settings: self.settings.clone(),
            plain: self.plain.clone(),
            tls: self.tls.clone(),
            rng: self.rng.clone(),
            requests: self.requests.clone(),
            limits,
            search: limits.search.filter(|s| !s.is_zero()).map_or(self.deadline, |s| self.deadline.at_most(s)),
            answered: AtomicBool::new(false),
        }
    }

    /// The tries and the time that a request has now.
    fn bounds(&self, request: &Request) -> (u32, Deadline) {
        match (self.answered.load(Ordering::Relaxed), self.limits) {
            (false, Limits { search: Some(Duration::ZERO), .. }) => (1, self.search),
            (false, _) => (request.tries, self.search),
            (true, Limits { retries: Some(retries), .. }) => (retries.saturating_add(1), self.deadline),
            (true, _) => (request.tries, self.deadline),
        }
    }

    /// The way that this client asks by.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// How many requests were sent so far, repeats and redirects included, by all clients that share the count.
    pub fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// A document; None where there is none (404). Repeats as [`Client::send`] does.
    ///
    /// An error names the URL (never its query or credentials) and the last thing that went wrong.
    pub fn get(&self, url: &str) -> Result<Option<Vec<u8>>> {
        self.document(&Request::get(url))
    }

    /// What a request gives; None where there is none (404, and 410 for what was there once).
    pub fn document(&self, request: &Request) -> Result<Option<Vec<u8>>> {
        let reply = self.send(request)?;
        match reply.status {
            200..=299 => Ok(Some(reply.body)),
            404 | 410 => Ok(None),
            status => Err(refused(request.method, request.url, status)),
        }
    }

    /// Sends a request until it is answered: with any status but those that say "later" (408, 429, 500, 502, 503, 504),
    /// which are asked again, as lost connections are, until the deadline. `Retry-After` is honoured where it ends before.
    pub fn send(&self, request: &Request) -> Result<Reply> {
        let (mut tries, mut garbage) = (0u32, 0);
        loop {
            let (most, deadline) = self.bounds(request);
            let (reason, after) = match self.follow(request, deadline) {
                Ok(reply) if !TRANSIENT.contains(&reply.status) => {
                    self.answered.store(true, Ordering::Relaxed);
                    return Ok(reply);
                }
                Ok(reply) => (status_text(reply.status), retry_after(&reply.headers)),
                Err(Failure::Silence(reason)) => (reason, None),
                Err(Failure::Garbage(reason)) => {
                    garbage += 1;
                    (reason, None)
                }
                Err(Failure::Final(e)) => return Err(e.context(said(request.method, request.url))),
            };
            tries += 1;
            let wait = self.backoff(tries, after);
            let invited = after.is_some() && !self.answered.load(Ordering::Relaxed) && request.tries > tries;
            let give_up = garbage >= MAX_GARBAGE || (tries >= most && !invited) || wait >= deadline.left();
            if give_up || !self.cancel.wait(wait) {
                let asked = if tries == 1 { "1 try".into() } else { format!("{tries} tries") };
                return Err(Error::new(format!("{}: {reason} ({asked})", said(request.method, request.url))));
            }
            log::debug!("{}: {reason}; asking again", said(request.method, request.url));
        }
    }

    fn backoff(&self, tries: u32, after: Option<Duration>) -> Duration {
        let spread = self.rng.lock().map_or(1.0, |mut rng| rng.between(0.5, 1.5));
        let wait = FIRST_BACKOFF.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_BACKOFF).mul_f64(spread);
        // What the server asks for is a minimum; the random part keeps those apart that it turned away together.
        after.map_or(wait, |after| after.saturating_add(wait.min(Duration::from_secs(1))))
    }

    fn follow(&self, request: &Request, deadline: Deadline) -> std::result::Result<Reply, Failure> {
        let mut url = request.url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.attempt(request, &url, deadline)?;
            if !matches!(reply.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(reply);
            }
            let location = reply.headers.get("location").and_then(|l| l.to_str().ok()).unwrap_or_default();
            let next = redirected(&url, location, self.settings.redirects).map_err(Failure::Final)?;
            if request.method != "GET" {
                return Err(Failure::Final(Error::new("redirected, which only a GET may be")));
            }
            url = next;
        }
        Err(Failure::Final(Error::new(format!("redirected more than {MAX_REDIRECTS} times"))))
    }

    fn agent(&self, https: bool) -> Result<&Agent> {
        if !https {
            return Ok(&self.plain);
        }
        self.tls.get_or_init(|| self.tls_agent()).as_ref().map_err(Clone::clone)
    }

    fn tls_agent(&self) -> Result<Agent> {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(super::tls::provider()))
            .root_certs(RootCerts::Specific(Arc::new(self.certificates()?)))
            .build();
        let connector = LinkConnector { link: self.way.link.clone(), cancel: self.cancel.clone(), connect: CONNECT };
        let resolver = WayResolver { way: self.way.clone(), cancel: self.cancel.clone() };
        let config = config().tls_config(tls).build();
        Ok(Agent::with_parts(config, connector.chain(RustlsConnector::default()), resolver))
    }

    fn certificates(&self) -> Result<Vec<ureq::tls::Certificate<'static>>> {
        let files = &self.settings.ca_files;
        let Some((path, pem)) = files.iter().find_map(|p| Some((p, std::fs::read(p).ok()?))) else {
            let names: Vec<_> = files.iter().map(|p| p.display().to_string()).collect();
            return Err(Error::new(format!("https needs the CA certificates: none of {} is there", names.join(", "))));
        };
        let items = ureq::tls::parse_pem(&pem).filter_map(std::result::Result::ok);
        let certificates: Vec<_> = items
            .filter_map(|item| if let ureq::tls::PemItem::Certificate(c) = item { Some(c) } else { None })
            .collect();
        if certificates.is_empty() {
            return Err(Error::new(format!("{}: no PEM certificate in it", path.display())));
        }
        Ok(certificates)
    }

    /// One exchange.
    fn attempt(&self, request: &Request, url: &str, deadline: Deadline) -> std::result::Result<Reply, Failure> {
        let uri: Uri = unscoped(url).parse().map_err(|_| Failure::Final(Error::new("not a valid URL")))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(Failure::Final(Error::new("not an http or https URL"))),
        };
        let agent = self.agent(https).map_err(Failure::Final)?;
        let budget = deadline.left().min(self.limits.attempt.unwrap_or(ATTEMPT));
        if budget.is_zero() {
            return Err(Failure::Silence("the deadline has passed".into()));
        }
        let mut builder = ureq::http::Request::builder().method(request.method).uri(uri);
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let with_body = !request.body.is_empty() || !matches!(request.method, "GET" | "HEAD" | "DELETE");
        let sent = if with_body {
            let whole = builder.body(request.body).context(|| "not a valid request").map_err(Failure::Final)?;
            agent.run(agent.configure_request(whole).timeout_global(Some(budget)).build())
        } else {
            let whole = builder.body(()).context(|| "not a valid request").map_err(Failure::Final)?;
            agent.run(agent.configure_request(whole).timeout_global(Some(budget)).build())
        };
        let mut response = sent.map_err(|e| failure(e, budget))?;
        let too_large =
            || Failure::Final(Error::new(format!("larger than {} bytes, the most that is read", request.limit)));
        if response.body().content_length().is_some_and(|len| len > request.limit as u64) {
            return Err(too_large());
        }
        let read = response.body_mut().with_config().limit(request.limit as u64).read_to_vec();
        let body = match read {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => return Err(too_large()),
            Err(e) => return Err(failure(e, budget)),
        };
        Ok(Reply { status: response.status().as_u16(), headers: response.headers().clone(), body })
    }
}

fn config() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(USER_AGENT)
        .input_buffer_size(16 << 10)
        .output_buffer_size(8 << 10)
        .max_response_header_size(32 << 10)
}

fn failure(error: ureq::Error, budget: Duration) -> Failure {
    match error {
        ureq::Error::Io(e) => Failure::Silence(e.to_string()),
        ureq::Error::Timeout(_) => Failure::Silence(format!("no whole answer in {:.1} s", budget.as_secs_f64())),
        ureq::Error::ConnectionFailed => Failure::Silence("no connection".into()),
        ureq::Error::HostNotFound => Failure::Garbage("the host name was not found".into()),
        ureq::Error::Protocol(e) => Failure::Garbage(format!("not an HTTP answer: {e}")),
        e => Failure::Final(Error::new(e.to_string())),
    }
}

fn status_text(status: u16) -> String {
    let reason = ureq::http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    format!("{status} {}", reason.unwrap_or("")).trim_end().into()
}

/// The error for a final status.
pub fn refused(method: &str, url: &str, status: u16) -> Error {
    Error::new(format!("{}: {}", said(method, url), status_text(status)))
}

/// Seconds, or nothing: a date would need a clock that an initramfs may not have.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
