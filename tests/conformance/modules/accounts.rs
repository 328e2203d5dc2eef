//! cloud-init's account commands replayed on paper: what useradd, groupadd, usermod, chpasswd and passwd would leave, to
//! be compared with the account files that prepivot wrote itself.

use super::Case;
use prepivot::document::Value;
use prepivot::root::{Root, owner};
use prepivot::system::password;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A user as the commands leave it. None: whatever the system's defaults say.
#[derive(Default)]
struct User {
    uid: Option<String>,
    gecos: Option<String>,
    home: Option<String>,
    shell: Option<String>,
    primary: Option<String>,
    password: Password,
    locked: bool,
    expired: bool,
    inactive: Option<String>,
    expires: Option<String>,
}

#[derive(Default)]
enum Password {
    /// No password was ever set.
    #[default]
    Unset,
    Hash(String),
    Plain(String),
}

#[derive(Default)]
struct Expected {
    users: BTreeMap<String, User>,
    /// Members by group.
    groups: BTreeMap<String, BTreeSet<String>>,
    renamed_homes: BTreeMap<String, String>,
}

/// Users that are there before the case, root among them.
fn users_before(case: &Case) -> Vec<String> {
    let mut users = vec!["root".to_owned()];
    let listed = case.setup.get("users").and_then(Value::as_list).unwrap_or_default();
    users.extend(listed.iter().filter_map(Value::text));
    if case.module != "cc_users_groups" {
        for (argv, data) in case.commands() {
            match argv.first().map(String::as_str) {
                Some("chpasswd") => users.extend(data.lines().filter_map(|l| Some(l.split_once(':')?.0.to_owned()))),
                Some("passwd") => users.extend(argv.last().cloned()),
                _ => {}
            }
        }
    }
    if case.module == "cc_ssh" {
        let files = case.expected.get("files").and_then(Value::as_map).into_iter().flat_map(|m| m.keys());
        users.extend(files.filter_map(|f| Some(f.strip_prefix("/home/")?.split('/').next()?.to_owned())));
    }
    let mut seen = BTreeSet::new();
    users.retain(|u| seen.insert(u.clone()));
    users
}

/// Writes the account files that the case starts from.
pub fn set_up(case: &Case, base: &Path) {
    let (mut passwd, mut group, mut shadow) = (String::new(), String::new(), String::new());
    for (i, user) in users_before(case).iter().enumerate() {
        let (id, home) = if user == "root" { (0, "/root".into()) } else { (999 + i, format!("/home/{user}")) };
        passwd += &format!("{user}:x:{id}:{id}::{home}:/bin/sh\n");
        group += &format!("{user}:x:{id}:\n");
        shadow += &format!("{user}:*:19000:0:99999:7:::\n");
    }
    std::fs::create_dir_all(base.join("etc")).unwrap();
    std::fs::write(base.join("etc/passwd"), passwd).unwrap();
    std::fs::write(base.join("etc/group"), group).unwrap();
    std::fs::write(base.join("etc/shadow"), shadow).unwrap();
    for program in ["usr/bin/ssh-keygen", "usr/sbin/usermod"] {
        let program = base.join(program);
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

fn replay(case: &Case) -> Expected {
    let mut state = Expected::default();
    let shadow = case.setup.at(&["files", "/etc/shadow"]).and_then(Value::as_str).unwrap_or_default();
    for name in users_before(case) {
        let mut user = User { primary: Some(name.clone()), ..User::default() };
        let hash = shadow.lines().find_map(|l| l.strip_prefix(&format!("{name}:"))?.split(':').next());
        user.password = Password::Hash(hash.unwrap_or("*").to_owned());
        state.groups.insert(name.clone(), BTreeSet::new());
        state.users.insert(name, user);
    }
    for (argv, data) in case.commands() {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        match argv.as_slice() {
            ["groupadd" | "addgroup", name] => drop(state.groups.insert((*name).to_owned(), BTreeSet::new())),
            ["usermod", "-a", "-G", group, user] | ["addgroup", user, group] => {
                state.groups.entry((*group).to_owned()).or_default().insert((*user).to_owned());
            }
            ["useradd", name, options @ ..] => state.add(name, options),
            ["chpasswd", ..] => {
                for (name, word) in data.lines().filter_map(|l| l.split_once(':')) {
                    let user = state.users.entry(name.to_owned()).or_default();
                    user.locked = false;
                    user.password =
                        if argv.len() > 1 { Password::Hash(word.to_owned()) } else { Password::Plain(word.to_owned()) };
                }
            }
            ["passwd", "-l", name] => state.users.entry((*name).to_owned()).or_default().locked = true,
            ["passwd", "-u", name] => state.users.entry((*name).to_owned()).or_default().locked = false,
            ["passwd", "-d", name] => {
                state.users.entry((*name).to_owned()).or_default().password = Password::Hash(String::new());
            }
            ["passwd", "--expire", name] => state.users.entry((*name).to_owned()).or_default().expired = true,
            _ => {}
        }
    }
    state
}

impl Expected {
    fn add(&mut self, name: &str, options: &[&str]) {
        let empty = || Some(String::new());
        let mut user = User { gecos: empty(), inactive: empty(), expires: empty(), ..User::default() };
        let mut rest = options.iter();
        let mut own_group = true;
        while let Some(option) = rest.next() {
            let mut value = || rest.next().map(|v| (*v).to_owned());
            match *option {
                "--comment" => user.gecos = value(),
                "--home" => user.home = value(),
                "--gid" => {
                    user.primary = value();
                    // useradd refuses a group that is not there; prepivot makes it.
                    self.groups.entry(user.primary.clone().unwrap_or_default()).or_default();
                }
                "--uid" => user.uid = value(),
                "--shell" => user.shell = value(),
                "--inactive" => user.inactive = value(),
                "--expiredate" => user.expires = value(),
                "--password" => user.password = Password::Hash(value().unwrap_or_default()),
                "--groups" => {
                    for group in value().unwrap_or_default().split(',') {
                        // useradd refuses a group that is not there; prepivot leaves it out.
                        if let Some(members) = self.groups.get_mut(group) {
                            members.insert(name.to_owned());
                        }
                    }
                }
                "--no-user-group" => own_group = false,
                "--selinux-user" => drop(value()),
                _ => {}
            }
        }
        if user.primary.is_none() && own_group {
            user.primary = Some(name.to_owned());
            self.groups.insert(name.to_owned(), BTreeSet::new());
        }
        if let Some(home) = &user.home {
            self.renamed_homes.insert(format!("/home/{name}"), home.clone());
        }
        user.home.get_or_insert(format!("/home/{name}"));
        self.users.insert(name.to_owned(), user);
    }
}

/// Where a path that the recording put below `/home` is, as the commands place the homes.
pub fn real_path(case: &Case, path: &str) -> String {
    for (recorded, real) in replay(case).renamed_homes {
        if let Some(rest) = path.strip_prefix(&recorded)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return format!("{real}{rest}");
        }
    }
    path.to_owned()
}

fn lines(root: &Root, file: &str) -> Vec<Vec<String>> {
    root.text(file).lines().map(|l| l.split(':').map(str::to_owned).collect()).collect()
}

fn line(root: &Root, file: &str, name: &str) -> Option<Vec<String>> {
    lines(root, file).into_iter().find(|l| l[0] == name)
}

/// Whether `path` is some user's home, or above it: useradd makes those.
pub fn is_home(root: &Root, path: &str) -> bool {
    super::is_dir(root, path) && lines(root, "/etc/passwd").iter().any(|l| l[5].starts_with(path))
}

/// Account files and generated host keys.
pub fn is_own(root: &Root, path: &str) -> bool {
    let names = ["passwd", "shadow", "group", "gshadow", "subuid", "subgid"];
    names.iter().any(|n| path == format!("/etc/{n}")) || path.starts_with("/etc/ssh/ssh_host_") || is_home(root, path)
}

/// Compares the account files with what the commands would leave, and the owners of files in homes.
pub fn compare(case: &Case, root: &Root, wrong: &mut Vec<String>) {
    let state = replay(case);
    for (argv, _) in case.commands() {
        let done = || root.commands().iter().any(|c| c.argv == argv);
        if argv.first().is_some_and(|program| program == "snap") && !done() {
            wrong.push(format!("{argv:?} is not run"));
        }
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        if let ["ssh-keygen", "-t", "rsa", ..] = argv.as_slice() {
            // The only key that a program makes, at the end of the final stage.
            let path = "/etc/ssh/ssh_host_rsa_key";
            if !root
                .commands()
                .iter()
                .any(|c| c.argv.first().is_some_and(|p| p == "ssh-keygen") && c.argv.contains(&path.to_owned()))
            {
                wrong.push("no RSA host key is made".into());
            }
        } else if let ["ssh-keygen", "-t", kind @ ("ecdsa" | "ed25519"), ..] = argv.as_slice() {
            let path = format!("/etc/ssh/ssh_host_{kind}_key");
            if !root.text(&path).starts_with("-----BEGIN OPENSSH PRIVATE KEY-----") || !root.is_file(&(path + ".pub")) {
                wrong.push(format!("there is no {kind} host key"));
            }
        }
    }
    let here: BTreeSet<_> = lines(root, "/etc/passwd").into_iter().map(|l| l[0].clone()).collect();
    let expected: BTreeSet<_> = state.users.keys().cloned().collect();
    if here != expected {
        wrong.push(format!("users: expected {expected:?}, found {here:?}"));
        return;
    }
    let groups: BTreeMap<_, BTreeSet<String>> = lines(root, "/etc/group")
        .into_iter()
        .map(|l| (l[0].clone(), l[3].split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect()))
        .collect();
    if groups != state.groups {
        wrong.push(format!("groups: expected {:?}, found {groups:?}", state.groups));
    }
    for (name, user) in &state.users {
        compare_user(root, name, user, wrong);
    }
    for entry in case.expected.get("chown").and_then(Value::as_list).unwrap_or_default() {
        let Some(path) = entry.as_list().and_then(|e| e.first()?.as_str()) else { continue };
        let owner = path.strip_prefix("/home/").and_then(|p| p.split('/').next()).unwrap_or("root");
        let path = real_path(case, path);
        let attr = root.stat(&path).map(|s| (s.attr.uid, s.attr.gid));
        if attr != owner::user_ids(root, owner).map(|i| (i.uid, i.gid)) {
            wrong.push(format!("{path}: expected owner {owner}, found {attr:?}"));
        }
    }
}

fn compare_user(root: &Root, name: &str, user: &User, wrong: &mut Vec<String>) {
    let entry = line(root, "/etc/passwd", name).unwrap();
    let mut differ = |what: &str, expected: &Option<String>, found: &str| {
        if expected.as_deref().is_some_and(|e| e != found) {
            wrong.push(format!("{name}: expected {what} {expected:?}, found {found:?}"));
        }
    };
    differ("uid", &user.uid, &entry[2]);
    differ("gecos", &user.gecos, &entry[4]);
    differ("home", &user.home, &entry[5]);
    differ("shell", &user.shell, &entry[6]);
    let group = lines(root, "/etc/group").into_iter().find(|g| g[2] == entry[3]).map(|g| g[0].clone());
    differ("primary group", &user.primary, group.as_deref().unwrap_or(&entry[3]));
    let Some(shadow) = line(root, "/etc/shadow", name) else {
        if name != "root" {
            wrong.push(format!("{name} is not in /etc/shadow"));
        }
        return;
    };
    differ("inactive", &user.inactive, &shadow[6]);
    let days = user.expires.as_deref().map(|d| if d.is_empty() { String::new() } else { days(d).to_string() });
    differ("expiry", &days, &shadow[7]);
    if user.expired != (shadow[2] == "0") {
        wrong.push(format!("{name}: expected expired {}, found last change {:?}", user.expired, shadow[2]));
    }
    let (locked, hash) = match shadow[1].strip_prefix('!') {
        Some(hash) => (true, hash),
        None => (false, shadow[1].as_str()),
    };
    let same = match &user.password {
        Password::Unset => locked && hash.is_empty(),
        Password::Hash(expected) => locked == user.locked && hash == expected,
        // cloud-init takes a hash of yescrypt for a plain password; it is a hash.
        Password::Plain(word) if password::is_hash(word) => locked == user.locked && hash == word,
        Password::Plain(word) if word == "@RANDOM@" => locked == user.locked && hash.starts_with('$'),
        Password::Plain(word) => locked == user.locked && password::verify(word, hash),
    };
    if !same {
        wrong.push(format!("{name}: the password field is {:?}", shadow[1]));
    }
}

/// Days since 1970 of a date, by counting.
fn days(date: &str) -> i64 {
    let parts: Vec<i64> = date.split('-').map(|p| p.parse().unwrap()).collect();
    let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i64 = (1970..parts[0]).map(|y| if leap(y) { 366 } else { 365 }).sum();
    let months: i64 = (1..parts[1]).map(|m| months[m as usize - 1] + i64::from(m == 2 && leap(parts[0]))).sum();
    years + months + parts[2] - 1
}
