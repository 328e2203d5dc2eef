//! Locks that programs of the running system hold too.

use super::Root;
use crate::base::error::{Context, Error, Result};
use rustix::fs::FlockOperation;
use std::time::Duration;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: std::sync::Arc<std::os::fd::OwnedFd>,
}

impl Root {
    /// Takes the advisory write lock of the file `path`, made if it is not there, as lckpwdf(3) does. Only where other
    /// programs run, in `/` of the running system: None anywhere else.
    ///
    /// An error if somebody else still holds it after `wait`.
    pub fn lock(&self, path: &str, wait: Duration) -> Result<Option<Lock>> {
        if !self.is_live() {
            return Ok(None);
        }
        let resolved = self.resolve(path, true)?;
        let file = self.disk.open_lock(&resolved).context(|| format!("failed to open {path}"))?;
        let file = std::sync::Arc::new(file);
        let (sender, receiver) = std::sync::mpsc::channel();
        let held = file.clone();
        // The lock belongs to the process, so that a thread may wait for it while this one keeps to the time.
        std::thread::spawn(move || {
            let result = rustix::fs::fcntl_lock(&*held, FlockOperation::LockExclusive);
            let _ = sender.send(result);
        });
        match receiver.recv_timeout(wait) {
            Ok(result) => result.context(|| format!("failed to lock {path}"))?,
            Err(_) => return Err(Error::new(format!("failed to lock {path}: another program holds it"))),
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
    fn a_lock_that_another_program_holds_is_waited_for_and_reported() {
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
