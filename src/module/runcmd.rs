//! # runcmd
//!
//! Writes commands as a script, which the module scripts_user runs in the final stage of an instance's first boot. A
//! string is a line of shell, a list is a command and its arguments.
//!
//! ```yaml
//! runcmd:
//! - systemctl enable --now app
//! - [touch, /var/lib/app/ready]
//! ```
//!
//! ```schema
//! runcmd: [[str] | str | null]+
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::{ModuleContext, shell};

pub static MODULE: Module = Module {
    name: "runcmd",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["runcmd"],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(value) = cx.get("runcmd") else { return Ok(()) };
    let script = shell::script("runcmd", value)?;
    let path = format!("{}/scripts/runcmd", cx.instance_dir());
    cx.root.write(&path, script, Attr::root(0o700))
}
