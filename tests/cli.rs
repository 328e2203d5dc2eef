//! The program as people and scripts call it: words in, text and an exit code out.

use prepivot::document::{Value, json};
use prepivot::testing::TempDir;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
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

fn write(dir: &TempDir, path: &str, text: &str) {
    let path = dir.0.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
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
    write(dir, "var/lib/cloud/data/status.json", &text);
    write(dir, "var/lib/cloud/data/result.json", r#"{"v1": {}}"#);
    fs::create_dir_all(dir.0.join("run/cloud-init")).unwrap();
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
    write(dir, "run/cloud-init/instance-data.json", &data("redacted for non-root user"));
    write(dir, "run/cloud-init/instance-data-sensitive.json", &data("geheim"));
    write(dir, "run/cloud-init/combined-cloud-config.json", r#"{"password": "geheim"}"#);
    write(dir, "var/lib/cloud/instances/i-1/user-data.txt", "#cloud-config\npassword: geheim\n");
    write(dir, "var/lib/cloud/instances/i-1/vendor-data.txt", "");
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
fn status_and_its_exit_codes() {
    let dir = TempDir::new("cli-status");
    let none = run_in(&dir, "status --root ROOT");
    assert_eq!((none.code, none.out.as_str()), (0, "status: not started\n"));

    booted(&dir, "[]", "{}");
    assert_eq!(run_in(&dir, "status --root=ROOT").out, "status: done\n");
    let long = run_in(&dir, "status --long --root ROOT");
    assert_eq!(
        long.out,
        "status: done\nextended_status: done\nboot_status_code: unknown\nlast_update: Thu, 01 Jan 1970 00:00:04 +0000\n\
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
    assert!(failed.out.starts_with("{\n  \"boot_status_code\": \"unknown\",\n"), "{}", failed.out);
    let yaml = run_in(&dir, "status --root ROOT --format yaml");
    assert!(yaml.out.starts_with("---\nboot_status_code: unknown\n") && yaml.out.ends_with("...\n\n"), "{}", yaml.out);
    let from_yaml = prepivot::document::yaml::parse("t", yaml.out.split("\n...").next().unwrap()).unwrap();
    assert_eq!(from_yaml, document);

    fs::remove_file(dir.0.join("var/lib/cloud/data/result.json")).unwrap();
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: error\n");
    booted(&dir, "[]", "{}");
    fs::remove_file(dir.0.join("var/lib/cloud/data/result.json")).unwrap();
    assert_eq!(run_in(&dir, "status --root ROOT").out, "status: running\n");

    write(&dir, "etc/cloud/cloud-init.disabled", "");
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
    let then = then.map_or("rm status.json;".to_owned(), |then| format!("(sleep 0.3; {then}) &"));
    write(dir, "bin/systemctl", &format!("#!/bin/sh\ntest \"$1\" = show && cat <<E\n{units}\nE\n"));
    fs::set_permissions(dir.0.join("bin/systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/cloud-init && cd /run/cloud-init || exit 77
         echo '{{\"v1\": {{\"stage\": \"init\", \"init\": {{\"start\": 1}}}}}}' > status.json
         {then} PATH={}:$PATH timeout 20 {PROGRAM} status --wait",
        dir.0.join("bin").display()
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    match output.map(answer) {
        Ok(answer) if answer.code != 77 && !answer.err.starts_with("unshare") => Some(answer),
        _ => {
            println!("skipped: needs a mount namespace");
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
    let late = "echo '{\"v1\": {\"init\": {\"start\": 1, \"errors\": [\"bad\"]}}}' > new; mv new status.json; echo {} > result.json";
    assert_eq!(waited(&dir, &going, Some(late)).unwrap().code, 1);
    let off = || block("inactive", "");
    for ended in [units([off(), exited(), block("failed", ""), exited()]), units([off(), off(), off(), off()])] {
        let failed = waited(&dir, &ended, Some(":")).unwrap();
        assert_eq!((failed.code, failed.out.as_str()), (1, "status: error\n"), "{}", failed.err);
    }
    let never = waited(&dir, &units([off(), off(), off(), off()]), None).unwrap();
    assert_eq!((never.code, never.out.as_str()), (0, "status: not started\n"));
    assert!(never.err.contains("not waited for"), "{}", never.err);
}

#[test]
fn query_values_keys_and_templates() {
    let dir = TempDir::new("cli-query");
    let missing = run_in(&dir, "query -a --root ROOT");
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("/run/cloud-init/instance-data.json is missing"), "{}", missing.err);
    assert_eq!(run_in(&dir, "query --root ROOT").code, 1);

    instance_data(&dir);
    for (line, code, out) in [
        ("query v1.local_hostname --root ROOT", 0, "web\n"),
        ("query local_hostname --root ROOT", 0, "web\n"),
        ("query ds.meta_data.a_b --root ROOT", 0, "[\n 1,\n \"x\"\n]\n"),
        ("query -l v1 --root ROOT", 0, "cloud-name\ncloud_name\nlocal_hostname\nplatform\nregion\n"),
        ("query -f{{v1.region}}-{{cloud_name}} --root ROOT", 0, "r1-openstack\n"),
        ("query --format=a={{region}} --root ROOT", 0, "a=r1\n"),
        ("query v1.nope --root ROOT", 1, ""),
        ("query -f {{ --root ROOT", 1, ""),
        ("query -l v1.region --root ROOT", 1, ""),
    ] {
        let answer = run_in(&dir, line);
        assert_eq!((answer.code, answer.out.as_str()), (code, out), "{line}: {}", answer.err);
    }
    assert!(run_in(&dir, "query v1.nope --root ROOT").err.contains("instance-data 'v1' has no 'nope'"));
    let keys = run_in(&dir, "query --list-keys --root ROOT").out;
    assert!(keys.starts_with("cloud-name\ncloud_name\ncombined_cloud_config\nds\n"), "{keys}");
    write(&dir, "other.json", r#"{"v1": {"x": true}}"#);
    assert_eq!(run_in(&dir, "query -i ROOT/other.json x --root ROOT").out, "true\n");
}

#[test]
fn secrets_are_for_root_alone() {
    if !is_root() {
        println!("skipped: needs root to try both sides");
        return;
    }
    let dir = TempDir::new("cli-secrets");
    instance_data(&dir);
    assert_eq!(run_in(&dir, "query userdata --root ROOT").out, "#cloud-config\npassword: geheim\n\n");
    assert_eq!(run_in(&dir, "query combined_cloud_config.password --root ROOT").out, "geheim\n");
    assert_eq!(run_in(&dir, "query ds.meta_data.admin_pass --root ROOT").out, "geheim\n");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.0.join("prepivot");
    fs::copy(PROGRAM, &program).unwrap();
    let nobody = |words: &[&str]| loop {
        let mut command = Command::new(&program);
        match command.args(words).arg("--root").arg(&dir.0).uid(65534).gid(65534).output() {
            // Another test's child holds the copy open for a moment, between its fork and its exec.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => break answer(output.unwrap()),
        }
    };
    let all = nobody(&["query", "--all"]);
    assert_eq!(all.code, 0, "{}", all.err);
    assert!(
        !all.out.contains("geheim")
            && all.out.contains("<redacted for non-root user> file:/var/lib/cloud/instance/user-data.txt")
    );
    assert_eq!(nobody(&["query", "ds.meta_data.admin_pass"]).out, "redacted for non-root user\n");
    let sensitive = dir.0.join("run/cloud-init/instance-data-sensitive.json");
    fs::set_permissions(&sensitive, fs::Permissions::from_mode(0o600)).unwrap();
    let named = nobody(&["query", "-a", "-i", sensitive.to_str().unwrap()]);
    assert!(
        named.code == 1 && !named.out.contains("geheim") && named.err.contains("ermission denied"),
        "{}",
        named.err
    );
}

#[test]
fn the_cloud_in_one_word() {
    let dir = TempDir::new("cli-cloud-id");
    let root = dir.0.to_str().unwrap().to_owned();
    let ask = |words: &[&str]| called(&dir, "cloud-id", &[words, &["--root", &root]].concat());
    let before = ask(&[]);
    assert_eq!((before.code, before.out.as_str()), (3, "not started\n"));
    booted(&dir, "[]", "{}");
    assert_eq!(ask(&[]).code, 1);
    instance_data(&dir);
    assert_eq!((ask(&[]).code, ask(&[]).out.as_str()), (0, "openstack\n"));
    assert_eq!(ask(&["-l"]).out, "openstack\tr1\n");
    let all = ask(&["--json"]);
    assert!(all.out.contains("\"cloud_id\": \"openstack\"") && all.err.contains("DEPRECATED"), "{}", all.out);
    assert_eq!(run_in(&dir, "cloud-id --root ROOT").out, "openstack\n");
    write(&dir, "etc/cloud/cloud-init.disabled", "");
    assert_eq!((ask(&[]).code, ask(&[]).out.as_str()), (2, "disabled\n"));
}

#[test]
fn clean_makes_a_tree_forget() {
    let dir = TempDir::new("cli-clean");
    for path in [
        "var/lib/cloud/instances/i-1/user-data.txt",
        "var/lib/cloud/data/status.json",
        "var/lib/cloud/seed/nocloud/meta-data",
        "var/log/cloud-init.log",
        "var/log/cloud-init.log.1.gz",
        "var/log/cloud-init.logger",
        "var/log/own.log",
        "etc/systemd/network/10-cloud-init-eth0.network",
        "etc/systemd/network/20-mine.network",
        "etc/ssh/sshd_config.d/50-cloud-init.conf",
        "usr/lib/systemd/systemd",
        "run/prepivot/applied.json",
    ] {
        write(&dir, path, "x\n");
    }
    symlink("instances/i-1", dir.0.join("var/lib/cloud/instance")).unwrap();
    write(&dir, "etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    write(&dir, "etc/cloud/cloud.cfg", "output: {all: '| tee -a /var/log/own.log'}\n");
    write(&dir, "etc/fstab", "/dev/a / ext4 defaults 0 1\n/dev/b /b auto nofail,comment=cloudconfig 0 2\n");
    write(&dir, "etc/cloud/clean.d/10-x", "#!/bin/sh\n");
    fs::set_permissions(dir.0.join("etc/cloud/clean.d/10-x"), fs::Permissions::from_mode(0o755)).unwrap();
    let exists = |path: &str| fs::symlink_metadata(dir.0.join(path)).is_ok();

    let first = run_in(&dir, "clean --root ROOT");
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("not run in another root: /etc/cloud/clean.d/10-x"), "{}", first.err);
    assert_eq!(fs::read_dir(dir.0.join("var/lib/cloud")).unwrap().count(), 1);
    assert!(exists("var/lib/cloud/seed/nocloud/meta-data") && !exists("run/prepivot/applied.json"));
    assert!(exists("var/log/cloud-init.log") && exists("etc/ssh/sshd_config.d/50-cloud-init.conf"));
    assert_eq!(fs::read_to_string(dir.0.join("etc/machine-id")).unwrap().len(), 33);

    let second = run_in(&dir, "clean -ls --machine-id -c ssh_config network --configs fstab --root ROOT");
    assert_eq!(second.code, 0, "{}", second.err);
    for path in ["var/lib/cloud/seed", "var/log/cloud-init.log", "var/log/cloud-init.log.1.gz", "var/log/own.log"] {
        assert!(!exists(path), "{path}");
    }
    assert!(!exists("etc/systemd/network/10-cloud-init-eth0.network") && exists("etc/systemd/network/20-mine.network"));
    assert!(!exists("etc/ssh/sshd_config.d/50-cloud-init.conf") && exists("var/log/cloud-init.logger"));
    assert_eq!(fs::read_to_string(dir.0.join("etc/machine-id")).unwrap(), "uninitialized\n");
    assert_eq!(fs::read_to_string(dir.0.join("etc/fstab")).unwrap(), "/dev/a / ext4 defaults 0 1\n");

    fs::remove_dir_all(dir.0.join("var/lib/cloud")).unwrap();
    let third = run_in(&dir, "clean --root ROOT");
    assert!(third.code == 0 && third.err.contains("nothing to clean"), "{}", third.err);
}

#[test]
fn a_network_configuration_for_another_stack() {
    let dir = TempDir::new("cli-net-convert");
    write(&dir, "in.yaml", "network: {version: 2, ethernets: {ens3: {dhcp4: true}}}\n");
    let line = "devel net-convert -p ROOT/in.yaml -k yaml -d ROOT/out/here -D debian -O networkd --debug";
    let done = run_in(&dir, line);
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    let file = dir.0.join("out/here/etc/systemd/network/10-cloud-init-ens3.network");
    assert!(fs::read_to_string(file).unwrap().contains("DHCP=ipv4\n"));
    let plan = run_in(&dir, &line.replace("-O networkd --debug", "-Onetplan -m ens3,52:54:00:00:00:01"));
    assert_eq!(plan.code, 0, "{}", plan.err);
    let meta = fs::metadata(dir.0.join("out/here/etc/netplan/50-cloud-init.yaml")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    for (from, to, code) in [
        ("-k yaml", "-k toml", 2),
        ("-D debian", "-D windows", 2),
        ("-O networkd", "-O rc.conf", 2),
        ("-d ROOT/out/here", "", 2),
        ("in.yaml", "none.yaml", 1),
        ("-k yaml", "-k network_data.json", 1),
    ] {
        let line = line.replace(from, to).replace("  ", " ");
        assert_eq!(run_in(&dir, &line).code, code, "{line}");
    }
}

#[test]
fn tools_for_user_data() {
    let dir = TempDir::new("cli-devel");
    instance_data(&dir);
    write(&dir, "t", "## template: jinja\n#cloud-config\nhostname: {{ v1.local_hostname }}\n");
    write(&dir, "plain", "#cloud-config\n");
    let data = "-i ROOT/run/cloud-init/instance-data.json";
    let rendered = run_in(&dir, &format!("devel render {data} ROOT/t"));
    assert_eq!((rendered.code, rendered.out.as_str()), (0, "#cloud-config\nhostname: web\n"), "{}", rendered.err);
    assert_eq!(run_in(&dir, &format!("devel render {data} ROOT/plain")).code, 1);
    assert_eq!(run_in(&dir, "devel render -i ROOT/none.json ROOT/t").code, 1);
    assert_eq!(run_in(&dir, "devel render").code, 2);

    write(&dir, "s.sh", "#!/bin/sh\n");
    let line = "devel make-mime -a ROOT/plain:cloud-config -a ROOT/s.sh:x-shellscript";
    let made = run_in(&dir, line);
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(
        made.out.starts_with("Content-Type: multipart/mixed; boundary=") && made.out.contains("text/x-shellscript")
    );
    let parts = prepivot::userdata::mime::parse(made.out.as_bytes()).unwrap();
    let contents: Vec<&[u8]> = parts.iter().map(|p| p.content.as_slice()).collect();
    assert_eq!(contents, [b"#cloud-config\n".as_slice(), b"#!/bin/sh\n"]);
    assert_eq!(run_in(&dir, "devel make-mime -a ROOT/s.sh:odd").code, 1);
    assert_eq!(run_in(&dir, "devel make-mime -f -a ROOT/s.sh:odd").code, 0);
    assert_eq!(run_in(&dir, "devel make-mime -a ROOT/s.sh").code, 2);
    assert!(run_in(&dir, "devel make-mime -l").out.contains("\ncloud-config\n"));
}

#[test]
fn what_is_wrong_with_a_cloud_config() {
    let dir = TempDir::new("cli-schema");
    for (text, code, said) in [
        ("#cloud-config\nruncmd: [ls]\n", 0, "Valid schema"),
        ("", 0, "Nothing to validate"),
        ("#!/bin/sh\n", 0, "not checked"),
        (
            "#cloud-config\nruncmd: ls\nrun_cmd: []\n",
            1,
            "runcmd: expected a list, found a string, run_cmd: there is no such key",
        ),
        ("#cloud-config\nruncmd: [\n", 1, "not valid YAML at line"),
        ("#cloud-config\n- a\n", 1, "expected a mapping, found a list"),
        ("# cloud-config\nruncmd: []\n", 1, "#cloud-config"),
    ] {
        write(&dir, "c", text);
        let answer = run_in(&dir, "schema -c ROOT/c");
        assert_eq!(answer.code, code, "{text:?}: {}", answer.err);
        assert!((answer.out + &answer.err).contains(said), "{text:?}: {}", answer.err);
    }
    write(&dir, "n", "network: {version: 2, ethernets: {a: {dhcp4: true}}}\n");
    assert_eq!(run_in(&dir, "schema -t network-config --config-file ROOT/n").code, 0);
    write(&dir, "n", "network: {version: 9}\n");
    assert_eq!(run_in(&dir, "schema -t network-config --config-file ROOT/n").code, 1);
    assert_eq!(run_in(&dir, "schema -c ROOT/none").code, 1);
    assert_eq!(run(&["schema"]).code, 1);
    assert_eq!(run(&["schema", "-c", "x", "--system"]).code, 1);
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
    if !is_root() || Path::new("/run/systemd/system").is_dir() {
        println!("skipped: running commands needs root in a container, whose /var/lib/cloud is nobody's");
        return;
    }
    let name = format!("prepivot-test-{}", std::process::id());
    let mark = format!("/var/lib/cloud/sem/bootper.{}.once", name.replace('-', "_"));
    let run = |frequency: &str, command: &str| called(&dir, "cloud-init-per", &[frequency, &name, "sh", "-c", command]);
    let first = run("once", "echo ran; exit 3");
    assert_eq!((first.code, first.out.as_str()), (3, "ran\n"));
    assert!(fs::read_to_string(&mark).unwrap().starts_with("3\t"));
    let second = run("once", "echo ran");
    assert_eq!((second.code, second.out.as_str()), (0, ""));
    assert_eq!(run("always", "echo ran").out, "ran\n");
    assert_eq!(run("always", "echo ran").out, "ran\n");
    for mark in [&mark, &mark.replace(".once", ".always")] {
        fs::remove_file(mark).unwrap();
    }
}
