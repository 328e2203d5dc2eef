//! What a thread logged as a warning or an error.

use std::cell::RefCell;
use std::sync::Once;

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

/// What this thread logged since its last call, which must have been made before.
pub fn take() -> Vec<String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        log::set_logger(&Collect).expect("no other logger");
        log::set_max_level(log::LevelFilter::Warn);
    });
    LOGGED.take()
}
