//! What the machine of a case is surrounded by: one function for each key of a case's input.

use super::case::Case;
use super::host;
use super::socket;
use prepivot::link::http::Reply;
use prepivot::link::http::script::{Answer, Script};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A request of cloud-init's, and its answer.
pub struct Exchange {
    pub method: String,
    pub url: String,
    pub request_headers: Vec<(String, String)>,
    pub request_body: Option<Vec<u8>>,
    /// Whether it came from a local port that matters: a privileged one.
    pub has_source_port: bool,
    /// Why there was no answer: `refused`, `timeout`, `unreachable`.
    pub error: Option<String>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How often it came in a row.
    pub times: usize,
}

impl Exchange {
    fn answer(&self) -> Answer {
        match self.error.as_deref() {
            Some("timeout") => Answer::Timeout,
            Some(reason) => Answer::Refused(reason.into()),
            None => {
                let headers = self.headers.iter().map(|(n, v)| (n.to_ascii_lowercase(), v.clone())).collect();
                Answer::Reply(Reply { status: self.status, headers, body: self.body.clone(), ..Reply::default() })
            }
        }
    }
}

/// The services and name servers of a case.
pub fn script(case: &Case) -> Script {
    let mut script = Script::default();
    for exchange in &case.http {
        for _ in 0..exchange.times {
            script = script.with(&exchange.method, &exchange.url, exchange.answer());
        }
    }
    case.names.iter().fold(script, |script, (name, addresses)| script.with_name(name, addresses))
}

/// Sets up what a case needs besides HTTP.
///
/// # Errors
///
/// The reason why the case is skipped.
pub fn set_up(case: &Case, dir: &Path) -> Result<(), String> {
    host::make_programs(case, dir);
    host::set_release(case, dir);
    if case.needs.contains(&"dialogue") || case.needs.contains(&"smartos") {
        host::start(case, dir);
    }
    socket::serve(case, dir);
    case.needs.iter().try_for_each(|need| match *need {
        "commands" => {
            commands(case, dir);
            Ok(())
        }
        "serial" | "dialogue" | "smartos" => Ok(()),
        "env" => {
            host::set_environment(case, dir);
            Ok(())
        }
        "transport_key" => transport_key(case, dir),
        other => Err(format!("{other} is not known")),
    })
}

/// Programs that the source runs through the root: in a tree nothing runs, so that only their presence is seen.
fn commands(case: &Case, dir: &Path) {
    for program in case.commands.iter().filter_map(|argv| argv.first()).filter(|p| !p.starts_with('/')) {
        let path = dir.join("usr/bin").join(program);
        fs::create_dir_all(dir.join("usr/bin")).expect("a folder");
        fs::write(&path, "").expect("a file");
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
}

/// The key that Azure's certificates are encrypted for.
fn transport_key(_: &Case, _: &Path) -> Result<(), String> {
    // It is openssl's, which does not run in a tree: source/azure/certificates tests what comes out of the certificates.
    Ok(())
}
