use super::*;
use crate::base::testing::TempDir;
use crate::module::Handler;
use crate::root::{Root, Use};
use crate::system::testing::Inputs;

fn open(usage: Use) -> (TempDir, Root) {
    let dir = TempDir::new("users-groups");
    std::fs::create_dir_all(dir.0.join("etc")).unwrap();
    std::fs::create_dir_all(dir.0.join("home")).unwrap();
    dir.write("etc/fstab", "/dev/vdb1 /home ext4 defaults 0 2\n");
    let mut root = dir.root(usage);
    for (path, text) in [
        ("/etc/passwd", "root:x:0:0::/root:/bin/sh\nold:x:1000:1000::/home/old:/bin/sh\n"),
        ("/etc/shadow", "root:*:1::::::\nold:$6$s$h:1::::::\n"),
        ("/etc/group", "root:x:0:\nold:x:1000:\n"),
    ] {
        root.write(path, text, Attr::root(0o644)).unwrap();
    }
    (dir, root)
}

fn run(root: &mut Root, half: Handler, config: &str) -> Result<()> {
    let mut inputs = Inputs::new("debian", config);
    inputs.instance.public_keys.push("ssh-rsa AAAAcloud".into());
    half(&mut inputs.context(root))
}

fn password(root: &Root, user: &str) -> String {
    let shadow = root.text("/etc/shadow");
    let line = shadow.lines().find(|l| l.starts_with(&format!("{user}:"))).unwrap();
    line.split(':').nth(1).unwrap().to_owned()
}

#[test]
fn failed_password_leaves_the_account_locked() {
    let (_dir, mut root) = open(Use::Tree);
    let config = "users:\n- {name: a, passwd: 'x:y', lock_passwd: false}\n- {name: b, hashed_passwd: [1], lock_passwd: false}\n\
                  - {name: c, plain_text_passwd: \"p\\nq\", lock_passwd: false}\n- {name: d, lock_passwd: false}\n\
                  - {name: e, passwd: '', lock_passwd: false}\n- {name: f, plain_text_passwd: 12, lock_passwd: false}\n\
                  - {name: g, hashed_passwd: null, lock_passwd: false}\n- {name: old, hashed_passwd: 'a b', lock_passwd: false}\n";
    let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
    for name in ["a", "b", "c", "old"] {
        assert!(error.contains(&format!("user {name}: ")), "{error}");
    }
    assert!(!error.contains("x:y") && !error.contains("a b"), "{error}");
    for name in ["a", "b", "c", "d", "g"] {
        assert_eq!(password(&root, name), "!", "{name}");
    }
    assert_eq!(password(&root, "e"), "", "asked for in so many words");
    assert!(password::verify("12", &password(&root, "f")));
    assert_eq!(password(&root, "old"), "$6$s$h");
}

#[test]
fn one_bad_user_does_not_stop_the_others() {
    let (_dir, mut root) = open(Use::Tree);
    let config = "groups: ['bad group', good]\nusers:\n- {name: 'x:y'}\n- {name: u, uid: 1000}\n- {name: v, homedir: rel}\n\
                  - {name: w, system: true, ssh_authorized_keys: [k]}\n- {name: x, gecos: 'a:b', expiredate: soon, inactive: 5}\n\
                  - {name: y, groups: [good, 'no good'], primary_group: new}\n- {name: good}\n";
    let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
    assert_eq!(error.matches("; ").count() + 1, 8, "{error}");
    let passwd = root.text("/etc/passwd");
    assert!(
        passwd.ends_with(
            "\nx:x:1001:1002::/home/x:/bin/sh\ny:x:1002:1003::/home/y:/bin/sh\ngood:x:1003:1001::/home/good:/bin/sh\n"
        ),
        "{passwd}"
    );
    assert!(root.text("/etc/group").contains("\ngood:x:1001:y\n"));
    assert!(root.text("/etc/shadow").contains("\nx:!:"));
}

#[test]
fn false_is_no_day_of_expiry() {
    let (_dir, mut root) = open(Use::Tree);
    run(&mut root, before_pivot, "users: [{name: u, inactive: false, expiredate: false}]").unwrap();
    let shadow = root.text("/etc/shadow");
    assert!(shadow.lines().any(|line| line.starts_with("u:!:") && line.ends_with(":::")), "{shadow}");
}

#[test]
fn logins_that_are_redirected() {
    let (_dir, mut root) = open(Use::Tree);
    let config = "system_info: {default_user: {name: main}}\nusers: [default, {name: u, ssh_redirect_user: true}]\n";
    run(&mut root, before_pivot, config).unwrap();
    let keys = root.text("/home/u/.ssh/authorized_keys");
    assert!(
        keys.contains("\\\"main\\\" rather than the user \\\"u\\\".") && keys.ends_with(" ssh-rsa AAAAcloud\n"),
        "{keys}"
    );
    for bad in ["ssh_redirect_user: other", "ssh_redirect_user: true, ssh_authorized_keys: [k]"] {
        assert!(run(&mut root, before_pivot, &format!("users: [{{name: bad, {bad}}}]")).is_err());
    }
    assert!(!root.text("/etc/passwd").contains("bad"));
}

#[test]
fn homes_on_an_unmounted_file_system_wait() {
    let (_dir, mut root) = open(Use::NewRoot);
    let config = "users: [{name: u, ssh_authorized_keys: [ssh-rsa AAAAu]}, {name: v, homedir: /srv/v}]\n";
    run(&mut root, before_pivot, config).unwrap();
    assert!(root.text("/etc/passwd").contains("\nu:x:1001:"));
    assert!(!root.exists("/home/u") && root.exists("/srv/v"));
    root.mkdir("/home/u/.ssh", Attr::root(0o700)).unwrap();
    root.write("/home/u/.ssh/authorized_keys", "ssh-rsa AAAAmine\n", Attr::root(0o600)).unwrap();
    run(&mut root, running, config).unwrap();
    assert_eq!(root.text("/home/u/.ssh/authorized_keys"), "ssh-rsa AAAAmine\nssh-rsa AAAAu\n");
    let folders = root.list("/var/lib/cloud/instances");
    assert!(folders.iter().all(|f| root.list(&format!("/var/lib/cloud/instances/{f}")).is_empty()), "{folders:?}");
}

#[test]
fn what_needs_the_running_system_is_a_command() {
    let (_dir, mut root) = open(Use::Tree);
    root.write("/usr/sbin/semanage", "", Attr::root(0o755)).unwrap();
    let config =
        "users: [{name: u, selinux_user: staff_u}, {name: s, snapuser: me@x, known: true}, {name: t, snapuser: -x}]\n";
    run(&mut root, before_pivot, config).unwrap();
    assert!(!root.text("/etc/passwd").contains("\ns:"));
    assert!(run(&mut root, running, config).is_err());
    let found: Vec<String> = root.commands().iter().map(|c| c.argv.join(" ")).collect();
    assert_eq!(found, ["semanage login -a -s staff_u -- u", "snap create-user --sudoer --json --known me@x"]);
}

#[test]
fn sets_selinux_users_only_for_this_instances_users() {
    let config =
        "users: [{name: u, selinux_user: staff_u}, {name: old, selinux_user: staff_u}, {name: v, selinux_user: [1]}]";
    for (programs, expected) in [
        (&["semanage", "usermod"][..], &["semanage login -a -s staff_u -- u"][..]),
        (&["usermod"], &["usermod -Z staff_u -- u"]),
        (&[], &[]),
    ] {
        let (_dir, mut root) = open(Use::Tree);
        for program in programs {
            root.write(&format!("/usr/sbin/{program}"), "", Attr::root(0o755)).unwrap();
        }
        let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
        assert_eq!(error, "user v: selinux_user: expected a string, found a list");
        // As after commands of the user's that changed an account file.
        assert!(run(&mut root, before_pivot, config).is_err());
        for _ in 0..2 {
            let result = run(&mut root, running, config);
            assert!(result.is_ok() || programs.is_empty());
        }
        let found: Vec<String> = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        assert_eq!(found, expected);
    }
    let (_dir, mut root) = open(Use::Tree);
    assert!(run(&mut root, before_pivot, config).is_err());
    let error = run(&mut root, running, config).unwrap_err().to_string();
    assert_eq!(error, "user u: selinux_user is not set: there is neither semanage nor usermod");
}

#[test]
fn groups_by_number_are_those_that_exist() {
    let (_dir, mut root) = open(Use::Tree);
    root.write("/etc/group", "root:x:0:\nsudo:x:27:\nusers:x:100:\nold:x:1000:\n", Attr::root(0o644)).unwrap();
    let config = "users:\n- {name: a, primary_group: 100, groups: ['27', 27, new]}\n- {name: b, primary_group: '100'}\n\
                  - {name: c, groups: [4711, '027']}\n- {name: d, primary_group: 4711}\n";
    let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
    assert_eq!(error, "user d: failed to add the user d: there is no group 4711");
    let passwd = root.text("/etc/passwd");
    assert!(passwd.contains("\na:x:1001:100:") && passwd.contains("\nb:x:1002:100:"), "{passwd}");
    let group = root.text("/etc/group");
    assert!(group.contains("\nsudo:x:27:a,c\n") && group.contains("\nnew:x:1001:a\n"), "{group}");
    assert!(!group.contains("4711"));
}

#[test]
fn alpine_without_shadow_follows_busybox_for_system_users() {
    let config =
        "users: [{name: s, system: true}, {name: t, system: true, shell: /bin/sh, primary_group: g}, {name: u}]";
    let made = |has_useradd: bool| {
        let (_dir, mut root) = open(Use::Tree);
        root.write("/etc/group", "root:x:0:\nold:x:1000:\nnogroup:x:65533:\n", Attr::root(0o644)).unwrap();
        if has_useradd {
            root.write("/usr/sbin/useradd", "", Attr::root(0o755)).unwrap();
        }
        before_pivot(&mut Inputs::new("alpine", config).context(&mut root)).unwrap();
        let fields = |name: &str| {
            let passwd = root.text("/etc/passwd");
            let line = passwd.lines().find(|l| l.starts_with(&format!("{name}:"))).unwrap().to_owned();
            let field = |n| line.split(':').nth(n).unwrap().to_owned();
            (field(3), field(6))
        };
        ["s", "t", "u"].map(fields)
    };
    let [s, t, u] = made(false);
    assert_eq!(s, ("65533".into(), "/bin/false".into()));
    assert_eq!((t.0 != "65533", t.1.as_str(), u.1.as_str()), (true, "/bin/sh", "/bin/sh"));
    let [s, ..] = made(true);
    assert_eq!((s.0 != "65533", s.1.as_str()), (true, "/bin/sh"));
}
