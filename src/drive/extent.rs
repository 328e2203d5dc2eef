//! How large the filesystem on a device is, by its superblock.

use super::bytes::{ReadAt, array, le16, le32};
use super::ext;

/// The blocks of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub blocks: u64,
    /// In bytes.
    pub block_size: u64,
}

impl Extent {
    /// Whether a device of `size` bytes has no room for another block.
    pub fn fills(self, size: u64) -> bool {
        self.blocks.checked_add(1).and_then(|more| more.checked_mul(self.block_size)).is_none_or(|more| more > size)
    }
}

/// The extent of the filesystem of the type `kind` on `device`: ext2, ext3, ext4 (Linux, Documentation/filesystems/ext4, "Super
/// Block") and XFS (XFS Algorithms & Data Structures, "Superblocks"). None for other types, and if the device does not have that
/// type.
pub fn read(kind: &str, device: &impl ReadAt) -> Option<Extent> {
    match kind {
        "ext2" | "ext3" | "ext4" => {
            let superblock = device.bytes(ext::SUPERBLOCK as u64, 1024).ok()?;
            let high = if ext::is_wide(&superblock)? { le32(&superblock, 336)? } else { 0 };
            let block_size = ext::block_size(&superblock)?;
            let blocks = u64::from(high) << 32 | u64::from(le32(&superblock, 4)?);
            (le16(&superblock, 56)? == 0xef53).then_some(Extent { blocks, block_size })
        }
        "xfs" => {
            let superblock = device.bytes(0, 512).ok()?;
            let (block_size, blocks) = (u32::from_be_bytes(array(&superblock, 4)?), array(&superblock, 8)?);
            let extent = Extent { blocks: u64::from_be_bytes(blocks), block_size: u64::from(block_size) };
            (superblock.starts_with(b"XFSB") && block_size >= 512).then_some(extent)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::drive::images::tool;
    use std::fs::File;

    #[test]
    fn filesystem_fills_its_own_device_but_no_larger() {
        let size = 320 << 20;
        let dir = TempDir::new("extent");
        let image = dir.0.join("image").display().to_string();
        let many: &[&[&str]] = &[
            &["mkfs.ext4", "-q", "-F", &image],
            &["mkfs.ext4", "-q", "-F", "-O", "^64bit", "-b", "1024", &image],
            &["mkfs.ext3", "-q", "-F", &image],
            &["mkfs.ext2", "-q", "-F", "-b", "2048", &image],
            &["mkfs.xfs", "-q", "-f", &image],
        ];
        for argv in many {
            File::create(&image).unwrap().set_len(size).unwrap();
            let Some((program, arguments)) = argv.split_first() else { continue };
            // Reports itself as skipped if the tool is missing.
            if tool(program, arguments).is_none() {
                continue;
            }
            let device = File::open(&image).unwrap();
            let kind = program.strip_prefix("mkfs.").unwrap();
            let extent = read(kind, &device).unwrap();
            assert!(extent.fills(size) && extent.fills(size + 100), "{argv:?}: {extent:?}");
            assert!(!extent.fills(size + extent.block_size), "{argv:?}: {extent:?}");
            assert_eq!(read("btrfs", &device), None);
        }
    }

    #[test]
    fn what_is_no_superblock_has_no_extent() {
        let mut bytes = vec![0; 4096];
        assert_eq!((read("ext4", &bytes.as_slice()), read("xfs", &bytes.as_slice())), (None, None));
        assert_eq!(read("ext4", &bytes[..1500].as_ref()), None);
        bytes[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 24] = 60;
        assert_eq!(read("ext4", &bytes.as_slice()), None, "a block of more bytes than there are");
        assert!(Extent { blocks: u64::MAX, block_size: 4096 }.fills(u64::MAX));
    }
}
