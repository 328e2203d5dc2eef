//! Targets for whole stages: all documents of a machine provision a root in a folder, and the stages of the real root go on from what
//! an earlier one left there.

use super::{ROOT, files_in, in_tree, text};
use prepivot::base::testing::TempDir;
use prepivot::document::{json, yaml};
use prepivot::machine::Machine;
use prepivot::root::{Root, Stage, Use};
use prepivot::stage::{self, Options, local};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What a root is recognised by as a distribution with a network stack, besides [`ROOT`]; all of it is executable.
const STACKS: [&[(&str, &[u8])]; 7] = [
    &[("usr/sbin/netplan", b"")],
    &[("usr/bin/systemctl", b""), ("usr/lib/systemd/systemd-networkd", b"")],
    &[("usr/bin/nmcli", b""), ("etc/runlevels/default/NetworkManager", b"")],
    &[
        ("etc/os-release", b"ID=opensuse-leap\n"),
        ("usr/sbin/ifup", b""),
        ("usr/sbin/ifdown", b""),
        ("etc/sysconfig/network/config", b""),
    ],
    &[
        ("usr/sbin/ifquery", b""),
        ("usr/sbin/ifup", b""),
        ("usr/sbin/ifdown", b""),
        ("etc/network/interfaces", b"source /etc/network/interfaces.d/*\n"),
    ],
    &[
        ("etc/os-release", b"ID=fedora\n"),
        ("usr/sbin/ifup", b""),
        ("usr/sbin/ifdown", b""),
        ("etc/sysconfig/network-scripts/network-functions", b""),
    ],
    &[],
];

/// Documents of a seed, or files of a config drive, each after a line `@@ seed/NAME`, and files of the root, each after a line
/// `@@ PATH`. A first byte chooses the root's network stack. Nothing outside of the root changes, no file of a change that was not
/// finished is left, the accounts that were there stay, and a second run ends as the first.
pub fn provision(data: &[u8]) {
    let Some((stack, rest)) = data.split_first() else { return };
    let all = text(rest);
    let mut files = ROOT.to_vec();
    let stack = STACKS[usize::from(*stack) % STACKS.len()];
    files.retain(|(path, _)| !stack.iter().any(|(own, _)| own == path));
    files.extend(stack);
    files_in(&all, &mut files);
    let seed: Vec<_> =
        files.iter().filter_map(|(path, content)| Some((path.strip_prefix("seed/")?, *content))).collect();
    files.retain(|(path, _)| !path.starts_with("seed/"));
    in_tree(&files, |root| {
        allow(root, stack);
        in_tree(&seed, |seed| {
            let outside = Outside::beside(root);
            let before = accounts(root);
            let Ok(errors) = local::tree(root, seed) else { return };
            outside.assert_same();
            assert_finished(root);
            let after = accounts(root);
            assert!(before.iter().all(|name| after.contains(name)), "{before:?} {after:?} {errors:?}");
            let again = local::tree(root, seed);
            assert!(again.is_ok(), "{again:?}");
            assert_eq!(accounts(root), after);
            assert_finished(root);
        });
    });
}

/// Makes files executable.
fn allow(root: &Path, files: &[(&str, &[u8])]) {
    for (path, _) in files {
        let _ = fs::set_permissions(root.join(path), PermissionsExt::from_mode(0o755));
    }
}

/// The names in the root's passwd.
fn accounts(root: &Path) -> Vec<String> {
    let passwd = fs::read(root.join("etc/passwd")).unwrap_or_default();
    text(&passwd).lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

/// A folder outside of a root that has links to it.
struct Outside(TempDir);

impl Outside {
    fn beside(root: &Path) -> Outside {
        let folder = TempDir::new("fuzz-outside");
        folder.write("file", "outside");
        for (link, target) in [("link", folder.0.clone()), ("etc/link", folder.0.join("file"))] {
            let _ = symlink(target, root.join(link));
        }
        Outside(folder)
    }

    fn assert_same(&self) {
        let names: Vec<_> =
            fs::read_dir(&self.0.0).expect("the folder").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read(self.0.0.join("file")).expect("the file"), b"outside");
    }
}

/// No journal and no temporary name is left.
fn assert_finished(root: &Path) {
    let names = fs::read_dir(root.join("etc")).into_iter().flatten();
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let left: Vec<_> = names.filter(|name| name.contains(".prepivot-") || name.ends_with(".prepivot")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What the initramfs leaves for the later stages, besides the instance and the configuration.
const LEFT: &[(&str, &[u8])] = &[
    ("var/lib/cloud/data/instance-id", b"i-1\n"),
    ("var/lib/cloud/data/status.json", b"{\"v1\": {\"stage\": null}}"),
    ("usr/bin/apt-get", b""),
    ("usr/bin/systemctl", b""),
    ("usr/sbin/locale-gen", b""),
    ("usr/bin/snap", b""),
    ("etc/os-release", b"ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n"),
];

/// Where the cached instance and the merged configuration are, and the link to the instance's folder.
const INSTANCE: &str = "var/lib/cloud/instances/i-1/datasource.json";
const LINK: [&str; 2] = ["instances/i-1", "var/lib/cloud/instance"];
const CONFIG: &str = "run/cloud-init/combined-cloud-config.json";

/// The cached instance and the merged configuration, in YAML, each after a line `@@ instance` and `@@ config`, and other files that an earlier
/// stage left, each after a line `@@ PATH`: the stages for configuration and the final one, in a root that is not this machine's, so
/// that no command and no request goes out.
pub fn later(data: &[u8]) {
    let all = text(data);
    let (mut given, mut files) = (Vec::new(), [ROOT, LEFT].concat());
    files.sort_by_key(|(path, _)| *path);
    files.dedup_by_key(|(path, _)| *path);
    files_in(&all, &mut given);
    // Of an instance; no configuration has these keys.
    const DEFAULT: &[u8] =
        br#"{"source": "NoCloud", "class": "DataSourceNoCloud", "platform": "nocloud", "instance_id": "i-1"}"#;
    let part = |name: &str| given.iter().find(|(path, _)| *path == name).map_or(DEFAULT, |(_, content)| content);
    // What is no document is left as it is: so is a file that was damaged.
    let config = match yaml::parse("config", &text(part("config"))) {
        Ok(config) => json::to_string(&config).into_bytes(),
        Err(_) => part("config").to_vec(),
    };
    files.extend([(INSTANCE, part("instance")), (CONFIG, &config)]);
    files_in(&all, &mut files);
    files.retain(|(path, _)| !["instance", "config"].contains(path));
    in_tree(&files, |base| {
        allow(base, LEFT);
        let _ = symlink(LINK[0], base.join(LINK[1]));
        let outside = Outside::beside(base);
        for stage in [Stage::Config, Stage::Final] {
            let machine = Machine::read(base);
            let mut root = Root::open(base, Use::Tree).expect("a root");
            stage::run(&mut root, &machine, stage, &Options::default());
            drop(root);
            outside.assert_same();
            assert_finished(base);
        }
    });
}
