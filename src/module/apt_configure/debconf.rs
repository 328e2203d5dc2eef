//! `apt.debconf_selections`: answers to questions of packages.

use super::facts;
use crate::base::error::Result;
use crate::detect::CLOUD_CFG_D;
use crate::document::{Value, wrong};
use crate::root::Command;
use crate::system::ModuleContext;
use std::collections::BTreeSet;

/// Gives the selections to debconf, in the order of their names. A package that is installed already does not look at them
/// again; that is reported.
///
/// # Errors
/// The value is not a mapping of texts, or debconf refuses them.
pub fn select(cx: &mut ModuleContext, selections: &Value) -> Result<()> {
    let key = "apt.debconf_selections";
    let map = selections.as_map().ok_or_else(|| wrong(key, "a mapping", selections))?;
    let mut texts = Vec::new();
    for (name, value) in map.sorted() {
        texts.push(value.as_str().ok_or_else(|| wrong(&format!("{key}.{name}"), "a string", value))?);
    }
    if texts.is_empty() {
        return Ok(());
    }
    let mut text = texts.join("\n");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let command = Command::new(["debconf-set-selections"]).stdin(text.as_str());
    cx.root.run(text.lines().filter(|l| !l.is_empty()).fold(command, Command::secret))?;
    let owner = |line: &str| line.split(|c: char| c == ':' || c.is_whitespace()).next().unwrap_or_default().to_owned();
    let owners: BTreeSet<String> = text.lines().filter(|l| !l.starts_with('#')).map(owner).collect();
    let installed = facts::installed(cx.root);
    let (own, others): (Vec<&String>, Vec<&String>) =
        owners.intersection(&installed).partition(|name| *name == "cloud-init");
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|s| s.as_str()).collect();
        cx.report
            .warn(format_args!("{key}: already installed, so that their answers are not used: {}", names.join(", ")));
    }
    if own.is_empty() {
        return Ok(());
    }
    // Debconf's choice for cloud-init's package.
    for name in cx.root.list(CLOUD_CFG_D).into_iter().filter(|n| n.contains("dpkg") && !n.starts_with('.')) {
        cx.root.remove(&format!("{CLOUD_CFG_D}/{name}"))?;
    }
    cx.root.run(Command::new(["dpkg-reconfigure", "--frontend=noninteractive", "cloud-init"]))
}
