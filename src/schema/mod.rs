//! Schemas of documents: checks cloud-configs and network configurations against them.
//!
//! A module's keys are in a block marked `schema` at the top of its file; keys that belong to no module are
//! in `common.txt`, those of network configurations in `network.txt`. The notation is a short form of
//! cloud-init's JSON schemas (schema-cloud-config-v1.json, schema-network-config-v1.json and -v2.json):
//!
//! | | |
//! |---|---|
//! | `a, b!: …` | keys of one kind; `!`: required |
//! | `*: …`, `*/check: …` | every other key of one line, or that passes a check of [`text`] |
//! | `...`, `...: …` | every other key |
//! | `old ~24.2 new` | the old name of a key |
//! | `… \| …` | one or the other |
//! | `str` `str/check` `bool` `int` `int(0..255)` `num(0..)` `null` `list` `map` `any` | kinds |
//! | `(a b)` | one of these words, numbers or booleans |
//! | `[…]`, `{…}` | a list, a mapping with these keys and no others |
//! | `[…]+`, `{…}+`, `[…]1..6`, `[…] unique` | how many entries; none twice |
//! | `(one a b)`, `(some a b)`, `(single)`, `(also $c)` | one and only one of the keys; at least one; no key beside its old name; what that part says as well |
//! | `… ~22.3 new`, `… ~22.3 "text"`, `… ^22.3 "text"` | deprecated, or changed, in that version: what to use, or what to do |
//! | `$name = …`, `$name` | a part with a name |

mod annotate;
mod check;
mod fix;
mod grammar;
mod json_schema;
mod text;
mod texts;

use crate::base::problem::Problem;
use crate::document::{Map, Value};
pub use annotate::annotated;
pub use json_schema::{Form, json_schema};

use check::Walk;
use grammar::Grammar;

/// The most problems of one document that are reported.
pub const MAX_PROBLEMS: usize = 100;

/// The problems of a document, in order; at most [`MAX_PROBLEMS`] of each kind. Their keys are the paths of the values: keys and list
/// indexes, separated by dots, as in `users.0.name`. None contains a value.
#[derive(Debug, Default, PartialEq)]
pub struct Deviations {
    pub errors: Vec<Problem>,
    /// Valid values that are deprecated.
    pub deprecations: Vec<Problem>,
}

/// Checks a cloud-config.
pub fn cloud_config(config: &Map) -> Deviations {
    Walk::top(&Grammar::new(texts::cloud_config()), config)
}

/// Checks a network configuration of version 1 or 2, with or without `network:` around it. As in cloud-init,
/// the default is version 2.
pub fn network_config(config: &Map) -> Deviations {
    Walk::top(&network_grammar(config), config)
}

/// The schema of a network configuration, by its version.
fn network_grammar(config: &Map) -> Grammar {
    let inner = config.get("network");
    let version = inner.map_or_else(|| config.get("version"), |inner| inner.get("version"));
    let table = match (version, inner) {
        (Some(Value::Int(1)), None) => "(also $v1) ...\n",
        (Some(Value::Int(1)), Some(_)) => "network: $v1\n",
        (_, None) => "(also $v2) ...\n",
        (_, Some(_)) => "network: $v2\n",
    };
    let mut grammar = Grammar::new(texts::network());
    grammar.top = Grammar::new(table).top;
    grammar
}

/// A sentence that says what to do about a problem of a cloud-config. Empty if nothing is known.
pub fn cloud_config_fix(problem: &Problem) -> String {
    fix::fix(&Grammar::new(texts::cloud_config()), problem)
}

/// The same for a problem of the network configuration `config`.
pub fn network_config_fix(config: &Map, problem: &Problem) -> String {
    fix::fix(&network_grammar(config), problem)
}

/// A module's documentation in Markdown, with an example if it has keys. None if there is no such module.
pub fn documentation(module: &str) -> Option<&'static str> {
    texts::docs(module)
}

/// A module's top-level keys, including their old names.
pub fn keys(module: &str) -> Vec<&'static str> {
    let Some(schema) = texts::module(module) else { return Vec::new() };
    Grammar::new(schema).top.groups.into_iter().flat_map(|g| g.keys).map(|(key, _)| key).collect()
}

/// Problems as one line.
pub fn one_line(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::cpu_time;
    use crate::document::testing::vectors;
    use crate::document::yaml;
    use std::time::Duration;

    fn found(text: &str) -> Deviations {
        let config = yaml::parse("t", text).unwrap();
        cloud_config(config.as_map().unwrap())
    }

    fn errors(text: &str) -> Vec<String> {
        found(text).errors.iter().map(Problem::to_string).collect()
    }

    fn network_errors(text: &str) -> Vec<String> {
        let config = yaml::parse("t", text).unwrap();
        network_config(config.as_map().unwrap()).errors.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn the_key_and_what_was_expected_are_told() {
        for (text, expected) in [
            ("{runcmd: geheim}", &["runcmd: expected a list, found a string"][..]),
            ("{run_cmd: []}", &["run_cmd: there is no such key"]),
            ("{locale: 3}", &["locale: expected a boolean or a string, found an integer"]),
            ("{hostname: }", &["hostname: expected a string, found nothing"]),
            ("{users: [{gecos: x}]}", &["users.0: expected one of the keys name, snapuser"]),
            ("{users: [{name: x, snapuser: y}]}", &["users.0: expected only one of the keys name, snapuser"]),
            ("{users: [root, {name: [geheim]}]}", &["users.1.name: expected a string, found a list"]),
            ("{users: [{name: a, sudoo: geheim}]}", &["users.0.sudoo: there is no such key"]),
            ("{users: [3]}", &["users.0: expected a string or a list or a mapping, found an integer"]),
            ("{users: [{name: a, expiredate: soon}]}", &["users.0.expiredate: expected a date such as 2031-12-31"]),
            ("{users: [{name: a, groups: [1]}]}", &["users.0.groups.0: expected a string, found an integer"]),
            (
                "{write_files: [{content: x, append: 'yes'}]}",
                &["write_files.0: the key path is missing", "write_files.0.append: expected a boolean, found a string"],
            ),
            ("{write_files: []}", &["write_files: expected entries (1 at least), found 0"]),
            (
                "{disk_setup: {/dev/vdb: {table_type: geheim}}}",
                &["disk_setup./dev/vdb.table_type: expected one of mbr, gpt"],
            ),
            ("{growpart: {mode: on}}", &["growpart.mode: expected one of auto, growpart, gpart, off, found a boolean"]),
            ("{mounts: [[a, b, c, d, e, f, g]]}", &["mounts.0: expected entries (from 1 to 6), found 7"]),
            ("{mount_default_fields: [a]}", &["mount_default_fields: expected entries (6 of them), found 1"]),
            ("{swap: {size: much}}", &["swap.size: expected an integer or a size such as 512M or auto"]),
            ("{ntp: {pools: [a, b, a]}}", &["ntp.pools: expected no entry twice"]),
            ("{apt: {}}", &["apt: expected a key at least"]),
            ("{apt: {debconf_selections: {'': x}}}", &["apt.debconf_selections.: expected as a key a line of text"]),
            ("{lxd: {bridge: {mode: none, mtu: -2}}}", &["lxd.bridge.mtu: expected an integer (-1 at least)"]),
            ("{reporting: {x: {type: print, level: INFO}}}", &["reporting.x.level: there is no such key"]),
            ("{reporting: {x: {type: mail}}}", &["reporting.x.type: expected one of log, print, webhook, hyperv"]),
            (
                "{reporting: {x: {type: 3}}}",
                &["reporting.x.type: expected one of log, print, webhook, hyperv, found an integer"],
            ),
            ("{chpasswd: {users: [{name: x}]}}", &["chpasswd.users.0: the key type is missing"]),
            ("{chpasswd: {users: [{name: x, type: hash}]}}", &["chpasswd.users.0: the key password is missing"]),
            ("{chpasswd: {list: [geheim]}}", &["chpasswd.list.0: expected NAME:PASSWORD"]),
            (
                "{rh_subscription: {org: a, service-level: a, service_level: b}}",
                &["rh_subscription: expected only one of the keys service_level, service-level"],
            ),
            ("{packages: [[a, b, c]]}", &["packages.0: expected entries (2 of them), found 3"]),
            (
                "{cloud_init_modules: [nosuch, [runcmd, always], ssh-import-id]}",
                &["cloud_init_modules.0: expected a module's name or a list"],
            ),
            (
                "{yum_repos: {a b: {name: x, 'a-b': 1}}}",
                &[
                    "yum_repos.a b: expected one of the keys baseurl, metalink, mirrorlist",
                    "yum_repos.a b.a-b: expected as a key letters, digits and _",
                ],
            ),
            (
                "{power_state: {mode: reboot, delay: soon}}",
                &["power_state.delay: expected an integer (0 at least) or now"],
            ),
        ] {
            assert_eq!(errors(text), expected, "{text}");
            assert!(!format!("{:?}", errors(text)).contains("geheim"));
        }
        for text in ["{}", "{users: default, user: {name: u}, ntp: null}", "{version: 1, migrate: [x]}"] {
            assert_eq!(found(text), Deviations::default(), "{text}");
        }
    }

    #[test]
    fn network_configurations() {
        for (text, expected) in [
            ("{version: 1, config: []}", &[][..]),
            ("{network: {version: 1}}", &["network: the key config is missing"]),
            ("{network: {version: 2}, x: 1}", &["x: there is no such key"]),
            ("{network: {version: 2, config: []}}", &["network.config: there is no such key"]),
            ("{network: []}", &["network: expected a mapping, found a list"]),
            ("{ethernets: {}}", &["the key version is missing"]),
            ("{version: 3}", &["version: expected 2"]),
            ("{version: 1, config: [{type: physical}]}", &["config.0: the key name is missing"]),
            (
                "{version: 1, config: [{type: physical, name: averylongname_eth0}]}",
                &["config.0.name: expected a device's name, 15 characters at most"],
            ),
            (
                "{version: 1, config: [{name: a, type: typo}]}",
                &["config.0.type: expected one of physical, bond, bridge, vlan, nameserver, route"],
            ),
            ("{version: 1, config: [{name: a}]}", &["config.0: the key type is missing"]),
            (
                "{version: 1, config: [{type: bond, name: b, params: {bond-num_grat_arp: 256}}]}",
                &["config.0.params.bond-num_grat_arp: expected an integer (from 0 to 255)"],
            ),
            (
                "{version: 1, config: [{type: physical, name: a, subnets: [{type: static, routes: [{gateway: x}]}]}]}",
                &["config.0.subnets.0.routes.0: expected one of the keys network, destination"],
            ),
            (
                "{version: 2, ethernets: {e: {dhcp4: maybe, match: {mac: x}}}}",
                &[
                    "ethernets.e.dhcp4: expected one of yes, no, true, false",
                    "ethernets.e.match.mac: there is no such key",
                ],
            ),
            (
                "{version: 2, bonds: {renderer: networkd, b: {mtu: big, parameters: {mode: fast}}}}",
                &[
                    "bonds.b.mtu: expected an integer, found a string",
                    "bonds.b.parameters.mode: expected one of balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb, balance-alb",
                ],
            ),
            (
                "{version: 2, tunnels: {t: {mode: gre, routes: [{via: 10.0.0.1}]}}}",
                &["tunnels.t.routes.0: the key to is missing"],
            ),
            (
                "{network: {version: 2, ethernets: {e: {dhcp4: yes, addresses: [10.0.0.1/8, {10.0.0.2/8: {label: x}}]}}}}",
                &[],
            ),
        ] {
            assert_eq!(network_errors(text), expected, "{text}");
        }
    }

    #[test]
    fn reports_deprecated_keys_without_an_error() {
        let text = "{ca-certs: {remove-defaults: true}, users: [{name: a, uid: '7', lock-passwd: false}], apt_pipelining: none, \
                    system_info: {}, ansible: {pull: {url: x, playbook_name: y}}}";
        let found = found(text);
        assert!(found.errors.is_empty(), "{found:?}");
        let told: Vec<String> = found.deprecations.iter().map(Problem::to_string).collect();
        assert_eq!(
            told,
            [
                "ca-certs.remove-defaults:  Deprecated in version 22.3. Use **remove_defaults** instead.",
                "ca-certs:  Deprecated in version 22.3. Use **ca_certs** instead.",
                "users.0.uid:  Changed in version 22.3. Use an integer instead.",
                "users.0.lock-passwd:  Deprecated in version 22.3. Use **lock_passwd** instead.",
                "apt_pipelining:  Deprecated in version 22.4. Use **os** instead.",
                "system_info:  Deprecated in version 24.2. It is for the image's own configuration.",
                "ansible.pull.playbook_name:  Deprecated in version 25.2. Use **playbook_names** instead.",
                "ansible.pull:  Deprecated in version 25.2. Use a list of mappings.",
            ]
        );
        assert_eq!(errors("{ca-certs: {}}"), ["ca-certs: expected a key at least"]);
    }

    /// Every deprecated key and value of the schema of cloud-init 26.2, with the version that deprecated it.
    #[test]
    fn each_deprecation_of_the_schema_is_reported() {
        for (text, expected) in [
            ("users: [{name: a, groups: {adm: null}}]", "users.0.groups.adm:  Deprecated in version 23.1."),
            ("users: [{name: a, lock-passwd: true}]", "users.0.lock-passwd:  Deprecated in version 22.3."),
            ("users: [{name: a, no-create-home: true}]", "users.0.no-create-home:  Deprecated in version 24.2."),
            ("users: [{name: a, no-log-init: true}]", "users.0.no-log-init:  Deprecated in version 24.2."),
            ("users: [{name: a, no-user-group: true}]", "users.0.no-user-group:  Deprecated in version 24.2."),
            ("users: [{name: a, hashed-passwd: x}]", "users.0.hashed-passwd:  Deprecated in version 24.2."),
            ("users: [{name: a, plain-text-passwd: x}]", "users.0.plain-text-passwd:  Deprecated in version 24.2."),
            ("users: [{name: a, create-groups: true}]", "users.0.create-groups:  Deprecated in version 24.2."),
            ("users: [{name: a, primary-group: x}]", "users.0.primary-group:  Deprecated in version 24.2."),
            ("users: [{name: a, selinux-user: x}]", "users.0.selinux-user:  Deprecated in version 24.2."),
            (
                "users: [{name: a, ssh-authorized-keys: [x]}]",
                "users.0.ssh-authorized-keys:  Deprecated in version 18.3.",
            ),
            ("users: [{name: a, ssh-import-id: [x]}]", "users.0.ssh-import-id:  Deprecated in version 24.2."),
            ("users: [{name: a, ssh-redirect-user: true}]", "users.0.ssh-redirect-user:  Deprecated in version 24.2."),
            ("users: [{name: a, sudo: false}]", "users.0.sudo:  Changed in version 22.2."),
            ("users: [{name: a, uid: '7'}]", "users.0.uid:  Changed in version 22.3."),
            ("user: {name: a, lock-passwd: true}", "user.lock-passwd:  Deprecated in version 22.3."),
            (
                "ansible: {pull: [{url: x, playbook_name: y}]}",
                "ansible.pull.0.playbook_name:  Deprecated in version 25.2.",
            ),
            ("ansible: {pull: {url: x, playbook_names: [y]}}", "ansible.pull:  Deprecated in version 25.2."),
            ("ca_certs: {remove-defaults: true}", "ca_certs.remove-defaults:  Deprecated in version 22.3."),
            ("ca-certs: {trusted: [x]}", "ca-certs:  Deprecated in version 22.3."),
            ("system_info: {}", "system_info:  Deprecated in version 24.2."),
            ("apt_pipelining: none", "apt_pipelining:  Deprecated in version 22.4."),
            ("apt_pipelining: unchanged", "apt_pipelining:  Deprecated in version 22.4."),
            ("growpart: {mode: false}", "growpart.mode:  Changed in version 22.3."),
            (
                "grub_dpkg: {grub-pc/install_devices_empty: 'true'}",
                "grub_dpkg.grub-pc/install_devices_empty:  Changed in version 22.3.",
            ),
            ("grub-dpkg: {enabled: true}", "grub-dpkg:  Deprecated in version 22.2."),
            ("apt_update: true", "apt_update:  Deprecated in version 22.2."),
            ("apt_upgrade: true", "apt_upgrade:  Deprecated in version 22.2."),
            ("apt_reboot_if_required: true", "apt_reboot_if_required:  Deprecated in version 22.2."),
            ("power_state: {mode: reboot, delay: '5'}", "power_state.delay:  Changed in version 22.3."),
            (
                "rh_subscription: {activation-key: x, org: a}",
                "rh_subscription.activation-key:  Deprecated in version 25.3.",
            ),
            ("rh_subscription: {activation_key: x, org: 5}", "rh_subscription.org:  Deprecated in version 24.2."),
            (
                "rh_subscription: {username: a, password: b, auto-attach: true}",
                "rh_subscription.auto-attach:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, service-level: x}",
                "rh_subscription.service-level:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, add-pool: [x]}",
                "rh_subscription.add-pool:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, enable-repo: [x]}",
                "rh_subscription.enable-repo:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, disable-repo: [x]}",
                "rh_subscription.disable-repo:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, rhsm-baseurl: x}",
                "rh_subscription.rhsm-baseurl:  Deprecated in version 25.3.",
            ),
            (
                "rh_subscription: {username: a, password: b, server-hostname: x}",
                "rh_subscription.server-hostname:  Deprecated in version 25.3.",
            ),
            ("vendor_data: {enabled: 'true'}", "vendor_data.enabled:  Deprecated in version 22.3."),
            ("ssh_pwauth: 'yes'", "ssh_pwauth:  Changed in version 22.3."),
            ("chpasswd: {list: 'a:b'}", "chpasswd.list:  Deprecated in version 22.2."),
            ("chpasswd: {list: ['a:b']}", "chpasswd.list:  Deprecated in version 22.2."),
            ("ubuntu_advantage: {token: x}", "ubuntu_advantage:  Deprecated in version 24.1."),
            ("manage_etc_hosts: template", "manage_etc_hosts:  Changed in version 22.3."),
        ] {
            let found: Vec<String> = found(text).deprecations.iter().map(Problem::to_string).collect();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
    }

    #[test]
    fn checks_documents_of_any_size_in_time() {
        let start = cpu_time();
        let users = format!("users: [{}]", "{name: 1, lock-passwd: 2, x: 3},".repeat(10_000));
        let many = found(&users);
        assert_eq!(many.errors.len(), MAX_PROBLEMS + 1);
        assert_eq!(many.errors.last().unwrap().to_string(), "there may be more than these 100 mistakes");
        assert!(many.deprecations.len() <= MAX_PROBLEMS);
        let old = format!("users: [{}]", "{name: a, lock-passwd: true},".repeat(1_000));
        assert_eq!(found(&old).deprecations.len(), MAX_PROBLEMS);
        let pools: Vec<String> = (0..20_000).map(|n| n.to_string() + "x").collect();
        assert!(errors(&format!("ntp: {{pools: [{}]}}", pools.join(","))).is_empty());
        let keys: Vec<String> = (0..20_000).map(|n| format!("k{n}: 1")).collect();
        assert_eq!(errors(&format!("users: [{{{}}}]", keys.join(","))).len(), MAX_PROBLEMS + 1);
        assert!(cpu_time() - start < Duration::from_secs(30));
    }

    #[test]
    fn every_key_that_activates_a_module_is_known() {
        let Some(table) = vectors("key_to_modules.json") else { return };
        let grammar = Grammar::new(texts::cloud_config());
        for key in table.as_map().unwrap().keys() {
            assert!(grammar.top.named(key).is_some(), "{key}");
        }
    }
}
