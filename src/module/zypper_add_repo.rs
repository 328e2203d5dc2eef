//! # zypper_add_repo
//!
//! Writes a file in /etc/zypp/repos.d for each repository, and sets values of /etc/zypp/zypp.conf, or of
//! /etc/zypp/zypp.conf.d/50-cloud-init.conf if the only zypp.conf is the vendor's, below /usr/etc. A repository's file that
//! exists stays.
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
use crate::system::ModuleContext;
use std::collections::{HashMap, HashSet};

const CONF: &str = "/etc/zypp/zypp.conf";
/// For a system without that file: a new one would hide the vendor's, /usr/etc/zypp/zypp.conf (zypp.conf(5)).
const DROP_IN: &str = "/etc/zypp/zypp.conf.d/50-cloud-init.conf";
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
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
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
fn settings(cx: &mut ModuleContext, config: &Map) -> Result<()> {
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
        values.push((key.trim(), value));
    }
    if values.is_empty() {
        return Ok(());
    }
    let path = if cx.root.exists(CONF) { CONF } else { DROP_IN };
    cx.root.edit_text(path, Attr::root(0o644), |text| Ok(Some(with_settings(text, &values)))).map(drop)
}

/// The text with the settings in its section [main]: each in place of the line that sets it, or else below the section's
/// name.
fn with_settings(text: &str, settings: &[(&str, String)]) -> String {
    let own = |(key, value): &(&str, String)| format!("{key}={value}");
    let by_key: HashMap<&str, String> = settings.iter().map(|setting| (setting.0, own(setting))).collect();
    let (mut lines, mut done) = (Vec::new(), HashSet::new());
    let (mut main, mut in_main) = (None, false);
    for line in text.lines() {
        let trimmed = line.trim();
        let key = trimmed.split_once('=').map(|(key, _)| key.trim_end());
        if trimmed.starts_with('[') {
            in_main = trimmed == "[main]";
            lines.push(line);
            main = main.or(in_main.then_some(lines.len()));
        } else if let Some((key, own)) = key.and_then(|key| by_key.get_key_value(key)).filter(|_| in_main) {
            if done.insert(*key) {
                lines.push(own);
            }
        } else {
            lines.push(line);
        }
    }
    let at = main.unwrap_or_else(|| {
        lines.push("[main]");
        lines.len()
    });
    let new = settings.iter().filter(|(key, _)| !done.contains(key)).filter_map(|(key, _)| by_key.get(key));
    let rest = lines.split_off(at);
    let all: Vec<&str> = lines.into_iter().chain(new.map(String::as_str)).chain(rest).collect();
    all.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    #[test]
    fn settings_are_below_main() {
        let settings = [("b", "2".to_owned()), ("a.x", "1".to_owned())];
        for (text, expected) in [
            ("", "[main]\nb=2\na.x=1\n"),
            ("[main]\n# a.x = 0\n  a.x =  0\nc = 3\na.x=4\n", "[main]\nb=2\n# a.x = 0\na.x=1\nc = 3\n"),
            ("# c\n [main] \nb = 0\n[other]\nb = 5\n", "# c\n [main] \na.x=1\nb=2\n[other]\nb = 5\n"),
            ("[other]\nb = 5", "[other]\nb = 5\n[main]\nb=2\na.x=1\n"),
        ] {
            let once = with_settings(text, &settings);
            assert_eq!(once, expected);
            assert_eq!(with_settings(&once, &settings), once);
        }
    }

    #[test]
    fn the_vendors_file_is_not_hidden() {
        let config = "zypper: {repos: [{id: r, baseurl: u}], config: {a: b}}";
        for (is_there, path) in [(true, CONF), (false, DROP_IN)] {
            let dir = TempDir::new("zypper");
            let mut root = dir.root(Use::Tree);
            root.write("/usr/etc/zypp/zypp.conf", "[main]\n", Attr::root(0o644)).unwrap();
            if is_there {
                root.write(CONF, "[main]\n", Attr::root(0o644)).unwrap();
            }
            before_pivot(&mut Inputs::new("opensuse", config).context(&mut root)).unwrap();
            assert_eq!((root.text(path).as_str(), root.exists(CONF)), ("[main]\na=b\n", is_there));
        }
    }
}
