//! PARTUUIDs, read from a disk's partition table: kernels before 6.7 do not report them.

use super::bytes::{ReadAt, array, le32, u8_at};
use super::label;
use crate::base::uuid::swap;

const MBR: usize = 512;
/// Where the MBR's entries have their types.
const TYPES: [usize; 4] = [450, 466, 482, 498];
/// The type of GPT's protective entry.
const PROTECTIVE: u8 = 0xee;
/// The sizes of sectors, in bytes. GPT's header is in the second sector, and of a disk that was copied to one with other sectors
/// there may be two.
const SECTORS: [u64; 2] = [512, 4096];
const HEADER: usize = 92;

/// Whether partition `number` of the disk has the PARTUUID `wanted`, by the kernel's rules (block/partitions/efi.c, msdos.c).
pub fn has_uuid<R: ReadAt>(disk: &R, number: u32, wanted: &str) -> bool {
    let Ok(mbr) = disk.bytes(0, MBR) else { return false };
    let is = |uuid: Option<String>| uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
    if !mbr.ends_with(&[0x55, 0xaa]) {
        return false;
    }
    if TYPES.iter().any(|at| u8_at(&mbr, *at) == Some(PROTECTIVE)) {
        return SECTORS.iter().any(|sector| is(of_gpt(disk, *sector, number)));
    }
    is(le32(&mbr, 440).map(|signature| format!("{signature:08x}-{number:02x}")))
}

/// The unique GUID of a partition in the primary table of a disk with sectors of this size.
fn of_gpt<R: ReadAt>(disk: &R, sector: u64, number: u32) -> Option<String> {
    let header = disk.bytes(sector, HEADER).ok().filter(|header| header.starts_with(b"EFI PART"))?;
    let slot = number.checked_sub(1).filter(|slot| Some(*slot) < le32(&header, 80))?;
    let array_at = u64::from_le_bytes(array(&header, 72)?).checked_mul(sector)?;
    let at = array_at.checked_add(u64::from(slot) * u64::from(le32(&header, 84)?))?;
    let mut guid = array(&disk.bytes(at.checked_add(16)?, 16).ok()?, 0)?;
    swap(&mut guid);
    label::uuid(&guid, 0)
}
