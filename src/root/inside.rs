//! Runs a program of a root that is not the running system's.

use super::command::run_process;
use super::{Command, Output};
use crate::base::channel::channel;
use crate::base::error::{Context, Error, Result};
use crate::base::thread;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{chdir, chroot};
use std::path::Path;

/// Runs `command` with the folder `root` as its `/` and with `/proc`, and waits for it. The mount is seen by it alone.
///
/// # Errors
/// The root cannot be entered, or the program cannot be started or waited for.
pub(super) fn run(root: &Path, command: Command) -> Result<Output> {
    let (sender, receiver) = channel();
    let root = root.to_owned();
    // A thread of its own, because the namespace and the root end with it.
    thread::spawn(move || _ = sender.send(enter(&root).and_then(|()| run_process(command, true))))
        .context(|| "failed to start a thread")?;
    receiver.receive(None).ok_or_else(|| Error::new("the thread ended"))?
}

fn enter(root: &Path) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context(|| "failed to get a mount namespace")?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).context(|| "failed to make the mounts private")?;
    chroot(root).and_then(|()| chdir("/")).context(|| format!("failed to enter {}", root.display()))?;
    // From inside, where no link leads out of the root.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).context(|| format!("failed to mount /proc in {}", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{TempDir, skip};

    #[test]
    fn runs_in_the_root_with_proc() {
        if !rustix::process::geteuid().is_root() {
            return skip("a root is entered by root alone");
        }
        let dir = TempDir::new("inside");
        std::fs::create_dir(dir.0.join("proc")).unwrap();
        let missing = run(&dir.0, Command::new(["/bin/sh"])).unwrap_err().to_string();
        if missing.starts_with("failed to get a mount namespace") {
            return skip(missing);
        }
        assert!(missing.starts_with("failed to run /bin/sh: "), "{missing}");
        let here = std::env::current_dir().unwrap();
        let script = "cat; pwd; readlink /proc/self/cwd; exit 3";
        let output = run(Path::new("/"), Command::new(["sh", "-c", script]).stdin("in\n")).unwrap();
        assert_eq!((output.status, output.stdout), (3, b"in\n/\n/\n".to_vec()));
        // Neither this process nor its mounts have changed.
        assert_eq!(std::env::current_dir().unwrap(), here);
        assert!(!dir.0.join("proc/self").exists());
    }
}
