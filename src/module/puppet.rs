//! # puppet
//!
//! Installs and configures the Puppet agent, and starts it. `install_type: aio` runs Puppet's own installer, which `aio_install_url`
//! names; else the package puppet-agent or puppet is installed.
//!
//! `conf` is merged into the agent's configuration, whose old text stays beside it with the ending `.old`. In `certname`, %f is the
//! fully qualified name of the machine and %i the instance-id.
//!
//! ```yaml
//! puppet:
//!   install_type: packages
//!   conf:
//!     agent:
//!       server: puppet.example.com
//!       certname: '%i.%f'
//!     ca_cert: |
//!       -----BEGIN CERTIFICATE-----
//!       <certificate>
//!       -----END CERTIFICATE-----
//!   csr_attributes:
//!     extension_requests: {pp_role: web}
//! ```
//!
//! ```schema
//! puppet: {
//!  install, cleanup, exec, start_service: bool
//!  version, collection, aio_install_url, conf_file, ssl_dir, csr_attributes_path, package_name: str
//!  install_type: (packages aio)
//!  exec_args: [str]
//!  conf: {main, server, agent, user: map  ca_cert: str}
//!  csr_attributes: {custom_attributes, extension_requests: map}
//! }
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, optional_map, to_yaml, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Ids, Stage, owner};
use crate::system::ini::Ini;
use crate::system::{ModuleContext, installer, packages, service, shell};

/// Packages and services, by preference.
const NAMES: [&str; 2] = ["puppet-agent", "puppet"];
const AIO_URL: &str = "https://raw.githubusercontent.com/puppetlabs/install-puppet/main/install.sh";
/// How often the installer's server is asked.
const TRIES: u32 = 6;

pub static MODULE: Module = Module {
    name: "puppet",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["puppet"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("puppet") else { return Ok(()) };
    let text = |key: &str| section.get(key).and_then(Value::text);
    let flag = |key: &str, default| section.get(key).filter(|v| !v.is_null()).map_or(default, Value::is_true);
    let kind = text("install_type").unwrap_or_else(|| "packages".into());
    let mut runs = flag("exec", false);
    if !flag("install", true) {
        if text("version").is_some() {
            cx.report.warn("puppet.version: nothing is installed: puppet.install is false");
        }
    } else if kind == "packages" {
        install(cx, section)?;
    } else if kind == "aio" {
        let url = text("aio_install_url").unwrap_or_else(|| AIO_URL.into());
        let pair = |option: &str, key: &str| text(key).map(|value| [option.to_owned(), value]);
        let mut arguments: Vec<String> =
            [pair("-v", "version"), pair("-c", "collection")].into_iter().flatten().flatten().collect();
        arguments.extend(flag("cleanup", true).then(|| "--cleanup".to_owned()));
        installer::run(cx, "puppet-install", &url, TRIES, &arguments)?;
    } else {
        cx.report.warn("puppet.install_type: expected packages or aio: nothing is installed");
        runs = false;
    }
    let agent = Agent { aio: kind == "aio", section };
    if let Some(conf) = optional_map("puppet.conf", section.get("conf"))? {
        agent.configure(cx, conf)?;
    }
    if let Some(attributes) = section.get("csr_attributes").filter(|v| !v.is_null()) {
        let path = agent.path(cx, "csr_attributes_path", "csr_attributes")?;
        // They hold the challenge password and pre-shared keys of the certificate request. The agent runs as root.
        cx.root.write(&path, to_yaml(attributes), Attr::root(0o600))?;
    }
    let starts = flag("start_service", true);
    if starts {
        services(cx, "enable");
    }
    if runs {
        let argv = [agent.program(), "agent"].into_iter().map(str::to_owned).chain(arguments(cx, section));
        let command = Command::new(argv);
        cx.root.run(command)?;
    }
    if starts {
        services(cx, "start");
    }
    Ok(())
}

/// Installs the package that the configuration names, else the first of those that can be installed.
fn install(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let text = |key: &str| section.get(key).and_then(Value::text);
    let package = |name: &str| {
        let version = text("version").map_or(Value::Null, Value::from);
        [Value::List(vec![Value::from(name), version])]
    };
    if let Some(name) = text("package_name") {
        return packages::install_listed(cx, &package(&name));
    }
    if !NAMES.iter().any(|name| packages::install_listed(cx, &package(name)).is_ok()) {
        cx.report.warn(format_args!("puppet: none of these packages can be installed: {}", NAMES.join(", ")));
    }
    Ok(())
}

/// Does `verb` to the first service that knows it.
fn services(cx: &mut ModuleContext, verb: &str) {
    if !NAMES.iter().any(|name| service::control(cx, verb, &format!("{name}.service")).is_ok()) {
        cx.report.warn(format_args!("puppet: failed to {verb} any of the services {}", NAMES.join(", ")));
    }
}

/// Arguments of a run of the agent.
fn arguments(cx: &mut ModuleContext, section: &Map) -> Vec<String> {
    match section.get("exec_args") {
        Some(Value::List(list)) => list.iter().filter_map(shell::word).collect(),
        Some(Value::String(line)) => line.split_whitespace().map(str::to_owned).collect(),
        other => {
            if let Some(other) = other {
                cx.report.warn(wrong("puppet.exec_args", "a list or a string", other));
            }
            vec!["--test".into()]
        }
    }
}

/// The installed agent.
struct Agent<'a> {
    /// Whether it came with Puppet's own installer.
    aio: bool,
    section: &'a Map,
}

impl Agent<'_> {
    fn program(&self) -> &'static str {
        if self.aio { "/opt/puppetlabs/bin/puppet" } else { "puppet" }
    }

    /// A path: the configuration's own, else what the agent says of its setting.
    fn path(&self, cx: &mut ModuleContext, key: &str, setting: &str) -> Result<String> {
        if let Some(path) = self.section.get(key).and_then(Value::text) {
            return Ok(path);
        }
        if !cx.root.runs_commands() {
            // The value that a plan shows.
            return Ok(format!("/etc/puppet/{setting}"));
        }
        let output = cx.root.output(Command::new([self.program(), "config", "print", setting]))?;
        let path = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status == 0 && path.starts_with('/') {
            return Ok(path);
        }
        Err(Error::new(format!("puppet.{key}: {} does not say where its {setting} is: set the key", self.program())))
    }

    fn configure(&self, cx: &mut ModuleContext, conf: &Map) -> Result<()> {
        let path = self.path(cx, "conf_file", "config")?;
        let old = cx.root.read_small(&path)?;
        let mut ini = Ini::parse(&path, &String::from_utf8_lossy(old.as_deref().unwrap_or_default()), true)?;
        for (name, value) in conf.iter() {
            if name == "ca_cert" {
                self.certificate(cx, &value.text().unwrap_or_default())?;
                continue;
            }
            let Some(section) = value.as_map() else {
                cx.report.warn(wrong(&format!("puppet.conf.{name}"), "a mapping", value));
                continue;
            };
            for (key, value) in section.iter() {
                let key = key.to_ascii_lowercase();
                let mut value = shell::word(value)
                    .filter(|v| !v.contains(char::is_control))
                    .ok_or_else(|| wrong(&format!("puppet.conf.{name}.{key}"), "one line of text", value))?;
                if key == "certname" {
                    value = certname(cx, &value);
                }
                ini.set(name, &key, &value);
            }
        }
        if let (Some(old), Some(stat)) = (old, cx.root.stat(&path)) {
            cx.root.write(&format!("{path}.old"), old, stat.attr)?;
        }
        cx.root.write(&path, ini.to_text("\n"), Attr::root(0o644))
    }

    /// Writes the server's certificate to the agent's path.
    fn certificate(&self, cx: &mut ModuleContext, text: &str) -> Result<()> {
        let folder = self.path(cx, "ssl_dir", "ssldir")?;
        let user = if self.aio { "root" } else { "puppet" };
        let ids = owner::user_ids(cx.root, user).filter(|_| !self.aio).map(|ids| Ids { uid: ids.uid, gid: 0 });
        if ids.is_none() && !self.aio {
            return Err(Error::new(format!("puppet.conf.ca_cert: there is no user {user} to own {folder}")));
        }
        let owned = |mode| ids.map_or(Attr::root(mode), |ids| Attr::owned(mode, ids));
        for (path, mode) in [(folder.clone(), 0o771), (format!("{folder}/certs"), 0o755)] {
            cx.root.mkdir(&path, owned(mode))?;
            let mode = if mode == 0o771 { mode } else { cx.root.stat(&path).map_or(mode, |s| s.attr.mode) };
            cx.root.set_attr(&path, owned(mode))?;
        }
        cx.root.write(&format!("{folder}/certs/ca.pem"), text, owned(0o644))
    }
}

fn certname(cx: &mut ModuleContext, name: &str) -> String {
    let mut name = name.replace("%i", &cx.instance.instance_id);
    if name.contains("%f") {
        let output = cx.root.output(Command::new(["hostname", "-f"]));
        let own = output.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
        name = name.replace("%f", &own);
    }
    // The metadata must not bring a line of its own.
    name.to_lowercase().replace(char::is_control, "")
}
