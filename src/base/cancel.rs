//! Cancels waits from another thread.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ends every wait on any clone of this value, now and later.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<OwnedFd>);

impl AsFd for Cancel {
    /// A file descriptor that becomes readable on cancellation.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Cancel {
    /// A new value, not cancelled.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Cancel(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Cancels this value and all copies of it.
    pub fn cancel(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits for `budget`. Returns false if cancelled before.
    pub fn wait(&self, budget: Duration) -> bool {
        let end = Instant::now() + budget;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timespec(left))) {
                Ok(0) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return false,
            }
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        !self.wait(Duration::ZERO)
    }

    /// Waits until `fd` is ready for `events`.
    ///
    /// # Errors
    /// `TimedOut` when the budget is spent; another error if cancelled.
    pub fn wait_for(&self, fd: &OwnedFd, events: PollFlags, budget: Option<Duration>) -> io::Result<()> {
        let end = budget.map(|b| Instant::now() + b);
        loop {
            let left = end.map(|end| timespec(end.saturating_duration_since(Instant::now())));
            let mut fds = [PollFd::new(fd, events), PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) if !fds[1].revents().is_empty() => return Err(io::Error::other("no longer needed")),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}
