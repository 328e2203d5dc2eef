//! A drive's files, in memory.

use crate::base::{MAX_LINKS, budget};
use crate::document::{Bytes, InstancePart, Taken};
use std::collections::{BTreeMap, BTreeSet};

/// The most names that are looked up on the path to one file.
const MAX_NAMES: usize = 64;

/// The files of a drive by path: relative, separated by `/`, as in `openstack/latest/meta_data.json`.
///
/// A path is looked up as written; if that does not exist, ignoring ASCII case, because plain ISO 9660 and short FAT
/// names do not keep case. Symbolic links are followed, but never out of the drive.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Files {
    files: BTreeMap<String, Bytes>,
    links: BTreeMap<String, String>,
    notes: Vec<String>,
    /// What the stage's budget has paid for them.
    paid: usize,
    /// Notes what is read.
    taken: Taken,
    /// A file that this program made of other documents, which are noted themselves.
    made: Option<String>,
}

impl Drop for Files {
    fn drop(&mut self) {
        budget::give(self.paid);
    }
}

impl Files {
    /// Notes what the stage's budget has paid for them: it is given back when the documents in them have been read.
    pub(super) fn pay(&mut self, bytes: usize) {
        self.paid += bytes;
    }

    /// Adds a file. Of two with the same path the first stays.
    pub fn insert(&mut self, path: impl Into<String>, contents: Vec<u8>) {
        self.files.entry(path.into()).or_insert(contents.into());
    }

    /// Has each file noted that is read from now on.
    pub fn keep(&mut self, taken: &Taken) {
        self.taken = taken.clone();
    }

    /// What notes its files.
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Adds a file that is made of documents which are noted themselves.
    pub fn insert_made(&mut self, path: &str, contents: Vec<u8>) {
        self.made = Some(path.to_owned());
        self.insert(path, contents);
    }

    /// Adds a symlink.
    pub(super) fn link(&mut self, path: String, target: String) {
        self.links.entry(path).or_insert(target);
    }

    /// Adds a note about something that was left out.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Files that were left out and why, one line each: too large, unreadable, a special file.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The contents of the file at `path`. None if there is no such file, or it is a directory.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.shared(path).map(|contents| &**contents)
    }

    /// The same, to be kept without a copy.
    pub fn shared(&self, path: &str) -> Option<&Bytes> {
        let contents = self.files.get(&self.resolve(path)?)?;
        if self.made.as_deref() != Some(path) {
            self.taken.share(None, path, contents);
        }
        Some(contents)
    }

    /// The same for a path that a document names.
    pub fn named_by_document(&self, part: InstancePart, path: &str) -> Option<&Bytes> {
        let contents = self.files.get(&self.resolve(path)?)?;
        self.taken.share(Some(part), path, contents);
        Some(contents)
    }

    /// The names in the directory at `path` (`""` is the top), sorted. Empty if it does not exist.
    pub fn list(&self, path: &str) -> Vec<&str> {
        let Some(path) = self.resolve(path) else { return Vec::new() };
        self.names(&path).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether there is a file or a directory at `path`.
    pub fn contains(&self, path: &str) -> bool {
        self.resolve(path).is_some()
    }

    /// Every file with its path, sorted. A file reached through symbolic links is listed once, at its own
    /// path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, contents)| (path.as_str(), &**contents))
    }

    /// Every symlink with its target, for tests.
    #[cfg(test)]
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        self.links.iter().map(|(path, target)| (path.as_str(), target.as_str()))
    }

    /// The names right below a directory whose path is exact.
    fn names<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let start = prefix.len();
        let paths = below(&self.files, &prefix).chain(below(&self.links, &prefix));
        paths.filter_map(move |path| path.get(start..)?.split('/').next())
    }

    /// The real path of an existing file or directory: names in their own case, links resolved.
    fn resolve(&self, path: &str) -> Option<String> {
        let mut left: Vec<String> = path.split('/').rev().map(String::from).collect();
        let mut exact: Vec<String> = Vec::new();
        let (mut followed, mut looked_up) = (0, 0);
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                // `..` at the top stays there.
                ".." => {
                    exact.pop()?;
                    continue;
                }
                _ => {}
            }
            looked_up += 1;
            if looked_up > MAX_NAMES {
                return None;
            }
            let directory = exact.join("/");
            exact.push(self.name(&directory, &part)?.to_string());
            if let Some(target) = self.links.get(&exact.join("/")) {
                followed += 1;
                if followed > MAX_LINKS || target.starts_with('/') {
                    return None;
                }
                exact.pop();
                left.extend(target.split('/').rev().map(String::from));
            }
        }
        Some(exact.join("/"))
    }

    /// The name in `directory` that matches `wanted`.
    fn name(&self, directory: &str, wanted: &str) -> Option<&str> {
        let mut alike = None;
        for name in self.names(directory) {
            if name == wanted {
                return Some(name);
            }
            // The first one in order, so that the result is deterministic.
            if name.eq_ignore_ascii_case(wanted) && alike.is_none_or(|alike| name < alike) {
                alike = Some(name);
            }
        }
        alike
    }
}

/// The paths of a map that begin with `prefix`.
fn below<'a, V>(map: &'a BTreeMap<String, V>, prefix: &str) -> impl Iterator<Item = &'a String> + use<'a, V> {
    let prefix = prefix.to_owned();
    map.range(prefix.clone()..).map(|(path, _)| path).take_while(move |path| path.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Files {
        let mut files = Files::default();
        for path in ["openstack/2018-08-27/meta_data.json", "EC2/LATEST/USER-DAT", "openstack/content/0000", "a"] {
            files.insert(path, path.as_bytes().to_vec());
        }
        files.link("openstack/latest".into(), "2018-08-27".into());
        files.link("openstack/up".into(), "../openstack/./latest/meta_data.json".into());
        files.link("out".into(), "../../etc".into());
        files.link("absolute".into(), "/etc/passwd".into());
        files.link("loop".into(), "loop".into());
        files
    }

    #[test]
    fn finds_paths_as_written_or_in_any_case() {
        let files = sample();
        assert_eq!(files.get("openstack/2018-08-27/meta_data.json").unwrap(), b"openstack/2018-08-27/meta_data.json");
        assert_eq!(files.get("/ec2//latest/user-dat").unwrap(), b"EC2/LATEST/USER-DAT");
        assert_eq!(files.get("openstack"), None);
        assert_eq!(files.get("a/b"), None);
        assert_eq!(files.get("openstack/content/00"), None);
        let mut both = Files::default();
        both.insert("B", b"upper".to_vec());
        both.insert("b", b"lower".to_vec());
        assert_eq!((both.get("b"), both.get("B")), (Some(&b"lower"[..]), Some(&b"upper"[..])));
    }

    #[test]
    fn links_are_followed_inside_and_never_out() {
        let files = sample();
        assert_eq!(files.get("openstack/latest/meta_data.json").unwrap(), b"openstack/2018-08-27/meta_data.json");
        assert_eq!(files.get("openstack/up").unwrap(), b"openstack/2018-08-27/meta_data.json");
        for path in ["out", "out/passwd", "absolute", "loop", "../a", "openstack/../../a"] {
            assert_eq!((files.get(path), files.contains(path)), (None, false), "{path}");
        }
    }

    /// Each name of a target is looked up among all that are in its directory.
    #[test]
    fn a_target_without_end_takes_no_time() {
        let mut files = Files::default();
        (0..16_000).for_each(|i| files.insert(format!("a{i}"), Vec::new()));
        files.insert("z/f", Vec::new());
        files.link("l".into(), "Z/../".repeat(800) + "l");
        files.link("m".into(), "Z/../".repeat(8) + "z");
        let before = crate::base::testing::cpu_time();
        assert_eq!((files.get("l/f"), files.contains("m/f")), (None, true));
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(2));
    }

    #[test]
    fn lists_names_once_and_sorted() {
        let files = sample();
        assert_eq!(files.list("openstack"), ["2018-08-27", "content", "latest", "up"]);
        assert_eq!(files.list("openstack/latest/"), ["meta_data.json"]);
        assert_eq!(files.list(""), ["EC2", "a", "absolute", "loop", "openstack", "out"]);
        assert!(files.list("nothing").is_empty() && files.list("a").is_empty());
    }
}
