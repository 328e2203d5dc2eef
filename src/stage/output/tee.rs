//! `tee -a FILE` on a thread of this process, so that a stage needs no shell and no program for its log. tee itself is started only
//! for processes that the user's scripts left running at the end.

use crate::base::channel::{Receiver, channel};
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Result};
use crate::base::signal;
use crate::base::thread;
use crate::root::open_log;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::stdio::stdout;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// How many bytes are read at once.
const PIECE: usize = 8 << 10;
/// How long the thread may take to hand the pipe over. It does so at once, unless an output blocks, like a stopped terminal.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The file of a `tee -a FILE` command without anything that a shell would expand.
pub fn file_of(command: &str) -> Option<&str> {
    let words: Vec<&str> = command.split_ascii_whitespace().collect();
    let ["tee", "-a", file] = words[..] else { return None };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@".contains(c);
    (file.starts_with('/') && file.chars().all(is_plain)).then_some(file)
}

/// A thread that copies a pipe to a log and to the previous standard output.
pub struct Tee {
    file: String,
    group: Option<u32>,
    before: OwnedFd,
    /// Dropping it makes the thread hand over the pipe and end, even if the pipe still has writers.
    stay: PipeWriter,
    /// Receives the pipe if it still has writers.
    ended: Receiver<Option<PipeReader>>,
}

impl Tee {
    /// Starts the thread. A log that is not there is created with `mode` for `group`. Also returns the pipe's
    /// write end.
    ///
    /// # Errors
    /// The log cannot be opened, or there are no pipes or threads left.
    pub fn start(file: &str, mode: u32, group: Option<u32>) -> Result<(Tee, OwnedFd)> {
        let log = open_log(file, mode, group, true).context(|| format!("failed to open {file}"))?;
        let failed = || format!("failed to write what programs say to {file}");
        let before = stdout().try_clone_to_owned().context(failed)?;
        let outputs = [File::from(before.try_clone().context(failed)?), File::from(log)];
        let (from, to) = pipe().context(failed)?;
        let (leave, stay) = pipe().context(failed)?;
        let (sender, ended) = channel();
        let thread = move || {
            sender.send(copy(from, &leave, outputs));
        };
        thread::spawn(thread).context(failed)?;
        Ok((Tee { file: file.to_owned(), group, before, stay, ended }, to.into()))
    }

    /// Waits up to `limit` until everything written is in the log; this process must have closed its write
    /// end. If the pipe then still has writers, tee is started to read it.
    pub fn end(self, limit: Duration) {
        let rest = self.ended.receive(Some(Deadline::after(limit)));
        drop(self.stay);
        let handed_over = || self.ended.receive(Some(Deadline::after(HAND_OVER)));
        let Some(pipe) = rest.or_else(handed_over).flatten() else { return };
        let mut tee = Command::new("tee");
        if let Some(group) = self.group {
            tee.gid(group);
        }
        tee.args(["-a", &self.file]).stdin(OwnedFd::from(pipe)).stdout(self.before);
        if let Err(e) = signal::spawn(&mut tee) {
            log::warn!("failed to run tee -a {}: {e}", self.file);
        }
    }
}

/// Copies `from` to the outputs until it has no more writers (returns None), or `leave` has none (returns `from`). An output that
/// fails is dropped.
fn copy(from: PipeReader, leave: &PipeReader, outputs: [File; 2]) -> Option<PipeReader> {
    let mut outputs: Vec<File> = outputs.into();
    let mut piece = vec![0; PIECE];
    loop {
        let mut fds = [PollFd::new(&from, PollFlags::IN), PollFd::new(leave, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Some(from),
        }
        let [has_more, leaves] = fds.map(|fd| !fd.revents().is_empty());
        if !has_more && leaves {
            return Some(from);
        }
        if has_more {
            match read(from.as_fd(), &mut piece) {
                Ok(0) => return None,
                Ok(count) => outputs.retain_mut(|o| o.write_all(piece.get(..count).unwrap_or_default()).is_ok()),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}
