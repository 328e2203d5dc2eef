//! # resolv_conf
//!
//! Writes /etc/resolv.conf, or /etc/systemd/resolved.conf on the distributions that use it, if `manage_resolv_conf` is
//! true. The addresses of a network configuration are a better place for name servers.
//!
//! ```yaml
//! manage_resolv_conf: true
//! resolv_conf:
//!   nameservers: [192.0.2.53, '2001:db8::53']
//!   searchdomains: [example.com]
//!   options: {timeout: 1, rotate: true}
//! ```
//!
//! ```schema
//! manage_resolv_conf: bool
//! resolv_conf: {
//!  nameservers, searchdomains, sortlist: list
//!  domain: str
//!  options: map
//! }
//! ```

use super::Module;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::{ModuleContext, template};

const RESOLV: &str = "/etc/resolv.conf";
const RESOLVED: &str = "/etc/systemd/resolved.conf";

pub static MODULE: Module = Module {
    name: "resolv_conf",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    keys: &["manage_resolv_conf"],
    #[rustfmt::skip]
    distros: &[
        "alpine", "azurelinux", "fedora", "mariner", "opensuse", "opensuse-leap", "opensuse-microos", "opensuse-tumbleweed", "photon", "rhel", "sle_hpc", "sle-micro", "sles", "openeuler",
    ],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    if !cx.flag("manage_resolv_conf", false) {
        return Ok(());
    }
    let Some(section) = cx.map("resolv_conf") else {
        cx.report.warn("manage_resolv_conf is true, but there is no resolv_conf: nothing is written");
        return Ok(());
    };
    let wanted = Resolver::of(section, cx.report);
    let resolved = matches!(cx.distro.name, "aosc" | "azurelinux" | "mariner" | "photon");
    let (path, name) = if resolved { (RESOLVED, "systemd.resolved.conf") } else { (RESOLV, "resolv.conf") };
    let text = match template::of_image(cx, name, &wanted.values(section))? {
        Some(text) => text,
        None if resolved => wanted.resolved_conf(),
        None => wanted.resolv_conf(),
    };
    // A link into /run leads to a file that resolved or a DHCP client writes over.
    if cx.root.read_link(path).is_some_and(|target| target.contains("run/")) {
        cx.root.remove(path)?;
    }
    cx.root.write(path, text, Attr::root(0o644))
}

/// The content of the file (resolv.conf(5)). Every value is one word.
struct Resolver {
    nameservers: Vec<String>,
    search: Vec<String>,
    domain: Option<String>,
    sortlist: Vec<String>,
    flags: Vec<String>,
    options: Vec<(String, String)>,
}

fn single(key: &str, value: &Value, report: &Problems) -> Option<String> {
    let word = value.text().filter(|t| !t.is_empty() && !t.contains(|c: char| c.is_whitespace() || c.is_control()));
    if word.is_none() {
        report.warn(format_args!("resolv_conf.{key}: expected one word, found something else: it is ignored"));
    }
    word
}

impl Resolver {
    fn of(section: &Map, report: &Problems) -> Resolver {
        let (mut flags, mut options) = (Vec::new(), Vec::new());
        for (key, value) in section.get("options").and_then(Value::as_map).map(Map::iter).into_iter().flatten() {
            let Some(name) = single("options", &Value::from(key), report) else { continue };
            match value {
                Value::Bool(true) => flags.push(name),
                Value::Bool(false) => {}
                value => options.extend(single(key, value, report).map(|v| (name, v))),
            }
        }
        options.sort();
        let domain = section.get("domain").filter(|v| !v.is_null()).and_then(|v| single("domain", v, report));
        let list = |key: &str| -> Vec<String> {
            match section.get(key) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::List(list)) => list.iter().filter_map(|v| single(key, v, report)).collect(),
                Some(value) => single(key, value, report).into_iter().collect(),
            }
        };
        Resolver {
            nameservers: list("nameservers"),
            search: list("searchdomains"),
            domain,
            sortlist: list("sortlist"),
            flags,
            options,
        }
    }

    /// For a template of the image.
    fn values(&self, section: &Map) -> Value {
        let mut values = section.clone();
        let options: Map = self.options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        values.insert("options", options);
        values.insert("flags", self.flags.iter().map(|f| Value::from(f.as_str())).collect::<Vec<_>>());
        Value::Map(values)
    }

    fn resolv_conf(&self) -> String {
        let mut text = String::from("# Written once for each instance, because manage_resolv_conf is true.\n");
        for server in &self.nameservers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        let mut line = |key: &str, words: &[String]| {
            if !words.is_empty() {
                text.push_str(&format!("{key} {}\n", words.join(" ")));
            }
        };
        line("search", &self.search);
        line("domain", self.domain.as_slice());
        line("sortlist", &self.sortlist);
        let valued = self.options.iter().map(|(k, v)| format!("{k}:{v}"));
        line("options", &self.flags.iter().cloned().chain(valued).collect::<Vec<_>>());
        text
    }

    fn resolved_conf(&self) -> String {
        let mut text = String::from("# See resolved.conf(5).\n[Resolve]\nLLMNR=false\n");
        for (key, words) in [("DNS", &self.nameservers), ("Domains", &self.search)] {
            if !words.is_empty() {
                text.push_str(&format!("{key}={}\n", words.join(" ")));
            }
        }
        text
    }
}
