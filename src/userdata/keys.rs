//! The keys that a cloud-config may have at its top, and what kind of value each takes (cloud-init's
//! schema-cloud-config-v1.json). What is inside a value is for the modules to judge.

use crate::document::{Map, Value, wrong};
use crate::error::Error;

/// Kinds of values, as words of an error message, and the keys that take them.
#[rustfmt::skip]
const KEYS: &[(&[Kind], &[&str])] = &[
    (&[Kind::Bool], &[
        "allow_public_ssh_keys", "apt_reboot_if_required", "apt_update", "apt_upgrade", "create_hostname_file",
        "disable_ec2_metadata", "disable_root", "manage_resolv_conf", "no_ssh_fingerprints", "package_reboot_if_required",
        "package_update", "package_upgrade", "prefer_fqdn_over_hostname", "preserve_hostname", "ssh_deletekeys",
        "ssh_quiet_keygen",
    ]),
    (&[Kind::Map], &[
        "ansible", "apk_repos", "apt", "autoinstall", "ca-certs", "ca_certs", "chef", "chpasswd", "device_aliases",
        "disk_setup", "drivers", "fan", "growpart", "grub-dpkg", "grub_dpkg", "keyboard", "landscape", "lxd",
        "mcollective", "output", "phone_home", "power_state", "puppet", "random_seed", "reporting", "resolv_conf",
        "rh_subscription", "rpi", "rsyslog", "salt_minion", "snap", "spacewalk", "ssh", "ssh_keys",
        "ssh_publish_hostkeys", "swap", "system_info", "ubuntu_advantage", "ubuntu_pro", "updates", "vendor_data",
        "yum_repos", "zypper",
    ]),
    (&[Kind::Map, Kind::Null], &["ntp", "wireguard"]),
    (&[Kind::String], &[
        "authkey_hash", "byobu_by_default", "disable_root_opts", "final_message", "fqdn", "hostname",
        "locale_configfile", "password", "timezone", "yum_repo_dir",
    ]),
    (&[Kind::String, Kind::Bool], &["locale", "manage_etc_hosts", "resize_rootfs", "ssh_pwauth"]),
    (&[Kind::String, Kind::Bool, Kind::Int], &["apt_pipelining"]),
    (&[Kind::Int], &["launch-index"]),
    (&[Kind::List], &[
        "bootcmd", "cloud_config_modules", "cloud_final_modules", "cloud_init_modules", "fs_setup",
        "mount_default_fields", "mounts", "packages", "runcmd", "ssh_authorized_keys", "ssh_fp_console_blacklist",
        "ssh_genkeytypes", "ssh_import_id", "ssh_key_console_blacklist", "write_files",
    ]),
    (&[Kind::List, Kind::String], &["merge_how", "merge_type"]),
    (&[Kind::List, Kind::Map, Kind::String], &["users"]),
    (&[], &["groups", "migrate", "user", "version"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Bool,
    Int,
    String,
    List,
    Map,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Kind::Null => value.is_null(),
            Kind::Bool => matches!(value, Value::Bool(_)),
            Kind::Int => matches!(value, Value::Int(_)),
            Kind::String => matches!(value, Value::String(_) | Value::Bytes(_)),
            Kind::List => matches!(value, Value::List(_)),
            Kind::Map => matches!(value, Value::Map(_)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Null => "nothing",
            Kind::Bool => "a boolean",
            Kind::Int => "an integer",
            Kind::String => "a string",
            Kind::List => "a list",
            Kind::Map => "a mapping",
        }
    }
}

/// What is wrong at the top of a cloud-config: keys that do not exist and keys with the wrong kind of value, in the document's
/// order. Errors name the key, never the value.
pub fn check(config: &Map) -> Vec<Error> {
    config.iter().filter_map(|(key, value)| check_one(key, value).err()).collect()
}

fn check_one(key: &str, value: &Value) -> Result<(), Error> {
    let Some((kinds, _)) = KEYS.iter().find(|(_, keys)| keys.contains(&key)) else {
        return Err(Error::new(format!("{key}: there is no such key")));
    };
    if kinds.is_empty() || kinds.iter().any(|k| k.fits(value)) {
        return Ok(());
    }
    let names: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
    Err(wrong(key, &names.join(" or "), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::testing::vectors;

    fn errors(text: &str) -> Vec<String> {
        let config = yaml::parse("t", text).unwrap();
        check(config.as_map().unwrap()).iter().map(Error::to_string).collect()
    }

    #[test]
    fn keys_and_kinds() {
        assert!(errors("{hostname: a, runcmd: [], ntp: null, ntp : {}, users: default, user: 1}").is_empty());
        assert_eq!(
            errors("{runcmd: geheim, run_cmd: [], locale: 3}"),
            [
                "runcmd: expected a list, found a string",
                "run_cmd: there is no such key",
                "locale: expected a string or a boolean, found an integer"
            ]
        );
    }

    #[test]
    fn nothing_that_cloud_init_finds_valid_is_refused() {
        let Some(cases) = vectors("schema.json") else { return };
        let (mut valid, mut found) = (0, 0);
        for case in cases.as_list().unwrap() {
            // Schemas that a test made up, and network configuration.
            let Some(config) = case.get("config").and_then(Value::as_map) else { continue };
            if config.contains_key("network") || config.contains_key("x") || config.contains_key("config") {
                continue;
            }
            if config.contains_key("ethernets") {
                continue;
            }
            let invalid = case.at(&["error", "errors"]).and_then(Value::as_list).is_some_and(|l| !l.is_empty());
            let errors = check(config);
            assert!(invalid || errors.is_empty(), "{:?}: {errors:?}", case.get("name"));
            valid += usize::from(!invalid);
            found += usize::from(!errors.is_empty());
        }
        println!("schema.json: {valid} valid ones pass, {found} invalid ones are found by their top");
        assert!(valid > 50 && found > 5);
    }

    #[test]
    fn every_key_that_activates_a_module_is_known() {
        let Some(table) = vectors("key_to_modules.json") else { return };
        for key in table.as_map().unwrap().keys() {
            assert!(KEYS.iter().any(|(_, keys)| keys.contains(&key)), "{key}");
        }
    }
}
