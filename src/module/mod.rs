//! One file per cloud-config module, and the table of them.
//!
//! A module is ordinary code against [`Root`], its part of the merged cloud-config and the instance. What needs files only
//! is done before the pivot (`provision`); what needs the running system is done by a later stage (`live`).

mod apk_configure;
mod apt_pipelining;
mod bootcmd;
mod ca_certs;
mod disable_ec2_metadata;
mod final_message;
mod keyboard;
mod keys_to_console;
mod locale;
pub mod mounts;
mod ntp;
mod package_update_upgrade_install;
mod phone_home;
mod power_state_change;
mod resolv_conf;
mod rsyslog;
mod runcmd;
mod scripts;
mod seed_random;
pub mod set_hostname;
mod set_passwords;
mod ssh;
mod ssh_authkey_fingerprints;
mod ssh_import_id;
mod timezone;
mod update_etc_hosts;
mod update_hostname;
mod users_groups;
mod write_files;
mod yum_add_repo;
mod zypper_add_repo;

use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::Stage;
use crate::system::Context;

/// One half of a module.
pub type Handler = fn(&mut Context) -> Result<()>;

/// A line of the table.
pub struct Module {
    /// With underscores, as in cloud-init's semaphores: `write_files`.
    pub name: &'static str,
    /// The stage whose list has it by default, and in which `live` runs.
    pub stage: Stage,
    pub frequency: Frequency,
    /// Runs only if one of these is in the cloud-config; empty: always (`activate_by_schema_keys`).
    pub keys: &'static [&'static str],
    /// Distributions that it is for; empty: all.
    pub distros: &'static [&'static str],
    /// Files only: before the pivot, or in the real root where no initramfs did it.
    pub provision: Option<Handler>,
    /// What needs the running system.
    pub live: Option<Handler>,
}

/// Every module, in no order of importance: a stage's list says what runs when.
pub static MODULES: &[&Module] = &[
    &apk_configure::MODULE,
    &apt_pipelining::MODULE,
    &bootcmd::MODULE,
    &ca_certs::MODULE,
    &disable_ec2_metadata::MODULE,
    &final_message::MODULE,
    &keyboard::MODULE,
    &keys_to_console::MODULE,
    &locale::MODULE,
    &mounts::MODULE,
    &ntp::MODULE,
    &package_update_upgrade_install::MODULE,
    &phone_home::MODULE,
    &power_state_change::MODULE,
    &resolv_conf::MODULE,
    &rsyslog::MODULE,
    &runcmd::MODULE,
    &scripts::PER_BOOT,
    &scripts::PER_INSTANCE,
    &scripts::PER_ONCE,
    &scripts::USER,
    &scripts::VENDOR,
    &seed_random::MODULE,
    &set_hostname::MODULE,
    &set_passwords::MODULE,
    &ssh::MODULE,
    &ssh_authkey_fingerprints::MODULE,
    &ssh_import_id::MODULE,
    &timezone::MODULE,
    &update_etc_hosts::MODULE,
    &update_hostname::MODULE,
    &users_groups::MODULE,
    &write_files::MODULE,
    &write_files::DEFERRED,
    &yum_add_repo::MODULE,
    &zypper_add_repo::MODULE,
];

/// The module that a list or a command names: `-` for `_` and a leading `cc_` are allowed.
pub fn find(name: &str) -> Option<&'static Module> {
    let name = name.replace('-', "_");
    let name = name.strip_prefix("cc_").unwrap_or(&name);
    MODULES.iter().copied().find(|m| m.name == name)
}

#[cfg(test)]
mod tests;
