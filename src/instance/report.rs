//! The summary of a boot that `status` prints, from status.json and result.json (cloud-init's `cmd/status`).

use super::boot::Boot;
use crate::base::clock;
use crate::document::{Map, Value};

/// The progress of the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    NotStarted,
    Running,
    Done,
    Disabled,
}

impl Running {
    /// The word that `status` prints.
    pub fn name(self) -> &'static str {
        match self {
            Running::NotStarted => "not started",
            Running::Running => "running",
            Running::Done => "done",
            Running::Disabled => "disabled",
        }
    }

    /// Whether the boot has not finished yet.
    pub fn is_open(self) -> bool {
        matches!(self, Running::NotStarted | Running::Running)
    }
}

/// The health of the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing is wrong.
    Healthy,
    /// Warnings.
    Degraded,
    Error,
}

/// The content of `status`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusReport {
    pub running: Running,
    pub condition: Condition,
    pub boot: Boot,
    /// The datasource according to status.json, the current stage, or why the boot is or is not provisioned.
    pub description: String,
    pub errors: Vec<Value>,
    /// Lists of messages by their level.
    pub recoverable_errors: Map,
    /// The time of the last event, as in an e-mail header; empty if there was none.
    pub last_update: String,
    /// The datasource's name in lower case; empty or null without one, as in status.json.
    pub datasource: Value,
    /// The stages as in status.json.
    pub v1: Map,
}

/// Times from here on are seconds since 1970, as written by older versions of cloud-init; smaller ones are
/// seconds since the kernel started.
const EPOCH_FROM: f64 = 1e9;
/// The last second of the year 9999, the latest date that is printed.
const LAST_DATE: f64 = 253_402_300_799.0;
/// The error that a failed unit adds (cloud-init's words).
const UNIT_FAILED: &str = "Failed due to systemd unit failure. Ensure all cloud-init services are enabled, and check \
                           'systemctl' or 'journalctl' for more information.";

impl StatusReport {
    /// Summarises `status`, the parsed status.json if there is one. `finished`: whether there is a
    /// result.json. `started`: when the kernel started, in seconds since 1970; 0 if unknown.
    pub fn new(status: Option<&Value>, finished: bool, boot: Boot, started: f64) -> StatusReport {
        let mut v1 = status.and_then(|s| s.get("v1")).and_then(Value::as_map).cloned().unwrap_or_default();
        let full = v1.remove("datasource");
        let latest = latest_event(&v1);
        let (errors, recoverable_errors) = messages(&v1);
        let running = match (boot.status.is_disabled(), status, finished) {
            (true, ..) => Running::Disabled,
            (false, Some(_), false) => Running::Running,
            _ if latest > 0.0 => Running::Done,
            _ => Running::NotStarted,
        };
        let condition = match (errors.is_empty(), recoverable_errors.is_empty()) {
            (false, _) => Condition::Error,
            (true, false) => Condition::Degraded,
            (true, true) => Condition::Healthy,
        };
        let named = |value: Option<&Value>| value.and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
        let description = match (named(full.as_ref()), named(v1.get("stage"))) {
            (Some(datasource), _) => datasource,
            (None, Some(stage)) => format!("Running in stage: {stage}"),
            (None, None) => boot.reason.clone(),
        };
        StatusReport {
            running,
            condition,
            description,
            errors,
            recoverable_errors,
            last_update: date(latest, started),
            datasource: full.map_or_else(|| Value::from(""), |full| datasource_name(&full)),
            v1,
            boot,
        }
    }

    /// Records that the boot has ended because systemd will not start the remaining stages.
    pub fn fail_by_unit(&mut self) {
        self.running = Running::Done;
        self.condition = Condition::Error;
        self.description = "Failed due to systemd unit failure".to_owned();
        self.errors.push(UNIT_FAILED.into());
    }

    /// The word for all of it.
    pub fn status(&self) -> &'static str {
        if self.condition == Condition::Error { "error" } else { self.running.name() }
    }

    /// The extended status, with what the short one leaves out: `degraded done`, `error - running`.
    pub fn extended_status(&self) -> String {
        match (self.condition, self.running) {
            (Condition::Error, running) => format!("error - {}", running.name()),
            (Condition::Degraded, Running::Done | Running::Running) => format!("degraded {}", self.running.name()),
            (_, running) => running.name().to_owned(),
        }
    }

    /// 0: well, disabled or not started; 1: failed; 2: with warnings.
    pub fn exit_code(&self) -> u8 {
        match self.condition {
            Condition::Healthy => 0,
            Condition::Error => 1,
            Condition::Degraded => 2,
        }
    }

    /// All of it, by cloud-init's keys.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("boot_status_code", self.boot.status.name());
        map.insert("datasource", self.datasource.clone());
        map.insert("detail", self.description.as_str());
        map.insert("errors", self.errors.clone());
        map.insert("extended_status", self.extended_status());
        map.insert("last_update", self.last_update.as_str());
        map.insert("recoverable_errors", self.recoverable_errors.clone());
        map.insert("status", self.status());
        for (key, value) in self.v1.iter() {
            map.insert(key, value.clone());
        }
        Value::Map(map)
    }
}

fn number(value: Option<&Value>) -> f64 {
    match value {
        Some(Value::Int(i)) => *i as f64,
        Some(Value::Float(f)) if f.is_finite() => *f,
        _ => 0.0,
    }
}

fn latest_event(v1: &Map) -> f64 {
    let times = v1.iter().flat_map(|(_, stage)| [number(stage.get("start")), number(stage.get("finished"))]);
    times.fold(0.0, f64::max)
}

fn date(event: f64, started: f64) -> String {
    if event <= 0.0 {
        return String::new();
    }
    let since_1970 = if event < EPOCH_FROM { started + event } else { event };
    clock::rfc5322(since_1970.min(LAST_DATE) as u64)
}

/// Errors and recoverable errors of all stages, by the stages' names.
fn messages(v1: &Map) -> (Vec<Value>, Map) {
    let (mut errors, mut recoverable) = (Vec::new(), Map::new());
    for (_, stage) in v1.sorted() {
        errors.extend(stage.get("errors").and_then(Value::as_list).unwrap_or_default().iter().cloned());
        let levels = stage.get("recoverable_errors").and_then(Value::as_map);
        for (level, texts) in levels.into_iter().flat_map(Map::iter) {
            let texts = texts.as_list().unwrap_or_default();
            match recoverable.get_mut(level) {
                Some(Value::List(all)) => all.extend(texts.iter().cloned()),
                _ => drop(recoverable.insert(level, texts.to_vec())),
            }
        }
    }
    (errors, recoverable)
}

/// `DataSourceNoCloud [seed=…]` is `nocloud`.
fn datasource_name(full: &Value) -> Value {
    match full.as_str() {
        Some(text) => text.split(' ').next().unwrap_or_default().to_ascii_lowercase().replace("datasource", "").into(),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;
    use crate::instance::boot::BootStatus;

    fn report(status: &str, finished: bool) -> StatusReport {
        let boot = Boot { status: BootStatus::EnabledByGenerator, reason: "because".into() };
        StatusReport::new(Some(&json::parse("t", status.as_bytes()).unwrap()), finished, boot, 1_700_000_000.0)
    }

    #[test]
    fn warnings_degrade_and_a_failed_unit_ends_it() {
        let text = r#"{"v1": {"datasource": "DataSourceEc2 [x]", "stage": "init",
            "init": {"start": 5.25, "finished": null, "errors": [], "recoverable_errors": {"WARNING": ["b"]}},
            "init-local": {"start": 1.5, "finished": 2, "errors": [], "recoverable_errors": {"WARNING": ["c"], "ERROR": ["d"]}}}}"#;
        let mut running = report(text, false);
        assert_eq!((running.status(), running.extended_status().as_str()), ("running", "degraded running"));
        assert_eq!(running.exit_code(), 2);
        assert_eq!(running.last_update, "Tue, 14 Nov 2023 22:13:25 +0000");
        let levels = json::to_string(&Value::Map(running.recoverable_errors.clone()));
        assert_eq!(levels, r#"{"WARNING":["b","c"],"ERROR":["d"]}"#);
        running.fail_by_unit();
        assert_eq!((running.status(), running.extended_status().as_str()), ("error", "error - done"));
        assert_eq!(running.exit_code(), 1);
        assert_eq!(report(text, true).extended_status(), "degraded done");
        assert_eq!(report(text, true).datasource, Value::from("ec2"));
    }

    #[test]
    fn reads_odd_documents_as_far_as_possible() {
        for text in ["[]", "{}", r#"{"v1": 1}"#, r#"{"v1": {"init": [], "x": {"start": "a", "errors": 1}}}"#] {
            let report = report(text, false);
            assert_eq!(
                (report.status(), report.exit_code(), report.last_update.as_str()),
                ("running", 0, ""),
                "{text}"
            );
            assert_eq!(report.description, "because");
        }
        let old = report(r#"{"v1": {"stage": "init", "init": {"start": 1669231096.9}, "x": {"start": 1e300}}}"#, true);
        assert_eq!(old.last_update, "Fri, 31 Dec 9999 23:59:59 +0000");
        assert_eq!(old.description, "Running in stage: init");
    }
}
