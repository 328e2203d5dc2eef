//! # set_hostname
//!
//! Writes the machine's name to /etc/hostname before the pivot, and sets it in the running kernel: `fqdn` or `hostname`,
//! else the datasource's name. It is written again only when another name is asked for, so a name that was changed by
//! hand stays. `prefer_fqdn_over_hostname` says which of the two is used; `preserve_hostname: true` switches the module
//! off.
//!
//! ```yaml
//! hostname: web1
//! fqdn: web1.example.com
//! prefer_fqdn_over_hostname: true
//! ```
//!
//! ```schema
//! preserve_hostname, prefer_fqdn_over_hostname, create_hostname_file: bool
//! hostname, fqdn: str
//! ```

use super::{Module, Role};
use crate::base::error::Result;
use crate::document::{Map, Value, json};
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::ModuleContext;
use crate::system::hostname::{self, Name};

/// The name that was set last, to recognise a later change.
const SET: &str = "/var/lib/cloud/data/set-hostname";

pub static MODULE: Module = Module {
    name: "set_hostname",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    // PID 1 reads the file, which has the name by then.
    idle: Some(|cx| {
        let preserved = cx.flag("preserve_hostname", false);
        preserved
            || Name::of(cx)
                .is_none_or(|name| hostname::read(cx, hostname::HOSTNAME).as_deref() == Some(name.chosen(cx)))
    }),
    role: Some(Role::Hostname),
    ..Module::NEW
};

/// Writes /etc/hostname. A stage may call it before its modules: the second call finds nothing to do.
///
/// # Errors
/// A file cannot be read or written.
pub fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    if cx.flag("preserve_hostname", false) {
        return Ok(());
    }
    let Some(name) = Name::of(cx) else { return Ok(()) };
    let old = cx.root.read_small(SET)?.and_then(|bytes| json::parse(SET, &bytes).ok()).unwrap_or_default();
    let was = |key: &str| old.get(key).and_then(Value::as_str);
    if was("hostname") == Some(&name.hostname) && was("fqdn") == Some(&name.fqdn) {
        return Ok(());
    }
    let chosen = name.chosen(cx).to_owned();
    hostname::write_system(cx, &chosen)?;
    let record: Map = [("fqdn", name.fqdn), ("hostname", name.hostname)].into_iter().collect();
    let text = json::to_string_sorted(&Value::Map(record));
    cx.root.write(SET, format!("{text}\n"), Attr::root(0o644))
}

/// The kernel's name, where the file has not been changed since.
fn running(cx: &mut ModuleContext) -> Result<()> {
    if cx.flag("preserve_hostname", false) {
        return Ok(());
    }
    let Some(name) = Name::of(cx) else { return Ok(()) };
    let chosen = name.chosen(cx).to_owned();
    match hostname::read(cx, hostname::HOSTNAME) {
        Some(written) if written != chosen && cx.flag("create_hostname_file", true) => Ok(()),
        _ => hostname::apply(cx, &chosen),
    }
}
