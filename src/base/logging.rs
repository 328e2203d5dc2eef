//! Where messages go: the kernel's log in the initramfs, standard error in the real root; and all of them in memory, for
//! status.json and /var/log/cloud-init.log.

use crate::base::{clock, mask};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::time::SystemTime;

/// How many messages one stage says and keeps. The same one is said once.
const MAX_MESSAGES: usize = 10_000;
/// The longest line that the kernel's log takes from a program, with its level and name (LOG_LINE_MAX).
const MAX_KMSG: usize = 900;

/// The target of messages about what is deprecated. They are for the log and status.json, not for a console: nothing is wrong.
pub const DEPRECATED: &str = "prepivot::deprecated";

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    pub level: Level,
    /// What cloud-init calls the level: `WARNING`, `DEPRECATED`, …
    pub name: &'static str,
    pub text: String,
    pub time: SystemTime,
}

thread_local! {
    /// What was said since the last [`take`], to say nothing twice.
    static SAID: RefCell<HashSet<(Level, String)>> = RefCell::new(HashSet::new());
    static MESSAGES: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
    /// What standard error has had, so that nobody is told twice.
    static TOLD: RefCell<HashSet<String>> = RefCell::new(HashSet::new());
}

/// Where lines are shown while they happen.
enum Shown {
    /// /dev/kmsg. Only warnings and errors: the kernel limits how many lines a program may write.
    Kernel(File),
    /// Standard error, up to a level.
    Stderr(LevelFilter),
}

struct Logger;

static SHOWN: OnceLock<Shown> = OnceLock::new();

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // What a library says is for its maker: rtnetlink's has warnings of events that nobody waits for any more, and a
        // warning makes the boot a degraded one.
        metadata.target().starts_with("prepivot")
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = one_line(&record.args().to_string());
        let new = SAID.with_borrow_mut(|said| said.len() < MAX_MESSAGES && said.insert((record.level(), text.clone())));
        if !new {
            return;
        }
        match SHOWN.get() {
            Some(Shown::Kernel(kmsg)) if record.level() <= Level::Warn => to_kernel(kmsg, record.level(), &text),
            Some(Shown::Stderr(max)) if record.level() <= *max => {
                let _ = writeln!(std::io::stderr(), "prepivot: {text}");
                if record.level() <= Level::Warn {
                    TOLD.with_borrow_mut(|told| told.insert(text.clone()));
                }
            }
            _ => {}
        }
        let name = match record.level() {
            _ if record.target() == DEPRECATED => "DEPRECATED",
            Level::Warn => "WARNING",
            level => level.as_str(),
        };
        let message = Message { level: record.level(), name, text, time: SystemTime::now() };
        MESSAGES.with_borrow_mut(|messages| messages.push(message));
    }

    fn flush(&self) {}
}

/// A message as one line, whatever was put into it, without the credentials of URLs.
fn one_line(text: &str) -> String {
    mask::urls(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn to_kernel(mut kmsg: &File, level: Level, text: &str) {
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        _ => 6,
    };
    let end = (0..=text.len().min(MAX_KMSG)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let _ = kmsg.write_all(format!("<{priority}>prepivot: {}\n", &text[..end]).as_bytes());
}

fn start(shown: Shown) {
    if SHOWN.set(shown).is_ok() && log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// Messages go to the kernel's log, where a console shows the errors.
pub fn to_kmsg() {
    match File::options().write(true).open("/dev/kmsg") {
        Ok(kmsg) => start(Shown::Kernel(kmsg)),
        Err(_) => to_stderr(LevelFilter::Warn),
    }
}

/// Messages up to `max` go to standard error.
pub fn to_stderr(max: LevelFilter) {
    start(Shown::Stderr(max));
}

/// Messages are only kept: for tests that ask what was warned about.
pub fn quiet() {
    to_stderr(LevelFilter::Off);
}

/// One line for the person at the console, whatever the log level: what happened and what to do.
pub fn console(text: &str) {
    let text = one_line(text);
    match SHOWN.get() {
        Some(Shown::Kernel(kmsg)) => to_kernel(kmsg, Level::Error, &text),
        _ => {
            let _ = writeln!(std::io::stderr(), "prepivot: {text}");
        }
    }
}

/// Whether this thread's warnings and errors on standard error had this line already.
pub fn was_told(text: &str) -> bool {
    TOLD.with_borrow(|told| told.contains(&one_line(text)))
}

/// Takes the messages of this thread since the last call.
pub fn take() -> Vec<Message> {
    SAID.with_borrow_mut(HashSet::clear);
    MESSAGES.with_borrow_mut(std::mem::take)
}

/// Messages as lines of /var/log/cloud-init.log: `2026-11-20 10:00:00,123 - prepivot[LEVEL]: text`, in UTC.
pub fn to_file_lines(messages: &[Message]) -> String {
    messages.iter().map(|m| format!("{} - prepivot[{}]: {}\n", clock::timestamp(m.time, ","), m.name, m.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_as_one_line_each() {
        quiet();
        take();
        log::warn!("two\nlines of http://me:pw@h/");
        let messages = take();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].text, "two lines of http://********@h/");
        assert!(to_file_lines(&messages).ends_with(" - prepivot[WARNING]: two lines of http://********@h/\n"));
        assert!(take().is_empty());
        log::info!(target: DEPRECATED, "old");
        assert!(to_file_lines(&take()).ends_with(" - prepivot[DEPRECATED]: old\n"));
    }
}
