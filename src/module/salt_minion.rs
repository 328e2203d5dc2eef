//! # salt_minion
//!
//! Installs and configures a Salt minion, and starts it; with `file_client: local` in `conf` it is not started, and the states of
//! the machine itself are applied instead.
//!
//! Where the minion is in the image, its files are written before the system starts.
//!
//! ```yaml
//! salt_minion:
//!   conf:
//!     master: salt.example.com
//!   grains:
//!     role: [web]
//! ```
//!
//! ```schema
//! salt_minion: {
//!  pkg_name, service_name, config_dir, public_key, private_key, pki_dir: str
//!  conf, grains: map
//! }
//! ```

use super::Module;
use crate::base::error::Result;
use crate::document::{Map, Value, json, to_yaml};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::{Context, packages, service};

const PROGRAM: &str = "salt-minion";

pub static MODULE: Module = Module {
    name: "salt_minion",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["salt_minion"],
    provision: Some(provision),
    live: Some(live),
    ..Module::NEW
};

/// Before the package is installed its folders are not known, and files in its place would stop some package managers.
fn provision(cx: &mut Context) -> Result<()> {
    if cx.root.which(PROGRAM).is_none() {
        return Ok(());
    }
    match cx.map("salt_minion") {
        Some(section) => write_files(cx, section),
        None => Ok(()),
    }
}

fn live(cx: &mut Context) -> Result<()> {
    let Some(section) = cx.get("salt_minion").and_then(Value::as_map) else { return Ok(()) };
    let text = |key: &str, default: &str| section.get(key).and_then(Value::text).unwrap_or_else(|| default.to_owned());
    packages::install(cx, &[text("pkg_name", PROGRAM)])?;
    write_files(cx, section)?;
    let service = text("service_name", PROGRAM);
    let conf = section.get("conf");
    let masterless = conf.and_then(|c| c.get("file_client")).and_then(Value::as_str) == Some("local");
    let verbs = if masterless { ["disable", "stop"] } else { ["enable", "restart"] };
    for verb in verbs {
        service::control(cx, verb, &service)?;
    }
    if masterless {
        cx.root.run(Command::new(cx.stage, ["salt-call", "--local", "state.apply"]))?;
    }
    Ok(())
}

fn write_files(cx: &mut Context, section: &Map) -> Result<()> {
    let text = |key: &str| section.get(key).and_then(Value::text);
    let folder = text("config_dir").unwrap_or_else(|| "/etc/salt".into());
    let folder = folder.trim_end_matches('/');
    cx.root.mkdir(folder, Attr::root(0o755))?;
    for (key, name) in [("conf", "minion"), ("grains", "grains")] {
        if let Some(value) = section.get(key) {
            let content = format!("---\n{}...\n", to_yaml(&json::sorted(value)));
            cx.root.write(&format!("{folder}/{name}"), content, Attr::root(0o644))?;
        }
    }
    let (Some(public), Some(private)) = (text("public_key"), text("private_key")) else { return Ok(()) };
    let pki = text("pki_dir").unwrap_or_else(|| {
        let own = format!("{folder}/pki/minion");
        if cx.root.is_dir(&own) { own } else { format!("{folder}/pki") }
    });
    cx.root.mkdir(&pki, Attr::root(0o700))?;
    cx.root.write(&format!("{pki}/minion.pub"), public, Attr::root(0o644))?;
    cx.root.write(&format!("{pki}/minion.pem"), private, Attr::root(0o600))
}
