//! `runcmd`: writes the script that `scripts_user` runs at the end of the boot.

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::{Context, shell};

pub static MODULE: Module = Module {
    name: "runcmd",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["runcmd"],
    distros: &[],
    provision: Some(provision),
    live: None,
};

fn provision(cx: &mut Context) -> Result<()> {
    let Some(value) = cx.get("runcmd") else { return Ok(()) };
    let script = shell::script("runcmd", value)?;
    let path = format!("{}/scripts/runcmd", cx.instance_dir());
    cx.root.write(&path, script, Attr::root(0o700))
}
