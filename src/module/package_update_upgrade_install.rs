//! # package_update_upgrade_install
//!
//! Updates the index of packages, upgrades them, and installs `packages`, with the distribution's package manager or,
//! below `snap`, with snap. A package is a name, or a name and a version. With `package_reboot_if_required` the machine
//! reboots where an upgrade asks for it.
//!
//! ```yaml
//! package_update: true
//! package_upgrade: true
//! packages:
//! - git
//! - [nginx, 1.24.0-2]
//! - snap: [hello]
//! ```
//!
//! ```schema
//! $package = str | [str]2..2
//! packages: [$package | {apt, snap: [$package]}]+
//! package_update, package_upgrade, package_reboot_if_required: bool
//! apt_update ~22.2 package_update
//! apt_upgrade ~22.2 package_upgrade
//! apt_reboot_if_required ~22.2 package_reboot_if_required
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::{Context, packages};
use std::time::Duration;

/// Left by packages that want a new boot.
const REBOOT_MARKS: [&str; 2] = ["/var/run/reboot-required", "/run/reboot-needed"];
/// How long the reboot may take to end this process. Until then nothing else may run: it would be cut off.
const REBOOT_WAIT: Duration = Duration::from_secs(63);

pub static MODULE: Module = Module {
    name: "package_update_upgrade_install",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["apt_update", "package_update", "apt_upgrade", "package_upgrade", "packages"],
    live: Some(live),
    ..Module::NEW
};

fn live(cx: &mut Context) -> Result<()> {
    let either = |a: &str, b: &str| cx.flag(a, false) || cx.flag(b, false);
    let update = either("package_update", "apt_update");
    let upgrade = either("package_upgrade", "apt_upgrade");
    let may_reboot = either("package_reboot_if_required", "apt_reboot_if_required");
    let one;
    let list = match cx.get("packages") {
        None => &[][..],
        Some(Value::List(list)) => list.as_slice(),
        Some(Value::String(name)) => {
            one = [Value::from(name.as_str())];
            &one[..]
        }
        Some(other) => return Err(wrong("packages", "a list", other)),
    };
    let mut errors = Vec::new();
    if update || upgrade {
        errors.extend(packages::refresh(cx).err());
    }
    if upgrade {
        errors.extend(packages::upgrade(cx).err());
    }
    if !list.is_empty() {
        errors.extend(packages::install_listed(cx, list).err());
    }
    let mark = REBOOT_MARKS.iter().find(|mark| cx.root.is_file(mark));
    if let Some(mark) = mark.filter(|_| may_reboot && (upgrade || !list.is_empty())) {
        log::info!("rebooting, because there is {mark} and package_reboot_if_required is true");
        match cx.root.run(Command::new(cx.stage, ["/sbin/reboot"])) {
            Ok(()) if cx.root.is_live() => {
                std::thread::sleep(REBOOT_WAIT);
                errors.push(Error::new(format!(
                    "no reboot for {} seconds after it was asked for",
                    REBOOT_WAIT.as_secs()
                )));
            }
            result => errors.extend(result.err()),
        }
    }
    let Some(last) = errors.pop() else { return Ok(()) };
    for e in &errors {
        cx.report.warn(e);
    }
    Err(last)
}
