//! The program as people and scripts call it: words in, text and an exit code out.

mod clean;
mod compare;
mod completions;
mod detect;
mod json_schema;
mod pictures;
mod plan;
mod query;
mod status;
mod tools;
mod trust;

use prepivot::base::testing::TempDir;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_prepivot");

struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(words: &[&str]) -> Answer {
    answer(Command::new(PROGRAM).args(words).output().unwrap())
}

/// The words of one line, with ROOT for the tree.
fn run_in(dir: &TempDir, line: &str) -> Answer {
    let root = dir.0.to_str().unwrap();
    let words: Vec<String> = line.split(' ').map(|w| w.replace("ROOT", root)).collect();
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The program by another name.
fn called(dir: &TempDir, name: &str, words: &[&str]) -> Answer {
    let link = dir.0.join(name);
    let _ = symlink(PROGRAM, &link);
    answer(Command::new(link).args(words).output().unwrap())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

const STATUS: &str = r#"{"v1": {"datasource": "DataSourceConfigDrive [net,source=/dev/sr0]", "stage": null,
    "init-local": {"start": 1.5, "finished": 2.5, "errors": [], "recoverable_errors": {}},
    "init": {"start": 3, "finished": 4, "errors": ERRORS, "recoverable_errors": WARNINGS},
    "modules-config": {"start": null, "finished": null, "errors": [], "recoverable_errors": {}},
    "modules-final": {"start": null, "finished": null, "errors": [], "recoverable_errors": {}}}}"#;

/// A tree whose boot is over, with these errors and warnings.
fn booted(dir: &TempDir, errors: &str, warnings: &str) {
    let text = STATUS.replace("ERRORS", errors).replace("WARNINGS", warnings);
    dir.write("var/lib/cloud/data/status.json", &text);
    dir.write("var/lib/cloud/data/result.json", r#"{"v1": {}}"#);
    dir.write("run/cloud-init/enabled", "");
    for name in ["status.json", "result.json"] {
        let _ = symlink(format!("../../var/lib/cloud/data/{name}"), dir.0.join("run/cloud-init").join(name));
    }
}

fn instance_data(dir: &TempDir) {
    let data = |secret: &str| {
        format!(
            r#"{{"ds": {{"meta_data": {{"admin_pass": "{secret}", "a-b": [1, "x"]}}}}, "userdata": "{secret}",
                "v1": {{"cloud-name": "openstack", "cloud_name": "openstack", "region": "r1", "platform": "openstack",
                        "local_hostname": "web"}}}}"#
        )
    };
    dir.write("run/cloud-init/instance-data.json", data("redacted for non-root user"));
    dir.write("run/cloud-init/instance-data-sensitive.json", data("geheim"));
    dir.write("run/cloud-init/combined-cloud-config.json", r#"{"password": "geheim"}"#);
    dir.write("var/lib/cloud/instances/i-1/user-data.txt", "#cloud-config\npassword: geheim\n");
    dir.write("var/lib/cloud/instances/i-1/vendor-data.txt", "");
    let _ = symlink("instances/i-1", dir.0.join("var/lib/cloud/instance"));
}

#[test]
fn usage() {
    for (words, code) in [
        (&["--help"][..], 0),
        (&["-h"], 0),
        (&["--version"], 0),
        (&["status", "-h"], 0),
        (&["devel", "net-convert", "--help"], 0),
        (&["clean", "--help"], 0),
        (&[], 2),
        (&["nonsense"], 2),
        (&["status", "--nonsense"], 2),
        (&["status", "--format", "xml"], 2),
        (&["status", "--form", "json"], 2),
        (&["status", "--long=1"], 2),
        (&["modules", "-m", "late"], 2),
        (&["single"], 2),
        (&["single", "-n", "locale", "--frequency", "weekly"], 2),
        (&["devel"], 2),
        (&["devel", "hotplug-hook", "-s", "net", "handle", "-d", "/sys/x", "-u", "change"], 2),
        (&["clean", "-c", "everything"], 2),
        (&["clean", "network"], 2),
        (&["status", "--wait", "--root", "/tmp"], 2),
    ] {
        let answer = run(words);
        assert_eq!(answer.code, code, "{words:?}: {}", answer.err);
        assert_eq!(
            answer.out.is_empty(),
            code != 0,
            "{words:?}: help is for standard output, mistakes for standard error"
        );
        assert_eq!(answer.err.is_empty(), code == 0, "{words:?}: {}", answer.err);
    }
    assert_eq!(run(&["features"]).out, "NETWORK_CONFIG_V1\nNETWORK_CONFIG_V2\n");
    let dir = TempDir::new("cli-version");
    let version = called(&dir, "cloud-init", &["--version"]);
    let words: Vec<&str> = version.out.split_whitespace().collect();
    assert_eq!(words[..2], [dir.0.join("cloud-init").to_str().unwrap(), "26.2"]);
    assert!(words[2] == "(prepivot" && run(&["-v"]).out.starts_with("prepivot "));
}

#[test]
fn a_command_once() {
    let dir = TempDir::new("cli-per");
    for words in [&[][..], &["once"], &["once", "x"], &["weekly", "x", "true"], &["once", "a/b", "true"]] {
        let answer = called(&dir, "cloud-init-per", words);
        assert!(answer.code == 1 && !answer.err.is_empty(), "{words:?}");
    }
    assert_eq!(called(&dir, "cloud-init-per", &["-h"]).code, 0);
    assert_eq!(called(&dir, "cloud-init-run-module", &["once", "x", "other", "true"]).code, 1);
    // In a mount namespace, whose /var/lib and /run are its own.
    let script = "mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /run || exit 77
        per() { \"$0\" \"$1\" its-name sh -c \"echo $2\"; }
        per once 'first; exit 3'; echo $?
        cut -f 1 /var/lib/cloud/sem/bootper.its_name.once
        per once again; echo $?
        per always ran; per always ran; ls /var/lib/cloud/sem";
    let output =
        Command::new("unshare").args(["--mount", "sh", "-c", script]).arg(dir.0.join("cloud-init-per")).output();
    match output.map(answer) {
        Ok(ran) if ran.code != 77 && !ran.err.starts_with("unshare") => {
            let marks = "bootper.its_name.always\nbootper.its_name.once\n";
            assert_eq!(ran.out, format!("first\n3\n3\n0\nran\nran\n{marks}"), "{}", ran.err);
        }
        _ => prepivot::base::testing::skip("needs a mount namespace"),
    }
}
