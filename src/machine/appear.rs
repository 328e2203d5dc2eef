//! Waiting for a file of the running system to appear.

use crate::base::deadline::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;

/// Waits until a file exists. Returns false if it does not by the deadline. Its folder need not exist yet.
pub fn wait_for(path: &Path, deadline: Deadline) -> bool {
    let nearest = || path.ancestors().skip(1).find(|folder| folder.is_dir());
    while !path.exists() {
        let Some(folder) = nearest() else { return false };
        let Ok(events) = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else { return false };
        let wanted = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
        if inotify::add_watch(&events, folder, wanted).is_err() {
            return false;
        }
        // The watch does not report what appeared before it began.
        if path.exists() || nearest() != Some(folder) {
            continue;
        }
        let left = Timespec::try_from(deadline.left()).ok();
        if deadline.passed() || !matches!(poll(&mut [PollFd::new(&events, PollFlags::IN)], left.as_ref()), Ok(1..)) {
            return path.exists();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::time::{Duration, Instant};

    #[test]
    fn a_file_in_a_folder_that_comes_later() {
        let dir = TempDir::new("appear");
        let path = dir.0.join("a/b");
        let writer = path.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            std::fs::create_dir(writer.parent().unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            std::fs::write(writer, "x").unwrap();
        });
        assert!(wait_for(&path, Deadline::after(Duration::from_secs(30))));
        thread.join().unwrap();
        let started = Instant::now();
        assert!(!wait_for(&dir.0.join("none"), Deadline::after(Duration::from_millis(50))));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
