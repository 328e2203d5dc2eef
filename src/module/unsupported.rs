//! cloud-init's modules that prepivot does not have yet. Their keys are accepted, and reported where a document asks for them.
//!
//! To add one: write its file with a `MODULE` and the doc comment that is here, name that in the table in the place of the entry
//! here, and remove the entry.

use super::Module;
use crate::document::Value;
use crate::instance::Frequency::{self, Always, Instance};
use crate::root::Stage::{self, Config, Final};

type Names = &'static [&'static str];

const fn entry(name: &'static str, stage: Stage, frequency: Frequency, keys: Names, distros: Names) -> Module {
    Module { name, stage, frequency, keys, distros, provision: None, live: None, at_end: None }
}

/// # ansible
///
/// Installs Ansible and runs playbooks. Not supported yet.
///
/// ```schema
/// $pull = {
///  (one playbook_name playbook_names)
///  accept_host_key, clean, full, diff, verify_commit: bool
///  ssh_common_args, scp_extra_args, sftp_extra_args, private_key, checkout, module_path, timeout, url!, connection,
///   vault_id, vault_password_file, inventory, module_name, sleep, tags, skip_tags: str
///  playbook_name: str ~25.2 playbook_names
///  playbook_names: [str]
/// }
/// ansible: {
///  install_method: (distro pip)
///  run_user, ansible_config, package_name: str
///  setup_controller: {
///   repositories: [{path!, source!: str}]
///   run_ansible: [{
///    playbook_name, playbook_dir, become_password_file, connection_password_file, vault_id, vault_password_file,
///     module_path, args, extra_vars, inventory, scp_extra_args, sftp_extra_args, private_key, connection, module_name,
///     sleep, tags, skip_tags: str
///    list_hosts, syntax_check, check, diff: bool
///    timeout, background, poll, forks: num(0..)
///    ...
///   }]
///  }
///  galaxy: {actions!: [[str/line_or_nothing]]}
///  pull: [$pull] | $pull ~25.2 "Use a list of mappings."
/// }
/// ```
pub static ANSIBLE: Module = entry("ansible", Final, Instance, &["ansible"], &[]);

/// # chef
///
/// Installs and configures Chef. Not supported yet.
///
/// ```schema
/// chef: {
///  directories: [str]+ unique
///  config_path, validation_cert, validation_key, firstboot_path, client_key, encrypted_data_bag_secret, environment,
///   file_backup_path, file_cache_path, json_attribs, log_level, log_location, node_name, omnibus_url, omnibus_version,
///   pid_file, server_url, ssl_verify_mode, validation_name: str
///  exec, show_time, force_install: bool
///  omnibus_url_retries: int
///  initial_attributes: map
///  install_type: (packages gems omnibus)
///  run_list: [str]
///  chef_license: (accept accept-silent accept-no-persist)
/// }+
/// ```
pub static CHEF: Module = entry("chef", Final, Always, &["chef"], &[]);

/// # mcollective
///
/// Installs and configures MCollective. Not supported yet.
///
/// ```schema
/// mcollective: {conf: {public-cert, private-cert: str  *: bool | int | str}}
/// ```
pub static MCOLLECTIVE: Module = entry("mcollective", Final, Instance, &["mcollective"], &[]);

/// # puppet
///
/// Installs and configures Puppet. Not supported yet.
///
/// ```schema
/// puppet: {
///  install, cleanup, exec, start_service: bool
///  version, collection, aio_install_url, conf_file, ssl_dir, csr_attributes_path, package_name: str
///  install_type: (packages aio)
///  exec_args: [str]
///  conf: {main, server, agent, user: map  ca_cert: str}
///  csr_attributes: {custom_attributes, extension_requests: map}
/// }
/// ```
pub static PUPPET: Module = entry("puppet", Final, Instance, &["puppet"], &[]);

/// # raspberry_pi
///
/// Switches interfaces of a Raspberry Pi on and off. Not supported yet.
///
/// ```schema
/// rpi: {
///  interfaces: {
///   spi, i2c, onewire: bool
///   serial: bool | {console, hardware: bool  ...}
///   ...
///  }
///  enable_usb_gadget: bool
///  ...
/// }
/// ```
pub static RASPBERRY_PI: Module = entry("raspberry_pi", Config, Instance, &["rpi"], &["raspberry-pi-os"]);

/// # reset_rmc
///
/// Resets the node id of RSCT on PowerVM. Not supported yet.
pub static RESET_RMC: Module = entry("reset_rmc", Final, Instance, &[], &[]);

/// # rh_subscription
///
/// Registers the machine with Red Hat. Not supported yet.
///
/// ```schema
/// rh_subscription: {
///  (single)
///  username, password, activation_key, service_level, release_version, rhsm_baseurl, server_hostname: str
///  org: str | int ~24.2 "Use a string instead."
///  auto_attach: bool
///  add_pool, enable_repo, disable_repo: [str]
///  activation-key ~25.3 activation_key
///  auto-attach ~25.3 auto_attach
///  service-level ~25.3 service_level
///  add-pool ~25.3 add_pool
///  enable-repo ~25.3 enable_repo
///  disable-repo ~25.3 disable_repo
///  rhsm-baseurl ~25.3 rhsm_baseurl
///  server-hostname ~25.3 server_hostname
/// }
/// ```
pub static RH_SUBSCRIPTION: Module =
    entry("rh_subscription", Config, Instance, &["rh_subscription"], &["fedora", "rhel"]);

/// # salt_minion
///
/// Installs and configures a Salt minion. Not supported yet.
///
/// ```schema
/// salt_minion: {
///  pkg_name, service_name, config_dir, public_key, private_key, pki_dir: str
///  conf, grains: map
/// }
/// ```
pub static SALT_MINION: Module = entry("salt_minion", Final, Instance, &["salt_minion"], &[]);

/// # spacewalk
///
/// Registers the machine with Spacewalk. Not supported yet.
///
/// ```schema
/// spacewalk: {server, proxy, activation_key: str}
/// ```
pub static SPACEWALK: Module = entry("spacewalk", Config, Instance, &["spacewalk"], &["rhel", "fedora", "openeuler"]);

/// # wireguard
///
/// Writes WireGuard interfaces and brings them up. Not supported yet.
///
/// ```schema
/// wireguard: null | {
///  interfaces!: [{name, config_path, content: str}]+
///  readinessprobe: [str] unique
/// }+
/// ```
pub static WIREGUARD: Module = entry("wireguard", Config, Instance, &["wireguard"], &["ubuntu"]);

/// The key with which a configuration asks for an unsupported module.
pub fn requested(module: &Module, config: &Value) -> Option<&'static str> {
    let asks = |value: &Value| !value.is_null();
    module.keys.iter().copied().find(|key| config.get(key).is_some_and(asks))
}
