//! One account file: lines of fields separated by colons. Order, comments and lines that are not entries stay
//! as they are.

use crate::base::error::{Error, Result};
use crate::root::{Attr, Root};
use std::collections::HashMap;

/// A file such as /etc/passwd, in memory.
#[derive(Debug, Default)]
pub struct AccountFile {
    path: &'static str,
    lines: Vec<Vec<u8>>,
    /// The index in `lines` of the first entry of each name.
    index: HashMap<Vec<u8>, usize>,
    state: State,
    changed: bool,
}

/// The state of a table's path.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing. Writing creates the file.
    #[default]
    Absent,
    File,
    /// A folder, a FIFO, a device, or a link to nothing: never written.
    NotAFile,
}

impl AccountFile {
    /// Reads the file. One that is absent, or not a regular file, has no lines.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(root: &Root, path: &'static str) -> Result<AccountFile> {
        let content = root.read_small(path)?;
        let state = match &content {
            Some(_) => State::File,
            None if root.lstat(path).is_none() => State::Absent,
            None => State::NotAFile,
        };
        let content = content.unwrap_or_default();
        let text = content.strip_suffix(b"\n").unwrap_or(&content);
        let lines = match text {
            [] => Vec::new(),
            text => text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect(),
        };
        let mut table = AccountFile { path, lines, index: HashMap::new(), state, changed: false };
        table.reindex();
        Ok(table)
    }

    /// Whether there is a regular file.
    pub fn exists(&self) -> bool {
        self.state == State::File
    }

    /// Checks that the table can be written.
    ///
    /// # Errors
    /// Something other than a regular file is at its path.
    pub fn check_writable(&self) -> Result<()> {
        match self.state {
            State::NotAFile => {
                Err(Error::new(format!("{} is not a regular file: remove it, or put the account file back", self.path)))
            }
            State::Absent | State::File => Ok(()),
        }
    }

    /// The index of the entry for `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name.as_bytes()).copied()
    }

    fn reindex(&mut self) {
        self.index.clear();
        for (at, line) in self.lines.iter().enumerate() {
            let name = line.split(|b| *b == b':').next().unwrap_or_default();
            if !name.is_empty() {
                self.index.entry(name.to_vec()).or_insert(at);
            }
        }
    }

    /// Field `n` of the entry at `at`, counted from 0; empty if the line has fewer.
    pub fn field(&self, at: usize, n: usize) -> String {
        let line = self.lines.get(at).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(line.split(|b| *b == b':').nth(n).unwrap_or_default()).into_owned()
    }

    /// Field `n` of every line that has a number there.
    pub fn numbers(&self, n: usize) -> impl Iterator<Item = u32> {
        self.lines.iter().filter_map(move |line| {
            let field = line.split(|b| *b == b':').nth(n)?;
            std::str::from_utf8(field).ok()?.parse().ok()
        })
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Sets field `n` of the entry at `at`; missing fields before it become empty.
    pub fn set(&mut self, at: usize, n: usize, value: &str) {
        let Some(line) = self.lines.get_mut(at) else { return };
        let mut fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        while fields.len() <= n {
            fields.push(b"");
        }
        fields[n] = value.as_bytes();
        let new = fields.join(&b':');
        self.changed |= new != *line;
        *line = new;
        if n == 0 {
            self.reindex();
        }
    }

    /// Adds an entry after the others, before the lines that refer to another service (`+`, `-`:
    /// nsswitch.conf(5), compat).
    pub fn add(&mut self, fields: &[&str]) {
        let is_compat = |l: &Vec<u8>| matches!(l.first(), Some(b'+' | b'-'));
        let at = self.lines.iter().rposition(|l| !is_compat(l)).map_or(0, |last| last + 1);
        let is_last = at == self.lines.len();
        self.lines.insert(at, fields.join(":").into_bytes());
        self.changed = true;
        match fields.first() {
            Some(name) if is_last && !name.is_empty() => drop(self.index.entry(name.as_bytes().to_vec()).or_insert(at)),
            _ => self.reindex(),
        }
    }

    /// Writes the file if it changed. It keeps its mode and owner; `new` is for a new one.
    ///
    /// # Errors
    /// It cannot be written, or something other than a regular file is at its path.
    pub fn write(&self, root: &mut Root, new: Attr) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        self.check_writable()?;
        let mut content = self.lines.join(&b'\n');
        content.push(b'\n');
        root.rewrite(self.path, content, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn only_what_is_set_changes() {
        let dir = TempDir::new("table");
        dir.write("etc/passwd", b"# c\nroot:x:0:0::/root:/bin/sh\n\xff:x:7:7\n\n+\n-@a\n");
        let mut root = dir.root(Use::Tree);
        let mut table = AccountFile::read(&root, "/etc/passwd").unwrap();
        table.write(&mut root, Attr::root(0o644)).unwrap();
        assert_eq!(root.changes(), []);
        table.add(&["u", "x", "1"]);
        table.set(table.find("root").unwrap(), 4, "é");
        table.write(&mut root, Attr::root(0o644)).unwrap();
        let expected = b"# c\nroot:x:0:0:\xc3\xa9:/root:/bin/sh\n\xff:x:7:7\n\nu:x:1\n+\n-@a\n";
        assert_eq!(root.read("/etc/passwd").unwrap().unwrap(), expected);
        assert_eq!(table.find(""), None);
        assert_eq!(table.numbers(2).collect::<Vec<_>>(), [0, 7, 1]);
    }
}
