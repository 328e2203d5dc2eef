//! Edits existing files byte for byte.

use super::{Node, Overlay};
use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use crate::root::layout::is_unsynced;
use crate::root::{Attr, Content, MAX_READ, Over};

/// [`crate::root::Root::edit_text`] maps the bytes 0x80 to 0xff that are not UTF-8 to private-use characters of Unicode's
/// last plane. This is the first.
const FIRST_BYTE: u32 = 0x10_ff80;

impl Overlay {
    /// [`crate::root::Root::edit`] for a file of at most `limit` bytes.
    pub(in crate::root) fn edit(
        &mut self,
        path: &str,
        new: Attr,
        limit: u64,
        change: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<bool> {
        let (resolved, _) = self.resolve_to_change(path, true)?;
        let old = self.read_at_most(path, limit)?;
        let attr = self.stat(path).map_or(new, |s| s.attr);
        let content = match change(old.as_deref().unwrap_or_default()).context(|| format!("failed to change {path}"))? {
            Some(content) if old.as_ref() != Some(&content) => content,
            _ => return Ok(false),
        };
        let over = match self.nodes.get(&resolved) {
            Some(Node::File { over: Over::Append | Over::Merge, .. }) | None if self.is_unseen(&resolved) => {
                Over::Merge
            }
            _ => Over::Replace,
        };
        self.write_over(path, content.into(), attr, over).map(|()| true)
    }

    /// [`crate::root::Root::append`].
    pub(in crate::root) fn append(&mut self, path: &str, content: &[u8], new: Attr) -> Result<()> {
        let (resolved, _) = self.resolve_to_change(path, true)?;
        if !self.below_unmounted(&resolved) && !is_unsynced(&resolved) {
            return self.edit(path, new, MAX_READ, |old| Ok(Some(joined(old, content)?))).map(drop);
        }
        self.trace(&resolved);
        match self.nodes.get_mut(&resolved) {
            Some(Node::File { content: old, .. }) => {
                *old = joined(&old.to_vec(), content)?.into();
                Ok(())
            }
            _ => {
                let attr = self.stat(path).map_or(new, |s| s.attr);
                self.write_over(path, content.to_vec().into(), attr, Over::Append)
            }
        }
    }

    /// [`crate::root::Root::extend`].
    pub(in crate::root) fn extend(&mut self, path: &str, more: Content, attr: Attr) -> Result<()> {
        let (resolved, found) = self.resolve_to_change(path, true)?;
        if found.map_or(0, |s| s.size) + more.len() > MAX_READ {
            return Err(too_large());
        }
        self.trace(&resolved);
        if let Some(Node::File { content, attr: old, over: Over::Replace }) = self.nodes.get_mut(&resolved) {
            let cost = more.held() + size_of::<Content>();
            budget::take_last(cost)?;
            self.held += cost;
            content.push(more);
            *old = attr;
            return Ok(());
        }
        let mut all = Content::from(self.read_at_most(path, MAX_READ)?.unwrap_or_default());
        all.push(more);
        self.write_over(path, all, attr, Over::Replace)
    }
}

/// Makes a change to text for [`crate::root::Root::edit_text`].
///
/// # Errors
/// Those of the change.
pub(in crate::root) fn edit_decoded(
    bytes: &[u8],
    change: impl FnOnce(&str) -> Result<Option<String>>,
) -> Result<Option<Vec<u8>>> {
    Ok(change(&decode(bytes))?.map(|text| encode(&text)))
}

fn too_large() -> Error {
    Error::new(format!("the file would be larger than {MAX_READ} bytes"))
}

fn joined(old: &[u8], new: &[u8]) -> Result<Vec<u8>> {
    if old.len() as u64 + new.len() as u64 > MAX_READ {
        return Err(too_large());
    }
    Ok([old, new].concat())
}

/// Bytes as text. Bytes that are not UTF-8, and characters that are used to represent them, become
/// private-use characters byte by byte.
fn decode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let raw = |text: &mut String, bytes: &[u8]| {
        text.extend(bytes.iter().filter_map(|b| char::from_u32(FIRST_BYTE + u32::from(*b) - 0x80)));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if u32::from(c) < FIRST_BYTE {
                text.push(c);
            } else {
                raw(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        raw(&mut text, chunk.invalid());
    }
    text
}

/// The inverse of [`decode`].
fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(FIRST_BYTE).and_then(|n| u8::try_from(n + 0x80).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{MAX_EDIT, Use};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const NEW: Attr = Attr::root(0o644);

    #[test]
    fn file_keeps_mode_bytes_and_extended_attributes() {
        let dir = TempDir::new("edit");
        let path = dir.0.join("fstab");
        std::fs::write(&path, b"caf\xe9 \xf4\x8f\xbf\xbf\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        let has_xattrs = rustix::fs::setxattr(&path, c"user.note", b"kept", flags).is_ok();
        let mut root = dir.root(Use::Tree);
        let added = |text: &str| Ok(Some(format!("{text}new \u{e9}\n")));
        assert!(root.edit_text("/fstab", NEW, added).unwrap());
        assert_eq!(root.commit(), []);
        assert_eq!(std::fs::read(&path).unwrap(), b"caf\xe9 \xf4\x8f\xbf\xbf\nnew \xc3\xa9\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o604);
        let mut value = [0; 8];
        if has_xattrs {
            assert_eq!(rustix::fs::getxattr(&path, c"user.note", &mut value), Ok(4));
            assert_eq!(&value[..4], b"kept");
        } else {
            crate::base::testing::skip("the temporary folder's file system has no extended attributes");
        }
        assert!(!root.edit("/fstab", NEW, |_| Ok(None)).unwrap());
        assert!(!root.edit("/fstab", NEW, |old| Ok(Some(old.to_vec()))).unwrap());
        assert_eq!(root.changes(), []);
        assert!(root.edit("/new", Attr::root(0o600), |old| Ok(Some([old, b"x"].concat()))).unwrap());
        assert_eq!(root.stat("/new").unwrap().attr, Attr::root(0o600));
    }

    #[test]
    fn never_writes_an_unreadable_file() {
        let dir = TempDir::new("edit-error");
        let large = std::fs::File::create(dir.0.join("large")).unwrap();
        large.set_len(MAX_READ + 1).unwrap();
        std::fs::File::create(dir.0.join("log")).unwrap().set_len(MAX_EDIT + 1).unwrap();
        std::fs::create_dir(dir.0.join("folder")).unwrap();
        let mut root = dir.root(Use::Tree);
        for path in ["/large", "/folder", "/log"] {
            assert!(root.edit(path, NEW, |_| Ok(Some(Vec::new()))).is_err(), "{path}");
        }
        assert!(root.edit("/x", NEW, |_| Err(Error::new("no"))).unwrap_err().to_string().contains("/x"));
        assert!(root.append("/large", b"x", NEW).is_err());
        assert_eq!((root.changes(), root.text("/log").len(), root.read("/large").is_err()), (vec![], 0, true));
        root.append("/log", b"x", NEW).unwrap();
        assert_eq!(root.changes().len(), 1, "a log may be longer than what is edited");
    }
}
