//! Shared by the tests: temporary folders, damaged bytes, and the record of skipped tests.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Records that the calling test, or a part of it, cannot run here. The reason is printed, and added to the file that
/// `PREPIVOT_SKIPPED` names: `tests/run` counts the tests in it as skipped. cargo's own harness counts them as passed.
pub fn skip(reason: impl Display) {
    println!("skipped: {reason}");
    let Some(path) = std::env::var_os("PREPIVOT_SKIPPED") else { return };
    let program = std::env::current_exe().unwrap_or_default();
    // The harness calls the thread as the test; cargo adds a hash to the program's name.
    let program = program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let program = program.split('-').next().unwrap_or_default();
    let thread = std::thread::current();
    let line = format!("{program} {}\t{reason}\n", thread.name().unwrap_or("?"));
    let file = std::fs::File::options().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("failed to record a skipped test in {}: {e}", path.display()));
}

/// An empty folder for a test, removed when dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    /// A new folder, named after the test.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("prepivot-{name}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("failed to make a temporary folder");
        TempDir(path)
    }

    /// A new folder with these files: for each its path below the folder, and what is in it.
    pub fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new(name);
        files.iter().for_each(|(path, content)| dir.write(path, content));
        dir
    }

    /// Writes a file below it, with the folders that it is in.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(path.trim_start_matches('/'));
        let written =
            path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, content));
        written.unwrap_or_else(|e| panic!("failed to write {}: {e}", path.display()));
    }

    /// Writes an empty file that may be executed: a test plays its runs.
    pub fn program(&self, path: &str) {
        self.write(path, "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.0.join(path), mode).expect("failed to make a file executable");
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The CPU time that the calling thread has taken. A test that bounds it does not depend on how busy the machine is.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Calls `check` with `valid` cut short at up to 512 places, and with `rounds` copies of it in which some bytes are
/// changed, mostly if it is not zero: always the same ones, so that a failure comes back.
pub fn mutations(valid: &[u8], rounds: usize, mut check: impl FnMut(&[u8])) {
    let step = valid.len() / 512 + 1;
    (0..valid.len()).step_by(step).for_each(|end| check(&valid[..end]));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let used: Vec<usize> = (0..valid.len()).filter(|at| valid[*at] != 0).collect();
    let mut bytes = valid.to_vec();
    for _ in 0..if used.is_empty() { 0 } else { rounds } {
        let mut changed = Vec::new();
        for _ in 0..=random(8) {
            let near = used[random(used.len())] + random(4);
            let at = if random(8) == 0 { random(bytes.len()) } else { near.min(bytes.len() - 1) };
            changed.push((at, bytes[at]));
            bytes[at] = match random(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << random(8)),
                _ => random(256) as u8,
            };
        }
        check(&bytes);
        changed.into_iter().rev().for_each(|(at, byte)| bytes[at] = byte);
    }
}
