//! `prepivot compare`: what prepivot would have made of a machine that cloud-init has provisioned, against what is there.
//!
//! The last instance is planned as a new one over the provisioned root: the instance's state counts as absent, and everything else
//! is there. An edit of a file that cloud-init has edited must then find nothing to do, and a file that is written must be
//! there as it would be written.

mod cached;
mod disks;
mod failures;
mod judge;
mod netplan;
mod planned;

use super::boot::NETWORK;
use crate::base::error::Result;
use crate::base::mask;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::state::CLOUD_DIR;
use crate::instance::{Instance, NetworkData};
use crate::machine::Machine;
use crate::root::{Attr, Change, FileKind, Root, Time, Use};
use failures::Failures;
use judge::{Known, Verdict};
use planned::{Planned, Planner};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a boot makes and loses, and logs: not compared.
const NOT_COMPARED: [&str; 7] = [CLOUD_DIR, "/run", "/tmp", "/dev", "/proc", "/sys", "/var/log"];
/// Where cloud-init's log names the files that it wrote, and the words around each name.
const LOG: &str = "/var/log/cloud-init.log";
const WRITING: (&str, &str) = ("Writing to ", " - ");
/// The words before the name of a module that it says begins.
const RUNNING: &str = "Running module ";
/// The longest path that is printed, in bytes.
const LONGEST_SHOWN: usize = 256;
/// One path, and how it compares.
pub struct Compared {
    pub path: String,
    /// The module that makes it, as far as is known; empty: not known.
    pub module: String,
    pub how: How,
    /// What differs, without secrets.
    pub details: String,
}

/// How a path compares.
#[derive(Clone, PartialEq, Eq)]
pub enum How {
    Same,
    Alike,
    /// The row's id and reason.
    Stated(&'static str, &'static str),
    /// Written after cloud-init's modules ran: by the machine's own life.
    Since,
    Different,
    /// prepivot would make it.
    Missing,
    /// cloud-init made it, and prepivot would not.
    Only,
}

impl How {
    /// Its name in the output.
    pub fn name(&self) -> &'static str {
        match self {
            How::Same => "same",
            How::Alike => "alike",
            How::Stated(..) => "stated",
            How::Since => "since",
            How::Different => "different",
            How::Missing => "missing",
            How::Only => "only",
        }
    }

    /// Whether a failure of cloud-init's can be the reason.
    fn may_be_excused(&self) -> bool {
        matches!(self, How::Missing | How::Different)
    }

    /// Whether it speaks against prepivot.
    fn is_unexplained(&self) -> bool {
        matches!(self, How::Different | How::Missing | How::Only)
    }
}

/// The result.
pub struct Comparison {
    pub instance_id: String,
    pub source: String,
    pub paths: Vec<Compared>,
    /// Errors and warnings: what could not be read, and what prepivot would report of the documents.
    pub notes: Vec<String>,
}

/// What is compared with.
struct There<'a> {
    disk: &'a Root,
    is_version_1: bool,
    /// When the last module of the instance began.
    finished: Option<Time>,
}

/// Compares the machine or image at `path`.
///
/// # Errors
/// It cannot be read, or cloud-init has not provisioned it.
pub fn compare(path: &Path) -> Result<Comparison> {
    let machine = Machine::read(path);
    let disk = Root::open(path, Use::Plan)?;
    let report = Problems::new();
    let mut instance = cached::instance(&disk, &report)?;
    let (began, finished) = times(&disk, &instance.folder()).unzip();
    let planner = Planner::new(path, &machine, &disk, began);
    let planned = planner.plan(&instance, Map::new(), report)?;
    let log = disk.text_at_most(LOG, crate::root::MAX_READ);
    let there = There { disk: &disk, is_version_1: is_version_1(&instance), finished };
    let mut paths = there.compared(&planned);
    excuse(&mut paths, &Failures::of(&log), &there, &planner, &planned, &mut instance)?;
    let injected = injected(&instance);
    let made: BTreeSet<&str> = planned.intended.iter().map(Change::path).collect();
    for (path, module) in written_by_cloud_init(&log) {
        if !made.contains(path.as_str()) && is_compared(&path) && disk.lstat(&path).is_some() {
            // A file that prepivot has read and left as it is, because there is nothing to change.
            let otherwise = if planned.read.contains(&path) { How::Same } else { How::Only };
            let how = match injected.contains(path.as_str()) {
                true => How::Stated("injected", "a file of the drive, of which cloud-init keeps no copy"),
                false => row(&path, "kept", otherwise),
            };
            paths.push(Compared { path, module, how, details: String::new() });
        }
    }
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths.iter_mut().for_each(|compared| hide(&mut compared.path));
    Ok(Comparison { instance_id: instance.instance_id, source: instance.source, paths, notes: planned.notes })
}

/// States of differences that cloud-init's failures made them: those that a plan without the modules, the network and the documents
/// that failed does not have. What other modules make of the same file must be there all the same.
fn excuse(
    paths: &mut [Compared],
    failures: &Failures,
    there: &There,
    planner: &Planner,
    planned: &Planned,
    instance: &mut Instance,
) -> Result<()> {
    if failures.are_none() || !paths.iter().any(|compared| compared.how.may_be_excused()) {
        return Ok(());
    }
    if failures.is_unread {
        planned::take_as_read(there.disk, instance);
    }
    let above = failures.left_out(&planned.config);
    let without = planner.plan(instance, above, Problems::new())?;
    for compared in paths.iter_mut().filter(|compared| compared.how.may_be_excused()) {
        let modules = planned.at(&compared.path).map(|change| planned.trace.of_change(change)).unwrap_or_default();
        let of_others = without.at(&compared.path).filter(|change| !matches!(change, Change::Remove { .. }));
        // Nothing but the network writes its files, and it is in no list of modules.
        if modules != [NETWORK]
            && of_others.and_then(|change| there.one(change)).is_some_and(|one| one.how.is_unexplained())
        {
            continue;
        }
        let unread = failures.is_unread.then_some("cloud-init could not read a document, by its log");
        if let Some(reason) = modules.iter().find_map(|module| failures.reason(module)).or(unread) {
            compared.how = How::Stated("failed", reason);
        }
    }
    Ok(())
}

/// Whether the network configuration is of version 1, which cloud-init renders itself.
fn is_version_1(instance: &Instance) -> bool {
    let Some(NetworkData::Cloud(network)) = &instance.network else { return false };
    network.get("network").unwrap_or(network).get("version").and_then(Value::text).as_deref() == Some("1")
}

fn is_compared(path: &str) -> bool {
    let is_in = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    !NOT_COMPARED.iter().any(|folder| is_in(folder))
}

/// When the first and the last module of the instance began, by their semaphores.
fn times(disk: &Root, folder: &str) -> Option<(Time, Time)> {
    let sem = format!("{CLOUD_DIR}/instances/{folder}/sem");
    let names = disk.list(&sem);
    let times = || {
        names
            .iter()
            .filter(|name| name.starts_with("config_"))
            .filter_map(|name| disk.modified(&format!("{sem}/{name}")))
    };
    times().min().zip(times().max())
}

/// The paths that cloud-init's log says were written, each with the module that ran.
fn written_by_cloud_init(log: &str) -> BTreeMap<String, String> {
    let (mut module, mut found) = ("", BTreeMap::new());
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once(RUNNING) {
            module = rest.split(' ').next().unwrap_or_default();
        } else if let Some((path, _)) = line.split_once(WRITING.0).and_then(|(_, rest)| rest.split_once(WRITING.1))
            && path.starts_with('/')
        {
            found.insert(path.to_owned(), module.to_owned());
        }
    }
    found
}

/// The files that the metadata of a config drive has written, whose contents are on the drive alone.
fn injected(instance: &Instance) -> BTreeSet<&str> {
    let files = instance.metadata.get("files").and_then(Value::as_list).unwrap_or_default();
    files.iter().filter_map(|file| file.get("path")?.as_str()).collect()
}

/// A document may have a text in the place of a path, which may be a secret: such a path is not shown.
fn hide(path: &mut String) {
    if path.len() > LONGEST_SHOWN || path.contains(char::is_control) {
        *path = format!("(a path of {} bytes, which is not shown)", path.len());
    }
}

impl There<'_> {
    /// Compares what a plan makes.
    fn compared(&self, planned: &Planned) -> Vec<Compared> {
        let compared = |change: &Change| {
            let module = planned.trace.of_change(change).last().copied().unwrap_or_default().to_owned();
            Some(Compared { module, ..self.one(change)? })
        };
        planned.intended.iter().filter_map(compared).collect()
    }

    /// Compares one path. None: it is not compared.
    fn one(&self, change: &Change) -> Option<Compared> {
        let path = change.path();
        if !is_compared(path) {
            return None;
        }
        let (how, details) = self.judged(change);
        let times = || self.finished.zip(self.disk.modified(path));
        let is_later = || times().is_some_and(|(finished, modified)| modified.0 > finished.0 + 1);
        let how = if how == How::Different && is_later() { How::Since } else { how };
        Some(Compared { path: path.to_owned(), module: String::new(), how, details })
    }

    fn judged(&self, change: &Change) -> (How, String) {
        let disk = self.disk;
        let path = change.path();
        let there = disk.lstat(path);
        let none = String::new();
        let Some(stat) = there else {
            let is_gone = matches!(change, Change::Remove { .. });
            let is_nothing = || matches!(change, Change::Write { content, .. } if judge::configures_nothing(path, &content.to_vec()));
            return match is_gone {
                true => (How::Same, none),
                false if is_nothing() => (How::Alike, none),
                false => (row(path, "made", How::Missing), none),
            };
        };
        match change {
            Change::Remove { .. } => (row(path, "kept", How::Only), none),
            Change::Mkdir { .. } if stat.kind == FileKind::Dir => (How::Same, none),
            Change::Symlink { target, .. } if disk.read_link(path).as_ref() == Some(target) => (How::Same, none),
            Change::Chown { attr, .. } | Change::Chmod { attr, .. } => mode(path, How::Same, stat.attr, *attr, none),
            Change::Write { content, attr, .. } if stat.kind == FileKind::File => {
                let there = match disk.read(path) {
                    Ok(there) => there.unwrap_or_default(),
                    Err(e) => return (How::Different, e.to_string()),
                };
                let wanted = content.to_vec();
                let known = Known { has_device: &|device| disk.exists(device), is_version_1: self.is_version_1 };
                let how = match judge::contents(path, &there, &wanted, &known) {
                    Verdict::Same => How::Same,
                    Verdict::Alike => How::Alike,
                    Verdict::Stated(row) => How::Stated(row.id, row.reason),
                    Verdict::Different => How::Different,
                };
                let is_public = attr.mode & stat.attr.mode & 0o004 != 0;
                let details = match (&how, std::str::from_utf8(&there), std::str::from_utf8(&wanted)) {
                    (How::Same, ..) => none,
                    (_, Ok(there), Ok(wanted)) if is_public => super::diff::lines(there, wanted, ""),
                    _ => "only root may read it, or it is no text: its content is not shown\n".into(),
                };
                mode(path, how, stat.attr, *attr, details)
            }
            _ => (row(path, "any", How::Different), "its type differs\n".into()),
        }
    }
}

fn row(path: &str, what: &str, otherwise: How) -> How {
    match judge::by_row(path, what) {
        Some(Verdict::Stated(row)) => How::Stated(row.id, row.reason),
        _ => otherwise,
    }
}

/// Adds what mode and owner say.
fn mode(path: &str, how: How, there: Attr, wanted: Attr, details: String) -> (How, String) {
    if there == wanted {
        return (how, details);
    }
    let line = format!(
        "- {:04o} {}:{}\n+ {:04o} {}:{}\n",
        there.mode, there.uid, there.gid, wanted.mode, wanted.uid, wanted.gid
    );
    let how = if how.is_unexplained() { how } else { row(path, "mode", How::Different) };
    (how, line + &details)
}

impl Comparison {
    /// Whether everything that differs is stated, or is the machine's own life.
    pub fn is_explained(&self) -> bool {
        !self.paths.iter().any(|path| path.how.is_unexplained())
    }

    /// For people: one line for each path that is not the same, with what differs, and the numbers.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for Compared { path, module, how, details } in self.paths.iter().filter(|path| path.how != How::Same) {
            let about = match how {
                How::Same | How::Alike => String::new(),
                How::Stated(id, reason) => format!(" ({id}: {reason})"),
                _ if module.is_empty() => String::new(),
                _ => format!(" ({module})"),
            };
            out += &super::plan::shown(&format!("  {:<9} {path}{about}", how.name()));
            if how.is_unexplained() {
                out.extend(details.lines().map(|line| super::plan::shown(&format!("      {}", mask::options(line)))));
            }
        }
        for note in &self.notes {
            out += &super::plan::shown(&format!("  note      {note}"));
        }
        let count = |name: &str| self.paths.iter().filter(|path| path.how.name() == name).count();
        out += &super::plan::shown(&format!(
            "instance {} ({}): {} paths: {} same, {} alike, {} stated, {} changed since; {} different, {} missing, {} only there",
            self.instance_id,
            self.source,
            self.paths.len(),
            count("same"),
            count("alike"),
            count("stated"),
            count("since"),
            count("different"),
            count("missing"),
            count("only")
        ));
        out
    }

    /// The same as JSON, with the paths that are the same.
    pub fn to_json(&self) -> String {
        let path = |Compared { path, module, how, details }: &Compared| {
            let mut map = Map::new();
            map.insert("path", path.as_str());
            map.insert("is", how.name());
            if let How::Stated(id, reason) = how {
                map.insert("id", *id);
                map.insert("reason", *reason);
            }
            if how.is_unexplained() || *how == How::Since {
                map.insert("module", module.as_str());
                map.insert("diff", mask::urls(&mask::options(details)).into_owned());
            }
            Value::Map(map)
        };
        let mut map = Map::new();
        map.insert("instance_id", self.instance_id.as_str());
        map.insert("datasource", self.source.as_str());
        map.insert("explained", self.is_explained());
        map.insert("paths", self.paths.iter().map(path).collect::<Vec<_>>());
        map.insert("notes", self.notes.iter().map(|note| mask::urls(note).into_owned().into()).collect::<Vec<Value>>());
        json::to_string(&Value::Map(map)) + "\n"
    }
}
