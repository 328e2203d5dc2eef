//! `plan` without a root, and what it says for CI.

use super::{Answer, run_in};
use prepivot::base::testing::TempDir;
use prepivot::document::{Value, json};
use prepivot::stage::distributions;
use std::fs;

const WRONG: &str = "#cloud-config\nhostnam: x\nusers:\n- name: bob\n  lock-passwd: true\nwrite_files:\n- path: /etc/x\n  content: hi\n  permissions: rwx\n";

fn planned(dir: &TempDir, user_data: &str, words: &str) -> Answer {
    dir.write("user-data", user_data);
    run_in(dir, &format!("plan {words} ROOT/user-data"))
}

#[test]
fn every_distribution_takes_ordinary_user_data() {
    let dir = TempDir::new("cli-plan-as");
    let network =
        "version: 2\nethernets: {eth0: {addresses: [192.0.2.2/24], routes: [{to: default, via: 192.0.2.1}]}}\n";
    dir.write("network", network);
    let names = distributions::names();
    assert!(names.len() >= 10, "{names:?}");
    for (name, file, install) in [
        ("alpine", "/etc/network/interfaces", "apk"),
        ("amazon-2023", "/etc/systemd/network/10-cloud-init-eth0.network", "dnf"),
        ("arch", "/etc/systemd/network/10-cloud-init-eth0.network", "pacman"),
        ("debian-12", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("debian-13", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("fedora-42", "/etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection", "dnf"),
        ("opensuse-leap", "/etc/sysconfig/network/ifcfg-eth0", "zypper"),
        ("rocky-9", "/etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection", "dnf"),
        ("ubuntu-22.04", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("ubuntu-24.04", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
        let user_data = "#cloud-config\nhostname: web\ntimezone: Europe/Berlin\npackages: [htop]\nusers: [default, {name: ada, groups: [users]}]\n";
        let answer = planned(&dir, user_data, &format!("--as {name} --network-config ROOT/network"));
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{name}: {}", answer.out);
        assert!(answer.out.contains(&format!("  write   {file} (")), "{name}: {}", answer.out);
        assert!(answer.out.contains(&format!("  run     {install} ")), "{name}: {}", answer.out);
        // Only what changes is shown, and nothing of the distribution itself.
        assert!(
            answer.out.contains("      + ada:x:1000:") && !answer.out.contains("zoneinfo "),
            "{name}: {}",
            answer.out
        );
    }
    assert_eq!(names.len(), 10, "a new distribution belongs into this table");
}

#[test]
fn exit_code_tells_errors_from_warnings() {
    let dir = TempDir::new("cli-plan-code");
    for (document, code) in [
        ("hostname: a", 0),
        ("users: [{name: a, lock-passwd: true}]", 0),
        ("hostnam: a", 1),
        ("a: [", 1),
        ("users: [{name: a, ssh_authorized_keys: [nonsense]}]", 2),
    ] {
        let answer = planned(&dir, &format!("#cloud-config\n{document}\n"), "--as debian-12 --format text");
        assert_eq!(answer.code, code, "{document}: {}", answer.out);
    }
    assert_eq!(planned(&dir, WRONG, "--as debian-1").code, 1);
    for words in ["", "--as arch --root ROOT", "--as arch --seed ROOT", "--as arch --json --format text"] {
        let answer = planned(&dir, WRONG, words);
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{words}: {}", answer.err);
    }
}

#[test]
fn findings_are_lines_and_workflow_commands() {
    let dir = TempDir::new("cli-plan-lines");
    let path = dir.0.join("user-data");
    let path = path.display();
    let answer = planned(&dir, WRONG, "--as debian-12 --format text");
    let permissions =
        "write_files.0: entry 1 (/etc/x): permissions: expected an octal number of four digits in quotes: 0600 is used";
    let expected = format!(
        "{path}:2:1: error: hostnam: there is no such key. Write hostname.\n\
         {path}:5:3: note: users.0.lock-passwd: Deprecated in version 22.3. Use lock_passwd instead.\n\
         {path}:7:3: warning: {permissions}\n"
    );
    assert_eq!(answer.out, expected);
    let answer = planned(&dir, WRONG, "--as debian-12 --format github");
    let commands: Vec<&str> = answer.out.lines().collect();
    assert_eq!(
        commands,
        [
            format!("::error file={path},line=2,col=1,title=hostnam::hostnam: there is no such key. Write hostname."),
            format!(
                "::notice file={path},line=5,col=3,title=users.0.lock-passwd::users.0.lock-passwd: Deprecated in version 22.3. \
                 Use lock_passwd instead."
            ),
            format!("::warning file={path},line=7,col=3,title=write_files.0::{permissions}"),
        ]
    );
}

#[test]
fn sarif_has_what_its_schema_requires() {
    let dir = TempDir::new("cli-plan-sarif");
    let answer = planned(&dir, WRONG, "--as debian-12 --format sarif");
    let log = json::parse("sarif", answer.out.as_bytes()).unwrap();
    let text = |value: &Value, path: &[&str]| value.at(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    assert_eq!(text(&log, &["version"]), "2.1.0");
    let [run] = log.get("runs").and_then(Value::as_list).unwrap() else { panic!() };
    assert_eq!(text(run, &["tool", "driver", "name"]), "prepivot");
    let rules = run.at(&["tool", "driver", "rules"]).and_then(Value::as_list).unwrap();
    let results = run.get("results").and_then(Value::as_list).unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        assert!(["error", "warning", "note"].contains(&text(result, &["level"]).as_str()));
        assert!(rules.iter().any(|rule| text(rule, &["id"]) == text(result, &["ruleId"])));
        assert!(!text(result, &["message", "text"]).is_empty());
        let [location] = result.get("locations").and_then(Value::as_list).unwrap() else { panic!() };
        let physical = location.get("physicalLocation").unwrap();
        assert!(text(physical, &["artifactLocation", "uri"]).ends_with("/user-data"));
        let number = |key: &str| physical.at(&["region", key]).and_then(Value::as_int).unwrap();
        assert!(number("startLine") > 1 && number("startColumn") > 0);
    }
    // A run without findings is a run.
    let clean = planned(&dir, "#cloud-config\n{}\n", "--as debian-12 --format sarif");
    assert!(clean.code == 0 && clean.out.contains("\"results\": []"), "{}", clean.out);
}

#[test]
fn junit_counts_documents_and_failures() {
    let dir = TempDir::new("cli-plan-junit");
    dir.write("clean", "#cloud-config\nhostname: a\n");
    let answer = planned(&dir, WRONG, "--as debian-12 --format junit ROOT/clean");
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains("<testsuites tests=\"4\" failures=\"2\" errors=\"0\">"), "{}", answer.out);
    assert_eq!(answer.out.matches("<failure ").count(), 2);
    assert_eq!(answer.out.matches("</testcase>").count() + answer.out.matches("\"/>").count(), 4);
}

#[test]
fn findings_of_network_name_its_document() {
    let dir = TempDir::new("cli-plan-network");
    dir.write("network", "version: 2\nethernets:\n  eth0:\n    dhcp4: maybe\n");
    let answer = planned(&dir, "#cloud-config\n{}\n", "--as fedora-42 --format text --network-config ROOT/network");
    let path = dir.0.join("network");
    let line = format!("{}:4:5: error: ethernets.eth0.dhcp4: expected one of yes, no, true, false", path.display());
    assert!(answer.code == 1 && answer.out.starts_with(&line), "{}", answer.out);
}

#[test]
fn plan_leaves_nothing_behind() {
    let dir = TempDir::new("cli-plan-temporary");
    let temporary = dir.0.join("tmp");
    fs::create_dir(&temporary).unwrap();
    dir.write("user-data", WRONG);
    let program = std::process::Command::new(super::PROGRAM)
        .args(["plan", "--as", "arch"])
        .arg(dir.0.join("user-data"))
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert_eq!(program.status.code(), Some(1));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}
