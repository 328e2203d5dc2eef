//! Copies any tree of files into memory, in one pass and within limits.

use super::files::Files;
use crate::base::budget as stage;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};

/// The largest file, and the largest total size of all files, in bytes.
pub const MAX_FILE: u64 = 32 * 1024 * 1024;
pub const MAX_TOTAL: u64 = 64 * 1024 * 1024;
/// The greatest depth of directories; nova's are three deep.
pub const MAX_DEPTH: usize = 16;
/// The most names in all directories together, and the most bytes of the directories themselves with their names, link targets
/// and paths: directories that contain each other, and the longest names, make gigabytes of paths.
pub const MAX_ENTRIES: usize = 16 * 1024;
pub const MAX_DIRECTORIES: u64 = 16 * 1024 * 1024;

const SLOW: &str = "it is too slow: the deadline passed before all of it was read";

/// The type of a directory entry; `N` identifies a file within its file system.
#[derive(Debug)]
pub enum Kind<N> {
    Directory(N),
    /// With its size in bytes.
    File {
        node: N,
        size: u64,
    },
    /// A symlink with its target.
    Link(String),
    /// Anything else, which is left out; with its description.
    Other(String),
}

/// A name in a directory.
#[derive(Debug)]
pub struct Entry<N> {
    pub name: String,
    pub kind: Kind<N>,
}

impl<N> Entry<N> {
    /// How many bytes its texts have.
    fn size(&self) -> usize {
        let (Kind::Link(text) | Kind::Other(text)) = &self.kind else { return self.name.len() };
        self.name.len() + text.len()
    }
}

/// A tree of files in some filesystem.
pub trait Tree {
    /// Identifies a file or directory.
    type Node;

    /// The top directory.
    fn root(&self) -> Result<Self::Node>;

    /// The entries of a directory, without `.` and `..`. Everything that it reads or keeps is charged to the budget first.
    fn entries(&self, directory: &Self::Node, budget: &mut Budget) -> Result<Vec<Entry<Self::Node>>>;

    /// A file's contents. `size` is from its entry, and has been checked against the limits.
    fn read(&self, file: &Self::Node, size: u64) -> Result<Vec<u8>>;
}

/// How much may still be read.
pub struct Budget {
    bytes: u64,
    entries: usize,
    directories: u64,
    deadline: Deadline,
}

impl Budget {
    fn new(deadline: Deadline) -> Self {
        Budget { bytes: MAX_TOTAL, entries: MAX_ENTRIES, directories: MAX_DIRECTORIES, deadline }
    }

    /// Charges one name.
    ///
    /// # Errors
    /// There are too many, or the deadline has passed.
    pub fn entry(&mut self) -> Result<()> {
        if self.deadline.passed() {
            return Err(Error::new(SLOW));
        }
        let left = self.entries.checked_sub(1);
        self.entries = left.ok_or_else(|| Error::new(format!("it has more than {MAX_ENTRIES} names")))?;
        Ok(())
    }

    /// Keeps an entry, unless the texts of all are too much.
    pub fn keep<N>(&mut self, entry: Entry<N>, found: &mut Vec<Entry<N>>) -> Result<()> {
        self.directory(entry.size() as u64)?;
        found.push(entry);
        Ok(())
    }

    /// Charges a directory of `size` bytes, or as many of it as are read next.
    ///
    /// # Errors
    /// The directories are too large.
    pub fn directory(&mut self, size: u64) -> Result<()> {
        let left = self.directories.checked_sub(size).filter(|_| self.directories > 0);
        // After the limit was exceeded, nothing more is read.
        self.directories = left.unwrap_or(0);
        match left {
            Some(_) => Ok(()),
            None => Err(Error::new(format!("all directories and names take more than {MAX_DIRECTORIES} bytes"))),
        }
    }

    /// Charges a file's contents, unless they are too large.
    fn file(&mut self, size: u64) -> std::result::Result<(), String> {
        if size > MAX_FILE {
            return Err(format!("{size} bytes are more than the {MAX_FILE} that a file may have"));
        }
        // Half as much again has to be left for what is read from it.
        let bytes = size as usize;
        stage::check(bytes + bytes / 2).map_err(|e| e.to_string())?;
        self.bytes = self.bytes.checked_sub(size).ok_or(format!("all files are more than {MAX_TOTAL} bytes"))?;
        stage::take(bytes).map_err(|e| e.to_string())
    }
}

/// Copies `tree` into memory, breadth first. An entry that is too large, unreadable or not a file is left out with a note.
///
/// # Errors
/// The top directory cannot be read, or the deadline passes.
pub fn copy<T: Tree>(tree: &T, deadline: Deadline) -> Result<Files> {
    let mut files = Files::default();
    let mut budget = Budget::new(deadline);
    let root = tree.root().and_then(|root| tree.entries(&root, &mut budget));
    let mut level = vec![(String::new(), root.map_err(|e| e.context("failed to read the top directory"))?)];
    for depth in 1.. {
        let mut below = Vec::new();
        for (directory, mut entries) in level {
            crate::base::sort::by(&mut entries, |a, b| a.name.cmp(&b.name));
            for Entry { name, kind } in entries {
                if deadline.passed() {
                    return Err(Error::new(SLOW));
                }
                if let Err(e) = budget.directory((directory.len() + name.len()) as u64) {
                    files.note(format!("left out the rest: {e}"));
                    return Ok(files);
                }
                // Such a name would refer to another file.
                if name.is_empty() || name.contains(['/', '\0']) || matches!(name.as_str(), "." | "..") {
                    files.note(format!("left out a file in /{directory}: its name is not valid"));
                    continue;
                }
                let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
                match kind {
                    Kind::Link(target) => files.link(path, target),
                    Kind::Other(what) => files.note(format!("left out /{path}: {what}")),
                    Kind::Directory(_) if depth >= MAX_DEPTH => {
                        files.note(format!("left out /{path}: deeper than {MAX_DEPTH} directories"));
                    }
                    Kind::Directory(node) => match tree.entries(&node, &mut budget) {
                        Ok(entries) => below.push((path, entries)),
                        Err(_) if deadline.passed() => return Err(Error::new(SLOW)),
                        Err(e) => files.note(format!("left out /{path}: {e}")),
                    },
                    Kind::File { node, size } => match budget.file(size) {
                        Ok(()) => match tree.read(&node, size) {
                            Ok(contents) => {
                                files.pay(size as usize);
                                files.insert(path, contents);
                            }
                            Err(e) => files.note(format!("left out /{path}: {e}")),
                        },
                        Err(e) => files.note(format!("left out /{path}: {e}")),
                    },
                }
            }
        }
        if below.is_empty() {
            break;
        }
        level = below;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A directory that holds itself `loops` times, and a file of each size.
    struct Endless {
        loops: usize,
        sizes: Vec<u64>,
    }

    impl Tree for Endless {
        type Node = ();

        fn root(&self) -> Result<()> {
            Ok(())
        }

        fn entries(&self, _: &(), budget: &mut Budget) -> Result<Vec<Entry<()>>> {
            budget.directory(64)?;
            let mut entries = Vec::new();
            for i in 0..self.loops {
                budget.entry()?;
                entries.push(Entry { name: format!("d{i}"), kind: Kind::Directory(()) });
            }
            for (i, &size) in self.sizes.iter().enumerate() {
                budget.entry()?;
                entries.push(Entry { name: format!("f{i}"), kind: Kind::File { node: (), size } });
            }
            Ok(entries)
        }

        fn read(&self, _: &(), size: u64) -> Result<Vec<u8>> {
            Ok(vec![0; size.min(10) as usize])
        }
    }

    fn hour() -> Deadline {
        Deadline::after(Duration::from_secs(3600))
    }

    /// A directory that holds itself, and as many links as there may be, with names and targets of that length.
    struct Wordy(usize);

    impl Tree for Wordy {
        type Node = ();

        fn root(&self) -> Result<()> {
            Ok(())
        }

        fn entries(&self, _: &(), budget: &mut Budget) -> Result<Vec<Entry<()>>> {
            let mut entries = Vec::new();
            for i in 0..MAX_ENTRIES {
                budget.entry()?;
                let (name, target) = (format!("{i:0width$}", width = self.0), "x".repeat(self.0));
                let kind = if i == 0 { Kind::Directory(()) } else { Kind::Link(target) };
                budget.keep(Entry { name, kind }, &mut entries)?;
                if i == 900 {
                    break;
                }
            }
            Ok(entries)
        }

        fn read(&self, _: &(), _: u64) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn names_paths_and_targets_are_bounded_together() {
        let files = copy(&Wordy(700), hour()).unwrap();
        let bytes: usize = files.links().map(|(path, target)| path.len() + target.len()).sum();
        assert!(bytes > 0 && bytes as u64 <= 2 * MAX_DIRECTORIES, "{bytes}");
        assert!(files.notes().iter().any(|note| note.contains("left out the rest")), "{:?}", files.notes().len());
        assert!(copy(&Wordy(30_000), hour()).is_err());
        let few = copy(&Wordy(4), hour()).unwrap();
        assert_eq!(few.links().count(), 900 * MAX_DEPTH);
    }

    #[test]
    fn directories_that_hold_themselves_end_at_a_bound() {
        let deep = copy(&Endless { loops: 1, sizes: vec![1] }, hour()).unwrap();
        assert_eq!(deep.iter().count(), MAX_DEPTH);
        assert!(deep.notes()[0].contains("deeper than 16"), "{:?}", deep.notes());
        let wide = copy(&Endless { loops: 10, sizes: vec![] }, hour()).unwrap();
        assert!(wide.notes()[0].contains("more than 16384 names"), "{}", wide.notes()[0]);
    }

    #[test]
    fn skips_oversized_files_and_reads_the_rest() {
        let sizes = vec![MAX_FILE + 1, MAX_FILE, MAX_FILE - 1, 2, 1];
        let files = copy(&Endless { loops: 0, sizes }, hour()).unwrap();
        assert_eq!(files.list(""), ["f1", "f3", "f4"]);
        assert_eq!(files.notes().len(), 2);
        assert!(files.notes()[1].ends_with("all documents together take too much memory"));
        // What was paid for them is given back.
        drop(files);
        assert!(copy(&Endless { loops: 0, sizes: vec![MAX_FILE] }, hour()).unwrap().notes().is_empty());
    }

    #[test]
    fn a_passed_deadline_is_an_error() {
        let late = copy(&Endless { loops: 0, sizes: vec![1] }, Deadline::after(Duration::ZERO));
        assert!(late.unwrap_err().to_string().contains("too slow"));
    }
}
