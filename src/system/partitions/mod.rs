//! Partition tables: GPT (UEFI 2.10, section 5.3) and MBR with extended and logical partitions, read from a disk's bytes,
//! and changed in steps between which a power cut leaves the old or the new table.
//!
//! All of this follows the kernel's reader. It reads the MBR and, if that has an entry of type EE, GPT's header in sector 1; it
//! does not look for the backup at the end of the disk without `gpt` on the kernel command line
//! (block/partitions/efi.c). So a GPT with a broken primary header is not a table, and the primary one is valid at
//! any moment here.

mod gpt;
pub mod guid;
mod mbr;

use crate::base::error::{Context, Error, Result};
use crate::drive::bytes::ReadAt;
use crate::root::{Steps, Write};
use gpt::Gpt;
pub use guid::PartitionKind;
use mbr::Mbr;

/// The alignment of partitions, in bytes, as in sfdisk and sgdisk.
const ALIGNMENT: u64 = 1 << 20;
/// The smallest growth of a partition, in bytes, as growpart's `--fudge`.
const MIN_GROWTH: u64 = 1 << 20;
/// How many bytes at the start and at the end of a disk are erased to remove its table, as in cloud-init.
const SIGNATURES: u64 = 1 << 20;
/// How many bytes at the start of a new partition are erased. Every known superblock begins there; it is
/// little because a table has up to 128 partitions.
const SUPERBLOCKS: u64 = 128 << 10;

/// The size of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The bytes of a logical sector: 512 or 4096.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u64,
}

impl Geometry {
    /// The geometry of a disk of `size` bytes.
    ///
    /// # Errors
    /// The sector size is unusual, or the disk is too small for a table.
    pub fn new(size: u64, sector: u64) -> Result<Geometry> {
        if !(512..=4096).contains(&sector) || !sector.is_power_of_two() {
            return Err(Error::new(format!("sectors of {sector} bytes: expected 512 to 4096")));
        }
        if size < 2 * ALIGNMENT {
            return Err(Error::new(format!("{size} bytes are too small for a partition table")));
        }
        Ok(Geometry { sector, sectors: size / sector })
    }

    fn alignment(self) -> u64 {
        (ALIGNMENT / self.sector).max(1)
    }

    fn sectors_of(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.sector)
    }

    fn write(self, at: u64, mut content: Vec<u8>) -> Write {
        let whole = self.sectors_of(content.len() as u64) * self.sector;
        content.resize(usize::try_from(whole).unwrap_or(content.len()), 0);
        Write { offset: at * self.sector, content }
    }

    fn read(self, disk: &dyn ReadAt, at: u64, sectors: u64) -> Result<Vec<u8>> {
        let size = usize::try_from(sectors * self.sector).unwrap_or(usize::MAX);
        let offset = at.checked_mul(self.sector).filter(|_| at < self.sectors);
        let offset =
            offset.ok_or_else(|| Error::new(format!("the table names sector {at}, which is not on the disk")))?;
        disk.bytes(offset, size).context(|| format!("failed to read sector {at}"))
    }
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// The number in the kernel's name of it: logical partitions begin at 5.
    pub number: u32,
    /// The first sector, and the one after the last.
    pub start: u64,
    pub end: u64,
    pub kind: PartitionKind,
}

/// A partition table read from a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionTable {
    Gpt(Gpt),
    Mbr(Mbr),
}

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    Gpt,
    Mbr,
}

/// How a partition grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The partition after it has grown.
    pub partition: Partition,
    /// The writes that change it.
    pub steps: Steps,
}

/// A partition to create: its size in sectors, or None for the rest of the disk, and its type as in
/// cloud-config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub sectors: Option<u64>,
    pub kind: PartitionKind,
}

/// Reads a disk's table. None if there is none.
///
/// # Errors
/// The disk cannot be read, or its table is damaged and must not be changed.
pub fn read(disk: &dyn ReadAt, geometry: Geometry) -> Result<Option<PartitionTable>> {
    let first = geometry.read(disk, 0, 1)?;
    match mbr::parse(&first) {
        None => Ok(None),
        Some(entries) if entries.iter().any(|e| e.code == mbr::PROTECTIVE) => {
            Gpt::read(disk, geometry, &first).map(|gpt| Some(PartitionTable::Gpt(gpt)))
        }
        Some(_) => Mbr::read(disk, geometry, first).map(|mbr| Some(PartitionTable::Mbr(mbr))),
    }
}

impl PartitionTable {
    /// The partitions by number, without an extended one, which only contains others.
    pub fn partitions(&self) -> Vec<Partition> {
        match self {
            PartitionTable::Gpt(gpt) => gpt.partitions(),
            PartitionTable::Mbr(mbr) => mbr.partitions(),
        }
    }

    /// How partition `number` grows up to the next one or the end of the disk. None if it would grow by less
    /// than 1 MiB.
    ///
    /// # Errors
    /// There is no such partition, or the table cannot be changed safely.
    pub fn grow(&self, number: u32) -> Result<Option<Growth>> {
        match self {
            PartitionTable::Gpt(gpt) => gpt.grow(number),
            PartitionTable::Mbr(mbr) => mbr.grow(number),
        }
    }
}

/// The writes that replace `old` by a new table. Each partition begins at a multiple of 1 MiB. With `clean`,
/// remains of earlier file systems at the start of the disk and its partitions are erased after the table is
/// written.
///
/// # Errors
/// The partitions do not fit on the disk, or there are too many for the table.
pub fn create(
    old: Option<&PartitionTable>,
    geometry: Geometry,
    format: TableFormat,
    wanted: &[Wanted],
    clean: bool,
) -> Result<(Vec<Partition>, Steps)> {
    let last = match format {
        TableFormat::Gpt => gpt::last_usable(geometry),
        TableFormat::Mbr => geometry.sectors.min(mbr::MAX_END) - 1,
    };
    let mut partitions: Vec<Partition> = Vec::new();
    for (number, wanted) in (1..).zip(wanted) {
        let free = partitions.last().map_or(1, |p| p.end);
        let start = free.next_multiple_of(geometry.alignment());
        let end = wanted.sectors.map_or(last + 1, |sectors| start.saturating_add(sectors));
        if start >= end || end > last + 1 {
            return Err(Error::new(format!("the disk has no room for partition {number} of the layout")));
        }
        partitions.push(Partition { number, start, end, kind: wanted.kind });
    }
    let mut steps = match format {
        TableFormat::Gpt => Gpt::create(old, geometry, &partitions)?,
        TableFormat::Mbr => mbr::create(geometry, &partitions)?,
    };
    if matches!((old, format), (Some(PartitionTable::Gpt(_)), TableFormat::Mbr)) {
        steps.push(gpt::erase(geometry));
    }
    if clean {
        steps.push(clean_starts(geometry, format, &partitions));
    }
    Ok((partitions, steps))
}

/// Zeros where earlier file systems may have superblocks: between the table and the first partition, and at
/// the start of each partition.
fn clean_starts(geometry: Geometry, format: TableFormat, partitions: &[Partition]) -> Vec<Write> {
    let begin = match format {
        TableFormat::Gpt => gpt::first_usable(geometry),
        TableFormat::Mbr => 1,
    };
    let gap = (begin, partitions.first().map_or(geometry.alignment(), |p| p.start));
    let starts = partitions.iter().map(|p| (p.start, p.end.min(p.start + geometry.sectors_of(SUPERBLOCKS))));
    let zeros = |(from, to): (u64, u64)| {
        let size = usize::try_from((to - from) * geometry.sector).unwrap_or(0);
        geometry.write(from, vec![0; size])
    };
    std::iter::once(gap).chain(starts).map(zeros).collect()
}

/// Zeros over the first and the last MiB of a disk of `size` bytes, which contain any table.
pub fn erase(size: u64) -> Steps {
    let part = SIGNATURES.min(size);
    let zeros = |offset| Write { offset, content: vec![0; usize::try_from(part).unwrap_or(0)] };
    // The backup of a GPT comes first: an interruption leaves the old table or none.
    vec![vec![zeros(size - part)], vec![zeros(0)]]
}

/// Writes a field into a table, at an offset in bytes.
fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + field.len()) {
        to.copy_from_slice(field);
    }
}

#[cfg(test)]
mod tests;
