//! prepivot as the first process of an initramfs (/init): mounts the kernel's file systems, mounts and
//! provisions the root in a child process whose failure is not fatal, and executes the root's init.
//!
//! If the first process exits, the kernel panics. So it reads no outside data except the kernel command line.

use super::mount_root::mount_root;
use super::trust::STOPPED;
use super::{MORE, end_in_time, fails_loudly, local};
use crate::base::error::{Context, Error, Result};
use crate::base::logging;
use crate::machine::{Machine, beneath, tools};
use crate::root::is_in_memory;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{chdir, chroot};
use rustix::system::{RebootCommand, reboot};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where the root is mounted.
const TARGET: &str = "/sysroot";
/// The first mounts: type, folder, flags, options.
const MOUNTS: [(&str, &str, MountFlags, &str); 4] = [
    ("proc", "proc", MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC), ""),
    ("sysfs", "sys", MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC), ""),
    ("devtmpfs", "dev", MountFlags::NOSUID, "mode=0755"),
    // Not noexec: the later stages may be run from there.
    ("tmpfs", "run", MountFlags::NOSUID.union(MountFlags::NODEV), "mode=0755,size=20%"),
];
/// Where the kernel looks for init (init/main.c), except for the shell.
const INITS: [&str; 3] = ["/sbin/init", "/etc/init", "/bin/init"];
/// How long the child process may take beyond the stage's deadline, mainly for the root's device to appear.
/// Unused if the kernel command line sets that wait.
const BEYOND: Duration = Duration::from_secs(150);
const NO_LIMIT: Duration = Duration::from_secs(31 * 24 * 3600);
/// How deep the initramfs's folders are emptied.
const MAX_DEPTH: usize = 32;

/// Runs as the first process, with the words that the kernel passes to init. Does not return.
pub fn run(words: &[OsString]) -> ! {
    for (kind, folder, flags, options) in MOUNTS {
        let _ = std::fs::create_dir(format!("/{folder}"));
        let options = std::ffi::CString::new(options).unwrap_or_default();
        // It fails if the kernel has mounted it already. Any other failure shows below.
        let _ = mount(kind, format!("/{folder}"), kind, flags, options.as_c_str());
    }
    let _ = std::fs::create_dir(TARGET);
    logging::to_kmsg();
    let machine = Machine::read(Path::new("/"));
    let provisioned = other_process(&machine);
    let outcome = match provisioned {
        Err(e) if fails_loudly(&machine) || beneath::exists(Path::new("/"), STOPPED) => Err(e),
        Err(e) if !is_mounted() => Err(e),
        other => {
            if let Err(e) = other {
                logging::console(&format!("{e}; the root is started as it is"));
            }
            switch_root(&machine, words)
        }
    };
    fail(&machine, &outcome.err().unwrap_or_else(|| Error::new("the root's init ended")))
}

/// Mounts the root and provisions it, in the child process. Returns the result.
///
/// # Errors
/// The root cannot be found or mounted.
pub fn prepare(machine: &Machine) -> Result<local::Ended> {
    let target = Path::new(TARGET);
    mount_root(machine, target)?;
    end_in_time(machine);
    Ok(local::new_root(target, machine))
}

fn other_process(machine: &Machine) -> Result<()> {
    let waits = machine.cmdline.words().any(|word| word.starts_with("rootwait") || word.starts_with("rootdelay"));
    let limit = if waits { NO_LIMIT } else { super::deadline(machine).left() + MORE + BEYOND };
    let mut child = Command::new("/proc/self/exe").arg("boot").spawn().context(|| "failed to start provisioning")?;
    if tools::outlives(&child, limit) {
        let _ = child.kill();
    }
    let status = child.wait().context(|| "failed to wait for provisioning")?;
    if status.success() { Ok(()) } else { Err(Error::new(format!("the root was not prepared: {status}"))) }
}

/// Whether something is mounted at [`TARGET`].
fn is_mounted() -> bool {
    let device = |path: &str| rustix::fs::stat(path).map(|stat| stat.st_dev).ok();
    device(TARGET) != device("/")
}

/// Makes the mounted root the root, and executes its init. Returns only with an error.
fn switch_root(machine: &Machine, words: &[OsString]) -> Result<()> {
    let asked = machine.cmdline.value("init");
    let inits: Vec<&str> = asked.into_iter().chain(INITS).collect();
    let target = Path::new(TARGET);
    // Checked first: a root without an init is reported while the initramfs is still there to look at.
    if !inits.iter().any(|init| beneath::exists(target, init)) {
        return Err(Error::new(format!("the root has none of {}", inits.join(", "))));
    }
    for (_, folder, ..) in MOUNTS {
        let to = target.join(folder);
        if to.is_dir() {
            mount_move(format!("/{folder}"), &to).context(|| format!("failed to move /{folder} into the root"))?;
        }
    }
    let old = openat(CWD, "/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    chdir(TARGET).context(|| "failed to enter the root")?;
    mount_move(".", "/").context(|| "failed to move the root")?;
    chroot(".").and_then(|()| chdir("/")).context(|| "failed to make the root the root")?;
    if let Ok(old) = old {
        empty(&old, MAX_DEPTH);
    }
    let mut reasons = Vec::new();
    for init in inits {
        let error = Command::new(init).args(words).exec();
        reasons.push(format!("{init}: {error}"));
    }
    Err(Error::new(format!("failed to start init: {}", reasons.join("; "))))
}

/// Deletes the initramfs's files, which occupy memory. Only a file system in memory is emptied, and no other
/// mounted below it.
fn empty(folder: &OwnedFd, depth: usize) {
    let Ok(own) = rustix::fs::fstat(folder) else { return };
    if depth == 0 || !is_in_memory(folder) {
        return;
    }
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if stat.st_dev != own.st_dev {
            continue;
        }
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(below) = openat(folder, name, flags, Mode::empty()) {
                empty(&below, depth - 1);
            }
        }
        let _ = unlinkat(folder, name, if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() });
    }
}

/// Prints the reason, and restarts according to `panic=`: after that many seconds, at once if it is negative, never
/// without it.
fn fail(machine: &Machine, reason: &Error) -> ! {
    logging::console(&format!("the boot cannot go on: {reason}"));
    let wait = machine.cmdline.value("panic").and_then(|v| v.parse::<i64>().ok()).unwrap_or(0);
    loop {
        if wait != 0 {
            std::thread::sleep(Duration::from_secs(u64::try_from(wait).unwrap_or(0)));
            rustix::fs::sync();
            let _ = reboot(RebootCommand::Restart);
        }
        // As the kernel does after a panic.
        std::thread::sleep(Duration::from_secs(3600));
    }
}
