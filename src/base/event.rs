//! What takes how long, in the log: the lines that `analyze` reads, in the form of cloud-init's own events (its reporting module).

use std::cell::RefCell;

thread_local! {
    /// The events that have begun, the outermost first.
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// How the line of an event's beginning begins.
pub const START: &str = "start: ";
/// How the line of its end begins.
pub const FINISH: &str = "finish: ";

/// Something that has begun. It ends when it is dropped.
pub struct Event {
    name: String,
    what: String,
    failed: bool,
}

impl Event {
    /// Begins an event of a stage or, in one that has begun, a part of it: `init-local`, `init-local/search`. `what` says what is done.
    pub fn start(name: &'static str, what: impl Into<String>) -> Event {
        Event::begin(name, String::new(), what.into())
    }

    /// Begins a module's part of a stage: `init-local/config-users_groups`.
    pub fn module(name: &str) -> Event {
        Event::begin("config-", name.to_owned(), format!("running config-{name}"))
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
        Event { name, what, failed: false }
    }

    /// It did not do what it should.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        OPEN.with_borrow_mut(Vec::pop);
        let result = if self.failed { "FAIL" } else { "SUCCESS" };
        log::debug!("{FINISH}{}: {result}: {}", self.name, self.what);
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
            Event::module("x").fail();
            drop(stage);
            drop(Event::module("y"));
        });
        let lines: Vec<String> = messages.into_iter().map(|m| m.text).collect();
        assert_eq!(
            lines,
            [
                "start: init-local: all of it",
                "start: init-local/config-x: running config-x",
                "finish: init-local/config-x: FAIL: running config-x",
                "finish: init-local: SUCCESS: all of it",
                "start: config-y: running config-y",
                "finish: config-y: SUCCESS: running config-y",
            ]
        );
    }
}
