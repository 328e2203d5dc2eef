//! The HTTP client's policy: when a request is repeated, where a redirect may lead, and when to stop.

use super::network::Network;
use super::{Failure, Findings, Redirects, Reply, Request, Settings, Transport, Uplink};
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::base::logging;
use crate::document::Taken;
use crate::link::rng::Rng;
use crate::link::url::{path_and_query, redirected, said, same_origin};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long one attempt may take, unless the request or the image's settings say otherwise.
const ATTEMPT: Duration = Duration::from_secs(30);
/// The first wait before a repeat. It doubles each time, up to the longest wait, and is varied by a random
/// factor.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);
/// How often an invalid response is asked for again.
const MAX_INVALID: u32 = 3;
const MAX_REDIRECTS: u32 = 5;
/// The waits after the service turned this machine away (429, 503), by how often it did; the last is repeated. Each is drawn from its
/// range, in milliseconds. The first two are for a service that has only just started. Then the service has more machines than it can
/// answer, and this one asks again when others are done. The last two ranges are narrow, because the machine that waits longest
/// decides when the last one is done. `tests/net/rack` compares policies with a model of 10,000 machines.
const AWAY: [[u64; 2]; 4] = [[500, 1_500], [2_000, 6_000], [28_000, 36_000], [10_000, 16_000]];
/// The least number of tries for a request that the service rate-limits (429).
const RATE_TRIES: u32 = 10;
/// For a document with a time limit of its own ([`Request::within`]) that the service turns away (503): how
/// long, and how often at least, it is asked for before another document is asked for as a control, and again
/// after twice that time; how often in a row the control must succeed and the document fail; and the backoff in
/// between (as after two tries, 0.25 s to 0.75 s). A service that turns away a part of all requests does both
/// in a quarter of the cases at most, so that ten times in a row is no chance.
const CHECK_AFTER: Duration = Duration::from_millis(2500);
const CHECK_TRIES: u32 = 3;
const CHECKS: u32 = 10;
const CHECK_BACKOFF: u32 = 2;
/// The statuses on which a request is repeated.
const TRANSIENT: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// A response that takes longer than this, including repeats, is worth a warning.
const SLOW: Duration = Duration::from_secs(10);

/// The image's settings for how long a service is asked. None: the default. The deadline applies in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long to look for a service that has not answered yet. Zero: one request, plus repeats that it asks
    /// for with `Retry-After`.
    pub search: Option<Duration>,
    /// How long one attempt may take.
    pub attempt: Option<Duration>,
    /// How often a document is asked for again, once the service has answered at all.
    pub retries: Option<u32>,
    /// How long to wait before a document is asked for again, instead of longer each time; [`FIRST_BACKOFF`] at least.
    pub between: Option<Duration>,
    /// Whether the machine has a mark of the service. Then a response that it does not know the machine is
    /// asked for again, because it soon will.
    pub marked: bool,
}

/// How a service has turned a machine away.
#[derive(Debug, Default)]
struct Turn {
    /// How often it did.
    times: usize,
    /// Whether it turned away single documents while it served others.
    only_some: bool,
}

/// An HTTP client on one uplink. It can be shared between threads.
pub struct Client {
    uplink: Uplink,
    transport: Arc<dyn Transport>,
    redirects: Redirects,
    findings: Findings,
    rng: Arc<Mutex<Rng>>,
    /// Locked by a request that waits to be repeated after the service turned it away, so that only one does.
    turn: Arc<Mutex<Turn>>,
    deadline: Deadline,
    limits: Limits,
    /// When the search for the service ends; and whether the search is over because the service has answered.
    search: Deadline,
    answered: AtomicBool,
    /// Whether this client, or one that it was limited from or to, got any reply, even "retry later".
    heard: Arc<AtomicBool>,
    /// Notes the documents of answers.
    taken: Taken,
}

impl Client {
    /// A client that uses `uplink`, until `deadline` or until `cancel`.
    pub fn new(uplink: &Uplink, settings: &Settings, deadline: Deadline, cancel: Cancel, findings: &Findings) -> Self {
        let network = Network::new(uplink, settings.image.clone(), cancel);
        Client::over(Arc::new(network), uplink, settings.redirects, deadline, findings)
    }

    /// A client for the real root, which uses the system's own network until `deadline`.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn system(settings: &Settings, deadline: Deadline) -> Result<Self> {
        let cancel = Cancel::new().context(|| "failed to set up HTTP")?;
        Ok(Client::new(&Uplink::system(), settings, deadline, cancel, &Findings::default()))
    }

    /// A client of the Unix stream socket at `path`, until `deadline`.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn socket(path: &Path, deadline: Deadline) -> Result<Self> {
        let cancel = Cancel::new().context(|| "failed to set up HTTP")?;
        let settings = Settings { redirects: Redirects::SameOrigin, image: None };
        Ok(Client::new(&Uplink::socket(path), &settings, deadline, cancel, &Findings::default()))
    }

    /// A client with any transport.
    pub fn over(
        transport: Arc<dyn Transport>,
        uplink: &Uplink,
        redirects: Redirects,
        deadline: Deadline,
        findings: &Findings,
    ) -> Self {
        Client {
            uplink: uplink.clone(),
            transport,
            redirects,
            findings: findings.clone(),
            rng: Arc::new(Mutex::new(Rng::new(uplink.name().as_bytes()))),
            turn: Arc::default(),
            deadline,
            limits: Limits::default(),
            search: deadline,
            answered: AtomicBool::new(false),
            heard: Arc::default(),
            taken: Taken::default(),
        }
    }

    /// The same client, limited to one service by the image's settings. The search for the service starts
    /// now.
    pub fn limited(&self, limits: Limits) -> Client {
        Client {
            uplink: self.uplink.clone(),
            transport: self.transport.clone(),
            redirects: self.redirects,
            findings: self.findings.clone(),
            rng: self.rng.clone(),
            turn: self.turn.clone(),
            deadline: self.deadline,
            limits,
            search: limits.search.filter(|s| !s.is_zero()).map_or(self.deadline, |s| self.deadline.at_most(s)),
            answered: AtomicBool::new(false),
            heard: self.heard.clone(),
            taken: self.taken.clone(),
        }
    }

    /// The same client, which notes the documents that it gets.
    pub fn keeping(mut self, taken: Taken) -> Client {
        self.taken = taken;
        self
    }

    /// The same client for what is no document of the instance, or is noted by the caller.
    pub fn apart(&self) -> Client {
        let mut client = self.limited(self.limits).keeping(Taken::default());
        client.search = self.search;
        client.answered = AtomicBool::new(self.answered.load(Ordering::Relaxed));
        client
    }

    /// Where the documents are noted.
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// The same client, for requests that have to end within `time` although the service is there.
    pub fn within(&self, time: Duration) -> Client {
        let deadline = self.deadline.at_most(time);
        let answered = AtomicBool::new(self.answered.load(Ordering::Relaxed));
        Client { deadline, search: deadline, answered, ..self.limited(self.limits) }
    }

    /// The uplink that this client uses.
    pub fn uplink(&self) -> &Uplink {
        &self.uplink
    }

    /// Set once anything was answered to this client, or to one that it was limited from or to.
    pub fn heard(&self) -> &Arc<AtomicBool> {
        &self.heard
    }

    /// The requests and warnings of this client and of all that share them.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Whether a service that has not answered may be asked more than once: unless the image's `max_wait`
    /// forbids it.
    pub fn is_patient(&self) -> bool {
        self.limits.search != Some(Duration::ZERO)
    }

    /// The addresses of a host name, from the uplink's name servers. Empty if it has none.
    pub fn resolve(&self, name: &str) -> Vec<IpAddr> {
        self.transport.resolve(name, self.transport.left(self.deadline).min(ATTEMPT))
    }

    /// Waits, until the deadline at most. Returns false if the client was cancelled or the deadline has
    /// passed.
    pub fn wait(&self, time: Duration) -> bool {
        let left = self.transport.left(self.deadline);
        self.transport.wait(time.min(left)) && time < left
    }

    /// Waits before a service is asked again for a document that is not ready, longer each time. Returns false
    /// once the search for the service has to end ([`Limits::search`]), or at once if the machine has no mark of the service
    /// ([`Limits::marked`]).
    pub fn wait_for_service(&self, tries: u32) -> bool {
        let wait = self.between(tries.max(1), None);
        self.limits.marked && self.is_patient() && wait < self.transport.left(self.search) && self.transport.wait(wait)
    }

    /// The time of day, for signatures.
    pub fn now(&self) -> SystemTime {
        self.transport.now()
    }

    /// Gets a document; None if it does not exist (404). Repeats as [`Client::send`] does.
    ///
    /// # Errors
    /// As [`Client::document`].
    pub fn get(&self, url: &str) -> Result<Option<Vec<u8>>> {
        self.document(&Request::get(url))
    }

    /// The body of a successful response; None if the document does not exist (404, or 410).
    ///
    /// # Errors
    /// Any other status, or no answer. The message names the URL without its query and credentials.
    pub fn document(&self, request: &Request) -> Result<Option<Vec<u8>>> {
        self.send(request)?.document(request)
    }

    /// Notes the document of an answer, by its path and query.
    fn note(&self, request: &Request, reply: &Reply) {
        if request.method == "GET" && (200..=299).contains(&reply.status) {
            self.taken.add(path_and_query(request.url), &reply.body);
        }
    }

    /// Sends a request until it is answered. Responses that mean "later" (408, 429, 500, 502, 503, 504 and
    /// [`Request::retry`]) and lost connections are repeated until the tries or the deadline are used up; a
    /// request with a time limit of its own ([`Request::within`]) that nothing answers, until that is over.
    /// `Retry-After` is honoured if it ends before the deadline.
    ///
    /// A service that turns requests away (429, 503) is asked by too many machines at once. Requests that it
    /// turned away are repeated one at a time, beyond the time limit of the request ([`Request::within`]).
    /// Such a request ends early if the service returns 503 only for it: if it serves [`Request::control`]
    /// in turn with it, each time.
    ///
    /// # Errors
    /// No answer in time, or an unacceptable one: too large, a redirect that must not be followed. The message names the URL
    /// without its query and credentials, and the last failure.
    pub fn send(&self, request: &Request) -> Result<Reply> {
        let (mut tries, mut invalid) = (0u32, 0);
        // While the service turns another request away, this one is not sent.
        drop(self.turn());
        let before = self.transport.left(self.deadline);
        let mut reason = String::new();
        // The status with which the service turned this request away, in case it falls silent later.
        let (mut away, mut turn) = (None, None);
        let (mut check, mut given) = (CHECK_AFTER, 0);
        loop {
            let (most, deadline) = self.bounds(request);
            let mut silent = false;
            let (failure, after) = match self.follow(request, deadline) {
                Ok(reply) if !self.is_later(request, &reply) => {
                    self.answered.store(true, Ordering::Relaxed);
                    let taken = before.saturating_sub(self.transport.left(self.deadline));
                    if tries > 0 && taken > SLOW {
                        let (said, tries) = (said(request.method, request.url), tries + 1);
                        self.findings
                            .warn(format!("{said}: {reason}; answered at try {tries}, after {} s", taken.as_secs()));
                    }
                    self.note(request, &reply);
                    return Ok(reply);
                }
                Ok(reply) => {
                    let patient = self.limits.retries.is_none() && most > 1;
                    away = Some(reply.status).filter(|status| patient && matches!(status, 429 | 503));
                    (status_text(reply.status), retry_after(&reply))
                }
                Err(Failure::Silent(reason)) => {
                    silent = self.limits.retries.is_none() && most > 1;
                    (reason, None)
                }
                Err(Failure::Invalid(reason) | Failure::Nameless(reason)) => {
                    invalid += 1;
                    (reason, None)
                }
                Err(Failure::Final(e)) => return Err(e.context(said(request.method, request.url))),
            };
            reason = failure;
            tries += 1;
            let elapsed = before.saturating_sub(self.transport.left(self.deadline));
            if away.is_some() && turn.is_none() {
                turn = Some(self.turn());
            }
            let mut late = false;
            if let (Some(503), Some(control), Some(turn)) = (away, request.control, &mut turn) {
                late = turn.only_some && tries > 1;
                if !late && tries >= CHECK_TRIES && elapsed >= check {
                    if self.gives(&Request { headers: request.headers, ..Request::get(control) }, deadline) {
                        given += 1;
                    } else {
                        (given, check) = (0, elapsed.saturating_mul(2));
                    }
                    turn.only_some |= given >= CHECKS;
                }
            }
            let mut wait = match (&mut turn, away) {
                // The service's word is about machines that it turns away, and it has just served this one.
                (Some(_), Some(_)) if given > 0 => self.backoff(CHECK_BACKOFF, None),
                (Some(turn), Some(_)) if self.limits.between.is_none() => self.after_refusal(turn, after),
                _ => self.between(tries, after),
            };
            let invited = after.is_some() && !self.answered.load(Ordering::Relaxed) && request.tries > tries;
            if let (None, Some(within)) = (away, request.within) {
                // The last try is at the end of its time.
                let left = within.saturating_sub(elapsed);
                late = left.is_zero();
                wait = wait.min(left);
            }
            let most = match away {
                // A service that falls silent restarts: the request's time alone ends the wait for it.
                _ if request.within.is_some() && (away.is_some() || silent) => u32::MAX,
                Some(429) => most.max(RATE_TRIES),
                _ => most,
            };
            if away.is_some() && wait >= self.transport.left(deadline) && self.is_service() {
                extend(deadline, request, &reason);
            }
            let exhausted = late || invalid >= MAX_INVALID || (tries >= most && !invited);
            if exhausted || wait >= self.transport.left(deadline) || !self.transport.wait(wait) {
                let tries = if tries == 1 { "1 try".into() } else { format!("{tries} tries") };
                return Err(Error::new(format!("{}: {reason} ({tries})", said(request.method, request.url))));
            }
            log::debug!("{}: {reason}; asking again", said(request.method, request.url));
        }
    }

    /// Whether the machine's service answers here, not any other program.
    fn is_service(&self) -> bool {
        self.limits.marked || self.answered.load(Ordering::Relaxed)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wait after the service turned this machine away once more, and may have said for how long.
    fn after_refusal(&self, turn: &mut Turn, after: Option<Duration>) -> Duration {
        if turn.only_some {
            return self.backoff(CHECK_BACKOFF, after);
        }
        let [least, most] = AWAY[turn.times.min(AWAY.len() - 1)].map(Duration::from_millis);
        turn.times += 1;
        self.spread(least, most, after)
    }

    /// Whether a response means that the request is to be repeated.
    fn is_later(&self, request: &Request, reply: &Reply) -> bool {
        // cloud-init 26.2, url_helper.py, `wait_for_url`: any error, and an empty answer.
        let not_yet =
            |r: &Reply| (400..500).contains(&r.status) && r.status != 401 || r.status == 200 && r.body.is_empty();
        TRANSIENT.contains(&reply.status)
            || request.retry.contains(&reply.status)
            || (request.first && self.limits.marked && self.is_patient() && not_yet(reply))
    }

    /// Whether the service serves a document now.
    fn gives(&self, request: &Request, deadline: Deadline) -> bool {
        self.follow(request, deadline).is_ok_and(|reply| (200..300).contains(&reply.status))
    }

    /// The number of tries and the deadline that a request has now.
    fn bounds(&self, request: &Request) -> (u32, Deadline) {
        match (self.answered.load(Ordering::Relaxed), self.limits) {
            (false, Limits { search: Some(Duration::ZERO), .. }) => (1, self.search),
            (false, _) => (request.tries, self.search),
            (true, Limits { retries: Some(retries), .. }) => (retries.saturating_add(1), self.deadline),
            (true, _) => (request.tries, self.deadline),
        }
    }

    /// The wait before the next of so many tries: the service's word, the image's, or one that grows.
    fn between(&self, tries: u32, after: Option<Duration>) -> Duration {
        match self.limits.between.filter(|_| after.is_none()) {
            Some(between) => between.max(FIRST_BACKOFF),
            None => self.backoff(tries, after),
        }
    }

    fn backoff(&self, tries: u32, after: Option<Duration>) -> Duration {
        let wait = FIRST_BACKOFF.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_BACKOFF);
        self.spread(wait / 2, wait + wait / 2, after)
    }

    /// A random wait. The server's value is a minimum; its random part separates machines that were turned away together.
    fn spread(&self, least: Duration, most: Duration, after: Option<Duration>) -> Duration {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let own = least + (most - least).mul_f64(rng.between(0.0, 1.0));
        after.map_or(own, |after| {
            let spread = after.clamp(Duration::from_secs(1), LONGEST_BACKOFF).mul_f64(rng.between(0.0, 1.0));
            after.saturating_add(spread).max(own)
        })
    }

    /// Sends the request once, and follows redirects.
    fn follow(&self, request: &Request, deadline: Deadline) -> std::result::Result<Reply, Failure> {
        let mut url = request.url.to_owned();
        let mut headers = request.headers;
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.attempt(&Request { url: &url, headers, ..request.clone() }, deadline)?;
            if !matches!(reply.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(reply);
            }
            if request.method != "GET" {
                return Err(Failure::Final(Error::new("redirected, which is followed for a GET only")));
            }
            let location = reply.header("location").unwrap_or_default();
            let next = redirected(&url, location, self.redirects).map_err(Failure::Final)?;
            // Tokens and keys are only sent to the host that they are for.
            if !same_origin(&url, &next) {
                headers = &[];
            }
            url = next;
        }
        Err(Failure::Final(Error::new(format!("redirected more than {MAX_REDIRECTS} times"))))
    }

    /// Sends a request once.
    fn attempt(&self, request: &Request, deadline: Deadline) -> std::result::Result<Reply, Failure> {
        let timeout = self.limits.attempt.or(request.timeout).unwrap_or(ATTEMPT);
        let timeout = timeout.min(self.transport.left(deadline));
        if timeout.is_zero() {
            return Err(Failure::Silent("the deadline has passed".into()));
        }
        self.findings.count();
        let reply = self.transport.exchange(request, timeout);
        if !matches!(reply, Err(Failure::Silent(_) | Failure::Nameless(_))) {
            self.heard.store(true, Ordering::Relaxed);
        }
        let reply = reply?;
        // No part was asked for. A proxy that takes another of two lengths shows another document (RFC 9112, section 6.3).
        if reply.status == 206 {
            return Err(Failure::Invalid("206 Partial Content, although the whole was asked for".into()));
        }
        if reply.header("transfer-encoding").and(reply.header("content-length")).is_some() {
            return Err(Failure::Invalid("Transfer-Encoding and Content-Length in one answer".into()));
        }
        if let Some(peer) = reply.peer {
            log::debug!("{}: {} from {peer}", said(request.method, request.url), reply.status);
        }
        Ok(reply)
    }
}

/// Gives a stage more time, once, for a service that is there and asks this machine to wait.
fn extend(deadline: Deadline, request: &Request, reason: &str) {
    if let Some(time) = deadline.extend() {
        let said = said(request.method, request.url);
        logging::console(&format!(
            "{said}: {reason}: the service has too many machines; up to {} s more are waited",
            time.as_secs()
        ));
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

/// `Retry-After` in seconds. Dates are ignored: an initramfs may have no valid clock.
fn retry_after(reply: &Reply) -> Option<Duration> {
    reply.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::super::script::{Answer, Script};
    use super::*;
    use crate::base::deadline::Extension;
    use crate::base::problem::Severity;

    const URL: &str = "http://169.254.169.254/x";

    fn client(script: Script, redirects: Redirects, seconds: u64) -> (Client, Arc<Script>) {
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(seconds));
        (Client::over(script.clone(), &Uplink::system(), redirects, deadline, &Findings::default()), script)
    }

    fn redirect(location: &str) -> Answer {
        let headers = vec![("location".into(), location.into())];
        Answer::Reply(Reply { status: 302, headers, ..Reply::default() })
    }

    #[test]
    fn retries_temporary_failures_until_the_deadline() {
        let busy = Script::default().with("GET", URL, Answer::new(503, "")).with("GET", URL, Answer::new(200, "ok"));
        let (client, script) = client(busy, Redirects::Any, 100);
        assert_eq!(client.get(URL).unwrap().as_deref(), Some(&b"ok"[..]));
        assert_eq!((script.sent().len(), client.findings().requests()), (2, 2));
        assert!(client.findings().take().is_empty());

        let silent = Script::default().with("GET", URL, Answer::Timeout);
        let (client, script) = self::client(silent, Redirects::Any, 100);
        let error = client.get(URL).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("GET {URL}: no complete answer in ")) && error.ends_with(" s (4 tries)"),
            "{error}"
        );
        assert!(client.now() >= script.now() && script.left(client.deadline) < Duration::from_secs(10));
    }

    #[test]
    fn asks_a_refusing_service_until_the_deadline() {
        let within = Some(Duration::from_secs(5));
        let tries = |status, request: Request| {
            let script = Script::default().with("GET", URL, Answer::new(status, ""));
            let (client, script) = client(script, Redirects::Any, 100);
            client.answered.store(true, Ordering::Relaxed);
            client.send(&request).unwrap_err();
            script.sent().len()
        };
        for (status, least, most) in [(503, 7, 12), (429, 7, 12), (500, 2, 7)] {
            let tries = tries(status, Request { tries: 7, within, ..Request::get(URL) });
            assert!((least..=most).contains(&tries), "{status}: {tries}");
        }
        // Without a time limit of its own a request is tried as often as it asks, and more often if its rate is limited.
        for (status, least, most) in [(503, 3, 3), (429, 7, RATE_TRIES as usize), (500, 3, 3)] {
            let tries = tries(status, Request { tries: 3, ..Request::get(URL) });
            assert!((least..=most).contains(&tries), "{status}: {tries}");
        }
    }

    #[test]
    fn silence_ends_with_the_requests_time_alone() {
        let request = Request { tries: 2, within: Some(Duration::from_secs(20)), ..Request::get(URL) };
        let silent = |times: usize| {
            let refused = || Answer::Refused("connection refused".into());
            (0..times).fold(Script::default(), |script, _| script.with("GET", URL, refused()))
        };
        let (restarts, script) = client(silent(6).with("GET", URL, Answer::new(200, "ok")), Redirects::Any, 100);
        assert_eq!(restarts.send(&request).unwrap().body, b"ok");
        assert_eq!(script.sent().len(), 7);

        let (gone, script) = client(silent(1), Redirects::Any, 100);
        gone.send(&request).unwrap_err();
        assert!((6..=12).contains(&script.sent().len()), "{}", script.sent().len());
        assert!(script.left(gone.deadline) >= Duration::from_secs(79));
        // The image's own limit is kept.
        let (client, script) = client(silent(1), Redirects::Any, 100);
        let few = client.limited(Limits { retries: Some(2), ..Limits::default() });
        few.answered.store(true, Ordering::Relaxed);
        few.send(&request).unwrap_err();
        assert_eq!(script.sent().len(), 3);
    }

    #[test]
    fn one_refused_document_does_not_hold_the_boot() {
        let (other, given) = ("http://169.254.169.254/y", "http://169.254.169.254/given");
        let ask = |client: &Client, script: &Script, url: &str| {
            let (before, sent) = (script.now(), script.sent().len());
            let request =
                Request { tries: 5, within: Some(Duration::from_secs(20)), control: Some(given), ..Request::get(url) };
            let error = client.send(&request).unwrap_err().to_string();
            assert!(error.contains("503 Service Unavailable"), "{error}");
            let tries = script.sent()[sent..].iter().filter(|s| s.url == url).count();
            (script.now().duration_since(before).unwrap().as_secs(), tries)
        };
        let busy = || [URL, other].iter().fold(Script::default(), |s, url| s.with("GET", url, Answer::new(503, "")));
        for _ in 0..400 {
            let (alone, script) = client(busy().with("GET", given, Answer::new(200, "")), Redirects::Any, 100);
            let (seconds, tries) = ask(&alone, &script, URL);
            assert!((5..=20).contains(&seconds) && tries == 13, "{seconds} s, {tries} tries");
            // The finding applies to the service's other documents.
            let (seconds, tries) = ask(&alone, &script, other);
            assert!(seconds < 2 && tries == 2, "{seconds} s, {tries} tries");
        }
        // The service sheds load: an occasional answer is no sign.
        let shedding = busy().with("GET", given, Answer::new(200, "")).with("GET", given, Answer::new(503, ""));
        let (shed, script) = client(shedding, Redirects::Any, 100);
        let (seconds, tries) = ask(&shed, &script, URL);
        assert!(seconds > 75 && tries > 6, "{seconds} s, {tries} tries");
    }

    #[test]
    fn refused_machines_retry_at_different_times() {
        let mut waits = Vec::new();
        for _ in 0..50 {
            let later = vec![("retry-after".into(), "5".into())];
            let busy = Answer::Reply(Reply { status: 503, headers: later, ..Reply::default() });
            let script = Script::default().with("GET", URL, busy).with("GET", URL, Answer::new(200, ""));
            let (client, script) = client(script, Redirects::Any, 100);
            let before = script.now();
            client.get(URL).unwrap();
            waits.push(script.now().duration_since(before).unwrap().as_secs_f64());
        }
        let (least, most) = waits.iter().fold((f64::MAX, 0.0f64), |(a, b), wait| (a.min(*wait), b.max(*wait)));
        assert!(least >= 5.0 && most <= 10.0 && most - least > 2.5, "{least} to {most}");
    }

    #[test]
    fn retry_after_shortens_no_wait() {
        for seconds in ["0", "1"] {
            let headers = vec![("retry-after".into(), seconds.into())];
            let busy = Answer::Reply(Reply { status: 503, headers, ..Reply::default() });
            let (client, script) = client(Script::default().with("GET", URL, busy), Redirects::Any, 120);
            assert!(client.get(URL).is_err());
            assert!((7..=14).contains(&script.sent().len()), "{}", script.sent().len());
        }
    }

    #[test]
    fn waits_longer_for_a_known_service_once() {
        let waited = |marked: bool, status: u16| {
            let more: &'static Extension = Box::leak(Box::new(Extension::of(Duration::from_secs(180))));
            let script = Arc::new(Script::default().with("GET", URL, Answer::new(status, "")));
            let deadline = Deadline::after(Duration::from_secs(100)).extensible(more);
            let client =
                Client::over(script.clone(), &Uplink::system(), Redirects::Any, deadline, &Findings::default());
            let before = script.now();
            client.limited(Limits { marked, ..Limits::default() }).get(URL).unwrap_err();
            script.now().duration_since(before).unwrap().as_secs()
        };
        assert!((255..=280).contains(&waited(true, 503)) && (255..=280).contains(&waited(true, 429)));
        assert!(waited(false, 503) <= 100 && waited(true, 500) <= 100);
    }

    #[test]
    fn a_slow_answer_is_a_warning() {
        let slow = Script::default().with("GET", URL, Answer::Timeout).with("GET", URL, Answer::new(200, ""));
        let (client, _) = client(slow, Redirects::Any, 100);
        client.get(URL).unwrap();
        let report = client.findings().take();
        let warnings = report.texts(Severity::Warning);
        assert!(warnings[0].contains("no complete answer in 30.0 s; answered at try 2, after 30 s"), "{warnings:?}");
    }

    #[test]
    fn request_sets_retried_statuses_tries_and_time() {
        let absent = Script::default().with("PUT", URL, Answer::new(404, "")).with("PUT", URL, Answer::Timeout);
        let (client, script) = client(absent, Redirects::Any, 100);
        let timeout = Some(Duration::from_secs(2));
        let headers = [("Host", "metadata.example")];
        let request = Request {
            retry: &[404],
            tries: 3,
            timeout,
            headers: &headers,
            source_port: Some(7),
            ..Request::put(URL, b"b")
        };
        let error = client.send(&request).unwrap_err().to_string();
        assert_eq!(error, format!("PUT {URL}: no complete answer in 2.0 s (3 tries)"));
        let sent = script.sent();
        assert_eq!((sent.len(), sent[0].source_port, sent[0].body.as_slice()), (3, Some(7), &b"b"[..]));
        assert_eq!(sent[0].headers, [("Host".to_owned(), "metadata.example".to_owned())]);
        // The image's limits take precedence.
        let limits = Limits { attempt: Some(Duration::from_secs(1)), ..Limits::default() };
        let error = client.limited(limits).send(&request).unwrap_err().to_string();
        assert!(error.contains("in 1.0 s"), "{error}");
    }

    #[test]
    fn asks_again_while_service_lacks_the_machine() {
        let ask = |limits: Limits, answers: &[(u16, &str)]| {
            let all = answers.iter().map(|(status, body)| Answer::new(*status, *body));
            let script = all.fold(Script::default(), |script, answer| script.with("GET", URL, answer));
            let (client, script) = client(script, Redirects::Any, 100);
            let status = client.limited(limits).send(&Request::first(URL)).map(|reply| reply.status).unwrap_or(0);
            (status, script.sent().len())
        };
        let marked = Limits { marked: true, ..Limits::default() };
        assert_eq!(ask(marked, &[(404, ""), (403, ""), (410, ""), (200, ""), (200, "i-1")]), (200, 5));
        assert_eq!(ask(marked, &[(401, ""), (200, "i-1")]), (401, 1));
        assert_eq!(ask(Limits::default(), &[(404, ""), (200, "i-1")]), (404, 1));
        let (status, tries) = ask(marked, &[(404, "")]);
        assert!(status == 0 && tries > 10, "{tries}");
        let (status, tries) = ask(Limits { search: Some(Duration::from_secs(5)), ..marked }, &[(404, "")]);
        assert!(status == 0 && tries < 8, "{tries}");
        assert_eq!(ask(Limits { search: Some(Duration::ZERO), ..marked }, &[(404, ""), (200, "i-1")]), (404, 1));
    }

    #[test]
    fn image_sets_wait_between_tries() {
        let took = |between: Option<u64>| {
            let busy = (0..4).fold(Script::default(), |script, _| script.with("GET", URL, Answer::new(500, "")));
            let (client, script) = client(busy.with("GET", URL, Answer::new(200, "")), Redirects::Any, 100);
            let before = script.now();
            let limits = Limits { between: between.map(Duration::from_secs), ..Limits::default() };
            client.limited(limits).get(URL).unwrap();
            script.now().duration_since(before).unwrap().as_secs_f64()
        };
        assert_eq!(took(Some(3)), 12.0);
        assert_eq!(took(Some(0)), 1.0, "no busy loop");
        assert!(took(None) < 6.0);
    }

    #[test]
    fn drops_headers_on_redirect_to_another_origin() {
        let script = || {
            Script::default()
                .with("GET", "http://h/a", redirect("/b"))
                .with("GET", "http://h/b", redirect("http://other/c"))
                .with("GET", "http://other/c", redirect("http://h/d"))
                .with("GET", "http://h/d", Answer::new(200, ""))
        };
        let headers = [("Authorization", "secret")];
        let request = Request { headers: &headers, ..Request::get("http://h/a") };
        let (client, sent) = client(script(), Redirects::Any, 9);
        client.send(&request).unwrap();
        let with: Vec<_> = sent.sent().into_iter().filter(|s| !s.headers.is_empty()).map(|s| s.url).collect();
        assert_eq!(with, ["http://h/a", "http://h/b"]);

        let (client, sent) = self::client(script(), Redirects::SameOrigin, 9);
        let error = client.send(&request).unwrap_err().to_string();
        assert_eq!(error, "GET http://h/a: redirected to http://other, which is not followed");
        assert_eq!(sent.sent().len(), 2, "a redirect that must not be followed is not asked for again");
    }

    #[test]
    fn redirects_are_for_a_get_and_end() {
        let script = Script::default().with("POST", URL, redirect("/y")).with("GET", URL, redirect(URL));
        let (client, _) = client(script, Redirects::Any, 9);
        let error = client.send(&Request::post(URL, b"x")).unwrap_err().to_string();
        assert!(error.ends_with("redirected, which is followed for a GET only"), "{error}");
        let error = client.get(URL).unwrap_err().to_string();
        assert!(error.ends_with("redirected more than 5 times"), "{error}");
    }
}
