//! # ca_certs
//!
//! Adds certificates in PEM to those that the system trusts, and runs the distribution's program that makes its bundle of
//! them. `remove_defaults: true` takes the distribution's own out first.
//!
//! ```yaml
//! ca_certs:
//!   remove_defaults: false
//!   trusted:
//!   - |
//!     -----BEGIN CERTIFICATE-----
//!     MIIB...
//!     -----END CERTIFICATE-----
//! ```
//!
//! ```schema
//! ca_certs: {
//!  remove_defaults: bool
//!  trusted: [str]+
//!  remove-defaults ~22.3 remove_defaults
//! }+
//! ca-certs ~22.3 ca_certs
//! ```

use super::Module;
use crate::base::deprecated;
use crate::base::error::Result;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Attr, Command, Root, Stage};
use crate::system::ModuleContext;
use std::collections::BTreeSet;

pub static MODULE: Module = Module {
    name: "ca_certs",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    keys: &["ca_certs", "ca-certs"],
    #[rustfmt::skip]
    distros: &[
        "almalinux", "amazon", "centos", "cloudlinux", "fedora", "opensuse-microos", "opensuse-tumbleweed",
        "opensuse-leap", "rocky", "sle_hpc", "sle-micro", "sles", "aosc", "alpine", "debian", "raspberry-pi-os",
        "rhel", "opensuse", "ubuntu", "photon",
    ],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// The start of the names of our own files.
const PREFIX: &str = "cloud-init-ca-cert-";

/// Where a distribution keeps its certificates.
struct Places {
    /// Where added ones go.
    local: &'static str,
    suffix: &'static str,
    /// The list in which the distribution's own can be switched off.
    list: Option<&'static str>,
    /// Folders of its own certificates, to be emptied if they are not wanted.
    own: &'static [&'static str],
    update: &'static str,
}

fn places(cx: &ModuleContext) -> Places {
    match (cx.distro.family, cx.distro.name) {
        (_, "aosc") => Places {
            local: "/etc/ssl/certs",
            suffix: "pem",
            list: Some("/etc/ca-certificates/conf.d/cloud-init.conf"),
            own: &[],
            update: "update-ca-bundle",
        },
        (Family::Redhat, _) => Places {
            local: "/usr/share/pki/ca-trust-source/anchors",
            suffix: "crt",
            list: None,
            own: &["/usr/share/pki/ca-trust-source", "/etc/pki/ca-trust"],
            update: "update-ca-trust",
        },
        (Family::Suse, _) => Places {
            local: "/usr/share/pki/trust/anchors",
            suffix: "crt",
            list: None,
            own: &["/usr/share/pki/trust", "/etc/pki/trust"],
            update: "update-ca-certificates",
        },
        (Family::Photon, _) => Places {
            local: "/etc/ssl/certs",
            suffix: "pem",
            list: None,
            own: &["/etc/pki/tls/certs", "/etc/ssl/certs"],
            update: "rehash_ca_certificates.sh",
        },
        _ => Places {
            local: "/usr/local/share/ca-certificates",
            suffix: "crt",
            list: Some("/etc/ca-certificates.conf"),
            own: &[],
            update: "update-ca-certificates",
        },
    }
}

fn section<'a>(cx: &mut ModuleContext<'a>) -> Result<Option<&'a Map>> {
    if cx.get("ca-certs").is_some() {
        cx.report.deprecated(deprecated::CA_CERTS.about(""));
    }
    if cx.get("ca_certs").is_some() && cx.get("ca-certs").is_some() {
        cx.report.warn("both ca_certs and the old ca-certs are given: ca-certs is ignored");
    }
    let Some(value) = cx.get("ca_certs").or_else(|| cx.get("ca-certs")) else { return Ok(None) };
    let section = value.as_map().ok_or_else(|| wrong("ca_certs", "a mapping", value))?;
    if section.contains_key("remove-defaults") {
        cx.report.deprecated(deprecated::REMOVE_DEFAULTS.about(""));
    }
    Ok(Some(section))
}

fn removes_defaults(section: &Map) -> bool {
    section.get("remove_defaults").or_else(|| section.get("remove-defaults")).is_some_and(Value::is_true)
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = section(cx)? else { return Ok(()) };
    let places = places(cx);
    if removes_defaults(section)
        && let Some(list) = places.list
    {
        deselect(cx.root, list)?;
    }
    let trusted: Vec<&Value> = match section.get("trusted") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::List(list)) => list.iter().collect(),
        Some(one @ Value::String(_)) => vec![one],
        Some(other) => return Err(wrong("ca_certs.trusted", "a list of certificates", other)),
    };
    let mut names = BTreeSet::new();
    for (i, value) in trusted.iter().enumerate() {
        let Some(certificate) = value.as_str() else {
            cx.report.warn(wrong(&format!("ca_certs.trusted: entry {}", i + 1), "a certificate in PEM", value));
            continue;
        };
        let name = format!("{PREFIX}{}.{}", i + 1, places.suffix);
        cx.root.write(&format!("{}/{name}", places.local), certificate, Attr::root(0o644))?;
        names.insert(name);
    }
    // Certificates of the disk's previous instance.
    for name in cx.root.list(places.local) {
        if name.starts_with(PREFIX) && !names.contains(&name) {
            cx.root.remove(&format!("{}/{name}", places.local))?;
        }
    }
    Ok(())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = section(cx)? else { return Ok(()) };
    let places = places(cx);
    if removes_defaults(section) {
        // The bundle among them is missing until the program below has made it anew: commands and downloads before may need it.
        for folder in places.own {
            remove_files(cx.root, folder)?;
        }
        if cx.distro.family == Family::Debian {
            let command = Command::new(["debconf-set-selections", "-"]);
            cx.root.run(command.stdin("ca-certificates ca-certificates/trust_new_crts select no"))?;
        }
    }
    cx.root.run(Command::new([places.update]))
}

/// Removes the files below a folder, except for the certificates that were written for the cloud-config. The folders stay: the
/// program that makes the bundle expects them.
fn remove_files(root: &mut Root, folder: &str) -> Result<()> {
    for name in root.list(folder) {
        let path = format!("{folder}/{name}");
        match root.lstat(&path).map(|s| s.kind) {
            Some(crate::root::FileKind::Dir) => remove_files(root, &path)?,
            _ if name.starts_with(PREFIX) => {}
            _ => root.remove(&path)?,
        }
    }
    Ok(())
}

/// Puts the sign for "not selected" before every certificate of the list (update-ca-certificates(8)).
fn deselect(root: &mut Root, list: &str) -> Result<()> {
    root.edit_text(list, Attr::root(0o644), |text| Ok((!text.is_empty()).then(|| deselected(text)))).map(drop)
}

fn deselected(text: &str) -> String {
    const HEADER: &str = "# Deselected by ca_certs: remove_defaults";
    let mut out = String::new();
    let mut marked = false;
    for line in text.lines() {
        marked |= line == HEADER;
        let selected = !line.is_empty() && !line.starts_with(['#', '!']);
        if selected && !marked {
            out.push_str(&format!("{HEADER}\n"));
            marked = true;
        }
        out.push_str(if selected { "!" } else { "" });
        out.push_str(line);
        out.push('\n');
    }
    out
}
