//! # lxd
//!
//! Installs LXD as a snap and sets it up: with `preseed`, the text that `lxd init --preseed` takes, or with the settings of
//! `init` and `bridge`. The storage backend's tools are installed if they are missing.
//!
//! ```yaml
//! lxd:
//!   init:
//!     storage_backend: dir
//!     network_address: 0.0.0.0
//!   bridge:
//!     mode: new
//!     name: lxdbr0
//!     ipv4_address: 10.100.100.1
//!     ipv4_netmask: 24
//!     ipv4_nat: true
//! ```
//!
//! ```schema
//! lxd: {
//!  init: {
//!   network_address, storage_create_device, storage_pool, trust_password: str
//!   network_port, storage_create_loop: int
//!   storage_backend: (zfs dir lvm btrfs)
//!  }
//!  bridge: {
//!   mode!: (none existing new)
//!   name, ipv4_address, ipv4_dhcp_first, ipv4_dhcp_last, ipv6_address, domain: str
//!   mtu: int(-1..)
//!   ipv4_netmask, ipv4_dhcp_leases, ipv6_netmask: int
//!   ipv4_nat, ipv6_nat: bool
//!  }
//!  preseed: str
//! }+
//! ```

mod bridge;

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, optional_map, wrong, yaml};
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::{ModuleContext, packages, service, snap};

/// Settings of `init`, in the order in which `lxd init --auto` gets them.
const INIT: [&str; 7] = [
    "network_address",
    "network_port",
    "storage_backend",
    "storage_create_device",
    "storage_create_loop",
    "storage_pool",
    "trust_password",
];
/// Storage drivers, the program that each needs, and its package.
const DRIVERS: [(&str, &str, &str); 3] =
    [("zfs", "zfs", "zfsutils-linux"), ("lvm", "lvcreate", "lvm2"), ("btrfs", "mkfs.btrfs", "btrfs-progs")];

pub static MODULE: Module = Module {
    name: "lxd",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["lxd"],
    distros: &["ubuntu"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = optional_map("lxd", cx.get("lxd"))? else { return Ok(()) };
    if section.is_empty() {
        return Ok(());
    }
    snap::wait_seeded(cx)?;
    let empty = Map::new();
    let map = |key: &str| optional_map(&format!("lxd.{key}"), section.get(key));
    let (init, bridge) = (map("init")?.unwrap_or(&empty), map("bridge")?.unwrap_or(&empty));
    let preseed = match section.get("preseed") {
        None | Some(Value::Null) => "",
        Some(value) => value.as_str().ok_or_else(|| wrong("lxd.preseed", "a string", value))?,
    };
    let has_settings = !init.is_empty() || !bridge.is_empty();
    if has_settings && !preseed.is_empty() {
        return Err(Error::new("lxd.preseed: it cannot be combined with lxd.init or lxd.bridge"));
    }
    service::wait_for_network(cx);
    let listed = cx.root.output(Command::new(["snap", "list", "lxd"]));
    if !listed.is_ok_and(|o| o.status == 0) {
        cx.root.run(Command::new(["snap", "install", "lxd"]))?;
    }
    let needed = needed_packages(cx, init, preseed);
    if !needed.is_empty() {
        packages::install(cx, &needed)?;
    }
    cx.root.run(Command::new(["lxd", "waitready", "--timeout=300"]))?;
    if !preseed.is_empty() {
        let command = Command::new(["lxd", "init", "--preseed"]);
        return cx.root.run(command.stdin(preseed).secret(preseed));
    }
    if !init.is_empty() {
        initialise(cx, init)?;
    }
    if bridge.is_empty() { Ok(()) } else { bridge::set_up(cx, bridge, !init.is_empty()) }
}

/// Packages with the programs that the storage drivers need and the system lacks.
fn needed_packages(cx: &mut ModuleContext, init: &Map, preseed: &str) -> Vec<String> {
    let mut drivers: Vec<String> = init.get("storage_backend").and_then(Value::text).into_iter().collect();
    if preseed.contains("storage_pools") {
        match yaml::parse("lxd.preseed", preseed) {
            Ok(document) => {
                let pools = document.get("storage_pools").and_then(Value::as_list).unwrap_or_default();
                drivers.extend(pools.iter().filter_map(|pool| pool.get("driver")?.text()));
            }
            Err(e) => cx.report.warn(format_args!("{e}: what its storage pools need is not installed")),
        }
    }
    let needed = DRIVERS.iter().filter(|(driver, program, _)| {
        drivers.iter().any(|d| d == driver) && installed::which(cx.root, program).is_none()
    });
    needed.map(|(_, _, package)| (*package).to_owned()).collect()
}

fn initialise(cx: &mut ModuleContext, init: &Map) -> Result<()> {
    let option = |key: &&str| {
        let value = init.get(key).and_then(Value::text).filter(|v| !matches!(v.as_str(), "" | "0" | "false"))?;
        Some(format!("--{}={value}", key.replace('_', "-")))
    };
    let options: Vec<String> = INIT.iter().filter_map(option).collect();
    let secret = init.get("trust_password").and_then(Value::text).unwrap_or_default();
    let command = |options: Vec<String>| {
        let words = ["lxd", "init", "--auto"].map(str::to_owned).into_iter().chain(options);
        Command::new(words).secret(secret.as_str())
    };
    let first = command(options.clone());
    match cx.root.run(first) {
        Err(_) if init.get("storage_backend").and_then(Value::as_str) == Some("lvm") => {
            // The kernel of a minimal image lacks thin pools.
            let words = ["lxc", "storage", "create", "default", "lvm", "lvm.use_thinpool=false"];
            cx.root.run(Command::new(words))?;
            let rest = options.into_iter().filter(|o| !o.starts_with("--storage-backend")).collect();
            let again = command(rest);
            cx.root.run(again)
        }
        result => result,
    }
}
