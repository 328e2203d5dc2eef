//! # landscape
//!
//! Installs the Landscape client and registers the machine, unless it is registered already. Settings missing in `client` stay as
//! in /etc/landscape/client.conf.
//!
//! ```yaml
//! landscape:
//!   client:
//!     computer_title: web 1
//!     account_name: example
//!     url: https://landscape.example.com/message-system
//!     ping_url: http://landscape.example.com/ping
//! ```
//!
//! ```schema
//! landscape: {
//!  client!: {
//!   url, ping_url, data_path, computer_title!, account_name!, registration_key, http_proxy, https_proxy: str
//!   log_level: (debug info warning error critical)
//!   tags: str/tags
//!   ...
//!  }
//! }
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, optional_map, wrong};
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::{ModuleContext, packages};
use std::collections::BTreeMap;

const CONF: &str = "/etc/landscape/client.conf";
const DEFAULTS: [(&str, &str); 4] = [
    ("log_level", "info"),
    ("url", "https://landscape.canonical.com/message-system"),
    ("ping_url", "http://landscape.canonical.com/ping"),
    ("data_path", "/var/lib/landscape/client"),
];
/// The status of `--is-registered` on a machine that is not.
const NOT_REGISTERED: i32 = 5;

pub static MODULE: Module = Module {
    name: "landscape",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["landscape"],
    distros: &["ubuntu"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = optional_map("landscape", cx.get("landscape"))? else { return Ok(()) };
    if section.is_empty() {
        return Ok(());
    }
    let empty = Map::new();
    let client = optional_map("landscape.client", section.get("client"))?.unwrap_or(&empty);
    packages::install(cx, &["landscape-client".to_owned()])?;
    let mut settings: BTreeMap<String, String> = DEFAULTS.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    settings.extend(client_section(&cx.root.text(CONF)));
    for (key, value) in client.iter() {
        let text = value.text().ok_or_else(|| wrong(&format!("landscape.client.{key}"), "a string", value))?;
        settings.insert(key.to_owned(), text);
    }
    let registered = cx.root.output(Command::new(["landscape-config", "--silent", "--is-registered"]))?;
    match registered.status {
        0 if cx.root.runs_commands() => {
            cx.report.warn("landscape: the machine is registered already: nothing is changed");
            return Ok(());
        }
        0 | NOT_REGISTERED => {}
        status => {
            return Err(Error::new(format!("landscape-config --is-registered ended with exit status {status}")));
        }
    }
    let mut argv = vec!["landscape-config".to_owned(), "--silent".to_owned()];
    for (key, value) in &settings {
        argv.push(format!("--{}", key.replace('_', "-")));
        argv.push(value.clone());
    }
    let secret = settings.get("registration_key").cloned().unwrap_or_default();
    cx.root.run(Command::new(argv).secret(secret))
}

/// The values in the section `[client]` of a file.
fn client_section(text: &str) -> BTreeMap<String, String> {
    let lines =
        text.lines().map(str::trim).skip_while(|l| *l != "[client]").skip(1).take_while(|l| !l.starts_with('['));
    let setting = |line: &str| {
        let (key, value) = line.split_once('=').filter(|_| !line.starts_with(['#', ';']))?;
        Some((key.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
    };
    lines.filter_map(setting).collect()
}
