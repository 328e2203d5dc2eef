//! The tables against util-linux's sfdisk and gptfdisk's sgdisk, which make what is changed here and read what comes out,
//! and after a cut at every sector that a change writes.

use super::*;
use crate::base::testing::{TempDir, skip};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const LINUX_GUID: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

/// A disk's image.
struct Image {
    path: PathBuf,
    geometry: Geometry,
    _dir: TempDir,
}

/// A partition as a tool prints it: number, first sector, sectors, type.
type Row = (u32, u64, u64, String);

fn run(argv: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            skip(format_args!("{}: {e}", argv[0]));
            return None;
        }
    };
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{argv:?} {input:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

/// The partitions in the output of `sfdisk --dump`.
fn rows(dump: &str) -> Vec<Row> {
    let field = |line: &str, key: &str| {
        let value = line.split_once(key).unwrap().1.trim_start_matches(['=', ' ']);
        value.split([',', ' ']).next().unwrap().to_owned()
    };
    let number = |line: &str| {
        let name = line.split(" :").next().unwrap();
        name.trim_start_matches(|c: char| !c.is_ascii_digit()).rsplit("disk").next().unwrap().parse().unwrap()
    };
    let lines = dump.lines().filter(|l| l.contains("start="));
    let row = |l: &str| {
        (
            number(l),
            field(l, "start").parse().unwrap(),
            field(l, "size").parse().unwrap(),
            field(l, "type").to_uppercase(),
        )
    };
    lines.map(row).collect()
}

impl Image {
    fn new(size: u64) -> Image {
        let dir = TempDir::new("partitions");
        let path = dir.0.join("disk");
        File::create(&path).unwrap().set_len(size).unwrap();
        Image { path, geometry: Geometry::new(size, 512).unwrap(), _dir: dir }
    }

    /// A disk of `size` bytes that sfdisk partitioned by a script. None if there is no sfdisk.
    fn with(size: u64, script: &str) -> Option<Image> {
        let image = Image::new(size);
        run(&["sfdisk", "--quiet", image.path.to_str()?], script)?;
        Some(image)
    }

    fn enlarge(&mut self, size: u64) {
        self.file().set_len(size).unwrap();
        self.geometry = Geometry::new(size, 512).unwrap();
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    fn table(&self) -> Option<PartitionTable> {
        read(&self.file(), self.geometry).unwrap()
    }

    fn write(&self, steps: &Steps) {
        steps.iter().flatten().for_each(|w| self.file().write_all_at(&w.content, w.offset).unwrap());
    }

    /// The table as sfdisk reads it. Empty if it sees none.
    fn sfdisk(&self) -> Vec<Row> {
        let out = Command::new("sfdisk").arg("--dump").arg(&self.path).output().unwrap();
        rows(&String::from_utf8(out.stdout).unwrap())
    }

    /// The table as read here, without the extended partition.
    fn ours(&self) -> Vec<Row> {
        let kind = |k: PartitionKind| match k {
            PartitionKind::Code(code) => format!("{code:X}"),
            PartitionKind::Guid(bytes) => guid::text(&bytes),
        };
        let row = |p: Partition| (p.number, p.start, p.end - p.start, kind(p.kind));
        self.table().map(|t| t.partitions().into_iter().map(row).collect()).unwrap_or_default()
    }

    /// sfdisk reads what is read here, and both tools find nothing wrong.
    fn check(&self) {
        let mut expected = self.sfdisk();
        expected.retain(|row| !["5", "F", "85"].contains(&row.3.as_str()));
        assert_eq!(self.ours(), expected);
        let path = self.path.to_str().unwrap();
        run(&["sfdisk", "--verify", path], "");
        if matches!(self.table(), Some(PartitionTable::Gpt(_)))
            && let Some(out) = run(&["sgdisk", "--verify", path], "")
        {
            assert!(out.contains("No problems found"), "{out}");
        }
    }

    /// Writes the steps, and before that looks at each state that a cut can leave: the steps before one are complete, and of
    /// this one there are some sectors, whichever.
    fn write_with_cuts(&self, steps: &Steps, look: &mut dyn FnMut(&Image, &str)) {
        let sector = usize::try_from(self.geometry.sector).unwrap();
        for (number, step) in steps.iter().enumerate() {
            let sectors: Vec<(u64, &[u8])> = step
                .iter()
                .flat_map(|w| (0..).map(move |i| w.offset + i * sector as u64).zip(w.content.chunks(sector)))
                .collect();
            let old: Vec<Vec<u8>> =
                sectors.iter().map(|(at, part)| self.file().bytes(*at, part.len()).unwrap()).collect();
            let restore = || {
                sectors.iter().zip(&old).for_each(|((at, _), part)| self.file().write_all_at(part, *at).unwrap());
            };
            let changed: Vec<usize> = (0..sectors.len()).filter(|i| sectors[*i].1 != old[*i]).collect();
            let forwards = changed.clone();
            let backwards: Vec<usize> = changed.iter().rev().copied().collect();
            for order in [forwards, backwards] {
                for (count, index) in order.iter().enumerate() {
                    let (at, part) = sectors[*index];
                    self.file().write_all_at(part, at).unwrap();
                    if count % (order.len() / 8 + 1) == 0 {
                        look(self, &format!("step {number}, {} of {} sectors", count + 1, order.len()));
                    }
                }
                restore();
            }
            for index in changed.into_iter().step_by(sectors.len() / 8 + 1) {
                let (at, part) = sectors[index];
                self.file().write_all_at(part, at).unwrap();
                look(self, &format!("step {number}, only sector {}", at / sector as u64));
                restore();
            }
            self.write(&vec![step.clone()]);
        }
    }
}

fn grow(image: &Image, number: u32) -> Growth {
    image.table().unwrap().grow(number).unwrap().unwrap()
}

const GPT: &str = "label: gpt\nfirst-lba: 34\n,8192,21686148-6449-6E6F-744E-656564454649\n,20480,U\n,40960,L\n";
const LOGICAL: &str = "label: dos\n1: size=20480,type=c,bootable\n2: size=65536,type=5\n\
    5: size=10240,type=82\n6: size=10240,type=83\n7: size=10240,type=83\n";

#[test]
fn last_gpt_partition_grows_into_enlarged_disk() {
    let Some(mut image) = Image::with(64 * MIB, GPT) else { return };
    image.check();
    image.enlarge(96 * MIB);
    let before = image.ours();
    image.write(&grow(&image, 3).steps);
    image.check();
    let after = image.ours();
    assert_eq!(after[..2], before[..2]);
    // As growpart: up to the last usable sector.
    assert_eq!(after[2].1 + after[2].2, 96 * MIB / 512 - 33);
    let table = image.table().unwrap();
    assert_eq!(table.grow(3).unwrap(), None, "there is nothing left");
    assert_eq!(table.grow(1).unwrap(), None, "there is another one behind it");
    assert!(table.grow(4).unwrap_err().to_string().contains("no partition 4"));
}

#[test]
fn identifiers_boot_code_and_attributes_stay() {
    let script = "label: gpt\nlabel-id: 11111111-2222-3333-4444-555555555555\n\
        size=40960,uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE,name=\"root fs\",attrs=\"LegacyBIOSBootable\"\n";
    let Some(mut image) = Image::with(64 * MIB, script) else { return };
    image.file().write_all_at(&[0xfa; 440], 0).unwrap();
    image.enlarge(80 * MIB);
    image.write(&grow(&image, 1).steps);
    let dump = run(&["sfdisk", "--dump", image.path.to_str().unwrap()], "").unwrap();
    for kept in ["11111111-2222-3333", "AAAAAAAA-BBBB-CCCC", "root fs", "LegacyBIOSBootable"] {
        assert!(dump.contains(kept), "{dump}");
    }
    assert_eq!(image.file().bytes(0, 440).unwrap(), [0xfa; 440]);
}

#[test]
fn cut_gpt_is_the_old_or_new_one() {
    for (enlarged, script) in [(96 * MIB, GPT), (64 * MIB, GPT), (64 * MIB + 8192, GPT)] {
        let Some(mut image) = Image::with(64 * MIB, script) else { return };
        image.enlarge(enlarged);
        let (old, growth) = (image.sfdisk(), grow(&image, 3));
        let new = {
            let mut new = old.clone();
            new[2].2 = growth.partition.end - growth.partition.start;
            new
        };
        let mut seen = (0, 0);
        image.write_with_cuts(&growth.steps, &mut |image, state| {
            let Some(PartitionTable::Gpt(gpt)) = image.table() else { panic!("{state}: no GPT") };
            assert!(gpt.is_primary(), "{state}: the kernel finds no table");
            let (ours, theirs) = (image.ours(), image.sfdisk());
            assert_eq!(ours, theirs, "{state}");
            assert!(ours == old || ours == new, "{state}: {ours:?}");
            seen = if ours == old { (seen.0 + 1, seen.1) } else { (seen.0, seen.1 + 1) };
            // The next boot reaches the same end from there.
            let next = Image::new(enlarged);
            std::fs::copy(&image.path, &next.path).unwrap();
            if let Some(growth) = next.table().unwrap().grow(3).unwrap() {
                next.write(&growth.steps);
            }
            assert_eq!(next.ours(), new, "{state}");
            assert_eq!(next.file().bytes(512, 512).unwrap()[72], 2, "{state}: the array is not where it belongs");
        });
        assert!(seen.0 > 3 && seen.1 > 3, "{seen:?}");
        image.check();
        assert_eq!(image.ours(), new);
    }
}

#[test]
fn second_cut_leaves_a_table_too() {
    let Some(mut image) = Image::with(64 * MIB, GPT) else { return };
    image.enlarge(96 * MIB);
    let steps = grow(&image, 3).steps;
    // The primary header names the backup's array, and the disk is enlarged again.
    image.write(&steps[..2].to_vec());
    let old = image.sfdisk();
    image.enlarge(128 * MIB);
    let growth = grow(&image, 3);
    image.write_with_cuts(&growth.steps, &mut |image, state| {
        let ours = image.ours();
        assert_eq!(ours, image.sfdisk(), "{state}");
        let size = growth.partition.end - growth.partition.start;
        assert!(ours == old || ours[2].2 == size, "{state}: {ours:?}");
    });
    image.check();
}

#[test]
fn what_is_damaged_is_left_alone() {
    let Some(mut image) = Image::with(64 * MIB, GPT) else { return };
    image.enlarge(96 * MIB);
    image.file().write_all_at(&[1], 512 + 60).unwrap();
    assert!(read(&image.file(), image.geometry).unwrap_err().to_string().contains("damaged"));
    image.enlarge(64 * MIB);
    assert_eq!(image.ours().len(), 3, "the backup is at the end");
    assert!(image.table().unwrap().grow(3).unwrap_err().to_string().contains("sgdisk --load-backup"));
    let Some(mut image) = Image::with(64 * MIB, GPT) else { return };
    image.enlarge(34 * MIB);
    let smaller = read(&image.file(), image.geometry);
    assert!(smaller.is_err(), "the kernel takes no GPT that goes on after the end of the disk: {smaller:?}");
}

#[test]
fn grows_primary_extended_and_logical_mbr_partitions() {
    let Some(mut image) = Image::with(64 * MIB, "label: dos\n,20480,c,*\n,40960,L\n") else { return };
    image.check();
    image.enlarge(96 * MIB);
    image.write(&grow(&image, 2).steps);
    image.check();
    assert_eq!(image.ours()[1].1 + image.ours()[1].2, 96 * MIB / 512);
    assert_eq!(image.table().unwrap().grow(1).unwrap(), None);

    let Some(mut image) = Image::with(64 * MIB, LOGICAL) else { return };
    image.check();
    image.enlarge(96 * MIB);
    assert_eq!(image.table().unwrap().grow(5).unwrap(), None, "the next one's table is behind it");
    let before = image.sfdisk();
    image.write(&grow(&image, 7).steps);
    image.check();
    let after = image.sfdisk();
    assert_eq!((&after[0], &after[2..4]), (&before[0], &before[2..4]));
    assert_eq!(after[1].1 + after[1].2, 96 * MIB / 512, "the extended partition");
    assert_eq!(after[4].1 + after[4].2, 96 * MIB / 512);

    let Some(mut image) = Image::with(64 * MIB, LOGICAL) else { return };
    image.enlarge(96 * MIB);
    image.write(&grow(&image, 2).steps);
    image.check();
    assert_eq!(image.sfdisk()[1].1 + image.sfdisk()[1].2, 96 * MIB / 512);
}

#[test]
fn cut_mbr_is_the_old_or_new_one() {
    for (script, number) in [("label: dos\n,20480,c,*\n,40960,L\n", 2), (LOGICAL, 7), (LOGICAL, 2)] {
        let Some(mut image) = Image::with(64 * MIB, script) else { return };
        image.enlarge(96 * MIB);
        let (old, growth) = (image.ours(), grow(&image, number));
        let mut new = old.clone();
        new.iter_mut().filter(|r| r.0 == number).for_each(|r| r.2 = growth.partition.end - growth.partition.start);
        image.write_with_cuts(&growth.steps, &mut |image, state| {
            let ours = image.ours();
            assert!(ours == old || ours == new, "{state}: {ours:?}");
            image.check();
        });
        assert_eq!(image.ours(), new);
    }
}

#[test]
fn what_an_mbr_cannot_say_is_not_used() {
    let Some(mut image) = Image::with(64 * MIB, "label: dos\n,40960,L\n") else { return };
    image.enlarge(3 << 40);
    image.write(&grow(&image, 1).steps);
    image.check();
    assert_eq!(image.ours()[0].1 + image.ours()[0].2, u64::from(u32::MAX));
}

/// The layouts of cloud-config, made here and by the tools that cloud-init runs.
#[test]
fn new_tables_are_those_of_sfdisk_and_sgdisk() {
    let size = 10 << 30;
    let sectors = size / 512;
    let percent = |p: u64| Some(sectors * p / 100);
    for (parts, types) in [
        (vec![None], vec!["83"]),
        (vec![percent(33), None], vec!["83", "82"]),
        (vec![percent(33), percent(33), None], vec!["ef", "8e", "fd"]),
        (vec![Some(1), Some(2048), Some(2049), None], vec!["83", "83", "83", "83"]),
    ] {
        for format in [TableFormat::Mbr, TableFormat::Gpt] {
            let kind = |name: &&str| match format {
                TableFormat::Gpt => PartitionKind::Guid(guid::guid(name).unwrap()),
                TableFormat::Mbr => PartitionKind::Code(guid::mbr(name).unwrap()),
            };
            let wanted: Vec<Wanted> = parts
                .iter()
                .zip(&types)
                .map(|(sectors, name)| Wanted { sectors: *sectors, kind: kind(name) })
                .collect();
            let (ours, theirs) = (Image::new(size), Image::new(size));
            let (partitions, steps) = create(None, ours.geometry, format, &wanted, false).unwrap();
            ours.write(&steps);
            let path = theirs.path.to_str().unwrap();
            if format == TableFormat::Mbr {
                let text = |s: &Option<u64>| s.map_or(String::new(), |s| s.to_string());
                let script: Vec<String> =
                    parts.iter().zip(&types).map(|(s, t)| format!(",{},{t}\n", text(s))).collect();
                if run(&["sfdisk", "--force", path], &script.concat()).is_none() {
                    return;
                }
            } else {
                for ((number, sectors), name) in (1..).zip(&parts).zip(&types) {
                    let size = sectors.map_or("0".to_owned(), |s| format!("+{s}"));
                    let new = format!("--new={number}:0:{size}");
                    let kind = format!("--typecode={number}:{name:0<4}");
                    if run(&["sgdisk", &new, &kind, path], "").is_none() {
                        return;
                    }
                }
            }
            assert_eq!(ours.sfdisk(), theirs.sfdisk(), "{format:?} {parts:?}");
            assert_eq!(partitions.len(), parts.len());
            ours.check();
        }
    }
}

#[test]
fn new_table_replaces_old_at_one_sector() {
    let wanted = |format| {
        let kind = match format {
            TableFormat::Gpt => PartitionKind::Guid(guid::parse(LINUX_GUID).unwrap()),
            TableFormat::Mbr => PartitionKind::Code(0x83),
        };
        [Wanted { sectors: Some(32768), kind }, Wanted { sectors: None, kind }]
    };
    for script in [GPT, LOGICAL] {
        for format in [TableFormat::Gpt, TableFormat::Mbr] {
            let Some(image) = Image::with(64 * MIB, script) else { return };
            let old = image.sfdisk();
            let (partitions, steps) =
                create(image.table().as_ref(), image.geometry, format, &wanted(format), true).unwrap();
            let new: Vec<_> = partitions.iter().map(|p| (p.number, p.start, p.end - p.start)).collect();
            image.write_with_cuts(&steps[..steps.len() - 1].to_vec(), &mut |image, state| {
                let theirs = image.sfdisk();
                let is_new = theirs.iter().map(|r| (r.0, r.1, r.2)).collect::<Vec<_>>() == new;
                assert!(theirs == old || is_new, "{format:?} {state}: {theirs:?}");
            });
            image.write(&steps);
            image.check();
        }
    }
}

#[test]
fn cleans_old_data_only_if_asked() {
    for clean in [false, true] {
        let image = Image::new(64 * MIB);
        let file = image.file();
        [1080, MIB, 40 * MIB].iter().for_each(|at| file.write_all_at(b"old", *at).unwrap());
        let wanted = Wanted { sectors: None, kind: PartitionKind::Code(0x83) };
        let (_, steps) = create(None, image.geometry, TableFormat::Mbr, &[wanted], clean).unwrap();
        image.write(&steps);
        let there = |at| file.bytes(at, 3).unwrap() == b"old";
        assert_eq!((there(1080), there(MIB), there(40 * MIB)), (!clean, !clean, true));
    }
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let geometry = Geometry::new(64 * MIB, 512).unwrap();
    let one = |sectors| Wanted { sectors, kind: PartitionKind::Code(0x83) };
    let make = |wanted: &[Wanted], format| create(None, geometry, format, wanted, false);
    for wanted in [vec![one(Some(1 << 40))], vec![one(None), one(None)], vec![one(Some(131_000)), one(Some(100))]] {
        assert!(make(&wanted, TableFormat::Mbr).unwrap_err().to_string().contains("no room"));
    }
    assert!(make(&vec![one(Some(10)); 5], TableFormat::Mbr).unwrap_err().to_string().contains("room for 4"));
    assert!(make(&vec![one(Some(10)); 200], TableFormat::Gpt).is_err());
    assert!(Geometry::new(MIB, 512).is_err() && Geometry::new(64 * MIB, 500).is_err());
}

#[test]
fn file_systems_and_rubbish_are_no_tables() {
    let dir = TempDir::new("partitions-mkfs");
    for (program, arguments) in [("mkfs.vfat", vec![]), ("mkfs.vfat", vec!["-F", "32"]), ("mkfs.ext4", vec!["-q"])] {
        let path = dir.0.join("disk");
        File::create(&path).unwrap().set_len(64 * MIB).unwrap();
        if Command::new(program).args(&arguments).arg(&path).output().is_err() {
            skip(format_args!("no {program}"));
            continue;
        }
        let file = File::open(&path).unwrap();
        assert_eq!(read(&file, Geometry::new(64 * MIB, 512).unwrap()).unwrap(), None, "{program} {arguments:?}");
    }
    // Whatever a disk holds, it is read in bounded time, and nothing is read outside of it.
    let geometry = Geometry::new(2 * MIB, 512).unwrap();
    let mut random = 1u64;
    for seed in 0..2000u64 {
        let mut disk = vec![0u8; 2 * MIB as usize];
        for at in (0..64 * 512).chain(disk.len() - 512..disk.len()) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            disk[at] = if seed % 2 == 0 {
                (random >> 56) as u8
            } else {
                [0, 0, 0x80, 5, 0x0f, 1][(random >> 60) as usize % 6]
            };
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        for slot in 0..4 {
            disk[446 + slot * 16] = 0;
        }
        if let Ok(Some(table)) = read(&disk.as_slice(), geometry) {
            for partition in table.partitions() {
                let _ = table.grow(partition.number);
            }
        }
    }
}

#[test]
fn sectors_of_4096_bytes() {
    let size = 64 * MIB;
    let geometry = Geometry::new(size, 4096).unwrap();
    let wanted = Wanted { sectors: Some(4096), kind: PartitionKind::Guid(guid::parse(LINUX_GUID).unwrap()) };
    let (partitions, steps) = create(None, geometry, TableFormat::Gpt, &[wanted], false).unwrap();
    assert_eq!((partitions[0].start, partitions[0].end), (256, 4352));
    let image = Image::new(size);
    image.write(&steps);
    let larger = Geometry::new(2 * size, 4096).unwrap();
    image.file().set_len(2 * size).unwrap();
    let growth = read(&image.file(), larger).unwrap().unwrap().grow(1).unwrap().unwrap();
    assert!(growth.steps.iter().flatten().all(|w| w.offset % 4096 == 0 && w.content.len() % 4096 == 0));
    image.write(&growth.steps);
    assert_eq!(read(&image.file(), larger).unwrap().unwrap().partitions(), [growth.partition]);
    assert_eq!(growth.partition.end, 2 * size / 4096 - 5);
}
