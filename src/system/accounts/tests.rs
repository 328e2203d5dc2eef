use super::*;
use crate::base::testing::TempDir;
use crate::root::{Attr, Use};
use std::path::Path;
use std::process::Command;

const FILES: &[(&str, &str, u32)] = &[
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nold:x:1003:1003::/home/old:/bin/sh\n+nis::::::\n",
        0o644,
    ),
    ("shadow", "root:*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nold:$6$s$h:19000:0:99999:7:::\n", 0o640),
    ("group", "root:x:0:\nsudo:x:27:old\nusers:x:100:\nold:x:1003:\nstaff:x:1005:\n", 0o644),
    ("gshadow", "root:*::\nsudo:*::old\nusers:*::\nold:!::\nstaff:!::\n", 0o640),
    ("subuid", "old:100000:65536\n", 0o644),
    ("subgid", "old:100000:65536\n", 0o644),
    (
        "login.defs",
        "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nSYS_UID_MIN 201\nSYS_UID_MAX 999\nSYS_GID_MIN 201\n\
         SYS_GID_MAX 999\nPASS_MAX_DAYS 99999\nPASS_MIN_DAYS 0\nPASS_WARN_AGE 7\nUSERGROUPS_ENAB yes\nUMASK 022\n\
         HOME_MODE 0700\nENCRYPT_METHOD SHA512\nSUB_UID_MIN 100000\nSUB_UID_MAX 600100000\nSUB_UID_COUNT 65536\n\
         SUB_GID_MIN 100000\nSUB_GID_MAX 600100000\nSUB_GID_COUNT 65536\n",
        0o644,
    ),
    ("default/useradd", "SHELL=/bin/sh\nINACTIVE=-1\n", 0o644),
    ("skel/.profile", "# profile\n", 0o644),
    ("skel/.config/x/run", "#!/bin/sh\n", 0o755),
];

fn tree(name: &str) -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new(name);
    for (path, text, mode) in FILES {
        let path = dir.0.join("etc").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(*mode)).unwrap();
    }
    std::fs::create_dir_all(dir.0.join("home")).unwrap();
    dir
}

/// A user by options of useradd, added by prepivot.
fn add(accounts: &mut Accounts, root: &mut Root, line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let value = |option: &str| words.iter().position(|w| *w == option).map(|at| words[at + 1]);
    let groups: Vec<String> = value("-G").into_iter().flat_map(|g| g.split(',')).map(str::to_owned).collect();
    let has = |option| words.contains(&option);
    let new = NewUser {
        name: words[0],
        uid: value("-u").map(|u| u.parse().unwrap()),
        gecos: value("-c"),
        home: value("-d"),
        shell: value("-s"),
        primary_group: value("-g"),
        groups: &groups,
        user_group: !has("-N"),
        system: has("-r"),
        password: value("-p"),
        inactive: value("-f").map(|f| f.parse().unwrap()),
        expires: value("-e").map(|e| days_of(e).unwrap()),
    };
    let added = accounts.add_user(root, &new, &Problems::new());
    if let (Ok(user), true) = (&added, has("-m")) {
        accounts.make_home(root, user, &Problems::new()).unwrap();
    }
    added.is_ok()
}

/// Paths below a folder with mode, owner and content.
fn listing(base: &Path, at: &Path, out: &mut Vec<String>) {
    use std::os::unix::fs::MetadataExt;
    let mut entries: Vec<_> = std::fs::read_dir(at).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() { std::fs::read_to_string(&path).unwrap() } else { String::new() };
        let name = path.strip_prefix(base).unwrap().display();
        out.push(format!("{name} {:o} {}:{} {content:?}", meta.mode(), meta.uid(), meta.gid()));
        if meta.is_dir() {
            listing(base, &path, out);
        }
    }
}

#[test]
fn the_shadow_suite_leaves_the_same_files() {
    let root_user = rustix::process::geteuid().is_root();
    if !root_user || !Path::new("/usr/sbin/useradd").exists() || !Path::new("/etc/debian_version").exists() {
        crate::base::testing::skip("needs root and Debian's useradd");
        return;
    }
    let commands = [
        "u1 -m",
        "u2 -m -N",
        "svc -r -M",
        "svc2 -r -M -e 2032-09-01 -f 5",
        "u3 -m -u 4000 -G sudo,users,sudo -e 2032-09-01 -f 5 -c Foo,,, -s /bin/zsh -d /srv/foo",
        "u4 -m -p $6$s$h",
        "u5 -m -g users",
        "u6 -m -u 100",
        "A.b -M",
        "u7 -M -u 1000",
        "u8 -M -u 59999",
        "u9 -M -u 60000",
        "u10 -M",
        "u11 -M -g nosuchgroup",
        "u12 -M -u 70000",
        "u1 -M",
    ];
    let (theirs, ours) = (tree("useradd"), tree("prepivot-useradd"));
    let mut root = ours.root(Use::Tree);
    let mut accounts = Accounts::open(&root).unwrap();
    std::fs::create_dir_all(theirs.0.join("srv")).unwrap();
    // useradd copies folders by way of /proc, which a bare tree lacks.
    for dir in [&theirs, &ours] {
        std::fs::remove_dir_all(dir.0.join("etc/skel/.config")).unwrap();
    }
    for command in commands {
        let done = Command::new("useradd").arg("-R").arg(&theirs.0).args(command.split(' ')).output().unwrap();
        assert_eq!(add(&mut accounts, &mut root, command), done.status.success(), "{command}: {done:?}");
    }
    for (group, system) in [("g1", false), ("g2", true), ("sudo", false)] {
        let option = if system { &["-r"][..] } else { &[] };
        let done = Command::new("groupadd").arg("-R").arg(&theirs.0).args(option).arg(group).output().unwrap();
        assert_eq!(accounts.add_group(group, system).is_ok(), done.status.success(), "{group}");
    }
    for (program, argument, user) in [
        ("usermod", "-aG", "u1"),
        ("passwd", "-l", "u4"),
        ("passwd", "-l", "u1"),
        ("passwd", "--expire", "u5"),
        ("passwd", "-u", "u4"),
    ] {
        let mut command = Command::new(program);
        command.arg("-R").arg(&theirs.0).arg(argument);
        if program == "usermod" {
            command.arg("g1");
        }
        let done = command.arg(user).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        match argument {
            "-aG" => accounts.add_member("g1", user).unwrap(),
            "-l" => accounts.lock(user).unwrap(),
            "-u" => accounts.unlock(user).unwrap(),
            _ => accounts.expire(user).unwrap(),
        }
    }
    accounts.save(&mut root, &Problems::new()).unwrap();
    assert_eq!(root.commit(), []);
    let mut lists = [Vec::new(), Vec::new()];
    for (dir, list) in [&theirs, &ours].iter().zip(&mut lists) {
        listing(&dir.0, &dir.0, list);
        // The suite's own backups and lock file are not account files.
        list.retain(|l| !l.starts_with("etc/.pwd.lock") && !l.split(' ').next().unwrap().ends_with('-'));
    }
    let [theirs, ours] = lists;
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    assert_eq!(theirs.len(), ours.len());
}

#[test]
fn shadow_keeps_owner_mode_and_passwords_form() {
    let dir = tree("accounts-shadow");
    let mut root = dir.root(Use::Tree);
    let attr = Attr { mode: 0o640, uid: 0, gid: 42 };
    root.set_attr("/etc/shadow", attr).unwrap();
    let mut accounts = Accounts::open(&root).unwrap();
    accounts.set_password("old", "$y$j9T$salt$hash").unwrap();
    accounts.lock("old").unwrap();
    accounts.lock("old").unwrap();
    assert!(accounts.set_password("old", "a:b").is_err());
    assert!(accounts.set_password("old", "a\nroot::0").is_err());
    assert!(accounts.set_password("nobody-here", "x").is_err());
    accounts.save(&mut root, &Problems::new()).unwrap();
    assert_eq!(root.stat("/etc/shadow").unwrap().attr, attr);
    assert!(root.text("/etc/shadow").contains("\nold:!$y$j9T$salt$hash:"));
}

#[test]
fn passwords_take_bounded_time() {
    let dir = tree("passwords");
    let accounts = Accounts::open(&dir.root(Use::Plan)).unwrap();
    budget::begin();
    budget::round(budget::ROUNDS - 2 * USUAL_ROUNDS as usize).unwrap();
    assert!(accounts.hash("a").is_ok() && accounts.hash("b").is_ok());
    let error = accounts.hash("SECRET").unwrap_err().to_string();
    assert!(error.contains("at most 1,000") && !error.contains("SECRET"), "{error}");
}

#[test]
fn modules_share_the_time_for_passwords() {
    let dir = tree("passwords-of-two");
    let mut root = dir.root(Use::Plan);
    budget::begin();
    for is_left in [true, true, false] {
        let accounts = Accounts::open(&root).unwrap();
        assert_eq!(accounts.hash("a").is_ok(), is_left);
        let _ = budget::round(budget::ROUNDS / 2 - USUAL_ROUNDS as usize);
        accounts.save(&mut root, &Problems::new()).unwrap();
    }
}

/// A root with one user in passwd, and a new one with a password; the report of adding it.
fn with_new_user(root: &mut Root, group: &str) -> Problems {
    let passwd = "root::0:0::/root:/bin/sh\nold:$6$o$h:7:7::/:/bin/sh\n";
    root.write("/etc/passwd", passwd, Attr::root(0o644)).unwrap();
    root.write("/etc/group", group, Attr::root(0o644)).unwrap();
    let report = Problems::new();
    let mut accounts = Accounts::open(root).unwrap();
    let new = NewUser { name: "u", user_group: true, password: Some("$6$n$h"), ..NewUser::default() };
    accounts.add_user(root, &new, &report).unwrap();
    for (user, hash) in [("u", "$6$s$h"), ("root", "$6$r$h")] {
        if let Err(e) = accounts.set_password(user, hash) {
            report.error(e);
        }
    }
    accounts.save(root, &report).unwrap();
    report
}

#[test]
fn creates_shadow_if_it_is_absent() {
    for (group, attr) in
        [("shadow:x:42:\n", Attr { mode: 0o640, uid: 0, gid: 42 }), ("users:x:100:\n", Attr::root(0o600))]
    {
        let dir = TempDir::new("accounts-no-shadow");
        let mut root = dir.root(Use::Tree);
        assert_eq!(with_new_user(&mut root, group).errors(), [""; 0]);
        let passwd = "root:x:0:0::/root:/bin/sh\nold:$6$o$h:7:7::/:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n";
        assert_eq!(root.text("/etc/passwd"), passwd);
        let shadow = root.text("/etc/shadow");
        let hashes: Vec<_> = shadow.lines().map(|l| l.split(':').take(2).collect::<Vec<_>>()).collect();
        assert_eq!(hashes, [["u", "$6$s$h"], ["root", "$6$r$h"]]);
        assert_eq!(root.stat("/etc/shadow").unwrap().attr, attr);
        assert!(!root.exists("/etc/gshadow") && !root.exists("/home/u"));
    }
}

#[test]
fn sets_no_password_if_shadow_is_no_file() {
    let make: [fn(&Path); 3] = [
        |path| std::fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("nothing-here", path).unwrap(),
        |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap(),
    ];
    for make in make {
        let dir = TempDir::new("accounts-odd-shadow");
        std::fs::create_dir(dir.0.join("etc")).unwrap();
        make(&dir.0.join("etc/shadow"));
        let mut root = dir.root(Use::Tree);
        let errors = with_new_user(&mut root, "users:x:100:\n").errors();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors.iter().all(|e| e.contains("/etc/shadow is not a regular file")), "{errors:?}");
        let passwd = "root::0:0::/root:/bin/sh\nold:$6$o$h:7:7::/:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n";
        assert_eq!(root.text("/etc/passwd"), passwd);
    }
}

#[test]
fn members_of_large_groups_are_added_in_time() {
    let dir = TempDir::new("accounts-members");
    dir.write("etc/group", "g:x:7:a,,a,u1\n");
    let mut root = dir.root(Use::Tree);
    let mut accounts = Accounts::open(&root).unwrap();
    let before = crate::base::testing::cpu_time();
    let names: Vec<String> = (0..100_000).map(|i| format!("u{i}")).collect();
    names.iter().chain(&names[..2]).for_each(|name| accounts.add_member("g", name).unwrap());
    accounts.save(&mut root, &Problems::new()).unwrap();
    assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(10));
    let new: Vec<&str> = names.iter().map(String::as_str).filter(|n| *n != "u1").collect();
    assert_eq!(root.text("/etc/group"), format!("g:x:7:a,,a,u1,{}\n", new.join(",")));
}

#[test]
fn groups_of_the_image_get_members_in_etc() {
    let dir = tree("accounts-altfiles");
    let mut root = dir.root(Use::Tree);
    root.write("/etc/nsswitch.conf", "group: files altfiles\n", Attr::root(0o644)).unwrap();
    root.write("/usr/lib/group", "wheel:x:10:\n", Attr::root(0o644)).unwrap();
    root.write("/usr/lib/passwd", "core:x:1000:1000::/home/core:/bin/sh\n", Attr::root(0o644)).unwrap();
    let mut accounts = Accounts::open(&root).unwrap();
    assert!(accounts.add_group("wheel", false).is_err());
    accounts.add_member("wheel", "core").unwrap();
    accounts.lock("core").unwrap();
    accounts.save(&mut root, &Problems::new()).unwrap();
    assert!(root.text("/etc/group").contains("\nwheel:x:10:core\n"));
}

#[test]
fn homes_come_from_the_skeleton_with_their_owner() {
    let dir = tree("accounts-home");
    let mut root = dir.root(Use::Tree);
    root.append("/etc/default/useradd", b"CREATE_MAIL_SPOOL=yes\n", Attr::root(0o644)).unwrap();
    root.mkdir("/var/spool/mail", Attr::root(0o775)).unwrap();
    root.mkdir("/home/there", Attr::root(0o755)).unwrap();
    assert!(root.commit().is_empty());
    // A home that only a file of this run made is a new one.
    root.write("/home/early/.profile", "mine", Attr::root(0o644)).unwrap();
    let mut accounts = Accounts::open(&root).unwrap();
    for name in ["u", "there", "early"] {
        let new = NewUser { name, user_group: true, ..NewUser::default() };
        let user = accounts.add_user(&root, &new, &Problems::new()).unwrap();
        accounts.make_home(&mut root, &user, &Problems::new()).unwrap();
    }
    let ids = Ids { uid: 1004, gid: 1004 };
    assert_eq!(root.stat("/home/u").unwrap().attr, Attr::owned(0o700, ids));
    assert_eq!(root.stat("/home/u/.config/x/run").unwrap().attr, Attr::owned(0o755, ids));
    assert_eq!(root.stat("/var/spool/mail/u").unwrap().attr, Attr::owned(0o600, ids));
    assert_eq!(root.list("/home/there"), Vec::<String>::new());
    // Every home has all of the skeleton, with its own owner.
    assert_eq!(root.list("/home/early"), root.list("/home/u"));
    let early = root.stat("/home/early").unwrap().attr;
    assert_eq!(root.text("/home/early/.config/x/run"), "#!/bin/sh\n");
    let run = root.stat("/home/early/.config/x/run").unwrap().attr;
    assert_eq!((run.mode, run.uid, run.gid), (0o755, early.uid, early.gid));
    assert_ne!(early.uid, ids.uid);
    assert_eq!(
        (root.stat("/home/early").unwrap().attr.mode, root.text("/home/early/.profile").as_str()),
        (0o700, "mine")
    );
    for home in ["relative", "/a/../../etc", "/a:b", "/a\nb"] {
        let new = NewUser { name: "bad", home: Some(home), ..NewUser::default() };
        assert!(accounts.add_user(&root, &new, &Problems::new()).is_err(), "{home}");
    }
}
