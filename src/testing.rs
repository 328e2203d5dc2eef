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
