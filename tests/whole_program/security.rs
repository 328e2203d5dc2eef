//! cloud-init's CVEs, one test for each, named by its id; and what prepivot(8), SECURITY, promises, one test for each number.

use crate::lab::Lab;
use crate::may_chown;
use prepivot::base::testing::{TempDir, skip};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Part of each secret that a test gives.
const MARK: &str = "s3cret";
const HASH: &str = "$6$s3cret$s3crets3cret";

impl Lab {
    /// The files that all users may read and that have a mark.
    fn open_with_mark(&self) -> Vec<String> {
        let has = |bytes: &[u8]| bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes());
        let all = self.tree.entries().into_iter();
        all.filter(|(_, entry)| entry.mode & 0o004 != 0 && has(&entry.content)).map(|(path, _)| path).collect()
    }

    fn keys(&self) -> BTreeSet<String> {
        let kinds = ["ed25519", "ecdsa"].map(|kind| self.text(&format!("etc/ssh/ssh_host_{kind}_key")));
        assert!(kinds.iter().all(|key| key.contains("PRIVATE KEY")));
        kinds.into()
    }
}

/// The stage of the initramfs on a root of its own, with a /run of its own: what is shown, and the files of /run with their modes
/// and, of the random passwords, their text. None, counted as skipped, without a mount namespace.
fn boot(user_data: &str) -> Option<(Lab, String)> {
    const SCRIPT: &str = r#"
mount -t tmpfs tmpfs /run || exit 77
[ ! -e /dev/kmsg ] || mount --bind /dev/null /dev/kmsg || exit 77
"$1" apply --root "$2" --framework dracut 2>&1
find /run -type f -printf 'file %m %p\n'
sed 's/^/random /' /run/prepivot/random-passwords
"#;
    let lab = Lab::new("");
    lab.tree.file("etc/cloud/cloud.cfg", "datasource_list: [NoCloud]\n", 0o644);
    lab.tree.file("var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-1\n", 0o644);
    lab.tree.file("var/lib/cloud/seed/nocloud/user-data", user_data, 0o600);
    lab.tree.file("usr/lib/systemd/systemd", "", 0o755);
    let program = env!("CARGO_BIN_EXE_prepivot");
    let output =
        Command::new("unshare").args(["--mount", "sh", "-c", SCRIPT, "sh", program]).arg(lab.tree.path()).output();
    let output = output.inspect_err(|e| skip(format!("unshare: {e}"))).ok()?;
    if output.status.code() == Some(77) || output.stderr.starts_with(b"unshare") {
        skip("needs a mount namespace");
        return None;
    }
    Some((lab, String::from_utf8(output.stdout).unwrap()))
}

const RANDOM: &str = "#cloud-config\nusers: [{name: ada}, {name: bob}, {name: eve}]\n\
    chpasswd: {users: [{name: ada, type: RANDOM}, {name: bob, type: RANDOM}, {name: eve, type: RANDOM}]}\n";

fn random_passwords(shown: &str) -> Vec<&str> {
    shown.lines().filter_map(|line| line.strip_prefix("random ")?.split_once(':').map(|(_, word)| word)).collect()
}

#[test]
fn cve_2018_10896_clones_have_own_host_keys() {
    if !may_chown() {
        return;
    }
    let lab = Lab::new("#cloud-config\n");
    lab.apply();
    let image = lab.keys();
    lab.apply();
    assert_eq!(lab.keys(), image);
    lab.seed("i-2", "", "#cloud-config\n");
    lab.apply();
    assert!(lab.keys().is_disjoint(&image));
}

#[test]
fn cve_2020_8631_random_passwords_cannot_be_foretold() {
    if !may_chown() {
        return;
    }
    let mut all = BTreeSet::new();
    let mut letters = BTreeSet::new();
    for _ in 0..4 {
        let Some((_lab, shown)) = boot(RANDOM) else { return };
        let words = random_passwords(&shown);
        assert_eq!(words.len(), 3, "{shown}");
        letters.extend(words.iter().flat_map(|word| word.chars()));
        all.extend(words.iter().map(|word| word.to_string()));
    }
    assert_eq!(all.len(), 12);
    assert!(letters.len() > 40, "{letters:?}");
}

#[test]
fn cve_2020_8632_random_passwords_are_long() {
    if !may_chown() {
        return;
    }
    let Some((_lab, shown)) = boot(RANDOM) else { return };
    assert_eq!(random_passwords(&shown).iter().map(|word| word.len()).collect::<Vec<_>>(), [20; 3], "{shown}");
}

#[test]
fn cve_2021_3429_logs_have_no_random_passwords() {
    if !may_chown() {
        return;
    }
    let Some((lab, shown)) = boot(RANDOM) else { return };
    let words = random_passwords(&shown);
    assert!(!words.is_empty());
    let said: Vec<&str> = shown.lines().filter(|line| !line.starts_with("random ")).collect();
    assert!(words.iter().all(|word| !said.concat().contains(word)), "{said:?}");
    assert!(shown.contains("file 600 /run/prepivot/random-passwords\n"), "{shown}");
    for (path, entry) in lab.tree.entries() {
        let text = String::from_utf8_lossy(&entry.content).into_owned();
        assert!(words.iter().all(|word| !text.contains(word)), "{path}");
    }
}

#[test]
fn cve_2022_2084_schema_messages_have_no_values() {
    if !may_chown() {
        return;
    }
    let user_data = "#cloud-config\npassword: [s3cret1]\nchpasswd: {users: [{name: a, password: {x: s3cret2}}], list: 7}\n\
        users: [{name: ada, hashed_passwd: [s3cret3], ssh_authorized_keys: {a: s3cret4}}]\n\
        ssh_keys: {rsa_private: [s3cret5]}\nwrite_files: [{path: /a, content: [s3cret6], encoding: s3cret}]\n\
        rh_subscription: {username: a, password: [s3cret7]}\nlandscape: s3cret8\n";
    let lab = Lab::new(user_data);
    let said = lab.apply();
    assert!(said.contains("schema"), "{said}");
    assert!(!said.contains(MARK), "{said}");
    assert!(!lab.text("var/log/cloud-init.log").contains(MARK));
    assert_eq!(lab.open_with_mark(), [""; 0]);
}

#[test]
fn cve_2023_1786_instance_data_shows_no_secrets() {
    if !may_chown() {
        return;
    }
    let lab = Lab::new("");
    lab.seed("i-1", "random_seed: s3cret1\n", "#cloud-config\npassword: s3cret2\nchpasswd: {expire: false}\n");
    lab.dir.write(
        "seed/vendor-data",
        "#cloud-config\nwrite_files: [{path: /etc/v, permissions: '0600', content: s3cret3}]\n",
    );
    lab.apply();
    let mode = |path: &str| fs::metadata(lab.path(path)).unwrap().permissions().mode() & 0o777;
    let [public, sensitive] = ["run/cloud-init/instance-data.json", "run/cloud-init/instance-data-sensitive.json"];
    assert_eq!([mode(public), mode(sensitive)], [0o644, 0o600]);
    assert!(!lab.text(public).contains(MARK) && lab.text(sensitive).contains("s3cret2"));
    assert_eq!(lab.open_with_mark(), [""; 0]);
}

/// Whoever answers at a link-local address becomes root: a service is asked only where a mark or the image's owner names it.
#[test]
fn cve_2024_6174_asks_no_service_without_mark() {
    let lists = [
        "",
        "datasource_list: [OpenStack, Ec2, None]\n",
        "datasource_list: [GCE, OpenStack, Azure, Ec2, CloudStack]\n",
    ];
    for (list, arch) in lists.into_iter().flat_map(|list| ["aarch64", "ppc64le", "x86_64"].map(|arch| (list, arch))) {
        let lab = Lab::new("");
        lab.tree.file("proc/sys/kernel/arch", arch, 0o644);
        lab.tree.file("etc/cloud/cloud.cfg", list, 0o644);
        let output =
            Command::new(env!("CARGO_BIN_EXE_prepivot")).arg("detect").arg("--root").arg(lab.tree.path()).output();
        let output = output.unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arch}, {list}{shown}");
        assert!(shown.contains("datasource_list: []\n"), "{arch}, {list}{shown}");
    }
}

#[test]
fn cve_2024_11584_only_root_writes_hotplug_events() {
    let unit = |name: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("initramfs/units").join(name)).unwrap()
    };
    let socket = unit("cloud-init-hotplugd.socket");
    assert!(socket.contains("\nSocketMode=0600\n") && !socket.contains("SocketUser="), "{socket}");
}

#[test]
fn promise_1_files_with_secrets_are_roots_alone() {
    if !may_chown() {
        return;
    }
    let lab = Lab::new("");
    let user_data = format!(
        "#cloud-config\npassword: s3cret\nusers: [{{name: ada, passwd: '{HASH}'}}]\n\
         write_files: [{{path: /etc/mine, permissions: u=rw, content: s3cret}}]\nruncmd: [[echo, s3cret]]\n"
    );
    lab.seed("i-1", "random_seed: s3cret\n", &user_data);
    lab.dir.write("seed/vendor-data", "#cloud-config\nruncmd: [[echo, s3cret]]\n");
    lab.apply();
    assert_eq!(lab.open_with_mark(), [""; 0]);
    assert_eq!(fs::metadata(lab.path("etc/mine")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn promise_2_messages_have_no_secrets() {
    if !may_chown() {
        return;
    }
    let user_data = format!(
        "#cloud-config\nusers: [{{name: ada, passwd: '{HASH}'}}]\n\
         chpasswd: {{users: [{{name: nobody-here, password: s3cret}}, {{name: ada, password: s3cret, type: text}}]}}\n\
         ssh_keys: {{rsa_private: s3cret, ed25519_private: [s3cret]}}\n\
         phone_home: {{url: 'http://me:s3cret@host/', post: all}}\n"
    );
    let lab = Lab::new(&user_data);
    let said = lab.apply();
    assert!(!said.contains(MARK), "{said}");
    assert!(!lab.text("var/log/cloud-init.log").contains(MARK));
}

#[test]
fn promise_3_no_path_leads_out_of_root() {
    if !may_chown() {
        return;
    }
    let lab = Lab::new(
        "#cloud-config\nwrite_files: [{path: /etc/out/x, content: a}, {path: ../../../../x, content: a}, {path: /etc/link, content: a}]\n\
         users: [{name: ada, homedir: /etc/out/ada}]\n",
    );
    fs::create_dir(lab.dir.0.join("outside")).unwrap();
    symlink(lab.dir.0.join("outside"), lab.path("etc/out")).unwrap();
    symlink(lab.dir.0.join("outside/file"), lab.path("etc/link")).unwrap();
    lab.apply();
    assert_eq!(fs::read_dir(lab.dir.0.join("outside")).unwrap().count(), 0);
    assert!(!lab.dir.0.join("x").exists());
}

#[test]
fn promise_4_one_value_is_one_line() {
    if !may_chown() {
        return;
    }
    let evil = "a\\nevil::0:0::/:/bin/sh";
    let user_data = format!(
        "#cloud-config\nusers: [{{name: \"{evil}\"}}, {{name: ada, gecos: \"{evil}\", shell: \"{evil}\", homedir: \"{evil}\", \
         sudo: \"ALL=(ALL) ALL\\nevil ALL=(ALL) NOPASSWD: ALL\", groups: \"{evil}\"}}]\n\
         manage_etc_hosts: true\nfqdn: \"h\\n10.0.0.1 evil\"\nmounts: [[\"{evil}\", /data]]\n\
         chpasswd: {{users: [{{name: ada, password: \"{evil}\", type: hash}}]}}\nssh_authorized_keys: [\"ssh-ed25519 AAAA\\nevil\"]\n"
    );
    let lab = Lab::new(&user_data);
    lab.seed("i-1", "local-hostname: \"h\\n10.0.0.1 evil\"\n", &user_data);
    lab.apply();
    for (path, entry) in lab.tree.entries().into_iter().filter(|(path, _)| path.starts_with("/etc/")) {
        let text = String::from_utf8_lossy(&entry.content).into_owned();
        let is_evil = |line: &str| line.starts_with("evil") || line.starts_with("10.0.0.1 evil");
        assert!(!text.lines().any(is_evil), "{path}: {text}");
    }
}

#[test]
fn promise_5_only_shadow_has_password_hashes() {
    if !may_chown() {
        return;
    }
    for is_there in [true, false] {
        let lab = Lab::new(format!("#cloud-config\nusers: [{{name: ada, lock_passwd: false, passwd: '{HASH}'}}]\n"));
        if !is_there {
            fs::remove_file(lab.path("etc/shadow")).unwrap();
        }
        lab.apply();
        let has_hash = |path: &str| lab.text(path).contains(HASH);
        assert_eq!([has_hash("etc/passwd"), has_hash("etc/shadow")], [false, true]);
        assert_eq!(fs::metadata(lab.path("etc/shadow")).unwrap().permissions().mode() & 0o007, 0);
    }
}

#[test]
fn promise_6_no_user_data_runs_before_pivot() {
    if !may_chown() {
        return;
    }
    let dir = TempDir::new("not-run");
    let proof = dir.0.join("proof");
    let touch = format!("touch {}", proof.display());
    let user_data = format!(
        "#cloud-config\nbootcmd: [{touch}]\nruncmd: [{touch}]\nrandom_seed: {{command: [sh, -c, '{touch}']}}\n"
    );
    let Some((lab, _)) = boot(&user_data) else { return };
    assert!(lab.path("var/lib/cloud/instance").is_symlink(), "it was provisioned");
    assert!(!proof.exists());
}

#[test]
fn promise_7_no_fifo_or_device_is_opened() {
    if !may_chown() {
        return;
    }
    let lab = Lab::new("#cloud-config\nmanage_etc_hosts: true\nssh_pwauth: true\nusers: [{name: ada}]\n");
    for path in ["etc/hosts", "etc/ssh/sshd_config", "etc/ssl/certs/ca-certificates.crt", "etc/login.defs", "etc/fstab"]
    {
        let path = lab.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).unwrap();
    }
    let started = std::time::Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_prepivot"))
        .args(["apply", "--root"])
        .arg(lab.tree.path())
        .arg("--seed")
        .arg(lab.dir.0.join("seed"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("a FIFO is waited for");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(fs::symlink_metadata(lab.path("etc/hosts")).unwrap().file_type().is_fifo());
    assert!(lab.text("etc/passwd").contains("\nada:"));
}

#[test]
fn each_promise_has_a_test() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(top.join("initramfs/man/prepivot.8.md")).unwrap();
    let chapter = page.split("\n## SECURITY\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let number = |line: &str| line.split_once(". ").and_then(|(number, _)| number.parse::<u32>().ok());
    let promised: Vec<u32> = chapter.lines().filter_map(number).collect();
    let own = include_str!("security.rs");
    let tested = own.lines().filter_map(|line| line.strip_prefix("fn promise_")?.split('_').next()?.parse().ok());
    assert_eq!(promised, tested.collect::<Vec<u32>>());
}
