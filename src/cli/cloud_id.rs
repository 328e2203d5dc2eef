//! `cloud-id`: which cloud this is, in one word.

use super::program::{Program, print};
use super::verb::Verb;
use super::{files, status};
use crate::document::{Value, json};
use crate::instance::instance_data;
use crate::instance::report::Running;
use crate::instance::state::RUN_DIR;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// Exit codes besides 0 and 1.
const DISABLED: u8 = 2;
const NOT_STARTED: u8 = 3;
/// Printed for values that instance-data does not have.
const UNKNOWN: &str = "unknown";

/// print the canonical name of the cloud
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "cloud-id",
    help_triggers("-h", "--help"),
    error_code(1, "there is no instance-data"),
    error_code(2, "provisioning is disabled"),
    error_code(3, "provisioning has not started")
)]
pub struct CloudId {
    /// print all of the standard instance-data as JSON (deprecated: use cloud-init query v1)
    #[argh(switch, short = 'j')]
    json: bool,
    /// print the region too, after a tab
    #[argh(switch, short = 'l')]
    long: bool,
    /// the instance-data file to read
    #[argh(option, short = 'i', arg_name = "path")]
    instance_data: Option<String>,
    /// the root to read, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
}

impl Verb for CloudId {
    const PROGRAMS: &'static [&'static str] = &["cloud-id"];

    fn run(self, program: &Program) -> ExitCode {
        program.log(log::LevelFilter::Warn);
        let mut source = match status::Source::open(&self.root) {
            Ok(source) => source,
            Err(e) => return program.fail(e),
        };
        let report = match source.report() {
            Ok(report) => report,
            Err(e) => return program.fail(e),
        };
        let code = match report.running {
            Running::Disabled => DISABLED,
            Running::NotStarted => NOT_STARTED,
            Running::Running | Running::Done => 0,
        };
        if code != 0 {
            print(&format!("{}\n", report.running.name()));
            return ExitCode::from(code);
        }
        let data = match &self.instance_data {
            Some(path) => files::read(path).and_then(|bytes| json::parse(path, &bytes)),
            None => public(&source),
        };
        match data {
            Ok(data) => {
                if self.json {
                    program.say("DEPRECATED: --json: use cloud-init query v1");
                }
                print(&self.answer(&data));
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(format_args!("{e}; name an instance-data file with --instance-data")),
        }
    }
}

impl CloudId {
    fn answer(&self, data: &Value) -> String {
        let mut v1 = data.get("v1").and_then(Value::as_map).cloned().unwrap_or_default();
        let text = |key: &str| v1.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).unwrap_or(UNKNOWN);
        let region = text("region");
        let id = instance_data::canonical_cloud_id(text("cloud_name"), region, text("platform"));
        if self.json {
            v1.insert("cloud_id", id);
            return json::to_string_sorted(&Value::Map(v1)) + "\n";
        }
        // As cloud-init prints a region that is there and has no value.
        let region = if v1.get("region").is_some_and(Value::is_null) { "None" } else { region };
        if self.long { format!("{id}\t{region}\n") } else { format!("{id}\n") }
    }
}

fn public(source: &status::Source) -> crate::base::error::Result<Value> {
    let path = format!("{RUN_DIR}/instance-data.json");
    let bytes = source.root.read(&path)?.ok_or_else(|| crate::base::error::Error::new(format!("{path} is missing")))?;
    json::parse(&path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_and_the_short_of_it() {
        let data = json::parse(
            "t",
            br#"{"v1": {"cloud_name": "aws", "region": "us-gov-x", "platform": "ec2"}, "ds": {"secret": 1}}"#,
        )
        .unwrap();
        let answer = |json, long| CloudId { json, long, instance_data: None, root: "/".into() }.answer(&data);
        assert_eq!(answer(false, false), "aws-gov\n");
        assert_eq!(answer(false, true), "aws-gov\tus-gov-x\n");
        assert!(answer(true, false).contains("\"cloud_id\": \"aws-gov\"") && !answer(true, false).contains("secret"));
        let none = CloudId { json: false, long: true, instance_data: None, root: "/".into() }.answer(&Value::Null);
        assert_eq!(none, "unknown\tunknown\n");
        let data =
            json::parse("t", br#"{"v1": {"cloud_name": "unknown", "region": null, "platform": "nocloud"}}"#).unwrap();
        let none = CloudId { json: false, long: true, instance_data: None, root: "/".into() }.answer(&data);
        assert_eq!(none, "nocloud\tNone\n");
    }
}
