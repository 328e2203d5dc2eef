//! Tools of the running system that return data available nowhere else: VMware's and Windows's.
//!
//! Before the pivot, and for a tree that represents a machine, there are none.

use crate::base::channel::{Receiver, channel};
use crate::base::deadline::Deadline;
use crate::base::signal;
use crate::base::thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How much of an answer is read, in bytes.
const MAX_ANSWER: u64 = 8 << 20;
/// How often a process is looked at whose end nothing reports.
const LOOK: Duration = Duration::from_millis(20);
/// How long a program that has answered may take to end.
const END: Duration = Duration::from_secs(1);

/// How a program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Whether it exited with 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: Vec<u8>,
}

type Run = dyn Fn(&[&str], Duration) -> Option<ToolAnswer> + Send + Sync;

/// The programs of a system.
#[derive(Clone)]
pub struct Tools(Option<Arc<Run>>);

impl Tools {
    /// A system whose programs are never run.
    pub fn none() -> Tools {
        Tools(None)
    }

    /// The running system's tools.
    pub fn of_this_system() -> Tools {
        Tools::new(run)
    }

    /// Tools answered by `run`, which gets the words of a command and a limit.
    pub fn new(run: impl Fn(&[&str], Duration) -> Option<ToolAnswer> + Send + Sync + 'static) -> Tools {
        Tools(Some(Arc::new(run)))
    }

    /// Whether programs can be run.
    pub fn can_run(&self) -> bool {
        self.0.is_some()
    }

    /// A program's answer, by its path and arguments, within `limit`. None if it cannot be run or takes longer.
    pub fn ask(&self, words: &[&str], limit: Duration) -> Option<ToolAnswer> {
        self.0.as_ref()?(words, limit)
    }
}

fn run(words: &[&str], limit: Duration) -> Option<ToolAnswer> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = signal::spawn(&mut command).ok()?;
    let output = child.stdout.take()?;
    let read = reader(output.take(MAX_ANSWER)).receive(Some(Deadline::after(limit))).and_then(Result::ok);
    if read.is_none() || outlives(&child, END) {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    read.map(|stdout| ToolAnswer { success: status.success(), stdout })
}

/// Reads a pipe to its end on a thread of its own, which sends everything at once. A process may keep the pipe open after the one
/// that was started has ended; then the thread is left behind. If no thread can start, the receiver stays empty.
pub fn reader(mut pipe: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = channel();
    // A thread that cannot be started drops the sender, which ends the wait of the other side.
    let _ = thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.read_to_end(&mut bytes);
        sender.send(read.map(|_| bytes));
    });
    receiver
}

/// Whether the process is still there after `limit`.
pub fn outlives(child: &Child, limit: Duration) -> bool {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return false };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return looks(pid, Deadline::after(limit)) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let limit = Timespec::try_from(limit).ok();
    matches!(poll(&mut fds, limit.as_ref()), Ok(0))
}

/// The same if nothing reports the end of a process: before Linux 5.3, or if a container forbids it.
fn looks(pid: Pid, end: Deadline) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while let Ok(None) = waitid(WaitId::Pid(pid), ended) {
        if end.passed() {
            return true;
        }
        std::thread::sleep(LOOK.min(end.left()));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn enforces_limit_without_notice_of_process_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        assert!(looks(pid, Deadline::after(Duration::from_millis(50))));
        child.kill().unwrap();
        assert!(!looks(pid, Deadline::after(Duration::from_secs(60))));
        assert!(!child.wait().unwrap().success(), "its end is left for the one who waits");
        assert!(!looks(pid, Deadline::after(Duration::from_secs(60))), "it is gone");
    }

    #[test]
    fn programs_answer_within_their_limit() {
        let tools = Tools::of_this_system();
        let ask = |words: &[&str]| tools.ask(words, Duration::from_secs(60));
        assert_eq!(ask(&["echo", "a b"]), Some(ToolAnswer { success: true, stdout: b"a b\n".to_vec() }));
        assert_eq!(ask(&["false"]), Some(ToolAnswer::default()));
        assert_eq!(ask(&["/no/such/program"]), None);
        let started = Instant::now();
        assert_eq!(tools.ask(&["sleep", "60"], Duration::from_millis(100)), None);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!(Tools::none().ask(&["echo"], Duration::ZERO), None);
    }
}
