//! Root trees: made as a distribution's minimal image has them, and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
systemd-network:x:998:998:systemd Network Management:/:/usr/sbin/nologin
syslog:x:101:104::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nadm:x:4:syslog\nsudo:x:27:\nwheel:x:10:\nusers:x:100:\nsyslog:x:104:\n\
                     systemd-network:x:998:\nnogroup:x:65534:\n";
const SHADOW: &str = "root:*:19700:0:99999:7:::\ndaemon:*:19700:0:99999:7:::\nsystemd-network:!*:19700::::::\n\
                      syslog:!:19700::::::\nnobody:*:19700:0:99999:7:::\n";
const LOGIN_DEFS: &str = "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUSERGROUPS_ENAB yes\n";
/// What a machine has: two devices, whose names the kernel gave.
const NICS: [(&str, &str); 2] = [("eth0", "fa:16:3e:00:00:01"), ("eth1", "fa:16:3e:00:00:02")];
/// The largest file whose difference is shown line by line, in bytes.
const MAX_TOLD: usize = 4000;

/// A root tree in a temporary folder.
pub struct Tree(PathBuf);

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: char,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// A file's bytes, a link's target.
    pub content: Vec<u8>,
}

impl Tree {
    /// The minimal image of a distribution, below `dir`. `stack` configures its network: networkd, netplan, nm, ifupdown, network-scripts, wicked.
    pub fn new(dir: &Path, distro: &str, stack: &str) -> Tree {
        let tree = Tree(dir.join("root"));
        for folder in ["etc/ssh", "etc/skel", "home", "root", "run", "usr/bin", "usr/sbin", "usr/lib", "var/lib"] {
            fs::create_dir_all(tree.0.join(folder)).unwrap();
        }
        for folder in ["bin", "sbin", "lib"] {
            symlink(format!("usr/{folder}"), tree.0.join(folder)).unwrap();
        }
        let like = if distro == "sles" { "ID_LIKE=suse\n" } else { "" };
        tree.file("usr/lib/os-release", &format!("ID={distro}\n{like}VERSION_ID=1\n"), 0o644);
        symlink("../usr/lib/os-release", tree.0.join("etc/os-release")).unwrap();
        let text = [
            ("etc/passwd", PASSWD),
            ("etc/group", GROUP),
            ("etc/login.defs", LOGIN_DEFS),
            ("etc/skel/.profile", "# profile\n"),
            ("etc/hosts", "127.0.0.1 localhost\n"),
            ("etc/hostname", "image\n"),
            ("etc/fstab", "UUID=1234 / ext4 defaults 0 1\n"),
            ("etc/ssh/sshd_config", "PasswordAuthentication no\n"),
            ("usr/share/zoneinfo/Europe/Berlin", "TZif"),
        ];
        text.iter().for_each(|(path, content)| tree.file(path, content, 0o644));
        tree.file("etc/shadow", SHADOW, 0o640);
        tree.file("etc/sudoers", "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440);
        ["bash", "sh", "ip", "sudo"].iter().for_each(|name| tree.program(&format!("usr/bin/{name}")));
        if distro != "alpine" {
            tree.program("usr/bin/systemctl");
        }
        tree.stack(stack);
        for (name, mac) in NICS {
            let folder = format!("sys/class/net/{name}");
            fs::create_dir_all(tree.0.join(&folder).join("device")).unwrap();
            for (fact, value) in [("address", mac), ("type", "1"), ("operstate", "down"), ("addr_assign_type", "0")] {
                tree.file(&format!("{folder}/{fact}"), &format!("{value}\n"), 0o644);
            }
        }
        fs::set_permissions(tree.0.join("root"), PermissionsExt::from_mode(0o700)).unwrap();
        tree
    }

    /// The tree that a case starts from.
    pub fn of_case(case: &Path, dir: &Path) -> Tree {
        let text = fs::read_to_string(case.join("case")).expect("a case has a file `case`");
        let value = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{}: the file `case` has no {key}", case.display())).trim()
        };
        assert!(!value("about").is_empty());
        let tree = Tree::new(dir, value("distro"), value("stack"));
        if case.join("root").exists() {
            lay_over(&case.join("root"), &tree.0);
        }
        tree
    }

    fn stack(&self, stack: &str) {
        match stack {
            "networkd" => self.program("usr/lib/systemd/systemd-networkd"),
            "netplan" => self.program("usr/sbin/netplan"),
            "nm" => {
                self.program("usr/bin/nmcli");
                let wants = self.0.join("etc/systemd/system/multi-user.target.wants");
                fs::create_dir_all(&wants).unwrap();
                self.file("usr/lib/systemd/system/NetworkManager.service", "[Service]\n", 0o644);
                symlink("/usr/lib/systemd/system/NetworkManager.service", wants.join("NetworkManager.service"))
                    .unwrap();
            }
            "ifupdown" => {
                ["ifquery", "ifup", "ifdown"].iter().for_each(|p| self.program(&format!("usr/sbin/{p}")));
                let text = "source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n";
                self.file("etc/network/interfaces", text, 0o644);
            }
            "network-scripts" | "wicked" => {
                ["ifup", "ifdown"].iter().for_each(|p| self.program(&format!("usr/sbin/{p}")));
                let file = match stack {
                    "wicked" => "etc/sysconfig/network/config",
                    _ => "etc/sysconfig/network-scripts/network-functions",
                };
                self.file(file, "", 0o644);
            }
            "none" => {}
            other => panic!("there is no stack {other}"),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file of the tree.
    pub fn file(&self, path: &str, content: &str, mode: u32) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn program(&self, path: &str) {
        self.file(path, "", 0o755);
    }

    /// All that is in it, by path.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        let mut found = BTreeMap::new();
        walk(&self.0, "", &mut found);
        found
    }

    /// The inodes of what is there of these: a file that is written again has another.
    pub fn inodes<'p>(&self, paths: impl Iterator<Item = &'p String>) -> BTreeMap<&'p str, u64> {
        let inode = |path: &'p String| Some((path.as_str(), fs::symlink_metadata(self.0.join(&path[1..])).ok()?.ino()));
        paths.filter_map(inode).collect()
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Entry>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        let meta = entry.metadata().unwrap();
        let (kind, content) = if meta.is_dir() {
            walk(&entry.path(), &path, found);
            ('d', Vec::new())
        } else if meta.is_symlink() {
            ('l', fs::read_link(entry.path()).unwrap().to_string_lossy().into_owned().into_bytes())
        } else if meta.is_file() {
            ('f', fs::read(entry.path()).unwrap())
        } else {
            (if meta.file_type().is_fifo() { 'p' } else { 'o' }, Vec::new())
        };
        found.insert(path, Entry { kind, mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid(), content });
    }
}

/// Copies `from` over `to`, links as they are.
fn lay_over(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            fs::create_dir_all(&target).unwrap();
            lay_over(&source, &target);
            continue;
        }
        if target.is_symlink() || target.is_file() {
            fs::remove_file(&target).unwrap();
        }
        if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

/// A path, and what was and is there.
pub type Difference<'a> = (&'a str, Option<&'a Entry>, Option<&'a Entry>);

/// What differs, by path.
pub fn differences<'a>(before: &'a BTreeMap<String, Entry>, after: &'a BTreeMap<String, Entry>) -> Vec<Difference<'a>> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let all = paths.into_iter().map(|path| (path.as_str(), before.get(path), after.get(path)));
    all.filter(|(_, old, new)| old != new).collect()
}

/// Whether the file at `path` holds something random, the day or the process: it is another one each time.
pub fn is_random(path: &str) -> bool {
    path == "/etc/shadow" || path.starts_with("/etc/ssh/ssh_host_") || path.contains("/sem/")
}

/// A text without the hashes of passwords in it, whose salt is random.
pub fn without_hashes(text: &str) -> String {
    let mut parts = text.split("$6$");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += "$6$HASH";
        out += part.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '$'));
    }
    out
}

/// A difference as `expected` has it: what, mode, owner, and the content or, of a file that was there, its new lines.
pub fn describe(path: &str, old: Option<&Entry>, new: Option<&Entry>) -> String {
    let Some(new) = new else { return format!("removed {path}\n") };
    let head = |what: &str| format!("{what} {path} {:04o} {}:{}\n", new.mode, new.uid, new.gid);
    match new.kind {
        'd' => head("folder"),
        'l' => format!("link {path} -> {}\n", String::from_utf8_lossy(&new.content)),
        'f' => {
            let Ok(text) = std::str::from_utf8(&new.content) else {
                return head("file") + &format!("  | {} bytes\n", new.content.len());
            };
            let text = steady(path, text);
            let old = old.filter(|o| o.kind == 'f').map(|o| steady(path, &String::from_utf8_lossy(&o.content)));
            let known: BTreeSet<&str> = old.iter().flat_map(|o| o.lines()).collect();
            let mut out = head(if old.is_some() { "changed" } else { "file" });
            if text.len() > MAX_TOLD {
                return out + &format!("  | {} bytes\n", text.len());
            }
            let lines = text.split_inclusive('\n').filter(|l| !known.contains(l.trim_end_matches('\n')));
            for line in lines {
                out += &format!("  | {}", line);
                if !line.ends_with('\n') {
                    out += "<no newline>\n";
                }
            }
            if let Some(old) = &old {
                let now: BTreeSet<&str> = text.lines().collect();
                old.lines().filter(|l| !now.contains(l)).for_each(|l| out += &format!("  - {l}\n"));
            }
            out
        }
        _ => head("special"),
    }
}

/// The text without what is another each time: keys, salts, days.
fn steady(path: &str, text: &str) -> String {
    if path.starts_with("/etc/ssh/ssh_host_") {
        return match text.split_once(' ') {
            Some((kind, rest)) if path.ends_with(".pub") => {
                format!("{kind} KEY {}", rest.split_once(' ').map_or("", |(_, comment)| comment))
            }
            _ if text.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n") => "PRIVATE KEY\n".into(),
            _ => text.to_owned(),
        };
    }
    if path != "/etc/shadow" {
        return text.to_owned();
    }
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let [_, hash, day, ..] = fields.as_mut_slice() {
            if hash.starts_with("$6$") && hash.len() > 90 {
                *hash = "$6$HASH";
            }
            if day.len() == 5 && *day != "19700" {
                *day = "TODAY";
            }
        }
        fields.join(":") + "\n"
    };
    text.lines().map(line).collect()
}
