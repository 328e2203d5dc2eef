//! `compare`, on what cloud-init leaves.

use super::*;

/// A root as cloud-init leaves it: a Debian machine with a file, a name and a user's data.
fn provisioned(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    let instance = "var/lib/cloud/instances/i-1";
    let user_data = "#cloud-config\nlocale: false\nwrite_files:\n- {path: /srv/a, content: \"one\\n\"}\n\
                     - {path: /srv/secret, content: geheim, permissions: '0600'}\n";
    for (path, text) in [
        ("etc/os-release", "ID=debian\n"),
        ("etc/hostname", "md1\n"),
        ("etc/cloud/cloud.cfg", "cloud_init_modules: [write_files, set_hostname]\n"),
        ("var/lib/cloud/data/instance-id", "i-1\n"),
        ("srv/a", "one\n"),
        ("srv/secret", "geheim"),
    ] {
        dir.write(path, text);
    }
    dir.write(format!("{instance}/user-data.txt").as_str(), user_data);
    dir.write(format!("{instance}/datasource").as_str(), "DataSourceNoCloud: DataSourceNoCloud [seed=/dev/sr0]\n");
    dir.write(format!("{instance}/network-config.json").as_str(), "{\"config\": \"disabled\"}");
    dir.write(
        "run/cloud-init/instance-data-sensitive.json",
        r#"{"v1": {"instance_id": "i-1", "local_hostname": "md1"}}"#,
    );
    fs::set_permissions(dir.0.join("srv/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

#[test]
fn same_machine_compares_without_a_difference() {
    let dir = provisioned("compare-same");
    let found = run_in(&dir, "compare --root ROOT");
    assert_eq!(found.code, 0, "{}{}", found.out, found.err);
    assert!(found.out.contains("instance i-1 (NoCloud): ") && found.out.contains("0 different, 0 missing, 0 only"));
    assert!(!dir.0.join("var/lib/cloud/instances/i-1/sem").exists() && !dir.0.join("run/prepivot").exists());
}

#[test]
fn changed_and_missing_files_are_named_without_secrets() {
    let dir = provisioned("compare-changed");
    dir.write("srv/a", "two\n");
    dir.write("srv/secret", "other");
    let found = run_in(&dir, "compare --root ROOT");
    assert_eq!(found.code, 1);
    for line in ["  different /srv/a (", "      - two\n", "      + one\n", "  different /srv/secret ("] {
        assert!(found.out.contains(line), "{line}: {}", found.out);
    }
    assert!(!found.out.contains("geheim") && !found.out.contains("other\n"), "{}", found.out);
    fs::remove_file(dir.0.join("srv/a")).unwrap();
    // cloud-init's log names what it has written.
    dir.write("etc/own", "x");
    dir.write("var/log/cloud-init.log", "x - util.py[DEBUG]: Writing to /etc/own - wb: [644] 1 bytes\n");
    let found = run_in(&dir, "compare --root ROOT --json");
    assert_eq!(found.code, 1);
    let missing = r#"{"path":"/srv/a","is":"missing""#;
    let only = r#"{"path":"/etc/own","is":"only""#;
    assert!(found.out.replace(' ', "").contains(missing) && found.out.replace(' ', "").contains(only), "{}", found.out);
    assert!(!found.out.contains("geheim"), "{}", found.out);
}

#[test]
fn what_the_machine_changed_later_stands_apart() {
    let dir = provisioned("compare-later");
    dir.write("var/lib/cloud/instances/i-1/sem/config_write_files", "");
    let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(dir.0.join("var/lib/cloud/instances/i-1/sem/config_write_files"));
    file.unwrap().set_modified(earlier).unwrap();
    dir.write("srv/a", "two\n");
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 0 && found.out.contains("  since     /srv/a"), "{}", found.out);
}

#[test]
fn texts_in_the_place_of_paths_stay_hidden() {
    let dir = provisioned("compare-paths");
    let long = "geheim".repeat(50);
    let user_data = format!(
        "#cloud-config\nlocale: false\nwrite_files:\n- {{path: \"/geheim\\nkey\", content: a}}\n- {{path: /{long}/x, content: a}}\n\
         - {{path: /srv/open, content: a}}\n"
    );
    dir.write("var/lib/cloud/instances/i-1/user-data.txt", user_data.as_str());
    for verb in ["compare --root ROOT", "compare --root ROOT --json"] {
        let found = run_in(&dir, verb);
        assert!(found.code == 1 && found.out.contains("/srv/open"), "{}{}", found.out, found.err);
        assert!(!(found.out + &found.err).contains("geheim"), "{verb}");
    }
}

/// Of a machine that cloud-init has provisioned, the archive for a bug report has the comparison.
#[test]
fn collect_logs_has_the_comparison() {
    let dir = provisioned("compare-collected");
    dir.write("srv/a", "two\n");
    let compared = run_in(&dir, "compare --root ROOT --json");
    let made = run_in(&dir, "collect-logs --root ROOT --tarfile ROOT/l.tar.gz");
    assert_eq!(made.code, 0, "{}", made.err);
    let archive = dir.0.join("l.tar.gz");
    let tar = Command::new("tar").arg("-xzOf").arg(archive).args(["--wildcards", "*/compare.json"]).output();
    let collected = answer(tar.unwrap());
    assert_eq!(collected.code, 0, "{}", collected.err);
    assert!(collected.out.contains("/srv/a") && !collected.out.contains("geheim"), "{}", collected.out);
    assert_eq!(collected.out.trim_end(), compared.out.trim_end());
}

#[test]
fn failed_module_of_cloud_init_explains_missing_files() {
    let dir = provisioned("compare-failed");
    dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [apt_configure]\n");
    let user_data = "#cloud-config\nlocale: false\napt: {preserve_sources_list: true, proxy: 'http://192.0.2.1/'}\n";
    dir.write("var/lib/cloud/instances/i-1/user-data.txt", user_data);
    dir.write("etc/apt/apt.conf.d/00", "");
    let path = "/etc/apt/apt.conf.d/90cloud-init-aptproxy";
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.out.contains(&format!("  missing   {path}")), "{}{}", found.out, found.err);
    let log = "x - log_util.py[WARNING]: Running module apt-configure (<module 'cloudinit' from 'x.py'>) failed\n";
    dir.write("var/log/cloud-init.log", log);
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 0 && found.out.contains(&format!("  stated    {path} (failed: ")), "{}", found.out);
}

#[test]
fn failed_module_explains_files_it_would_change() {
    let dir = provisioned("compare-partly");
    dir.write("srv/a", "two\n");
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.out.contains("  different /srv/a (write_files)"), "{}{}", found.out, found.err);
    let log = "x - log_util.py[WARNING]: Running module write-files (<module 'cloudinit' from 'x.py'>) failed\n";
    dir.write("var/log/cloud-init.log", log);
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 0 && found.out.contains("  stated    /srv/a (failed: "), "{}", found.out);
    // Another module's failure explains nothing.
    dir.write("var/log/cloud-init.log", log.replace("write-files", "set_hostname").as_str());
    assert_eq!(run_in(&dir, "compare --root ROOT").code, 1);
}

#[test]
fn failed_stage_and_unread_document_explain_their_files() {
    let dir = provisioned("compare-stage");
    dir.write("srv/a", "two\n");
    for (line, code) in [
        ("main.py[ERROR]: failed stage init", 0),
        ("main.py[ERROR]: failed stage init-local", 1),
        ("main.py[ERROR]: failed stage modules-final", 1),
        ("cloud_config.py[WARNING]: Failed at merging in cloud config part from part-001: empty cloud config", 0),
    ] {
        dir.write("var/log/cloud-init.log", format!("x - {line}\n").as_str());
        let found = run_in(&dir, "compare --root ROOT");
        assert_eq!(found.code, code, "{line}: {}", found.out);
        assert_eq!(found.out.contains("  stated    /srv/a (failed: "), code == 0, "{line}: {}", found.out);
    }
}

/// Of a file that two modules change, only what the failed one makes may be missing.
#[test]
fn failed_module_explains_nothing_of_another_module() {
    let dir = provisioned("compare-shared");
    dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [write_files, update_etc_hosts]\n");
    let user_data = "#cloud-config\nlocale: false\nmanage_etc_hosts: localhost\n\
                     write_files: [{path: /etc/hosts, content: \"192.0.2.9 own\\n\", append: true}]\n";
    dir.write("var/lib/cloud/instances/i-1/user-data.txt", user_data);
    let log = "x - log_util.py[WARNING]: Running module update-etc-hosts (<module 'cloudinit' from 'x.py'>) failed\n";
    for (hosts, log, code) in [
        ("127.0.0.1 localhost\n192.0.2.9 own\n", log, 0),
        ("127.0.0.1 localhost\n192.0.2.9 own\n", "", 1),
        ("127.0.0.1 localhost\n", log, 1),
    ] {
        dir.write("etc/hosts", hosts);
        dir.write("var/log/cloud-init.log", log);
        let found = run_in(&dir, "compare --root ROOT");
        assert_eq!(found.code, code, "{hosts}{log}: {}{}", found.out, found.err);
        assert_eq!(found.out.contains("  stated    /etc/hosts (failed: "), code == 0, "{hosts}{log}: {}", found.out);
    }
}

#[test]
fn modules_done_before_the_failure_are_compared() {
    let dir = provisioned("compare-done");
    dir.write("srv/a", "two\n");
    let failed = "x - main.py[ERROR]: failed stage init\n";
    let done = "x - handlers.py[DEBUG]: finish: init-network/config-write-files: SUCCESS: config-write-files ";
    for (log, code) in [
        (format!("{done}ran successfully and took 0.001 seconds\n{failed}"), 1),
        (format!("{done}previously ran\n{failed}"), 0),
    ] {
        dir.write("var/log/cloud-init.log", log.as_str());
        let found = run_in(&dir, "compare --root ROOT");
        assert_eq!(found.code, code, "{log}: {}", found.out);
    }
}

/// What cloud-init read of the documents all the same is in its merged configuration.
#[test]
fn unread_document_explains_nothing_of_the_others() {
    let dir = provisioned("compare-unread");
    dir.write("srv/a", "two\n");
    let line =
        "x - cloud_config.py[WARNING]: Failed at merging in cloud config part from part-002: empty cloud config\n";
    dir.write("var/log/cloud-init.log", line);
    for (content, code) in [("other\n", 1), ("two\n", 0)] {
        let merged = format!("#cloud-config\nwrite_files:\n- path: /srv/a\n  content: |\n    {content}");
        dir.write("var/lib/cloud/instances/i-1/cloud-config.txt", merged.as_str());
        dir.write("srv/secret", "geheim");
        let found = run_in(&dir, "compare --root ROOT");
        assert_eq!(found.code, code, "{content}: {}", found.out);
    }
}

/// The network stage has read its configuration when a document or an administrator adds to it.
#[test]
fn newer_configuration_is_for_later_stages() {
    let dir = provisioned("compare-drop-in");
    dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [set_hostname]\ncloud_config_modules: [timezone]\n");
    dir.write("usr/share/zoneinfo/Europe/Rome", "TZif");
    dir.write("etc/timezone", "Europe/Rome\n");
    let drop_in = "etc/cloud/cloud.cfg.d/99-own.cfg";
    dir.write(drop_in, "hostname: later\ntimezone: Europe/Rome\n");
    let hour = std::time::Duration::from_secs(3600);
    let sem = "var/lib/cloud/instances/i-1/sem/config_set_hostname";
    dir.write(sem, "");
    let now = std::time::SystemTime::now();
    let set =
        |path: &str, time| fs::File::options().write(true).open(dir.0.join(path)).unwrap().set_modified(time).unwrap();
    set(sem, now + hour);
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.out.contains("      + later\n"), "{}{}", found.out, found.err);
    set(sem, now - hour);
    let found = run_in(&dir, "compare --root ROOT --json");
    assert!(!found.out.contains("+ later") && found.out.contains("/etc/timezone"), "{}{}", found.out, found.err);
    assert!(!found.out.replace(' ', "").contains(r#""path":"/etc/hostname","is":"different""#), "{}", found.out);
}

#[test]
fn missing_disks_are_stated_and_others_are_not() {
    let dir = provisioned("compare-disks");
    dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [mounts]\n");
    dir.write(
        "var/lib/cloud/instances/i-1/user-data.txt",
        "#cloud-config\nlocale: false\nmounts: [[sdc, /opt], [ephemeral0, null]]\n",
    );
    dir.write("opt/.keep", "");
    dir.write("etc/fstab", "sdc\t/opt\tauto\tdefaults,nofail,comment=cloudconfig\t0\t2\n");
    let found = run_in(&dir, "compare --root ROOT");
    assert!(
        found.code == 0 && found.out.contains("  stated    /etc/fstab (missing-disks: "),
        "{}{}",
        found.out,
        found.err
    );
    dir.write("etc/fstab", "sdc\t/opt\txfs\tdefaults,nofail,comment=cloudconfig\t0\t2\n");
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.out.contains("  different /etc/fstab (mounts)"), "{}", found.out);
}

#[test]
fn files_of_a_config_drive_are_stated() {
    let dir = provisioned("compare-injected");
    dir.write("srv/injected", "x");
    dir.write("var/log/cloud-init.log", "x - util.py[DEBUG]: Writing to /srv/injected - wb: [660] 1 bytes\n");
    let data = r#"{"ds": {"meta_data": {"files": [{"content_path": "/content/0000", "path": "PATH"}]}},
                   "v1": {"instance_id": "i-1", "local_hostname": "md1"}}"#;
    for (path, code) in [("/srv/injected", 0), ("/srv/other", 1)] {
        dir.write("run/cloud-init/instance-data-sensitive.json", data.replace("PATH", path).as_str());
        let found = run_in(&dir, "compare --root ROOT");
        assert!(found.code == code && found.out.contains(" /srv/injected"), "{path}: {}{}", found.out, found.err);
    }
}

#[test]
fn machine_without_an_instance_is_an_error() {
    let dir = TempDir::new("compare-none");
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.err.contains("/var/lib/cloud/data/instance-id"), "{}", found.err);
}

#[test]
fn group_lacks_members_made_after_it() {
    let dir = provisioned("compare-members");
    dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [users_groups]\n");
    dir.write(
        "var/lib/cloud/instances/i-1/user-data.txt",
        "#cloud-config\nlocale: false\ngroups: [{docker: [dev, old]}]\nusers: [{name: dev}]\n",
    );
    dir.write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nold:x:1000:1000::/home/old:/bin/sh\ndev:x:1001:1001::/home/dev:/bin/sh\n",
    );
    dir.write("etc/shadow", "root:*:1::::::\nold:!:1::::::\ndev:!:1::::::\n");
    let groups = |docker: &str| format!("root:x:0:\nold:x:1000:\ndev:x:1001:\ndocker:x:1002:{docker}\n");
    dir.write("etc/group", groups("old").as_str());
    let found = run_in(&dir, "compare --root ROOT");
    assert_eq!(found.code, 0, "{}{}", found.out, found.err);
    // A user who was there before, and would have been added.
    dir.write("etc/group", groups("").as_str());
    let found = run_in(&dir, "compare --root ROOT");
    assert!(found.code == 1 && found.out.contains("      + docker:x:1002:old\n"), "{}", found.out);
}
