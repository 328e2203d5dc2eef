//! How often the kernel is asked for a path by a run that finds everything as it is to be.

use prepivot::base::testing::{TempDir, skip};
use std::fs;
use std::process::Command;

/// A path that leads through no link takes one call, what is there included, and what it holds one more.
const MOST: usize = 240;

#[test]
fn second_run_reads_each_path_few_times() {
    if !crate::may_chown() {
        return;
    }
    let dir = TempDir::new("calls");
    let (root, seed, trace) = (dir.0.join("root"), dir.0.join("seed"), dir.0.join("trace"));
    for (path, text) in [
        ("root/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("root/etc/shadow", "root:*:1::::::\n"),
        ("root/etc/group", "root:x:0:\n"),
        ("root/etc/os-release", "ID=debian\n"),
        ("root/usr/lib/systemd/systemd", ""),
        ("root/usr/lib/systemd/systemd-networkd", ""),
        ("seed/meta-data", "instance-id: i-1\nlocal-hostname: one\n"),
        ("seed/user-data", "#cloud-config\nwrite_files: [{path: /etc/a/b/c, content: x}]\nruncmd: [[echo, a]]\n"),
    ] {
        dir.write(path, text);
    }
    assert_eq!(crate::prepivot("apply", &root, &seed, &[]).code, 0);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=openat2,readlinkat", "-o"]).arg(&trace).arg(env!("CARGO_BIN_EXE_prepivot"));
    let output = strace.arg("apply").arg("--root").arg(&root).arg("--seed").arg(&seed).output();
    let traced = fs::read_to_string(&trace).unwrap_or_default();
    // Neither strace nor the right to trace is there everywhere.
    if !traced.contains("openat2(") {
        skip(format!("strace is needed to count system calls: {output:?}"));
        return;
    }
    assert!(output.unwrap().status.success());
    let calls = traced.lines().filter(|line| line.contains("openat2(") || line.contains("readlinkat(")).count();
    assert!(calls < MOST, "{calls} calls of openat2 and readlinkat");
}
