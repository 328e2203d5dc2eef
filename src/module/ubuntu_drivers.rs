//! # ubuntu_drivers
//!
//! Installs NVIDIA's drivers with ubuntu-drivers, if their licence is accepted, and links them into the running kernel.
//!
//! ```yaml
//! drivers:
//!   nvidia:
//!     license-accepted: true
//!     version: '535'
//! ```
//!
//! ```schema
//! drivers: {nvidia: {license-accepted!: bool  version: str}}
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Value, optional_map};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage, installed, run_dir};
use crate::system::{ModuleContext, packages};

/// The answer that lets the package of the drivers link them (debconf-devel(7)).
const TEMPLATE: &str = "Template: linux/nvidia/latelink\nType: boolean\nDefault: true\n\
                        Description: Link the kernel modules of NVIDIA?\n They are made usable for the running kernel.\n";

pub static MODULE: Module = Module {
    name: "ubuntu_drivers",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["drivers"],
    distros: &["ubuntu"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = optional_map("drivers", cx.get("drivers"))? else { return Ok(()) };
    let nvidia = section.get("nvidia");
    if !nvidia.and_then(|n| n.get("license-accepted")).is_some_and(Value::is_true) {
        log::info!("drivers.nvidia.license-accepted is not true: no drivers are installed");
        return Ok(());
    }
    if installed::which(cx.root, "ubuntu-drivers").is_none() {
        packages::install(cx, &["ubuntu-drivers-common".to_owned()])?;
    }
    let version = nvidia.and_then(|n| n.get("version")).and_then(Value::text).filter(|v| !v.is_empty());
    let driver = version.map_or("nvidia".to_owned(), |version| format!("nvidia:{version}"));
    load_template(cx)?;
    let command = Command::new(["ubuntu-drivers", "install", "--gpgpu", &driver]).with_errors();
    let output = cx.root.output(command)?;
    if output.status == 0 {
        return Ok(());
    }
    let has = |bytes: &[u8], text: &str| String::from_utf8_lossy(bytes).contains(text);
    let why = if has(&output.stderr, "invalid choice: 'install'") {
        ": it is too old to install drivers"
    } else if has(&output.stdout, "No drivers found for installation.") {
        ": it has found no drivers for this machine"
    } else {
        ""
    };
    Err(Error::new(format!("ubuntu-drivers install {driver} ended with exit status {}{why}", output.status)))
}

/// Gives the template to debconf, in the name of cloud-init, which no package has.
fn load_template(cx: &mut ModuleContext) -> Result<()> {
    let path = format!("{}/nvidia.template", run_dir::DIR);
    cx.root.write(&path, TEMPLATE, Attr::root(0o600))?;
    let command = Command::new(["debconf-communicate", "-fnoninteractive", "cloud-init"]);
    let output = cx.root.output(command.stdin(format!("X_LOADTEMPLATEFILE {path}\n")))?;
    cx.root.remove(&path)?;
    // It answers each line with a status and a text.
    let refused = output.stdout.first().is_some_and(|first| *first != b'0');
    if output.status != 0 || refused {
        return Err(Error::new("debconf does not take the template linux/nvidia/latelink"));
    }
    Ok(())
}
