//! Traps in an image or a seed: special files, links out of the root, endless files. The program ends in time, reports
//! them, does the rest, and nothing outside of the root changes.

use crate::lab::Lab;
use crate::{Output, may_chown};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a run may take, on a slow machine and without optimisation.
const LIMIT: Duration = Duration::from_secs(60);
const USER_DATA: &str = "\
#cloud-config
users: [default, {name: bob, ssh_authorized_keys: [ssh-ed25519 AAAA], sudo: \"ALL=(ALL) ALL\"}]
write_files: [{path: /etc/x/y, content: hi}]
mounts: [[\"srv:/x\", /data]]
timezone: Europe/Berlin
manage_etc_hosts: localhost
";

/// A root and a seed, and beside them a folder in which nothing may change.
fn trapped(user_data: impl AsRef<[u8]>) -> Lab {
    let lab = Lab::new(user_data.as_ref());
    lab.seed("i-1", "local-hostname: host1\n", user_data);
    fs::create_dir_all(lab.outside().join("folder")).unwrap();
    fs::write(lab.outside().join("file"), "SENTINEL\n").unwrap();
    lab
}

impl Lab {
    fn outside(&self) -> PathBuf {
        self.dir.0.join("outside")
    }

    /// The path in the tree, with nothing there.
    fn clear(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_symlink() || path.is_file() {
            fs::remove_file(&path).unwrap();
        } else if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        path
    }

    /// Runs a verb within the limit; None where it does not end.
    fn run(&self, verb: &str) -> Option<Output> {
        let out = self.outside().with_extension(verb);
        let file = |kind: &str| fs::File::create(out.with_extension(kind)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_prepivot"))
            .args([verb.as_ref(), "--root".as_ref(), self.tree.path().as_os_str()])
            .args(["--seed".as_ref(), self.seed_folder().as_os_str()])
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                let text =
                    |kind: &str| String::from_utf8_lossy(&fs::read(out.with_extension(kind)).unwrap()).into_owned();
                return Some(Output { code: status.code().unwrap_or(-1), stdout: text("out"), stderr: text("err") });
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Plans and applies. What goes wrong in general is in `wrong`.
    fn go(&self, name: &str, wrong: &mut Vec<String>) -> Output {
        let mut last = Output { code: -1, stdout: String::new(), stderr: String::new() };
        for verb in ["plan", "apply"] {
            let Some(output) = self.run(verb) else {
                wrong.push(format!("{name}: {verb} does not end"));
                continue;
            };
            if output.stderr.contains("panicked") || output.code < 0 || output.code == 101 {
                wrong.push(format!("{name}: {verb} crashes: {}", output.stderr));
            }
            if output.stdout.contains("SENTINEL") {
                wrong.push(format!("{name}: {verb} reads outside of the root"));
            }
            last = output;
        }
        for (path, entry) in self.tree.entries() {
            if entry.kind == 'f' && entry.content.windows(8).any(|bytes| bytes == b"SENTINEL") {
                wrong.push(format!("{name}: what is outside of the root is in {path}"));
            }
        }
        let untouched = fs::read_to_string(self.outside().join("file")).is_ok_and(|t| t == "SENTINEL\n")
            && fs::read_dir(self.outside().join("folder")).is_ok_and(|mut d| d.next().is_none())
            && fs::read_dir(self.outside()).is_ok_and(|d| d.count() == 2);
        if !untouched {
            wrong.push(format!("{name}: something changes outside of the root"));
        }
        last
    }
}

fn special(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
}

#[test]
fn special_files_and_loops_stop_nothing_else() {
    if !may_chown() {
        return;
    }
    let mut wrong = Vec::new();
    let paths = [
        "etc/hostname",
        "etc/hosts",
        "etc/fstab",
        "etc/passwd",
        "etc/shadow",
        "etc/os-release",
        "etc/login.defs",
        "etc/localtime",
        "etc/cloud/cloud.cfg",
        "etc/cloud/cloud.cfg.d/50.cfg",
        "etc/ssh/sshd_config",
        "etc/ssh/ssh_host_ed25519_key",
        "etc/sudoers.d",
        "etc/systemd",
        "sys/class/net/eth0/address",
        "proc/cmdline",
        "run/cloud-init/instance-data-sensitive.json",
        "var/lib/cloud/data/instance-id",
        "var/lib/cloud/instance",
    ];
    for path in paths {
        let written = ["etc/hostname", "etc/fstab", "etc/passwd"].contains(&path);
        for what in ["fifo", "loop", "zero", "folder"].into_iter().take(if written { 4 } else { 2 }) {
            let lab = trapped(USER_DATA);
            let at = lab.clear(path);
            match what {
                "fifo" => special(&at, FileType::Fifo, 0),
                "zero" => special(&at, FileType::CharacterDevice, makedev(1, 5)),
                "folder" => fs::create_dir(&at).unwrap(),
                _ => symlink(at.file_name().unwrap(), &at).unwrap(),
            }
            let name = format!("{what} at {path}");
            let output = lab.go(&name, &mut wrong);
            if path != "etc/hostname" && lab.text("etc/hostname") != "host1\n" {
                wrong.push(format!("{name}: the hostname is not written: {}", output.stderr));
            }
            if !["etc/passwd", "etc/shadow"].contains(&path) && !lab.text("etc/passwd").contains("\nbob:") {
                wrong.push(format!("{name}: no user is made: {}", output.stderr));
            }
            // A write that is not possible is reported.
            if written && (output.code == 0 || output.stderr.is_empty()) {
                wrong.push(format!("{name}: nothing is said"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_link_leads_out_of_the_image() {
    if !may_chown() {
        return;
    }
    let mut wrong = Vec::new();
    let folders = [
        "etc",
        "var",
        "home",
        "root",
        "run",
        "etc/ssh",
        "etc/sudoers.d",
        "etc/systemd/network",
        "var/lib/cloud",
        "etc/skel",
    ];
    let files =
        ["etc/hostname", "etc/passwd", "etc/shadow", "etc/fstab", "etc/hosts", "etc/skel/.profile", "etc/os-release"];
    let all = folders.map(|p| (p, "folder")).into_iter().chain(files.map(|p| (p, "file")));
    for (i, (path, target)) in all.enumerate() {
        // One kind of trap for each path; all three for some.
        for way in ["absolute", "up", "proc"].into_iter().take(if i % 4 == 0 { 3 } else { 1 }) {
            let lab = trapped(USER_DATA);
            let target = lab.outside().join(target);
            let target = match way {
                "absolute" => target,
                "up" => Path::new("../../../../../../..").join(target.strip_prefix("/").unwrap()),
                _ => Path::new("/proc/self/root").join(target.strip_prefix("/").unwrap()),
            };
            symlink(target, lab.clear(path)).unwrap();
            lab.go(&format!("{path}, {way}"), &mut wrong);
        }
    }
    let lab = trapped(
        b"#cloud-config\nwrite_files:\n- {path: /../../../../outside/folder/x, content: x}\n\
          - {path: /x, source: {uri: \"file:///../outside/file\"}}\ntimezone: ../../../../../outside/file\n",
    );
    lab.go("paths with dots", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn provisions_without_var_home_and_with_dangling_state() {
    if !may_chown() {
        return;
    }
    let mut wrong = Vec::new();
    let lab = trapped(USER_DATA);
    lab.clear("var");
    lab.clear("home");
    let output = lab.go("no /var", &mut wrong);
    assert_eq!((output.code, lab.text("etc/hostname").as_str()), (0, "host1\n"), "{}", output.stderr);
    assert!(lab.path("var/lib/cloud/instances/i-1/sem/config_write_files").is_file());
    let lab = trapped(USER_DATA);
    symlink("/persist/cloud", lab.clear("var/lib/cloud")).unwrap();
    let output = lab.go("a state that is elsewhere", &mut wrong);
    assert_eq!((output.code, lab.text("etc/hostname").as_str()), (0, "host1\n"), "{}", output.stderr);
    assert_eq!(lab.text("persist/cloud/data/instance-id"), "i-1\n");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reports_oversized_input_and_does_the_rest() {
    if !may_chown() {
        return;
    }
    let mut wrong = Vec::new();
    let lab = trapped(b"#cloud-config\n# pad\n".repeat(2_000_000));
    let output = lab.go("large user-data", &mut wrong);
    assert!(output.stderr.contains("left out /user-data: 40000000 bytes are more than"), "{}", output.stderr);
    assert_eq!(lab.text("etc/hostname"), "host1\n");

    let keys: String = (0..20_000).map(|i| format!("- ssh-ed25519 AAAA{i}\n")).collect();
    let lab = trapped(format!("#cloud-config\nssh_authorized_keys:\n{keys}"));
    let output = lab.go("many keys", &mut wrong);
    assert_eq!((output.code, lab.text("home/debian/.ssh/authorized_keys").lines().count()), (0, 20_000));

    let lab = trapped(USER_DATA);
    fs::write(lab.seed_folder().join("meta-data"), format!("instance-id: {}\n", "x".repeat(5000))).unwrap();
    let output = lab.go("a long instance-id", &mut wrong);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(lab.text("etc/passwd").contains("\nbob:"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn reports_read_only_root_in_one_line() {
    if !may_chown() {
        return;
    }
    let lab = trapped(USER_DATA);
    let point = lab.outside().with_extension("mount");
    fs::create_dir(&point).unwrap();
    let mount = |options: &str, from: &Path| {
        let output = Command::new("mount").args(["-o", options]).arg(from).arg(&point).output();
        output.is_ok_and(|o| o.status.success())
    };
    if !mount("bind", lab.tree.path()) {
        prepivot::base::testing::skip("no file system can be mounted here");
        return;
    }
    let read_only = mount("remount,bind,ro", lab.tree.path());
    let output = crate::prepivot("apply", &point, &lab.seed_folder(), &[]);
    Command::new("umount").arg(&point).status().unwrap();
    assert!(read_only);
    assert_eq!(output.code, 1);
    let said: Vec<&str> = output.stderr.lines().filter(|l| l.contains("read-only")).collect();
    assert!(matches!(said.as_slice(), [line] if line.contains("mount -o remount,rw")), "{}", output.stderr);
    assert!(!output.stderr.contains("failed to"), "{}", output.stderr);
}
