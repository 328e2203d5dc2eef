//! Asks a source's service by every uplink that the machine of a case has, over a script in place of the network.

use super::case::Case;
use super::surroundings::{Exchange, script};
use crate::cases::trial;
use libtest_mimic::Trial;
use prepivot::base::deadline::Deadline;
use prepivot::document::xml::{self, Element};
use prepivot::instance::Instance;
use prepivot::link::dhcp::Lease;
use prepivot::link::http::script::{Script, Sent};
use prepivot::link::http::{Client, Findings, Redirects, Transport};
use prepivot::link::{Reach, Uplink};
use prepivot::source::service::Job;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How long each uplink is asked: time of the script, which passes only in waits.
const TIME: Duration = Duration::from_secs(300);

/// The uplinks of the machine: before the network is up those of each link, of which the leased ones are ready first; then the
/// system's own.
fn uplinks(case: &Case) -> Vec<Uplink> {
    let mut nics: Vec<_> = case.nics.iter().filter(|nic| !nic.is_virtual).collect();
    nics.sort_by_key(|nic| &nic.name);
    let mut all: Vec<Uplink> = nics
        .iter()
        .zip(2..)
        .flat_map(|(nic, index)| {
            let index = nic.index.and_then(|i| u32::try_from(i).ok()).unwrap_or(index);
            let leases = case.leases(&nic.name).into_iter().map(Some);
            let leases: Vec<Option<Lease>> = if leases.len() == 0 { vec![None] } else { leases.collect() };
            let four = leases.into_iter().map(move |lease| {
                let dns = lease.iter().flat_map(|l| l.dns.clone()).map(Into::into).collect();
                Uplink { lease, dns, ..Uplink::of(&nic.name, index, Reach::Ipv4) }
            });
            let six = [Reach::Ipv6LinkLocal, Reach::Ipv6Routed].map(|reach| Uplink::of(&nic.name, index, reach));
            six.into_iter().chain(four)
        })
        .collect();
    all.sort_by_key(|uplink| uplink.reach == Reach::Ipv4 && uplink.lease.is_none());
    if nics.is_empty() {
        all.push(Uplink::system());
    }
    all
}

/// The service's instance, from the first uplink that leads to one.
///
/// # Errors
///
/// No uplink does: the reasons.
pub fn ask(job: &Job, case: &Case, asked: &Asked) -> Result<Option<Instance>, String> {
    let mut reasons = Vec::new();
    for uplink in uplinks(case) {
        for url in (job.urls)(&uplink) {
            let client = asked.open(script(case), &uplink, job.redirects);
            match (job.fetch)(&client.limited(job.limits), &url) {
                Ok(found) => return Ok(Some(found.instance)),
                Err(e) => reasons.push(format!("{}: {e}", uplink.name())),
            }
        }
    }
    if reasons.is_empty() { Ok(None) } else { Err(reasons.join("; ")) }
}

/// What was asked: the scripts, each with its requests.
#[derive(Default)]
pub struct Asked(RefCell<Vec<Arc<Script>>>);

impl Asked {
    fn open(&self, script: Script, uplink: &Uplink, redirects: Redirects) -> Client {
        let script = Arc::new(script);
        self.0.borrow_mut().push(Arc::clone(&script));
        self.over(script, uplink, redirects)
    }

    fn over(&self, script: Arc<Script>, uplink: &Uplink, redirects: Redirects) -> Client {
        // What one uplink waited for is not taken from another.
        let passed = TIME.saturating_sub(script.left(Deadline::after(TIME)));
        Client::over(script, uplink, redirects, Deadline::after(TIME + passed), &Findings::default())
    }

    /// A client in the running system, of the services that were asked last.
    pub fn client(&self) -> Client {
        let last = self.0.borrow().last().cloned().unwrap_or_default();
        self.over(last, &Uplink::system(), Redirects::SameOrigin)
    }

    /// Where the requests differ from cloud-init's: what they carried, and what was sent that changes something.
    pub fn differences(&self, case: &Case) -> Vec<String> {
        let sent: Vec<Sent> = self.0.borrow().iter().flat_map(|script| script.sent()).collect();
        let given = tokens(case);
        let is = |exchange: &Exchange, s: &Sent| exchange.method == s.method && exchange.url == s.url;
        let wrong = sent.iter().filter(|s| {
            let mut listed = case.http.iter().filter(|e| is(e, s)).peekable();
            listed.peek().is_some() && !listed.any(|e| carries(e, s, &given))
        });
        let mut lines: Vec<String> =
            wrong.map(|s| format!("{} {}: not with cloud-init's headers and body: {s:?}", s.method, s.url)).collect();
        let acts = |e: &&Exchange| {
            let changes = e.method != "GET" || e.request_headers.iter().any(|(_, value)| value == "saved_password");
            changes && e.error.is_none() && e.status < 300
        };
        for exchange in case.http.iter().filter(acts) {
            if !sent.iter().any(|s| is(exchange, s) && carries(exchange, s, &given)) {
                lines.push(format!("{} {}: was not sent", exchange.method, exchange.url));
            }
        }
        lines
    }
}

/// The tokens that the services of a case gave: what they answered to a PUT.
fn tokens(case: &Case) -> Vec<String> {
    let given = case.http.iter().filter(|e| e.method == "PUT" && e.error.is_none() && e.status < 300);
    given.map(|e| String::from_utf8_lossy(&e.body).trim().to_owned()).filter(|token| !token.is_empty()).collect()
}

/// Whether a request has the headers, the body and the local port of cloud-init's. A token is right if it was ever given.
fn carries(exchange: &Exchange, sent: &Sent, given: &[String]) -> bool {
    let is_token = |value: &str| given.iter().any(|token| token == value);
    let header = |name: &str| sent.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
    let headers = exchange.request_headers.iter().all(|(name, value)| {
        // The name of the library that sends it.
        value.starts_with("python-requests/")
            || header(name).is_some_and(|ours| fits(value, ours) || is_token(value) && is_token(ours))
    });
    let body = exchange.request_body.as_ref().is_none_or(|theirs| {
        fits(String::from_utf8_lossy(theirs).trim(), String::from_utf8_lossy(&sent.body).trim())
            || same_xml(theirs, &sent.body)
    });
    let port = !exchange.has_source_port || sent.source_port.is_some_and(|port| (1..1024).contains(&port));
    headers && body && port
}

/// Whether two documents are XML and say the same. The program that reports is another.
pub fn same_xml(theirs: &[u8], ours: &[u8]) -> bool {
    fn same(theirs: &Element, ours: &Element) -> bool {
        let text = theirs.text.replace("agent=Cloud-Init/", "agent=@AGENT@/");
        theirs.name == ours.name
            && fits(text.trim(), ours.text.trim())
            && theirs.children.len() == ours.children.len()
            && theirs.children.iter().zip(&ours.children).all(|(theirs, ours)| same(theirs, ours))
    }
    matches!((xml::parse("theirs", theirs), xml::parse("ours", ours)), (Ok(theirs), Ok(ours)) if same(&theirs, &ours))
}

/// Whether a text fits one in which `@` and `@NAME@` represent any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('@') {
        parts.push(before);
        let end =
            after.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(after.len());
        rest = after[end..].strip_prefix('@').unwrap_or(after);
    }
    let Some((first, middle)) = parts.split_first() else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first).and_then(|left| left.strip_suffix(rest)) else { return false };
    middle.iter().all(|part| match left.find(part) {
        Some(at) => {
            left = &left[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Tests of what compares the requests.
pub fn trials() -> Vec<Trial> {
    vec![trial("conformance: a token is right if it was ever given", || {
        let exchange = Exchange {
            method: "GET".into(),
            url: "http://h/".into(),
            request_headers: vec![("Token".into(), "second".into()), ("Kind".into(), "a".into())],
            request_body: None,
            has_source_port: false,
            error: None,
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
            times: 1,
        };
        let given = ["first".to_owned(), "second".to_owned()];
        let carries = |token: &str, kind: &str| {
            let headers = vec![("token".to_owned(), token.to_owned()), ("kind".to_owned(), kind.to_owned())];
            let sent =
                Sent { method: "GET".into(), url: "http://h/".into(), headers, body: Vec::new(), source_port: None };
            self::carries(&exchange, &sent, &given)
        };
        assert!(carries("second", "a") && carries("first", "a"));
        assert!(!carries("third", "a") && !carries("first", "second"));
    })]
}
