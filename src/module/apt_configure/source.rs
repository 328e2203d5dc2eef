//! The entries of `apt.sources`.

use super::gpg::Ring;
use super::mirror::Mirrors;
use super::pattern::Pattern;
use super::{Apt, key};
use crate::base::error::{Context as _, Error, Result};
use crate::document::{Map, Value, optional_map, wrong};
use crate::root::{Attr, Command};
use crate::system::{ModuleContext, template};
use std::collections::HashSet;

const FOLDER: &str = "/etc/apt/sources.list.d";
/// Keys that hold for every source, and those that a source names.
const TRUSTED: &str = "/etc/apt/trusted.gpg.d";
const SIGNED_BY: &str = "/etc/apt/cloud-init.gpg.d";
/// Sources for add-apt-repository: `ppa:user/name`, `cloud-archive:name`.
const REPOSITORY: &str = r"^[\w-]+:\w";
/// The longest source that may be one, in bytes.
const MAX_REPOSITORY: usize = 4096;
const KEYSERVER: &str = "keyserver.ubuntu.com";

/// A key that an entry names.
pub enum Key {
    Text(String),
    Id { id: String, server: String },
}

impl Key {
    /// The key of an entry of `sources`, `primary` or `security`.
    pub fn of(entry: &Value) -> Option<Key> {
        let text = |key: &str| entry.get(key).and_then(Value::text);
        let by_id = || Some(Key::Id { id: text("keyid")?, server: text("keyserver").unwrap_or(KEYSERVER.to_owned()) });
        text("key").map(Key::Text).or_else(by_id)
    }

    /// Writes the key to a file of that name without its suffix, and returns the file's path. An invalid key is reported; then no
    /// file exists at the path.
    ///
    /// # Errors
    /// The key cannot be fetched, or the file not be written.
    pub fn install(&self, cx: &mut ModuleContext, name: &str, signed_by: bool, ring: &mut Ring) -> Result<String> {
        let file = name.rsplit('/').next().unwrap_or(name);
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| if stem.is_empty() { file } else { stem });
        let path = format!("{}/{stem}.gpg", if signed_by { SIGNED_BY } else { TRUSTED });
        let text = match self {
            Key::Text(text) => text.clone(),
            Key::Id { id, server } => match ring.fetch(cx, id, server)? {
                Some(text) => text,
                None => return Ok(path),
            },
        };
        match key::dearmor(&text) {
            Ok(bytes) => {
                cx.root.write(&path, bytes, Attr::root(0o644))?;
                Ok(path)
            }
            Err(e) => {
                cx.report.warn(format_args!("apt: the key of {name} is not added: {e}"));
                Ok("/dev/null".to_owned())
            }
        }
    }
}

/// An entry.
pub struct Source {
    /// For messages: `apt.sources.NAME`.
    at: String,
    source: Option<String>,
    filename: String,
    key: Option<Key>,
    append: bool,
    /// Whether add-apt-repository adds it.
    pub is_repository: bool,
}

/// The entries, in their order.
///
/// # Errors
/// `sources` or an entry of it is not a mapping, or `add_apt_repo_match` is not a pattern.
pub fn entries(apt: &Apt) -> Result<Vec<Source>> {
    let Some(map) = optional_map("apt.sources", apt.section.get("sources"))? else { return Ok(Vec::new()) };
    let pattern = apt.text("add_apt_repo_match").unwrap_or(REPOSITORY.to_owned());
    let pattern = Pattern::new(&pattern).context(|| "apt.add_apt_repo_match")?;
    // The mirrors are not needed: a URL is not for add-apt-repository.
    let values = Value::Map(apt.values(&Mirrors::default()));
    let is_repository = |source: &String| {
        let short = source.len() <= MAX_REPOSITORY;
        short
            && template::render("source", source, &values).is_ok_and(|s| s.len() <= MAX_REPOSITORY && pattern.is_in(&s))
    };
    let one = |(name, value): (&str, &Value)| {
        let at = format!("apt.sources.{name}");
        value.as_map().ok_or_else(|| wrong(&at, "a mapping", value))?;
        let text = |key: &str| value.get(key).and_then(Value::text);
        let source = text("source");
        Ok(Source {
            is_repository: source.as_ref().is_some_and(is_repository),
            filename: text("filename").unwrap_or(name.to_owned()),
            key: Key::of(value),
            append: value.get("append").is_none_or(|v| v.as_bool() != Some(false)),
            source,
            at,
        })
    };
    map.iter().map(one).collect()
}

/// Which entries wait for the network: those that fetch a key or run a program, those that name a mirror which is not known
/// yet, and those that add to the file of an earlier one.
pub fn late(entries: &[Source], mirrors_are_unknown: bool) -> Vec<bool> {
    let mut files = HashSet::new();
    let mut is_late = |entry: &Source| {
        let path = entry.path();
        let late = entry.is_repository
            || entry.fetches_key()
            || (mirrors_are_unknown && entry.has_values())
            || files.contains(&path);
        if late {
            files.insert(path);
        }
        late
    };
    entries.iter().map(&mut is_late).collect()
}

impl Source {
    /// Whether its key is on a server.
    pub fn fetches_key(&self) -> bool {
        matches!(self.key, Some(Key::Id { .. }))
    }

    /// Whether values, such as a mirror, are filled in.
    pub fn has_values(&self) -> bool {
        self.source.as_ref().is_some_and(|s| s.contains(['$', '{']))
    }

    fn path(&self) -> String {
        let folder = if self.filename.starts_with('/') { String::new() } else { format!("{FOLDER}/") };
        let known = [".list", ".sources"].iter().any(|suffix| self.filename.ends_with(suffix));
        format!("{folder}{}{}", self.filename, if known { "" } else { ".list" })
    }

    /// Adds its key and its source.
    ///
    /// # Errors
    /// The key cannot be fetched, the source is not a template, add-apt-repository fails, or a file cannot be written.
    pub fn add(&self, cx: &mut ModuleContext, values: &Map, ring: &mut Ring) -> Result<()> {
        self.add_all(cx, values, ring).context(|| &self.at)
    }

    fn add_all(&self, cx: &mut ModuleContext, values: &Map, ring: &mut Ring) -> Result<()> {
        let own_key = self.source.as_ref().is_some_and(|s| s.contains("$KEY_FILE"));
        let mut values = values.clone();
        if let Some(key) = &self.key {
            values.insert("KEY_FILE", key.install(cx, &self.filename, own_key, ring)?);
        } else if own_key {
            return Err(Error::new("$KEY_FILE needs a key or a keyid"));
        }
        let Some(source) = &self.source else { return Ok(()) };
        let source = template::render("source", source, &Value::Map(values))?;
        if self.is_repository {
            return cx.root.run(Command::new(["add-apt-repository", "--no-update", &source]));
        }
        let path = self.path();
        cx.root.edit_text(&path, Attr::root(0o644), |old| {
            let is_deb822 = path.ends_with(".sources");
            let has = |part: &str| parts(old, is_deb822).any(|p| p == part);
            Ok(match self.append && !old.is_empty() {
                true if parts(&source, is_deb822).all(has) => None,
                // Stanzas need an empty line between them.
                true if is_deb822 => Some(format!("{}\n\n{source}\n", old.trim_end())),
                true => Some(format!("{}\n{source}\n", old.trim_end_matches('\n'))),
                false => Some(format!("{source}\n")),
            })
        })?;
        Ok(())
    }
}

/// The parts of a file of sources: its stanzas (sources.list(5), deb822 style), else its lines.
fn parts(text: &str, is_deb822: bool) -> impl Iterator<Item = &str> {
    let parts: Vec<&str> = if is_deb822 { text.split("\n\n").collect() } else { text.lines().collect() };
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty())
}
