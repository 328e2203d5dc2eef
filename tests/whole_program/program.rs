//! Runs of the program on a root tree and a seed.

use std::path::Path;
use std::process::Command;

/// The result of a run of the program.
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `prepivot VERB --root ROOT --seed SEED MORE…`.
pub fn prepivot(verb: &str, root: &Path, seed: &Path, more: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_prepivot"))
        .args([verb.as_ref(), "--root".as_ref(), root.as_os_str(), "--seed".as_ref(), seed.as_os_str()])
        .args(more)
        .env("TZ", "UTC")
        .output()
        .expect("failed to run prepivot");
    let text = |bytes| String::from_utf8(bytes).expect("what is printed is UTF-8");
    Output { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}
