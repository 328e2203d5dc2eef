//! The distribution's own sources.

use super::gpg::Ring;
use super::mirror::{self, Mirrors};
use super::source::Key;
use super::{Apt, facts, suites, words};
use crate::base::error::Result;
use crate::document::{Map, Value};
use crate::root::{Attr, Command};
use crate::system::{ModuleContext, template};

/// Where APT keeps what it fetched, by mirror.
const LISTS: &str = "/var/lib/apt/lists";
/// The most files of one mirror that are renamed.
const MAX_RENAMES: usize = 1000;
const NOTE: &str = "# The sources of this system are in the *.sources files of /etc/apt/sources.list.d.\n";

const KINDS: [&str; 2] = ["primary", "security"];

fn key(apt: &Apt, kind: &str) -> Option<Key> {
    Key::of(mirror::for_arch(apt.section.get(kind)?, &apt.arch)?)
}

/// Whether `apt` configures the distribution's sources on machines of the architecture that `arch` returns.
pub fn is_asked(section: &Map, arch: impl Fn() -> String) -> bool {
    let keys = ["disable_suites", "sources_list"];
    keys.iter().any(|key| section.get(key).is_some_and(|v| !v.is_null() && v.as_str() != Some("")))
        || KINDS.iter().any(|kind| section.get(kind).is_some_and(|list| mirror::for_arch(list, &arch()).is_some()))
}

/// Whether the image has a template for them.
pub fn has_template(cx: &ModuleContext) -> bool {
    template_names(cx).iter().any(|name| cx.root.is_file(&template::path(cx, name)))
}

/// cloud-init's names of its templates for them.
fn template_names(cx: &ModuleContext) -> [String; 2] {
    [format!("sources.list.{}.deb822", cx.distro.name), "sources.list".to_owned()]
}

/// Whether they name a key that is on a server.
pub fn fetches_key(apt: &Apt) -> bool {
    apt.writes_list && KINDS.iter().any(|kind| matches!(key(apt, kind), Some(Key::Id { .. })))
}

/// Writes the sources: `sources_list`, else the image's template, else prepivot's own if mirrors or suites are given.
///
/// # Errors
/// A template is wrong, a key cannot be fetched, or a file not be written.
pub fn write(cx: &mut ModuleContext, apt: &Apt, mirrors: &Mirrors, ring: &mut Ring) -> Result<()> {
    let mut values = apt.values(mirrors);
    for kind in KINDS {
        if let Some(key) = key(apt, kind) {
            let path = key.install(cx, kind, false, ring)?;
            values.insert(format!("{kind}_key"), path);
        }
    }
    let distro = cx.distro.name;
    let text = match apt.text("sources_list") {
        Some(text) => template::render("apt.sources_list", &text, &Value::Map(values))?,
        None => {
            let values = Value::Map(values);
            let mut found = None;
            for name in template_names(cx) {
                if found.is_none() {
                    found = template::of_image(cx, &name, &values)?;
                }
            }
            let Some(text) = found.or_else(|| default_text(distro, &values)) else {
                cx.report.warn(format_args!(
                    "apt: the image has no template for the sources of {distro} (/etc/cloud/templates/sources.list.{distro}.deb822.tmpl): they stay as they are"
                ));
                return Ok(());
            };
            if apt.codename.is_none() {
                cx.report
                    .warn("apt: os-release does not name the release (VERSION_CODENAME): the sources stay as they are");
                return Ok(());
            }
            text
        }
    };
    let deb822 = suites::is_deb822(&text, cx.report);
    let disabled = words(cx, apt, "disable_suites");
    let text = suites::disable(&text, &disabled, apt.codename.as_deref().unwrap_or_default(), deb822);
    let places = facts::Places::of(cx.root);
    if !deb822 {
        return cx.root.write(&places.list, text, Attr::root(0o644));
    }
    cx.root.write(&format!("{}/{distro}.sources", places.parts), text, Attr::root(0o644))?;
    // The sources would be there twice.
    let is_source = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    if !cx.root.exists(&places.list) {
        Ok(())
    } else if distro != "ubuntu" {
        cx.root.remove(&places.list)
    } else if cx.root.text(&places.list).lines().any(is_source) {
        cx.root.write(&places.list, NOTE, Attr::root(0o644))
    } else {
        Ok(())
    }
}

/// The distribution's sources in the deb822 format, as its own installer writes them.
fn default_text(distro: &str, values: &Value) -> Option<String> {
    let value = |key: &str| values.get(key).and_then(Value::as_str);
    let (types, components) = match distro {
        "debian" => ("deb deb-src", "main"),
        "ubuntu" => ("deb", "main universe restricted multiverse"),
        _ => return None,
    };
    let codename = value("codename").unwrap_or_default();
    let keyring = format!("/usr/share/keyrings/{distro}-archive-keyring.gpg");
    let primary_key = value("primary_key").unwrap_or(&keyring);
    // Before Debian 11 the security suite had a name of another form.
    let security = if matches!(codename, "stretch" | "buster") { "/updates" } else { "-security" };
    let stanza = |url: &str, suites: String, key: &str| {
        format!("Types: {types}\nURIs: {url}\nSuites: {suites}\nComponents: {components}\nSigned-By: {key}\n")
    };
    Some(format!(
        "# By apt_configure of the cloud-config\n{}\n{}",
        stanza(value("mirror")?, format!("{codename} {codename}-updates {codename}-backports"), primary_key),
        stanza(value("security")?, format!("{codename}{security}"), value("security_key").unwrap_or(primary_key)),
    ))
}

/// Gives what APT has fetched from the distribution's mirrors the names of the new ones, so that it is not fetched again. By
/// mv(1): the files may be larger than this program's memory.
pub fn rename_lists(cx: &mut ModuleContext, apt: &Apt, mirrors: &Mirrors) {
    let old = mirror::failsafe(cx, &apt.arch);
    for (old, new) in [(old.primary, &mirrors.primary), (old.security, &mirrors.security)] {
        let (Some(old), Some(new)) = (old, new) else { continue };
        let (old, new) = (prefix(&old), prefix(new));
        if old == new {
            continue;
        }
        let names = cx.root.list(LISTS).into_iter().filter_map(|n| Some(n.strip_prefix(&old)?.to_owned()));
        for rest in names.filter(|rest| rest.starts_with('_')).take(MAX_RENAMES).collect::<Vec<_>>() {
            let words = ["mv", "--", &format!("{LISTS}/{old}{rest}"), &format!("{LISTS}/{new}{rest}")];
            if let Err(e) = cx.root.run(Command::new(words)) {
                cx.report.warn(format_args!("apt: a list of packages is not renamed: {e}"));
            }
        }
    }
}

/// The beginning of the names of a mirror's lists: its URL without scheme, `/` as `_`.
fn prefix(url: &str) -> String {
    let url = url.trim_end_matches('/');
    url.split_once("://").map_or(url, |(_, rest)| rest).replace('/', "_")
}
