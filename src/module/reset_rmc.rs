//! # reset_rmc
//!
//! Gives a machine on PowerVM a node id of its own: a copy of an image has the id of the image until RSCT is configured again. It
//! does nothing if RSCT is not installed.

use super::Module;
use crate::base::error::{Error, Result};
use crate::detect::NONE;
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::ModuleContext;

const PROGRAMS: &str = "/opt/rsct/install/bin";
const NODE_ID: &str = "/etc/ct_node_id";

pub static MODULE: Module = Module {
    name: "reset_rmc",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    running: Some(running),
    idle: Some(|cx| is_absent(cx)),
    offline: true,
    ..Module::NEW
};

/// Whether the machine's id is its own, or RSCT is missing.
fn is_absent(cx: &ModuleContext) -> bool {
    cx.instance.source == NONE || !cx.root.is_dir(PROGRAMS)
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    if is_absent(cx) {
        return Ok(());
    }
    let before = node_id(cx)?;
    let path =
        format!("{PROGRAMS}:{}", std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".into()));
    for argv in [&["rmcctrl", "-z"][..], &["recfgct"]] {
        cx.root.run(Command::new(argv.iter().copied()).env("PATH", path.clone()))?;
    }
    if cx.root.runs_commands() && node_id(cx)? == before {
        return Err(Error::new(format!("recfgct has not made a new node id: {NODE_ID} has the old one")));
    }
    Ok(())
}

/// The first line of the file.
fn node_id(cx: &ModuleContext) -> Result<String> {
    let bytes = cx.root.read_small(NODE_ID)?.ok_or_else(|| Error::new(format!("there is no node id in {NODE_ID}")))?;
    Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned())
}
