//! # wireguard
//!
//! Writes the configuration of WireGuard interfaces, brings them up with wg-quick, and runs probes that check whether they work.
//! The files are there before the system starts; the tools are installed if they are missing.
//!
//! ```yaml
//! wireguard:
//!   interfaces:
//!   - name: wg0
//!     config_path: /etc/wireguard/wg0.conf
//!     content: |
//!       [Interface]
//!       PrivateKey = <key>
//!       Address = 192.0.2.1/24
//!   readinessprobe: ['systemctl is-active wg-quick@wg0']
//! ```
//!
//! ```schema
//! wireguard: null | {
//!  interfaces!: [{name, config_path, content: str}]+
//!  readinessprobe: [str] unique
//! }+
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage, installed};
use crate::system::{ModuleContext, packages, service};

/// The first kernel that has WireGuard of its own.
const FIRST_KERNEL: (u32, u32) = (5, 6);

pub static MODULE: Module = Module {
    name: "wireguard",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["wireguard"],
    distros: &["ubuntu"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// An entry of `interfaces`: its name, the file and the file's text.
fn interface(number: usize, entry: &Value) -> Result<[&str; 3]> {
    let key = format!("wireguard.interfaces: entry {number}");
    let text = |name: &str| {
        let value = entry.get(name).ok_or_else(|| Error::new(format!("{key}: {name} is needed")))?;
        value.as_str().ok_or_else(|| wrong(&format!("{key}.{name}"), "a string", value))
    };
    let [name, path, content] = [text("name")?, text("config_path")?, text("content")?];
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_=+.-".contains(c)) {
        return Err(Error::new(format!("{key}.name: expected the name of an interface (wg-quick(8))")));
    }
    Ok([name, path, content])
}

fn interfaces<'a>(cx: &mut ModuleContext<'a>) -> &'a [Value] {
    let section = cx.map("wireguard");
    section.and_then(|s| s.get("interfaces")).and_then(Value::as_list).unwrap_or_default()
}

/// Writes the files up to the first entry that is wrong, which the other half reports.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    for (i, entry) in interfaces(cx).iter().enumerate() {
        let Ok([_, path, content]) = interface(i + 1, entry) else { break };
        cx.root.write(path, content, Attr::root(0o600))?;
    }
    Ok(())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let list = interfaces(cx);
    if list.is_empty() {
        return Ok(());
    }
    if installed::which(cx.root, "wg").is_none() {
        packages::refresh(cx)?;
        let old = kernel(cx).is_some_and(|version| version < FIRST_KERNEL);
        let names = ["wireguard-tools", "wireguard"].iter().take(if old { 2 } else { 1 });
        packages::install(cx, &names.map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
    }
    let loaded = cx.root.output(shell("lsmod"))?;
    if !String::from_utf8_lossy(&loaded.stdout).contains("wireguard") {
        cx.root.run(shell("modprobe wireguard")).map_err(|e| e.context("failed to load the module wireguard"))?;
    }
    for (i, entry) in list.iter().enumerate() {
        let [name, ..] = interface(i + 1, entry)?;
        let service = format!("wg-quick@{name}");
        service::control(cx, "enable", &service)?;
        service::control(cx, "restart", &service)?;
    }
    probe(cx)
}

/// Runs every command of `readinessprobe`; the error names those that fail.
fn probe(cx: &mut ModuleContext) -> Result<()> {
    let Some(probes) = cx.config.at(&["wireguard", "readinessprobe"]).filter(|p| !p.is_null()) else { return Ok(()) };
    let list = probes.as_list().ok_or_else(|| wrong("wireguard.readinessprobe", "a list", probes))?;
    if let Some(other) = list.iter().find(|p| p.as_str().is_none()) {
        return Err(wrong("wireguard.readinessprobe", "a list of strings", other));
    }
    let failed = Problems::new();
    for (i, line) in list.iter().filter_map(Value::as_str).enumerate() {
        if let Err(e) = cx.root.run(shell(line)) {
            failed.error(format!("wireguard.readinessprobe: entry {}: {e}", i + 1));
        }
    }
    failed.into_result()
}

fn shell(line: &str) -> Command {
    Command::new(["/bin/sh", "-c", line])
}

/// Version and patch level of the running kernel (proc_sys_kernel(5)).
fn kernel(cx: &ModuleContext) -> Option<(u32, u32)> {
    let release = cx.root.text("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
