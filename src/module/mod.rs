//! One file per cloud-config module, and the table of them.
//!
//! A module is a function of its [`ModuleContext`]: the root, the merged cloud-config, the instance, the report.
//! What only writes files is done before the pivot (`before_pivot`); what needs the running system is done in a
//! stage of the real root (`running`).
//!
//! To add one, write its file and add its `MODULE` to [`MODULES`]. No other file uses its name. The file's
//! doc comment begins with a heading, the module's name; the rest is printed by `schema --docs`, and a
//! block marked `schema` lists its keys in the notation of [`crate::schema`].

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
use crate::system::ModuleContext;

/// One half of a module. Ignored or replaced values are added to the context's report. An error means that the request failed.
pub type Handler = fn(&mut ModuleContext) -> Result<()>;

/// The special tasks for which a stage calls a module, apart from its place in a list. At most one module has each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Writes the host name. Called before the network's programs report it to others.
    Hostname,
    /// Writes the SSH keys that may log in. Called again for keys that arrive later; its host keys are
    /// published.
    Ssh,
    /// Sets passwords. Runs again for one that the source brings later.
    Passwords,
    /// Installs the udev rule for added network devices. Called when a command switches hotplug on.
    Hotplug,
}

/// A module: everything that the rest of the program knows about it.
pub struct Module {
    /// The name with underscores, as in cloud-init's semaphores: `write_files`.
    pub name: &'static str,
    /// The stage whose default list contains it, and in which `running` runs.
    pub stage: Stage,
    /// How often it runs, unless its list entry says otherwise.
    pub frequency: Frequency,
    /// It runs only if the cloud-config has one of these keys; empty: always (`activate_by_schema_keys`).
    pub keys: &'static [&'static str],
    /// The distributions on which it runs; empty: all.
    pub distros: &'static [&'static str],
    /// The half that only writes files: before the pivot, or in a real root that no initramfs provisioned.
    pub before_pivot: Option<Handler>,
    /// The half that needs the running system.
    pub running: Option<Handler>,
    /// What it does in the real root's local stage, before every service.
    pub before_services: BeforeServices,
    /// Whether an interrupted run is repeated. Otherwise it is marked as done when it begins, as in
    /// cloud-init, because a user's command may end the boot.
    pub repeats: bool,
    /// Whether `running`, although due, has nothing to do in this boot, as far as that is known before the
    /// pivot.
    pub idle: Option<fn(&mut ModuleContext) -> bool>,
    /// Whether `running` never needs the network.
    pub offline: bool,
    /// Background work: done once for each instance after the final stage, in a separate process with idle
    /// priority.
    pub in_background: Option<Background>,
    /// Whether `running` runs the user's commands before all other modules. File halves that ran earlier check
    /// what these commands changed.
    pub runs_commands: bool,
    pub role: Option<Role>,
    /// Whether it sets up other software: builds without the feature `software` leave it out.
    pub of_software: bool,
}

/// What a module does before every service, in the real root's local stage. If it is `running`, `before_pivot` runs only in the
/// initramfs, and neither runs there if one of the user's commands has to run first.
#[derive(Clone, Copy)]
pub enum BeforeServices {
    Nothing,
    /// `running`.
    Running,
    /// `running`, if this returns true: the local stage has what it needs. Otherwise the network stage runs it, with all that
    /// comes after it in the list.
    IfReady(fn(&mut ModuleContext) -> bool),
    /// This, in its place in the list. It is not marked as done.
    Step(Handler),
}

/// Work that nothing waits for.
#[derive(Clone, Copy)]
pub struct Background {
    pub run: Handler,
    /// Whether there is nothing to do, so that no process is started.
    pub idle: fn(&mut ModuleContext) -> bool,
}

impl Module {
    /// Whether `running` may run before every service.
    pub fn runs_before_services(&self) -> bool {
        matches!(self.before_services, BeforeServices::Running | BeforeServices::IfReady(_))
    }

    /// The defaults of an entry: `Module { name: "…", …, ..Module::NEW }`. It runs everywhere, and does
    /// nothing.
    pub const NEW: Module = Module {
        name: "",
        stage: Stage::Config,
        frequency: Frequency::Instance,
        keys: &[],
        distros: &[],
        before_pivot: None,
        running: None,
        before_services: BeforeServices::Nothing,
        repeats: false,
        idle: None,
        offline: false,
        in_background: None,
        runs_commands: false,
        role: None,
        of_software: false,
    };

    /// The entry, in this build, of a module that sets up other software. Without the feature `software` it
    /// fails if it has something to do, and the linker drops its code. One without `keys` needs `idle`.
    const fn of_software(&self) -> Module {
        let software = Module { of_software: true, ..*self };
        if cfg!(feature = "software") {
            return software;
        }
        Module {
            before_pivot: None,
            running: Some(left_out),
            before_services: match self.before_services {
                BeforeServices::IfReady(_) => BeforeServices::Running,
                other => other,
            },
            offline: false,
            in_background: None,
            ..software
        }
    }

    /// Whether this build leaves it out: `running` fails, and is called only where `idle` says that something is missed.
    pub fn is_left_out(&self) -> bool {
        self.of_software && cfg!(not(feature = "software"))
    }
}

fn left_out(_: &mut ModuleContext) -> Result<()> {
    Err(Error::new("this build of prepivot leaves it out"))
}

/// Every module of cloud-init 26.2, in the order of its default lists (config/cloud.cfg.tmpl); a module of prepivot's own is
/// inserted where it has to run. Modules marked `of_software` only fail in a build without that Cargo feature.
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

/// Modules that cloud-init has removed, but still accepts in lists without effect.
const REMOVED: [&str; 4] = ["emit_upstart", "migrator", "refresh_rmc_and_interface", "rightscale_userdata"];

/// Modules that cloud-init has renamed: the old and the new name.
const RENAMED: [(&str, &str); 1] = [("ubuntu_advantage", "ubuntu_pro")];

/// The name in the form of the table. In a list or a command, `-` for `_`, a leading `cc_` and a trailing
/// `.py` are allowed (cloud-init 26.2, config/modules.py, `form_module_name`).
fn canonical(name: &str) -> String {
    let name = bare(name);
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).to_owned())
}

/// The name without what a list may add to it.
fn bare(name: &str) -> String {
    let name = name.trim().replace('-', "_");
    let name = name.strip_suffix(".py").unwrap_or(&name);
    name.strip_prefix("cc_").unwrap_or(name).to_owned()
}

/// If cloud-init has renamed the module that had this name, both names as cloud-init has them: `cc_a to cc_b`.
pub fn renamed(name: &str) -> Option<String> {
    let (old, new) = (bare(name), canonical(name));
    (old != new).then(|| format!("cc_{old} to cc_{new}"))
}

/// The module with this name, in any form that a list or a command may use.
pub fn find(name: &str) -> Option<&'static Module> {
    let name = canonical(name);
    MODULES.iter().copied().find(|m| m.name == name)
}

/// The module with a role.
pub fn with_role(role: Role) -> Option<&'static Module> {
    MODULES.iter().copied().find(|m| m.role == Some(role))
}

/// Whether cloud-init once had a module with this name.
pub fn is_removed(name: &str) -> bool {
    REMOVED.contains(&canonical(name).as_str())
}

/// The module lists of an image without a cloud.cfg: those of all distributions combined. A module that a
/// distribution does not need does nothing without its key.
pub fn default_lists() -> Map {
    let list = |stage| MODULES.iter().filter(|m| m.stage == stage).map(|m| Value::from(m.name)).collect::<Vec<_>>();
    Stage::WITH_MODULES.into_iter().map(|stage| (stage.list_key(), list(stage))).collect()
}

#[cfg(test)]
pub mod fake_disks;
#[cfg(test)]
mod tests;
