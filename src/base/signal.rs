//! Signals that ask this program to end.

use super::thread;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether [`catch`] has blocked the signals.
static CAUGHT: AtomicBool = AtomicBool::new(false);

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// Calls `then` on a separate thread at the first SIGINT or SIGTERM, which then do not end the process. Must
/// be called before any other thread is started. If it cannot be set up, nothing changes.
pub fn catch(then: impl FnOnce(Signal) + Send + 'static) {
    let set = signals();
    if set.thread_block().is_err() {
        return;
    }
    CAUGHT.store(true, Ordering::Relaxed);
    let wait = move || {
        if let Ok(signal) = set.wait() {
            // Programs started from now on must not unblock another signal.
            CAUGHT.store(false, Ordering::Relaxed);
            then(signal);
        }
    };
    if thread::spawn(wait).is_err() {
        CAUGHT.store(false, Ordering::Relaxed);
        let _ = set.thread_unblock();
    }
}

/// Starts a process like [`Command::spawn`], without the blocked signals. A signal that arrives at the same
/// moment ends this process at once.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    if !CAUGHT.load(Ordering::Relaxed) {
        return command.spawn();
    }
    let set = signals();
    let _ = set.thread_unblock();
    let child = command.spawn();
    let _ = set.thread_block();
    child
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_by_the_signals() {
        // The test runs itself as another process, whose signals it may catch.
        if std::env::var_os("PREPIVOT_TEST_SIGNAL").is_some() {
            catch(|_| {});
            let shell = |script: &str| spawn(Command::new("/bin/sh").args(["-c", script])).unwrap().wait().unwrap();
            for (name, number) in [("TERM", 15), ("INT", 2)] {
                let ended = shell(&format!("kill -{name} $$"));
                assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(number));
            }
            return;
        }
        let this = std::env::current_exe().unwrap();
        let test = ["--exact", "base::signal::tests::a_child_ends_by_the_signals"];
        // A shell that starts the tests in the background makes them ignore SIGINT.
        let done = Command::new("env")
            .arg("--default-signal")
            .arg(this)
            .args(test)
            .env("PREPIVOT_TEST_SIGNAL", "1")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}
