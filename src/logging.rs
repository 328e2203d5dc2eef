//! Where messages go: the kernel's log in the initramfs, standard error in the real root; and all of them in memory, for
//! status.json and /var/log/cloud-init.log.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// How many messages one stage keeps.
const MAX_MESSAGES: usize = 10_000;
/// The longest line that the kernel's log takes from a program, with its level and name (LOG_LINE_MAX).
const MAX_KMSG: usize = 900;

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    pub level: Level,
    pub text: String,
    pub time: SystemTime,
}

thread_local! {
    static MESSAGES: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
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
        metadata.target().starts_with("prepivot") || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = one_line(&record.args().to_string());
        match SHOWN.get() {
            Some(Shown::Kernel(kmsg)) if record.level() <= Level::Warn => to_kernel(kmsg, record.level(), &text),
            Some(Shown::Stderr(max)) if record.level() <= *max => {
                let _ = writeln!(std::io::stderr(), "prepivot: {text}");
            }
            _ => {}
        }
        MESSAGES.with_borrow_mut(|messages| {
            if messages.len() < MAX_MESSAGES {
                messages.push(Message { level: record.level(), text, time: SystemTime::now() });
            }
        });
    }

    fn flush(&self) {}
}

/// A message is one line, whatever was put into it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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

/// Takes the messages of this thread since the last call.
pub fn take() -> Vec<Message> {
    MESSAGES.with_borrow_mut(std::mem::take)
}

/// Messages as lines of /var/log/cloud-init.log: `2026-11-20 10:00:00,123 - prepivot[LEVEL]: text`, in UTC.
pub fn to_file_lines(messages: &[Message]) -> String {
    messages
        .iter()
        .map(|m| {
            let level = if m.level == Level::Warn { "WARNING" } else { m.level.as_str() };
            format!("{} - prepivot[{level}]: {}\n", timestamp(m.time, ","), m.text)
        })
        .collect()
}

/// A time in UTC: `2026-11-20 10:00:00` and the milliseconds after `separator`; without them where that is empty.
pub fn timestamp(time: SystemTime, separator: &str) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let mut out =
        format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if !separator.is_empty() {
        out += &format!("{separator}{:03}", since.subsec_millis());
    }
    out
}

/// The Gregorian date of a day counted from 1970-01-01, by cycles of 400 years (146,097 days) that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_as_one_line_each() {
        quiet();
        take();
        log::warn!("two\nlines");
        let messages = take();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].text, "two lines");
        assert!(to_file_lines(&messages).ends_with(" - prepivot[WARNING]: two lines\n"));
        assert!(take().is_empty());
    }

    #[test]
    fn dates() {
        let at = |s: u64| timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(s * 1000 + 7), ",");
        assert_eq!(at(0), "1970-01-01 00:00:00,007");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00,007");
        assert_eq!(at(1_795_170_896), "2026-11-20 10:34:56,007");
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH, ""), "1970-01-01 00:00:00");
    }
}
