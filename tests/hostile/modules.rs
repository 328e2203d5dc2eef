//! Every module with hostile values: no panic, no command that is not in the configuration, and no line of a file that
//! a single value could add.

use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::document::{Map, Value, yaml};
use prepivot::instance::Instance;
use prepivot::machine::Distro;
use prepivot::module::MODULES;
use prepivot::root::{Root, Use};
use prepivot::system::{Device, ModuleContext, Outside, WebRequest};

/// A configuration with every key of the modules.
const CONFIG: &str = r#"
hostname: web1
fqdn: web1.example.com
prefer_fqdn_over_hostname: true
manage_etc_hosts: true
timezone: Europe/Berlin
locale: de_DE.UTF-8
locale_configfile: /etc/default/locale
keyboard: {layout: de, model: pc105, variant: nodeadkeys, options: "compose:rwin"}
ca_certs: {remove_defaults: true, trusted: [CERT]}
manage_resolv_conf: true
resolv_conf: {nameservers: [8.8.8.8], searchdomains: [a.b], domain: d.e, sortlist: [10.0.0.1/255], options: {rotate: true, timeout: 1}}
random_seed: {data: abc, encoding: raw, file: /var/lib/seed, command: [pollinate, -q], command_required: true}
ntp: {enabled: true, ntp_client: chrony, servers: [a], pools: [b], peers: [c], allow: [d], config: {confpath: /etc/x, packages: [y], template: "$servers"}}
apt_pipelining: 3
yum_repos: {repo: {name: n, baseurl: [a, b], enabled: true, gpgkey: k}}
yum_repo_dir: /etc/yum.repos.d
zypper: {repos: [{id: i, name: n, baseurl: b}], config: {download.use_deltarpm: true}}
apk_repos: {alpine_repo: {base_url: u, version: v3.20, community_enabled: true, testing_enabled: true}, local_repo_base_url: l}
rsyslog: {configs: [a, {filename: f, content: c}], remotes: {r: "10.0.0.1:514"}, config_dir: /etc/rsyslog.d, config_filename: x.conf}
runcmd: [ls, [echo, a b]]
bootcmd: [ls, [echo, a b]]
disable_ec2_metadata: true
write_files:
- {path: /w, content: c, owner: "root:root", permissions: '0644', encoding: b64, append: true, defer: false}
- {path: /x, source: {uri: "file:///w", headers: {a: b}}}
mounts: [[vdb1, /data, auto, defaults, 0, 2], ["srv:/x", /n, nfs]]
mount_default_fields: [null, null, auto, "defaults,nofail", "0", "2"]
device_aliases: {a: /dev/vdb1}
swap: {filename: /swap.img, size: 1M, maxsize: 2M}
packages: [git, [vim, 1], {apt: [x], snap: [y]}]
package_update: true
package_upgrade: true
package_reboot_if_required: true
phone_home: {url: "http://x/$INSTANCE_ID", post: all, tries: 3}
final_message: "done $UPTIME"
power_state: {mode: reboot, delay: 5, message: m, timeout: 30, condition: true}
vendor_data: {prefix: [/usr/bin/ltrace]}
users: [default, {name: bob, groups: [g], ssh_authorized_keys: [k], shell: /bin/sh, sudo: s}]
groups: [g, {h: [bob]}]
chpasswd: {users: [{name: bob, password: p, type: text}], expire: false}
ssh_pwauth: true
ssh_keys: {}
disable_root: true
"#;

struct OneDisk;

impl Outside for OneDisk {
    fn device(&self, name: &str) -> Option<Device> {
        (name == "/dev/vdb1").then(|| Device { path: name.to_owned(), content: Some("ext4".into()) })
    }
    fn memory(&self) -> Option<u64> {
        Some(1 << 30)
    }
    fn http(&self, _: &WebRequest, _: u32) -> prepivot::base::error::Result<Vec<u8>> {
        Ok(b"x".to_vec())
    }
}

fn hostile() -> Vec<Value> {
    let texts = [
        "",
        " ",
        "\n",
        "a\nEVIL evil",
        "a\r\nEVIL",
        "\0",
        "../../../etc/shadow",
        "/../..",
        "$(touch /evil)",
        "`x`",
        "'",
        "\"",
        "\\",
        "-o",
        "%n",
        "ü\u{2028}",
        "{{ 7 }}",
        "## template: jinja\n{% for a in range(9) %}{{ a }}",
        "a:b:c",
        ":",
        "=",
        "/",
        "//",
        "LABEL=",
    ];
    let mut values: Vec<Value> = texts.into_iter().map(Value::from).collect();
    values.push(Value::from("x".repeat(100_000)));
    values.extend([
        Value::Null,
        Value::Bool(true),
        Value::Int(i64::MIN),
        Value::Int(-1),
        Value::Float(f64::NAN),
        Value::Float(1e300),
    ]);
    values.push(Value::Bytes(vec![0xff, 0, b'\n'].into()));
    values.push(Value::List(vec![]));
    values.push(Value::List(vec![Value::Null, Value::List(vec![Value::Map(Map::new())])]));
    values.push(Value::Map([("EVIL\nkey", "v")].into_iter().collect()));
    values
}

/// The paths of everything in a document, by steps.
fn places(value: &Value, at: &mut Vec<Step>, all: &mut Vec<Vec<Step>>) {
    if !at.is_empty() {
        all.push(at.clone());
    }
    let children: Vec<(Step, &Value)> = match value {
        Value::List(list) => list.iter().enumerate().map(|(i, v)| (Step::Index(i), v)).collect(),
        Value::Map(map) => map.iter().map(|(k, v)| (Step::Key(k.to_owned()), v)).collect(),
        _ => return,
    };
    for (step, child) in children {
        at.push(step);
        places(child, at, all);
        at.pop();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Index(usize),
    Key(String),
}

fn with(value: &Value, path: &[Step], new: &Value) -> Value {
    let Some((step, rest)) = path.split_first() else { return new.clone() };
    match (value, step) {
        (Value::List(list), Step::Index(at)) => Value::List(
            list.iter().enumerate().map(|(i, v)| if i == *at { with(v, rest, new) } else { v.clone() }).collect(),
        ),
        (Value::Map(map), Step::Key(key)) => {
            Value::Map(map.iter().map(|(k, v)| (k, if k == key { with(v, rest, new) } else { v.clone() })).collect())
        }
        (other, _) => other.clone(),
    }
}

/// Runs the modules that read the key, files first. Files that are read line by line must have no line that begins with EVIL.
/// Returns how many of those have something in them.
fn run(
    config: &Value,
    key: &str,
    instance: &Instance,
    distro: &Distro,
    base: &TempDir,
    what: &dyn std::fmt::Debug,
) -> usize {
    let mut written = 0;
    let mut root = Root::open(&base.0, Use::Plan).unwrap();
    for module in MODULES {
        let reads = module.keys.is_empty() || module.keys.contains(&key) || key == "hostname" || key == "fqdn";
        if !reads || matches!(module.name, "ssh" | "users_groups" | "set_passwords") {
            continue;
        }
        for half in [module.before_pivot, module.running].into_iter().flatten() {
            let report = Problems::new();
            root.enter(module.stage);
            let mut cx =
                ModuleContext { outside: &OneDisk, ..ModuleContext::new(&mut root, config, instance, distro, &report) };
            let _ = half(&mut cx);
        }
    }
    for path in [
        "/etc/fstab",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
        "/etc/default/keyboard",
        "/etc/locale.gen",
        "/etc/apk/repositories",
        "/etc/chrony/chrony.conf",
        "/etc/timezone",
        "/etc/zypp/zypp.conf",
        "/etc/locale.conf",
    ] {
        let text = root.text(path);
        assert!(!text.lines().any(|l| l.trim_start().starts_with("EVIL")), "{what:?}: {path}: {text}");
        written += usize::from(!text.is_empty());
    }
    for name in root.list("/etc/yum.repos.d").into_iter().chain(root.list("/etc/zypp/repos.d")) {
        assert!(name.ends_with(".repo"), "{what:?}: {name}");
    }
    for folder in ["/etc/yum.repos.d", "/etc/zypp/repos.d", "/etc/sudoers.d", "/etc/profile.d"] {
        for name in root.list(folder) {
            let text = root.text(&format!("{folder}/{name}"));
            assert!(!text.lines().any(|l| l.starts_with("EVIL")), "{what:?}: {folder}/{name}: {text}");
            written += 1;
        }
    }
    written
}

#[test]
fn no_value_anywhere_does_harm() {
    let base = TempDir::new("hostile-modules");
    std::fs::create_dir_all(base.0.join("etc")).unwrap();
    std::fs::create_dir_all(base.0.join("usr/share/zoneinfo/Europe")).unwrap();
    std::fs::write(base.0.join("usr/share/zoneinfo/Europe/Berlin"), "TZif").unwrap();
    std::fs::write(base.0.join("etc/fstab"), "LABEL=root / ext4 defaults 0 1\n").unwrap();
    let config = yaml::parse("cloud-config", CONFIG).unwrap();
    let instance = Instance { instance_id: "i-1".into(), ..Instance::default() };
    let mut all = Vec::new();
    places(&config, &mut Vec::new(), &mut all);
    assert!(all.len() > 150);
    let values = hostile();
    let (mut written, mut runs) = (0, 0);
    for (i, path) in all.iter().enumerate() {
        let Some(Step::Key(key)) = path.first() else { continue };
        for (j, value) in values.iter().enumerate() {
            // Each distribution has its turn; what only one of them reads is given to that one.
            let name = match key.as_str() {
                "yum_repos" | "yum_repo_dir" => "rocky",
                "zypper" => "opensuse",
                "apk_repos" => "alpine",
                _ => ["debian", "rocky", "opensuse", "alpine"][(i + j) % 4],
            };
            let config = with(&config, path, value);
            written += run(&config, key, &instance, &Distro::named(name), &base, &(name, path, value));
            runs += 1;
        }
    }
    assert!(written > runs, "{written} files in {runs} runs");
}

#[test]
fn no_name_of_the_source_does_harm() {
    let base = TempDir::new("hostile-names");
    let config = yaml::parse("cloud-config", "manage_etc_hosts: true\n").unwrap();
    for value in hostile().iter().filter_map(Value::as_str) {
        let instance = Instance {
            instance_id: value.to_owned(),
            local_hostname: Some(value.to_owned()),
            device_names: [("ephemeral0", value), ("swap", value)].into_iter().collect(),
            ..Instance::default()
        };
        for name in ["debian", "rocky"] {
            run(&config, "manage_etc_hosts", &instance, &Distro::named(name), &base, &value);
        }
    }
}
