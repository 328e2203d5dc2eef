//! Small files below a folder that represents a machine. Symbolic links are resolved inside it, and only regular files
//! are opened: a tree may have a FIFO, a device or a link to the host's files at any path.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::io::Read;
use std::path::Path;

/// The longest fact that is read, in bytes.
const MAX_FACT: u64 = 64 << 10;
/// How much of PID 1's environment is read, in bytes: more than a variable may have.
const MAX_ENVIRONMENT: u64 = 2 << 20;
/// How often a path is tried: a `..` in it cannot be followed while anything on the machine is renamed or mounted (openat2(2),
/// EAGAIN).
const MAX_TRIES: usize = 1000;
/// How many entries of a folder are read.
const MAX_NAMES: usize = 4096;

/// Opens what is at a path; nothing outside of `base`.
pub(super) fn open(base: &Path, path: &str, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let path = path.trim_start_matches('/');
    // This machine's own files: nothing is outside.
    if base == Path::new("/") {
        return openat(CWD, base.join(path), flags, Mode::empty()).ok();
    }
    let folder = openat(CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut tries = (0..MAX_TRIES).map(|_| openat2(&folder, path, flags, Mode::empty(), resolve));
    tries.find(|opened| !matches!(opened, Err(Errno::AGAIN)))?.ok()
}

/// The start of a file as text. None where there is none, or it is no regular file.
pub fn read(base: &Path, path: &str) -> Option<String> {
    bytes(base, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The start of a file. None where there is none, or it is no regular file.
pub fn bytes(base: &Path, path: &str) -> Option<Vec<u8>> {
    start(base, path, MAX_FACT)
}

/// A variable of PID 1's environment.
pub fn variable(base: &Path, name: &str) -> Option<String> {
    let environment = start(base, "proc/1/environ", MAX_ENVIRONMENT)?;
    let mut variables = environment.split(|b| *b == 0);
    let value = variables.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The first `limit` bytes of a file. None where there is none, or it is no regular file.
pub fn start(base: &Path, path: &str, limit: u64) -> Option<Vec<u8>> {
    let is_file = |fd: &OwnedFd| fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
    // Opening a device can have effects of its own: a tree may have one anywhere, so that it is looked at first.
    if base != Path::new("/") {
        open(base, path, OFlags::PATH).filter(is_file)?;
    }
    let file = open(base, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).filter(is_file)?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Names in a folder, in no order. Empty where there is none.
pub fn names(base: &Path, path: &str) -> Vec<String> {
    let folder = open(base, path, OFlags::RDONLY | OFlags::DIRECTORY);
    let entries = folder.and_then(|f| Dir::new(f).ok()).into_iter().flatten().take(MAX_NAMES);
    let names = entries.filter_map(|e| e.ok()?.file_name().to_str().ok().map(str::to_owned));
    names.filter(|n| n != "." && n != "..").collect()
}

/// The last component of a symbolic link's target.
pub fn link_name(base: &Path, path: &str) -> Option<String> {
    let link = open(base, path, OFlags::PATH | OFlags::NOFOLLOW)?;
    let target = readlinkat(&link, "", Vec::new()).ok()?.into_string().ok()?;
    Some(target.rsplit('/').next()?.to_owned())
}

/// Whether there is something at a path.
pub fn exists(base: &Path, path: &str) -> bool {
    open(base, path, OFlags::PATH).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_read_and_nothing_is_waited_for() {
        let (dir, outside) = (TempDir::new("beneath"), TempDir::new("beneath-outside"));
        std::fs::write(outside.0.join("secret"), "host").unwrap();
        std::fs::create_dir(dir.0.join("proc")).unwrap();
        std::fs::write(dir.0.join("proc/real"), "tree").unwrap();
        symlink(outside.0.join("secret"), dir.0.join("proc/meminfo")).unwrap();
        symlink(&outside.0, dir.0.join("sys")).unwrap();
        symlink("/proc/real", dir.0.join("proc/link")).unwrap();
        symlink("../../../proc/real", dir.0.join("proc/up")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.0.join("proc/fifo"), Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(read(&dir.0, "proc/meminfo"), None);
        assert_eq!(read(&dir.0, "sys/secret"), None);
        assert_eq!(read(&dir.0, "proc/fifo"), None);
        assert_eq!(read(&dir.0, "proc"), None);
        assert_eq!(names(&dir.0, "sys"), [""; 0]);
        assert_eq!(read(&dir.0, "proc/link").as_deref(), Some("tree"));
        assert_eq!(read(&dir.0, "proc/up").as_deref(), Some("tree"));
        assert_eq!(link_name(&dir.0, "proc/link").as_deref(), Some("real"));
        assert!(exists(&dir.0, "proc/real") && !exists(&dir.0, "proc/none"));
        assert!(read(Path::new("/"), "proc/meminfo").is_some());
    }

    #[test]
    fn what_is_renamed_elsewhere_hides_nothing() {
        let (dir, elsewhere) = (TempDir::new("beneath-link"), TempDir::new("beneath-renames"));
        std::fs::create_dir_all(dir.0.join("devices/nic")).unwrap();
        std::fs::create_dir_all(dir.0.join("class")).unwrap();
        std::fs::write(dir.0.join("devices/nic/address"), "02:00:00:00:00:01").unwrap();
        symlink("../devices/nic", dir.0.join("class/eth0")).unwrap();
        let (a, b) = (elsewhere.0.join("a"), elsewhere.0.join("b"));
        std::fs::create_dir(&a).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        let missing = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&a, &b).unwrap();
                    std::fs::rename(&b, &a).unwrap();
                }
            });
            let missing = (0..20_000).filter(|_| read(&dir.0, "class/eth0/address").is_none()).count();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            missing
        });
        assert_eq!(missing, 0);
    }
}
