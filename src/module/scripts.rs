//! Scripts of the image, of vendor-data and of user-data: `scripts_per_boot`, `scripts_per_instance`, `scripts_per_once`,
//! `scripts_vendor`, `scripts_user`.

use super::{Handler, Module};
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::Frequency;
use crate::root::{Command, FileKind, Root, Stage};
use crate::system::service::wait_for_network;
use crate::system::{ModuleContext, shell};
use rustix::fs::{StatVfsMountFlags, statvfs};

/// The image's own scripts.
const EACH_BOOT: &str = "/var/lib/cloud/scripts/per-boot";
const EACH_INSTANCE: &str = "/var/lib/cloud/scripts/per-instance";
const ONE_TIME: &str = "/var/lib/cloud/scripts/per-once";

fn of_user(cx: &ModuleContext) -> String {
    format!("{}/scripts", cx.instance_dir())
}

fn of_vendor(cx: &ModuleContext) -> String {
    format!("{}/scripts/vendor", cx.instance_dir())
}

const fn module(
    name: &'static str,
    frequency: Frequency,
    running: Handler,
    idle: fn(&mut ModuleContext) -> bool,
) -> Module {
    Module { name, stage: Stage::Final, frequency, running: Some(running), idle: Some(idle), ..Module::NEW }
}

/// # scripts_per_boot
///
/// Runs the programs in /var/lib/cloud/scripts/per-boot, on every boot.
pub static PER_BOOT: Module =
    module("scripts_per_boot", Frequency::Always, per_boot, |cx| cx.root.list(EACH_BOOT).is_empty());

/// # scripts_per_instance
///
/// Runs the programs in /var/lib/cloud/scripts/per-instance, once for each instance.
pub static PER_INSTANCE: Module =
    module("scripts_per_instance", Frequency::Instance, per_instance, |cx| cx.root.list(EACH_INSTANCE).is_empty());

/// # scripts_per_once
///
/// Runs the programs in /var/lib/cloud/scripts/per-once, once in the life of the image.
pub static PER_ONCE: Module =
    module("scripts_per_once", Frequency::Once, per_once, |cx| cx.root.list(ONE_TIME).is_empty());

/// # scripts_user
///
/// Runs the scripts of user-data and the commands of `runcmd`, once for each instance, in the order of their names.
pub static USER: Module = module("scripts_user", Frequency::Instance, user, |cx| cx.root.list(&of_user(cx)).is_empty());

/// # scripts_vendor
///
/// Runs the scripts of vendor-data, once for each instance, with `vendor_data: prefix` before each. `vendor_data:
/// {enabled: false}` switches vendor-data off.
///
/// ```yaml
/// vendor_data:
///   enabled: true
///   prefix: [/usr/bin/nice]
/// ```
///
/// ```schema
/// vendor_data: {
///  enabled: bool | str ~22.3 "Use a boolean instead."
///  prefix: [str | int] | str
/// }
/// ```
pub static VENDOR: Module =
    module("scripts_vendor", Frequency::Instance, vendor, |cx| cx.root.list(&of_vendor(cx)).is_empty());

fn per_boot(cx: &mut ModuleContext) -> Result<()> {
    run_parts(cx, EACH_BOOT, &[])
}

fn per_instance(cx: &mut ModuleContext) -> Result<()> {
    run_parts(cx, EACH_INSTANCE, &[])
}

fn per_once(cx: &mut ModuleContext) -> Result<()> {
    run_parts(cx, ONE_TIME, &[])
}

fn user(cx: &mut ModuleContext) -> Result<()> {
    run_parts(cx, &of_user(cx), &[])
}

/// With the user's `vendor_data: prefix` before each.
fn vendor(cx: &mut ModuleContext) -> Result<()> {
    let prefix = match cx.config.at(&["vendor_data", "prefix"]) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(program)) if program.is_empty() => Vec::new(),
        Some(Value::String(program)) => vec![program.to_string()],
        Some(Value::List(list)) if list.is_empty() => Vec::new(),
        Some(value) => shell::words("vendor_data.prefix", value)?,
    };
    run_parts(cx, &of_vendor(cx), &prefix)
}

/// Runs every executable file of a folder, in the order of their names. A failure does not stop the others.
///
/// An error that names those that failed.
fn run_parts(cx: &mut ModuleContext, folder: &str, prefix: &[String]) -> Result<()> {
    let noexec = cx.root.is_live() && statvfs(folder).is_ok_and(|s| s.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let (mut run, mut failed) = (0, Vec::new());
    for name in cx.root.list(folder) {
        let path = format!("{folder}/{name}");
        let Some(stat) = cx.root.stat(&path).filter(|s| s.kind == FileKind::File) else { continue };
        if stat.attr.mode & 0o111 == 0 {
            cx.report.warn(format_args!("{path} is not run: it is not executable"));
            continue;
        }
        let by = if noexec && prefix.is_empty() { interpreter(cx.root, &path) } else { Vec::new() };
        let argv = prefix.iter().chain(&by).cloned().chain([path]);
        if run == 0 {
            wait_for_network(cx);
            let synced = cx.root.sync_marks();
            cx.report.keep(synced);
        }
        run += 1;
        if let Err(e) = cx.root.run(Command::new(argv)) {
            cx.report.warn(e);
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("{} of {run} scripts in {folder} failed: {}", failed.len(), failed.join(", "))))
}

/// The program and its argument in a script's first line, as execve(2) reads it. For file systems that forbid execution.
fn interpreter(root: &Root, path: &str) -> Vec<String> {
    let text = root.text(path);
    let line = text.lines().next().and_then(|l| l.strip_prefix("#!")).unwrap_or("").trim();
    let (program, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    [program, argument.trim()].iter().filter(|w| !w.is_empty()).map(|w| (*w).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{Attr, Use};

    #[test]
    fn names_the_interpreter_on_a_noexec_file_system() {
        let dir = crate::base::testing::TempDir::new("scripts");
        let mut root = dir.root(Use::Tree);
        for (text, argv) in [
            ("#!/bin/sh\nx", &["/bin/sh"][..]),
            ("#! /usr/bin/env python3 -u \nx", &["/usr/bin/env", "python3 -u"]),
            ("x", &[]),
        ] {
            root.write("/s", text, Attr::root(0o700)).unwrap();
            assert_eq!(interpreter(&root, "/s"), argv);
        }
    }
}
