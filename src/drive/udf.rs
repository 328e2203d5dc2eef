//! UDF on media with 2048-byte sectors (ECMA-167, OSTA UDF 1.02 to 2.01), read-only: plain partitions, and
//! files in one or several extents or inside their entry. Rewritable and write-once discs, which have block
//! tables, are left to the kernel.

use super::bytes::{ReadAt, array, le16, le32, u8_at, utf16_be};
use super::tree::{Budget, Entry, Kind, Tree};
use crate::base::error::{Context, Error, Result};

const SECTOR: u64 = 2048;
/// The sector of the anchor (ECMA-167, 3/8.4.2.1; UDF 2.2.3).
const ANCHOR: u64 = 256;
/// The most descriptors of a volume, the most extents of a file, and the most further blocks that list them: full ones list 126
/// or more.
const MAX_DESCRIPTORS: u64 = 64;
const MAX_EXTENTS: usize = 1024;
const MAX_BLOCKS: usize = 32;
/// The longest symbolic link, in bytes.
const MAX_LINK: u64 = 4096;

/// Identifiers of descriptors (ECMA-167, 3/7.2.1 and 4/7.2.1).
mod tag {
    pub const ANCHOR: u16 = 2;
    pub const PARTITION: u16 = 5;
    pub const LOGICAL_VOLUME: u16 = 6;
    pub const TERMINATING: u16 = 8;
    pub const FILE_SET: u16 = 256;
    pub const FILE_IDENTIFIER: u16 = 257;
    pub const FILE_ENTRY: u16 = 261;
    pub const EXTENDED_FILE_ENTRY: u16 = 266;
}

/// Types of files (ECMA-167, 4/14.6.6).
const DIRECTORY: u8 = 4;
const FILE: u8 = 5;
const SYMLINK: u8 = 12;

/// Flags of a name in a directory (ECMA-167, 4/14.4.3): deleted, and the directory above.
const DELETED: u8 = 0x04;
const PARENT: u8 = 0x08;

/// A file's or directory's entry: its block in the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(u32);

/// A run of blocks in the partition, with its length in bytes. None: zeros.
#[derive(Debug, Clone, Copy)]
struct Extent {
    block: Option<u32>,
    length: u32,
}

/// A file's properties in its entry.
struct File {
    kind: u8,
    size: u64,
    contents: Contents,
}

enum Contents {
    Inside(Vec<u8>),
    Extents(Vec<Extent>),
}

/// A UDF volume.
pub struct Udf<R> {
    device: R,
    /// The partition's first sector and its length in sectors.
    start: u64,
    sectors: u64,
    root: Node,
}

impl<R: ReadAt> Udf<R> {
    /// The volume on `device`.
    ///
    /// # Errors
    /// It is not a UDF volume, or of a kind that only the kernel can read.
    pub fn open(device: R) -> Result<Self> {
        let mut udf = Udf { device, start: 0, sectors: u64::from(u32::MAX), root: Node(0) };
        let anchor = udf.descriptor(ANCHOR, &[tag::ANCHOR]).context(|| "no UDF volume")?;
        let (length, first) = (le32(&anchor, 16).unwrap_or(0), le32(&anchor, 20).unwrap_or(0));
        let count = (u64::from(length) / SECTOR).min(MAX_DESCRIPTORS);
        let (mut partition, mut volume) = (None, None);
        for sector in (0..count).map(|i| u64::from(first) + i) {
            let descriptor = udf.sector(sector)?;
            match le16(&descriptor, 0) {
                Some(tag::PARTITION) => partition = partition.or(Some(descriptor)),
                Some(tag::LOGICAL_VOLUME) => volume = volume.or(Some(descriptor)),
                Some(tag::TERMINATING) => break,
                _ => {}
            }
        }
        let (Some(partition), Some(volume)) = (partition, volume) else {
            return Err(Error::new("the UDF volume has no partition"));
        };
        let maps = (le32(&volume, 268), u8_at(&volume, 440));
        if le32(&volume, 212) != Some(SECTOR as u32) || maps != (Some(1), Some(1)) {
            return Err(Error::new("only the kernel can read UDF of this kind: mount it, and give the folder"));
        }
        udf.start = u64::from(le32(&partition, 188).unwrap_or(0));
        udf.sectors = u64::from(le32(&partition, 192).unwrap_or(0));
        let file_set = udf.block(le32(&volume, 252).unwrap_or(0))?;
        let file_set = expect(udf.descriptor(file_set, &[tag::FILE_SET])?.get(404..408))?;
        udf.root = Node(le32(&file_set, 0).unwrap_or(0));
        Ok(udf)
    }

    /// The sector of a block in the partition.
    fn block(&self, block: u32) -> Result<u64> {
        let inside = Some(u64::from(block)).filter(|b| *b < self.sectors);
        inside.map(|b| self.start + b).ok_or_else(|| Error::new("a block lies outside of the partition"))
    }

    fn sector(&self, sector: u64) -> Result<Vec<u8>> {
        self.device.bytes(sector.saturating_mul(SECTOR), SECTOR as usize).context(|| "failed to read a sector")
    }

    /// The descriptor at a sector, which must have one of these identifiers and a valid checksum.
    fn descriptor(&self, sector: u64, tags: &[u16]) -> Result<Vec<u8>> {
        let bytes = self.sector(sector)?;
        let (identifier, head) = (le16(&bytes, 0).unwrap_or(0), bytes.get(..16).unwrap_or_default());
        let sum = head.iter().enumerate().filter(|(i, _)| *i != 4).fold(0u8, |sum, (_, b)| sum.wrapping_add(*b));
        if !tags.contains(&identifier) || u8_at(&bytes, 4) != Some(sum) {
            let tags: Vec<String> = tags.iter().map(u16::to_string).collect();
            return Err(Error::new(format!("expected descriptor {} of UDF in sector {sector}", tags.join(" or "))));
        }
        Ok(bytes)
    }

    /// A file's entry (ECMA-167, 4/14.9 and 4/14.17).
    fn file(&self, node: Node) -> Result<File> {
        let bytes = self.descriptor(self.block(node.0)?, &[tag::FILE_ENTRY, tag::EXTENDED_FILE_ENTRY])?;
        let extended = le16(&bytes, 0) == Some(tag::EXTENDED_FILE_ENTRY);
        let (lengths, attributes) = if extended { (208, 216) } else { (168, 176) };
        let kind = expect(bytes.get(27..28))?.first().copied().unwrap_or(0);
        let size = u64::from_le_bytes(array(&bytes, 56).unwrap_or_default());
        let skip = le32(&bytes, lengths).unwrap_or(0) as usize;
        let length = le32(&bytes, lengths + 4).unwrap_or(0) as usize;
        let from = attributes + skip;
        let area = expect(bytes.get(from..from.saturating_add(length)))?;
        let contents = match le16(&bytes, 34).unwrap_or(0) & 7 {
            0 => Contents::Extents(self.extents(area, 8)?),
            1 => Contents::Extents(self.extents(area, 16)?),
            3 => Contents::Inside(area.into_iter().take(usize::try_from(size).unwrap_or(usize::MAX)).collect()),
            _ => return Err(Error::new("its extents are of a kind that only the kernel can read")),
        };
        Ok(File { kind, size, contents })
    }

    /// Allocation descriptors of `width` bytes (ECMA-167, 4/14.14), including those in further blocks.
    fn extents(&self, area: Vec<u8>, width: usize) -> Result<Vec<Extent>> {
        let (mut extents, mut area, mut blocks) = (Vec::new(), area, 0);
        'areas: loop {
            for descriptor in area.chunks_exact(width) {
                let (length, block) = (le32(descriptor, 0).unwrap_or(0), le32(descriptor, 4).unwrap_or(0));
                let (kind, length) = (length >> 30, length & 0x3fff_ffff);
                if length == 0 {
                    return Ok(extents);
                }
                if kind == 3 {
                    // The next block of descriptors, after its own tag and header (4/14.5).
                    blocks += 1;
                    let next = self.sector(self.block(block)?)?;
                    let length = le32(&next, 20).unwrap_or(0) as usize;
                    area = expect(next.get(24..24usize.saturating_add(length)))?;
                    if blocks > MAX_BLOCKS {
                        return Err(Error::new("it has too many extents"));
                    }
                    continue 'areas;
                }
                extents.push(Extent { block: (kind == 0).then_some(block), length });
                if extents.len() > MAX_EXTENTS {
                    return Err(Error::new("it has too many extents"));
                }
            }
            return Ok(extents);
        }
    }

    /// The contents of a file, up to `limit` bytes.
    fn contents(&self, file: &File, limit: u64) -> Result<Vec<u8>> {
        let mut left = file.size.min(limit);
        let extents = match &file.contents {
            Contents::Inside(bytes) => return Ok(bytes.clone()),
            Contents::Extents(extents) => extents,
        };
        let mut contents = Vec::new();
        for extent in extents {
            let length = u64::from(extent.length).min(left);
            left -= length;
            let size = usize::try_from(length).context(|| "an extent is too large")?;
            match extent.block {
                Some(block) => {
                    let last = u64::from(block) + length.div_ceil(SECTOR);
                    if last > self.sectors {
                        return Err(Error::new("an extent lies outside of the partition"));
                    }
                    let at = self.block(block)?.saturating_mul(SECTOR);
                    contents.extend(self.device.bytes(at, size).context(|| "failed to read an extent")?);
                }
                None => contents.resize(contents.len() + size, 0),
            }
        }
        Ok(contents)
    }

    fn entry(&self, name: String, node: Node) -> Result<Entry<Node>> {
        let file = self.file(node)?;
        let kind = match file.kind {
            DIRECTORY => Kind::Directory(node),
            FILE => Kind::File { node, size: file.size },
            SYMLINK => Kind::Link(target(&self.contents(&file, MAX_LINK)?)),
            _ => Kind::Other("a special file".into()),
        };
        Ok(Entry { name, kind })
    }
}

impl<R: ReadAt> Tree for Udf<R> {
    type Node = Node;

    fn root(&self) -> Result<Node> {
        Ok(self.root)
    }

    fn entries(&self, directory: &Node, budget: &mut Budget) -> Result<Vec<Entry<Node>>> {
        let file = self.file(*directory)?;
        budget.directory(file.size)?;
        let contents = self.contents(&file, u64::MAX)?;
        let (mut entries, mut rest) = (Vec::new(), contents.as_slice());
        // A name (ECMA-167, 4/14.4): 38 bytes, the implementation's own field, the name, up to a multiple of four.
        while rest.len() >= 38 && le16(rest, 0) == Some(tag::FILE_IDENTIFIER) {
            budget.entry()?;
            let flags = u8_at(rest, 18).unwrap_or(0);
            let (own, length) = (usize::from(le16(rest, 36).unwrap_or(0)), usize::from(u8_at(rest, 19).unwrap_or(0)));
            let node = Node(le32(rest, 24).unwrap_or(0));
            if flags & (DELETED | PARENT) == 0 {
                let name = text(rest.get(38 + own..38 + own + length).unwrap_or_default());
                let entry = self.entry(name.clone(), node);
                let entry = entry.unwrap_or_else(|e| Entry { name, kind: Kind::Other(e.to_string()) });
                budget.keep(entry, &mut entries)?;
            }
            rest = rest.get((38 + own + length).next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(entries)
    }

    fn read(&self, file: &Node, size: u64) -> Result<Vec<u8>> {
        self.contents(&self.file(*file)?, size)
    }
}

fn expect(bytes: Option<&[u8]>) -> Result<Vec<u8>> {
    bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::new("a descriptor of UDF is too short"))
}

/// OSTA compressed Unicode (UDF 2.1.1): one byte or two for each character.
fn text(bytes: &[u8]) -> String {
    match bytes.split_first() {
        Some((8, rest)) => rest.iter().map(|b| char::from(*b)).collect(),
        Some((16, rest)) => utf16_be(rest),
        _ => String::new(),
    }
}

/// The target of a symbolic link: path components (ECMA-167, 4/14.16).
fn target(bytes: &[u8]) -> String {
    let (mut parts, mut rest): (Vec<String>, _) = (Vec::new(), bytes);
    while let (Some(kind), Some(length)) = (u8_at(rest, 0), u8_at(rest, 1)) {
        let end = 4 + usize::from(length);
        parts.push(match kind {
            1 | 2 => String::new(),
            3 => "..".into(),
            4 => ".".into(),
            _ => text(rest.get(4..end).unwrap_or_default()),
        });
        rest = rest.get(end..).unwrap_or_default();
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Files;
    use crate::drive::images::{self, Input, config_drive, hard_drive, same, soon};
    use crate::drive::tree;

    fn read(image: &[u8]) -> Result<Files> {
        tree::copy(&Udf::open(image)?, soon())
    }

    #[test]
    fn files_come_out_as_they_were_put_in() {
        for input in [config_drive(), hard_drive()] {
            let Some((_dir, image)) = images::iso(&input, &["-udf", "-r"]) else { return };
            // The tool uses one name in both filesystems, and Joliet's names have no semicolons.
            let input = input.into_iter().map(|(path, contents)| (path.replace(';', "_"), contents)).collect();
            same(&read(&std::fs::read(image).unwrap()).unwrap(), &input);
        }
    }

    #[test]
    fn reads_a_volume_without_iso_9660() {
        let input = Input::from([("ovf-env.xml".to_owned(), b"<Environment/>".to_vec())]);
        let Some((dir, image)) = images::iso(&input, &["-udf", "-r"]) else { return };
        let mut bytes = std::fs::read(image).unwrap();
        // The tool makes both; UDF's own recognition sequence then comes after ISO 9660's descriptors.
        for (sector, name) in [(16, b"BEA01"), (17, b"NSR02"), (18, b"TEA01"), (19, b"\0\0\0\0\0")] {
            bytes[sector * 2048 + 1..sector * 2048 + 6].copy_from_slice(name);
        }
        let path = dir.0.join("udf");
        std::fs::write(&path, &bytes).unwrap();
        let files = crate::drive::open(&path, soon()).unwrap();
        assert_eq!(files.get("ovf-env.xml"), Some(&b"<Environment/>"[..]));
    }

    #[test]
    fn damaged_volumes_end() {
        let input = Input::from([("d/a".to_owned(), vec![7; 5000]), ("b".to_owned(), Vec::new())]);
        let Some((_dir, image)) = images::iso(&input, &["-udf", "-r"]) else { return };
        let bytes = std::fs::read(image).unwrap();
        assert!(read(&bytes[..256 * 2048]).is_err());
        let mut good = 0;
        crate::base::testing::mutations(&bytes, 300, |bytes| {
            good += usize::from(images::is_read_or_refused(read(bytes)))
        });
        assert!(good > 0, "nothing was read");
        // Where the structures are, every byte.
        let start = 257 * 2048;
        for at in (start..bytes.len().min(start + 20 * 2048)).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            images::is_read_or_refused(read(&damaged));
        }
        assert!(Udf::open(&b"nothing"[..]).is_err());
    }

    /// Counts what is read.
    struct Counting<'a>(&'a [u8], std::cell::Cell<usize>);

    impl ReadAt for Counting<'_> {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read_at(offset, buf)
        }
    }

    #[test]
    fn bounds_reads_of_a_cyclic_block_chain() {
        const NAMES: u8 = 40;
        let mut image = vec![0; 310 * SECTOR as usize];
        let mut put = |sector: u64, fields: &[(usize, &[u8])]| {
            let sector = &mut image[(sector * SECTOR) as usize..][..SECTOR as usize];
            fields.iter().for_each(|(at, bytes)| sector[*at..at + bytes.len()].copy_from_slice(bytes));
            sector[4] = sector[..16].iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
        };
        let number = |n: u32| n.to_le_bytes();
        let further = [number(3 << 30 | SECTOR as u32), number(3)].concat();
        let name = |i: u8| [&[1u8, 1][..], &[0; 17], &[2], &[0; 4], &number(2), &[0; 10], &[8, b'A' + i]].concat();
        let names: Vec<u8> = (0..NAMES).flat_map(name).collect();
        put(256, &[(0, &number(2)), (16, &number(3 * SECTOR as u32)), (20, &number(257))]);
        put(257, &[(0, &number(5)), (188, &number(300)), (192, &number(10))]);
        put(258, &[(0, &number(6)), (212, &number(SECTOR as u32)), (268, &number(1)), (440, &[1])]);
        put(259, &[(0, &number(8))]);
        put(300, &[(0, &number(256)), (404, &number(1))]);
        let length = number(names.len() as u32);
        put(301, &[(0, &number(261)), (27, &[DIRECTORY]), (34, &[3]), (56, &length), (172, &length), (176, &names)]);
        put(302, &[(0, &number(261)), (27, &[FILE]), (56, &number(9)), (172, &number(8)), (176, &further)]);
        put(303, &[(20, &number(8)), (24, &further)]);
        let image = Counting(&image, std::cell::Cell::new(0));
        let files = tree::copy(&Udf::open(&image).unwrap(), soon()).unwrap();
        assert_eq!(files.notes().len(), usize::from(NAMES), "{:?}", files.notes());
        assert!(files.notes()[0].contains("too many extents"), "{}", files.notes()[0]);
        assert!(image.1.get() < usize::from(NAMES) * (MAX_BLOCKS + 4), "{} reads", image.1.get());
    }

    #[test]
    fn links() {
        let component = |kind: u8, name: &[u8]| [&[kind, name.len() as u8, 0, 0], name].concat();
        let parts = [component(3, b""), component(5, b"\x08a"), component(5, &[16, 0, 0xe9])].concat();
        assert_eq!(target(&parts), "../a/é");
        assert_eq!(target(&[component(2, b""), component(5, b"\x08etc")].concat()), "/etc");
    }
}
