//! # update_hostname
//!
//! Follows the configured name on every boot, as long as /etc/hostname still has the name that was written last. Its keys
//! are those of set_hostname.
//!
//! ```yaml
//! preserve_hostname: false
//! create_hostname_file: true
//! prefer_fqdn_over_hostname: false
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::Stage;
use crate::system::ModuleContext;
use crate::system::hostname::{self, HOSTNAME, Name};

/// The name that was written last.
const PREVIOUS: &str = "/var/lib/cloud/data/previous-hostname";

pub static MODULE: Module = Module {
    name: "update_hostname",
    stage: Stage::Network,
    frequency: Frequency::Always,
    before_pivot: Some(before_pivot),
    running: Some(running),
    // PID 1 reads the file, which has the name by then.
    idle: Some(|cx| cx.root.exists(HOSTNAME)),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    if cx.flag("preserve_hostname", false) {
        return Ok(());
    }
    let Some(name) = Name::of(cx) else { return Ok(()) };
    let wanted = name.chosen(cx).to_owned();
    let previous = hostname::read(cx, PREVIOUS);
    let system = hostname::read(cx, HOSTNAME);
    if let (Some(system), Some(previous)) = (&system, &previous)
        && system != previous
        && *system != wanted
    {
        log::info!("{HOSTNAME} was changed since it was written: it stays");
        return Ok(());
    }
    if previous.as_ref() != Some(&wanted) {
        hostname::write(cx, PREVIOUS, &wanted)?;
    }
    if system.is_none() || (system == previous && system.as_ref() != Some(&wanted)) {
        hostname::write_system(cx, &wanted)?;
    }
    Ok(())
}

/// A name that `before_pivot` wrote on this boot reaches the kernel with the boot itself, but where it was written into the
/// running system.
fn running(cx: &mut ModuleContext) -> Result<()> {
    if cx.flag("preserve_hostname", false) {
        return Ok(());
    }
    let Some(name) = Name::of(cx) else { return Ok(()) };
    let wanted = name.chosen(cx).to_owned();
    let written = |path: &str, cx: &ModuleContext| hostname::read(cx, path).as_ref() == Some(&wanted);
    // Without the file nothing else sets the kernel's name on later boots.
    let is_last = written(HOSTNAME, cx) || (!cx.flag("create_hostname_file", true) && !cx.root.exists(HOSTNAME));
    if written(PREVIOUS, cx) && is_last { hostname::apply(cx, &wanted) } else { Ok(()) }
}
