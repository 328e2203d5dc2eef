//! GPT.
//!
//! A change goes through these states, with a sync between each two; the kernel, sfdisk and firmware find a valid primary
//! header in all of them:
//!
//! 1. The new backup, array and header, is written to the end of the disk. The primary header is the old one, and so is the
//!    array that it names: the old table. If the disk is no larger than before, the old backup may be torn; a reader that
//!    has a valid primary does not need it.
//! 2. The primary header becomes the new one, and names the backup's array. It is one sector, which a disk writes whole or not
//!    at all: the old table or the new one.
//! 3. The primary array is written. Nothing names it meanwhile: the new table.
//! 4. The primary header names the primary array again. One sector: the new table, either way.
//! 5. The protective MBR gets the new size. One sector; readers take any size there.
//!
//! What is left of the old backup is in the space that the disk gained: nothing looks there.

use super::{Geometry, Growth, MIN_GROWTH, Partition, PartitionTable, guid, put};
use crate::base::crc32::crc32;
use crate::base::error::{Context, Error, Result};
use crate::base::uuid;
use crate::drive::bytes::{ReadAt, array, le32};
use crate::root::{Steps, Write};

const SIGNATURE: &[u8] = b"EFI PART";
/// The size of the header and of an entry, in bytes. The kernel accepts no other entry size.
const HEADER: usize = 92;
const ENTRY: usize = 128;
/// The number of entries in a new table, and the most that are read.
const ENTRIES: u32 = 128;
const MAX_ENTRIES: u32 = 4096;
/// The minimum size of an array, in bytes (UEFI 2.10, 5.3.1).
const MIN_ARRAY: u64 = 16 << 10;

/// A GPT, read or to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpt {
    geometry: Geometry,
    /// The protective MBR.
    mbr: Vec<u8>,
    /// The header's sector.
    header: Vec<u8>,
    /// The array of entries.
    entries: Vec<u8>,
    alternate: u64,
    first_usable: u64,
    last_usable: u64,
    entries_at: u64,
    /// Whether this was read from a valid primary header.
    primary: bool,
}

/// The first usable sector of a new table.
pub(super) fn first_usable(geometry: Geometry) -> u64 {
    2 + geometry.sectors_of(MIN_ARRAY)
}

/// The last usable sector of a new table.
pub(super) fn last_usable(geometry: Geometry) -> u64 {
    geometry.sectors - 2 - geometry.sectors_of(MIN_ARRAY)
}

/// Zeros over both headers, for a disk that gets an MBR instead.
pub(super) fn erase(geometry: Geometry) -> Vec<Write> {
    let zeros = |at| geometry.write(at, vec![0; usize::try_from(geometry.sector).unwrap_or(0)]);
    vec![zeros(1), zeros(geometry.sectors - 1)]
}

impl Gpt {
    /// Reads the primary table, or if it is damaged the backup in the last sector.
    pub(super) fn read(disk: &dyn ReadAt, geometry: Geometry, mbr: &[u8]) -> Result<Gpt> {
        let primary = Gpt::read_at(disk, geometry, mbr, 1);
        let damaged = match primary {
            Ok(gpt) => return Ok(gpt),
            Err(e) => e,
        };
        let backup = Gpt::read_at(disk, geometry, mbr, geometry.sectors - 1);
        backup.map_err(|_| Error::new(format!("the GPT is damaged ({damaged}), and there is no backup of it")))
    }

    fn read_at(disk: &dyn ReadAt, geometry: Geometry, mbr: &[u8], at: u64) -> Result<Gpt> {
        let header = geometry.read(disk, at, 1)?;
        let gpt =
            Gpt::parse(geometry, mbr, header, at).ok_or_else(|| Error::new(format!("no header in sector {at}")))?;
        let (count, size) = gpt.array_size();
        let sectors = geometry.sectors_of(count * size);
        let mut entries = geometry.read(disk, gpt.entries_at, sectors)?;
        entries.truncate(usize::try_from(count * size).unwrap_or(0));
        if le32(&gpt.header, 88) != Some(crc32(&entries)) {
            return Err(Error::new(format!("the entries of the header in sector {at} have another checksum")));
        }
        Ok(Gpt { entries, ..gpt })
    }

    fn parse(geometry: Geometry, mbr: &[u8], header: Vec<u8>, at: u64) -> Option<Gpt> {
        let number = |offset| array(&header, offset).map(u64::from_le_bytes);
        let size = usize::try_from(le32(&header, 12)?).ok()?;
        let mut checked = header.get(..size)?.to_vec();
        checked.get_mut(16..20)?.fill(0);
        let (first, last) = (number(40)?, number(48)?);
        let (count, entry) = (le32(&header, 80)?, le32(&header, 84)?);
        let valid = header.starts_with(SIGNATURE)
            && size >= HEADER
            && le32(&header, 16)? == crc32(&checked)
            && number(24)? == at
            && first <= last
            && last < geometry.sectors
            && entry as usize == ENTRY
            && (1..=MAX_ENTRIES).contains(&count);
        let (alternate, entries_at) = (number(32)?, number(72)?);
        valid.then(|| Gpt {
            geometry,
            mbr: mbr.to_vec(),
            header,
            entries: Vec::new(),
            alternate,
            first_usable: first,
            last_usable: last,
            entries_at,
            primary: at == 1,
        })
    }

    /// The number of entries in the array, and the size of one in bytes.
    fn array_size(&self) -> (u64, u64) {
        (u64::from(le32(&self.header, 80).unwrap_or(0)), ENTRY as u64)
    }

    fn reserved(&self) -> u64 {
        let (count, size) = self.array_size();
        self.geometry.sectors_of((count * size).max(MIN_ARRAY))
    }

    /// Whether the primary header is valid. Otherwise the kernel sees no table.
    #[cfg(test)]
    pub(super) fn is_primary(&self) -> bool {
        self.primary
    }

    pub(super) fn partitions(&self) -> Vec<Partition> {
        let entries = (1..).zip(self.entries.chunks_exact(ENTRY));
        entries.filter_map(|(number, entry)| partition(number, entry)).collect()
    }

    pub(super) fn grow(&self, number: u32) -> Result<Option<Growth>> {
        let partitions = self.partitions();
        let this = partitions.iter().find(|p| p.number == number).copied();
        let this = this.ok_or_else(|| Error::new(format!("the GPT has no partition {number}")))?;
        if !self.primary {
            return Err(Error::new(
                "the primary GPT is damaged; repair it first, for example with sgdisk --load-backup",
            ));
        }
        let end_of_disk = self.geometry.sectors - 1;
        let most = end_of_disk.saturating_sub(1 + self.reserved());
        let last = if self.alternate == end_of_disk { self.last_usable.min(most) } else { most };
        if partitions.iter().any(|p| p.end > last + 1) {
            return Err(Error::new(
                "a partition ends after the end of the disk, or where the backup of the GPT is to be",
            ));
        }
        let next = partitions.iter().map(|p| p.start).filter(|start| *start > this.start).min();
        let end = next.unwrap_or(u64::MAX).min(last + 1);
        if end < this.end.saturating_add(self.geometry.sectors_of(MIN_GROWTH)) {
            let unfinished = self.finish();
            return Ok((!unfinished.is_empty()).then_some(Growth { partition: this, steps: unfinished }));
        }
        let partition = Partition { end, ..this };
        let mut new = self.clone();
        let at = (number as usize - 1) * ENTRY;
        if let Some(field) = new.entries.get_mut(at + 40..at + 48) {
            field.copy_from_slice(&(end - 1).to_le_bytes());
        }
        new.last_usable = last;
        super::mbr::protect(&mut new.mbr, self.geometry);
        Ok(Some(Growth { partition, steps: new.steps(Some(self)) }))
    }

    /// The writes of a new table. An existing valid one stays valid until this one is.
    pub(super) fn create(old: Option<&PartitionTable>, geometry: Geometry, partitions: &[Partition]) -> Result<Steps> {
        if partitions.len() > ENTRIES as usize {
            return Err(Error::new(format!("a GPT has room for {ENTRIES} partitions")));
        }
        let sector = usize::try_from(geometry.sector).unwrap_or(512);
        let mut header = vec![0; sector];
        let mut entries = vec![0; ENTRIES as usize * ENTRY];
        put(&mut header, 0, SIGNATURE);
        put(&mut header, 8, &0x0001_0000u32.to_le_bytes());
        put(&mut header, 12, &(HEADER as u32).to_le_bytes());
        put(&mut header, 56, &random_guid()?);
        put(&mut header, 80, &ENTRIES.to_le_bytes());
        put(&mut header, 84, &(ENTRY as u32).to_le_bytes());
        for (entry, partition) in entries.chunks_exact_mut(ENTRY).zip(partitions) {
            let super::PartitionKind::Guid(kind) = partition.kind else {
                return Err(Error::new("a GPT's partition has a GUID as its type"));
            };
            put(entry, 0, &kind);
            put(entry, 16, &random_guid()?);
            put(entry, 32, &partition.start.to_le_bytes());
            put(entry, 40, &(partition.end - 1).to_le_bytes());
        }
        let mut mbr = vec![0; sector];
        super::mbr::protect(&mut mbr, geometry);
        let new = Gpt {
            geometry,
            mbr,
            header,
            entries,
            alternate: geometry.sectors - 1,
            first_usable: first_usable(geometry),
            last_usable: last_usable(geometry),
            entries_at: 2,
            primary: true,
        };
        let old = match old {
            Some(PartitionTable::Gpt(old)) if old.primary => Some(old),
            _ => None,
        };
        Ok(new.steps(old))
    }

    /// The proper sector of the primary array: its present one, unless an interruption left state 2 or 3, or it is misplaced.
    fn home(&self) -> u64 {
        let (count, size) = self.array_size();
        let end = self.entries_at.saturating_add(self.geometry.sectors_of(count * size));
        if self.entries_at >= 2 && end <= self.first_usable { self.entries_at } else { 2 }
    }

    /// The states 3 to 5, for a table that an interruption left before them. Otherwise empty.
    fn finish(&self) -> Steps {
        let home = self.home();
        if self.entries_at == home || !self.primary {
            return Steps::new();
        }
        let geometry = self.geometry;
        let mut mbr = self.mbr.clone();
        super::mbr::protect(&mut mbr, geometry);
        vec![
            vec![geometry.write(home, self.entries.clone())],
            vec![geometry.write(1, self.sealed(1, self.alternate, home))],
            vec![geometry.write(0, mbr)],
        ]
    }

    /// The states in the comment at the top of this file. If there was no valid GPT, the MBR makes the new
    /// table visible: it comes last, and the order before it does not matter.
    fn steps(&self, old: Option<&Gpt>) -> Steps {
        let geometry = self.geometry;
        let last = geometry.sectors - 1;
        let (home, backup) = (self.home(), last - self.reserved());
        let entries = |at| geometry.write(at, self.entries.clone());
        let header = |at, other, entries_at| geometry.write(at, self.sealed(at, other, entries_at));
        let backups = vec![entries(backup), header(last, 1, backup)];
        let protective = vec![geometry.write(0, self.mbr.clone())];
        let Some(old) = old else {
            return vec![backups, vec![entries(home), header(1, last, home)], protective];
        };
        let mut steps = old.finish();
        let switch = vec![header(1, last, backup)];
        steps.extend([backups, switch, vec![entries(home)], vec![header(1, last, home)], protective]);
        steps
    }

    /// The header's sector for the position `at`, with checksums.
    fn sealed(&self, at: u64, other: u64, entries_at: u64) -> Vec<u8> {
        let mut header = self.header.clone();
        let fields = [(24, at), (32, other), (40, self.first_usable), (48, self.last_usable), (72, entries_at)];
        fields.iter().for_each(|(offset, number)| put(&mut header, *offset, &number.to_le_bytes()));
        put(&mut header, 88, &crc32(&self.entries).to_le_bytes());
        put(&mut header, 16, &[0; 4]);
        let size = le32(&header, 12).unwrap_or(0) as usize;
        let sum = crc32(header.get(..size).unwrap_or_default());
        put(&mut header, 16, &sum.to_le_bytes());
        header
    }
}

fn partition(number: u32, entry: &[u8]) -> Option<Partition> {
    let kind: [u8; 16] = array(entry, 0)?;
    let (start, last) = (array(entry, 32).map(u64::from_le_bytes)?, array(entry, 40).map(u64::from_le_bytes)?);
    let used = kind != [0; 16] && start <= last;
    used.then(|| Partition { number, start, end: last.saturating_add(1), kind: guid::PartitionKind::Guid(kind) })
}

fn random_guid() -> Result<[u8; 16]> {
    let mut bytes = uuid::random().context(|| "failed to make a GUID")?;
    // On the disk its first three fields are little-endian; the version is in the third.
    bytes.swap(6, 7);
    Ok(bytes)
}
