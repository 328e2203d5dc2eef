//! # zypper_add_repo
//!
//! Writes a file in /etc/zypp/repos.d for each repository, and sets values of /etc/zypp/zypp.conf. A file that exists
//! stays.
//!
//! ```yaml
//! zypper:
//!   repos:
//!   - id: tools
//!     baseurl: https://dl.example.com/tools
//!     name: Tools
//!   config:
//!     download.use_deltarpm: true
//! ```
//!
//! ```schema
//! zypper: {repos: [{id!, baseurl!: str  ...}]+  config: map  ...}+
//! ```

use super::{Module, yum_add_repo};
use crate::base::error::Result;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::Context;
use crate::system::shell::set_variable;

const CONF: &str = "/etc/zypp/zypp.conf";
const FOLDER: &str = "/etc/zypp/repos.d";

pub static MODULE: Module = Module {
    name: "zypper_add_repo",
    stage: Stage::Config,
    frequency: Frequency::Always,
    keys: &["zypper"],
    #[rustfmt::skip]
    distros: &[
        "opensuse", "opensuse-microos", "opensuse-tumbleweed", "opensuse-leap", "sle_hpc", "sle-micro", "sles",
    ],
    provision: Some(provision),
    ..Module::NEW
};

fn provision(cx: &mut Context) -> Result<()> {
    let Some(section) = cx.map("zypper") else { return Ok(()) };
    let Some(repos) = section.get("repos").and_then(Value::as_list).filter(|l| !l.is_empty()) else { return Ok(()) };
    let config = section.get("config").and_then(Value::as_map);
    if let Some(config) = config {
        settings(cx, config)?;
    }
    let folder = config.and_then(|c| c.get("reposdir")).and_then(Value::as_str).unwrap_or(FOLDER);
    for (i, repo) in repos.iter().enumerate() {
        let key = format!("zypper.repos: entry {}", i + 1);
        let Some(map) = repo.as_map() else {
            cx.report.warn(wrong(&key, "a mapping", repo));
            continue;
        };
        let (Some(id), Some(_)) = (map.get("id").and_then(Value::text), map.get("baseurl")) else {
            cx.report.warn(format_args!("{key}: id and baseurl are needed: it is ignored"));
            continue;
        };
        let path = format!("{}/{}.repo", folder.trim_end_matches('/'), id.replace(' ', "_"));
        if cx.root.exists(&path) {
            log::info!("{key}: {path} is there already and stays");
            continue;
        }
        let one = Value::from("1");
        let name = |k: &str| k.trim().to_ascii_lowercase().replace('-', "_");
        let mut entries: Vec<(String, &Value)> =
            map.iter().filter(|(k, _)| *k != "id").map(|(k, v)| (name(k), v)).collect();
        for field in ["enabled", "autorefresh"] {
            if !entries.iter().any(|(k, _)| k == field) {
                entries.push((field.into(), &one));
            }
        }
        match yum_add_repo::section(&key, &id, &entries, "\n    ") {
            Ok(text) => cx.root.write(&path, text.as_str(), Attr::root(yum_add_repo::mode(&text)))?,
            Err(e) => cx.report.warn(e),
        }
    }
    Ok(())
}

/// Sets each value in place: the module runs on every boot, and must not add lines again.
fn settings(cx: &mut Context, config: &Map) -> Result<()> {
    let mut values = Vec::new();
    for (key, value) in config.iter() {
        if key == "configdir" {
            cx.report.warn("zypper.config.configdir: the place of the configuration cannot be changed: it is ignored");
            continue;
        }
        let Some(value) = value.text().filter(|v| !v.is_empty()) else { continue };
        if format!("{key}{value}").contains(|c: char| c.is_control()) {
            cx.report.warn("zypper.config: a setting has control characters: it is ignored");
            continue;
        }
        values.push((key, value));
    }
    if values.is_empty() {
        return Ok(());
    }
    let set = |text: &str| values.iter().fold(text.to_owned(), |text, (key, value)| set_variable(&text, key, value));
    cx.root.edit_text(CONF, Attr::root(0o644), |text| Ok(Some(set(text)))).map(drop)
}
