//! What `status --wait` shows while it waits: what the stage does now, since when, and what it waits for.

use super::analyze::events::{self, Event, Kind};
use super::files;
use super::program::print;
use crate::base::clock;
use crate::instance::report::StatusReport;
use crate::root::CLOUD_INIT_LOG;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime};

/// How often a line is printed if the output is no terminal.
const BETWEEN: Duration = Duration::from_secs(60);
/// The longest line on a terminal, in characters: a longer one would fill two.
const LONGEST: usize = 79;

/// Shows progress on a terminal as one line that changes; elsewhere as cloud-init's dots, with a line on standard error each minute.
pub struct Progress {
    is_terminal: bool,
    /// Whether something is on the line.
    is_open: bool,
    last: Instant,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { is_terminal: std::io::stdout().is_terminal(), is_open: false, last: Instant::now() }
    }

    /// Shows how far a boot is.
    pub fn show(&mut self, report: &StatusReport) {
        self.is_open = true;
        if self.is_terminal {
            let line: String = line(report).chars().filter(|c| !c.is_control()).take(LONGEST).collect();
            return print(&format!("\r\x1b[K{line}"));
        }
        print(".");
        if self.last.elapsed() >= BETWEEN {
            self.last = Instant::now();
            let _ = writeln!(std::io::stderr(), "{}", line(report));
        }
    }

    /// Ends the line, if there is one.
    pub fn end(&self) {
        match (self.is_open, self.is_terminal) {
            (true, true) => print("\r\x1b[K"),
            (true, false) => print("\n"),
            (false, _) => {}
        }
    }
}

/// What the boot does now, by its log if this user may read it, else by its status alone.
fn line(report: &StatusReport) -> String {
    if !cfg!(feature = "tools") {
        return report.description.clone();
    }
    let log = files::read(CLOUD_INIT_LOG).unwrap_or_default();
    let now = clock::since_1970(SystemTime::now()).as_secs_f64();
    described(&report.description, &log, now)
}

/// `description`, the innermost event that is open in the log and how long it has been, and a wait that began since the last event.
fn described(description: &str, log: &[u8], now: f64) -> String {
    let events = events::read(log);
    let last = events.last().map_or(0.0, |event| event.time);
    let Some(event) = innermost(events) else { return description.to_owned() };
    let mut line = format!("{description}: {} ({:.0} s)", event.description, (now - event.time).max(0.0));
    let wait = events::marks(log).into_iter().rev().find(|mark| mark.kind == Kind::Wait && mark.time >= last);
    if let Some(wait) = wait {
        line += &format!("; {}", wait.text);
    }
    line
}

/// The event that began last and has not ended.
fn innermost(events: Vec<Event>) -> Option<Event> {
    let mut open: Vec<Event> = Vec::new();
    for event in events {
        match &event.result {
            None => open.push(event),
            Some(_) => {
                let at = open.iter().rposition(|begun| begun.name == event.name);
                at.into_iter().for_each(|at| open.truncate(at));
            }
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_open_event_and_its_wait() {
        let log = "2026-11-20 10:00:00,000 - p[DEBUG]: start: modules-config: running config modules\n\
            2026-11-20 10:00:01,000 - p[DEBUG]: start: modules-config/config-ntp: running config-ntp with frequency once\n";
        let wait = "2026-11-20 10:00:02,000 - p[DEBUG]: waiting 30 s for dpkg's lock\n";
        let end = "2026-11-20 10:00:03,000 - p[DEBUG]: finish: modules-config/config-ntp: SUCCESS: it ran\n";
        let at = clock::parse_iso8601("2026-11-20T10:00:31Z").unwrap() as f64;
        let said = |log: &str| described("Running in stage: modules-config", log.as_bytes(), at);
        let ntp = "Running in stage: modules-config: running config-ntp with frequency once (30 s)";
        assert_eq!(said(log), ntp);
        assert_eq!(said(&format!("{log}{wait}")), format!("{ntp}; waiting 30 s for dpkg's lock"));
        assert_eq!(
            said(&format!("{log}{wait}{end}")),
            "Running in stage: modules-config: running config modules (31 s)"
        );
        assert_eq!(said("nothing"), "Running in stage: modules-config");
    }
}
