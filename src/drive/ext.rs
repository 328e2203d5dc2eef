//! ext2, ext3 and ext4, read only and without replaying a journal (Linux, Documentation/filesystems/ext4).
//!
//! Nearly every kernel has ext4, so on a machine it is the kernel that reads it. This is for drives in image files,
//! which a user without privileges cannot mount.

use super::bytes::{ReadAt, array, le16, le32, u8_at};
use super::tree::{Budget, Entry, Kind, MAX_FILE, Tree};
use crate::base::error::{Context, Error, Result};

/// Where the superblock is.
pub const SUPERBLOCK: usize = 1024;
/// How deep an extent tree may be, as in Linux.
const MAX_EXTENT_DEPTH: u16 = 5;
const ROOT_INODE: u32 = 2;

/// Features that change how files are read (s_feature_incompat).
const RECOVER: u32 = 0x4;
const BITS_64: u32 = 0x80;
/// filetype, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, encrypt, casefold: read as they are.
const READABLE: u32 = 0x2 | 0x40 | BITS_64 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x1_0000 | 0x2_0000;
/// Inode flags: the contents are found by extents; they are encrypted, or in the inode itself.
const EXTENTS: u32 = 0x8_0000;
const UNREADABLE: u32 = 0x800 | 0x1000_0000;

/// The bytes of a block. None for a size that there is not.
pub(super) fn block_size(superblock: &[u8]) -> Option<u64> {
    1024u64.checked_shl(le32(superblock, 24)?).filter(|size| (1024..=65536).contains(size))
}

/// Whether the numbers of blocks have 64 bits.
pub(super) fn is_wide(superblock: &[u8]) -> Option<bool> {
    Some(le32(superblock, 96)? & BITS_64 != 0)
}

/// An ext2, ext3 or ext4 filesystem.
pub struct Ext<R> {
    device: R,
    block_size: u64,
    inodes: u32,
    inodes_per_group: u32,
    inode_size: u64,
    descriptors: u64,
    descriptor_size: u64,
}

/// A file or directory: its inode.
#[derive(Debug)]
pub struct Inode {
    mode: u16,
    size: u64,
    flags: u32,
    map: [u8; 60],
}

impl<R: ReadAt> Ext<R> {
    /// The filesystem on `device`, whose first bytes are `start`. An error if it cannot be read as it is.
    ///
    /// # Errors
    /// It is not such a file system, or uses features that are not supported.
    pub fn open(device: R, start: &[u8]) -> Result<Self> {
        let superblock = start.get(SUPERBLOCK..).unwrap_or_default();
        let incompatible = le32(superblock, 96).unwrap_or(0);
        if incompatible & RECOVER != 0 {
            return Err(Error::new("its journal must be replayed first: mount it once, or run e2fsck on it"));
        }
        if incompatible & !READABLE != 0 {
            let features = incompatible & !READABLE;
            return Err(Error::new(format!(
                "ext4 with features {features:#x} can be read by the kernel only: mount it"
            )));
        }
        Self::geometry(device, superblock).ok_or_else(|| Error::new("no ext2, ext3 or ext4 superblock"))
    }

    fn geometry(device: R, superblock: &[u8]) -> Option<Self> {
        let block_size = block_size(superblock)?;
        let first_block = u64::from(le32(superblock, 20)?);
        let wide = is_wide(superblock)?;
        let old = le32(superblock, 76)? == 0;
        let ext = Ext {
            device,
            block_size,
            inodes: le32(superblock, 0)?,
            inodes_per_group: le32(superblock, 40)?,
            inode_size: if old { 128 } else { u64::from(le16(superblock, 88)?) },
            descriptors: (first_block + 1) * block_size,
            descriptor_size: if wide { u64::from(le16(superblock, 254)?) } else { 32 },
        };
        let sane = le16(superblock, 56)? == 0xef53
            && ext.inodes_per_group > 0
            && (128..=block_size).contains(&ext.inode_size)
            && (32..=1024).contains(&ext.descriptor_size);
        sane.then_some(ext)
    }

    fn inode(&self, number: u32) -> Result<Inode> {
        let index = number.checked_sub(1).filter(|_| number <= self.inodes);
        let index = index.ok_or_else(|| Error::new(format!("there is no inode {number}")))?;
        let group = u64::from(index / self.inodes_per_group);
        let at = self.descriptors + group * self.descriptor_size;
        let descriptor = self.device.bytes(at, self.descriptor_size as usize).context(|| "failed to read a group")?;
        let high = if self.descriptor_size >= 64 { le32(&descriptor, 40) } else { None };
        let table = u64::from(high.unwrap_or(0)) << 32 | u64::from(le32(&descriptor, 8).unwrap_or(0));
        let at = self.place(table)?.saturating_add(u64::from(index % self.inodes_per_group) * self.inode_size);
        let inode = self.device.bytes(at, 128).context(|| format!("failed to read inode {number}"))?;
        let mode = le16(&inode, 0).unwrap_or(0);
        // The upper half of the size had another meaning in directories.
        let high = if mode & 0o170_000 == 0o100_000 { le32(&inode, 108).unwrap_or(0) } else { 0 };
        Ok(Inode {
            mode,
            size: u64::from(high) << 32 | u64::from(le32(&inode, 4).unwrap_or(0)),
            flags: le32(&inode, 32).unwrap_or(0),
            map: array(&inode, 40).unwrap_or([0; 60]),
        })
    }

    /// A block's offset in bytes.
    fn place(&self, block: u64) -> Result<u64> {
        block.checked_mul(self.block_size).ok_or_else(|| Error::new(format!("there is no block {block}")))
    }

    fn block(&self, block: u64) -> Result<Vec<u8>> {
        let context = || format!("failed to read block {block}");
        self.device.bytes(self.place(block)?, self.block_size as usize).context(context)
    }

    fn contents(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.flags & UNREADABLE != 0 {
            return Err(Error::new("it is encrypted or kept in its inode: only the kernel can read it"));
        }
        // A part of a file that has no block reads as zeros. The caller has checked the size.
        let size = usize::try_from(inode.size.min(MAX_FILE)).context(|| "too large")?;
        // A map's block describes 84 or more runs of blocks, so a sound file has far fewer of them than this.
        let maps = 8 + size / self.block_size as usize / 64;
        let mut reader = Contents { ext: self, bytes: vec![0; size], maps, filled: 0 };
        if inode.flags & EXTENTS != 0 {
            reader.extents(&inode.map, None)?;
        } else {
            let mut next = 0;
            reader.pointers(&inode.map[..48], 0, &mut next)?;
            for (levels, pointer) in (1..).zip(inode.map[48..].chunks_exact(4)) {
                reader.pointers(pointer, levels, &mut next)?;
            }
        }
        Ok(reader.bytes)
    }
}

/// A file's contents while they are put together.
struct Contents<'a, R> {
    ext: &'a Ext<R>,
    bytes: Vec<u8>,
    /// How many more blocks of maps may be read.
    maps: usize,
    /// How many bytes were read so far; a sound file fills no byte twice.
    filled: usize,
}

impl<R: ReadAt> Contents<'_, R> {
    fn map(&mut self, block: u64) -> Result<Vec<u8>> {
        self.maps = self.maps.checked_sub(1).ok_or_else(|| Error::new("its map of blocks is too large"))?;
        self.ext.block(block)
    }

    /// Fills in `count` blocks of the file from its block `logical` on, from the device's block `physical` on.
    fn fill(&mut self, logical: u64, count: u64, physical: u64) -> Result<()> {
        let (start, size) = (self.ext.place(logical)?, self.ext.place(count)?);
        let end = start.saturating_add(size).min(self.bytes.len() as u64) as usize;
        if self.filled > self.bytes.len() {
            return Err(Error::new("its blocks overlap"));
        }
        if let Some(part) = self.bytes.get_mut(start.min(end as u64) as usize..end).filter(|part| !part.is_empty()) {
            self.filled += part.len();
            let read = self.ext.device.read_at(self.ext.place(physical)?, part);
            if read.context(|| format!("failed to read block {physical}"))? < part.len() {
                return Err(Error::new(format!("block {physical} lies past the end")));
            }
        }
        Ok(())
    }

    /// Follows a node of an extent tree (ext4_extent_header). Each level must be one below the last.
    fn extents(&mut self, node: &[u8], depth: Option<u16>) -> Result<()> {
        let (magic, depth_here) = (le16(node, 0).unwrap_or(0), le16(node, 6).unwrap_or(u16::MAX));
        if magic != 0xf30a || depth.map_or(depth_here > MAX_EXTENT_DEPTH, |depth| depth != depth_here) {
            return Err(Error::new("its extent tree is damaged"));
        }
        let count = usize::from(le16(node, 2).unwrap_or(0));
        for entry in node.get(12..).unwrap_or_default().chunks_exact(12).take(count) {
            let logical = u64::from(le32(entry, 0).unwrap_or(0));
            if let Some(below) = depth_here.checked_sub(1) {
                let block = u64::from(le16(entry, 8).unwrap_or(0)) << 32 | u64::from(le32(entry, 4).unwrap_or(0));
                let node = self.map(block)?;
                self.extents(&node, Some(below))?;
                continue;
            }
            // Above 32768 the extent is allocated and not yet written: zeros.
            let length = u64::from(le16(entry, 4).unwrap_or(0));
            let start = u64::from(le16(entry, 6).unwrap_or(0)) << 32 | u64::from(le32(entry, 8).unwrap_or(0));
            if length <= 32768 {
                self.fill(logical, length, start)?;
            }
        }
        Ok(())
    }

    /// Follows block pointers of ext2 and ext3: to blocks of the file, or through `levels` of maps.
    fn pointers(&mut self, pointers: &[u8], levels: u32, next: &mut u64) -> Result<()> {
        let span = (self.ext.block_size / 4).pow(levels);
        for pointer in pointers.chunks_exact(4) {
            if self.ext.place(*next)? >= self.bytes.len() as u64 {
                break;
            }
            match (u64::from(le32(pointer, 0).unwrap_or(0)), levels) {
                (0, _) => *next += span,
                (block, 0) => {
                    self.fill(*next, 1, block)?;
                    *next += 1;
                }
                (block, _) => {
                    let map = self.map(block)?;
                    self.pointers(&map, levels - 1, next)?;
                }
            }
        }
        Ok(())
    }
}

impl<R: ReadAt> Tree for Ext<R> {
    type Node = Inode;

    fn root(&self) -> Result<Inode> {
        self.inode(ROOT_INODE)
    }

    fn entries(&self, directory: &Inode, budget: &mut Budget) -> Result<Vec<Entry<Inode>>> {
        budget.directory(directory.size)?;
        let contents = self.contents(directory)?;
        let mut found = Vec::new();
        // Entries never cross a block. An indexed directory's inner nodes look like unused entries.
        for block in contents.chunks(self.block_size as usize) {
            let mut rest = block;
            while let (Some(number), Some(length), Some(name)) = (le32(rest, 0), le16(rest, 4), u8_at(rest, 6)) {
                let name = rest.get(8..8 + usize::from(name)).unwrap_or_default();
                if number != 0 && !matches!(name, b"" | b"." | b"..") {
                    budget.entry()?;
                    let name = String::from_utf8_lossy(name).into_owned();
                    let kind = self.kind(number).unwrap_or_else(|e| Kind::Other(e.to_string()));
                    budget.keep(Entry { name, kind }, &mut found)?;
                }
                // Shorter than its own header would go round for ever.
                rest = rest.get(usize::from(length).max(8)..).unwrap_or_default();
            }
        }
        Ok(found)
    }

    fn read(&self, file: &Inode, _size: u64) -> Result<Vec<u8>> {
        self.contents(file)
    }
}

impl<R: ReadAt> Ext<R> {
    /// The kind of an inode.
    fn kind(&self, number: u32) -> Result<Kind<Inode>> {
        let inode = self.inode(number)?;
        Ok(match inode.mode & 0o170_000 {
            0o040_000 => Kind::Directory(inode),
            0o100_000 => Kind::File { size: inode.size, node: inode },
            0o120_000 => Kind::Link(self.target(&inode)?),
            _ => Kind::Other("a special file".into()),
        })
    }

    /// A symlink's target: in the inode if it fits.
    fn target(&self, inode: &Inode) -> Result<String> {
        let size = usize::try_from(inode.size).ok().filter(|size| *size <= 4096);
        let size = size.ok_or_else(|| Error::new("a symlink is too long"))?;
        let bytes = match inode.map.get(..size).filter(|_| size < 60 && inode.flags & EXTENTS == 0) {
            Some(target) => target.to_vec(),
            None => self.contents(inode)?,
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
#[path = "ext_tests.rs"]
mod tests;
