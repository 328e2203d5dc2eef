//! `prepivot detect`: what is found on a tree, and why.

use prepivot::base::testing::TempDir;
use prepivot::document::{Value, json, yaml};
use std::fs;
use std::path::Path;
use std::process::Command;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn detect(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(super::PROGRAM);
    command.arg("detect").arg("--root").arg(dir).args(arguments).env_remove("SYSTEMD_VIRTUALIZATION");
    let output = command.output().expect("the command runs");
    (output.status.code().expect("an exit code"), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn the_command_says_why() {
    let dir = TempDir::new("detect");
    dir.write("sys/class/dmi/id/product_name", "OpenStack Nova\n");
    dir.write("etc/cloud/cloud.cfg.d/90.cfg", "datasource_list: [NoCloud, OpenStack, Ec2]\n");
    let (code, out) = detect(&dir.0, &["--json"]);
    let value = json::parse("detect", out.as_bytes()).expect("JSON");
    assert_eq!((code, text(&value, "result"), text(&value, "virtualization")), (0, "found", "kvm"));
    assert_eq!(value.get("datasource_list"), Some(&Value::List(vec!["OpenStack".into(), "None".into()])));
    let verdicts = value.get("verdicts").and_then(Value::as_list).expect("verdicts");
    assert_eq!(verdicts.len(), prepivot::source::candidates().len());
    let nova = verdicts.iter().find(|v| text(v, "source") == "OpenStack").expect("OpenStack");
    assert_eq!((text(nova, "verdict"), text(nova, "why")), ("found", "DMI product_name OpenStack Nova"));
    assert_eq!(verdicts.iter().filter(|v| v.get("listed") == Some(&Value::Bool(true))).count(), 3);

    // Over several lines it is ignored, as by ds-identify: the platform is found although the list does not have it.
    dir.write("etc/cloud/cloud.cfg.d/90.cfg", "datasource_list:\n  - NoCloud\n  - Ec2\n");
    let (code, out) = detect(&dir.0, &[]);
    assert_eq!(code, 0);
    assert!(out.contains("datasource_list: [OpenStack, None]\nfound: OpenStack: DMI product_name"), "{out}");

    dir.write("proc/cmdline", "ro ci.di.policy=disabled\n");
    assert_eq!(detect(&dir.0, &[]).0, 1);
    dir.write("proc/cmdline", "ro cloud-init=disabled\n");
    let (code, out) = detect(&dir.0, &[]);
    assert_eq!(code, 2);
    assert!(out.contains("disabled: cloud-init=disabled is on the kernel command line"), "{out}");
    assert_eq!(detect(Path::new("/nonexistent"), &[]).0, 1);
}

#[test]
fn a_tree_has_its_own_block_devices() {
    let dir = TempDir::new("detect-drive");
    // ext2's superblock: its magic number and its label.
    let mut disk = vec![0; 128 << 10];
    disk[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
    disk[1024 + 120..][..8].copy_from_slice(b"config-2");
    dir.write("sys/class/block/vdb/size", "256\n");
    dir.write("sys/class/block/vdb/uevent", "MAJOR=252\nMINOR=16\nDEVNAME=vdb\nDEVTYPE=disk\n");
    fs::create_dir_all(dir.0.join("dev")).expect("a folder");
    fs::write(dir.0.join("dev/vdb"), disk).expect("a device");
    let (code, out) = detect(&dir.0, &["--json"]);
    let value = json::parse("detect", out.as_bytes()).expect("JSON");
    assert_eq!((code, text(&value, "why")), (0, "ConfigDrive: /dev/vdb has the label config-2"));
    let written = yaml::parse("t", "datasource_list: [ ConfigDrive, None ]").expect("YAML");
    assert_eq!(value.get("run_cloud_cfg"), Some(&written));
}

#[test]
fn windows_users_file_suits_release_without_number() {
    let dir = TempDir::new("detect-wsl");
    dir.write("etc/os-release", "ID=debian\nVERSION_CODENAME=\"forky\"\n");
    dir.write("proc/mounts", "C: /mnt/c 9p rw,aname=drvfs;path=C:\\ 0 0\n");
    dir.write("proc/sys/kernel/osrelease", "6.6.87-microsoft-standard-WSL2\n");
    dir.write("mnt/c/Users/me/.cloud-init/debian-forky.user-data", "#cloud-config\n");
    let (code, out) = detect(&dir.0, &["--json"]);
    let value = json::parse("detect", out.as_bytes()).expect("JSON");
    assert_eq!((code, text(&value, "virtualization")), (0, "wsl"), "{out}");
    assert!(text(&value, "why").contains("debian-forky.user-data"), "{out}");
}

#[test]
fn a_hostile_tree_is_no_harm() {
    let dir = TempDir::new("detect-hostile");
    for path in ["sys/class/dmi/id/product_name", "proc/1/environ", "proc/cmdline", "etc/cloud/ds-identify.cfg"] {
        dir.write(path, "\u{0}ds=\u{1}=,;:[\"'\n".repeat(20_000));
    }
    dir.write("etc/cloud/cloud.cfg", "datasource_list: [[a], {b: c}, '', null, 7]\ndatasource: [x]\n");
    dir.write("etc/os-release", "ID=\nVERSION_ID\n");
    let fifo = dir.0.join("sys/class/dmi/id/product_serial");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let (code, out) = detect(&dir.0, &["--json"]);
    assert!((0..=2).contains(&code), "{code} {out}");
    json::parse("detect", out.as_bytes()).expect("JSON");
}
