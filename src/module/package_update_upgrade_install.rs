//! # package_update_upgrade_install
//!
//! Updates the index of packages, upgrades them, and installs `packages`, with the distribution's package manager or,
//! below `snap`, with snap. A package is a name, or a name and a version. With `package_reboot_if_required` the machine reboots if
//! an upgrade asks for it.
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
use crate::system::{ModuleContext, packages};
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
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
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
        match cx.root.run(Command::new(["/sbin/reboot"])) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Severity;
    use crate::base::testing::TempDir;
    use crate::root::{Output, Use};
    use crate::system::testing::Inputs;

    /// Runs the module; the package manager's task `fails` fails. Returns the error, the warnings, and the tasks.
    fn run(distro: &str, program: &str, config: &str, fails: &'static str) -> (Option<String>, Vec<String>, String) {
        let dir = TempDir::new("package-update");
        dir.program(&format!("usr/bin/{program}"));
        let mut root = dir.root(Use::Tree);
        root.play(Box::new(move |_, command| {
            let status = if command.argv.iter().any(|word| word == fails) { 100 } else { 0 };
            Ok(Output { status, stdout: b"vim\n".to_vec(), stderr: Vec::new() })
        }));
        let inputs = Inputs::new(distro, config);
        let error = running(&mut inputs.context(&mut root)).err().map(|e| e.to_string());
        let warnings = inputs.report.texts(Severity::Warning);
        let is_task = |word: &&String| ["update", "dist-upgrade", "install", "makecache"].contains(&word.as_str());
        let tasks: Vec<&str> =
            root.commands().iter().filter_map(|c| c.argv.iter().find(is_task)).map(String::as_str).collect();
        (error, warnings, tasks.join(" "))
    }

    #[test]
    fn goes_on_with_packages_if_apt_update_fails() {
        let failed = || vec!["Failed to update package using apt: apt-get ended with exit status 100".to_owned()];
        let both = "{package_update: true, packages: [vim]}";
        assert_eq!(run("debian", "apt-get", both, "update"), (None, failed(), "update install".into()));
        let all = "{package_upgrade: true, packages: [vim]}";
        assert_eq!(run("ubuntu", "apt-get", all, "update"), (None, failed(), "update dist-upgrade install".into()));
        assert_eq!(run("debian", "apt-get", "{package_update: true}", "update"), (None, failed(), "update".into()));
        // An install without an upgrade needs the lists refreshed, as in cloud-init.
        let (error, warnings, tasks) = run("debian", "apt-get", "{packages: [vim]}", "update");
        assert_eq!(error.as_deref(), Some("apt-get ended with exit status 100"));
        assert_eq!((warnings, tasks.as_str()), (vec![], "update"));
        // An error of the package itself, and of another package manager, is one.
        let (error, ..) = run("debian", "apt-get", both, "install");
        assert!(error.unwrap().contains("failed to install packages: vim"));
        let (error, _, tasks) = run("fedora", "dnf", both, "makecache");
        assert_eq!((error.as_deref(), tasks.as_str()), (Some("dnf ended with exit status 100"), "makecache install"));
    }
}
