//! One file per datasource, and the table of them.

pub mod config_drive;
pub mod ec2;
mod ec2_network;
mod ec2_service;
pub mod no_cloud;
mod no_cloud_net;
pub mod openstack;
pub mod openstack_files;
pub mod service;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::detect;
use crate::document::{Map, Value};
use crate::drive::search::Probed;
use crate::drive::{self, Files};
use crate::instance::{DsMode, Instance};
use crate::machine::Machine;
use crate::root::Root;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long reading `--seed` may take.
const SEED_TIME: Duration = Duration::from_secs(60);
/// How many SSH keys one instance may bring.
const MAX_KEYS: usize = 1_000;

/// A line of the table.
pub struct Source {
    /// cloud-init's name: `ConfigDrive`.
    pub name: &'static str,
    /// What reads it.
    pub read: fn(&mut Search) -> Result<Option<Found>>,
}

/// Sources that need no network, in cloud-init's order (`CFG_BUILTIN`, datasource_list).
pub static LOCAL: &[Source] =
    &[Source { name: "NoCloud", read: no_cloud::read }, Source { name: "ConfigDrive", read: config_drive::read }];

/// Labels of the drives that the table's sources read.
pub const LABELS: [&str; 2] = [config_drive::LABEL, no_cloud::LABEL];

/// An instance, and where it was found: a device, a folder or an address.
#[derive(Debug)]
pub struct Found {
    pub instance: Instance,
    pub place: String,
}

/// What a source may look at. Drives are read once and kept.
pub struct Search<'a> {
    pub machine: &'a Machine,
    pub root: &'a Root,
    /// The image's own configuration.
    pub config: &'a Value,
    pub deadline: Deadline,
    drives: Vec<Probed>,
    open: BTreeMap<PathBuf, Option<Files>>,
    problems: Vec<String>,
}

impl<'a> Search<'a> {
    /// A search without drives.
    pub fn new(machine: &'a Machine, root: &'a Root, config: &'a Value, deadline: Deadline) -> Self {
        Search { machine, root, config, deadline, drives: Vec::new(), open: BTreeMap::new(), problems: Vec::new() }
    }

    /// The drives that were found so far. One that appeared since the last time is read, the others are not read again.
    pub fn set_drives(&mut self, drives: &[Probed]) {
        let old = std::mem::replace(&mut self.drives, drives.to_vec());
        crate::base::sort::by(&mut self.drives, |a, b| b.device.node.cmp(&a.device.node));
        self.open.retain(|path, _| old.iter().any(|d| d.device.node == *path && drives.contains(d)));
    }

    /// The image's settings for a source: `datasource: {Name: …}`.
    pub fn settings(&self, name: &str) -> Option<&'a Value> {
        self.config.at(&["datasource", name])
    }

    /// The files of a folder of the root; None where there is none.
    pub fn seed_folder(&self, path: &str) -> Option<Files> {
        let mut files = Files::default();
        collect(self.root, path, "", &mut files, 0);
        let any = files.iter().next().is_some();
        any.then_some(files)
    }

    /// Paths of the drives that have `label`, in any case, in the order in which they are tried: by name, last first.
    pub fn drives_labelled(&mut self, label: &str) -> Vec<String> {
        let has_label = |d: &&Probed| d.superblock().is_some_and(|s| s.is_labelled(label));
        let found: Vec<&Probed> = self.drives.iter().filter(has_label).collect();
        let paths: Vec<String> = found.iter().map(|d| d.device.node.display().to_string()).collect();
        if let [first, others @ ..] = found.as_slice()
            && others.iter().any(|o| !o.device.shares_disk(&first.device))
        {
            self.problem(format!(
                "several drives are labelled {label}: {}; the first that is good is used",
                paths.join(", ")
            ));
        }
        paths
    }

    /// The files of a drive. None, and a problem, where it cannot be read.
    pub fn open_drive(&mut self, path: &str) -> Option<Files> {
        let path = PathBuf::from(path);
        if let Some(files) = self.open.get(&path) {
            return files.clone();
        }
        let files = match drive::open(&path, self.deadline) {
            Ok(files) => {
                for note in notes(&files) {
                    self.problem(format!("{}: {note}", path.display()));
                }
                Some(files)
            }
            Err(e) => {
                self.problem(e.to_string());
                None
            }
        };
        self.open.insert(path, files.clone());
        files
    }

    /// Something that the user should know, once.
    pub fn problem(&mut self, text: String) {
        if !self.problems.contains(&text) {
            log::warn!("{text}");
            self.problems.push(text);
        }
    }

    /// Why a search came to nothing, which is told by whoever knows that no other source has anything.
    pub fn reason(&mut self, text: String) {
        if !self.problems.contains(&text) {
            log::debug!("{text}");
            self.problems.push(text);
        }
    }

    /// What was told so far.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// How many notes on one drive are told.
const MAX_NOTES: usize = 10;

/// What a drive's reader left out, for people: the first few.
fn notes(files: &Files) -> Vec<String> {
    let all = files.notes();
    let more = all.len().saturating_sub(MAX_NOTES);
    let last = (more > 0).then(|| format!("{more} more files are left out"));
    all.iter().take(MAX_NOTES).cloned().chain(last).collect()
}

/// How deep and how large a seed folder of the image may be.
const MAX_SEED_DEPTH: usize = 8;
const MAX_SEED_FILES: usize = 10_000;

fn collect(root: &Root, folder: &str, prefix: &str, files: &mut Files, depth: usize) {
    for name in root.list(folder) {
        let (path, inner) = (format!("{folder}/{name}"), format!("{prefix}{name}"));
        if root.is_dir(&path) {
            if depth < MAX_SEED_DEPTH {
                collect(root, &path, &format!("{inner}/"), files, depth + 1);
            }
        } else if files.iter().count() < MAX_SEED_FILES {
            match root.read(&path) {
                Ok(Some(bytes)) => files.insert(inner, bytes),
                Ok(None) => {}
                Err(e) => log::warn!("{e}"),
            }
        }
    }
}

/// `ds=name;key=value;…` on the kernel command line, or one of its old spellings: the name in lower case, and the keys.
pub fn parameters(machine: &Machine) -> Option<(String, Map)> {
    let (_, value) = detect::name_on(&machine.cmdline)?;
    let mut parts = value.split(';');
    let name = parts.next()?.to_ascii_lowercase();
    let name = if name == "nocloud-net" { "nocloud".into() } else { name };
    Some((name, parts.filter_map(|p| p.split_once('=')).collect()))
}

/// Asks the local sources among `names`, in that order. Errors of one are told and the next is asked.
pub fn find_local(search: &mut Search, names: &[String]) -> Option<Found> {
    let known = names.iter().filter_map(|name| detect::named(name));
    for source in known.filter_map(|line| LOCAL.iter().find(|s| s.name == line.name)) {
        match (source.read)(search) {
            Ok(Some(found)) if found.instance.dsmode == DsMode::Disabled => {
                log::info!("{}: {} says that it is not to be used (dsmode: disabled)", source.name, found.place);
            }
            Ok(Some(found)) => return Some(found),
            Ok(None) => {}
            Err(e) => search.problem(e.to_string()),
        }
    }
    None
}

/// Reads `--seed`: a drive, an image of one, or a folder, of any layout that a local source reads.
pub fn read_seed(machine: &Machine, root: &Root, config: &Value, seed: &Path) -> Result<Found> {
    let deadline = Deadline::after(SEED_TIME);
    let files = drive::open(seed, deadline)?;
    let place = seed.display().to_string();
    notes(&files).iter().for_each(|note| log::warn!("{place}: {note}"));
    if openstack_files::is_openstack(&files)
        && let Some(mut instance) = openstack_files::read(&files)
    {
        let search = Search::new(machine, root, config, deadline);
        config_drive::finish(&search, &mut instance, "config-disk", &place);
        return Ok(Found { instance, place });
    }
    no_cloud::of_files(&files, &place).ok_or_else(|| {
        crate::base::error::Error::new(format!(
            "{place} is no config drive: expected openstack/latest/meta_data.json, or meta-data and user-data"
        ))
    })
}

/// SSH public keys in any of the shapes that metadata gives them: one text, a list, or a mapping of names to keys.
/// In order, without repeats, blank lines and comments.
pub(crate) fn public_keys(value: Option<&Value>) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let mut add = |text: &str| {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if keys.len() < MAX_KEYS && !keys.iter().any(|k| k == line) {
                keys.push(line.to_owned());
            }
        }
    };
    match value {
        Some(Value::String(text)) => add(text),
        Some(Value::List(list)) => list.iter().filter_map(Value::as_str).for_each(add),
        Some(Value::Map(map)) => {
            for (_, value) in map.iter() {
                match value {
                    Value::String(text) => add(text),
                    Value::List(list) => list.iter().filter_map(Value::as_str).for_each(&mut add),
                    // The EC2 tree: {"openssh-key": "ssh-rsa …"}.
                    Value::Map(map) => map.iter().filter_map(|(_, v)| v.as_str()).for_each(&mut add),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn keys_of_every_shape() {
        for text in [
            r#""ssh-rsa A\nssh-rsa B\n""#,
            r#"["ssh-rsa A", "ssh-rsa B", "ssh-rsa A"]"#,
            r#"{"k": "ssh-rsa A", "l": ["ssh-rsa B"]}"#,
            r#"{"0": {"openssh-key": "ssh-rsa A"}, "1": {"openssh-key": "ssh-rsa B"}}"#,
        ] {
            assert_eq!(
                public_keys(Some(&json::parse("t", text.as_bytes()).unwrap())),
                ["ssh-rsa A", "ssh-rsa B"],
                "{text}"
            );
        }
    }
}
