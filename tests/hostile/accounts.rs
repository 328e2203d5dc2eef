//! Configurations of users, passwords and SSH made of hostile values: no panic, no line in an account file, in sudoers or
//! among authorized keys that was not asked for.

use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::document::{Map, Value};
use prepivot::instance::Instance;
use prepivot::machine::Distro;
use prepivot::module::find;
use prepivot::root::{Attr, Root, Use};
use prepivot::system::ModuleContext;
use std::collections::BTreeSet;

const ROUNDS: u64 = 500;
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nbob:x:1000:1000::/home/bob:/bin/sh\n+nis\n";
const USER_KEYS: &[&str] = &[
    "name",
    "gecos",
    "groups",
    "homedir",
    "inactive",
    "expiredate",
    "lock_passwd",
    "no_create_home",
    "no_log_init",
    "no_user_group",
    "passwd",
    "hashed_passwd",
    "create_groups",
    "primary_group",
    "selinux_user",
    "shell",
    "snapuser",
    "ssh_authorized_keys",
    "ssh_import_id",
    "ssh_redirect_user",
    "sudo",
    "doas",
    "system",
    "uid",
    "ssh-authorized-keys",
    "x",
];
const TOP_KEYS: &[&str] = &[
    "users",
    "user",
    "groups",
    "ssh_keys",
    "ssh_genkeytypes",
    "ssh_deletekeys",
    "disable_root",
    "disable_root_opts",
    "allow_public_ssh_keys",
    "ssh_authorized_keys",
    "chpasswd",
    "password",
    "ssh_pwauth",
    "ssh_publish_hostkeys",
    "system_info",
];
const WORDS: &[&str] = &[
    "",
    "u",
    "bob",
    "root",
    "default",
    "a:b",
    "x:0:0",
    "evil\nevil::0:0::/:/bin/sh",
    "odd\r",
    "\0",
    "..",
    "/",
    "/etc",
    "../../etc/passwd",
    "-rf",
    "%wheel",
    "ALL",
    "ALL=(ALL) ALL",
    "ALL=(ALL) ALL\nevil ALL=(ALL) NOPASSWD:ALL",
    "$(id)",
    "ä",
    "0",
    "-1",
    "4294967295",
    "99999999999999999999",
    "true",
    "no",
    "$6$a$b",
    "$6$a$b:0",
    "$6$a$b\nevil:$6$x$y",
    "RANDOM",
    "permit nopass u",
    "permit nopass u\npermit nopass evil",
    "ssh-rsa AAAAok me",
    "ssh-rsa AAAAok\rssh-rsa AAAAevil",
    "no-pty\u{b}ssh-rsa AAAAevil",
    "2032-09-01",
    "2032-13-99",
    "/bin/sh",
    "/home/x:y",
    "ed25519_private",
    "u:p\nevil",
    "evil:x\u{2028}",
    "a,b , c",
    ",,,",
    "{}",
    "[]",
];

/// splitmix64, so that a failure can be repeated by its round.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn word(&mut self) -> String {
        match self.below(40) {
            0 => "x".repeat(5000),
            1 => format!("{}{}", WORDS[self.below(WORDS.len())], WORDS[self.below(WORDS.len())]),
            _ => WORDS[self.below(WORDS.len())].to_owned(),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 3 { 8 } else { 16 }) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 => Value::Int([0, -1, 5, i64::MAX, i64::MIN, 70000][self.below(6)]),
            3 => Value::Float([0.5, f64::NAN, 1e308][self.below(3)]),
            4 => Value::Bytes(vec![0xff, 0, b'\n'].into()),
            5..=9 => self.word().into(),
            10..=12 => Value::List((0..self.below(4)).map(|_| self.value(depth + 1)).collect()),
            _ => Value::Map(self.map(USER_KEYS, depth + 1)),
        }
    }

    fn map(&mut self, keys: &[&str], depth: usize) -> Map {
        let mut map = Map::new();
        for _ in 0..self.below(8) {
            let key = if self.below(12) == 0 { self.word() } else { keys[self.below(keys.len())].to_owned() };
            let value = self.value(depth);
            map.insert(key, value);
        }
        map
    }

    fn config(&mut self) -> Map {
        let mut config = self.map(TOP_KEYS, 0);
        if self.below(2) == 0 {
            let users = (0..1 + self.below(4)).map(|_| Value::Map(self.map(USER_KEYS, 1))).collect::<Vec<_>>();
            config.insert("users", users);
        }
        if self.below(3) == 0 {
            let mut chpasswd = self.map(&["list", "expire", "users"], 1);
            let users = (0..self.below(3)).map(|_| Value::Map(self.map(&["name", "password", "type"], 2)));
            chpasswd.insert("users", users.collect::<Vec<_>>());
            config.insert("chpasswd", chpasswd);
        }
        config
    }
}

fn start(dir: &TempDir) -> Root {
    let mut root = Root::open(&dir.0, Use::Plan).unwrap();
    let file = |root: &mut Root, path: &str, text: &str, mode| root.write(path, text, Attr::root(mode)).unwrap();
    file(&mut root, "/etc/passwd", PASSWD, 0o644);
    file(&mut root, "/etc/shadow", "root:*:1:0:99999:7:::\nbob:!:1:0:99999:7:::\n", 0o640);
    file(&mut root, "/etc/group", "root:x:0:\nbob:x:1000:\nwheel:x:10:\n", 0o644);
    file(&mut root, "/etc/gshadow", "root:*::\nbob:!::\nwheel:!::\n", 0o640);
    file(&mut root, "/etc/subuid", "", 0o644);
    file(&mut root, "/etc/ssh/sshd_config", "Port 22\n", 0o644);
    root.mkdir("/root", Attr::root(0o700)).unwrap();
    root
}

/// Checks what came of a configuration. Returns how many users, rules of sudo and keys there are.
fn check(root: &Root) -> [usize; 3] {
    let mut rules = 0;
    let mut keys = 0;
    let passwd = root.text("/etc/passwd");
    for line in PASSWD.lines() {
        assert!(passwd.lines().any(|l| l == line), "{line:?} is gone from passwd");
    }
    for (file, fields) in [("passwd", 7), ("shadow", 9), ("group", 4), ("gshadow", 4), ("subuid", 3)] {
        let text = root.text(&format!("/etc/{file}"));
        let lines: Vec<Vec<&str>> =
            text.lines().filter(|l| !l.starts_with('+')).map(|l| l.split(':').collect()).collect();
        for line in &lines {
            assert_eq!(line.len(), fields, "{file}: {line:?}");
            assert!(!line[0].is_empty() && !line[0].contains("evil"), "{file}: {line:?}");
            assert!(line.iter().all(|f| !f.chars().any(char::is_control)), "{file}: {line:?}");
        }
        let names: BTreeSet<_> = lines.iter().map(|l| l[0]).collect();
        assert_eq!(names.len(), lines.len(), "{file}: a name twice");
        if file == "passwd" {
            assert_eq!(lines.iter().filter(|l| l[2] == "0").count(), 1, "only root is 0");
        }
    }
    let users: BTreeSet<&str> = passwd.lines().filter_map(|l| l.split(':').next()).collect();
    for line in root.text("/etc/sudoers.d/90-cloud-init-users").lines() {
        rules += usize::from(!line.is_empty() && !line.starts_with('#'));
        let word = line.split(' ').next().unwrap();
        assert!(
            line.is_empty() || line.starts_with("# ") || (users.contains(word) && word != "ALL"),
            "sudoers: {line:?}"
        );
    }
    for line in root.text("/etc/doas.conf").lines() {
        assert!(line.is_empty() || line.starts_with("# ") || !line.contains("evil"), "doas: {line:?}");
    }
    for change in root.changes() {
        if change.path().ends_with("/authorized_keys") {
            for line in root.text(change.path()).lines() {
                keys += 1;
                assert!(line.contains("ssh-rsa AAAAok") && !line.contains("evil"), "{}: {line:?}", change.path());
            }
        }
    }
    assert!(!root.text("/etc/ssh/sshd_config").contains("evil"));
    [passwd.lines().count() - PASSWD.lines().count(), rules, keys]
}

#[test]
fn hostile_values_make_no_lines() {
    let distros = ["ubuntu", "rhel", "alpine", "gentoo", "unknown"].map(Distro::named);
    let mut made = [0; 3];
    for round in 0..ROUNDS {
        let mut random = Random(round << 20);
        let distro = &distros[random.below(distros.len())];
        let mut config = random.config();
        if !config.contains_key("system_info") {
            config.insert("system_info", distro.default_config().get("system_info").unwrap().clone());
        }
        let config = Value::Map(config);
        let public_keys = (0..random.below(3)).map(|_| random.word()).collect();
        let instance = Instance { public_keys, ..Instance::default() };
        let dir = TempDir::new("hostile-accounts");
        let mut root = start(&dir);
        for name in ["users_groups", "ssh", "set_passwords", "ssh_authkey_fingerprints", "keys_to_console"] {
            let module = find(name).unwrap();
            for half in [module.before_pivot, module.running].into_iter().flatten() {
                let report = Problems::new();
                root.enter(module.stage);
                let mut context = ModuleContext::new(&mut root, &config, &instance, distro, &report);
                if let Err(e) = half(&mut context) {
                    assert!(!e.to_string().contains(char::is_control), "round {round}: {e}");
                }
            }
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&root)));
        let Ok(counts) = result else { panic!("round {round}: {}", prepivot::document::to_yaml(&config)) };
        made.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    // What is harmless is done: there was something to look at.
    assert!(made[0] > 50 && made[1] > 40 && made[2] > 0, "users, rules, keys: {made:?}");
}
