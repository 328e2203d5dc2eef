//! # disable_ec2_metadata
//!
//! Prohibits the route to the EC2 metadata service, on every boot, so that no program of the machine can read it any
//! more.
//!
//! ```yaml
//! disable_ec2_metadata: true
//! ```
//!
//! ```schema
//! disable_ec2_metadata: bool
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::ModuleContext;

pub static MODULE: Module = Module {
    name: "disable_ec2_metadata",
    stage: Stage::Config,
    frequency: Frequency::Always,
    keys: &["disable_ec2_metadata"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    if !cx.flag("disable_ec2_metadata", false) {
        return Ok(());
    }
    let argv: &[&str] = if !cx.root.is_live() || installed::which(cx.root, "ip").is_some() {
        &["ip", "route", "add", "prohibit", "169.254.169.254"]
    } else if installed::which(cx.root, "route").is_some() {
        &["route", "add", "-host", "169.254.169.254", "reject"]
    } else {
        return Err(Error::new("disable_ec2_metadata: neither ip nor route is installed: the service stays reachable"));
    };
    cx.root.run(Command::new(argv.iter().copied()))
}
