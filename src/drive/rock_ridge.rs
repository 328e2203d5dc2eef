//! Rock Ridge (RRIP 1.12) in the system use areas of ISO 9660 directory records (SUSP 1.12).

use super::bytes::{array, le32, u8_at};
use crate::base::error::{Error, Result};

/// The most continuation areas of one record, and the largest one in bytes, as in Linux.
const MAX_CONTINUATIONS: usize = 32;
const MAX_CONTINUATION: usize = 2048;

/// The type of a record, by its PX mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileType {
    /// A file or directory, which the record's own flag distinguishes.
    #[default]
    Ordinary,
    Symlink,
    /// A device, a socket, a named pipe.
    Special,
}

/// The fields of one record.
#[derive(Debug, Default)]
pub struct Fields {
    /// NM: the name.
    pub name: Option<String>,
    pub kind: FileType,
    /// SL: the target of a symbolic link.
    pub target: String,
    /// CL: the block of a directory that was moved because it was too deep.
    pub child: Option<u32>,
    /// RE: the record of such a directory at its new place, which is left out.
    pub relocated: bool,
    /// ZF: the contents are zisofs.
    pub compressed: bool,
}

/// The number of bytes to skip in every other system use area, if `area`, which belongs to the root directory's first
/// record, shows that the volume follows SUSP (5.3, SP).
pub fn skip(area: &[u8]) -> Option<usize> {
    // CD-ROM XA's 14 bytes may stand before it.
    [0, 14].into_iter().find_map(|at| match array::<7>(area, at)? {
        [b'S', b'P', 7, 1, 0xbe, 0xef, skip] => Some(usize::from(skip)),
        _ => None,
    })
}

/// The fields of a record's system use area. `read(block, offset, size)` reads a continuation area (5.1, CE).
///
/// # Errors
/// A continuation area cannot be read.
pub fn fields(area: &[u8], read: impl Fn(u64, u64, usize) -> Result<Vec<u8>>) -> Result<Fields> {
    let mut fields = Fields::default();
    let (mut name, mut named) = (Vec::new(), false);
    let mut target = Target::default();
    let mut area = area.to_vec();
    for _ in 0..=MAX_CONTINUATIONS {
        let mut next = None;
        let mut rest = area.as_slice();
        while let Some((signature, data, after)) = field(rest) {
            rest = after;
            match signature {
                b"CE" => next = continuation(data),
                b"ST" => break,
                b"NM" => {
                    // CURRENT and PARENT refer to the directory itself or its parent, and are not names.
                    if let Some((flags, text)) = data.split_first().filter(|(flags, _)| **flags & 0b110 == 0) {
                        // A second NM is only used if the first is to be continued.
                        if !named {
                            name.extend(text);
                            named = flags & 1 == 0;
                        }
                    }
                }
                b"PX" => {
                    fields.kind = match le32(data, 0).unwrap_or(0) & 0o170_000 {
                        0o120_000 => FileType::Symlink,
                        0o100_000 | 0o040_000 | 0 => FileType::Ordinary,
                        _ => FileType::Special,
                    }
                }
                b"SL" => target.add(data.get(1..).unwrap_or_default()),
                b"CL" => fields.child = le32(data, 0),
                b"RE" => fields.relocated = true,
                b"ZF" => fields.compressed = true,
                _ => {}
            }
        }
        let Some((block, offset, size)) = next else {
            fields.name = (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned());
            fields.target = String::from_utf8_lossy(&target.text).into_owned();
            return Ok(fields);
        };
        if size > MAX_CONTINUATION {
            return Err(Error::new("a Rock Ridge continuation area is too large"));
        }
        area = read(block, offset, size)?;
    }
    Err(Error::new("a Rock Ridge record has too many continuation areas"))
}

/// The next field: its signature, its data, and what follows it.
fn field(area: &[u8]) -> Option<(&[u8; 2], &[u8], &[u8])> {
    let length = usize::from(u8_at(area, 2)?);
    let (field, after) = area.split_at_checked(length)?;
    Some((field.first_chunk()?, field.get(4..)?, after))
}

/// CE: the block, the offset in it, and the size.
fn continuation(data: &[u8]) -> Option<(u64, u64, usize)> {
    Some((u64::from(le32(data, 0)?), u64::from(le32(data, 8)?), usize::try_from(le32(data, 16)?).ok()?))
}

/// A symbolic link's target, assembled from the components in one or more SL fields (RRIP 4.1.3.1).
#[derive(Default)]
struct Target {
    text: Vec<u8>,
    /// The last component continues in the next one.
    continued: bool,
}

impl Target {
    fn add(&mut self, mut components: &[u8]) {
        while let Some(&[flags, length]) = components.first_chunk::<2>() {
            let end = 2 + usize::from(length);
            let Some(content) = components.get(2..end) else { return };
            components = components.get(end..).unwrap_or_default();
            if !self.continued && !self.text.is_empty() && !self.text.ends_with(b"/") {
                self.text.push(b'/');
            }
            match flags & 0b1110 {
                0b0010 => self.text.push(b'.'),
                0b0100 => self.text.extend(b".."),
                0b1000 => self.text.push(b'/'),
                _ => self.text.extend(content),
            }
            self.continued = flags & 1 != 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: u64, _: u64, _: usize) -> Result<Vec<u8>> {
        Err(Error::new("no continuation"))
    }

    /// A field with its length and version put in.
    fn make(signature: &[u8; 2], data: &[u8]) -> Vec<u8> {
        [signature.as_slice(), &[data.len() as u8 + 4, 1], data].concat()
    }

    #[test]
    fn names_and_targets_continue_over_fields_and_areas() {
        let both = |n: u32| [n.to_le_bytes(), n.to_be_bytes()].concat();
        let first = [
            make(b"PX", &[both(0o120_777), vec![0; 24]].concat()),
            make(b"NM", b"\x01meta_"),
            make(b"SL", b"\x01\x08\x00\x00\x03usr\x01\x02lo"),
            make(b"CE", &[both(40), both(7), both(99)].concat()),
        ]
        .concat();
        let second = [make(b"NM", b"\x00data"), make(b"SL", b"\x00\x00\x03cal\x04\x00\x02\x00")].concat();
        let fields = fields(&first, |block, offset, size| {
            assert_eq!((block, offset, size), (40, 7, 99));
            Ok(second.clone())
        })
        .unwrap();
        assert_eq!(fields.name.as_deref(), Some("meta_data"));
        assert_eq!(fields.kind, FileType::Symlink);
        assert_eq!(fields.target, "/usr/local/../.");
    }

    #[test]
    fn a_continuation_that_points_to_itself_ends() {
        let both = |n: u32| [n.to_le_bytes(), n.to_be_bytes()].concat();
        let area = make(b"CE", &[both(1), both(0), both(28)].concat());
        let error = fields(&area, |_, _, _| Ok(area.clone())).unwrap_err();
        assert!(error.to_string().contains("too many continuation areas"), "{error}");
    }

    #[test]
    fn special_files_and_fields_cut_short() {
        let px = make(b"PX", &0o060_600_u32.to_le_bytes());
        assert_eq!(fields(&px, none).unwrap().kind, FileType::Special);
        for end in 0..px.len() {
            fields(&px[..end], none).unwrap();
        }
        assert_eq!(fields(&[0; 40], none).unwrap().name, None);
    }
}
