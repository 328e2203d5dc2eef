//! A change of the disk: what a commit makes, a plan prints and a replay repeats.

use super::{Attr, Root};
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value};

/// One change. Paths are absolute below the root, without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    Write {
        path: String,
        content: Vec<u8>,
        attr: Attr,
    },
    Mkdir {
        path: String,
        attr: Attr,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// A file, or a folder with all that is in it.
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

    /// The change as `prepivot plan --json` prints it; owners by name where the root knows them.
    pub fn to_value(&self, root: &Root) -> Value {
        self.describe(|map, kind, attr| {
            if kind != "chown" {
                map.insert("mode", format!("{:04o}", attr.mode));
            }
            if kind != "chmod" {
                map.insert("owner", root.user_name(attr.uid));
                map.insert("group", root.group_name(attr.gid));
            }
        })
    }

    /// The change as it is kept for a later stage; owners by number.
    pub(super) fn to_record(&self) -> Value {
        self.describe(|map, _, attr| {
            map.insert("mode", attr.mode);
            map.insert("uid", attr.uid);
            map.insert("gid", attr.gid);
        })
    }

    fn describe(&self, put_attr: impl Fn(&mut Map, &str, Attr)) -> Value {
        let (kind, attr) = self.kind();
        let mut map = Map::new();
        map.insert("change", kind);
        map.insert("path", self.path());
        if let Some(attr) = attr {
            put_attr(&mut map, kind, attr);
        }
        match self {
            Change::Write { content, .. } => put_content(&mut map, content),
            Change::Symlink { target, .. } => drop(map.insert("target", target.as_str())),
            _ => {}
        }
        Value::Map(map)
    }

    /// Reads back [`Change::to_record`].
    pub(super) fn from_record(record: &Value) -> Result<Change> {
        let text = |key: &str| {
            record.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| Error::new(format!("no {key}")))
        };
        let number = |key: &str| {
            let number = record.get(key).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| Error::new(format!("no {key}")))
        };
        let attr = || Ok::<_, Error>(Attr { mode: number("mode")?, uid: number("uid")?, gid: number("gid")? });
        let path = text("path")?;
        Ok(match text("change")?.as_str() {
            "write" => Change::Write { path, content: content_of(record)?, attr: attr()? },
            "mkdir" => Change::Mkdir { path, attr: attr()? },
            "symlink" => Change::Symlink { path, target: text("target")? },
            "remove" => Change::Remove { path },
            "chown" => Change::Chown { path, attr: attr()? },
            "chmod" => Change::Chmod { path, attr: attr()? },
            other => return Err(Error::new(format!("no change is called {other}"))),
        })
    }
}

fn put_content(map: &mut Map, content: &[u8]) {
    match std::str::from_utf8(content) {
        Ok(text) => map.insert("content", text),
        Err(_) => map.insert("content_base64", base64::encode(content)),
    };
}

fn content_of(record: &Value) -> Result<Vec<u8>> {
    if let Some(text) = record.get("content").and_then(Value::as_str) {
        return Ok(text.as_bytes().to_vec());
    }
    let text = record.get("content_base64").and_then(Value::as_str).ok_or_else(|| Error::new("no content"))?;
    base64::decode(text.as_bytes()).ok_or_else(|| Error::new("content_base64: not valid base64"))
}
