//! ISO 9660 (ECMA-119), read only: volume descriptors, Rock Ridge, Joliet, plain names, files in several extents.
//!
//! Names come out as Linux's isofs shows them: Rock Ridge's if the volume has it, else Joliet's, else plain
//! names in lower case without their version.

use super::bytes::{ReadAt, array, le16, le32, u8_at, utf16_be};
use super::rock_ridge;
use super::tree::{Budget, Entry, Kind, Tree};
use crate::base::error::{Context, Error, Result};

/// Where the volume descriptors start, and each one's size (ECMA-119, 6.2.1 and 8).
pub const DESCRIPTORS: u64 = 32 * 1024;
pub const SECTOR: usize = 2048;

/// One volume descriptor's own names and places: the primary one (8.4) or Joliet's supplementary one (8.5).
#[derive(Debug, Clone)]
pub struct Volume {
    /// The volume identifier as bytes: 32, padded with spaces.
    pub identifier: [u8; 32],
    /// When the volume was made, as digits yyyymmddhhmmsscc; None if it is not set.
    pub date: Option<String>,
    block_size: u64,
    root: Extent,
}

/// The content of the volume descriptors.
#[derive(Debug, Clone)]
pub struct Descriptors {
    pub primary: Volume,
    /// The supplementary descriptor with UCS-2 names, if there is one.
    pub joliet: Option<Volume>,
}

/// A run of blocks: its start, and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    block: u64,
    size: u64,
}

/// Reads the volume descriptors out of `start`, the first bytes of a device. None if it is not an ISO 9660 volume.
pub fn descriptors(start: &[u8]) -> Option<Descriptors> {
    let (mut primary, mut joliet) = (None, None);
    for sector in start.get(DESCRIPTORS as usize..)?.chunks_exact(SECTOR) {
        if sector.get(1..6)? != b"CD001" {
            break;
        }
        match sector.first()? {
            1 if primary.is_none() => primary = volume(sector),
            // Joliet's three levels of UCS-2 (Joliet Specification, ISO 2022 escape sequences).
            2 if joliet.is_none() && matches!(sector.get(88..91)?, b"%/@" | b"%/C" | b"%/E") => joliet = volume(sector),
            255 => break,
            _ => {}
        }
    }
    primary.map(|primary| Descriptors { primary, joliet })
}

fn volume(sector: &[u8]) -> Option<Volume> {
    let block_size = u64::from(le16(sector, 128)?);
    let root = Record::parse(sector.get(156..190)?)?;
    // Modification first, then creation, as blkid does. A date is set unless it is all zeros (8.4.26.1).
    let date = [830, 813].into_iter().find_map(|at| {
        let date: [u8; 17] = array(sector, at)?;
        let digits = String::from_utf8(date.get(..16)?.to_vec()).ok()?;
        let unset = digits.bytes().all(|b| b == b'0') && date.last() == Some(&0);
        (!unset && digits.bytes().all(|b| b.is_ascii_graphic())).then_some(digits)
    });
    matches!(block_size, 512 | 1024 | 2048).then(|| Volume {
        identifier: array(sector, 40).unwrap_or([b' '; 32]),
        date,
        block_size,
        root: root.extent,
    })
}

/// A directory record (ECMA-119, 9.1).
struct Record<'a> {
    extent: Extent,
    flags: u8,
    interleaved: bool,
    name: &'a [u8],
    system_use: &'a [u8],
}

const DIRECTORY: u8 = 0x02;
const ASSOCIATED: u8 = 0x04;
const MULTI_EXTENT: u8 = 0x80;

impl<'a> Record<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let name_end = 33 + usize::from(u8_at(bytes, 32)?);
        Some(Record {
            extent: Extent {
                block: u64::from(le32(bytes, 2)?) + u64::from(u8_at(bytes, 1)?),
                size: u64::from(le32(bytes, 10)?),
            },
            flags: u8_at(bytes, 25)?,
            interleaved: u8_at(bytes, 26)? != 0 || u8_at(bytes, 27)? != 0,
            name: bytes.get(33..name_end)?,
            system_use: bytes.get(name_end + (name_end & 1)..).unwrap_or_default(),
        })
    }

    /// The records of a directory's contents. A record never crosses a sector; a zero length ends the sector's.
    fn all(contents: &'a [u8]) -> impl Iterator<Item = Record<'a>> {
        contents.chunks(SECTOR).flat_map(|sector| {
            let mut rest = sector;
            std::iter::from_fn(move || {
                let length = usize::from(*rest.first()?);
                let record = Record::parse(rest.get(..length)?)?;
                rest = rest.get(length..).unwrap_or_default();
                Some(record)
            })
        })
    }

    /// The directory itself or its parent, as its first two records (9.1.11).
    fn is_dot(&self) -> bool {
        matches!(self.name, [0] | [1])
    }
}

/// A file's or directory's place in the volume.
#[derive(Debug, Clone)]
pub struct Node(Vec<Extent>);

enum Names {
    /// With the number of bytes to skip in each system use area (SUSP's SP).
    RockRidge(usize),
    Joliet,
    Plain,
}

/// An ISO 9660 volume.
pub struct Iso<R> {
    device: R,
    block_size: u64,
    root: Extent,
    names: Names,
}

impl<R: ReadAt> Iso<R> {
    /// The volume on `device`, whose first bytes are `start`. An error if it is not one.
    ///
    /// # Errors
    /// It is not an ISO 9660 volume, or cannot be read.
    pub fn open(device: R, start: &[u8]) -> Result<Self> {
        let Descriptors { primary, joliet } =
            descriptors(start).ok_or_else(|| Error::new("no ISO 9660 volume descriptor"))?;
        let mut iso = Iso { device, block_size: primary.block_size, root: primary.root, names: Names::Plain };
        let first = iso.device.bytes(iso.offset(iso.root)?, SECTOR).context(|| "failed to read the root directory")?;
        if let Some(skip) = Record::all(&first).next().and_then(|dot| rock_ridge::skip(dot.system_use)) {
            iso.names = Names::RockRidge(skip);
        } else if let Some(joliet) = joliet {
            (iso.block_size, iso.root, iso.names) = (joliet.block_size, joliet.root, Names::Joliet);
        }
        Ok(iso)
    }

    fn offset(&self, extent: Extent) -> Result<u64> {
        extent.block.checked_mul(self.block_size).ok_or_else(|| Error::new("an extent lies past any device's end"))
    }

    fn read(&self, extents: &[Extent]) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        for extent in extents {
            let size = usize::try_from(extent.size).context(|| "an extent is too large")?;
            contents.extend(self.device.bytes(self.offset(*extent)?, size).context(|| "failed to read an extent")?);
        }
        Ok(contents)
    }

    /// The directory that starts at `block`: its own first record says how long it is.
    fn directory_at(&self, block: u64) -> Result<Node> {
        let start = Extent { block, size: SECTOR as u64 };
        let first = self.read(&[start])?;
        let dot = Record::all(&first).next().ok_or_else(|| Error::new("a moved directory is empty"))?;
        Ok(Node(vec![dot.extent]))
    }

    fn entry(&self, record: &Record, extents: Vec<Extent>) -> Result<Option<Entry<Node>>> {
        let directory = record.flags & DIRECTORY != 0;
        let size = extents.iter().map(|e| e.size).sum();
        let node = Node(extents);
        let kind = match directory {
            true => Kind::Directory(node),
            false if record.interleaved => Kind::Other("an interleaved file".into()),
            false => Kind::File { node, size },
        };
        Ok(Some(match self.names {
            Names::Plain => Entry { name: plain_name(record.name), kind },
            Names::Joliet => Entry { name: joliet_name(record.name), kind },
            Names::RockRidge(skip) => {
                let area = record.system_use.get(skip..).unwrap_or_default();
                let fields = rock_ridge::fields(area, |block, offset, size| {
                    let at = self.offset(Extent { block, size: 0 })?.saturating_add(offset);
                    self.device.bytes(at, size).context(|| "failed to read a Rock Ridge continuation area")
                })?;
                if fields.relocated {
                    return Ok(None);
                }
                let name = fields.name.unwrap_or_else(|| plain_name(record.name));
                let kind = match (fields.kind, fields.child, fields.compressed, kind) {
                    (_, Some(block), _, _) => Kind::Directory(self.directory_at(u64::from(block))?),
                    (rock_ridge::FileType::Symlink, ..) => Kind::Link(fields.target),
                    (rock_ridge::FileType::Special, ..) => Kind::Other("a special file".into()),
                    (.., true, Kind::File { .. }) => Kind::Other("a zisofs compressed file".into()),
                    (.., kind) => kind,
                };
                Entry { name, kind }
            }
        }))
    }
}

impl<R: ReadAt> Tree for Iso<R> {
    type Node = Node;

    fn root(&self) -> Result<Node> {
        Ok(Node(vec![self.root]))
    }

    fn entries(&self, directory: &Node, budget: &mut Budget) -> Result<Vec<Entry<Node>>> {
        budget.directory(directory.0.iter().map(|e| e.size).sum())?;
        let contents = self.read(&directory.0)?;
        let (mut entries, mut extents) = (Vec::new(), Vec::new());
        for record in Record::all(&contents).filter(|r| !r.is_dot()) {
            budget.entry()?;
            if record.flags & ASSOCIATED != 0 {
                continue;
            }
            extents.push(record.extent);
            if record.flags & MULTI_EXTENT != 0 {
                continue;
            }
            let entry = self.entry(&record, std::mem::take(&mut extents)).unwrap_or_else(|e| {
                let kind = Kind::Other(e.to_string());
                Some(Entry { name: plain_name(record.name), kind })
            });
            if let Some(entry) = entry {
                budget.keep(entry, &mut entries)?;
            }
        }
        Ok(entries)
    }

    fn read(&self, file: &Node, _size: u64) -> Result<Vec<u8>> {
        Iso::read(self, &file.0)
    }
}

/// A plain name as isofs shows it: lower case, without the version `;1` and the dot that goes before it.
fn plain_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let name = name.strip_suffix(".;1").or_else(|| name.strip_suffix(";1")).unwrap_or(&name);
    name.replace([';', '/'], ".")
}

/// A Joliet name as isofs shows it: without the version `;1` and dots at the end.
fn joliet_name(name: &[u8]) -> String {
    let name = utf16_be(name);
    let name = name.strip_suffix(";1").unwrap_or(&name);
    name.trim_end_matches('.').to_string()
}

#[cfg(test)]
#[path = "iso9660_tests.rs"]
mod tests;
