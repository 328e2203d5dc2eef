//! One file per cloud-config module, and the table of them.
//!
//! A module is ordinary code against [`Root`], its part of the merged cloud-config and the instance. What needs files only
//! is done before the pivot (`provision`); what needs the running system is done by a later stage (`live`).

pub mod accounts;
mod apk_configure;
mod apt_pipelining;
mod authorized_keys;
mod bootcmd;
mod ca_certs;
mod console;
mod disable_ec2_metadata;
mod final_message;
mod host_keys;
mod hostname;
mod keyboard;
mod keys_to_console;
mod locale;
pub mod mounts;
mod ntp;
mod package_update_upgrade_install;
mod packages;
pub mod password;
mod phone_home;
mod power_state_change;
mod resolv_conf;
mod rsyslog;
mod runcmd;
mod scripts;
mod seed_random;
mod service;
pub mod set_hostname;
mod set_passwords;
mod shell;
mod ssh;
mod ssh_authkey_fingerprints;
mod ssh_import_id;
mod sshd_config;
mod sudoers;
mod template;
mod timezone;
mod update_etc_hosts;
mod update_hostname;
mod users;
mod users_groups;
mod write_files;
mod yum_add_repo;
mod zypper_add_repo;

pub use service::uses_systemd;

use crate::document::{Map, Value};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::{Root, Stage};

/// How often a module runs (cloud-init's frequencies).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frequency {
    /// On every boot.
    Always,
    /// Once for each instance-id.
    Instance,
    /// Once for this disk.
    Once,
}

impl Frequency {
    /// The frequency that a document names: `always`, `once-per-instance`, `instance`, `once`, …
    pub fn named(name: &str) -> Option<Frequency> {
        match name {
            "always" => Some(Frequency::Always),
            "once-per-instance" | "instance" => Some(Frequency::Instance),
            "once" => Some(Frequency::Once),
            _ => None,
        }
    }
}

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

/// What a module works with.
pub struct Context<'a> {
    pub root: &'a mut Root,
    /// The whole merged cloud-config.
    pub config: &'a Value,
    pub instance: &'a Instance,
    pub distro: &'a Distro,
    /// Arguments of the module's entry in the list (`[name, frequency, args…]`).
    pub args: &'a [String],
    /// The stage that runs, for commands.
    pub stage: Stage,
    pub outside: &'a dyn Outside,
}

/// What modules ask of the machine beside the root: a stage answers with the machine's own, a test with what it says.
pub trait Outside {
    /// The block device that `name` means: a path below `/dev`, or `LABEL=`, `UUID=`, `PARTLABEL=` or `PARTUUID=` and a value.
    fn device(&self, name: &str) -> Option<Device>;

    /// Whether the devices of the machine can be looked at: not where a tree is provisioned for another machine.
    fn knows_devices(&self) -> bool {
        true
    }

    /// Memory of the machine, in bytes.
    fn memory(&self) -> Option<u64>;

    /// Sends an HTTP request, `tries` times at most, and gives the body of an answer that says success.
    fn http(&self, request: &Request, tries: u32) -> Result<Vec<u8>>;
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `/dev/vdb1`.
    pub path: String,
    /// The file system or other content that its superblock names: `ext4`, `swap`, `crypto_LUKS`. None where it has none that is known.
    pub content: Option<String>,
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The largest body that is taken, in bytes.
    pub limit: usize,
}

/// A machine without devices and without a network, as in a plan for another machine.
pub struct Nothing;

impl Outside for Nothing {
    fn device(&self, _name: &str) -> Option<Device> {
        None
    }

    fn memory(&self) -> Option<u64> {
        None
    }

    fn http(&self, request: &Request, _tries: u32) -> Result<Vec<u8>> {
        Err(crate::error::Error::new(format!("failed to {} {}: there is no network here", request.method, request.url)))
    }
}

impl<'a> Context<'a> {
    /// The value of a top-level key; null counts as not there.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|v| !v.is_null())
    }

    /// Whether a top-level key is true, or `default` where it is not there (`util.get_cfg_option_bool`).
    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).map_or(default, Value::is_true)
    }

    /// A top-level key as text.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(Value::text)
    }

    /// A top-level key as a mapping; the wrong kind is warned about and counts as not there.
    pub fn map(&self, key: &str) -> Option<&'a Map> {
        let value = self.get(key)?;
        if value.as_map().is_none() {
            log::warn!("cloud-config: {}", crate::document::wrong(key, "a mapping", value));
        }
        value.as_map()
    }

    /// The folder of this instance's state.
    pub fn instance_dir(&self) -> String {
        format!("/var/lib/cloud/instances/{}", self.instance.folder())
    }
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

/// One error, in one line, of everything that went wrong in a module.
fn all_or_error(problems: Vec<String>) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::new(problems.join("; ").replace(char::is_control, "\u{fffd}")))
}

/// The name of the SSH server's service: the configuration's, else the distribution's.
fn ssh_service(context: &Context) -> String {
    let named = context.config.at(&["system_info", "ssh_svcname"]).and_then(Value::as_str);
    named.unwrap_or(context.distro.ssh_service).to_owned()
}

/// The module that a list or a command names: `-` for `_` and a leading `cc_` are allowed.
pub fn find(name: &str) -> Option<&'static Module> {
    let name = name.replace('-', "_");
    let name = name.strip_prefix("cc_").unwrap_or(&name);
    MODULES.iter().copied().find(|m| m.name == name)
}

#[cfg(test)]
mod tests;
