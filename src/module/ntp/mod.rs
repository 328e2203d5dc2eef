//! # ntp
//!
//! Configures an NTP client with servers and pools: the one that is installed, or the distribution's own, or the one that
//! `ntp_client` names. The package is installed if it is missing, and the service restarted. Without servers the
//! distribution's pools are used.
//!
//! ```yaml
//! ntp:
//!   enabled: true
//!   ntp_client: chrony
//!   servers: [ntp1.example.com]
//!   pools: [0.pool.ntp.org, 1.pool.ntp.org]
//! ```
//!
//! ```schema
//! ntp: null | {
//!  pools, servers, peers, allow: [str] unique
//!  ntp_client: str
//!  enabled: bool
//!  config: {
//!   confpath, check_exe, service_name, template: str
//!   packages: [str] unique
//!  }+
//! }
//! ```

mod client;

use self::client::Client;
use super::Module;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Attr, Root, Stage, installed};
use crate::system::service::{self, Action};
use crate::system::{ModuleContext, packages, template};

pub static MODULE: Module = Module {
    name: "ntp",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["ntp"],
    #[rustfmt::skip]
    distros: &[
        "almalinux", "alpine", "aosc", "azurelinux", "centos", "cloudlinux", "cos", "debian", "eurolinux", "fedora",
        "mariner", "miraclelinux", "openeuler", "OpenCloudOS", "openmandriva", "opensuse", "opensuse-microos",
        "opensuse-tumbleweed", "opensuse-leap", "photon", "raspberry-pi-os", "rhel", "rocky", "sle_hpc", "sle-micro",
        "sles", "TencentOS", "ubuntu", "virtuozzo",
    ],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// The files to write and the service to start.
struct Ntp {
    client: Client,
    servers: Vec<String>,
    pools: Vec<String>,
    peers: Vec<String>,
    allow: Vec<String>,
    /// The user's own template.
    template: Option<String>,
    /// The name of the image's template.
    template_name: String,
}

fn ntp(cx: &mut ModuleContext) -> Result<Option<Ntp>> {
    let empty = Map::new();
    // `ntp:` alone asks for a client with the distribution's servers.
    let section = match cx.config.get("ntp") {
        None => return Ok(None),
        Some(Value::Null) => &empty,
        Some(value) => value.as_map().ok_or_else(|| wrong("ntp", "a mapping", value))?,
    };
    if section.get("enabled").is_some_and(Value::is_false) {
        return Ok(None);
    }
    let named = section.get("ntp_client").and_then(Value::as_str).filter(|n| *n != "auto");
    let of_image = cx.config.at(&["system_info", "ntp_client"]).and_then(Value::as_str).filter(|n| *n != "auto");
    let mut client = match named.or(of_image) {
        Some(name) => Client::named(name, cx.distro),
        None => Some(Client::preferred(cx.distro, |program| is_installed(cx.root, program))),
    };
    let own = section.get("config").and_then(Value::as_map).unwrap_or(&empty);
    if client.is_none() && own.is_empty() {
        return Err(Error::new("ntp.ntp_client: expected chrony, ntp, ntpdate, openntpd, systemd-timesyncd or auto"));
    }
    let client = client.get_or_insert_with(Client::default);
    for (key, field) in
        [("check_exe", &mut client.program), ("confpath", &mut client.file), ("service_name", &mut client.service)]
    {
        match own.get(key) {
            None | Some(Value::Null) => {}
            Some(value) => {
                *field = value.as_str().ok_or_else(|| wrong(&format!("ntp.config.{key}"), "a string", value))?.into();
            }
        }
        if field.is_empty() {
            return Err(Error::new(format!("ntp.config.{key}: it is needed for this client")));
        }
    }
    if let Some(names) = own.get("packages") {
        let names = names.as_list().ok_or_else(|| wrong("ntp.config.packages", "a list", names))?;
        client.packages = names.iter().filter_map(Value::text).collect();
    }
    let text = |key: &str| own.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let template_name = text("template_name").unwrap_or_else(|| client.template.clone());
    let list = |key: &str| hosts(key, section.get(key), cx.report);
    let (mut servers, mut pools) = (list("servers"), list("pools"));
    // BusyBox's ntpd knows servers only.
    if cx.distro.family == Family::Alpine && client.service == "ntpd" {
        if servers.is_empty() {
            servers = client::default_pools(cx.distro);
        }
    } else if servers.is_empty() && pools.is_empty() && cx.distro.name != "cos" {
        pools = client::default_pools(cx.distro);
    }
    Ok(Some(Ntp {
        template_name: template_name.replace("{distro}", cx.distro.name),
        template: text("template"),
        client: client.clone(),
        servers,
        pools,
        peers: list("peers"),
        allow: list("allow"),
    }))
}

impl Ntp {
    /// What a template reads.
    fn values(&self) -> Value {
        let lists =
            [("servers", &self.servers), ("pools", &self.pools), ("peers", &self.peers), ("allow", &self.allow)];
        let list = |names: &[String]| Value::List(names.iter().map(|n| Value::from(n.as_str())).collect());
        Value::Map(lists.into_iter().map(|(key, names)| (key, list(names))).collect())
    }
}

/// Names and addresses of a list, each one word.
fn hosts(key: &str, value: Option<&Value>, report: &Problems) -> Vec<String> {
    let list = value.and_then(Value::as_list).unwrap_or_default();
    if value.is_some_and(|v| v.as_list().is_none() && !v.is_null()) {
        report.warn(format_args!("ntp.{key}: expected a list: it is ignored"));
    }
    let word = |v: &Value| {
        let word = v.text().filter(|t| !t.is_empty() && !t.contains(|c: char| c.is_whitespace() || c.is_control()));
        if word.is_none() {
            report.warn(format_args!("ntp.{key}: expected a list of names or addresses: an entry is ignored"));
        }
        word
    };
    list.iter().filter_map(word).collect()
}

fn is_installed(root: &Root, program: &str) -> bool {
    if program.starts_with('/') { root.is_file(program) } else { installed::which(root, program).is_some() }
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(ntp) = ntp(cx)? else { return Ok(()) };
    // Container-Optimized OS has its cloud's servers.
    if ntp.servers.is_empty() && ntp.pools.is_empty() {
        return Ok(());
    }
    let templated = match &ntp.template {
        Some(own) => Some(template::render("ntp.config.template", own, &ntp.values())?),
        None => template::of_image(cx, &ntp.template_name, &ntp.values())?,
    };
    let text = match templated {
        Some(text) => text,
        None => ntp.client.text(cx.distro, &ntp.servers, &ntp.pools, &ntp.peers, &ntp.allow)?,
    };
    let file = &ntp.client.file;
    let saved = format!("{file}.dist");
    if let Some(old) = cx.root.read_small(file)?
        && old != text.as_bytes()
        && !cx.root.exists(&saved)
    {
        let attr = cx.root.stat(file).map_or(Attr::root(0o644), |s| s.attr);
        cx.root.write(&saved, old, attr)?;
    }
    cx.root.write(file, text, Attr::root(0o644))
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(ntp) = ntp(cx)? else { return Ok(()) };
    if !is_installed(cx.root, &ntp.client.program) && !ntp.client.packages.is_empty() {
        packages::install(cx, &ntp.client.packages)?;
    }
    service::manage(cx, Action::Reload, &ntp.client.service)
}
