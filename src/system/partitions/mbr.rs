//! MBR, with extended and logical partitions, read and numbered as in the kernel's block/partitions/msdos.c.
//!
//! Each of its tables is one sector, which a disk writes whole or not at all. A logical partition grows from the outside
//! inwards: the extended partition's end, then the size in the link to its own table, then its own size, with a sync between
//! each two. After any of them the table is valid, and the partition has its old size or the new one.

use super::{Geometry, Growth, MIN_GROWTH, Partition, PartitionKind, put};
use crate::base::error::{Error, Result};
use crate::base::uuid;
use crate::drive::bytes::{ReadAt, array, le32, u8_at};
use crate::root::Steps;

/// The type of GPT's protective entry.
pub(super) const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const TABLE: usize = 446;
const ENTRY: usize = 16;
const MAGIC: [u8; 2] = [0x55, 0xaa];
/// Entries have 32-bit sector numbers; sectors from this one on cannot be addressed.
pub(super) const MAX_END: u64 = u32::MAX as u64;
/// The most logical partitions that are read: the kernel's limit for the partitions of a disk.
const MAX_LOGICAL: usize = 256;

/// An entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The partition's type; 0 if the entry is unused.
    pub(super) code: u8,
    start: u64,
    sectors: u64,
}

/// A logical partition, and the table (EBR) that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Logical {
    at: u64,
    table: Vec<u8>,
    /// The index of its entry in the table, and that of the link to the next table.
    slot: usize,
    link: Option<usize>,
    partition: Partition,
}

/// An MBR that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mbr {
    geometry: Geometry,
    table: Vec<u8>,
    entries: [Entry; 4],
    logical: Vec<Logical>,
}

/// The entries of a table's sector. None if it is empty or the boot sector of a file system.
pub(super) fn parse(sector: &[u8]) -> Option<[Entry; 4]> {
    if array(sector, 510)? != MAGIC || is_boot_sector(sector) {
        return None;
    }
    let mut entries = [Entry { code: 0, start: 0, sectors: 0 }; 4];
    for (slot, entry) in entries.iter_mut().enumerate() {
        let at = TABLE + slot * ENTRY;
        if u8_at(sector, at)? & 0x7f != 0 {
            return None;
        }
        let (start, sectors) = (u64::from(le32(sector, at + 8)?), u64::from(le32(sector, at + 12)?));
        let code = u8_at(sector, at + 4)?;
        if code != 0 && sectors != 0 {
            *entry = Entry { code, start, sectors };
        }
    }
    Some(entries)
}

/// Whether a sector is the boot sector of a FAT, exFAT or NTFS, which ends with the same signature.
fn is_boot_sector(sector: &[u8]) -> bool {
    let names = [(54, &b"FAT"[..]), (82, b"FAT"), (3, b"NTFS    "), (3, b"EXFAT   ")];
    names.iter().any(|(at, name)| sector.get(*at..).is_some_and(|rest| rest.starts_with(name)))
}

impl Mbr {
    pub(super) fn read(disk: &dyn ReadAt, geometry: Geometry, table: Vec<u8>) -> Result<Mbr> {
        let entries = parse(&table).ok_or_else(|| Error::new("there is no MBR"))?;
        let mut mbr = Mbr { geometry, table, entries, logical: Vec::new() };
        if let Some(extended) = mbr.extended() {
            mbr.read_logical(disk, mbr.entries[extended])?;
        }
        Ok(mbr)
    }

    /// The index of the extended partition's entry.
    fn extended(&self) -> Option<usize> {
        self.entries.iter().position(|e| EXTENDED.contains(&e.code))
    }

    fn read_logical(&mut self, disk: &dyn ReadAt, extended: Entry) -> Result<()> {
        let end = extended.start + extended.sectors;
        let mut at = extended.start;
        loop {
            let table = self.geometry.read(disk, at, 1)?;
            let Some(entries) = parse(&table) else { return Ok(()) };
            let is_link = |e: &Entry| EXTENDED.contains(&e.code);
            let link = entries.iter().position(is_link);
            for (slot, entry) in entries.iter().enumerate().filter(|(_, e)| e.code != 0 && !is_link(e)) {
                let start = at + entry.start;
                let partition = Partition {
                    number: 5 + self.logical.len() as u32,
                    start,
                    end: start + entry.sectors,
                    kind: PartitionKind::Code(entry.code),
                };
                // The last two entries of such a table are rarely used, and often garbage.
                if slot < 2 || (start >= extended.start && partition.end <= end) {
                    self.logical.push(Logical { at, table: table.clone(), slot, link, partition });
                }
            }
            let Some(link) = link else { return Ok(()) };
            let next = extended.start + entries[link].start;
            // Each table must come after the previous one: a cycle would never end.
            if next <= at || self.logical.len() >= MAX_LOGICAL {
                return Err(Error::new("the chain of logical partitions is damaged"));
            }
            at = next;
        }
    }

    pub(super) fn partitions(&self) -> Vec<Partition> {
        let primary = (1..).zip(&self.entries).filter(|(_, e)| e.code != 0 && !EXTENDED.contains(&e.code));
        let primary = primary.map(|(number, e)| Partition {
            number,
            start: e.start,
            end: e.start + e.sectors,
            kind: PartitionKind::Code(e.code),
        });
        primary.chain(self.logical.iter().map(|l| l.partition)).collect()
    }

    pub(super) fn grow(&self, number: u32) -> Result<Option<Growth>> {
        let missing = || Error::new(format!("the MBR has no partition {number}"));
        if number >= 5 {
            let index = self.logical.iter().position(|l| l.partition.number == number).ok_or_else(missing)?;
            return Ok(self.grow_logical(index));
        }
        let slot = (number as usize).wrapping_sub(1);
        let entry = self.entries.get(slot).filter(|e| e.code != 0).ok_or_else(missing)?;
        let (start, old_end) = (entry.start, entry.start + entry.sectors);
        let end = self.limit(slot);
        if !self.is_worth_it(old_end, end) {
            return Ok(None);
        }
        let partition = Partition { number, start, end, kind: PartitionKind::Code(entry.code) };
        let steps = vec![vec![self.geometry.write(0, resized(&self.table, slot, start, end - start))]];
        Ok(Some(Growth { partition, steps }))
    }

    fn is_worth_it(&self, old_end: u64, end: u64) -> bool {
        end >= old_end.saturating_add(self.geometry.sectors_of(MIN_GROWTH))
    }

    /// Where the primary or extended partition of an entry has to end at the latest.
    fn limit(&self, slot: usize) -> u64 {
        let start = self.entries[slot].start;
        let next = self.entries.iter().filter(|e| e.code != 0 && e.start > start).map(|e| e.start).min();
        next.unwrap_or(u64::MAX).min(self.geometry.sectors).min(MAX_END)
    }

    fn grow_logical(&self, index: usize) -> Option<Growth> {
        let this = self.logical.get(index)?;
        let extended = self.extended()?;
        let container = self.entries[extended];
        let container_end = container.start + container.sectors;
        let next = self.logical.iter().map(|l| l.at.min(l.partition.start)).filter(|s| *s > this.partition.start).min();
        let end = next.unwrap_or_else(|| self.limit(extended).max(container_end));
        if !self.is_worth_it(this.partition.end, end) {
            return None;
        }
        let mut steps = Steps::new();
        if end > container_end {
            let sectors = end - container.start;
            steps.push(vec![self.geometry.write(0, resized(&self.table, extended, container.start, sectors))]);
        }
        if let Some((before, link)) =
            index.checked_sub(1).and_then(|i| self.logical.get(i)).and_then(|l| Some((l, l.link?)))
        {
            let table = resized(&before.table, link, this.at, end - this.at);
            steps.push(vec![self.geometry.write(before.at, table)]);
        }
        let start = this.partition.start;
        steps.push(vec![self.geometry.write(this.at, resized(&this.table, this.slot, start, end - start))]);
        Some(Growth { partition: Partition { end, ..this.partition }, steps })
    }
}

/// A copy of the table with another size in one entry; the CHS address of its end is calculated from `start`,
/// relative to the start of the disk.
fn resized(table: &[u8], slot: usize, start: u64, sectors: u64) -> Vec<u8> {
    let mut table = table.to_vec();
    let at = TABLE + slot * ENTRY;
    put(&mut table, at + 5, &chs(start + sectors - 1));
    put(&mut table, at + 12, &u32::try_from(sectors).unwrap_or(u32::MAX).to_le_bytes());
    table
}

/// Makes the table a protective one for a GPT. A hybrid table, which has other entries on purpose, stays.
pub(super) fn protect(table: &mut [u8], geometry: Geometry) {
    let entries = parse(table).unwrap_or([Entry { code: 0, start: 0, sectors: 0 }; 4]);
    let used = entries.iter().filter(|e| e.code != 0).count();
    let own = entries.iter().position(|e| e.code == PROTECTIVE && e.start == 1);
    let slot = match (used, own) {
        (0, _) => 0,
        (1, Some(slot)) => slot,
        _ => return,
    };
    let at = TABLE + slot * ENTRY;
    put(table, at, &[0, 0, 2, 0, PROTECTIVE, 0xff, 0xff, 0xff]);
    put(table, at + 8, &1u32.to_le_bytes());
    put(table, at + 12, &u32::try_from(geometry.sectors - 1).unwrap_or(u32::MAX).to_le_bytes());
    put(table, 510, &MAGIC);
}

/// The writes of a new MBR: a single sector, so that there is always the old table or the new one.
pub(super) fn create(geometry: Geometry, partitions: &[Partition]) -> Result<Steps> {
    if partitions.len() > 4 {
        return Err(Error::new("an MBR has room for 4 partitions; table_type: gpt has it for 128"));
    }
    let mut table = vec![0; usize::try_from(geometry.sector).unwrap_or(512)];
    let identifier: [u8; 16] = uuid::random()?;
    put(&mut table, 440, &identifier[..4]);
    for (slot, partition) in partitions.iter().enumerate() {
        let PartitionKind::Code(code) = partition.kind else {
            return Err(Error::new("an MBR's partition has a code as its type"));
        };
        let at = TABLE + slot * ENTRY;
        let field = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        put(&mut table, at + 1, &chs(partition.start));
        put(&mut table, at + 4, &[code]);
        put(&mut table, at + 5, &chs(partition.end - 1));
        put(&mut table, at + 8, &field(partition.start));
        put(&mut table, at + 12, &field(partition.end - partition.start));
    }
    put(&mut table, 510, &MAGIC);
    Ok(vec![vec![geometry.write(0, table)]])
}

/// The CHS address of a sector, for 255 heads and 63 sectors per track; the largest one if it does not fit.
fn chs(sector: u64) -> [u8; 3] {
    let (cylinder, head) = (sector / (255 * 63), sector / 63 % 255);
    if cylinder > 1023 {
        return [0xfe, 0xff, 0xff];
    }
    [head as u8, (sector % 63 + 1) as u8 | (cylinder >> 2 & 0xc0) as u8, cylinder as u8]
}
