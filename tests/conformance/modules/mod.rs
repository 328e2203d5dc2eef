//! cloud-init's modules against the conformance vectors' modules.json and modules_more.json: each case sets up a root, runs the
//! module's halves, and compares the files, modes, owners, removals, commands, warnings and errors; in the second also the
//! requests, messages and semaphores.
//!
//! A module joins by being in `prepivot::module::MODULES`.

mod accounts;
mod debian;
mod disks;
mod files;
mod machine;

use crate::cases::{Kind as CaseKind, Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::base::base64;
use prepivot::base::problem::{Problems, Severity};
use prepivot::base::testing::TempDir;
use prepivot::document::{Map, Value};
use prepivot::instance::Instance;
use prepivot::machine::Distro;
use prepivot::module::{self, Module};
use prepivot::root::{Change, FileKind, Root, Use, owner};
use prepivot::system::{ModuleContext, Nothing};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

/// prepivot-differences(7): the content may be a secret.
const WRONG_PERMISSIONS: &str = "a file whose permissions are wrong is 0600, and not 0644";
const NO_DEVICE: &str = "a device that is not there is left out of fstab, as the documentation says";
const NO_PROGRAM: &str = "no program is run that could fail";
const NO_GROUP: &str = "a group that does not exist is ignored with a warning; useradd would refuse the user, which the recording does not show";
const A_DATE: &str = "a date is a date with or without quotes";
const NO_MEMBERS: &str = "a group without members is created; cloud-init stops with a TypeError";
const A_NUMBER: &str = "a number of days is one with or without quotes";
const BAD_BASE64: &str = "content that is not base64 is reported; cloud-init silently writes what it decodes to";
const OLD_FILE: &str = "the old configuration is kept, and not the half of the new one";
const OTHER_USERS: &str = "the keys of the other users are shown; cloud-init stops with a KeyError";

const EXCEPTIONS: &[(&str, &str)] = &[
    ("cc_mounts/ephemeral0 absent/ubuntu", NO_DEVICE),
    (
        "cc_set_passwords/chpasswd.list list/ubuntu",
        "the tree is an image, which keeps no random password; that is reported",
    ),
    ("cc_set_passwords/chpasswd fails/ubuntu", NO_PROGRAM),
    ("cc_users_groups/useradd fails/ubuntu", NO_PROGRAM),
    ("cc_write_files/bad base64/ubuntu", BAD_BASE64),
    ("cc_write_files/permissions ''/ubuntu", WRONG_PERMISSIONS),
    ("cc_write_files/permissions '0999'/ubuntu", WRONG_PERMISSIONS),
    ("cc_write_files/permissions 'u+x'/ubuntu", WRONG_PERMISSIONS),
    ("cc_users_groups/create_groups false/ubuntu", NO_GROUP),
    ("cc_users_groups/expiredate unquoted (YAML date)/ubuntu", A_DATE),
    ("cc_users_groups/groups dict/ubuntu", NO_MEMBERS),
    ("cc_users_groups/inactive int/ubuntu", A_NUMBER),
];

const KERNEL_NAME: &str = "the kernel gets the whole name that /etc/hostname gives it on every later boot; cloud-init sets the short one in this boot";
const NO_FILE: &str = "the name is kept for later boots, which have no file to take it from";
const NO_HELPER: &str = "the host keys are read and shown without a helper program";

/// What differs on every distribution.
const KINDS: &[CaseKind] = &[
    kind(": cc_mounts/ephemeral0 absent/", &["/etc/fstab", "/mnt is missing", "commands", "expected"], NO_DEVICE),
    kind(": cc_set_passwords/chpasswd fails/", &["expected error"], NO_PROGRAM),
    kind(": cc_users_groups/useradd fails/", &["expected error"], NO_PROGRAM),
    kind(": cc_users_groups/create_groups false/", &["expected"], NO_GROUP),
    kind(": cc_users_groups/expiredate unquoted (YAML date)/", &["u"], A_DATE),
    kind(": cc_users_groups/groups dict/", &["expected error"], NO_MEMBERS),
    kind(": cc_users_groups/inactive int/", &["u"], A_NUMBER),
    kind(": cc_write_files/bad base64/", &["expected"], BAD_BASE64),
    kind(": cc_write_files/permissions ", &["/p", "expected"], WRONG_PERMISSIONS),
];

const MORE_KINDS: &[CaseKind] = &[
    kind(": cc_update_hostname/", &["commands"], KERNEL_NAME),
    kind(": cc_keys_to_console/", &["commands", "console"], NO_HELPER),
    kind(": cc_puppet/", &["/etc/puppet/puppet.conf.old"], OLD_FILE),
    kind(": cc_ssh_authkey_fingerprints/user does not exist/", &["expected error"], OTHER_USERS),
];

const fn kind(cases: &'static str, places: &'static [&'static str], reason: &'static str) -> CaseKind {
    CaseKind { cases, places, reason }
}

/// The same in modules_more.json.
const MORE_EXCEPTIONS: &[(&str, &str)] = &[
    ("cc_apt_configure/no apt key/raspberry-pi-os", "nothing is asked for and nothing is done, which is no warning"),
    (
        "cc_apt_configure/no apt key, mips/ubuntu",
        "the mirror of all other architectures is written; cloud-init stops with a ValueError after that",
    ),
    (
        "cc_apt_configure/apt lists are renamed/ubuntu",
        "mv renames them in the running system: they may be larger than a stage's memory",
    ),
    ("cc_apt_configure/no template/ubuntu", "a mirror that is asked for is written without the image's template"),
    (
        "cc_apt_configure/lsb_release fails/ubuntu",
        "there is no suite UNAVAILABLE: the sources stay as they are, with a warning",
    ),
    (
        "cc_apt_configure/disable_suites, short line/ubuntu",
        "a line without a suite stays as it is; cloud-init stops with an IndexError",
    ),
    (
        "cc_apt_configure/source, keyid, keyserver fails twice/ubuntu",
        "the recorded gpg has the key before it is fetched",
    ),
    (
        "cc_apt_configure/source, keyid, keyserver fails/ubuntu",
        "the other sources are added, and the error is reported",
    ),
    ("cc_apt_configure/source, gpg is not installed/ubuntu", "a key that is given as text needs no gpg"),
    (
        "cc_apt_configure/source, ppa, add-apt-repository fails/ubuntu",
        "the lists are refreshed for the other sources, and the error is reported",
    ),
    ("cc_byobu/other default user/ubuntu", "enable-user is for the user alone, as the documentation says"),
    ("cc_byobu/debian/debian", "enable-user is for the user alone, as the documentation says"),
    ("cc_landscape/number value/ubuntu", "a number is written as text; cloud-init fails to run the program"),
    ("cc_lxd/bridge new, booleans/ubuntu", "a boolean switches NAT on, as the documentation says"),
    (
        "cc_snap/assertions mapping/ubuntu",
        "the recording's mapping was in another order, which the vectors do not keep",
    ),
    ("cc_ubuntu_drivers/no debconf module/ubuntu", "debconf is asked by its program: no Python module is needed"),
    (
        "cc_ansible/every option/ubuntu",
        "ansible_config is the variable that Ansible reads, ANSIBLE_CONFIG; the recording has lost the order of the options",
    ),
    ("cc_chef/omnibus, own URL and version/ubuntu", "a server that answers at last is no warning"),
    (
        "cc_final_message/unknown dollar variable/ubuntu",
        "the message is shown, and in it the name that stands for nothing",
    ),
    ("cc_final_message/null/ubuntu", "null is as if the key were absent, and no message of its own"),
    ("cc_keys_to_console/documentation example2/ubuntu", NO_HELPER),
    ("cc_keys_to_console/rhel's path/rhel", NO_HELPER),
    ("cc_keys_to_console/no helper/ubuntu", NO_HELPER),
    ("cc_keys_to_console/emit true/ubuntu", NO_HELPER),
    ("cc_keys_to_console/helper fails/ubuntu", NO_HELPER),
    (
        "cc_package_update_upgrade_install/mapping on rhel/rhel",
        "a snap that is asked for by name is installed with snap",
    ),
    (
        "cc_package_update_upgrade_install/one package with a version/alpine",
        "a version is written as apk knows it: NAME=VERSION",
    ),
    (
        "cc_package_update_upgrade_install/one package with a version/arch",
        "a version is written as pacman knows it: NAME=VERSION",
    ),
    (
        "cc_package_update_upgrade_install/reboot if required/ubuntu",
        "the recorded machine fails to reboot for 63 seconds, for which no test waits",
    ),
    (
        "cc_package_update_upgrade_install/documentation example1/ubuntu",
        "snaps are installed in the document's order; cloud-init's is that of a set",
    ),
    ("cc_ssh_authkey_fingerprints/user does not exist/ubuntu", OTHER_USERS),
    ("cc_update_hostname/nothing changes/rhel", KERNEL_NAME),
    ("cc_update_hostname/fqdn preferred/ubuntu", KERNEL_NAME),
    ("cc_update_hostname/fqdn/rhel", KERNEL_NAME),
    ("cc_update_hostname/documentation example4/ubuntu", KERNEL_NAME),
    ("cc_update_hostname/create_hostname_file false/ubuntu", NO_FILE),
    ("cc_update_hostname/create_hostname_file false/rhel", NO_FILE),
    (
        "cc_update_hostname/nothing changes/ubuntu",
        "the half of the running system sets the name again, which the initramfs may have written in this boot",
    ),
    (
        "cc_update_hostname/nothing changes/opensuse",
        "the half of the running system sets the name again, which the initramfs may have written in this boot",
    ),
    ("cc_power_state_change/delay -3/ubuntu", "a delay below zero is reported; shutdown does not know +-3"),
    (
        "cc_ssh_import_id/first try fails/ubuntu",
        "the recording does not say that the second try succeeds; it is the same as of `both tries fail`",
    ),
    ("cc_puppet/conf, ca_cert/ubuntu", OLD_FILE),
    ("cc_puppet/documentation example1/ubuntu", OLD_FILE),
    (
        "cc_raspberry_pi/documentation example1/raspberry-pi-os",
        "interfaces are switched in the document's order, which the recording has lost",
    ),
    (
        "cc_wireguard/modprobe fails/ubuntu",
        "the interfaces' files are written before the pivot, whatever the running kernel can do",
    ),
    (
        "cc_update_hostname/nothing changes/alpine",
        "the half of the running system sets the name again, which the initramfs may have written in this boot",
    ),
    (
        "cc_update_hostname/nothing changes/arch",
        "the half of the running system sets the name again, which the initramfs may have written in this boot",
    ),
    (
        "cc_yum_add_repo/percent sign/rhel",
        "a percent sign is a character of the value; cloud-init stops with a ValueError",
    ),
    ("cc_zypper_add_repo/documentation example1/opensuse", "a boolean is written as in zypp.conf itself: true"),
    ("cc_zypper_add_repo/list value/opensuse", "libzypp has no triple quotes, which cloud-init writes around a list"),
    (
        "cc_zypper_add_repo/comma in a value/opensuse",
        "libzypp takes the quotes that cloud-init writes as a part of the value",
    ),
    (
        "cc_growpart/gpart recover fails/ubuntu",
        "prepivot grows the partition itself: no program is run that could fail",
    ),
    ("cc_growpart/growing fails/ubuntu", "prepivot grows the partition itself: no program is run that could fail"),
    (
        "cc_disk_setup/layout GUID type, mbr/ubuntu",
        "sfdisk makes type 0 of a GUID in an MBR; prepivot writes the code of the same type",
    ),
    ("cc_disk_setup/layout letter code, gpt without sgdisk/ubuntu", "a code's letters may be small, as with sgdisk"),
    ("cc_disk_setup/sfdisk fails/ubuntu", "prepivot writes the table itself: no program is run that could fail"),
    ("cc_disk_setup/sgdisk fails/ubuntu", "prepivot writes the table itself: no program is run that could fail"),
    (
        "cc_disk_setup/number, other label: made anew without overwrite/ubuntu",
        "the documentation: without overwrite: true a file system that is there stays; that is reported",
    ),
    ("cc_disk_setup/extra_opts string/ubuntu", "options in one text are words; cloud-init splits it into letters"),
    ("cc_mounts/swap: size 'AUTO'/ubuntu", "auto is a word in any case"),
    ("cc_mounts/swap: size True/ubuntu", "true is no size; cloud-init makes a file of 0 bytes, which cannot be used"),
    (
        "cc_mounts/swap: fallocate and dd fail/ubuntu",
        "prepivot makes the file itself: no program is run that could fail",
    ),
    ("cc_mounts/swap: line in fstab already/ubuntu", "fstab gets no second line of the same"),
    ("cc_mounts/swap of the data source/ubuntu", "a partition with swap that the source names is used"),
    (
        "cc_mounts/swap and ephemeral0 of the data source/ubuntu",
        "the disk that the source names holds no swap: a line for it would fail in every boot",
    ),
    (
        "cc_mounts/partition of a name by a dot/ubuntu",
        "a mount of a partition without a file system is reported, and nothing waits for it",
    ),
];

/// A case of modules.json or modules_more.json.
pub struct Case<'a> {
    pub module: &'a str,
    pub distro: Distro,
    pub config: Value,
    pub setup: &'a Value,
    pub expected: &'a Value,
    /// Whether it is one of modules_more.json: its machine answers commands.
    pub more: bool,
    needs: &'a Value,
}

impl<'a> Case<'a> {
    fn new(case: &'a Value, more: bool) -> Case<'a> {
        let text = |key| case.get(key).and_then(Value::as_str).unwrap_or_default();
        let distro = Distro::named(text("distro"));
        let mut config = match plain(case.get("cfg").unwrap_or(&Value::Null)) {
            Value::Map(map) => map,
            _ => Map::new(),
        };
        if let (false, Some(info)) = (config.contains_key("system_info"), distro.default_config().get("system_info")) {
            config.insert("system_info", info.clone());
        }
        if let Some(own) = case.at(&["setup", "system_info"]).and_then(Value::as_map) {
            let mut info = config.get("system_info").and_then(Value::as_map).cloned().unwrap_or_default();
            own.iter().for_each(|(k, v)| drop(info.insert(k, v.clone())));
            config.insert("system_info", info);
        }
        // As in every distribution's default configuration, which is below a case's.
        if !config.contains_key("users") {
            config.insert("users", vec![Value::from("default")]);
        }
        let at = |key| case.get(key).unwrap_or(&Value::Null);
        Case {
            module: text("module"),
            distro,
            config: Value::Map(config),
            setup: at("setup"),
            expected: at("expected"),
            more,
            needs: at("needs"),
        }
    }

    /// Whether the case has this remark on its input.
    pub fn needs(&self, what: &str) -> bool {
        self.needs.as_list().unwrap_or_default().iter().any(|n| n.as_str() == Some(what))
    }

    /// The expected commands: arguments and standard input.
    pub fn commands(&self) -> Vec<(Vec<String>, String)> {
        let list = self.expected.get("commands").and_then(Value::as_list).unwrap_or_default();
        list.iter()
            .map(|c| {
                let argv = c.get("argv").and_then(Value::as_list).unwrap_or_default();
                let data = c.get("data").and_then(Value::as_str).unwrap_or_default();
                (argv.iter().filter_map(Value::text).collect(), data.to_owned())
            })
            .collect()
    }

    fn is_about_accounts(&self) -> bool {
        matches!(self.module, "cc_users_groups" | "cc_set_passwords" | "cc_ssh")
    }

    /// Makes the root that the case starts from.
    fn set_up(&self, base: &Path) {
        if self.is_about_accounts() {
            accounts::set_up(self, base);
        } else {
            machine::set_up(self, base);
        }
        for (path, value) in self.setup.get("files").and_then(Value::as_map).into_iter().flat_map(Map::iter) {
            let (content, mode) = match value.as_list() {
                Some([content, mode]) => (content, mode.as_int().unwrap()),
                _ => (value, 0o644),
            };
            let path = base.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content.as_str().unwrap_or_default()).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(u32::try_from(mode).unwrap())).unwrap();
        }
    }

    fn run(&self, module: &Module) -> Vec<String> {
        let dir = TempDir::new("vectors-modules");
        self.set_up(&dir.0);
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = match self.is_about_accounts() {
            true => Instance { instance_id: "i-test".into(), ..Instance::default() },
            false => machine::instance(self),
        };
        let mut errors = Vec::new();
        let outside = machine::Machine::new(self, &dir.0);
        let (args, runs) = (machine::args(self), Rc::default());
        if self.more {
            root.play(machine::programs(self, &dir, &runs));
        }
        let report = Problems::new();
        root.enter(module.stage);
        for half in
            [module.before_pivot, module.running, module.in_background.map(|work| work.run)].into_iter().flatten()
        {
            let mut context = ModuleContext {
                args: &args,
                outside: if self.is_about_accounts() { &Nothing } else { &outside },
                ..ModuleContext::new(&mut root, &self.config, &instance, &self.distro, &report)
            };
            errors.extend(half(&mut context).err());
        }
        root.run_at_end().iter().for_each(|e| report.warn(e));
        let mut wrong = Vec::new();
        let recorders = !self.more && files::error_is_the_recorders(self);
        let error_expected = self.expected.get("error").is_some_and(|e| !e.is_null()) && !recorders;
        if error_expected == errors.is_empty() {
            wrong.push(format!("expected error {:?}, found {errors:?}", self.expected.get("error")));
        }
        let list = |key| self.expected.get(key).and_then(Value::as_list).unwrap_or_default();
        let warnings = list("warnings").iter().filter_map(Value::as_str).filter(|w| !w.contains("deprecated")).count();
        let reported = report.has(Severity::Error) || report.has(Severity::Warning);
        if !error_expected && errors.is_empty() && (warnings > 0) != reported {
            wrong.push(format!("expected {:?}, reported {:?}", list("warnings"), report.entries()));
        }
        if error_expected && !self.more {
            return wrong;
        }
        self.compare_files(&root, &mut wrong);
        for path in list("removed").iter().filter_map(Value::as_str) {
            let before = self.setup.at(&["files", path]).and_then(Value::as_str);
            if root.exists(path) && Some(root.text(path).as_str()) == before {
                wrong.push(format!("{path} is not removed"));
            }
        }
        if disks::is_about(self) {
            disks::compare(self, &dir.0, &root, &mut wrong);
        } else if self.more {
            self.compare_owners(&root, &mut wrong);
            machine::compare(self, &outside, &runs.borrow(), &root, &mut wrong);
        } else if self.is_about_accounts() {
            accounts::compare(self, &root, &mut wrong);
        } else {
            self.compare_owners(&root, &mut wrong);
            let expected = self.commands().into_iter().map(|c| c.0).filter(|argv| !files::is_native(argv));
            let expected: Vec<_> = expected.map(|argv| files::normal_command(&argv)).collect();
            let found: Vec<_> = root.commands().iter().map(|c| files::normal_command(&c.argv)).collect();
            if expected != found && !recorders {
                wrong.push(format!("commands: expected {expected:?}, found {found:?}"));
            }
        }
        wrong
    }

    fn compare_files(&self, root: &Root, wrong: &mut Vec<String>) {
        let mut known: BTreeSet<String> = machine::semaphores(self).into_iter().collect();
        let removed = self.expected.get("removed").and_then(Value::as_list).unwrap_or_default();
        known.extend(removed.iter().filter_map(Value::as_str).map(|path| path.trim_end_matches('/').to_owned()));
        if !self.more {
            // modules.json was recorded without a package manager.
            known.insert("/var/lib/cloud/instances/iid-datasource-none/sem/update_sources".into());
        }
        for (path, file) in files::expected_files(self).iter() {
            if files::is_beside(path) {
                continue;
            }
            let folder = path.ends_with('/');
            let mut path = path.trim_end_matches('/').to_owned();
            if self.is_about_accounts() {
                path = accounts::real_path(self, &path);
                if folder && accounts::is_home(root, &path) {
                    continue;
                }
            }
            known.insert(path.clone());
            if disks::is_made_by_program(self, &path) {
                continue;
            }
            let Some(stat) = root.lstat(&path) else {
                wrong.push(format!("{path} is missing"));
                continue;
            };
            let theirs = file.get("mode").and_then(Value::as_str);
            let mode = if files::may_hold_secrets(&path) { Some("0o600") } else { theirs };
            if mode.is_some_and(|mode| mode != format!("0o{:o}", stat.attr.mode)) {
                wrong.push(format!("{path}: expected mode {mode:?}, found 0o{:o}", stat.attr.mode));
            }
            let bytes = file.at(&["content", "b64"]).and_then(Value::as_str).map(|b| base64::decode(b.as_bytes()));
            if bytes.is_some_and(|bytes| bytes != root.read(&path).ok().flatten()) {
                wrong.push(format!("{path}: other bytes than expected"));
            }
            let Some(content) = file.get("content").and_then(Value::as_str) else { continue };
            let found = match root.read_link(&path) {
                Some(target) if content.starts_with("-> ") => format!("-> {target}"),
                _ => normal(&path, &root.text(&path)),
            };
            let expected = if path == "/etc/fstab" {
                let before = self.setup.at(&["files", "/etc/fstab"]).and_then(Value::as_str).unwrap_or_default();
                files::expected_fstab(content, before, self.distro.name != "alpine")
            } else {
                normal(&path, content)
            };
            if expected != found && !(self.more && machine::is_like(&expected, &found)) {
                wrong.push(format!("{path}: expected {content:?}, found {found:?}"));
            }
        }
        for change in root.changes() {
            let ours = self.is_about_accounts() && accounts::is_own(root, change.path());
            let parent = matches!(change, Change::Mkdir { .. }) || files::is_beside(change.path());
            if !known.contains(change.path()) && !ours && !parent && !change.path().starts_with("/run/prepivot/") {
                wrong.push(format!("{} is changed", change.path()));
            }
        }
    }

    fn compare_owners(&self, root: &Root, wrong: &mut Vec<String>) {
        let mut owners = BTreeMap::new();
        for entry in self.expected.get("chown").and_then(Value::as_list).unwrap_or_default() {
            if let Some([path, user, group]) = entry.as_list() {
                owners.insert(path.text().unwrap_or_default(), (user, group));
            }
        }
        for (path, (user, group)) in owners {
            let Some(attr) = root.stat(&path).map(|s| s.attr) else {
                wrong.push(format!("{path}, which has an owner, is missing"));
                continue;
            };
            let user = user.text().map(|u| owner::user_ids(root, &u).map(|ids| ids.uid));
            let group = group.text().map(|g| owner::group_id(root, &g));
            if user.is_some_and(|u| u.is_some_and(|u| u != attr.uid))
                || group.is_some_and(|g| g.is_some_and(|g| g != attr.gid))
            {
                wrong.push(format!("{path}: expected owner {user:?}:{group:?}, found {attr:?}"));
            }
        }
    }
}

/// Content as it is compared: who wrote a header and when does not count, and keys in authorized_keys are a set.
fn normal(path: &str, content: &str) -> String {
    if path.starts_with("/etc/udev/rules.d/") {
        return debian::rule(content);
    }
    if let Some(text) = files::normal_file(path, content) {
        return text;
    }
    let line = |line: &str| {
        for verb in ["Created", "Added"] {
            for name in ["cloud-init", "prepivot"] {
                if line.starts_with(&format!("# {verb} by {name}")) {
                    return format!("# {verb}");
                }
            }
        }
        line.to_owned()
    };
    let mut lines: Vec<String> = content.split('\n').map(line).collect();
    if path.ends_with("/authorized_keys") {
        lines.sort();
    }
    lines.join("\n")
}

/// The vectors write what JSON lacks as mappings: `{"__date__": …}` and `{"__bytes_b64__": …}`.
fn plain(value: &Value) -> Value {
    match value {
        Value::List(list) => Value::List(list.iter().map(plain).collect()),
        Value::Map(map) => match map.iter().next() {
            Some(("__date__", date)) => date.clone(),
            Some(("__bytes_b64__", Value::String(text))) => {
                Value::Bytes(base64::decode(text.as_bytes()).unwrap().into())
            }
            _ => Value::Map(map.iter().map(|(k, v)| (k, plain(v))).collect()),
        },
        other => other.clone(),
    }
}

/// The module of a case, or why the case is skipped.
fn module_of(case: &Case) -> Result<&'static Module, Outcome> {
    let module = module::find(case.module);
    module.ok_or_else(|| Outcome::Skipped(format!("the module {} is not there yet", case.module)))
}

fn check(value: &Value) -> Outcome {
    let case = Case::new(value, false);
    module_of(&case).map_or_else(|skipped| skipped, |module| Outcome::of(case.run(module)))
}

/// Keys of `setup` that nothing here plays yet.
/// Keys of `setup` that only the cases about disks need.
const OF_DISKS: &[&str] = &["container", "devices", "free_space", "mounts"];

fn check_more(value: &Value) -> Outcome {
    let case = Case::new(value, true);
    let module = match module_of(&case) {
        Ok(module) => module,
        Err(skipped) => return skipped,
    };
    if disks::is_about(&case) {
        if let Some(missing) = disks::missing_tool() {
            return Outcome::Skipped(missing);
        }
    } else if let Some(key) = OF_DISKS.iter().find(|key| case.module != "cc_grub_dpkg" && case.setup.get(key).is_some())
    {
        return Outcome::Skipped(format!("the harness does not set up {key} yet"));
    }
    Outcome::of(case.run(module))
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vectors { file: "modules.json", exceptions: EXCEPTIONS, kinds: KINDS }.trials(check);
    trials.extend(
        Vectors { file: "modules_more.json", exceptions: MORE_EXCEPTIONS, kinds: MORE_KINDS }.trials(check_more),
    );
    trials
}

/// So that a path's kind can be named in the accounts' half.
pub fn is_dir(root: &Root, path: &str) -> bool {
    root.lstat(path).is_some_and(|s| s.kind == FileKind::Dir)
}
