//! FAT12, FAT16 and FAT32 with long names, read only (Microsoft FAT specification 1.03).

use super::bytes::{ReadAt, array, le16, le32, u8_at};
use super::fat_names::{LongName, short_name};
use super::tree::{Budget, Entry, Kind, Tree};
use crate::base::error::{Context, Error, Result};
use std::cell::RefCell;

/// The largest directory (the specification's own limit: 65,536 entries).
const MAX_DIRECTORY: u64 = 65_536 * ENTRY as u64;
/// How far the volume label is looked for in the root directory; it stands first on any new volume.
const MAX_LABEL_SEARCH: u64 = 64 * 1024;
/// A directory entry's size.
const ENTRY: usize = 32;
/// How much of the allocation table is kept at a time.
const WINDOW: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Fat12,
    Fat16,
    Fat32,
}

/// The boot sector's fields (the BIOS parameter block).
#[derive(Debug, Clone)]
pub struct BootSector {
    width: Width,
    /// Offsets and sizes in bytes.
    table: u64,
    root: u64,
    root_size: u64,
    data: u64,
    cluster_size: u64,
    clusters: u32,
    root_cluster: u32,
    /// The volume's serial number; None if the extended boot signature is absent.
    pub serial: Option<u32>,
    /// The label in the boot sector, 11 bytes padded with spaces; blkid's LABEL_FATBOOT.
    pub label: Option<[u8; 11]>,
}

impl BootSector {
    /// Reads `start`, the first 512 bytes or more of a device. None if they are not a FAT boot sector.
    pub fn parse(start: &[u8]) -> Option<Self> {
        // NTFS and exFAT have no reserved sectors, a master boot record has code where the sizes must be.
        let sector = u64::from(le16(start, 11)?);
        let cluster = u64::from(u8_at(start, 13)?);
        let reserved = u64::from(le16(start, 14)?);
        let tables = u64::from(u8_at(start, 16)?);
        let root_entries = u64::from(le16(start, 17)?);
        let media = u8_at(start, 21)?;
        let sane = matches!(sector, 512 | 1024 | 2048 | 4096)
            && cluster.is_power_of_two()
            && reserved > 0
            && (1..=8).contains(&tables)
            && (media >= 0xf8 || media == 0xf0)
            && start.get(510..512)? == [0x55, 0xaa];
        if !sane {
            return None;
        }
        let small =
            |at16, at32| Some(if le16(start, at16)? != 0 { u32::from(le16(start, at16)?) } else { le32(start, at32)? });
        let sectors = u64::from(small(19, 32)?);
        let table_sectors = u64::from(small(22, 36)?);
        let table = reserved * sector;
        let root = table + tables * table_sectors * sector;
        let root_size = root_entries * ENTRY as u64;
        let data = root + root_size.next_multiple_of(sector);
        let cluster_size = cluster * sector;
        let clusters = (sectors * sector).checked_sub(data)? / cluster_size;
        let width = match (le16(start, 22)?, clusters) {
            (0, _) => Width::Fat32,
            (_, ..=4084) => Width::Fat12,
            _ => Width::Fat16,
        };
        if table_sectors == 0 || clusters == 0 || (width == Width::Fat32) != (root_entries == 0) {
            return None;
        }
        let extended = if width == Width::Fat32 { 66 } else { 38 };
        let signature = u8_at(start, extended)?;
        Some(BootSector {
            width,
            table,
            root,
            root_size,
            data,
            cluster_size,
            clusters: u32::try_from(clusters).ok()?,
            root_cluster: le32(start, 44)?,
            serial: matches!(signature, 0x28 | 0x29).then(|| le32(start, extended + 1)).flatten(),
            label: (signature == 0x29).then(|| array(start, extended + 5)).flatten(),
        })
    }
}

/// A file's or directory's place in the volume.
#[derive(Debug, Clone)]
pub enum Node {
    /// FAT12's and FAT16's root directory, which has a place of its own.
    Root,
    /// The first cluster of its chain, and a file's size.
    Chain(u32),
}

/// A FAT volume.
pub struct Fat<R> {
    device: R,
    boot: BootSector,
    /// The part of the allocation table that was read last, and its offset in the table.
    window: RefCell<(u64, Vec<u8>)>,
}

impl<R: ReadAt> Fat<R> {
    /// The volume on `device`, whose first bytes are `start`. An error if it is not one.
    ///
    /// # Errors
    /// It is not a FAT volume.
    pub fn open(device: R, start: &[u8]) -> Result<Self> {
        let boot = BootSector::parse(start).ok_or_else(|| Error::new("no FAT boot sector"))?;
        Ok(Fat::with(device, boot))
    }

    /// The volume on `device` whose boot sector was read already.
    pub fn with(device: R, boot: BootSector) -> Self {
        Fat { device, boot, window: RefCell::new((0, Vec::new())) }
    }

    /// The volume label in the root directory: 11 bytes padded with spaces. None if the directory has no label.
    ///
    /// # Errors
    /// The root directory cannot be read.
    pub fn label(&self) -> Result<Option<[u8; 11]>> {
        let contents = self.directory(&self.root()?, MAX_LABEL_SEARCH, &mut |_| Ok(()))?;
        let label = entries(&contents).find(|entry| {
            entry[11] & (VOLUME | DIRECTORY) == VOLUME && entry[11] & LONG != LONG && entry[0] != DELETED
        });
        Ok(label.and_then(|entry| array(entry, 0)))
    }

    /// The cluster that follows in the chain; None at its end.
    fn next(&self, cluster: u32) -> Result<Option<u32>> {
        let at = u64::from(cluster);
        let value = match self.boot.width {
            Width::Fat12 => {
                let pair = self.table(at + at / 2, 2)?;
                let value = u32::from(le16(&pair, 0).unwrap_or(0));
                if cluster & 1 == 1 { value >> 4 } else { value & 0x0fff }
            }
            Width::Fat16 => u32::from(le16(&self.table(at * 2, 2)?, 0).unwrap_or(0)),
            Width::Fat32 => le32(&self.table(at * 4, 4)?, 0).unwrap_or(0) & 0x0fff_ffff,
        };
        let end = match self.boot.width {
            Width::Fat12 => 0x0ff8,
            Width::Fat16 => 0xfff8,
            Width::Fat32 => 0x0fff_fff8,
        };
        Ok((value < end).then_some(value))
    }

    /// `size` bytes of the allocation table.
    fn table(&self, offset: u64, size: usize) -> Result<Vec<u8>> {
        let mut window = self.window.borrow_mut();
        let within = |window: &(u64, Vec<u8>)| {
            let at = usize::try_from(offset.checked_sub(window.0)?).ok()?;
            window.1.get(at..at.checked_add(size)?).map(<[u8]>::to_vec)
        };
        if let Some(bytes) = within(&window) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; WINDOW as usize];
        // An entry of FAT12 may lie across two windows, so each window starts at the requested offset.
        let n = self
            .device
            .read_at(self.boot.table + offset, &mut bytes)
            .context(|| "failed to read the file allocation table")?;
        bytes.truncate(n);
        *window = (offset, bytes);
        within(&window).ok_or_else(|| Error::new("the file allocation table ends too early"))
    }

    /// Up to `size` bytes of the chain that starts at `cluster`. How many are read next is given to `charge`, whose error ends it.
    fn chain(&self, cluster: u32, size: u64, charge: &mut dyn FnMut(u64) -> Result<()>) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        let (mut next, mut left) = (Some(cluster), self.boot.clusters);
        while let Some(cluster) = next.filter(|_| (contents.len() as u64) < size) {
            let index = cluster.checked_sub(2).filter(|index| *index < self.boot.clusters);
            let index =
                index.ok_or_else(|| Error::new(format!("its chain has cluster {cluster}, which is not one")))?;
            left = left.checked_sub(1).ok_or_else(|| Error::new("its chain of clusters is a loop"))?;
            let want = self.boot.cluster_size.min(size - contents.len() as u64) as usize;
            charge(want as u64)?;
            let at = self.boot.data + u64::from(index) * self.boot.cluster_size;
            contents.extend(self.device.bytes(at, want).context(|| format!("failed to read cluster {cluster}"))?);
            next = self.next(cluster)?;
        }
        Ok(contents)
    }

    /// A directory's bytes, at most `limit` of them; `charge` as in [`Fat::chain`].
    fn directory(&self, directory: &Node, limit: u64, charge: &mut dyn FnMut(u64) -> Result<()>) -> Result<Vec<u8>> {
        match directory {
            Node::Root => {
                let size = self.boot.root_size.min(limit) as usize;
                charge(size as u64)?;
                self.device.bytes(self.boot.root, size).context(|| "failed to read the root directory")
            }
            Node::Chain(cluster) => self.chain(*cluster, limit, charge),
        }
    }
}

const READ_ONLY_TO_VOLUME: u8 = 0x0f;
const LONG: u8 = READ_ONLY_TO_VOLUME;
const VOLUME: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const DELETED: u8 = 0xe5;

/// The entries of a directory's contents, up to the first that was never used.
fn entries(contents: &[u8]) -> impl Iterator<Item = &[u8; ENTRY]> {
    contents.chunks_exact(ENTRY).filter_map(|entry| entry.first_chunk()).take_while(|entry| entry[0] != 0)
}

impl<R: ReadAt> Tree for Fat<R> {
    type Node = Node;

    fn root(&self) -> Result<Node> {
        Ok(match self.boot.width {
            Width::Fat32 => Node::Chain(self.boot.root_cluster),
            _ => Node::Root,
        })
    }

    fn entries(&self, directory: &Node, budget: &mut Budget) -> Result<Vec<Entry<Node>>> {
        let contents = self.directory(directory, MAX_DIRECTORY, &mut |size| budget.directory(size))?;
        let mut found = Vec::new();
        let mut long = LongName::default();
        for entry in entries(&contents) {
            budget.entry()?;
            let attributes = entry[11];
            if entry[0] == DELETED {
                long = LongName::default();
                continue;
            }
            if attributes & LONG == LONG {
                long.add(entry);
                continue;
            }
            let name = std::mem::take(&mut long).finish(entry).unwrap_or_else(|| short_name(entry));
            if attributes & VOLUME != 0 || matches!(&entry[..11], b".          " | b"..         ") {
                continue;
            }
            let high = if self.boot.width == Width::Fat32 { le16(entry, 20).unwrap_or(0) } else { 0 };
            let cluster = u32::from(high) << 16 | u32::from(le16(entry, 26).unwrap_or(0));
            let node = Node::Chain(cluster);
            let kind = match attributes & DIRECTORY != 0 {
                true => Kind::Directory(node),
                false => Kind::File { node, size: u64::from(le32(entry, 28).unwrap_or(0)) },
            };
            budget.keep(Entry { name, kind }, &mut found)?;
        }
        Ok(found)
    }

    fn read(&self, file: &Node, size: u64) -> Result<Vec<u8>> {
        let contents = match file {
            // An empty file has no cluster.
            Node::Chain(cluster) if size > 0 => self.chain(*cluster, size, &mut |_| Ok(()))?,
            _ => Vec::new(),
        };
        if (contents.len() as u64) < size {
            return Err(Error::new(format!("its chain of clusters ends after {} of {size} bytes", contents.len())));
        }
        Ok(contents)
    }
}

#[cfg(test)]
#[path = "fat_tests.rs"]
mod tests;
