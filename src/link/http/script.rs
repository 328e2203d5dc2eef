//! A transport that answers from a script, in process: for tests of datasources.

use super::{Failure, Reply, Request, Transport};
use crate::base::deadline::Deadline;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day at the start of a script, in seconds since 1970.
const START: u64 = 1_700_000_000;

/// One answer of a script.
#[derive(Debug, Clone)]
pub enum Answer {
    Reply(Reply),
    /// No connection: refused, unreachable.
    Refused(String),
    /// No answer until the request times out.
    Timeout,
}

impl Answer {
    /// An answer with a status and a body.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer::Reply(Reply { status, body: body.into(), ..Reply::default() })
    }
}

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub source_port: Option<u16>,
}

/// Services that answer each method and URL with its answers in turn, repeating the last. Everything else is
/// refused. Time passes only in waits and timeouts.
#[derive(Debug, Default)]
pub struct Script {
    answers: BTreeMap<(String, String), Vec<Answer>>,
    names: BTreeMap<String, Vec<IpAddr>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    passed: Duration,
    sent: Vec<Sent>,
}

impl Script {
    /// The same script with one more answer to a method and URL.
    pub fn with(mut self, method: &str, url: &str, answer: Answer) -> Script {
        self.answers.entry((method.into(), url.into())).or_default().push(answer);
        self
    }

    /// The same script with the addresses of a host name.
    pub fn with_name(mut self, name: &str, addresses: &[IpAddr]) -> Script {
        self.names.insert(name.into(), addresses.into());
        self
    }

    /// The requests so far, the oldest first.
    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Script {
    fn exchange(&self, request: &Request, timeout: Duration) -> Result<Reply, Failure> {
        let mut state = self.state();
        let same = |s: &&Sent| s.method == request.method && s.url == request.url;
        let before = state.sent.iter().filter(same).count();
        state.sent.push(Sent {
            method: request.method.into(),
            url: request.url.into(),
            headers: request.headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
            body: request.body.into(),
            source_port: request.source_port,
        });
        let answers = self.answers.get(&(request.method.to_owned(), request.url.to_owned()));
        match answers.and_then(|list| list.get(before).or(list.last())) {
            Some(Answer::Reply(reply)) => Ok(reply.clone()),
            Some(Answer::Refused(reason)) => Err(Failure::Silent(reason.clone())),
            Some(Answer::Timeout) => {
                state.passed += timeout;
                Err(Failure::Silent(format!("no complete answer in {:.1} s", timeout.as_secs_f64())))
            }
            None => Err(Failure::Silent("connection refused".into())),
        }
    }

    fn resolve(&self, name: &str, _: Duration) -> Vec<IpAddr> {
        self.names.get(name).cloned().unwrap_or_default()
    }

    fn wait(&self, time: Duration) -> bool {
        self.state().passed += time;
        true
    }

    fn left(&self, deadline: Deadline) -> Duration {
        deadline.left().saturating_sub(self.state().passed)
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(START) + self.state().passed
    }
}
