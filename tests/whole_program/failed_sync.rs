//! A disk that reports that it has lost what was written: nothing counts as done, and the next run does it again.

use crate::{may_chown, prepivot};
use prepivot::base::testing::{TempDir, skip};
use std::fs;
use std::process::Command;

#[test]
fn unsynced_changes_are_carried_out_again() {
    if !may_chown() {
        return;
    }
    let dir = TempDir::new("failed-sync");
    for (path, text) in [
        ("root/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("root/etc/os-release", "ID=debian\n"),
        ("seed/meta-data", "instance-id: i-1\nlocal-hostname: web\n"),
        ("seed/user-data", "#cloud-config\nwrite_files: [{path: /etc/a, content: x}]\n"),
    ] {
        dir.write(path, text);
    }
    let (root, seed) = (dir.0.join("root"), dir.0.join("seed"));
    let tracer = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO", env!("CARGO_BIN_EXE_prepivot")];
    let mut traced = Command::new("strace");
    traced.args(tracer).arg("apply").arg("--root").arg(&root).arg("--seed").arg(&seed);
    let Ok(output) = traced.output().inspect_err(|e| skip(format!("strace: {e}"))) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("failed to sync the root: ") && said.contains("os error 5"), "{said}");
    let journal = root.join("etc/.prepivot-journal");
    assert!(journal.exists());
    // What the disk has lost.
    fs::remove_file(root.join("etc/a")).unwrap();
    let again = prepivot("apply", &root, &seed, &[]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(!journal.exists() && fs::read_to_string(root.join("etc/a")).unwrap() == "x");
}
