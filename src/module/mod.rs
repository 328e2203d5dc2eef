//! One file per cloud-config module, and the table of them.
//!
//! A module is ordinary code against a [`Context`]: the root, the merged cloud-config, the instance, the report. What only
//! writes files is done before the pivot (`provision`); what needs the running system is done by a later stage (`live`).
//!
//! To add one: write its file, and name its `MODULE` in [`MODULES`]. Nothing else names a module. The file's doc comment begins
//! with a heading, the module's name; what follows is what `schema --docs` prints, and a block marked `schema` with its keys in
//! the notation of [`crate::schema`].

mod ansible;
mod apk_configure;
mod apt_configure;
mod apt_pipelining;
mod bootcmd;
mod byobu;
mod ca_certs;
mod chef;
mod disable_ec2_metadata;
mod disk_setup;
mod fan;
mod final_message;
mod growpart;
mod grub_dpkg;
mod install_hotplug;
mod keyboard;
mod keys_to_console;
mod landscape;
mod locale;
mod lxd;
mod mcollective;
pub mod mounts;
mod ntp;
mod package_update_upgrade_install;
mod phone_home;
mod power_state_change;
mod puppet;
mod raspberry_pi;
mod reset_rmc;
mod resizefs;
mod resolv_conf;
mod rh_subscription;
mod rsyslog;
mod runcmd;
mod salt_minion;
mod scripts;
mod seed_random;
pub mod set_hostname;
mod set_passwords;
mod snap;
mod spacewalk;
mod ssh;
mod ssh_authkey_fingerprints;
mod ssh_import_id;
mod timezone;
mod ubuntu_autoinstall;
mod ubuntu_drivers;
mod ubuntu_pro;
mod update_etc_hosts;
mod update_hostname;
mod users_groups;
mod wireguard;
mod write_files;
mod yum_add_repo;
mod zypper_add_repo;

use crate::base::error::{Error, Result};
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::root::Stage;
use crate::system::Context;

/// One half of a module. What it ignores or replaces goes into the context's report; an error means that it did not do
/// what was asked for.
pub type Handler = fn(&mut Context) -> Result<()>;

/// What a stage calls a module for beside its place in a list. At most one module has each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Writes the machine's name; called before the network's own programs report it to others.
    Hostname,
    /// Writes SSH keys that may log in; called again for keys that came later, and its host keys are published.
    Ssh,
    /// Installs the rule for network devices that are added; called where a command switches hotplug on.
    Hotplug,
}

/// A module: everything that the rest of the program uses of it.
pub struct Module {
    /// With underscores, as in cloud-init's semaphores: `write_files`.
    pub name: &'static str,
    /// The stage whose default list has it, and in which `live` runs.
    pub stage: Stage,
    /// How often it runs where its entry in the list does not say.
    pub frequency: Frequency,
    /// It runs only if one of these is in the cloud-config; empty: always (`activate_by_schema_keys`).
    pub keys: &'static [&'static str],
    /// Distributions on which it runs; empty: all.
    pub distros: &'static [&'static str],
    /// The half that only writes files: before the pivot, or in the real root where no initramfs did it.
    pub provision: Option<Handler>,
    /// The half that needs the running system.
    pub live: Option<Handler>,
    /// Whether both halves come as soon as they can, so that the first service finds what they have done: `provision` only in the
    /// initramfs, and `live` in the local stage of the real root. Not where a command of the user's is to run first.
    pub early: bool,
    /// Whether a run that was cut off is repeated. Else it is marked as done when it begins, as in cloud-init: a user's command
    /// may end the boot.
    pub repeats: bool,
    /// Whether `live` has nothing to do in this boot although it is its time, as far as can be said before the pivot.
    pub idle: Option<fn(&mut Context) -> bool>,
    /// Whether `live` never needs the network.
    pub offline: bool,
    /// Background work: in a process of its own at idle priority, after the final stage, once for each instance.
    pub in_background: Option<Background>,
    /// Its live half runs the user's commands before every other module: file halves that ran earlier look at what they changed.
    pub runs_commands: bool,
    pub role: Option<Role>,
}

/// Work that nothing waits for.
#[derive(Clone, Copy)]
pub struct Background {
    pub run: Handler,
    /// Whether there is nothing to do: then no process is started for it.
    pub idle: fn(&mut Context) -> bool,
}

impl Module {
    /// What an entry starts from: `Module { name: "…", …, ..Module::NEW }`. It runs everywhere, and does nothing yet.
    pub const NEW: Module = Module {
        name: "",
        stage: Stage::Config,
        frequency: Frequency::Instance,
        keys: &[],
        distros: &[],
        provision: None,
        live: None,
        early: false,
        repeats: false,
        idle: None,
        offline: false,
        in_background: None,
        runs_commands: false,
        role: None,
    };

    /// The entry of a module that sets up software of its own, in this build: without the feature `software` it fails where a
    /// document asks for it, and the linker leaves its code out.
    const fn of_software(&self) -> Module {
        if cfg!(feature = "software") {
            return Module { ..*self };
        }
        let Module { name, stage, frequency, keys, distros, early, repeats, .. } = *self;
        Module { name, stage, frequency, keys, distros, live: Some(left_out), early, repeats, ..Module::NEW }
    }
}

fn left_out(_: &mut Context) -> Result<()> {
    Err(Error::new("this build of prepivot leaves it out"))
}

/// Every module of cloud-init 26.2, in the order of its default lists (config/cloud.cfg.tmpl); one of one's own stands where it is to
/// run. Those `of_software` are left out of a build without that Cargo feature.
pub static MODULES: &[&Module] = &[
    // cloud_init_modules
    &seed_random::MODULE,
    &bootcmd::MODULE,
    &write_files::MODULE,
    &growpart::MODULE,
    &resizefs::MODULE,
    &disk_setup::MODULE.of_software(),
    &mounts::MODULE,
    &set_hostname::MODULE,
    &update_hostname::MODULE,
    &update_etc_hosts::MODULE,
    &resolv_conf::MODULE,
    &ca_certs::MODULE,
    &rsyslog::MODULE.of_software(),
    &users_groups::MODULE,
    &ssh::MODULE,
    &set_passwords::MODULE,
    // cloud_config_modules
    &wireguard::MODULE.of_software(),
    &snap::MODULE.of_software(),
    &ubuntu_autoinstall::MODULE.of_software(),
    &ssh_import_id::MODULE.of_software(),
    &keyboard::MODULE,
    &locale::MODULE,
    &apk_configure::MODULE.of_software(),
    &grub_dpkg::MODULE.of_software(),
    &apt_pipelining::MODULE.of_software(),
    &apt_configure::MODULE.of_software(),
    &ubuntu_pro::MODULE.of_software(),
    &rh_subscription::MODULE.of_software(),
    &spacewalk::MODULE.of_software(),
    &yum_add_repo::MODULE.of_software(),
    &zypper_add_repo::MODULE.of_software(),
    &ntp::MODULE.of_software(),
    &timezone::MODULE,
    &raspberry_pi::MODULE.of_software(),
    &disable_ec2_metadata::MODULE,
    &runcmd::MODULE,
    &byobu::MODULE.of_software(),
    // cloud_final_modules
    &package_update_upgrade_install::MODULE.of_software(),
    &fan::MODULE.of_software(),
    &landscape::MODULE.of_software(),
    &lxd::MODULE.of_software(),
    &ubuntu_drivers::MODULE.of_software(),
    &write_files::DEFERRED,
    &puppet::MODULE.of_software(),
    &chef::MODULE.of_software(),
    &ansible::MODULE.of_software(),
    &mcollective::MODULE.of_software(),
    &salt_minion::MODULE.of_software(),
    &reset_rmc::MODULE.of_software(),
    &scripts::VENDOR,
    &scripts::PER_ONCE,
    &scripts::PER_BOOT,
    &scripts::PER_INSTANCE,
    &scripts::USER,
    &ssh_authkey_fingerprints::MODULE,
    &keys_to_console::MODULE,
    &install_hotplug::MODULE,
    &phone_home::MODULE,
    &final_message::MODULE,
    &power_state_change::MODULE,
];

/// Modules that cloud-init has removed and still accepts in a list, without doing anything.
const REMOVED: [&str; 4] = ["emit_upstart", "migrator", "refresh_rmc_and_interface", "rightscale_userdata"];

/// Modules that cloud-init has renamed: the old name and the new one.
const RENAMED: [(&str, &str); 1] = [("ubuntu_advantage", "ubuntu_pro")];

/// A module's name as a list or a command gives it, in the form of the table: `-` for `_`, a leading `cc_` and `.py` at
/// the end are allowed (cloud-init 26.2, config/modules.py, `form_module_name`).
fn canonical(name: &str) -> String {
    let name = name.trim().replace('-', "_");
    let name = name.strip_suffix(".py").unwrap_or(&name);
    let name = name.strip_prefix("cc_").unwrap_or(name);
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new).to_owned()
}

/// The module that a list or a command names.
pub fn find(name: &str) -> Option<&'static Module> {
    let name = canonical(name);
    MODULES.iter().copied().find(|m| m.name == name)
}

/// The module with a role.
pub fn with_role(role: Role) -> Option<&'static Module> {
    MODULES.iter().copied().find(|m| m.role == Some(role))
}

/// Whether cloud-init once had a module of that name.
pub fn is_removed(name: &str) -> bool {
    REMOVED.contains(&canonical(name).as_str())
}

/// The key of a stage's list of modules in the configuration.
pub fn list_key(stage: Stage) -> &'static str {
    match stage {
        Stage::Init => "cloud_init_modules",
        Stage::Config => "cloud_config_modules",
        Stage::Final => "cloud_final_modules",
    }
}

/// The lists of modules of an image without a cloud.cfg: those of all distributions together. A module that a distribution
/// has no use for does nothing without its key.
pub fn default_lists() -> Map {
    let list = |stage| MODULES.iter().filter(|m| m.stage == stage).map(|m| Value::from(m.name)).collect::<Vec<_>>();
    [Stage::Init, Stage::Config, Stage::Final].into_iter().map(|stage| (list_key(stage), list(stage))).collect()
}

#[cfg(test)]
mod fake_disks;
#[cfg(test)]
mod tests;
