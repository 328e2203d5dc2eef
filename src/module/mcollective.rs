//! # mcollective
//!
//! Installs MCollective, sets values of its server.cfg, writes its certificates, and restarts it.
//!
//! ```yaml
//! mcollective:
//!   conf:
//!     loglevel: debug
//!     plugin.stomp.host: broker.example.com
//!     public-cert: |
//!       -----BEGIN CERTIFICATE-----
//!       <certificate>
//!       -----END CERTIFICATE-----
//! ```
//!
//! ```schema
//! mcollective: {conf: {public-cert, private-cert: str  *: bool | int | str}}
//! ```

use super::Module;
use crate::base::error::Result;
use crate::document::{Map, Value, json};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::ini::Ini;
use crate::system::{ModuleContext, packages, shell};

const CONF: &str = "/etc/mcollective/server.cfg";
const PUBLIC: &str = "/etc/mcollective/ssl/server-public.pem";
const PRIVATE: &str = "/etc/mcollective/ssl/server-private.pem";

pub static MODULE: Module = Module {
    name: "mcollective",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["mcollective"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("mcollective") else { return Ok(()) };
    packages::install(cx, &["mcollective".to_owned()])?;
    if let Some(conf) = section.get("conf").and_then(Value::as_map) {
        configure(cx, conf)?;
    }
    cx.root.run(Command::new(["service", "mcollective", "restart"]))
}

fn configure(cx: &mut ModuleContext, conf: &Map) -> Result<()> {
    let old = cx.root.read_small(CONF)?;
    let mut ini = Ini::parse(CONF, &String::from_utf8_lossy(old.as_deref().unwrap_or_default()), false)?;
    for (key, value) in conf.iter() {
        let certificate = match key {
            "public-cert" => Some((PUBLIC, "plugin.ssl_server_public", 0o644)),
            "private-cert" => Some((PRIVATE, "plugin.ssl_server_private", 0o600)),
            _ => None,
        };
        if let Some((path, own_key, mode)) = certificate {
            cx.root.write(path, value.text().unwrap_or_default(), Attr::root(mode))?;
            ini.set("", own_key, path);
            ini.set("", "securityprovider", "ssl");
        } else if let Some(section) = value.as_map() {
            section.iter().for_each(|(k, v)| ini.set(key, k, &written(v)));
        } else {
            ini.set("", key, &written(value));
        }
    }
    if let (Some(old), Some(stat)) = (old, cx.root.stat(CONF)) {
        cx.root.write(&format!("{CONF}.old"), old, stat.attr)?;
    }
    // It holds the pre-shared key and passwords of the message broker. The server runs as root.
    cx.root.write(CONF, ini.to_text(""), Attr::root(0o600))
}

/// A value in one line.
fn written(value: &Value) -> String {
    shell::word(value).unwrap_or_else(|| json::to_string(value)).replace(['\n', '\r'], " ")
}
