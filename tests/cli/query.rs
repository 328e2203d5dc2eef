//! `query` and `cloud-id`.

use super::*;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;

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
    dir.write("other.json", r#"{"v1": {"x": true}}"#);
    assert_eq!(run_in(&dir, "query -i ROOT/other.json x --root ROOT").out, "true\n");
    let again = run_in(&dir, "query -i /nowhere --root / x --instance-data=ROOT/other.json --root ROOT");
    assert_eq!((again.code, again.out.as_str()), (0, "true\n"), "the last one is taken: {}", again.err);
}

#[test]
fn secrets_are_for_root_alone() {
    if !is_root() {
        prepivot::base::testing::skip("needs root to try both sides");
        return;
    }
    let dir = TempDir::new("cli-secrets");
    instance_data(&dir);
    assert_eq!(run_in(&dir, "query userdata --root ROOT").out, "#cloud-config\npassword: geheim\n\n");
    let without = run_in(&dir, "query -u /nonexistent userdata --root ROOT");
    assert_eq!((without.code, without.out.as_str()), (0, "\n"), "{}", without.err);
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
    dir.write("etc/cloud/cloud-init.disabled", "");
    assert_eq!((ask(&[]).code, ask(&[]).out.as_str()), (2, "disabled\n"));
}
