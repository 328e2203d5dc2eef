//! What the tests share: where the conformance vectors are, and temporary folders.

use crate::document::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The conformance vectors' file `name`, parsed. They are kept beside the project, not in it: the folder is
/// `PREPIVOT_VECTORS`, else `../shared/vectors`. None, with the reason printed, where they are not there.
pub fn vectors(name: &str) -> Option<Value> {
    let folder = std::env::var_os("PREPIVOT_VECTORS").map_or_else(|| PathBuf::from("../shared/vectors"), PathBuf::from);
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(json::parse(name, &bytes).expect("the vectors are valid JSON")),
        Err(e) => {
            println!("skipped: no conformance vectors: {}: {e}", path.display());
            None
        }
    }
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
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Calls `check` with `valid` cut short at up to 512 places, and with `rounds` copies of it in which some bytes are
/// changed, mostly where it is not zero: always the same ones, so that a failure comes back.
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
