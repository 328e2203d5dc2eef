//! Locks that other programs of the running system also take.

use super::Root;
use crate::base::channel::channel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::base::thread;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::{Errno, Result as Io};
use std::sync::Arc;
use std::time::Duration;

/// A lock, held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: Arc<OwnedFd>,
}

/// Takes a lock by `take`, which may block. None if that takes longer than `wait`. `take` runs on a thread,
/// which works because the lock belongs to the process or the open file.
pub(super) fn wait_for(
    file: Arc<OwnedFd>,
    wait: Duration,
    take: impl FnOnce(&OwnedFd) -> Io<()> + Send + 'static,
) -> Option<Io<()>> {
    let (sender, receiver) = channel();
    let taker = thread::spawn(move || {
        let result = take(&file);
        drop(file);
        sender.send(result);
    });
    if taker.is_err() {
        return Some(Err(Errno::AGAIN));
    }
    receiver.receive(Some(Deadline::after(wait)))
}

impl Root {
    /// Takes the advisory write lock of the file `path`, created if it is missing, as lckpwdf(3) does. Only
    /// in the running system, where other programs run; elsewhere None.
    ///
    /// # Errors
    /// Another process still holds it after `wait`.
    pub fn lock(&self, path: &str, wait: Duration) -> Result<Option<Lock>> {
        if !self.is_live() {
            return Ok(None);
        }
        let (resolved, _) = self.resolve_to_change(path, true)?;
        let file = self.disk.open_lock(&resolved).context(|| format!("failed to open {path}"))?;
        let file = Arc::new(file);
        match wait_for(file.clone(), wait, |file| fcntl_lock(file, FlockOperation::LockExclusive)) {
            Some(result) => result.context(|| format!("failed to lock {path}"))?,
            None => return Err(Error::new(format!("failed to lock {path}: another program holds it"))),
        }
        Ok(Some(Lock { _file: file }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use std::io::{BufRead, BufReader, Write};
    use std::path::Path;
    use std::process::{Command, Stdio};

    #[test]
    fn waits_for_a_held_lock_and_reports_it() {
        let dir = TempDir::new("lock");
        let path = dir.0.join("lock").display().to_string();
        let script = format!(
            "import fcntl\nf = open({path:?}, 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\nprint('held', flush=True)\ninput()\n"
        );
        let other = Command::new("python3").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut other) = other else {
            crate::base::testing::skip("there is no python3 to hold a lock");
            return;
        };
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let root = Root::open(Path::new("/"), Use::Tree).unwrap();
        assert!(root.lock(&path, Duration::from_millis(50)).unwrap_err().to_string().contains("another program"));
        other.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(root.lock(&path, Duration::from_secs(20)).unwrap().is_some());
        other.wait().unwrap();
        let folder = Root::open(&dir.0, Use::Tree).unwrap();
        assert!(folder.lock("/lock", Duration::ZERO).unwrap().is_none(), "nobody else is at a folder's files");
    }
}
