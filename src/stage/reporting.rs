//! Reports progress to the webhooks of the configuration (`reporting: {NAME: {type: webhook, …}}`), as MAAS
//! puts them into the images that it deploys (cloud-init's documentation, "Reporting").
//!
//! The initramfs sends nothing: the network stage reports the local stage too. Each stage sends its events
//! when it ends.

use super::boot::Boot;
use crate::base::clock;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::event::{FINISH, START};
use crate::base::logging::Message;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::status;
use crate::link::http::oauth::OAuth;
use crate::link::http::{Client, Redirects, Request, Settings, refused};
use crate::root::run_dir::{LocalStage, Record};
use crate::root::{Root, Stage};
use crate::system::Screen;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// How long sending one stage's events to one webhook may take, and to all of them.
const LIMIT: Duration = Duration::from_secs(30);
const TOTAL: Duration = Duration::from_secs(60);
/// How often one event is sent at most, unless the configuration says otherwise. The first is repeated for as
/// long as there is time, because the network may not be up yet.
const TRIES: u32 = 4;
const MAX_TRIES: u32 = 20;
/// After this many failures in a row, the stage's remaining events are not sent.
const MAX_FAILED: u32 = 3;
/// The largest accepted response, in bytes. Its content is ignored.
const MAX_ANSWER: usize = 64 << 10;

/// An event: the beginning or the end of a stage, or of a part of one.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    name: String,
    description: String,
    /// `SUCCESS` or `FAIL`; None at the beginning.
    result: Option<String>,
    time: SystemTime,
    /// How long it took, in seconds; 0 at the beginning.
    duration: f64,
}

impl Event {
    /// The event that a log message reports, if it does.
    fn of(message: &Message) -> Option<Event> {
        let (rest, ends) = match message.text.strip_prefix(START) {
            Some(rest) => (rest, false),
            None => (message.text.strip_prefix(FINISH)?, true),
        };
        let (name, rest) = rest.split_once(": ")?;
        let (result, description) = if ends { rest.split_once(": ").map(|(r, d)| (Some(r), d))? } else { (None, rest) };
        let result = result.map(str::to_owned);
        Some(Event {
            name: name.to_owned(),
            description: description.to_owned(),
            result,
            time: message.time,
            duration: 0.0,
        })
    }

    /// The JSON that cloud-init sends for it.
    fn body(&self) -> Vec<u8> {
        let kind = if self.result.is_some() { "finish" } else { "start" };
        let mut map = Map::from_iter([
            ("name", Value::from(self.name.as_str())),
            ("description", self.description.as_str().into()),
            ("event_type", kind.into()),
            ("origin", "cloudinit".into()),
            ("timestamp", Value::Float(clock::since_1970(self.time).as_secs_f64())),
        ]);
        if let Some(result) = &self.result {
            map.insert("result", result.as_str());
            map.insert("duration", Value::Float((self.duration * 10_000.0).round() / 10_000.0));
        }
        json::to_string(&Value::Map(map)).into_bytes()
    }
}

fn is_webhook(section: &Value) -> bool {
    is_of_type(section, "webhook")
}

fn is_of_type(section: &Value, name: &str) -> bool {
    section.get("type").and_then(Value::as_str) == Some(name)
}

/// Whether the configuration has a webhook, to which every stage reports.
pub fn has_webhook(boot: &Boot) -> bool {
    let handlers = boot.config().get("reporting").and_then(Value::as_map);
    handlers.is_some_and(|handlers| handlers.iter().any(|(_, section)| is_webhook(section)))
}

/// Sends the events in `messages`, a stage's log, and prints them for handlers of the type print. `local_failed` is Some in the network stage, which reports
/// the local stage too: whether that had errors. A webhook that fails is a warning.
pub fn send(root: &Root, boot: &mut Boot, messages: &[Message], local_failed: Option<bool>) {
    let Some(Value::Map(handlers)) = boot.config().get("reporting") else { return };
    if handlers.iter().any(|(_, section)| is_of_type(section, "print")) {
        let events = messages.iter().filter(|message| Event::of(message).is_some());
        boot.outside.show(Screen::Stderr, &events.map(|event| format!("{}\n", event.text)).collect::<String>());
    }
    let webhooks: Vec<(String, Value)> =
        handlers.iter().filter(|(_, s)| is_webhook(s)).map(|(name, s)| (name.to_owned(), s.clone())).collect();
    if webhooks.is_empty() || !root.is_live() {
        return;
    }
    let local = local_failed.map(|failed| local_stage(LocalStage::read(root), failed)).unwrap_or_default();
    let mut events: Vec<Event> = local.into_iter().chain(messages.iter().filter_map(Event::of)).collect();
    measure(&mut events);
    let deadline = Deadline::after(TOTAL);
    for (name, section) in webhooks {
        let settings = Settings { redirects: Redirects::SameOrigin, image: Some(root.path().to_owned()) };
        let sent = Client::system(&settings, deadline.at_most(LIMIT))
            .and_then(|client| send_to(&client, &section, &events, &boot.report));
        if let Err(e) = sent {
            boot.report.warn(format_args!("reporting.{name}: {e}"));
        }
    }
    boot.log();
}

/// Sets the duration of each end event from the time of its beginning.
fn measure(events: &mut [Event]) {
    let mut begun: HashMap<String, SystemTime> = HashMap::new();
    for event in events {
        if event.result.is_none() {
            begun.insert(event.name.clone(), event.time);
        } else if let Some(from) = begun.remove(&event.name) {
            event.duration = event.time.duration_since(from).unwrap_or_default().as_secs_f64();
        }
    }
}

/// The events of the local stage, which may have run in the initramfs.
fn local_stage(stage: Option<LocalStage>, failed: bool) -> Vec<Event> {
    let Some(stage) = stage else { return Vec::new() };
    let (now, uptime) = (SystemTime::now(), status::uptime());
    let at = |moment: f64| {
        let ago = Duration::try_from_secs_f64(uptime - moment).unwrap_or_default();
        now.checked_sub(ago).unwrap_or(now)
    };
    let (name, description) = Stage::Local.event();
    let event = |result: Option<&str>, moment| Event {
        name: name.into(),
        description: description.into(),
        result: result.map(str::to_owned),
        time: at(moment),
        duration: 0.0,
    };
    let result = if failed { "FAIL" } else { "SUCCESS" };
    vec![event(None, stage.start), event(Some(result), stage.finished)]
}

/// Sends events to one webhook, in their order.
///
/// # Errors
/// The section is wrong, or too many reports failed in a row.
fn send_to(client: &Client, section: &Value, events: &[Event], report: &Problems) -> Result<()> {
    let Some(endpoint) = section.get("endpoint").and_then(Value::as_str).filter(|e| !e.is_empty()) else {
        return Err(Error::new("endpoint: it is needed: nothing is reported"));
    };
    let oauth = OAuth::of(section)?;
    let number = |key: &str| section.get(key).and_then(Value::text).and_then(|t| t.trim().parse::<u32>().ok());
    let tries = number("retries").map(|retries| retries.saturating_add(1).min(MAX_TRIES));
    let timeout = number("timeout").filter(|t| *t > 0).map(|seconds| Duration::from_secs(seconds.into()));
    let mut failed = 0;
    for (index, event) in events.iter().enumerate() {
        let body = event.body();
        let tries = tries.unwrap_or(if index == 0 { u32::MAX } else { TRIES });
        let request = Request {
            headers: &[("Content-Type", "application/json")],
            tries,
            timeout,
            limit: MAX_ANSWER,
            ..Request::post(endpoint, &body)
        };
        let reply = match &oauth {
            Some(oauth) => oauth.send(client, &request),
            None => client.send(&request),
        };
        let problem = match reply {
            Ok(reply) if (200..300).contains(&reply.status) => {
                failed = 0;
                continue;
            }
            Ok(reply) => refused("POST", endpoint, reply.status),
            Err(e) => e,
        };
        failed += 1;
        if failed == MAX_FAILED {
            return Err(problem.context("the stage's other events are not reported"));
        }
        report.warn(format_args!("{} was not reported: {problem}", event.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::link::Uplink;
    use crate::link::http::Findings;
    use crate::link::http::script::{Answer, Script};
    use crate::root::run_dir::LocalResult;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    const URL: &str = "http://10.0.0.2:5240/MAAS/metadata/status/x";

    fn message(text: &str) -> Message {
        let time = UNIX_EPOCH + Duration::from_millis(1_500);
        Message { level: log::Level::Debug, name: "DEBUG", text: text.into(), time }
    }

    #[test]
    fn events_are_what_the_log_says() {
        let body = |text: &str| Event::of(&message(text)).map(|e| String::from_utf8(e.body()).unwrap());
        assert_eq!(
            body("start: init-network/config-ssh: running config-ssh").unwrap(),
            r#"{"name":"init-network/config-ssh","description":"running config-ssh","event_type":"start","origin":"cloudinit","timestamp":1.5}"#
        );
        assert_eq!(
            body("finish: modules-final: FAIL: a: b").unwrap(),
            r#"{"name":"modules-final","description":"a: b","event_type":"finish","origin":"cloudinit","timestamp":1.5,"result":"FAIL","duration":0.0}"#
        );
        assert_eq!(body("started: x: y"), None);
        let ends =
            ["start: a: b", "start: a/c: d", "finish: a/c: SUCCESS: d", "finish: a: SUCCESS: b", "finish: x: FAIL: y"];
        let mut events: Vec<Event> = ends.iter().filter_map(|text| Event::of(&message(text))).collect();
        events.iter_mut().zip([0, 1, 3, 7, 9]).for_each(|(event, at)| event.time += Duration::from_millis(at));
        measure(&mut events);
        assert_eq!(events.iter().map(|e| (e.duration * 1e3).round()).collect::<Vec<_>>(), [0.0, 0.0, 2.0, 7.0, 0.0]);
        let stage = LocalStage { start: 1.0, finished: 2.0, result: LocalResult::Nothing };
        let local = local_stage(Some(stage), true);
        assert_eq!((local[0].result.as_deref(), local[1].result.as_deref()), (None, Some("FAIL")));
        assert!(local[0].time < local[1].time && local_stage(None, false).is_empty());
    }

    /// The warnings, the error and the requests of four events.
    fn sent(section: &str, statuses: &[u16]) -> (usize, Option<String>, Vec<usize>) {
        let script = statuses.iter().fold(Script::default(), |s, status| s.with("POST", URL, Answer::new(*status, "")));
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(60));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let events: Vec<Event> = ["start: a: b", "start: c: d", "finish: c: FAIL: d", "finish: a: SUCCESS: b"]
            .iter()
            .filter_map(|text| Event::of(&message(text)))
            .collect();
        let report = Problems::new();
        let error = send_to(&client, &yaml::parse("t", section).unwrap(), &events, &report).err();
        let headers = script.sent().iter().map(|s| s.headers.len()).collect();
        (report.entries().len(), error.map(|e| e.to_string()), headers)
    }

    #[test]
    fn webhook_gets_events_until_three_failures() {
        let plain = format!("{{type: webhook, endpoint: '{URL}'}}");
        assert_eq!(sent(&plain, &[204]), (0, None, vec![1; 4]));
        let signed = format!("{{endpoint: '{URL}', consumer_key: a, token_key: b, token_secret: c, retries: 0}}");
        assert_eq!(sent(&signed, &[500, 204]), (1, None, vec![2; 4]));
        let (warnings, error, requests) = sent(&plain, &[403]);
        assert_eq!((warnings, requests.len()), (2, 3));
        assert!(error.unwrap().starts_with("the stage's other events are not reported: POST http://10.0.0.2:5240/"));
        assert!(sent("{type: webhook}", &[204]).1.is_some());
        assert!(sent(&format!("{{endpoint: '{URL}', token_key: b}}"), &[204]).2.is_empty());
    }
}
