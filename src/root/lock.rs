//! Locks that other programs of the running system also take.

use super::disk::LastFolder;
use super::{Attr, Change, Root, run_dir};
use crate::base::channel::channel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::base::thread;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};
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

/// How long to wait for another run of the same stage.
const STAGE_WAIT: Duration = Duration::from_secs(30);

impl Root {
    /// Takes the lock of a stage until this is dropped: what is planned beside another run of the stage, on what that run is about to
    /// change, would be done twice. The lock is a file in prepivot's folder of /run, or the root's own folder if that is a tree, which
    /// no stage of a boot uses.
    ///
    /// # Errors
    /// Another process still holds it after half a minute. The stage may go on.
    pub fn lock_stage(&mut self, stage: &str) -> Result<()> {
        if self.is_plan() {
            return Ok(());
        }
        let file = if self.has_run() {
            let (path, attr) = (run_dir::DIR.to_owned(), Attr::root(0o700));
            let made = self.overlay.disk().apply(&Change::Mkdir { path, attr }, &mut LastFolder::default());
            made.and_then(|()| Ok(self.overlay.disk().open_lock(&format!("{}/{stage}.lock", &run_dir::DIR[1..]))?))
        } else {
            self.overlay.disk().open_at("", OFlags::RDONLY | OFlags::DIRECTORY).map_err(Into::into)
        };
        let failed = || format!("the stage goes on without its lock ({stage})");
        let file = Arc::new(file.context(failed)?);
        if flock(&*file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            log::info!("another run of this stage is waited for");
            let take = |file: &OwnedFd| flock(file, FlockOperation::LockExclusive);
            wait_for(file.clone(), STAGE_WAIT, take).unwrap_or(Err(Errno::WOULDBLOCK)).context(failed)?;
        }
        self.stage_lock = Some(Lock { _file: file });
        Ok(())
    }

    /// Takes the advisory write lock of the file `path`, created if it is missing, as lckpwdf(3) does. Only
    /// in the running system, where other programs run; elsewhere None.
    ///
    /// # Errors
    /// Another process still holds it after `wait`.
    pub fn lock(&self, path: &str, wait: Duration) -> Result<Option<Lock>> {
        if !self.is_live() {
            return Ok(None);
        }
        let (resolved, _) = self.overlay.resolve_to_change(path, true)?;
        let file = self.overlay.disk().open_lock(&resolved).context(|| format!("failed to open {path}"))?;
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
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    #[test]
    fn stages_wait_for_each_other() {
        let dir = TempDir::new("stage-lock");
        std::fs::create_dir(dir.0.join("run")).unwrap();
        for usage in [Use::Tree, Use::NewRoot] {
            let open = || if usage == Use::Tree { dir.root(usage) } else { dir.root(Use::NewRoot) };
            let mut first = open();
            first.lock_stage("init").unwrap();
            std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    let mut second = open();
                    second.lock_stage("init").unwrap();
                    second.text("/x")
                });
                std::thread::sleep(Duration::from_millis(200));
                assert!(!second.is_finished(), "{usage:?}");
                dir.write("x", "of the first");
                drop(first);
                assert_eq!(second.join().unwrap(), "of the first");
            });
            std::fs::remove_file(dir.0.join("x")).unwrap();
        }
        let mode = |path: &str| std::fs::metadata(dir.0.join(path)).unwrap().mode() & 0o777;
        assert_eq!([mode("run/prepivot"), mode("run/prepivot/init.lock")], [0o700, 0o600]);
        let mut other = dir.root(Use::NewRoot);
        other.lock_stage("config").unwrap();
    }

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
        let folder = dir.root(Use::Tree);
        assert!(folder.lock("/lock", Duration::ZERO).unwrap().is_none(), "nobody else is at a folder's files");
    }
}
