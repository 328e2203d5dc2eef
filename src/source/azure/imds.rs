//! Azure's instance metadata service (IMDS).
//!
//! Follows Azure's documentation, "Azure Instance Metadata Service for virtual machines": every request has the header
//! `Metadata: true`, and 404, 410, 429 and 500 are repeated.

use super::failure::Failure;
use crate::base::error::{Error, Result};
use crate::base::hex;
use crate::base::uuid;
use crate::document::{Value, json};
use crate::link::http::{Client, Reply, Request, refused};

/// The service's address.
pub const ADDRESS: &str = "http://169.254.169.254";
const INSTANCE: &str = "/metadata/instance?api-version=2021-08-01&extended=true";
/// The document for installations of Azure that refuse the version above.
const OLD_INSTANCE: &str = "/metadata/instance?api-version=2019-06-01";
const REPROVISION_DATA: &str = "/metadata/reprovisiondata?api-version=2019-06-01";
/// The largest document that is accepted, in bytes: user-data has at most 64 KiB.
const MAX_DOCUMENT: usize = 1 << 20;
/// Statuses that mean "not yet", besides those that every client retries.
const NOT_YET: &[u16] = &[404, 410];
const BAD_REQUEST: u16 = 400;

/// The instance's document: `compute`, `network`, `extended`. `tries` limits how often a request is sent.
///
/// # Errors
/// The service does not answer, refuses, or returns something other than a JSON mapping.
pub fn instance(client: &Client, base: &str, tries: u32) -> std::result::Result<Value, Failure> {
    let start = client.now();
    let failed = |failure: Failure, exception: Error, url: &str| {
        let taken = client.now().duration_since(start).unwrap_or_default();
        failure.with("duration", taken.as_secs_f64()).with("exception", exception).with("url", url)
    };
    let ask = |url: String| match send(client, &url, tries) {
        Ok(reply) => Ok((url, reply)),
        Err(e) => Err(failed(Failure::new(UNANSWERED), e, &url)),
    };
    let (mut url, mut reply) = ask(format!("{base}{INSTANCE}"))?;
    if reply.status == BAD_REQUEST {
        (url, reply) = ask(format!("{base}{OLD_INSTANCE}"))?;
    }
    let status = reply.status;
    if !(200..=299).contains(&status) {
        let failure = Failure::new(format!("http error {status} querying IMDS")).with("http_code", status);
        return Err(failed(failure, refused("GET", &url, status), &url));
    }
    let fail = || Failure::new("error parsing IMDS metadata");
    match json::parse(&url, &reply.body) {
        Ok(value @ Value::Map(_)) => Ok(value),
        Ok(other) => Err(fail().with("exception", format_args!("expected a mapping, found {}", other.kind()))),
        Err(e) => Err(fail().with("exception", e)),
    }
}

/// The reason if there was no answer, or only "not yet".
const UNANSWERED: &str = "unexpected error querying IMDS";

/// Whether [`instance`] failed because there was no answer.
pub fn is_unanswered(failure: &Failure) -> bool {
    failure.reason() == UNANSWERED
}

/// The provisioning media of a machine from a pool, once it has an owner: an ovf-env.xml.
///
/// # Errors
/// The machine has no owner by the client's deadline.
pub fn reprovision_data(client: &Client, base: &str) -> Result<Vec<u8>> {
    let url = format!("{base}{REPROVISION_DATA}");
    let reply = send(client, &url, u32::MAX)?;
    if (200..=299).contains(&reply.status) { Ok(reply.body) } else { Err(refused("GET", &url, reply.status)) }
}

fn send(client: &Client, url: &str, tries: u32) -> Result<Reply> {
    let id = request_id();
    let headers = [("Metadata", "true"), ("x-ms-client-request-id", id.as_str())];
    client.send(&Request { headers: &headers, limit: MAX_DOCUMENT, retry: NOT_YET, tries, ..Request::get(url) })
}

/// A random UUID (RFC 9562, section 5.4) that lets Azure's support find a request.
fn request_id() -> String {
    // Without randomness all requests share an ID, which only people read.
    let digits = hex::encode(&uuid::random().unwrap_or_default());
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use std::sync::Arc;
    use std::time::Duration;

    fn ask(answers: &[(&str, Answer)], tries: u32) -> (std::result::Result<Value, Failure>, Arc<Script>) {
        let script = answers
            .iter()
            .fold(Script::default(), |s, (path, answer)| s.with("GET", &format!("{ADDRESS}{path}"), answer.clone()));
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(300));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        (instance(&client, ADDRESS, tries), script)
    }

    #[test]
    fn what_means_not_yet_is_asked_again() {
        let statuses = [404, 410, 429, 500];
        let mut answers: Vec<_> = statuses.iter().map(|s| (INSTANCE, Answer::new(*s, ""))).collect();
        answers.push((INSTANCE, Answer::new(200, "{\"compute\": {}}")));
        let (got, script) = ask(&answers, u32::MAX);
        assert!(got.unwrap().get("compute").is_some());
        let sent = script.sent();
        assert_eq!(sent.len(), 5);
        assert!(sent[0].headers.contains(&("Metadata".into(), "true".into())));
        let id = &sent[0].headers[1].1;
        assert_eq!((id.len(), id.get(14..15)), (36, Some("4")), "{id}");
    }

    #[test]
    fn an_old_installation_is_asked_for_less() {
        let answers = [(INSTANCE, Answer::new(400, "")), (OLD_INSTANCE, Answer::new(200, "{}"))];
        assert!(ask(&answers, 1).0.is_ok());
    }

    #[test]
    fn failures_have_a_reason() {
        let reason = |answer: Answer| ask(&[(INSTANCE, answer)], 3).0.unwrap_err().to_string();
        let url = format!("{ADDRESS}{INSTANCE}");
        let expected = format!(
            "http error 403 querying IMDS, http_code=403, duration=0, exception=GET {ADDRESS}/metadata/instance: "
        );
        let refused = reason(Answer::new(403, ""));
        assert!(refused.starts_with(&expected) && refused.ends_with(&format!(", url={url}")), "{refused}");
        let silent = reason(Answer::Timeout);
        let seconds = silent.split("duration=").nth(1).and_then(|text| text.split(',').next()?.parse::<f64>().ok());
        assert!(seconds.is_some_and(|seconds| seconds > 1.0), "{silent}");
        for answer in [Answer::Refused("refused".into()), Answer::Timeout, Answer::new(410, "")] {
            let reason = reason(answer);
            assert!(reason.starts_with("unexpected error querying IMDS") && reason.contains("(3 tries)"), "{reason}");
        }
        assert!(reason(Answer::new(200, "<html>")).starts_with("error parsing IMDS metadata"));
        assert!(reason(Answer::new(200, "[]")).contains("expected a mapping, found a list"));
    }
}
