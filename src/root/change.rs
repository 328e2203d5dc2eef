//! A change to the disk: a commit makes it, a plan prints it and the journal records it.

use super::{Attr, Content, Root, owner};
use crate::base::base64;
use crate::document::{Map, Value};

/// How a write treats a file that exists. Anything but `Replace` is for logs, and for files that cannot be
/// seen yet because their file system is not mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Over {
    /// The new content replaces the old one.
    Replace,
    /// The new content is added at the end.
    Append,
    /// Adds the lines that the file lacks at its end.
    Merge,
    /// The file stays as it is.
    Keep,
}

/// One change. Paths are absolute within the root, without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    Write {
        path: String,
        content: Content,
        attr: Attr,
        over: Over,
    },
    /// Leaves a folder that exists as it is.
    Mkdir {
        path: String,
        attr: Attr,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// Removes a file, or a folder and everything in it.
    Remove {
        path: String,
    },
    Chown {
        path: String,
        attr: Attr,
    },
    Chmod {
        path: String,
        attr: Attr,
    },
}

impl Change {
    /// The path that changes.
    pub fn path(&self) -> &str {
        match self {
            Change::Write { path, .. }
            | Change::Mkdir { path, .. }
            | Change::Symlink { path, .. }
            | Change::Remove { path }
            | Change::Chown { path, .. }
            | Change::Chmod { path, .. } => path,
        }
    }

    /// The path without its leading slash.
    pub(super) fn resolved(&self) -> &str {
        self.path().trim_start_matches('/')
    }

    /// The name of this kind of change, and the mode and owner that it sets.
    fn kind(&self) -> (&'static str, Option<Attr>) {
        match self {
            Change::Write { attr, .. } => ("write", Some(*attr)),
            Change::Mkdir { attr, .. } => ("mkdir", Some(*attr)),
            Change::Symlink { .. } => ("symlink", None),
            Change::Remove { .. } => ("remove", None),
            Change::Chown { attr, .. } => ("chown", Some(*attr)),
            Change::Chmod { attr, .. } => ("chmod", Some(*attr)),
        }
    }

    /// The action in words, for an error message in which the path follows.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Change::Write { .. } => "write",
            Change::Mkdir { .. } => "make the folder",
            Change::Symlink { .. } => "make the link",
            Change::Remove { .. } => "remove",
            Change::Chown { .. } => "change the owner of",
            Change::Chmod { .. } => "change the mode of",
        }
    }

    /// The change as `prepivot plan --json` prints it, with owners by name if the root knows them.
    pub fn to_value(&self, root: &Root) -> Value {
        let (kind, attr) = self.kind();
        let mut map = Map::new();
        map.insert("change", kind);
        map.insert("path", self.path());
        if let Some(attr) = attr {
            if kind != "chown" {
                map.insert("mode", format!("{:04o}", attr.mode));
            }
            if kind != "chmod" {
                map.insert("owner", owner::user_name(root, attr.uid));
                map.insert("group", owner::group_name(root, attr.gid));
            }
        }
        match self {
            Change::Write { content, .. } => match String::from_utf8(content.to_vec()) {
                Ok(text) => drop(map.insert("content", text)),
                Err(e) => drop(map.insert("content_base64", base64::encode(e.as_bytes()))),
            },
            Change::Symlink { target, .. } => drop(map.insert("target", target.as_str())),
            _ => {}
        }
        Value::Map(map)
    }
}
