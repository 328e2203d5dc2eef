//! Counts what is logged as a warning or an error.

use std::cell::RefCell;

thread_local! {
    static LOGGED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            LOGGED.with_borrow_mut(|l| l.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Collects from now on.
pub fn install() {
    if log::set_logger(&Collect).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// What this thread logged since the last call.
pub fn take() -> Vec<String> {
    LOGGED.take()
}
