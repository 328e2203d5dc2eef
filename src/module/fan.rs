//! # fan
//!
//! Writes the configuration of Ubuntu's fan networking, installs the package if it is missing, and restarts and enables
//! the service.
//!
//! ```yaml
//! fan:
//!   config: |
//!     10.0.0.0/8 eth0/16 dhcp
//! ```
//!
//! ```schema
//! fan: {config!, config_path: str}
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Stage, installed};
use crate::system::service::{self, Action};
use crate::system::{ModuleContext, packages};

const FILE: &str = "/etc/network/fan";
const SERVICE: &str = "ubuntu-fan";

pub static MODULE: Module = Module {
    name: "fan",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["fan"],
    distros: &["ubuntu"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// The file and its text, if there is one to write.
fn asked(cx: &mut ModuleContext) -> Option<(String, String)> {
    let section = cx.map("fan")?;
    let text = |key: &str| section.get(key).and_then(|v| v.text()).filter(|t| !t.is_empty());
    let config = text("config")?;
    let end = if config.ends_with('\n') { "" } else { "\n" };
    Some((text("config_path").unwrap_or(FILE.to_owned()), format!("{config}{end}")))
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    match asked(cx) {
        Some((path, text)) => cx.root.write(&path, text, Attr::root(0o644)),
        None => Ok(()),
    }
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    if asked(cx).is_none() {
        return Ok(());
    }
    if installed::which(cx.root, "fanctl").is_none() {
        packages::install(cx, &[SERVICE.to_owned()])?;
    }
    for action in [Action::Stop, Action::Start] {
        if let Err(e) = service::manage(cx, action, SERVICE) {
            cx.report.warn(format_args!("fan: {e}"));
        }
    }
    service::manage(cx, Action::Enable, SERVICE)
}
