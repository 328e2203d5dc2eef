//! # timezone
//!
//! Sets the time zone: /etc/localtime, and /etc/timezone or /etc/sysconfig/clock if the distribution uses it.
//!
//! ```yaml
//! timezone: Europe/Berlin
//! ```
//!
//! ```schema
//! timezone: str
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::text::quoted;
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Attr, Stage};
use crate::system::ModuleContext;

const ZONES: &str = "/usr/share/zoneinfo";

pub static MODULE: Module = Module {
    name: "timezone",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["timezone"],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let zone = cx.args.first().cloned().or_else(|| cx.text("timezone")).unwrap_or_default();
    if zone.is_empty() || zone == "false" {
        return Ok(());
    }
    let path = format!("{ZONES}/{zone}");
    let named = zone.split('/').all(|part| !matches!(part, "" | "." | "..")) && !zone.contains(char::is_control);
    if !named || !cx.root.is_file(&path) {
        let zone = quoted(&zone);
        return Err(Error::new(format!("timezone: there is no time zone {zone} in {ZONES} (is tzdata installed?)")));
    }
    if matches!(cx.distro.family, Family::Debian | Family::Alpine | Family::Arch | Family::Gentoo | Family::Photon)
        || cx.distro.name == "mariner"
    {
        cx.root.write("/etc/timezone", format!("{zone}\n"), Attr::root(0o644))?;
    }
    cx.root.symlink("/etc/localtime", &path)
}
