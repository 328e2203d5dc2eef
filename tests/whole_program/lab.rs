//! A machine's root and a seed for the tests: what a case of `tests/cases` has as folders.

use crate::program::prepivot;
use crate::tree::Tree;
use prepivot::base::testing::TempDir;
use std::fs;
use std::path::PathBuf;

/// A minimal image, with the facts of its machine, and a seed beside it.
pub struct Lab {
    pub dir: TempDir,
    pub tree: Tree,
}

impl Lab {
    /// Debian with systemd-networkd, and the seed of the instance i-1.
    pub fn new(user_data: impl AsRef<[u8]>) -> Lab {
        let dir = TempDir::new("lab");
        let tree = Tree::new(&dir.0, "debian", "networkd");
        let lab = Lab { dir, tree };
        lab.seed("i-1", "", user_data);
        lab
    }

    /// Writes the seed; `more` is put to its metadata.
    pub fn seed(&self, id: &str, more: &str, user_data: impl AsRef<[u8]>) {
        self.dir.write("seed/meta-data", format!("instance-id: {id}\n{more}"));
        self.dir.write("seed/user-data", user_data);
    }

    pub fn seed_folder(&self) -> PathBuf {
        self.dir.0.join("seed")
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.tree.path().join(path)
    }

    /// A file's text; empty if there is none.
    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Applies the seed. Returns all that is printed.
    pub fn apply(&self) -> String {
        let output = prepivot("apply", self.tree.path(), &self.seed_folder(), &[]);
        output.stdout + &output.stderr
    }
}
