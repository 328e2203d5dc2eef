//! # bootcmd
//!
//! Runs commands on every boot, early in the real root: before the other modules of the init stage. A string is a line of
//! shell, a list is a command and its arguments. INSTANCE_ID is in the environment.
//!
//! ```yaml
//! bootcmd:
//! - echo 192.0.2.7 mirror >> /etc/hosts
//! - [cloud-init-per, once, mark, touch, /etc/first-boot]
//! ```
//!
//! ```schema
//! bootcmd: [[str] | str]+
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::{ModuleContext, shell};

/// Read by the shell, so a file system without execution does no harm. Only root may: commands can hold secrets.
const SCRIPT: &str = "/run/cloud-init/bootcmd.sh";

pub static MODULE: Module = Module {
    name: "bootcmd",
    stage: Stage::Network,
    frequency: Frequency::Always,
    keys: &["bootcmd"],
    running: Some(running),
    runs_commands: true,
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(value) = cx.get("bootcmd") else { return Ok(()) };
    let script = shell::script("bootcmd", value)?;
    cx.root.write(SCRIPT, script, Attr::root(0o700))?;
    let command = Command::new(["/bin/sh", SCRIPT]);
    cx.root.run(command.env("INSTANCE_ID", cx.instance.instance_id.as_str()))
}
