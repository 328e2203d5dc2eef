//! # rsyslog
//!
//! Writes files of rsyslog's configuration, a line for each of `remotes`, and has the service read them. With
//! `install_rsyslog: true` the package is installed if the program is missing.
//!
//! ```yaml
//! rsyslog:
//!   configs:
//!   - content: 'local0.* /var/log/app.log'
//!     filename: 10-app.conf
//!   remotes:
//!     central: '*.* @@log.example.com:514'
//! ```
//!
//! ```schema
//! rsyslog: {
//!  config_dir, config_filename, check_exe: str
//!  configs: [str | {filename, content!: str}]
//!  remotes: map
//!  service_reload_command: (auto) | [str]
//!  install_rsyslog: bool
//!  packages: [str] unique
//! }
//! ```

use super::Module;
use crate::base::deprecated;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, optional_map, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage, installed};
use crate::system::service::{self, Action};
use crate::system::{ModuleContext, packages, shell};
use std::collections::HashMap;

pub static MODULE: Module = Module {
    name: "rsyslog",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    keys: &["rsyslog"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// The section, in its old form (a list) or the new one.
struct Config {
    folder: String,
    file: String,
    configs: Vec<Value>,
    remotes: Map,
    section: Map,
}

impl Config {
    /// The file of an entry of `configs`, and what it adds there; None without one of both.
    fn file_of<'a>(&'a self, entry: &'a Value) -> Option<(&'a str, &'a str)> {
        let (name, content) = match entry {
            Value::Map(map) => (map.get("filename").and_then(Value::as_str), map.get("content")?.as_str()?),
            other => (None, other.as_str()?),
        };
        let name = name.unwrap_or(&self.file).trim();
        (!name.is_empty()).then_some((name, content))
    }

    /// Whether there is something to write.
    fn writes(&self) -> bool {
        !self.remotes.is_empty() || self.configs.iter().any(|entry| self.file_of(entry).is_some())
    }
}

fn config(cx: &mut ModuleContext) -> Result<Option<Config>> {
    let Some(value) = cx.get("rsyslog") else { return Ok(None) };
    let section = match value {
        Value::Map(map) => map.clone(),
        Value::List(list) => {
            cx.report.deprecated(deprecated::RSYSLOG_LIST.about(""));
            let mut map = Map::new();
            map.insert("configs", list.clone());
            for (old, new) in [("rsyslog_filename", "config_filename"), ("rsyslog_dir", "config_dir")] {
                if let Some(value) = cx.get(old) {
                    map.insert(new, value.clone());
                }
            }
            map
        }
        other => return Err(wrong("rsyslog", "a mapping", other)),
    };
    let text = |key: &str, default: &str| match section.get(key).filter(|v| !v.is_null()) {
        None => Ok(default.to_owned()),
        Some(value) => {
            value.as_str().map(str::to_owned).ok_or_else(|| wrong(&format!("rsyslog.{key}"), "a string", value))
        }
    };
    let configs = match section.get("configs").filter(|v| !v.is_null()) {
        None => Vec::new(),
        Some(value) => value.as_list().ok_or_else(|| wrong("rsyslog.configs", "a list", value))?.to_vec(),
    };
    let remotes = optional_map("rsyslog.remotes", section.get("remotes"))?.cloned().unwrap_or_default();
    let folder = text("config_dir", "/etc/rsyslog.d")?;
    let file = text("config_filename", "20-cloud-config.conf")?;
    Ok(Some(Config { folder, file, configs, remotes, section }))
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(config) = config(cx)? else { return Ok(()) };
    let mut files: Vec<(String, String)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut add = |name: &str, content: &str| {
        let path = if name.starts_with('/') { name.to_owned() } else { format!("{}/{name}", config.folder) };
        let end = if content.ends_with('\n') { "" } else { "\n" };
        let place = *places.entry(path.clone()).or_insert(files.len());
        match files.get_mut(place) {
            Some((_, text)) => text.push_str(&format!("{content}{end}")),
            None => files.push((path, format!("{content}{end}"))),
        }
    };
    for (i, entry) in config.configs.iter().enumerate() {
        let key = format!("rsyslog.configs: entry {}", i + 1);
        match config.file_of(entry) {
            Some((name, content)) => add(name, content),
            None => cx.report.warn(format_args!("{key}: content or filename is missing or empty: it is ignored")),
        }
    }
    let remotes: Vec<String> = config
        .remotes
        .iter()
        .filter(|(_, line)| !line.is_null() && line.as_str() != Some(""))
        .filter_map(|(name, line)| match remote(name, line.as_str().unwrap_or_default()) {
            Ok(line) => Some(line),
            Err(e) => {
                cx.report.warn(e);
                None
            }
        })
        .collect();
    if !config.remotes.is_empty() {
        add(&config.file, &format!("# begin remotes\n{}\n# end remotes\n", remotes.join("\n")));
    }
    for (path, text) in files {
        cx.root.write(&path, text, Attr::root(0o644))?;
    }
    Ok(())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(config) = config(cx)? else { return Ok(()) };
    if config.section.get("install_rsyslog").is_some_and(Value::is_true) {
        let program = config.section.get("check_exe").and_then(Value::as_str).unwrap_or("rsyslogd");
        let names = match config.section.get("packages") {
            Some(value) => shell::words("rsyslog.packages", value)?,
            None => vec!["rsyslog".to_owned()],
        };
        if installed::which(cx.root, program).is_none() {
            packages::install(cx, &names)?;
        }
    }
    if !config.writes() {
        return Ok(());
    }
    let reloaded = match config.section.get("service_reload_command") {
        Some(command @ Value::List(_)) => {
            let words = shell::words("rsyslog.service_reload_command", command)?;
            cx.root.run(Command::new(words))
        }
        Some(Value::String(line)) if &**line != "auto" => cx.root.run(Command::new(["/bin/sh", "-c", line])),
        _ => {
            let service = cx.config.at(&["system_info", "rsyslog_svcname"]).and_then(Value::as_str);
            service::manage(cx, Action::TryReload, service.unwrap_or("rsyslog"))
        }
    };
    if let Err(e) = reloaded {
        cx.report.warn(format_args!("rsyslog: failed to reload it: {e}"));
    }
    Ok(())
}

/// A line of rsyslog.conf(5) for `[selector] [@|@@]host[:port] [# comment]`. The host may be an address in brackets.
fn remote(name: &str, line: &str) -> Result<String> {
    let wrong = || Error::new(format!("rsyslog.remotes.{name}: expected [selector] [@|@@]host[:port]: it is left out"));
    let (data, _) = line.split_once('#').unwrap_or((line, ""));
    let words: Vec<&str> = data.split_whitespace().collect();
    let (selector, target) = match words.as_slice() {
        [target] => ("*.*", *target),
        [selector, target] => (*selector, *target),
        _ => return Err(wrong()),
    };
    let host = target.trim_start_matches('@');
    let protocol = if target.starts_with("@@") { "@@" } else { "@" };
    let (host, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
        Some((address, rest)) => (format!("[{address}]"), rest.strip_prefix(':')),
        None => match host.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (host.to_owned(), None),
        },
    };
    let port_fits = port.is_none_or(|p| p.parse::<u16>().is_ok());
    if host.trim_matches(['[', ']']).is_empty() || !port_fits || name.contains(|c: char| c.is_control()) {
        return Err(wrong());
    }
    let port = port.map(|p| format!(":{p}")).unwrap_or_default();
    Ok(format!("{selector} {protocol}{host}{port} # {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::Fixture;

    #[test]
    fn it_is_reloaded_for_what_is_written() {
        let fixture = Fixture::new("debian");
        let reload = ["systemctl --no-block try-reload-or-restart rsyslog".to_owned()];
        for (configs, commands) in [
            ("['*.* @h']", &reload[..]),
            ("[{filename: f}, {content: x, filename: f}]", &reload),
            ("[{filename: f}, {content: x, filename: ''}, 5]", &[]),
        ] {
            let left = fixture.both(&format!("rsyslog: {{configs: {configs}}}"), &MODULE);
            assert_eq!(left.commands, commands, "{configs}");
        }
    }

    #[test]
    fn remotes_become_lines() {
        for (line, expected) in [
            ("10.0.4.1", "*.* @10.0.4.1 # n"),
            ("@@10.0.4.1:514", "*.* @@10.0.4.1:514 # n"),
            ("*.info @[2001:db8::1]:10 # x", "*.info @[2001:db8::1]:10 # n"),
        ] {
            assert_eq!(remote("n", line).unwrap(), expected);
        }
        for line in ["", "a b c", "@", "host:x", "[]:1"] {
            assert!(remote("n", line).is_err(), "{line}");
        }
        assert!(remote("n\nevil", "host").is_err());
    }
}
