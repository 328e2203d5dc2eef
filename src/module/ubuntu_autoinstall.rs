//! # ubuntu_autoinstall
//!
//! Configuration of Ubuntu's installer, which reads it itself. If no installer is there, the module warns.
//!
//! ```yaml
//! autoinstall:
//!   version: 1
//! ```
//!
//! ```schema
//! autoinstall: {version!: int  ...}
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::{ModuleContext, snap};

/// Snaps of the installers.
const INSTALLERS: [&str; 2] = ["subiquity", "ubuntu-desktop-installer"];

pub static MODULE: Module = Module {
    name: "ubuntu_autoinstall",
    stage: Stage::Config,
    frequency: Frequency::Once,
    keys: &["autoinstall"],
    distros: &["ubuntu"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    snap::wait_seeded(cx)?;
    let list = cx.root.output(Command::new(["snap", "list"]))?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    if INSTALLERS.iter().any(|name| list.contains(name)) {
        log::debug!("Valid autoinstall schema. Config will be processed by subiquity");
    } else if cx.root.runs_commands() {
        cx.report.warn(format_args!(
            "autoinstall: it is ignored, because none of the installers is there: expected the snap {}",
            INSTALLERS.join(" or ")
        ));
    }
    Ok(())
}
