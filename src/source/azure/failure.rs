//! Why provisioning failed, in the form that Azure shows as the error of the deployment.
//!
//! Reasons and keys are cloud-init's (<https://aka.ms/linuxprovisioningerror>), which Azure's documentation
//! and tools know.

use crate::base::clock;
use crate::base::error::Error;
use std::fmt;
use std::time::SystemTime;

/// The name of this program in reports.
const AGENT: &str = concat!("prepivot/", env!("CARGO_PKG_VERSION"));

/// A failure: a reason that is the same for the same kind of failure, and supporting data. Contains no
/// secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    data: Vec<(&'static str, String)>,
}

impl Failure {
    /// A failure without data.
    pub fn new(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), data: Vec::new() }
    }

    /// Adds supporting data.
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Failure {
        self.data.push((key, value.to_string()));
        self
    }

    /// The reason, without data.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The report for the machine `vm_id` at this time.
    pub fn report(&self, vm_id: &str, time: SystemTime) -> String {
        let mut fields = vec!["result=error".to_owned(), format!("reason={}", self.reason), format!("agent={AGENT}")];
        fields.extend(self.data.iter().map(|(key, value)| format!("{key}={value}")));
        fields.push(format!("vm_id={vm_id}"));
        fields.push(format!("timestamp={}", timestamp(time)));
        fields.push("documentation_url=https://aka.ms/linuxprovisioningerror".into());
        encode(&fields)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.data.iter().try_for_each(|(key, value)| write!(f, ", {key}={value}"))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::new(failure.to_string())
    }
}

/// The report that the machine `vm_id` has been provisioned.
pub fn success(vm_id: &str, time: SystemTime) -> String {
    let time = timestamp(time);
    encode(&["result=success".into(), format!("agent={AGENT}"), format!("timestamp={time}"), format!("vm_id={vm_id}")])
}

fn timestamp(time: SystemTime) -> String {
    format!("{}+00:00", clock::timestamp(time, "").replace(' ', "T"))
}

/// Fields as one line of CSV: separated by `|`, in single quotes if necessary.
fn encode(fields: &[String]) -> String {
    let field = |text: &String| match text.contains(['|', '\'', '\n', '\r']) {
        true => format!("'{}'", text.replace('\'', "''")),
        false => text.clone(),
    };
    fields.iter().map(field).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn reports() {
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let failure = Failure::new("missing 'HostName'").with("a", "x|y").with("n", 7);
        let expected = format!(
            "result=error|'reason=missing ''HostName'''|agent={AGENT}|'a=x|y'|n=7|vm_id=v|timestamp=2023-11-14T22:13:20+00:00\
             |documentation_url=https://aka.ms/linuxprovisioningerror"
        );
        assert_eq!(failure.report("v", time), expected);
        assert_eq!(Error::from(failure).to_string(), "missing 'HostName', a=x|y, n=7");
        assert_eq!(
            success("v", time),
            format!("result=success|agent={AGENT}|timestamp=2023-11-14T22:13:20+00:00|vm_id=v")
        );
    }
}
