//! Reads small files below a folder that represents a machine. Symbolic links are resolved inside it, and
//! only regular files are opened: a tree may have FIFOs, devices, or links to the host's files anywhere.

use crate::base::MAX_LINKS;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

/// The largest fact, in bytes.
const MAX_FACT: u64 = 64 << 10;
/// How many bytes of PID 1's environment are read: more than one variable may have.
const MAX_ENVIRONMENT: u64 = 2 << 20;
/// How often opening a path is tried: while anything on the machine is renamed or mounted, a `..` cannot be
/// followed safely (openat2(2), EAGAIN).
const MAX_TRIES: usize = 1000;
/// The most entries of a folder that are read.
const MAX_NAMES: usize = 4096;

/// Opens a path, which never leads outside of `base`.
pub(super) fn open(base: &Path, path: &str, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let path = path.trim_start_matches('/');
    // For this machine, there is no outside.
    if base == Path::new("/") {
        return openat(CWD, base.join(path), flags, Mode::empty()).ok();
    }
    let folder = openat(CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut tries = (0..MAX_TRIES).map(|_| openat2(&folder, path, flags, Mode::empty(), resolve));
    match tries.find(|opened| !matches!(opened, Err(Errno::AGAIN)))? {
        Err(Errno::NOSYS | Errno::PERM) => walk(folder, path, flags).ok(),
        opened => opened.ok(),
    }
}

/// The same for kernels before 5.6, one component at a time.
fn walk(folder: OwnedFd, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let split = |path: &str| path.rsplit('/').map(str::to_owned).collect::<Vec<_>>();
    // The open folders from `folder` down, and the rest of the path; its first component is last.
    let (mut folders, mut rest) = (Vec::from([folder]), split(path));
    let mut links = 0;
    while let (Some(name), Some(at)) = (rest.pop(), folders.last()) {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                folders.truncate((folders.len() - 1).max(1));
                continue;
            }
            _ => {}
        }
        let is_last = rest.is_empty();
        if !(is_last && flags.contains(OFlags::NOFOLLOW))
            && let Ok(target) = readlinkat(at, &name, Vec::new())
        {
            links += 1;
            let target = target.into_string().ok().filter(|_| links <= MAX_LINKS).ok_or(Errno::LOOP)?;
            if target.starts_with('/') {
                folders.truncate(1);
            }
            rest.extend(split(&target));
        } else if is_last {
            return openat(at, &name, flags | OFlags::NOFOLLOW, Mode::empty());
        } else {
            let next = openat(at, &name, step, Mode::empty())?;
            folders.push(next);
        }
    }
    openat(folders.last().ok_or(Errno::NOENT)?, ".", flags, Mode::empty())
}

/// The start of a file as text. None if it is not a regular file.
pub fn read(base: &Path, path: &str) -> Option<String> {
    bytes(base, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The start of a file. None if it is not a regular file.
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

/// The first `limit` bytes of a file. None if it is not a regular file.
pub fn start(base: &Path, path: &str, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file(base, path)?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens a file for reading. None if it is not a regular file.
pub fn file(base: &Path, path: &str) -> Option<File> {
    opened(base, path, |kind| kind == FileType::RegularFile)
}

/// Opens a block device for reading, or the file that represents one in a tree. None if it is neither.
pub fn block_device(base: &Path, path: &str) -> Option<File> {
    opened(base, path, |kind| matches!(kind, FileType::BlockDevice | FileType::RegularFile))
}

fn opened(base: &Path, path: &str, fits: fn(FileType) -> bool) -> Option<File> {
    let fits = |fd: &OwnedFd| fstat(fd).is_ok_and(|s| fits(FileType::from_raw_mode(s.st_mode)));
    // Opening a device can have side effects, and a tree may have one anywhere: the type is checked first.
    if base != Path::new("/") {
        open(base, path, OFlags::PATH).filter(fits)?;
    }
    open(base, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).filter(fits).map(File::from)
}

/// The type and times of what is at a path, which is not opened.
pub fn metadata(base: &Path, path: &str) -> Option<Metadata> {
    File::from(open(base, path, OFlags::PATH)?).metadata().ok()
}

/// The names in a folder, in no particular order. Empty if it does not exist.
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

/// Whether a path exists.
pub fn exists(base: &Path, path: &str) -> bool {
    open(base, path, OFlags::PATH).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn reads_nothing_outside_and_never_blocks() {
        let (dir, outside) = (TempDir::new("beneath"), TempDir::new("beneath-outside"));
        outside.write("secret", "host");
        std::fs::create_dir(dir.0.join("proc")).unwrap();
        dir.write("proc/real", "tree");
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
    fn a_kernel_without_openat2_finds_the_same() {
        let (dir, outside) = (TempDir::new("walk"), TempDir::new("walk-outside"));
        std::fs::create_dir_all(dir.0.join("usr/lib/systemd")).unwrap();
        std::fs::create_dir_all(dir.0.join("usr/sbin")).unwrap();
        dir.write("usr/lib/systemd/systemd", "init");
        outside.write("secret", "host");
        symlink("usr/sbin", dir.0.join("sbin")).unwrap();
        symlink("/usr/lib", dir.0.join("lib")).unwrap();
        symlink("../../../../lib/systemd/systemd", dir.0.join("usr/sbin/init")).unwrap();
        symlink(outside.0.join("secret"), dir.0.join("secret")).unwrap();
        symlink("loop", dir.0.join("loop")).unwrap();
        let look = |path: &str, flags: OFlags| {
            let folder = openat(CWD, &dir.0, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            let found = walk(folder, path, flags).ok().and_then(|fd| fstat(&fd).ok()).map(|s| (s.st_dev, s.st_ino));
            assert_eq!(
                found,
                open(&dir.0, path, flags).and_then(|fd| fstat(&fd).ok()).map(|s| (s.st_dev, s.st_ino)),
                "{path}"
            );
            found.is_some()
        };
        for path in ["sbin/init", "lib/systemd/systemd", "usr/../sbin/./init", "usr/lib/", "..", "usr/sbin/.."] {
            assert!(look(path, OFlags::PATH), "{path}");
        }
        assert!(look("sbin/init", OFlags::PATH | OFlags::NOFOLLOW) && look("loop", OFlags::PATH | OFlags::NOFOLLOW));
        for path in ["secret", "loop", "none", "usr/none/x", "sbin/init/x"] {
            assert!(!look(path, OFlags::PATH), "{path}");
        }
    }

    #[test]
    fn what_is_renamed_elsewhere_hides_nothing() {
        let (dir, elsewhere) = (TempDir::new("beneath-link"), TempDir::new("beneath-renames"));
        std::fs::create_dir_all(dir.0.join("devices/nic")).unwrap();
        std::fs::create_dir_all(dir.0.join("class")).unwrap();
        dir.write("devices/nic/address", "02:00:00:00:00:01");
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
