//! Waits for the end of coldplug: udev has handled all device events so far and loaded the drivers.

use crate::base::deadline::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;

/// Waits until systemd-udevd is idle, which is when it removes the file `queue` from its folder `run`
/// (/run/udev), as in `udevadm settle`. Returns at once if it does not run, and false if the deadline passes
/// first.
pub fn settle(run: &Path, deadline: Deadline) -> bool {
    let is_busy = || run.join("queue").exists();
    if !is_busy() {
        return true;
    }
    let Ok(watch) = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else { return false };
    if inotify::add_watch(&watch, run, WatchFlags::DELETE).is_err() {
        return false;
    }
    while is_busy() {
        let left = deadline.left();
        if left.is_zero() {
            return false;
        }
        let _ = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Timespec::try_from(left).ok().as_ref());
        let mut events = [0; 4096];
        while rustix::io::read(&watch, &mut events).is_ok_and(|n| n > 0) {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::time::{Duration, Instant};

    #[test]
    fn waits_exactly_until_the_queue_is_empty() {
        let dir = TempDir::new("settle");
        assert!(settle(&dir.0, Deadline::after(Duration::ZERO)), "no udev is no wait");
        let queue = dir.0.join("queue");
        std::fs::write(&queue, "").unwrap();
        assert!(!settle(&dir.0, Deadline::after(Duration::from_millis(50))));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                std::fs::write(dir.0.join("other"), "").unwrap();
                std::fs::remove_file(dir.0.join("other")).unwrap();
                std::fs::remove_file(&queue).unwrap();
            });
            assert!(settle(&dir.0, Deadline::after(Duration::from_secs(60))));
        });
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
