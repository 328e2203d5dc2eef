//! `status`: what it prints, its exit codes, and waiting.

use super::*;
use prepivot::document::{Value, json};

#[test]
fn status_and_its_exit_codes() {
    let dir = TempDir::new("cli-status");
    let none = run_in(&dir, "status --root ROOT");
    assert_eq!((none.code, none.out.as_str()), (0, "status: not started\n"));

    booted(&dir, "[]", "{}");
    assert_eq!(run_in(&dir, "status --root=ROOT").out, "status: done\n");
    let long = run_in(&dir, "status --long --root ROOT");
    assert_eq!(
        long.out,
        "status: done\nextended_status: done\nboot_status_code: enabled-by-generator\nlast_update: Thu, 01 Jan 1970 00:00:04 +0000\n\
         detail: DataSourceConfigDrive [net,source=/dev/sr0]\nerrors: []\nrecoverable_errors: {}\n"
    );

    booted(&dir, "[]", r#"{"WARNING": ["one\nline", "two"]}"#);
    let degraded = run_in(&dir, "status -l --root ROOT");
    assert_eq!(degraded.code, 2);
    assert!(degraded.out.starts_with("status: done\nextended_status: degraded done\n"), "{}", degraded.out);
    assert!(
        degraded.out.ends_with("errors: []\nrecoverable_errors:\nWARNING:\n\t- one line\n\t- two\n"),
        "{}",
        degraded.out
    );

    booted(&dir, r#"["bad", "worse"]"#, r#"{"WARNING": ["one"]}"#);
    let failed = run_in(&dir, "status --root ROOT --format=json");
    assert_eq!(failed.code, 1);
    let document = json::parse("status", failed.out.as_bytes()).unwrap();
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(text("status"), "error");
    assert_eq!(text("extended_status"), "error - done");
    assert_eq!(text("datasource"), "configdrive");
    assert_eq!(document.get("errors").unwrap(), &Value::List(vec!["bad".into(), "worse".into()]));
    assert!(document.at(&["init", "recoverable_errors", "WARNING"]).is_some());
    assert!(failed.out.starts_with("{\n  \"boot_status_code\": \"enabled-by-generator\",\n"), "{}", failed.out);
    let yaml = run_in(&dir, "status --root ROOT --format yaml");
    assert!(
        yaml.out.starts_with("---\nboot_status_code: enabled-by-generator\n") && yaml.out.ends_with("...\n\n"),
        "{}",
        yaml.out
    );
    let from_yaml = prepivot::document::yaml::parse("t", yaml.out.split("\n...").next().unwrap()).unwrap();
    assert_eq!(from_yaml, document);

    fs::remove_file(dir.0.join("var/lib/cloud/data/result.json")).unwrap();
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: error\n");
    booted(&dir, "[]", "{}");
    fs::remove_file(dir.0.join("var/lib/cloud/data/result.json")).unwrap();
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: running\n");

    dir.write("etc/cloud/cloud-init.disabled", "");
    let disabled = run_in(&dir, "status --long --root ROOT");
    assert_eq!(disabled.code, 0);
    assert!(
        disabled
            .out
            .starts_with("status: disabled\nextended_status: disabled\nboot_status_code: disabled-by-marker-file\n")
    );

    fs::write(dir.0.join("var/lib/cloud/data/status.json"), "{").unwrap();
    let broken = run_in(&dir, "status --root ROOT");
    assert_eq!((broken.code, broken.out.as_str()), (1, ""));
    assert!(broken.err.contains("/run/cloud-init/status.json: not valid JSON at line 1"), "{}", broken.err);
}

/// Waits for a boot that is in its init stage, with a systemd that says `units`; after a moment `then` is run. With no `then`
/// nothing has started. In a mount namespace: /run is its own.
fn waited(dir: &TempDir, units: &str, then: Option<&str>) -> Option<Answer> {
    waited_by(dir, units, then, &format!("{PROGRAM} status --wait"))
}

/// The same with another command that waits.
fn waited_by(dir: &TempDir, units: &str, then: Option<&str>, command: &str) -> Option<Answer> {
    // Once it has looked, and waits.
    let looked = "for _ in $(seq 1000); do [ -e /run/systemd/looked ] && break; sleep 0.05; done";
    let then = then.map_or("rm status.json;".to_owned(), |then| format!("({looked}; sleep 0.1; {then}) &"));
    dir.write("bin/systemctl", format!("#!/bin/sh\n: >/run/systemd/looked\ntest \"$1\" = show && cat <<E\n{units}E\n"));
    fs::set_permissions(dir.0.join("bin/systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/cloud-init && cd /run/cloud-init || exit 77
         echo '{{\"v1\": {{\"stage\": \"init\", \"init\": {{\"start\": 1}}}}}}' > status.json
         {then} PATH={}:$PATH timeout 120 {command}",
        dir.0.join("bin").display()
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    match output.map(answer) {
        Ok(answer) if answer.code != 77 && !answer.err.starts_with("unshare") => Some(answer),
        _ => {
            prepivot::base::testing::skip("needs a mount namespace");
            None
        }
    }
}

#[test]
fn waiting_for_the_end() {
    let dir = TempDir::new("cli-wait");
    let block = |active: &str, job: &str| format!("{job}ActiveState={active}\nSubState=x\nUnitFileState=static\n");
    let units = |blocks: [String; 4]| blocks.join("\n");
    let (queued, exited) = (|| block("inactive", "Job=5\n"), || block("active", ""));
    let going = units([queued(), queued(), exited(), exited()]);
    let Some(done) = waited(&dir, &going, Some("echo {} > result.json")) else { return };
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.starts_with('.') && done.out.ends_with(".\nstatus: done\n"), "{}", done.out);
    // A terminal has one line that changes.
    let on_terminal = format!("script -qec '{PROGRAM} status --wait' /dev/null");
    let shown = waited_by(&dir, &going, Some("echo {} > result.json"), &on_terminal).unwrap();
    assert!(shown.out.contains("\r\x1b[KRunning in stage: init"), "{:?}", shown.out);
    assert!(shown.out.ends_with("\r\x1b[Kstatus: done\r\n") && !shown.out.contains('.'), "{:?}", shown.out);
    let late = "echo '{\"v1\": {\"init\": {\"start\": 1, \"errors\": [\"bad\"]}}}' > new; mv new status.json; echo {} > result.json";
    assert_eq!(waited(&dir, &going, Some(late)).unwrap().code, 1);
    let off = || block("inactive", "");
    for ended in [units([off(), exited(), block("failed", ""), exited()]), units([off(), off(), off(), off()])] {
        let failed = waited(&dir, &ended, Some(":")).unwrap();
        assert_eq!((failed.code, failed.out.as_str()), (1, "status: error\n"), "{}", failed.err);
    }
    let killed = waited(&dir, &units([exited(), exited(), exited(), exited()]), Some(":")).unwrap();
    assert_eq!((killed.code, killed.out.as_str()), (1, ".\nstatus: error\n"), "{}", killed.err);
    let never = waited(&dir, &units([off(), off(), off(), off()]), None).unwrap();
    assert_eq!((never.code, never.out.as_str()), (0, "status: not started\n"));
    assert!(never.err.contains("not waited for"), "{}", never.err);
}

#[test]
fn without_a_datasource_it_is_disabled() {
    let dir = TempDir::new("cli-status-nothing");
    let text = r#"{"v1": {"datasource": null, "stage": null,
        "init-local": {"start": 1.5, "finished": 2, "errors": [], "recoverable_errors": {"WARNING": ["no drive"]}},
        "init": {"start": 3, "finished": FINISHED, "errors": ERRORS, "recoverable_errors": {}}}}"#;
    let put = |finished: &str, errors: &str| {
        dir.write("run/cloud-init/status.json", text.replace("FINISHED", finished).replace("ERRORS", errors));
    };
    dir.write("usr/lib/systemd/systemd", "");
    dir.write("run/cloud-init/enabled", "");
    put("4", "[]");
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: running\n", "cloud-init's own, which goes on");
    dir.write("run/prepivot/log", "");
    put("null", "[]");
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: running\n", "a drive may still appear");
    put("4", "[]");
    let long = run_in(&dir, "status --long --root ROOT");
    assert_eq!(
        (long.code, long.out.as_str()),
        (
            0,
            "status: disabled\nextended_status: disabled\nboot_status_code: disabled-by-generator\ndetail: no drive\n\
             errors: []\nrecoverable_errors: {}\n"
        )
    );
    assert_eq!(called(&dir, "cloud-id", &["--root", dir.0.to_str().unwrap()]).code, 2);
    put("4", r#"["bad"]"#);
    assert_eq!(run_in(&dir, "status --root ROOT").code, 1);
}

/// The stages that follow have nothing to do: who waits is told as soon as it is known.
#[test]
fn waiting_without_a_datasource_ends_as_disabled() {
    let dir = TempDir::new("cli-wait-nothing");
    let block = |job: &str| format!("{job}ActiveState=inactive\nSubState=x\nUnitFileState=static\n");
    let units = [block(""), block("Job=5\n"), block("Job=6\n"), block("Job=7\n")].join("\n");
    let nothing = r#"{"v1": {"datasource": null, "stage": null, "init-local": {"start": 1.5, "finished": 2},
        "init": {"start": 3, "finished": 4, "errors": []}}}"#;
    let then =
        format!("mkdir /run/prepivot; : >/run/prepivot/log; : >enabled; echo '{nothing}' >new; mv new status.json");
    let start = std::time::Instant::now();
    let Some(ended) = waited(&dir, &units, Some(&then)) else { return };
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.ends_with("status: disabled\n"), "{}{}", ended.out, ended.err);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn which_of_two_programs_provisions() {
    let dir = TempDir::new("cli-status-provider");
    booted(&dir, "[]", "{}");
    dir.write("usr/bin/prepivot", "");
    let provider = || {
        let long = run_in(&dir, "status --long --root ROOT").out;
        long.lines().find_map(|l| l.strip_prefix("provisioned_by: ").map(str::to_owned))
    };
    assert_eq!(provider(), None);
    symlink("prepivot", dir.0.join("usr/bin/cloud-init")).unwrap();
    dir.write("usr/lib/systemd/system/cloud-init-local.service", "ExecStart=/usr/bin/prepivot init --local\n");
    assert_eq!(provider(), None, "only prepivot is installed");
    fs::remove_file(dir.0.join("usr/bin/cloud-init")).unwrap();
    dir.write("usr/bin/cloud-init", "#!/usr/bin/python3\n");
    assert_eq!(provider().as_deref(), Some("prepivot"));
    dir.write("usr/lib/systemd/system/cloud-init-local.service", "ExecStart=/usr/bin/cloud-init init --local\n");
    assert_eq!(provider().as_deref(), Some("cloud-init"));
    assert!(run_in(&dir, "status --format json --root ROOT").out.contains("\"provisioned_by\": \"cloud-init\""));
    dir.write(
        "run/systemd/system/cloud-init-local.service",
        "[Service]\nExecStart=/run/prepivot/bin/prepivot init -l\n",
    );
    assert_eq!(provider().as_deref(), Some("prepivot"));
    fs::create_dir_all(dir.0.join("etc/systemd/system")).unwrap();
    symlink("/dev/null", dir.0.join("etc/systemd/system/cloud-init-local.service")).unwrap();
    assert_eq!(provider().as_deref(), Some("none"));
}
