use super::*;
use crate::base::testing::TempDir;
use crate::document::yaml;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::module::Handler;
use crate::root::{Root, Use};

fn open(usage: Use) -> (TempDir, Root) {
    let dir = TempDir::new("users-groups");
    std::fs::create_dir_all(dir.0.join("etc")).unwrap();
    std::fs::create_dir_all(dir.0.join("home")).unwrap();
    std::fs::write(dir.0.join("etc/fstab"), "/dev/vdb1 /home ext4 defaults 0 2\n").unwrap();
    let mut root = if usage == Use::NewRoot { Root::open_new(&dir.0) } else { Root::open(&dir.0, usage).unwrap() };
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
    let config = yaml::parse("t", config).unwrap();
    half(&mut Context::new(
        root,
        &config,
        &Instance { public_keys: vec!["ssh-rsa AAAAcloud".into()], ..Instance::default() },
        &Distro::named("debian"),
        &mut Report::new(),
    ))
}

fn password(root: &Root, user: &str) -> String {
    let shadow = root.text("/etc/shadow");
    let line = shadow.lines().find(|l| l.starts_with(&format!("{user}:"))).unwrap();
    line.split(':').nth(1).unwrap().to_owned()
}

#[test]
fn a_password_that_cannot_be_set_leaves_the_account_locked() {
    let (_dir, mut root) = open(Use::Tree);
    let config = "users:\n- {name: a, passwd: 'x:y', lock_passwd: false}\n- {name: b, hashed_passwd: [1], lock_passwd: false}\n\
                  - {name: c, plain_text_passwd: \"p\\nq\", lock_passwd: false}\n- {name: d, lock_passwd: false}\n\
                  - {name: e, passwd: '', lock_passwd: false}\n- {name: f, plain_text_passwd: 12, lock_passwd: false}\n\
                  - {name: g, hashed_passwd: null, lock_passwd: false}\n- {name: old, hashed_passwd: 'a b', lock_passwd: false}\n";
    let error = run(&mut root, provision, config).unwrap_err().to_string();
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
    let error = run(&mut root, provision, config).unwrap_err().to_string();
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
fn logins_that_are_redirected() {
    let (_dir, mut root) = open(Use::Tree);
    let config = "system_info: {default_user: {name: main}}\nusers: [default, {name: u, ssh_redirect_user: true}]\n";
    run(&mut root, provision, config).unwrap();
    let keys = root.text("/home/u/.ssh/authorized_keys");
    assert!(
        keys.contains("\\\"main\\\" rather than the user \\\"u\\\".") && keys.ends_with(" ssh-rsa AAAAcloud\n"),
        "{keys}"
    );
    for bad in ["ssh_redirect_user: other", "ssh_redirect_user: true, ssh_authorized_keys: [k]"] {
        assert!(run(&mut root, provision, &format!("users: [{{name: bad, {bad}}}]")).is_err());
    }
    assert!(!root.text("/etc/passwd").contains("bad"));
}

#[test]
fn homes_on_a_file_system_that_is_not_mounted_yet_wait() {
    let (_dir, mut root) = open(Use::NewRoot);
    let config = "users: [{name: u, ssh_authorized_keys: [ssh-rsa AAAAu]}, {name: v, homedir: /srv/v}]\n";
    run(&mut root, provision, config).unwrap();
    assert!(root.text("/etc/passwd").contains("\nu:x:1001:"));
    assert!(!root.exists("/home/u") && root.exists("/srv/v"));
    root.mkdir("/home/u/.ssh", Attr::root(0o700)).unwrap();
    root.write("/home/u/.ssh/authorized_keys", "ssh-rsa AAAAmine\n", Attr::root(0o600)).unwrap();
    run(&mut root, live, config).unwrap();
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
    run(&mut root, provision, config).unwrap();
    assert!(!root.text("/etc/passwd").contains("\ns:"));
    assert!(run(&mut root, live, config).is_err());
    let found: Vec<String> = root.commands().iter().map(|c| c.argv.join(" ")).collect();
    assert_eq!(found, ["semanage login -a -s staff_u -- u", "snap create-user --sudoer --json --known me@x"]);
}
