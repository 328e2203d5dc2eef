//! Modules without tests of their own.

use super::*;
use crate::base::problem::{Problems, Severity};
use crate::document::Value;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::{Root, owner};
use crate::schema;
use crate::system::{Device, Outside, WebRequest};

#[test]
fn the_table_says_what_cloud_inits_says() {
    let names: Vec<&str> = MODULES.iter().map(|m| m.name).collect();
    assert!(names.iter().all(|n| names.iter().filter(|m| m == &n).count() == 1), "{names:?}");
    let Some(tables) = crate::document::testing::vectors("tables.json") else { return };
    let not_linux = ["freebsd", "openbsd", "netbsd", "dragonfly"];
    let mut compared = 0;
    for theirs in tables.get("modules").and_then(Value::as_list).unwrap() {
        let text = |key: &str| theirs.get(key).and_then(Value::as_str).unwrap();
        let list = |key: &str| -> Vec<&str> {
            let list = theirs.get(key).and_then(Value::as_list).unwrap_or_default();
            let mut list: Vec<&str> =
                list.iter().filter_map(Value::as_str).filter(|d| !not_linux.contains(d) && *d != "all").collect();
            list.sort_unstable();
            list
        };
        let sorted = |list: &[&'static str]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        let ours = find(text("module")).unwrap_or_else(|| panic!("{} is not in the table", text("module")));
        assert_eq!(Some(ours.frequency), Frequency::named(text("frequency")), "{}", ours.name);
        assert_eq!(sorted(ours.keys), list("activate_by"), "{}: keys", ours.name);
        assert_eq!(sorted(ours.distros), list("distros"), "{}: distros", ours.name);
        let stages = theirs.get("stage_variants").and_then(Value::as_map).unwrap();
        assert!(stages.is_empty() || stages.contains_key(ours.stage.name()), "{}: stage", ours.name);
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
    // Each distribution's default lists are parts of these, in their order.
    let lists = default_lists();
    for (variant, config) in tables.get("default_cfg_per_variant").and_then(Value::as_map).unwrap().iter() {
        for (key, list) in lists.iter() {
            let mut ours = list.as_list().unwrap().iter();
            for name in config.get(key).and_then(Value::as_list).unwrap_or_default() {
                assert!(ours.any(|n| n == name), "{variant}: {key}: {name:?}");
            }
        }
    }
}

#[test]
fn optional_module_names_its_request() {
    let software: Vec<&&Module> = MODULES.iter().filter(|m| m.of_software).collect();
    assert!(software.len() > 20, "{}", software.len());
    let silent: Vec<&str> = software.iter().filter(|m| m.keys.is_empty() && m.idle.is_none()).map(|m| m.name).collect();
    assert_eq!(silent, [""; 0]);
}

#[test]
fn every_module_file_has_documentation_and_schema() {
    let documented: Vec<&str> = MODULES.iter().map(|m| m.name).filter(|n| schema::documentation(n).is_some()).collect();
    assert_eq!(documented, MODULES.iter().map(|m| m.name).collect::<Vec<_>>());
    let of_any: Vec<&str> = MODULES.iter().flat_map(|m| schema::keys(m.name)).collect();
    for module in MODULES {
        let docs = schema::documentation(module.name).unwrap();
        assert!(docs.len() > 40, "{}: {docs}", module.name);
        assert!(module.keys.iter().all(|key| of_any.contains(key)), "{}: {:?}", module.name, module.keys);
        let example = docs.split_once("```yaml\n").and_then(|(_, rest)| rest.strip_suffix("```"));
        assert!(example.is_some() || module.keys.is_empty(), "{}: an example", module.name);
        let Some(example) = example else { continue };
        let Ok(Value::Map(config)) = crate::document::yaml::parse(module.name, example) else { panic!("{example}") };
        assert_eq!(schema::cloud_config(&config), schema::Deviations::default(), "{example}");
        let own = schema::keys(module.name);
        let has_own = config.keys().any(|key| own.contains(&key) || module.keys.contains(&key));
        assert!(has_own || own.is_empty(), "{}: an example of its keys", module.name);
    }
    let Some(tables) = crate::document::testing::vectors("tables.json") else { return };
    for theirs in tables.get("modules").and_then(Value::as_list).unwrap() {
        for key in theirs.get("schema_keys").and_then(Value::as_list).unwrap() {
            assert!(of_any.contains(&key.as_str().unwrap()), "{key:?}");
        }
    }
}

#[test]
fn a_raspberry_pis_desktop_learns_of_its_keyboard() {
    let fixture = Fixture::new("raspberry-pi-os");
    fixture.put("/usr/bin/udevadm", "", 0o755);
    let left = fixture.both("keyboard: {layout: gb}", find("keyboard").unwrap());
    assert!(fixture.text("/etc/default/keyboard").contains("XKBLAYOUT=\"gb\"\n"));
    let commands: Vec<&str> = left.commands.iter().map(String::as_str).collect();
    let expected = [
        "systemctl --no-block restart console-setup",
        "/usr/bin/raspi-config nonint update_labwc_keyboard",
        "/usr/bin/raspi-config nonint update_squeekboard restart",
        "systemctl --no-block restart keyboard-setup",
        "udevadm trigger --subsystem-match=input --action=change",
    ];
    assert_eq!((commands.as_slice(), left.errors.len()), (&expected[..], 0));
}

#[test]
fn sets_locale_from_list_and_earlier_instance() {
    let fixture = Fixture::new("alpine");
    let path = "/etc/profile.d/50-cloud-init-locale.sh";
    for (config, lang) in [("locale: de_DE", "de_DE"), ("{}", "C.UTF-8"), ("locale: no", "C.UTF-8")] {
        fixture.both(config, find("locale").unwrap());
        assert!(fixture.text(path).contains(&format!("LANG={lang}\n")), "{config}: {}", fixture.text(path));
    }
    let fixture = Fixture::new("fedora");
    fixture.put("/etc/locale.conf", "LANG=fi_FI.UTF-8\n", 0o644);
    fixture.put("/etc/own", "LANG=de_DE.UTF-8\n", 0o644);
    fixture.both("locale_configfile: /etc/own", find("locale").unwrap());
    assert_eq!(fixture.text("/etc/own"), "LANG=fi_FI.UTF-8\n", "the system's own is the default");
}

#[test]
fn every_modules_distribution_can_be_a_root() {
    for module in MODULES {
        let names = |name: &&str| !module.distros.contains(&Distro::named(name).name);
        let never: Vec<&str> = module.distros.iter().copied().filter(names).collect();
        assert_eq!(never, [""; 0], "{}", module.name);
    }
}

#[test]
fn container_optimized_os_keeps_its_default_servers() {
    let fixture = Fixture::new("cos");
    let path = "/etc/chrony/chrony.conf";
    fixture.put(path, "own\n", 0o644);
    fixture.put("/usr/sbin/chronyd", "", 0o755);
    let ntp = find("ntp").unwrap();
    let left = fixture.both("ntp: {allow: [192.0.2.0/24]}", ntp);
    assert_eq!((fixture.text(path), left.errors.len()), ("own\n".to_owned(), 0));
    // An empty template is ignored.
    fixture.both("ntp: {servers: [s], config: {template: ''}}", ntp);
    assert!(fixture.text(path).contains("\nserver s iburst\n"), "{}", fixture.text(path));
}

#[test]
fn chef_without_its_server_is_not_installed() {
    let fixture = Fixture::new("debian");
    let left = fixture.both("chef: {validation_name: v, force_install: true}", find("chef").unwrap());
    assert_eq!(
        (left.commands.len(), left.errors.first().map(String::as_str)),
        (0, Some("chef.server_url: it is needed"))
    );
    let left = fixture.both("apt_pipelining: null", find("apt_pipelining").unwrap());
    assert_eq!((left.warnings.len(), left.errors.len()), (0, 0));
}

#[test]
fn chef_takes_no_key_text_for_a_path() {
    let fixture = Fixture::new("debian");
    let key = "-----BEGIN RSA PRIVATE KEY-----\\ngeheim\\n-----END RSA PRIVATE KEY-----\\n";
    for key in [key, "-----BEGIN RSA PRIVATE KEY-----"] {
        let config =
            format!("chef: {{server_url: u, validation_name: v, validation_cert: unused, validation_key: \"{key}\"}}");
        let left = fixture.both(&config, find("chef").unwrap());
        let said = [left.warnings, left.errors].concat().join("\n");
        assert!(
            said.contains("chef.validation_key: expected the path of a file") && !said.contains("geheim"),
            "{said}"
        );
        let names: Vec<_> =
            std::fs::read_dir(&fixture.dir.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with('-')), "{names:?}");
        let client = fixture.text("/etc/chef/client.rb");
        assert!(client.contains("chef_server_url") && !client.contains("validation_key"), "{client}");
        assert!(!fixture.dir.0.join("etc/chef/validation.pem").exists());
    }
}

#[test]
fn names_of_old_are_known() {
    assert_eq!(find("cc_ubuntu-advantage").unwrap().name, "ubuntu_pro");
    assert_eq!(find(" write-files.py").unwrap().name, "write_files");
    assert!(is_removed("cc_migrator") && !is_removed("runcmd") && find("migrator").is_none());
}

/// A root in a folder, an instance, and a machine whose servers answer with what they were asked.
pub(super) struct Fixture {
    pub(super) dir: crate::base::testing::TempDir,
    instance: Instance,
    distro: Distro,
}

struct Echo(std::cell::RefCell<Vec<String>>);

impl Outside for Echo {
    fn device(&self, _: &str) -> Option<Device> {
        None
    }
    fn memory(&self) -> Option<u64> {
        None
    }
    fn http(&self, request: &WebRequest, tries: u32) -> Result<Vec<u8>> {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        self.0.borrow_mut().push(format!("{} {} {tries} {:?} {body}", request.method, request.url, request.headers));
        if request.url.contains("missing") {
            Err(crate::base::error::Error::new("404"))
        } else {
            Ok(b"from the server".to_vec())
        }
    }
}

/// The result of a run.
pub(super) struct Left {
    pub(super) warnings: Vec<String>,
    pub(super) errors: Vec<String>,
    pub(super) commands: Vec<String>,
    requests: Vec<String>,
}

impl Fixture {
    pub(super) fn new(distro: &str) -> Fixture {
        let dir = crate::base::testing::TempDir::new("module");
        let instance = Instance { instance_id: "i-1".into(), ..Instance::default() };
        Fixture { dir, instance, distro: Distro::named(distro) }
    }

    pub(super) fn put(&self, path: &str, text: &str, mode: u32) {
        let path = self.dir.0.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.0.join(path.trim_start_matches('/'))).unwrap_or_default()
    }

    pub(super) fn run(&self, config: &str, handlers: &[Option<Handler>]) -> Left {
        let config = crate::document::yaml::parse("cloud-config", config).unwrap();
        let mut root = Root::open(&self.dir.0, crate::root::Use::Tree).unwrap();
        root.enter(Stage::Final);
        let echo = Echo(Default::default());
        let mut errors = Vec::new();
        let report = Problems::new();
        for handler in handlers.iter().flatten() {
            let mut cx = ModuleContext {
                outside: &echo,
                ..ModuleContext::new(&mut root, &config, &self.instance, &self.distro, &report)
            };
            errors.extend(handler(&mut cx).err().map(|e| e.to_string()));
        }
        errors.extend(report.errors());
        let warnings = report.texts(Severity::Warning);
        let commands = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        assert_eq!(root.commit(), []);
        Left { errors, warnings, commands, requests: echo.0.into_inner() }
    }

    pub(super) fn both(&self, config: &str, module: &Module) -> Left {
        self.run(config, &[module.before_pivot, module.running])
    }
}

#[test]
fn one_bad_entry_does_not_block_others() {
    let fixture = Fixture::new("debian");
    let config = "write_files:\n- {path: /a, content: '1'}\n- {path: /b, content: x, encoding: gzip}\n- 5\n- {content: z}\n\
                  - {path: /c, content: '3', owner: nobody-knows}\n- {path: /d, content: '4', defer: true}\n";
    let left = fixture.run(config, &[write_files::MODULE.before_pivot]);
    assert_eq!(left.errors.len(), 1);
    assert!(
        left.errors[0].starts_with("write_files: entry 5 (/c): the owner \"nobody-knows\" is not known"),
        "{left:?}",
        left = left.errors
    );
    assert_eq!(["/a", "/b", "/c", "/d"].map(|p| fixture.text(p)), ["1", "", "3", ""]);
    fixture.run(config, &[write_files::DEFERRED.running]);
    assert_eq!(fixture.text("/d"), "4");
}

#[test]
fn file_gets_owner_once_the_user_exists() {
    let fixture = Fixture::new("debian");
    let config =
        "{users: [bob], write_files: [{path: /srv/app/x, content: '1', owner: 'bob:bob', permissions: '0640'}]}";
    let left = fixture.run(config, &[write_files::MODULE.before_pivot]);
    assert_eq!((left.errors, fixture.text("/srv/app/x").as_str()), (vec![], "1"));
    fixture.put("/etc/passwd", "bob:x:1234:1235::/home/bob:/bin/sh\n", 0o644);
    fixture.put("/etc/group", "bob:x:1235:\n", 0o644);
    let config = crate::document::yaml::parse("t", config).unwrap();
    let mut root = Root::open(&fixture.dir.0, crate::root::Use::Plan).unwrap();
    let report = Problems::new();
    let mut cx = ModuleContext::new(&mut root, &config, &fixture.instance, &fixture.distro, &report);
    write_files::MODULE.running.unwrap()(&mut cx).unwrap();
    let attr = root.stat("/srv/app/x").unwrap().attr;
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o640, 1234, 1235));
}

#[test]
fn user_owns_only_folders_made_for_its_files() {
    let fixture = Fixture::new("debian");
    fixture.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644);
    fixture.put("/etc/group", "root:x:0:\n", 0o644);
    // As in an image that has nothing there yet.
    let programs = fixture.dir.0.join("usr/local/bin");
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::set_permissions(&programs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = "{users: [bob], write_files: [{path: /srv/shared/run, content: '1'}, {path: /srv/shared/x, owner: bob, content: '1'},\
                  {path: /srv/own/deep/x, owner: bob, content: '1'}, {path: /usr/local/bin/tool, owner: bob, content: '1'}]}";
    let config = crate::document::yaml::parse("t", config).unwrap();
    let mut root = Root::open(&fixture.dir.0, crate::root::Use::Plan).unwrap();
    let before = root.stat("/usr/local/bin").unwrap().attr;
    for (module, mark) in [(&write_files::MODULE, "config_write_files"), (&users_groups::MODULE, "config_users_groups")]
    {
        let report = Problems::new();
        let mut cx = ModuleContext::new(&mut root, &config, &fixture.instance, &fixture.distro, &report);
        module.before_pivot.unwrap()(&mut cx).unwrap();
        crate::instance::state::mark_done(&mut root, &fixture.instance, mark, Frequency::Instance).unwrap();
    }
    let uid = owner::user_ids(&root, "bob").unwrap().uid;
    assert_ne!(uid, 0);
    let owner = |root: &Root, path: &str| root.stat(path).unwrap().attr.uid;
    assert_eq!(["/srv/own", "/srv/own/deep", "/srv/own/deep/x", "/srv/shared/x"].map(|p| owner(&root, p)), [uid; 4]);
    assert_eq!(["/srv", "/srv/shared", "/srv/shared/run"].map(|p| owner(&root, p)), [0; 3]);
    let report = Problems::new();
    let mut cx = ModuleContext::new(&mut root, &config, &fixture.instance, &fixture.distro, &report);
    write_files::MODULE.running.unwrap()(&mut cx).unwrap();
    assert_eq!((owner(&root, "/usr/local/bin/tool"), root.stat("/usr/local/bin").unwrap().attr), (uid, before));
}

#[test]
fn instance_id_injects_no_code_or_lines() {
    let mut fixture = Fixture::new("debian");
    fixture.instance.instance_id = "i\"\n#{system('x')}\n".into();
    fixture.run("chef: {server_url: u, validation_name: v}", &[find("chef").unwrap().before_pivot]);
    assert!(fixture.text("/etc/chef/client.rb").contains("\nnode_name              \"i____system__x____\"\n"));
    let config =
        "puppet: {install: false, start_service: false, conf_file: /puppet.conf, conf: {agent: {certname: '%i.x'}}}";
    fixture.run(config, &[find("puppet").unwrap().running]);
    assert_eq!(fixture.text("/puppet.conf"), "[agent]\ncertname = i\"#{system('x')}.x\n\n");
}

#[test]
fn files_from_a_server_wait_for_the_network() {
    let fixture = Fixture::new("debian");
    let config = "write_files:\n- {path: /a, source: {uri: 'https://x/y', headers: {Authorization: t}}}\n\
                  - {path: /b, source: {uri: 'http://missing/'}, content: fallback}\n- {path: /c, source: {uri: 'http://missing/'}}\n";
    let left = fixture.run(config, &[write_files::MODULE.before_pivot]);
    assert_eq!((left.requests.len(), fixture.text("/a").len()), (0, 0));
    let left = fixture.run(config, &[write_files::MODULE.running]);
    assert_eq!(left.requests[0], r#"GET https://x/y 4 [("Authorization", "t")] "#);
    assert_eq!(["/a", "/b", "/c"].map(|p| fixture.text(p)), ["from the server", "fallback", ""]);
}

#[test]
fn hostname_follows_configuration_until_changed_by_hand() {
    let fixture = Fixture::new("debian");
    let run = |name: &str| {
        let module = &update_hostname::MODULE;
        fixture.run(&format!("hostname: {name}"), &[module.before_pivot]);
        fixture.text("/etc/hostname")
    };
    assert_eq!(run("one"), "one\n");
    assert_eq!(run("two"), "two\n");
    fixture.put("/etc/hostname", "# mine\nmine\n", 0o644);
    assert_eq!(run("three"), "# mine\nmine\n");
}

#[test]
fn follows_a_new_name_on_every_distribution() {
    for distro in ["debian", "ubuntu", "rhel", "fedora", "opensuse", "sles", "arch", "alpine", "gentoo", "photon"] {
        let fixture = Fixture::new(distro);
        fixture.put("/etc/hostname", "one\n", 0o644);
        // Without a line end, as cloud-init writes it on SUSE.
        fixture.put("/var/lib/cloud/data/previous-hostname", "one", 0o644);
        let left = fixture.both("hostname: two", &update_hostname::MODULE);
        let files = ["/etc/hostname", "/var/lib/cloud/data/previous-hostname"].map(|path| fixture.text(path));
        assert_eq!(
            (files, left.commands),
            (["two\n"; 2].map(str::to_owned), vec!["hostname two".to_owned()]),
            "{distro}"
        );
    }
}

#[test]
fn kernel_gets_name_every_boot_without_file() {
    let fixture = Fixture::new("debian");
    for _ in 0..2 {
        let left = fixture.both("{hostname: one, create_hostname_file: false}", &update_hostname::MODULE);
        assert_eq!((left.commands, fixture.text("/etc/hostname")), (vec!["hostname one".to_owned()], String::new()));
    }
}

#[test]
fn makes_a_lone_rsa_key_before_sshd_starts() {
    let made = |kinds: &str, module| {
        let fixture = Fixture::new("debian");
        fixture.put("/usr/bin/ssh-keygen", "", 0o755);
        let left = fixture.both(&format!("ssh_genkeytypes: [{kinds}]"), module);
        left.commands.iter().filter(|c| c.starts_with("ssh-keygen -q -t rsa ")).count()
    };
    let by_ssh = |kinds| made(kinds, &ssh::MODULE);
    assert_eq!((by_ssh("rsa"), by_ssh("rsa, ed25519"), by_ssh("ed25519")), (1, 0, 0));
    // The final stage does not wait for it either.
    for module in MODULES.iter().filter(|m| m.stage == Stage::Final) {
        assert_eq!(made("rsa, ed25519", module), 0, "{}", module.name);
    }
}

#[test]
fn an_upgrade_refreshes_the_snaps_of_ubuntu() {
    for (distro, expected) in [("ubuntu", "snap refresh"), ("debian", "apt-get")] {
        let fixture = Fixture::new(distro);
        fixture.put("/usr/bin/snap", "", 0o755);
        let left = fixture.both("package_upgrade: true", &package_update_upgrade_install::MODULE);
        let last = left.commands.last().unwrap();
        assert!(last.starts_with(expected), "{distro}: {last}");
    }
}

#[test]
fn set_hostname_follows_distribution_once_per_name() {
    let long = "a".repeat(60);
    for (distro, config, expected) in [
        ("rocky", "{fqdn: a.b.c}".to_owned(), "a.b.c\n"),
        ("debian", "{fqdn: a.b.c}".into(), "a\n"),
        ("rocky", "{fqdn: a.b.c, prefer_fqdn_over_hostname: false}".into(), "a\n"),
        ("rocky", format!("{{hostname: h, fqdn: h.{long}.{long}}}"), "h\n"),
        ("debian", "{hostname: \"x\\n127.0.0.1 evil\"}".into(), "x-127\n"),
        ("debian", "{preserve_hostname: true, hostname: h}".into(), ""),
    ] {
        let fixture = Fixture::new(distro);
        fixture.run(&config, &[set_hostname::MODULE.before_pivot]);
        assert_eq!(fixture.text("/etc/hostname"), expected, "{config}");
        fixture.put("/etc/hostname", "changed\n", 0o644);
        fixture.run(&config, &[set_hostname::MODULE.before_pivot]);
        assert_eq!(fixture.text("/etc/hostname"), "changed\n");
    }
}

#[test]
fn packages_are_installed_as_each_distribution_does() {
    let config = "{package_update: true, packages: [git, [vim, '1.0'], {snap: [hello]}, {pear: [x]}]}";
    for (distro, expected) in [
        (
            "debian",
            "apt-get --option=Dpkg::Options::=--force-confold --option=Dpkg::options::=--force-unsafe-io --assume-yes --quiet install git vim=1.0",
        ),
        ("rocky", "yum -t -y install git vim-1.0"),
        ("photon", "tdnf -y install git vim-1.0"),
        ("opensuse", "zypper --non-interactive install --auto-agree-with-licenses git vim-1.0"),
        ("alpine", "apk --quiet add git vim=1.0"),
        ("arch", "pacman -Sy --quiet --noconfirm git vim=1.0"),
    ] {
        let left = Fixture::new(distro).both(config, &package_update_upgrade_install::MODULE);
        assert!(left.commands.iter().any(|c| c == expected), "{:?}", left.commands);
        assert_eq!(left.commands.last().unwrap(), "snap install hello");
        assert_eq!(left.errors, ["packages: entry 4: pear is not this system's package manager"]);
    }
    let fixture = Fixture::new("rocky");
    fixture.put("/usr/bin/dnf", "", 0o755);
    assert_eq!(fixture.both("packages: git", &package_update_upgrade_install::MODULE).commands, ["dnf -y install git"]);
    fixture.put("/run/reboot-needed", "", 0o644);
    let left =
        fixture.both("{packages: [git], package_reboot_if_required: true}", &package_update_upgrade_install::MODULE);
    assert_eq!(left.commands.last().unwrap(), "/sbin/reboot");
}

#[test]
fn scripts_run_in_order_despite_a_failure() {
    let fixture = Fixture::new("debian");
    let folder = "/var/lib/cloud/instances/i-1/scripts";
    for (name, mode) in [("b", 0o700), ("a", 0o755), ("c.txt", 0o644), ("vendor/v", 0o700)] {
        fixture.put(&format!("{folder}/{name}"), "#!/bin/sh\n", mode);
    }
    assert_eq!(fixture.both("{}", &scripts::USER).commands, [format!("{folder}/a"), format!("{folder}/b")]);
    let vendor = fixture.both("vendor_data: {prefix: [ltrace, -f]}", &scripts::VENDOR);
    assert_eq!(vendor.commands, [format!("ltrace -f {folder}/vendor/v")]);
    assert!(fixture.both("{}", &scripts::PER_BOOT).commands.is_empty());
}

#[test]
fn powers_off_as_asked_or_not_at_all() {
    for (distro, config, expected) in [
        ("debian", "{mode: reboot}", "shutdown -r now"),
        ("debian", "{mode: poweroff, delay: '+5', message: bye now}", "shutdown -P +5 bye now"),
        ("debian", "{mode: halt, delay: 30, condition: test -e /x}", "/bin/sh -c test -e /x, shutdown -H +30"),
        ("alpine", "{mode: poweroff, delay: 2}", "poweroff -d 120"),
        ("debian", "{mode: reboot, condition: false}", ""),
        (
            "debian",
            "{mode: explode}",
            "power_state.mode: expected poweroff, reboot or halt, found a string: the machine stays on",
        ),
        (
            "debian",
            "{mode: reboot, delay: soon}",
            "power_state.delay: expected now or a number of minutes: the machine stays on",
        ),
        (
            "debian",
            "{mode: reboot, timeout: x}",
            "power_state.timeout: expected a number of seconds, found a string: the machine stays on",
        ),
    ] {
        let left = Fixture::new(distro).both(&format!("power_state: {config}"), &power_state_change::MODULE);
        assert_eq!([left.commands, left.errors, left.warnings].concat().join(", "), expected);
    }
}

#[test]
fn makes_only_host_keys_the_machine_allows() {
    for (fips, config, kinds) in [
        ("0\n", "{}", ["ecdsa", "ed25519"].as_slice()),
        // As if the key were not there.
        ("0\n", "ssh_keys:", &["ecdsa", "ed25519"]),
        ("1\n", "{}", &["ecdsa"]),
        ("1\n", "ssh_genkeytypes: [ed25519, ecdsa]", &["ecdsa"]),
    ] {
        let fixture = Fixture::new("debian");
        fixture.put("/proc/sys/crypto/fips_enabled", fips, 0o644);
        assert_eq!(fixture.both(config, &ssh::MODULE).errors, [""; 0]);
        let made = |kind: &&str| !fixture.text(&format!("/etc/ssh/ssh_host_{kind}_key")).is_empty();
        assert_eq!(["ecdsa", "ed25519"].into_iter().filter(made).collect::<Vec<_>>(), kinds, "{fips} {config}");
    }
}

#[test]
fn a_plan_sends_nothing_home() {
    let left = Fixture::new("debian").both("phone_home: {url: 'http://x/$INSTANCE_ID/'}", &phone_home::MODULE);
    assert_eq!((left.requests, left.errors), (vec![], vec![]));
}

#[test]
fn home_hears_what_it_asked_for() {
    let fixture = Fixture::new("debian");
    fixture.put("/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 A+b root@x\n", 0o644);
    let config = "{hostname: h, phone_home: {url: 'http://x/$INSTANCE_ID/', tries: '7',\
                  post: [pub_key_ed25519, pub_key_rsa, instance_id, hostname]}}";
    let config = crate::document::yaml::parse("t", config).unwrap();
    let mut root = Root::open(&fixture.dir.0, crate::root::Use::Plan).unwrap();
    let report = Problems::new();
    let mut cx = ModuleContext::new(&mut root, &config, &fixture.instance, &fixture.distro, &report);
    let (request, tries) = phone_home::request(&mut cx).unwrap().unwrap();
    assert_eq!((request.method, request.url.as_str(), tries), ("POST", "http://x/i-1/", 7));
    let form = "pub_key_ed25519=ssh-ed25519+A%2Bb+root%40x%0A&pub_key_rsa=N%2FA&instance_id=i-1&hostname=h";
    assert_eq!(String::from_utf8(request.body).unwrap(), form);
    assert!(root.commands().is_empty());
}

#[test]
fn makes_rsa_key_before_phone_home_posts_it() {
    let fixture = Fixture::new("debian");
    fixture.put("/usr/bin/ssh-keygen", "", 0o755);
    for (post, made) in [("all", true), ("[pub_key_rsa]", true), ("[pub_key_ed25519]", false)] {
        let config = format!("phone_home: {{url: 'http://x/', post: {post}}}");
        let left = fixture.both(&config, &phone_home::MODULE);
        assert_eq!(left.commands.iter().any(|c| c.starts_with("ssh-keygen -q -t rsa ")), made, "{post}");
    }
}

#[test]
fn certificates_of_the_last_instance_go() {
    let fixture = Fixture::new("rocky");
    let folder = "/usr/share/pki/ca-trust-source/anchors";
    for name in ["cloud-init-ca-cert-1.crt", "cloud-init-ca-cert-2.crt", "own.crt"] {
        fixture.put(&format!("{folder}/{name}"), "old", 0o644);
    }
    fixture.both("ca_certs: {trusted: [new]}", &ca_certs::MODULE);
    assert_eq!(["1", "2"].map(|n| fixture.text(&format!("{folder}/cloud-init-ca-cert-{n}.crt"))), ["new", ""]);
    assert_eq!(fixture.text(&format!("{folder}/own.crt")), "old");
}

#[test]
fn bundle_stays_until_it_is_rebuilt() {
    let fixture = Fixture::new("fedora");
    let bundle = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
    fixture.put(bundle, "old", 0o644);
    let config = "ca_certs: {remove_defaults: true, trusted: [new]}";
    fixture.run(config, &[ca_certs::MODULE.before_pivot]);
    assert_eq!(fixture.text(bundle), "old");
    let done = fixture.both(config, &ca_certs::MODULE);
    assert_eq!((done.commands, fixture.text(bundle).as_str()), (vec!["update-ca-trust".to_owned()], ""));
    assert_eq!(fixture.text("/usr/share/pki/ca-trust-source/anchors/cloud-init-ca-cert-1.crt"), "new");
}

#[test]
fn the_end_of_the_boot_leaves_its_mark() {
    let fixture = Fixture::new("debian");
    assert_eq!(fixture.both("final_message: hi", &final_message::MODULE).errors, [""; 0]);
    let mark = fixture.text("/var/lib/cloud/instances/i-1/boot-finished");
    assert!(mark.contains(" +0000 - v. ") && mark.ends_with('\n'), "{mark}");
}
