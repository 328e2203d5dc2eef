//! Timing events in the log, in the format of cloud-init's reporting module: `analyze` reads these lines.

use std::cell::RefCell;
use std::time::Instant;

thread_local! {
    /// The open events, outermost first.
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// The prefix of the line that begins an event.
pub const START: &str = "start: ";
/// The prefix of the line that ends an event.
pub const FINISH: &str = "finish: ";

/// An open event. It ends when it is dropped.
pub struct Event {
    name: String,
    what: String,
    /// The description at the end of an event that did not fail; by default that of its beginning.
    done: Option<String>,
    /// When it began; None if its end does not report a duration.
    begun: Option<Instant>,
    failed: bool,
}

impl Event {
    /// Begins an event: of a stage, or of a part of the current stage, as `init-local/search`. `what`
    /// describes it.
    pub fn start(name: &'static str, what: impl Into<String>) -> Event {
        Event::begin(name, String::new(), what.into())
    }

    /// Begins the event of a module in a stage: `init-local/config-users_groups`.
    pub fn module(name: &str, frequency: &str) -> Event {
        let what = format!("running config-{name} with frequency {frequency}");
        let mut event = Event::begin("config-", name.to_owned(), what);
        event.done = Some(format!("config-{name} ran successfully"));
        event.begun = Some(Instant::now());
        event
    }

    /// Logs the event of a module that does nothing because it has already run at its frequency.
    pub fn ran_before(name: &str, frequency: &str) {
        let mut event = Event::module(name, frequency);
        event.done = Some(format!("config-{name} previously ran"));
        event.begun = None;
    }

    fn begin(name: &'static str, rest: String, what: String) -> Event {
        let name = OPEN.with_borrow_mut(|open| {
            let mut path = open.join("/");
            open.push(name);
            if !path.is_empty() {
                path.push('/');
            }
            path + name + &rest
        });
        log::debug!("{START}{name}: {what}");
        Event { name, what, done: None, begun: None, failed: false }
    }

    /// Marks the event as failed.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        OPEN.with_borrow_mut(Vec::pop);
        let name = &self.name;
        if self.failed {
            return log::debug!("{FINISH}{name}: FAIL: {}", self.what);
        }
        let text = self.done.as_ref().unwrap_or(&self.what);
        let took = self.begun.map(|begun| format!(" and took {:.3} seconds", begun.elapsed().as_secs_f64()));
        log::debug!("{FINISH}{name}: SUCCESS: {text}{}", took.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::logging;

    #[test]
    fn events_stand_in_each_other() {
        let messages = logging::capture(|| {
            let stage = Event::start("init-local", "all of it");
            Event::module("x", "always").fail();
            drop(stage);
            drop(Event::module("y", "once"));
            Event::ran_before("z", "once-per-instance");
        });
        let mut lines: Vec<String> = messages.into_iter().map(|m| m.text).collect();
        let took = lines[5].split_off("finish: config-y: SUCCESS: config-y ran successfully and took 0.0".len());
        assert!(took.ends_with(" seconds"), "{took}");
        assert_eq!(
            lines,
            [
                "start: init-local: all of it",
                "start: init-local/config-x: running config-x with frequency always",
                "finish: init-local/config-x: FAIL: running config-x with frequency always",
                "finish: init-local: SUCCESS: all of it",
                "start: config-y: running config-y with frequency once",
                "finish: config-y: SUCCESS: config-y ran successfully and took 0.0",
                "start: config-z: running config-z with frequency once-per-instance",
                "finish: config-z: SUCCESS: config-z previously ran",
            ]
        );
    }
}
