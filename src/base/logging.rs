//! Log messages. They are shown as they happen, in the kernel's log (initramfs) or on standard error (real
//! root), and kept in memory, from all threads, for /var/log/cloud-init.log.

use crate::base::text::{self, MAX_MESSAGE};
use crate::base::{clock, mask};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// The most different messages kept between two calls of [`take`]; later ones are dropped.
const MAX_MESSAGES: usize = 10_000;
/// The longest line that the kernel's log accepts from a program, with its level and name (LOG_LINE_MAX).
const MAX_KMSG: usize = 900;

/// The target of messages about deprecated keys, which go to the log and status.json but not to a console:
/// nothing is wrong yet.
pub const DEPRECATED: &str = "prepivot::deprecated";

/// The target of a message of several lines, which is one entry of the log.
pub const LINES: &str = "prepivot::lines";

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    pub level: Level,
    /// cloud-init's name of the level: `WARNING`, `DEPRECATED`, …
    pub name: &'static str,
    pub text: String,
    pub time: SystemTime,
}

/// The messages since the last [`take`].
#[derive(Default)]
struct Buffer {
    /// The texts in `messages`, so that each is kept once.
    seen: HashSet<(Level, String)>,
    messages: Vec<Message>,
}

impl Buffer {
    /// Keeps a message. Returns false if it is a duplicate, or there are too many.
    fn add(&mut self, message: Message) -> bool {
        let new = self.seen.len() < MAX_MESSAGES && self.seen.insert((message.level, message.text.clone()));
        if new {
            self.messages.push(message);
        }
        new
    }
}

static BUFFER: LazyLock<Mutex<Buffer>> = LazyLock::new(Mutex::default);
/// The warnings and errors that were shown on standard error.
static ON_STDERR: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// This thread's messages while [`capture`] runs.
    static CAPTURED: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where messages are shown as they happen.
enum Shown {
    /// /dev/kmsg: only warnings and errors, because the kernel limits how many lines a program may write.
    Kernel(File),
    /// Standard error, up to a level.
    Stderr(LevelFilter),
}

struct Logger;

static SHOWN: OnceLock<Shown> = OnceLock::new();

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Libraries' messages are for their developers: rtnetlink warns about events that arrive while it is
        // closing.
        metadata.target().starts_with("prepivot")
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let text = match record.target() == LINES {
            true => text.lines().map(one_line).collect::<Vec<_>>().join("\n"),
            false => one_line(&text),
        };
        let name = match record.level() {
            _ if record.target() == DEPRECATED => "DEPRECATED",
            Level::Warn => "WARNING",
            level => level.as_str(),
        };
        let message = Message { level: record.level(), name, text: text.clone(), time: SystemTime::now() };
        let captured = CAPTURED.with_borrow_mut(|own| own.as_mut().map(|own| own.add(message.clone())));
        if captured.is_some() || !lock(&BUFFER).add(message) {
            return;
        }
        match SHOWN.get() {
            Some(Shown::Kernel(kmsg)) if record.level() <= Level::Warn => to_kernel(kmsg, record.level(), &text),
            Some(Shown::Stderr(max)) if record.level() <= *max => {
                let _ = writeln!(std::io::stderr(), "prepivot: {text}");
                if record.level() <= Level::Warn {
                    lock(&ON_STDERR).insert(text);
                }
            }
            _ => {}
        }
    }

    fn flush(&self) {}
}

/// A message on one line, whatever it contains, without the credentials of URLs.
fn one_line(message: &str) -> String {
    let mut line: String = mask::hidden(message).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text::cut(&mut line, MAX_MESSAGE);
    line
}

fn to_kernel(mut kmsg: &File, level: Level, message: &str) {
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        _ => 6,
    };
    let _ = kmsg.write_all(format!("<{priority}>prepivot: {}\n", text::start(message, MAX_KMSG)).as_bytes());
}

fn start(shown: Shown) {
    if SHOWN.set(shown).is_ok() && log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// Shows messages in the kernel's log, which passes errors on to a console.
pub fn to_kmsg() {
    match File::options().write(true).open("/dev/kmsg") {
        Ok(kmsg) => start(Shown::Kernel(kmsg)),
        Err(_) => to_stderr(LevelFilter::Warn),
    }
}

/// Shows messages up to `max` on standard error.
pub fn to_stderr(max: LevelFilter) {
    start(Shown::Stderr(max));
}

/// This thread's messages while `run` runs. They are neither shown nor kept for [`take`], so that tests do
/// not see the messages of other tests.
#[doc(hidden)]
pub fn capture(run: impl FnOnce()) -> Vec<Message> {
    to_stderr(LevelFilter::Off);
    CAPTURED.set(Some(Buffer::default()));
    run();
    CAPTURED.take().unwrap_or_default().messages
}

/// Shows one line on the console, whatever the log level: the event and the remedy.
pub fn console(text: &str) {
    let text = one_line(text);
    match SHOWN.get() {
        Some(Shown::Kernel(kmsg)) => to_kernel(kmsg, Level::Error, &text),
        _ => {
            let _ = writeln!(std::io::stderr(), "prepivot: {text}");
        }
    }
}

/// Whether this warning or error was shown on standard error.
pub fn was_shown(text: &str) -> bool {
    lock(&ON_STDERR).contains(&one_line(text))
}

/// Takes the messages of all threads since the last call.
pub fn take() -> Vec<Message> {
    std::mem::take(&mut *lock(&BUFFER)).messages
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
        let messages = capture(|| {
            log::warn!("two\nlines of http://me:pw@h/");
            log::warn!("two\nlines of http://me:pw@h/");
            log::info!(target: DEPRECATED, "old");
        });
        let lines = to_file_lines(&messages);
        let ends: Vec<_> = lines.lines().filter_map(|l| l.split_once(" - ")).map(|(_, end)| end).collect();
        assert_eq!(ends, ["prepivot[WARNING]: two lines of http://********@h/", "prepivot[DEPRECATED]: old"]);
    }

    #[test]
    fn message_has_several_lines_only_if_meant() {
        let messages = capture(|| log::info!(target: LINES, "one\n\ntwo\x1b of http://me:pw@h/\n"));
        let lines = to_file_lines(&messages);
        let (_, text) = lines.split_once(" - ").unwrap();
        assert_eq!(text, "prepivot[INFO]: one\n\ntwo  of http://********@h/\n");
    }

    #[test]
    fn messages_of_other_threads_are_kept_too() {
        to_stderr(LevelFilter::Off);
        // Another test may take what this one has just logged.
        let kept = |n: u32| {
            std::thread::spawn(move || log::warn!("of thread {n}")).join().unwrap();
            take().iter().any(|m| m.text == format!("of thread {n}"))
        };
        assert!((0..100).any(kept));
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let messages = capture(|| (0..MAX_MESSAGES + 5).for_each(|n| log::debug!("{n}")));
        assert_eq!(messages.len(), MAX_MESSAGES);
    }
}
