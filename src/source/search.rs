//! A source's inputs while it searches: the machine, the image, and the drives that were found.

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::problem::{Problems, Severity};
use crate::detect::named_source;
use crate::document::{Map, Taken, Value};
use crate::drive::search::Probed;
use crate::drive::{self, Files};
use crate::instance::Instance;
use crate::machine::{Machine, Tools};
use crate::root::{Root, installed};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An instance, and its place: a device, a folder or a URL.
#[derive(Debug)]
pub struct Found {
    pub instance: Instance,
    pub place: String,
}

/// A source's inputs. Drives are read once and kept.
pub struct Search<'a> {
    pub machine: &'a Machine,
    pub root: &'a Root,
    /// The image's own configuration.
    pub config: &'a Value,
    pub deadline: Deadline,
    /// The programs that may be run: none before the pivot.
    pub tools: Tools,
    /// Whether the machine has a mark of the source whose service is being asked. Then a service without documents is
    /// not ready yet, and is asked again.
    pub marked: bool,
    /// Sources that were asked and must not be asked again.
    asked: Vec<&'static str>,
    drives: Vec<Probed>,
    /// The drives opened so far.
    open: Vec<(PathBuf, Option<Rc<Files>>)>,
    otherwise: Option<(Found, Arc<AtomicBool>)>,
    /// Why sources were not used, for the message that nothing was found.
    reasons: Problems,
    report: Problems,
    /// Notes the documents of the source that is read.
    taken: Taken,
}

impl<'a> Search<'a> {
    /// A search without drives.
    pub fn new(machine: &'a Machine, root: &'a Root, config: &'a Value, deadline: Deadline) -> Self {
        Search {
            machine,
            root,
            config,
            deadline,
            tools: installed::tools(root),
            marked: true,
            asked: Vec::new(),
            drives: Vec::new(),
            open: Vec::new(),
            otherwise: None,
            reasons: Problems::new(),
            report: Problems::new(),
            taken: Taken::default(),
        }
    }

    /// The same search, which notes the documents that are read.
    pub fn keeping(mut self, taken: Taken) -> Self {
        self.taken = taken;
        self
    }

    /// Where the documents are noted that the source has.
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// A file of the root that is a document of the source, noted. None if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn document(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let bytes = self.root.read(path)?;
        if let Some(bytes) = &bytes {
            self.taken.add(path.trim_start_matches('/'), bytes);
        }
        Ok(bytes)
    }

    /// Sets the drives that were found so far. Drives that were already read are not read again.
    pub fn set_drives(&mut self, drives: &[Probed]) {
        let old = std::mem::replace(&mut self.drives, drives.to_vec());
        crate::base::sort::by(&mut self.drives, |a, b| b.device.node.cmp(&a.device.node));
        self.open.retain(|(path, _)| old.iter().any(|d| d.device.node == *path && drives.contains(d)));
    }

    /// The image's settings for a source: `datasource: {Name: …}`.
    pub fn settings(&self, name: &str) -> Option<&'a Value> {
        self.config.at(&["datasource", name])
    }

    /// Whether `source` is asked for the first time in this search. For sources that take time, and do not
    /// change when a drive appears.
    pub fn first_time(&mut self, source: &'static str) -> bool {
        let first = !self.asked.contains(&source);
        if first {
            self.asked.push(source);
        }
        first
    }

    /// The files in a folder of the root; None if there is none.
    pub fn seed_folder(&mut self, path: &str) -> Option<Files> {
        let mut files = Files::default();
        files.keep(&self.taken);
        collect(self.root, path, "", &mut files, &self.report, 0);
        let any = files.iter().next().is_some();
        any.then_some(files)
    }

    /// Paths of the drives labelled `label`, ignoring case, in the order in which they are tried: by name,
    /// last first.
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

    /// Keeps an instance that is used if no service answers, such as a drive that has less than its service.
    /// Not used once `refused` is true: then the service has answered, and ruled it out.
    pub fn otherwise(&mut self, mut found: Found, refused: Arc<AtomicBool>) {
        found.instance.raw = self.taken.raw();
        self.otherwise = Some((found, refused));
    }

    /// Takes the instance that is used if no service has answered.
    pub fn take_otherwise(&mut self) -> Option<Found> {
        self.otherwise.take().filter(|(_, refused)| !refused.load(Ordering::Relaxed)).map(|(found, _)| found)
    }

    /// Paths of the drives for which `suits` is true, in the order in which they are tried: by name, last
    /// first.
    pub fn drives_of(&self, suits: &dyn Fn(&Probed) -> bool) -> Vec<String> {
        self.drives.iter().filter(|d| suits(d)).map(|d| d.device.node.display().to_string()).collect()
    }

    /// The files of a drive. None, with a problem, if it cannot be read.
    pub fn open_drive(&mut self, path: &str) -> Option<Rc<Files>> {
        let path = PathBuf::from(path);
        if let Some((_, files)) = self.open.iter().find(|(of, _)| *of == path) {
            return files.clone();
        }
        let files = match drive::open(&path, self.deadline) {
            Ok(mut files) => {
                files.keep(&self.taken);
                for note in notes(&files) {
                    self.problem(format!("{}: {note}", path.display()));
                }
                Some(Rc::new(files))
            }
            Err(e) => {
                self.problem(e.to_string());
                None
            }
        };
        self.open.push((path, files.clone()));
        files
    }

    /// Adds a warning.
    pub fn problem(&mut self, text: String) {
        self.report.warn(&text);
        self.reason(text);
    }

    /// Adds a reason why nothing was found. It is reported only if no other source has anything either.
    pub fn reason(&mut self, text: String) {
        log::debug!("{text}");
        self.reasons.warn(text);
    }

    /// The warnings and reasons so far.
    pub fn problems(&self) -> Vec<String> {
        self.reasons.texts(Severity::Warning)
    }

    /// Takes the warnings so far.
    pub fn take_report(&mut self) -> Problems {
        self.report.take()
    }
}

/// The most notes about one drive that are reported.
const MAX_NOTES: usize = 10;

/// The first few notes on what the reader of a drive left out.
pub(super) fn notes(files: &Files) -> Vec<String> {
    let all = files.notes();
    let more = all.len().saturating_sub(MAX_NOTES);
    let last = (more > 0).then(|| format!("{more} more files are left out"));
    all.iter().take(MAX_NOTES).cloned().chain(last).collect()
}

/// The depth limit and the size limit of a seed folder.
const MAX_SEED_DEPTH: usize = 8;
const MAX_SEED_FILES: usize = 10_000;

fn collect(root: &Root, folder: &str, prefix: &str, files: &mut Files, report: &Problems, depth: usize) {
    for name in root.list(folder) {
        let (path, inner) = (format!("{folder}/{name}"), format!("{prefix}{name}"));
        if root.is_dir(&path) {
            if depth < MAX_SEED_DEPTH {
                collect(root, &path, &format!("{inner}/"), files, report, depth + 1);
            }
        } else if files.iter().count() < MAX_SEED_FILES {
            match root.read(&path) {
                Ok(Some(bytes)) => files.insert(inner, bytes),
                Ok(None) => {}
                Err(e) => report.warn(e),
            }
        }
    }
}

/// `ds=name;key=value;…` on the kernel command line, or an old spelling of it: the name in lower case, and
/// the keys.
pub fn parameters(machine: &Machine) -> Option<(String, Map)> {
    let (_, value) = named_source(&machine.cmdline)?;
    let mut parts = value.split(';');
    let name = parts.next()?.to_ascii_lowercase();
    Some((name, parts.filter_map(|p| p.split_once('=')).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn what_is_used_where_no_service_answers() {
        let dir = TempDir::new("otherwise");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(std::time::Duration::ZERO));
        assert!(search.take_otherwise().is_none());
        let mut keep = |refused: &Arc<AtomicBool>| {
            let found = Found { instance: Instance::default(), place: "/dev/sr0".into() };
            search.otherwise(found, Arc::clone(refused));
            search.take_otherwise().map(|found| found.place)
        };
        assert_eq!(keep(&Arc::new(AtomicBool::new(false))).as_deref(), Some("/dev/sr0"));
        assert_eq!(keep(&Arc::new(AtomicBool::new(true))), None);
    }
}
