//! Reads events from the log.

use crate::base::clock;
use crate::base::event::{FINISH, START};
use crate::document::{Map, Value, json};
use std::time::SystemTime;

/// The most events that are read; the rest is ignored.
const MAX_EVENTS: usize = 100_000;
/// The most marks, and the most bytes of one.
const MAX_MARKS: usize = 2_000;
const MAX_TEXT: usize = 300;
/// Syslog's text between the host, or the time, and cloud-init's message.
const PROCESS: &str = " cloud-init[";
/// How `dump` describes the stages whose beginning is such a line (cloud-init 26.2, analyze/dump.py).
const STAGES: [(&str, &str); 4] = [
    ("init-local", "starting search for local datasources"),
    ("init-network", "searching for network datasources"),
    ("modules-config", "running config modules"),
    ("modules-final", "finalizing modules"),
];

/// The beginning or end of a stage, or of a part of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    /// `init-local`, or for a part `init-local/search`.
    pub name: String,
    pub description: String,
    /// Seconds since 1970.
    pub time: f64,
    /// The result; None at the beginning.
    pub result: Option<String>,
}

impl Event {
    /// The event in the format of cloud-init's `dump`.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("name", self.name.as_str());
        map.insert("description", self.description.as_str());
        map.insert("timestamp", Value::Float(self.time));
        map.insert("origin", "cloudinit");
        map.insert("event_type", self.kind());
        if let Some(result) = &self.result {
            map.insert("result", result.as_str());
        }
        Value::Map(map)
    }

    /// `start` or `finish`.
    pub fn kind(&self) -> &'static str {
        if self.result.is_some() { "finish" } else { "start" }
    }

    fn of_value(value: &Value) -> Option<Event> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let time = match value.get("timestamp")? {
            Value::Int(time) => *time as f64,
            Value::Float(time) if time.is_finite() => *time,
            _ => return None,
        };
        let result = (text("event_type")? == "finish").then(|| text("result").unwrap_or_default());
        Some(Event { name: text("name")?, description: text("description").unwrap_or_default(), time, result })
    }

    /// Parses a line of the log. The line that begins a cloud-init stage has another format than other events.
    fn of_line(line: &str) -> Option<Event> {
        let (time, said) = record(line)?;
        if let Some((_, said)) = said.split_once("Cloud-init v.") {
            let (stage, _) = said.split_once("running '")?.1.split_once('\'')?;
            let name = if stage == "init" { "init-network".to_owned() } else { stage.replace(':', "-") };
            let known = STAGES.iter().find(|(stage, _)| *stage == name);
            let description = known.map_or_else(|| format!("running {name}"), |(_, description)| (*description).into());
            return Some(Event { description, name, time, result: None });
        }
        let (_, said) = said.split_once(": ")?;
        let (is_start, said) = match said.strip_prefix(START) {
            Some(said) => (true, said),
            None => (false, said.strip_prefix(FINISH)?),
        };
        let (name, mut description) = said.split_once(": ")?;
        let mut result = None;
        if !is_start {
            let (word, rest) = description.split_once(": ").unwrap_or((description, ""));
            (result, description) = (Some(word.to_owned()), rest);
        }
        Some(Event { name: name.to_owned(), description: description.to_owned(), time, result })
    }
}

/// A line of the log (time, ` - `, logger and level, message) or of what a syslog made of it (time, host, `[CLOUDINIT]`, logger and
/// level, message; on Amazon Linux time, `cloud-init[PID]:`, logger and level, message): the time, and what follows it.
fn record(line: &str) -> Option<(f64, &str)> {
    let split = [" - ", " [CLOUDINIT] ", PROCESS]
        .into_iter()
        .filter_map(|separator| Some((separator, line.split_once(separator)?)));
    let (separator, (time, mut said)) = split.min_by_key(|(_, (time, _))| time.len())?;
    if separator == PROCESS {
        said = said.split_once(": ")?.1;
    }
    Some((seconds(time)?, said))
}

/// What a mark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request to a service, and its answer.
    Request,
    /// A request that is sent again, or a wait.
    Wait,
    Warning,
    Error,
}

/// A line of the log that is no event, and worth a look.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Seconds since 1970.
    pub time: f64,
    pub kind: Kind,
    pub text: String,
}

impl Mark {
    fn of_line(line: &str) -> Option<Mark> {
        let (time, said) = record(line)?;
        let (logger, text) = said.split_once("]: ")?;
        let kind = match logger.rsplit_once('[')?.1 {
            "WARNING" | "DEPRECATED" => Kind::Warning,
            "ERROR" | "CRITICAL" => Kind::Error,
            _ => of_message(text)?,
        };
        let end = (0..=MAX_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
        Some(Mark { time, kind, text: text[..end].to_owned() })
    }
}

/// What a message below a warning is about: prepivot's of its requests and waits, and cloud-init's of its requests.
fn of_message(text: &str) -> Option<Kind> {
    let method = ["GET ", "PUT ", "POST ", "HEAD "].iter().any(|method| text.starts_with(method));
    match text {
        _ if method && text.contains("; asking again") => Some(Kind::Wait),
        _ if method => Some(Kind::Request),
        _ if text.starts_with("Read from http") => Some(Kind::Request),
        _ if text.starts_with("waiting ") || text.starts_with("Please wait ") => Some(Kind::Wait),
        _ => None,
    }
}

/// The marks of a log. JSON that `dump` wrote has none.
pub fn marks(bytes: &[u8]) -> Vec<Mark> {
    String::from_utf8_lossy(bytes).lines().filter_map(Mark::of_line).take(MAX_MARKS).collect()
}

/// The events of a log, or of JSON that `dump` wrote.
pub fn read(bytes: &[u8]) -> Vec<Event> {
    match json::parse("events", bytes) {
        Ok(Value::List(list)) => list.iter().filter_map(Event::of_value).take(MAX_EVENTS).collect(),
        _ => String::from_utf8_lossy(bytes).lines().filter_map(Event::of_line).take(MAX_EVENTS).collect(),
    }
}

/// The time that a line begins with, in seconds since 1970: `2026-11-20 10:00:00,123`,
/// `2026-11-20T10:00:00.123+00:00` or `Nov 20 10:00:00.123`, which is of this year. The fraction may be missing. UTC,
/// unless there is an offset.
fn seconds(line: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    let date = words.next()?;
    if date.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let day = words.next()?;
        let (time, fraction, _) = of_day(words.next()?)?;
        let today = clock::timestamp(SystemTime::now(), "");
        let (year, _) = today.split_once('-')?;
        return Some(clock::parse_http_date(&format!(", {day} {date} {year} {time} GMT"))? as f64 + fraction);
    }
    let (date, time) = match date.split_once('T') {
        Some(both) => both,
        None => (date, words.next()?),
    };
    let (time, fraction, zone) = of_day(time)?;
    let zone = if zone.is_empty() { "Z" } else { zone };
    Some(clock::parse_iso8601(&format!("{date}T{time}{zone}"))? as f64 + fraction)
}

/// `10:00:00.123+00:00` in its parts: the time, the fraction of a second, the zone.
fn of_day(text: &str) -> Option<(&str, f64, &str)> {
    let (time, rest) = text.split_at_checked(8)?;
    let Some(digits) = rest.strip_prefix([',', '.']) else { return Some((time, 0.0, rest)) };
    let (fraction, zone) = digits.split_at(digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()));
    Some((time, format!("0.{fraction}0").parse().ok()?, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_programs() {
        let log = "2026-11-20 10:00:00,123 - prepivot[DEBUG]: start: init-local: provisioning the root\n\
            2026-11-20 10:00:00,500 - prepivot[WARNING]: something: finish: else\n\
            2026-11-20 10:00:01,000 - util.py[DEBUG]: Cloud-init v. 26.2 running 'modules:config' at Fri, 20 Nov 2026. Up 2.0 seconds.\n\
            2026-11-20 10:00:01,250 - handlers.py[DEBUG]: finish: modules-config/config-x: FAIL: running config-x with frequency always\n\
            2026-11-20 10:00:02,000 - util.py[DEBUG]: Cloud-init v. 26.2 finished at Fri\nstart: x: y\n - start: x: y\n\
            99999-1-1 10:1:1,1 - a[DEBUG]: start: x: y\n";
        let events = read(log.as_bytes());
        let found: Vec<String> =
            events.iter().map(|e| format!("{} {} {} {:?}", e.time, e.name, e.description, e.result)).collect();
        assert_eq!(
            found,
            [
                "1795168800.123 init-local provisioning the root None",
                "1795168801 modules-config running config modules None",
                "1795168801.25 modules-config/config-x running config-x with frequency always Some(\"FAIL\")",
            ]
        );
        let dumped = json::to_string(&Value::List(events.iter().map(Event::to_value).collect()));
        assert_eq!(read(dumped.as_bytes()), events);
        assert!(read(b"[{}, 1, {\"name\": \"x\", \"timestamp\": \"y\"}]").is_empty());
        assert!(read(b"\xff\xfe\n").is_empty());
    }

    #[test]
    fn times_of_every_log() {
        let now = clock::timestamp(SystemTime::now(), "");
        let august = format!("{}-08-21T10:00:00Z", &now[..4]);
        let august = clock::parse_iso8601(&august).unwrap() as f64;
        let start = "[CLOUDINIT] handlers.py[DEBUG]: start: init-local: x";
        for (line, time) in [
            (format!("2026-08-21T10:00:00.200+00:00 host {start}"), Some(1_787_306_400.2)),
            (format!("2026-08-21T10:00:00+02:00 host {start}"), Some(1_787_299_200.0)),
            (format!("2026-08-21T10:00:00Z host {start}"), Some(1_787_306_400.0)),
            (format!("2026-08-21T10:00:00.200 host {start} - y"), Some(1_787_306_400.2)),
            ("2026-08-21 10:00:00 - a.py[DEBUG]: start: init-local: x".into(), Some(1_787_306_400.0)),
            (format!("Aug 21 10:00:00 host.example {start}"), Some(august)),
            (format!("Aug 21 10:00:00.250000 host cloud-init[106]: {start}"), Some(august + 0.25)),
            ("Aug 21 10:00:00 cloud-init[106]: handlers.py[DEBUG]: start: init-local: x".into(), Some(august)),
            ("Aug 21 10:00:00 host cloud-init[106]: handlers.py[DEBUG]: start: init-local: x - y".into(), Some(august)),
            (
                "Aug 21 10:00:00 host cloud-init[106]: 2026-08-21 - a.py[DEBUG]: start: init-local: x".into(),
                Some(august),
            ),
            ("Aug 21 10:00:00 cloud-init[106]".into(), None),
            (format!("Aug 32 10:00:00 host {start}"), None),
            (format!("Avg 21 10:00:00 host {start}"), None),
            (format!("2026-08-21T10:00 host {start}"), None),
            (format!("2026-08-21T10:00:00.2+x host {start}"), None),
            (format!("host {start}"), None),
            (format!(" {start}"), None),
        ] {
            let events = read(line.as_bytes());
            assert_eq!(events.first().map(|e| (e.name.as_str(), e.time)), time.map(|t| ("init-local", t)), "{line}");
        }
        let line =
            "Aug 21 10:00:00 h [CLOUDINIT] util.py[DEBUG]: Cloud-init v. 26.2 running 'init' at Fri, 21 Aug 2026.";
        assert_eq!(read(line.as_bytes())[0].name, "init-network");
    }
}
