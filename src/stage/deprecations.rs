//! Every deprecation of [`crate::base::deprecated`]: what reports it, and in which words.

use super::local;
use super::modules::Run;
use crate::base::problem::Severity;
use crate::base::testing::TempDir;
use crate::instance::{Instance, NetworkData};
use crate::machine::Machine;
use crate::module;
use crate::root::Use;
use crate::source;

/// Where a row puts its text.
const USER: &str = "var/lib/cloud/seed/nocloud/user-data";
const VENDOR: &str = "var/lib/cloud/seed/nocloud/vendor-data";
const META: &str = "var/lib/cloud/seed/nocloud/meta-data";
const NETWORK: &str = "var/lib/cloud/seed/nocloud/network-config";
const IMAGE: &str = "etc/cloud/cloud.cfg.d/90_own.cfg";
const CMDLINE: &str = "proc/cmdline";

/// The file, its content, the version that deprecated it and the one that removes it, and the report up to " is deprecated".
const TABLE: &[(&str, &str, &str, &[&str])] = &[
    (
        USER,
        "apt_sources: [{source: deb http://a b c}]",
        "22.1 27.1",
        &["Config key 'apt_sources'", "The following config key(s): ['apt_sources']"],
    ),
    (
        USER,
        "{apt_http_proxy: 'http://p', apt_mirror: 'http://m', apt: {http_proxy: 'http://p'}}",
        "22.1 27.1",
        &[
            "The following config key(s): ['apt_mirror', 'apt_http_proxy']",
            "Support for combined old and new apt module keys",
        ],
    ),
    (USER, "ca-certs: {trusted: []}", "22.1 27.1", &["Key 'ca-certs'"]),
    (USER, "ca_certs: {remove-defaults: false}", "22.1 27.1", &["Key 'remove-defaults'"]),
    (
        IMAGE,
        "cloud_init_modules: [[write_files, daily]]",
        "22.1 27.1",
        &["Config specified module write_files has an unknown frequency daily"],
    ),
    (USER, "growpart: {mode: false}", "22.2 27.2", &["Growpart's 'mode' key with value 'False'"]),
    (USER, "growpart: {mode: 'no'}", "22.2 27.2", &["Growpart's 'mode' key with value 'no'"]),
    (USER, "rsyslog: ['*.* @a']", "22.2 27.2", &["The rsyslog key with value of type 'list'"]),
    (USER, "ssh_pwauth: 'yes'", "22.2 27.2", &["Using a string value for the 'ssh_pwauth' key"]),
    (USER, "ssh_pwauth: unchanged", "22.2 27.2", &["Using a string value for the 'ssh_pwauth' key"]),
    (USER, "chpasswd: {list: ['root:a']}", "22.3 27.3", &["Config key 'lists'"]),
    (USER, "chpasswd: {list: \"root:a\\n\"}", "22.2 27.2", &["The chpasswd multiline string"]),
    (USER, "manage_etc_hosts: template", "22.2 27.2", &["Value 'template' for key 'manage_etc_hosts'"]),
    (USER, "users: [{name: ada, sudo: false}]", "22.2 27.2", &["The value of 'false' in user ada's 'sudo' config"]),
    (USER, "user: ada", "22.2 27.2", &["'user' of type string"]),
    (USER, "users: ada", "22.2 27.2", &["'users' of type <class 'str'>"]),
    (USER, "users: {ada: {lock_passwd: true}}", "22.2 27.2", &["'users' of type <class 'dict'>"]),
    (
        USER,
        "users: [{name: ada, groups: {adm: null}}]",
        "22.3 27.3",
        &["The user ada has a 'groups' config value of type dict"],
    ),
    (
        NETWORK,
        "{version: 2, ethernets: {e: {addresses: [10.0.0.2/8], gateway4: 10.0.0.1}}}",
        "22.4 27.4",
        &["The use of `gateway4` and `gateway6`"],
    ),
    (
        NETWORK,
        "{version: 2, ethernets: {e: {addresses: ['::2/64'], gateway6: '::1'}}}",
        "22.4 27.4",
        &["The use of `gateway4` and `gateway6`"],
    ),
    (IMAGE, "vendor_data: {enabled: 'true'}", "23.1 28.1", &["Use of string 'true' for 'vendor_data:enabled' field"]),
    (
        CMDLINE,
        "ci.ds=nocloud",
        "23.2 28.2",
        &["Defining the datasource on the command line using ci.ds=nocloud or ci.datasource=nocloud"],
    ),
    (
        CMDLINE,
        "ci.datasource=NoCloud",
        "23.2 28.2",
        &["Defining the datasource on the command line using ci.ds=NoCloud or ci.datasource=NoCloud"],
    ),
    (CMDLINE, "ds=nocloud-net;h=a", "24.1 29.1", &["The 'nocloud-net' datasource name"]),
    ("sys/class/dmi/id/product_serial", "ds=nocloud-net", "24.1 29.1", &["The 'nocloud-net' datasource name"]),
    (
        IMAGE,
        "cloud_config_modules: [ubuntu-advantage]",
        "24.1 29.1",
        &[
            "Module has been renamed from cc_ubuntu_advantage to cc_ubuntu_pro. Update any references in /etc/cloud/cloud.cfg",
        ],
    ),
    (
        META,
        "instance-id: i\nnetwork-interfaces: |\n  auto lo\n",
        "24.3 29.3",
        &["Eni network configuration in NoCloud"],
    ),
];

/// What of today's is not reported.
const CURRENT: &[(&str, &str)] = &[
    (
        USER,
        "{apt: {sources: {a: {source: deb http://a b c}}}, ca_certs: {remove_defaults: false}, growpart: {mode: 'off'}}",
    ),
    (
        USER,
        "{rsyslog: {configs: ['*.* @a']}, ssh_pwauth: true, chpasswd: {users: [{name: root, password: a, type: text}]}}",
    ),
    (USER, "{manage_etc_hosts: true, users: [default, {name: ada, sudo: null, groups: [adm]}], user: {name: bob}}"),
    (NETWORK, "{version: 2, ethernets: {e: {addresses: [10.0.0.2/8], routes: [{to: default, via: 10.0.0.1}]}}}"),
    (
        IMAGE,
        "{vendor_data: {enabled: true}, cloud_init_modules: [[write_files, once]], cloud_config_modules: [ubuntu_pro]}",
    ),
    (CMDLINE, "ds=nocloud"),
];

/// What is deprecated when a machine is provisioned with a file.
fn reported(file: &str, text: &str) -> Vec<String> {
    let dir = TempDir::new("deprecations");
    for (path, text) in [
        ("etc/os-release", "ID=ubuntu\n"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/shadow", "root:*:1::::::\n"),
        ("etc/group", "root:x:0:\nadm:x:4:\n"),
        ("etc/ssh/sshd_config", ""),
        ("usr/sbin/netplan", ""),
        (META, "instance-id: i\n"),
        (USER, "#cloud-config\n{}\n"),
        (VENDOR, "#cloud-config\n{}\n"),
    ] {
        dir.write(path, text);
    }
    dir.write(file, &if file == USER { format!("#cloud-config\n{text}\n") } else { format!("{text}\n") });
    let machine = dir.machine();
    let mut root = dir.root(Use::Tree);
    let mut boot = crate::stage::testing::boot(&root, &machine);
    let instance = local::seeded(&mut root, &mut boot, &dir.0.join("var/lib/cloud/seed/nocloud")).unwrap();
    // It has nothing to do before the pivot.
    let growpart = module::find("growpart").unwrap();
    Run::new(&mut root, &mut boot, &instance).single(growpart, None, &[]);
    boot.report.texts(Severity::Deprecated)
}

#[test]
fn each_deprecation_is_reported() {
    for (file, text, versions, expected) in TABLE {
        let found = reported(file, text);
        let (since, until) = versions.split_once(' ').unwrap();
        for expected in *expected {
            let whole = format!("{expected} is deprecated in {since} and scheduled to be removed in {until}.");
            assert!(found.iter().any(|line| line.starts_with(&whole)), "{text}: {found:?}");
        }
    }
    for (file, text) in CURRENT {
        assert_eq!(reported(file, text), [""; 0], "{text}");
    }
}

#[test]
fn sources_report_what_is_deprecated() {
    for (source, network, expected) in [
        (
            "DigitalOcean",
            None,
            "DataSourceDigitalOcean is deprecated in 23.2 and scheduled to be removed in 28.2. Deprecated in",
        ),
        ("ConfigDrive", Some("auto lo\n"), "Eni network configuration in ConfigDrive is deprecated in 24.3 and"),
        ("ConfigDrive", None, ""),
        ("OpenStack", Some("auto lo\n"), ""),
    ] {
        let network = network.map(|text| NetworkData::Eni(text.to_owned()));
        let instance = Instance { source: source.into(), network, ..Instance::default() };
        let report = crate::base::problem::Problems::new();
        (source::named(source).unwrap().deprecated)(&Machine::default(), &instance, &report);
        match (&report.texts(Severity::Deprecated)[..], expected) {
            ([], "") => {}
            ([text], expected) if !expected.is_empty() => assert!(text.starts_with(expected), "{text}"),
            _ => panic!("{source}"),
        }
    }
}
