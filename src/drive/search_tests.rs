//! Searches in a fake sysfs, and the kernel's own loop devices if there are any.

use super::*;
use crate::drive::devices::tests::Fake;
use crate::drive::images::{self, soon};
use crate::drive::label::START;
use std::fs;
use std::time::Instant;

/// The start of an ISO 9660 volume with this label.
fn iso(label: &str) -> Vec<u8> {
    let mut start = vec![0; START];
    let sector = &mut start[32768..];
    sector[..6].copy_from_slice(b"\x01CD001");
    sector[40..72].fill(b' ');
    sector[40..40 + label.len()].copy_from_slice(label.as_bytes());
    sector[128..130].copy_from_slice(&2048u16.to_le_bytes());
    sector[156..158].copy_from_slice(&[34, 0]);
    sector[156 + 32] = 1;
    start
}

const MIB: u64 = 1 << 20;
const LARGE: u64 = 100 << 30;
const PARTITION: &str = "DEVTYPE=partition\nPARTN=1\n";

fn names(devices: &[BlockDevice]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn search(fake: &Fake) -> DriveSearch {
    DriveSearch::new(&["config-2", "cidata"], fake.places.clone())
}

#[test]
fn likely_devices_first_then_the_others_then_none() {
    let fake = Fake::new("tiers");
    fake.add("vda", LARGE, "", &iso("CIDATA"));
    fake.add("sr0", LARGE, "", &iso("Config-2"));
    fake.add("vdb", MIB, "", &[]);
    let mut search = search(&fake);
    assert_eq!(names(&search.scan(soon()).unwrap()), ["sr0"]);
    assert_eq!(names(&search.seen().iter().map(|p| p.device.clone()).collect::<Vec<_>>()), ["sr0", "vdb"]);
    assert_eq!(names(&search.scan(soon()).unwrap()), ["vda"]);
    assert_eq!(search.scan(soon()).unwrap(), []);
    assert_eq!(search.notes(), [] as [String; 0]);
    let told: Vec<String> = search.seen().iter().map(|seen| seen.to_string()).collect();
    let dev = fake.places.dev.display();
    assert_eq!(told[0], format!("{dev}/sr0 (iso9660, label Config-2)"));
    assert_eq!(told[2], format!("{dev}/vdb (no filesystem)"));
}

#[test]
fn identifies_a_drive_by_its_filesystem_alone() {
    let fake = Fake::new("kinds");
    fake.add("sr0", MIB, "", &iso("rd_rdfe_stable"));
    assert_eq!(search(&fake).scan(soon()).unwrap(), []);
    let mut search = search(&fake);
    search.also(["iso9660", "udf"]);
    assert_eq!(names(&search.scan(soon()).unwrap()), ["sr0"]);
}

#[test]
fn a_swap_space_is_known_by_its_type() {
    let fake = Fake::new("types");
    let mut swap = vec![0; 4096];
    swap[4086..].copy_from_slice(b"SWAPSPACE2");
    fake.add("vda", LARGE, "", &iso("ephemeral0"));
    fake.add("vdb", LARGE, "", &swap);
    let mut search = search(&fake);
    search.scan(soon()).unwrap();
    search.scan(soon()).unwrap();
    for (name, expected) in [("TYPE=swap", "vdb"), ("TYPE=iso9660", "vda"), ("LABEL=ephemeral0", "vda"), ("TYPE=", "")]
    {
        let named = search.seen().iter().filter(|probed| probed.is_named(name));
        assert_eq!(named.map(|probed| probed.device.name.as_str()).collect::<String>(), expected, "{name}");
    }
}

#[test]
fn two_drives_are_taken_last_first_and_told() {
    let fake = Fake::new("two");
    for name in ["sr0", "vdb", "vdc"] {
        fake.add(name, MIB, "", &iso("config-2"));
    }
    let mut search = search(&fake);
    assert_eq!(names(&search.scan(soon()).unwrap()), ["vdc", "vdb", "sr0"]);
    let dev = fake.places.dev.display();
    assert_eq!(search.notes()[0], format!("two drives have the label config-2: {dev}/vdc goes before {dev}/vdb"));
    assert_eq!(search.notes().len(), 2);
}

#[test]
fn a_disk_and_its_partition_are_one_drive() {
    let fake = Fake::new("hybrid");
    fake.add("sda", MIB, "", &iso("cidata"));
    fake.add("sda1", MIB, PARTITION, &iso("cidata"));
    let mut search = search(&fake);
    assert_eq!(names(&search.scan(soon()).unwrap()), ["sda1", "sda"]);
    assert_eq!(search.notes(), [] as [String; 0]);
}

#[test]
fn disks_of_another_label_are_kept_for_last() {
    let fake = Fake::new("unlabelled");
    fake.add("sda", MIB, "", &iso("CDROM"));
    fake.add("sdb", LARGE, "", &iso(""));
    fake.add("sdb1", MIB, PARTITION, &iso("OTHER"));
    fake.add("sdc", MIB, "", &[0; START]);
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    assert_eq!(names(&search.unlabelled()), ["sdb", "sda"]);
}

/// The start of a disk with sectors of this size and a GPT whose second partition has the PARTUUID of [`GPT`].
fn gpt(sector: usize) -> Vec<u8> {
    let mut disk = vec![0; 4 * sector.max(4096)];
    disk[450] = 0xee;
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[sector..sector + 8].copy_from_slice(b"EFI PART");
    for (at, number) in [(72, 2), (80, 128), (84, 128)] {
        disk[sector + at..sector + at + 4].copy_from_slice(&u32::to_le_bytes(number));
    }
    let guid = 2 * sector + 128 + 16;
    disk[guid..guid + 16].copy_from_slice(&[4, 3, 2, 1, 6, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 0xab]);
    disk
}

const GPT: &str = "01020304-0506-0708-090a-0b0c0d0e0fab";

#[test]
fn identifies_partition_by_table_without_kernel_uuid() {
    let fake = Fake::new("partuuid");
    let partition = |name: &str, uevent: &str| fake.add(name, LARGE, &format!("DEVTYPE=partition\n{uevent}"), b"");
    let mut mbr = gpt(512);
    mbr[450] = 0x83;
    mbr[440..444].copy_from_slice(&0x01ab_23cd_u32.to_le_bytes());
    for (disk, contents, separator) in [("nvme0n1", gpt(512), "p"), ("vda", gpt(4096), ""), ("sda", mbr, "")] {
        fake.add(disk, LARGE, "", &contents);
        for number in [1, 2, 3, 12] {
            partition(&format!("{disk}{separator}{number}"), &format!("PARTN={number}\n"));
        }
    }
    // A newer kernel reports it. Nothing is known about a disk that cannot be read.
    fake.add("vdb", LARGE, "", b"");
    partition("vdb1", "PARTN=1\nPARTUUID=abcd-01\n");
    partition("vdc1", "PARTN=1\n");
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    let named = |name: &str| -> Vec<&str> {
        let seen = search.seen().iter().filter(|probed| probed.is_named(&format!("PARTUUID={name}")));
        seen.map(|probed| probed.device.name.as_str()).collect()
    };
    for (name, expected) in [
        (GPT, &["nvme0n1p2", "vda2"][..]),
        (&GPT.to_uppercase(), &["nvme0n1p2", "vda2"]),
        (&format!("{GPT}/PARTNROFF=1"), &["nvme0n1p3", "vda3"]),
        (&format!("{GPT}/PARTNROFF=-1"), &["nvme0n1p1", "vda1"]),
        (&format!("{GPT}/PARTNROFF=x"), &[]),
        (&format!("{GPT}/PARTNROFF=-9223372036854775808"), &[]),
        ("00000000-0000-0000-0000-000000000000", &[]),
        ("01ab23cd-02", &["sda2"]),
        ("01ab23cd-0c", &["sda12"]),
        ("01ab23cd-0C/PARTNROFF=-9", &["sda3"]),
        ("abcd-01", &["vdb1"]),
        ("", &[]),
    ] {
        assert_eq!(named(name), expected, "{name}");
    }
}

#[test]
fn reports_a_missing_node_but_no_empty_drive() {
    let fake = Fake::new("missing");
    fake.add("sda", MIB, "", &[]);
    fake.add("sr0", LARGE, "", &[]);
    fs::remove_file(fake.places.dev.join("sda")).unwrap();
    fs::remove_file(fake.places.dev.join("sr0")).unwrap();
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    assert_eq!(search.notes().len(), 1);
    assert!(search.notes()[0].contains("sda (failed to open it: No such file"), "{:?}", search.notes());
    assert_eq!(search.seen()[1].contents, Contents::NoMedium);
}

#[test]
fn an_empty_optical_drive_is_not_read() {
    let fake = Fake::new("empty");
    fake.add("sr0", LARGE, "", &iso("config-2"));
    let node = fs::File::options().write(true).open(fake.places.dev.join("sr0")).unwrap();
    node.set_len(EMPTY).unwrap();
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    assert_eq!((&search.seen()[0].contents, search.notes().len()), (&Contents::NoMedium, 0));
    node.set_len(EMPTY - 512).unwrap();
    let other_size = probe(devices::list(&fake.places).unwrap().remove(0));
    assert!(other_size.superblock().is_some());
}

#[test]
fn reports_no_removable_device_without_medium() {
    let fake = Fake::new("no-medium");
    for name in ["fd0", "sdb", "sdc"] {
        fake.add(name, MIB, "", &[]);
        // Reading a folder fails with EISDIR, as an empty card reader does with EIO.
        fs::remove_file(fake.places.dev.join(name)).unwrap();
        fs::create_dir(fake.places.dev.join(name)).unwrap();
    }
    fake.set("sdb", "removable", "1\n");
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    assert_eq!(search.notes().len(), 1, "{:?}", search.notes());
    assert!(search.notes()[0].contains("/sdc ("), "{:?}", search.notes());
    let empty = search.seen().iter().filter(|seen| seen.contents == Contents::NoMedium);
    assert_eq!(empty.map(|seen| seen.device.name.as_str()).collect::<Vec<_>>(), ["fd0", "sdb"]);
}

#[test]
fn no_sysfs_is_an_error() {
    let places = Places { sys: "/nonexistent".into(), dev: "/nonexistent".into() };
    assert!(DriveSearch::new(&["cidata"], places).scan(soon()).is_err());
}

/// The bound is far above what it takes (30 ms or so when the machine is idle): the machine may be busy.
#[test]
fn a_thousand_other_devices_take_no_time() {
    let fake = Fake::new("thousand");
    let ext = {
        let mut start = vec![0; START];
        start[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        start
    };
    for i in 0..1000 {
        fake.add(&format!("sd{i}"), LARGE, "", &ext);
    }
    fake.add("sr0", MIB, "", &iso("config-2"));
    let mut search = search(&fake);
    let start = Instant::now();
    assert_eq!(names(&search.scan(soon()).unwrap()), ["sr0"]);
    let first = start.elapsed();
    assert_eq!(search.seen().len(), 1, "no other device was read");
    assert_eq!(search.scan(soon()).unwrap(), []);
    let all = start.elapsed();
    println!("1,001 devices: the drive after {first:?}, all of them read after {all:?}");
    assert!(first < Duration::from_secs(2) && all < Duration::from_secs(8), "{first:?}, {all:?}");
    assert_eq!(search.seen().len(), 1001);
}

#[test]
fn a_device_that_hangs_is_left_behind() {
    let fake = Fake::new("hang");
    fake.add("vdb", MIB, "", &iso("config-2"));
    fake.add("vdc", MIB, "", &iso("config-2"));
    let hanging = |device: BlockDevice| {
        if device.name == "vdb" {
            std::thread::sleep(Duration::from_secs(60));
        }
        probe(device)
    };
    let start = Instant::now();
    let said = |deadline: Duration, enough: &str| {
        let devices = devices::list(&fake.places).unwrap();
        let found = probe_by(hanging, devices, Deadline::after(deadline), |probed| probed.device.name == enough);
        found.iter().map(|probed| probed.to_string().rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let expected = ["vdb (it did not answer in time)", "vdc (iso9660, label config-2)"];
    // A moment after another was enough, and at the deadline.
    assert_eq!(said(Duration::from_secs(50), "vdc"), expected);
    assert_eq!(said(Duration::from_secs(2), "none"), expected);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn waiting_ends_at_the_deadline() {
    let fake = Fake::new("wait");
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    let start = Instant::now();
    assert_eq!(search.wait(Deadline::after(Duration::from_millis(50)), None).unwrap(), []);
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Events that come faster than the device can be read: asked for through sysfs, which needs root and a loop device.
#[test]
fn wait_ends_at_deadline_despite_device_reports() {
    let uevent = "/sys/class/block/loop0/uevent";
    if let Err(e) = std::fs::write(uevent, "change") {
        return crate::base::testing::skip(format!("may not ask for an event: {e}"));
    }
    let fake = Fake::new("storm");
    fake.add("loop0", MIB, "", &iso("other"));
    let mut search = search(&fake);
    assert_eq!(search.scan(soon()).unwrap(), []);
    let start = Instant::now();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let file = File::options().write(true).open(uevent).unwrap();
                while !ends.load(std::sync::atomic::Ordering::Relaxed) && start.elapsed() < Duration::from_secs(20) {
                    let _ = std::os::unix::fs::FileExt::write_at(&file, b"change", 0);
                }
            });
        }
        assert_eq!(search.wait(Deadline::after(Duration::from_millis(50)), None).unwrap(), []);
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The result of `look` for a real device that gets its contents, with this label, after the search began: the kernel's events,
/// the real /sys and /dev. No other test uses the label: tests run at the same time, and all see the same devices.
fn found_later(label: &str, look: impl Fn(&mut DriveSearch) -> Result<Vec<BlockDevice>>) {
    let Some((_dir, image)) = images::iso(&images::config_drive(), &["-V", label]) else {
        return;
    };
    let mut search = DriveSearch::new(&[&label.to_uppercase()], Places::default());
    match search.scan(soon()) {
        Ok(found) => assert_eq!(found, []),
        Err(e) => return crate::base::testing::skip(e),
    }
    let Some(node) = images::attach(&image) else { return };
    let found = look(&mut search);
    images::detach(&node);
    let found = found.unwrap();
    assert_eq!(found.iter().map(|d| d.node.to_str().unwrap()).collect::<Vec<_>>(), [node]);
}

#[test]
fn a_drive_that_appears_is_found() {
    found_later("waited-for", |search| search.wait(soon().at_most(Duration::from_secs(10)), None));
}

#[test]
fn reads_a_present_drive_without_waiting() {
    found_later("already-there", |search| search.appeared(soon()));
}
