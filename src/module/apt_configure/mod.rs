//! # apt_configure
//!
//! Configures APT. The distribution's sources are written with the mirrors of `primary` and `security`, or those of the
//! cloud's region, unless `preserve_sources_list` is true; `sources_list` replaces their text, and `disable_suites` takes
//! suites out of it. `sources` adds files in /etc/apt/sources.list.d, with their keys: `key` is a key as text, `keyid` the
//! fingerprint of one that `keyserver` has. `$KEY_FILE` in a source becomes the path of its key, which then holds for this
//! source alone; `$MIRROR`, `$PRIMARY`, `$SECURITY` and `$RELEASE` are replaced as well. A source that matches
//! `add_apt_repo_match`, as `ppa:user/name` does, is added by add-apt-repository.
//!
//! `proxy`, `http_proxy`, `https_proxy`, `ftp_proxy` and `conf` become configuration of APT, and `debconf_selections`
//! answers questions of packages.
//!
//! The sources are written before the pivot, unless a mirror or a key has to be looked up in the network. An image without
//! cloud-init's templates keeps its sources unless `primary`, `security`, `disable_suites` or `sources_list` is given.
//!
//! ```yaml
//! apt:
//!   primary:
//!   - arches: [amd64, arm64]
//!     uri: http://mirror.example.com/debian
//!   - arches: [default]
//!     search: [http://one.example.com/debian, http://two.example.com/debian]
//!     search_dns: true
//!   disable_suites: [backports, $RELEASE-updates]
//!   sources:
//!     tools.list:
//!       source: deb [signed-by=$KEY_FILE] http://tools.example.com $RELEASE main
//!       keyid: 0D70 1B98 F17C 9F6D C0D6  7C2A 8E31 52F1 BA4D 8D52
//!       keyserver: keys.example.com
//!     ppa.list:
//!       source: ppa:user/name
//!   http_proxy: http://proxy.example.com:3128
//!   conf: |
//!     APT::Install-Recommends "false";
//!   debconf_selections:
//!     set1: pkg pkg/question boolean true
//! ```
//!
//! ```schema
//! apt: {
//!  preserve_sources_list: bool
//!  disable_suites: [str]+ unique
//!  primary, security: [{
//!   arches!, search: [str]+
//!   uri, keyid, key, keyserver: str
//!   search_dns: bool
//!  }]+
//!  add_apt_repo_match, sources_list, conf, https_proxy, http_proxy, proxy, ftp_proxy: str
//!  debconf_selections: {*: str}+
//!  sources: {*: {source, keyid, key, keyserver, filename: str  append: bool}+}
//! }+
//! ```

mod debconf;
mod facts;
mod gpg;
mod key;
mod mirror;
mod old;
mod pattern;
mod source;
mod sources_list;
mod suites;

use self::mirror::Mirrors;
use super::Module;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Stage, installed};
use crate::system::{ModuleContext, packages, service};

/// Files of APT's configuration, with cloud-init's names.
const PROXY_CONF: &str = "/etc/apt/apt.conf.d/90cloud-init-aptproxy";
const OWN_CONF: &str = "/etc/apt/apt.conf.d/94cloud-init-config";

pub static MODULE: Module = Module {
    name: "apt_configure",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    distros: &["ubuntu", "debian", "raspberry-pi-os"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(idle),
    ..Module::NEW
};

/// A build without the module does not miss it if the sources stay unchanged, or if nothing is configured.
fn idle(cx: &mut ModuleContext) -> bool {
    if cfg!(not(feature = "software")) {
        return old::section(cx).is_ok_and(|section| section.keys().all(|key| key == "preserve_sources_list"));
    }
    let is_live = |section: &Map| ["sources", "debconf_selections"].iter().any(|key| section.contains_key(key));
    Apt::of(cx).is_ok_and(|apt| apt.is_none_or(|apt| !apt.writes_list && !is_live(&apt.section)))
}

/// The configuration, and the system that it is for.
struct Apt {
    /// The value of `apt`.
    section: Map,
    codename: Option<String>,
    arch: String,
    /// Whether the distribution's sources are written.
    writes_list: bool,
}

impl Apt {
    /// The requested configuration. None if there is nothing to configure: no `apt`, and no APT.
    fn of(cx: &mut ModuleContext) -> Result<Option<Apt>> {
        let section = old::section(cx)?;
        let has_apt = ["apt-get", "apt"].iter().any(|program| installed::which(cx.root, program).is_some());
        if section.is_empty() && (!has_apt || facts::is_core(cx.root)) {
            return Ok(None);
        }
        let preserves = section.get("preserve_sources_list").is_some_and(|v| !v.is_null() && !v.is_false());
        // Read only if needed: dpkg's list of packages has some megabytes.
        let arch = std::cell::OnceCell::new();
        let of_system = || arch.get_or_init(|| facts::architecture(cx.root)).clone();
        let writes_list = !preserves && (sources_list::has_template(cx) || sources_list::is_asked(&section, of_system));
        let writes_any = writes_list || section.contains_key("sources");
        let arch = if writes_any { of_system() } else { String::new() };
        Ok(Some(Apt { section, codename: facts::codename(cx.root), arch, writes_list }))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.section.get(key).and_then(Value::text).filter(|text| !text.is_empty())
    }

    /// The variables of templates and sources.
    fn values(&self, mirrors: &Mirrors) -> Map {
        let mut values = Map::new();
        for (names, value) in [
            (&["RELEASE", "codename"][..], &self.codename),
            (&["MIRROR", "mirror", "PRIMARY", "primary"], &mirrors.primary),
            (&["SECURITY", "security"], &mirrors.security),
        ] {
            for name in names.iter().filter(|_| value.is_some()) {
                values.insert(*name, value.clone().unwrap_or_default());
            }
        }
        values
    }
}

/// What needs no network and no program.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(apt) = Apt::of(cx)? else { return Ok(()) };
    let problems = Problems::new();
    problems.keep(configuration(cx, &apt));
    problems.absorb(sources(cx, &apt, false));
    problems.into_result()
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(apt) = Apt::of(cx)? else { return Ok(()) };
    let problems = Problems::new();
    if let Some(selections) = apt.section.get("debconf_selections").filter(|v| !v.is_null()) {
        problems.keep(debconf::select(cx, selections));
    }
    problems.absorb(sources(cx, &apt, true));
    problems.into_result()
}

/// Writes APT's configuration, or removes what an earlier run wrote.
fn configuration(cx: &mut ModuleContext, apt: &Apt) -> Result<()> {
    let mut proxies = String::new();
    for (key, scheme) in [("proxy", "http"), ("http_proxy", "http"), ("ftp_proxy", "ftp"), ("https_proxy", "https")] {
        let Some(url) = apt.text(key) else { continue };
        if url.contains(|c: char| c.is_control() || c == '"') {
            cx.report.warn(format_args!("apt.{key}: expected a URL without quotes: it is ignored"));
            continue;
        }
        proxies.push_str(&format!("Acquire::{scheme}::Proxy \"{url}\";\n"));
    }
    for (path, text) in [(PROXY_CONF, proxies), (OWN_CONF, apt.text("conf").unwrap_or_default())] {
        if text.is_empty() {
            cx.root.remove(path)?;
        } else {
            cx.root.write(path, text, Attr::root(0o644))?;
        }
    }
    Ok(())
}

/// Writes the distribution's sources and those of `sources`: the part that needs no network, or, with `online`, the
/// part that does. Returns the errors; the rest is done.
fn sources(cx: &mut ModuleContext, apt: &Apt, online: bool) -> Problems {
    let problems = Problems::new();
    let entries = match source::entries(apt) {
        Ok(entries) => entries,
        Err(e) => {
            problems.error(e);
            return problems;
        }
    };
    let needs_mirrors = apt.writes_list || entries.iter().any(source::Source::has_values);
    let known = if needs_mirrors { mirror::choose(cx, &apt.section, &apt.arch, false) } else { Ok(Mirrors::default()) };
    let list_is_late = known.is_err() || sources_list::fetches_key(apt);
    let late = source::late(&entries, known.is_err());
    let mut ring = gpg::Ring::default();
    let mirrors = match known {
        Err(mirror::Offline) if online => {
            service::wait_for_network(cx);
            mirror::choose(cx, &apt.section, &apt.arch, true).unwrap_or_default()
        }
        known => known.unwrap_or_default(),
    };
    if online {
        problems.keep(install_what_is_needed(cx, apt, &entries));
    }
    if apt.writes_list && list_is_late == online {
        problems.keep(sources_list::write(cx, apt, &mirrors, &mut ring));
    }
    if apt.writes_list && online {
        sources_list::rename_lists(cx, apt, &mirrors);
    }
    let values = apt.values(&mirrors);
    for (entry, _) in entries.iter().zip(late).filter(|(_, late)| *late == online) {
        problems.keep(entry.add(cx, &values, &mut ring));
    }
    if online
        && apt.section.get("sources").is_some_and(|v| !v.is_null())
        && let Err(e) = packages::refresh_again(cx)
    {
        cx.report.warn(e);
    }
    ring.close(cx);
    problems
}

/// Installs the programs that fetch keys and add repositories.
fn install_what_is_needed(cx: &mut ModuleContext, apt: &Apt, entries: &[source::Source]) -> Result<()> {
    let fetches = entries.iter().any(source::Source::fetches_key) || sources_list::fetches_key(apt);
    let adds = entries.iter().any(|e| e.is_repository);
    let needed = [(fetches, "gpg", "gnupg"), (adds, "add-apt-repository", "software-properties-common")];
    let missing = needed.iter().filter(|(needed, program, _)| *needed && installed::which(cx.root, program).is_none());
    let missing: Vec<String> = missing.map(|(_, _, package)| (*package).to_owned()).collect();
    if missing.is_empty() { Ok(()) } else { packages::install(cx, &missing) }
}

/// A value of `apt` that is a list of words; anything else is reported and ignored.
fn words(cx: &mut ModuleContext, apt: &Apt, key: &str) -> Vec<String> {
    match apt.section.get(key) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
        Some(other) => {
            cx.report.warn(format_args!("{}: it is ignored", wrong(&format!("apt.{key}"), "a list", other)));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests;
