//! `devel` and `schema`.

use super::*;

#[test]
fn a_network_configuration_for_another_stack() {
    let dir = TempDir::new("cli-net-convert");
    dir.write("in.yaml", "network: {version: 2, ethernets: {ens3: {dhcp4: true}}}\n");
    let line = "devel net-convert -p ROOT/in.yaml -k yaml -d ROOT/out/here -D debian -O networkd --debug";
    let done = run_in(&dir, line);
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    let file = dir.0.join("out/here/etc/systemd/network/10-cloud-init-ens3.network");
    assert!(fs::read_to_string(file).unwrap().contains("DHCP=ipv4\n"));
    let plan = run_in(&dir, &line.replace("-O networkd --debug", "-Onetplan -m ens3,52:54:00:00:00:01"));
    assert_eq!(plan.code, 0, "{}", plan.err);
    let meta = fs::metadata(dir.0.join("out/here/etc/netplan/50-cloud-init.yaml")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    // Files that the image shares with the stack are merged, as at boot.
    dir.write("out/here/etc/sysconfig/network", "NETWORKING=no\nNOZEROCONF=yes\n");
    let done = run_in(&dir, &line.replace("-D debian -O networkd --debug", "-D rhel -O sysconfig"));
    assert_eq!(done.code, 0, "{}", done.err);
    let control = fs::read_to_string(dir.0.join("out/here/etc/sysconfig/network")).unwrap();
    assert!(control.ends_with("\nNETWORKING=yes\nNOZEROCONF=yes\n"), "{control}");
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
    dir.write("t", "## template: jinja\n#cloud-config\nhostname: {{ v1.local_hostname }}\n");
    dir.write("plain", "#cloud-config\n");
    let data = "-i ROOT/run/cloud-init/instance-data.json";
    let rendered = run_in(&dir, &format!("devel render {data} ROOT/t"));
    assert_eq!((rendered.code, rendered.out.as_str()), (0, "#cloud-config\nhostname: web\n"), "{}", rendered.err);
    assert_eq!(run_in(&dir, &format!("devel render {data} ROOT/plain")).code, 1);
    assert_eq!(run_in(&dir, "devel render -i ROOT/none.json ROOT/t").code, 1);
    assert_eq!(run_in(&dir, "devel render").code, 2);

    dir.write("s.sh", "#!/bin/sh\n");
    let line = "devel make-mime -a ROOT/plain:cloud-config -a ROOT/s.sh:x-shellscript";
    let made = run_in(&dir, line);
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(
        made.out.starts_with("Content-Type: multipart/mixed; boundary=") && made.out.contains("text/x-shellscript")
    );
    let parts = prepivot::userdata::mime::parse(made.out.as_bytes()).unwrap();
    let contents: Vec<&[u8]> = parts.iter().map(|p| &*p.content).collect();
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
        ("#!/bin/sh\n", 0, "User-data type 'text/x-shellscript' not currently evaluated by cloud-init schema"),
        (
            "#cloud-config\nruncmd: ls\nrun_cmd: []\n",
            1,
            "runcmd: expected a list, found a string, run_cmd: there is no such key",
        ),
        ("#cloud-config\nruncmd: [\n", 1, "not valid YAML at line"),
        ("#cloud-config\n- a\n", 1, "expected a mapping, found a list"),
        (
            "s3cret: []\n",
            1,
            "format-l1.c1: Unrecognized user-data header in ROOT/c. Expected first line to be one of: #!, ## template: jinja, \
             #cloud-boothook, #cloud-config, #cloud-config-archive, #cloud-config-jsonp, #include, #include-once, #part-handler\n",
        ),
        (
            "#cloud-config\nusers: [{name: a, sudoo: s3cret}]\n",
            1,
            "Error: Cloud config schema errors: users.0.sudoo: there is no such key\n",
        ),
        (
            "#cloud-config\nca-certs: {remove_defaults: true}\n",
            0,
            "Cloud config schema deprecations: ca-certs:  Deprecated in version 22.3. Use **ca_certs** instead.\nValid schema",
        ),
        ("#cloud-config\nhostname: a\nhostname: [\n", 1, "Cloud config schema errors: format-l4.c1: "),
        (
            "#cloud-config\n# Cloud-config part ignored SCHEMA_ERROR: p1\n--- {}\n",
            1,
            "errors: format-l2.c1: Ignored invalid user-data: p1\n",
        ),
    ] {
        dir.write("c", text);
        let answer = run_in(&dir, "schema -c ROOT/c");
        assert_eq!(answer.code, code, "{text:?}: {}", answer.err);
        let all = answer.out + &answer.err;
        let said = said.replace("ROOT", dir.0.to_str().unwrap());
        assert!(all.contains(&said) && !all.contains("s3cret"), "{text:?}: {all}");
        assert_eq!(all.contains("Invalid user-data /"), code == 1, "{all}");
        assert_eq!(all.contains("Error: Invalid schema: user-data\n"), code == 1, "{all}");
    }
    dir.write("c", "#cloud-config\nhostname: 3\nca-certs: {trusted: [x]}\n");
    let marked = run_in(&dir, "schema --annotate -c ROOT/c");
    assert_eq!(marked.code, 1);
    assert!(
        marked.out.starts_with("#cloud-config\nhostname: 3\t\t# E1\nca-certs: {trusted: [x]}\t\t# D1\n\n# Errors: ---")
    );
    assert!(marked.err.ends_with(": Error: Invalid schema: user-data\n") && marked.err.lines().count() == 1);
    dir.write("n", "network: {version: 2, ethernets: {a: {dhcp4: true}}}\n");
    assert_eq!(run_in(&dir, "schema -t network-config --config-file ROOT/n").code, 0);
    for (text, said) in [
        ("network: {version: 9}\n", "network.version: expected 2\n"),
        ("{version: 1, config: [{type: physical}]}\n", "config.0: the key name is missing\n"),
        ("version: [\n", "format-l2.c1: "),
    ] {
        dir.write("n", text);
        let answer = run_in(&dir, "schema -t network-config --config-file ROOT/n");
        assert_eq!(answer.code, 1);
        assert!(answer.err.contains(said) && answer.out.contains("Invalid network-config"), "{}", answer.err);
    }
    dir.write("n", "network: {}\n");
    assert!(
        run_in(&dir, "schema -t network-config -c ROOT/n")
            .out
            .contains("Skipping network-config schema validation on empty config.")
    );
    assert_eq!(run_in(&dir, "schema -c ROOT/none").code, 1);
    assert_eq!(run(&["schema"]).code, 1);
    assert_eq!(run(&["schema", "-c", "x", "--system"]).code, 1);
}

#[test]
fn schema_passes_multipart_whatever_its_header() {
    let dir = TempDir::new("cli-schema-mime");
    let parts = "--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--//--\n";
    for (header, what) in [
        ("Content-Type: multipart/mixed; boundary=\"//\"\nMIME-Version: 1.0\n\n", "multipart"),
        ("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n", "multipart"),
        ("mime-version: 1.0\r\ncontent-type: multipart/mixed;\r\n boundary=\"//\"\r\n\r\n", "multipart"),
        ("From x\nSubject: y\nMime-Version: 1.0\nContent-type: multipart/mixed; boundary=//\n\n", "multipart"),
        ("MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n", "MIME"),
    ] {
        let text = format!("{header}{parts}");
        for document in [text.clone().into_bytes(), [text.as_bytes(), b"\xe9"].concat(), gzip(text.as_bytes())] {
            fs::write(dir.0.join("c"), document).unwrap();
            let answer = run_in(&dir, "schema -c ROOT/c");
            let said = format!("User-data type '{what}' not currently evaluated by cloud-init schema\n");
            assert_eq!((answer.code, answer.out.as_str()), (0, said.as_str()), "{header:?}: {}", answer.err);
        }
    }
    // As a boot, which takes neither.
    for header in
        ["Content-Type: multipart/mixed; boundary=//\n\n", "\nMIME-Version: 1.0\nContent-Type: multipart/mixed\n\n"]
    {
        dir.write("c", format!("{header}{parts}"));
        let answer = run_in(&dir, "schema -c ROOT/c");
        assert_eq!(answer.code, 1, "{header:?}: {}", answer.out);
        assert!(answer.err.contains("Unrecognized user-data header"), "{}", answer.err);
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut writer, data).unwrap();
    writer.finish().unwrap()
}

#[test]
fn full_output_is_a_failure() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let answer = answer(Command::new(PROGRAM).arg("features").stdout(full).output().unwrap());
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("failed to write to standard output"), "{}", answer.err);
}

#[test]
fn logs_in_one_file() {
    let dir = TempDir::new("cli-logs");
    for (path, mode) in [
        ("etc/cloud/cloud.cfg", 0o644),
        ("etc/cloud/cloud.cfg.d/90.cfg", 0o600),
        ("etc/cloud/cloud.cfg.d/99-installer.cfg", 0o644),
        ("etc/cloud/templates/hosts.tmpl", 0o644),
        ("var/lib/cloud/instances/i-1/user-data.txt", 0o600),
        ("var/lib/cloud/instances/i-1/scripts/runcmd", 0o700),
        ("var/lib/cloud/data/status.json", 0o644),
        ("run/cloud-init/cloud-id", 0o644),
        ("var/log/cloud-init.log", 0o640),
        ("var/log/cloud-init.log.1", 0o640),
        ("var/log/installer/autoinstall-user-data", 0o644),
    ] {
        dir.write(path, path);
        fs::set_permissions(dir.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("instances/i-1", dir.0.join("var/lib/cloud/instance")).unwrap();
    let names = |line: &str| {
        let answer = run_in(&dir, line);
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert!(answer.err.contains("Wrote /") && answer.out.is_empty(), "{}", answer.err);
        let tar = Command::new("tar").arg("-tzf").arg(dir.0.join("l.tar.gz")).output().unwrap();
        assert!(tar.status.success());
        let text = String::from_utf8(tar.stdout).unwrap();
        let below = |line: &str| {
            assert!(line.starts_with("cloud-init-logs-20"), "{line}");
            line.split_once('/').unwrap().1.to_owned()
        };
        text.lines().map(below).collect::<Vec<_>>()
    };
    let open = [
        "version",
        "var/log/cloud-init.log",
        "var/log/cloud-init.log.1",
        "etc/cloud/cloud.cfg",
        "var/lib/cloud/data/status.json",
        "run/cloud-init/cloud-id",
    ];
    assert_eq!(names("collect-logs --root ROOT -r -t ROOT/l.tar.gz"), open);
    let mut all = names("collect-logs --root ROOT -vv -u --tarfile=ROOT/l.tar.gz");
    all.retain(|name| !open.contains(&name.as_str()));
    let secret = [
        "etc/cloud/cloud.cfg.d/90.cfg",
        "etc/cloud/cloud.cfg.d/99-installer.cfg",
        "var/lib/cloud/instance/user-data.txt",
        "var/log/installer/autoinstall-user-data",
    ];
    assert_eq!(all, secret);
    assert_eq!(fs::metadata(dir.0.join("l.tar.gz")).unwrap().permissions().mode() & 0o777, 0o600);
    let read =
        Command::new("tar").arg("-xOzf").arg(dir.0.join("l.tar.gz")).arg("--wildcards").arg("*/user-data.txt").output();
    assert_eq!(read.unwrap().stdout, b"var/lib/cloud/instances/i-1/user-data.txt");
    assert_eq!(run_in(&dir, "collect-logs --root ROOT -t ROOT/none/l.tar.gz").code, 1);
    assert_eq!(run_in(&dir, "collect-logs --root ROOT/none").code, 1);
}

#[test]
fn where_the_time_went() {
    let dir = TempDir::new("cli-analyze");
    dir.write(
        "log",
        "2026-11-20 10:00:00,123 - prepivot[DEBUG]: start: init-local: provisioning the root\n\
         2026-11-20 10:00:01,000 - prepivot[DEBUG]: start: init-local/config-ntp: running config-ntp\n\
         2026-11-20 10:00:03,250 - prepivot[DEBUG]: finish: init-local/config-ntp: SUCCESS: running config-ntp\n\
         2026-11-20 10:00:03,300 - prepivot[INFO]: other\n\
         2026-11-20 10:00:03,400 - prepivot[DEBUG]: finish: init-local: SUCCESS: provisioning the root\n",
    );
    let show = run_in(&dir, "analyze show -i ROOT/log");
    assert_eq!(show.code, 0, "{}", show.err);
    assert!(show.out.contains("Starting stage: init-local\n|`->running config-ntp @00.87700s +02.25000s\nFinished stage: (init-local) 03.27700 seconds\n"));
    let blame = run_in(&dir, "analyze blame -i ROOT/log").out;
    assert_eq!(blame, "-- Boot Record 01 --\n     02.25000s (init-local/config-ntp)\n\n1 boot records analyzed\n");
    assert_eq!(run_in(&dir, "analyze dump -i ROOT/log -o ROOT/json").code, 0);
    assert_eq!(run_in(&dir, "analyze blame -i ROOT/json").out, blame);
    assert!(run_in(&dir, "analyze show --format=%n,%r -i ROOT/log").out.contains("\ninit-local/config-ntp,SUCCESS\n"));
    dir.write("empty", "\n");
    for line in ["analyze show -i ROOT/none", "analyze dump -i ROOT/empty", "analyze blame -i ROOT/log -o ROOT/none/x"]
    {
        assert_eq!(run_in(&dir, line).code, 1, "{line}");
    }
    assert_eq!(run(&["analyze"]).code, 2);
}

#[test]
fn collected_logs_go_to_new_root_only_file() {
    let dir = TempDir::new("cli-collect-link");
    instance_data(&dir);
    dir.write("precious", "precious");
    symlink(dir.0.join("precious"), dir.0.join("link.tar.gz")).unwrap();
    let linked = run_in(&dir, "collect-logs --root ROOT -t ROOT/link.tar.gz");
    assert_eq!((linked.code, fs::read_to_string(dir.0.join("precious")).unwrap().as_str()), (1, "precious"));
    assert!(linked.err.contains("link.tar.gz: expected a regular file or a new name"), "{}", linked.err);

    dir.write("old.tar.gz", "old");
    let old = dir.0.join("old.tar.gz");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o666)).unwrap();
    let mut reader = fs::File::open(&old).unwrap();
    assert_eq!(run_in(&dir, "collect-logs --root ROOT -t ROOT/old.tar.gz").code, 0);
    let meta = fs::metadata(&old).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert!(meta.len() > 100);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "old", "whoever has the old file open reads nothing of the new one");
    let names: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.contains(".tar.gz")).count(), 2, "{names:?}");
}

#[test]
fn what_a_nova_machine_was_given_is_valid() {
    if !is_root() {
        prepivot::base::testing::skip("provisioning a tree gives files away, which needs root");
        return;
    }
    let dir = TempDir::new("cli-schema-nova");
    dir.write("root/etc/os-release", "ID=debian\n");
    dir.write("seed/openstack/latest/meta_data.json", r#"{"uuid": "u-1", "hostname": "web"}"#);
    dir.write("seed/openstack/latest/user_data", "#cloud-config\nhostname: web\n");
    dir.write("seed/openstack/latest/vendor_data.json", r#"{"tenant": {"a": 1}}"#);
    let vendor2 = r##"{"static": {"cloud-init": "#cloud-config\n{}"}, "cloud-init": "#cloud-config\nruncmd: [ls]\n"}"##;
    dir.write("seed/openstack/latest/vendor_data2.json", vendor2);
    assert_eq!(run_in(&dir, "apply --root ROOT/root --seed ROOT/seed").code, 0);
    let answer = run_in(&dir, "schema --system --root ROOT/root");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{}", answer.out);
    assert!(answer.out.contains("  Valid schema user-data\n"), "{}", answer.out);
    let stored = |name: &str| fs::read_to_string(dir.0.join("root/var/lib/cloud/instances/u-1").join(name)).unwrap();
    assert_eq!(stored("vendor-data.txt"), "");
    assert_eq!(stored("vendor-data2.txt"), "#cloud-config\nruncmd: [ls]\n");
    assert_eq!(run_in(&dir, "query vendordata --root ROOT/root").out, "\n");
}

#[test]
fn schema_lists_no_disabled_network() {
    if !is_root() {
        prepivot::base::testing::skip("provisioning a tree gives files away, which needs root");
        return;
    }
    let dir = TempDir::new("cli-schema-no-network");
    dir.write("root/etc/os-release", "ID=debian\n");
    dir.write("root/etc/cloud/cloud.cfg.d/99-network.cfg", "network: {config: disabled}\n");
    dir.write("seed/meta-data", "instance-id: i-1\n");
    dir.write("seed/user-data", "#cloud-config\nhostname: web\n");
    assert_eq!(run_in(&dir, "apply --root ROOT/root --seed ROOT/seed").code, 0);
    let answer = run_in(&dir, "schema --system --root ROOT/root");
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "Valid schema user-data\n", ""));
}

#[test]
fn unknown_seed_layout_error_lists_the_layouts() {
    let dir = TempDir::new("no-layout");
    dir.write("root/etc/os-release", "ID=debian\n");
    dir.write("seed/readme.txt", "not for a machine\n");
    let answer = run_in(&dir, "plan --root ROOT/root --seed ROOT/seed");
    let wanted =
        "/seed is no drive that this build reads: expected the files of MAAS, ConfigDrive, NoCloud, AltCloud, Azure,";
    assert!(answer.code == 1 && answer.err.contains(wanted), "{}", answer.err);
}

/// /etc/dhcp/dhclient-exit-hooks.d/hook-dhclient of Debian 12, whose package is gone.
#[test]
fn dhclient_hook_of_older_versions_does_nothing() {
    let dir = TempDir::new("cli-dhclient-hook");
    let done = called(&dir, "cloud-init", &["dhclient-hook", "up", "eth0"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (0, "", ""));
    assert!(!run(&["--help"]).out.contains("dhclient"));
}
