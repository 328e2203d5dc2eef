//! The disks of the recorded cases: real sparse files with real tables below the tree's /dev, a sysfs that says what the kernel
//! would, and superblocks. Tables are made by sfdisk, and what comes out is compared with what the recorded commands, sfdisk and
//! sgdisk, really make of a second set of the same disks.

use super::{Case, machine};
use prepivot::document::{Map, Value};
use prepivot::drive::devices::Places;
use prepivot::root::Root;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The unit of sysfs, and of tables but where a case says otherwise, in bytes.
const SECTOR: u64 = 512;
/// Where the recorded growpart found the partition that it grew, in sectors.
const GROWN_AT: u64 = 227_328;
/// Programs that change a table: prepivot writes it itself.
const TABLE_PROGRAMS: [&str; 4] = ["sfdisk", "sgdisk", "gpart", "growpart"];
/// Programs that wait for the kernel or udev, or ask for something.
const ASKING: [&str; 3] = ["udevadm", "partprobe", "blockdev"];
/// The modules whose cases are compared here.
const MODULES: [&str; 4] = ["cc_growpart", "cc_resizefs", "cc_disk_setup", "cc_mounts"];

/// A partition of a table: number, first sector, sectors, type.
type Row = (u32, u64, u64, String);

/// Whether the case is about disks, and in modules_more.json.
pub fn is_about(case: &Case) -> bool {
    case.more && MODULES.contains(&case.module)
}

/// Why the case cannot be compared here.
pub fn missing_tool() -> Option<String> {
    let runs = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    ["sfdisk", "sgdisk"].into_iter().find(|p| !runs(p)).map(|p| format!("there is no {p}"))
}

/// Where a module sees the devices of the tree.
pub fn places(base: &Path) -> Places {
    Places { sys: base.join("sys/class/block"), dev: base.join("dev") }
}

fn devices<'a>(case: &'a Case) -> Vec<(&'a str, &'a Value)> {
    case.setup.get("devices").and_then(Value::as_map).into_iter().flat_map(Map::iter).collect()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The kernel's name of a device.
fn name<'a>(path: &'a str, device: &'a Value) -> &'a str {
    let node = device.get("link").and_then(Value::as_str).unwrap_or(path);
    node.trim_start_matches("/dev/")
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn link(path: &Path, target: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

/// Makes the devices and mounts of a case in the tree.
pub fn set_up(case: &Case, base: &Path) {
    let list = case.setup.get("mounts").and_then(Value::as_list);
    let mut mounts = String::new();
    for mount in list.unwrap_or_default().iter().filter_map(Value::as_list) {
        let fields: Vec<&str> = mount.iter().filter_map(Value::as_str).collect();
        mounts += &format!("{} 0 0\n", fields.join(" "));
    }
    if list.is_none() {
        mounts = "/dev/vda1 / ext4 rw,relatime 0 0\n".into();
    }
    write(&base.join("proc/self/mounts"), &mounts);
    if case.setup.get("container").is_some_and(Value::is_true) {
        write(&base.join("run/systemd/container"), "lxc");
    }
    for (path, device) in devices(case) {
        set_up_device(case, base, path, device);
    }
    for (path, device) in devices(case) {
        if text(device, "type") == "disk" && !text(device, "table").is_empty() {
            make_table(case, base, path, text(device, "table"));
        }
    }
}

fn set_up_device(case: &Case, base: &Path, path: &str, device: &Value) {
    let (name, kind) = (name(path, device), text(device, "type"));
    let node = base.join("dev").join(name);
    std::fs::create_dir_all(node.parent().unwrap()).unwrap();
    if kind == "char" {
        // What is neither a file nor a folder.
        return rustix::fs::mkfifoat(rustix::fs::CWD, &node, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }
    let (_, sectors) = place(case, path, device);
    let size = sectors * SECTOR;
    let file = File::create(&node).unwrap();
    file.set_len(size).unwrap();
    if device.get("content").is_some_and(Value::is_true) {
        file.write_all_at(&vec![0xff; usize::try_from(size).unwrap()], 0).unwrap();
    }
    superblock(&file, text(device, "fstype"), text(device, "label"));
    if let Some(target) = device.get("link").and_then(Value::as_str) {
        link(&base.join(&path[1..]), &Path::new("..").join(target.trim_start_matches("/dev/")));
    }
    for path in device.get("links").and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_str) {
        link(&base.join(&path[1..]), &Path::new("../..").join(name));
    }
    if kind == "file" {
        return;
    }
    let disk = device.get("disk").and_then(Value::as_str).map(|d| d.trim_start_matches("/dev/"));
    show(base, name, sectors, disk.map(|disk| (disk, number(device, "number"))));
    let folder = base.join("sys/class/block").join(name);
    if kind == "disk" {
        let sector = number(device, "sector").max(SECTOR);
        write(&folder.join("queue/logical_block_size"), &sector.to_string());
    }
    if matches!(kind, "crypt" | "lvm") {
        write(&folder.join("dm/name"), path.trim_start_matches("/dev/mapper/"));
        write(&folder.join("dm/uuid"), if kind == "lvm" { "LVM-x" } else { "CRYPT-LUKS2-x" });
        let many = device.get("on_many").and_then(Value::as_list).unwrap_or_default();
        for below in many.iter().chain(device.get("on")).filter_map(Value::as_str) {
            write(&folder.join("slaves").join(below.trim_start_matches("/dev/")).join("size"), "");
        }
    }
}

/// What sysfs says of a device; of a partition, its disk and number.
fn show(base: &Path, name: &str, sectors: u64, partition: Option<(&str, u64)>) {
    let folder = match partition {
        Some((disk, _)) => format!("{disk}/{name}"),
        None => name.to_owned(),
    };
    let real = base.join("sys/devices").join(&folder);
    write(&real.join("size"), &sectors.to_string());
    if let Some((_, number)) = partition {
        write(&real.join("partition"), &number.to_string());
    }
    let class = base.join("sys/class/block").join(name);
    if !class.is_symlink() {
        link(&class, &Path::new("../../devices").join(folder));
    }
}

/// What blkid knows a type by.
fn superblock(file: &File, kind: &str, label: &str) {
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    match kind {
        "ext4" => {
            put(1080, &[0x53, 0xef]);
            put(1024 + 96, &[0x40]);
            put(1024 + 120, label.as_bytes());
        }
        "xfs" => {
            put(0, b"XFSB");
            put(108, label.as_bytes());
        }
        "swap" => {
            put(4086, b"SWAPSPACE2");
            put(1024 + 28, label.as_bytes());
        }
        "ntfs" => put(3, b"NTFS    "),
        "crypto_LUKS" => put(0, b"LUKS\xba\xbe"),
        "LVM2_member" => put(512, b"LABELONE"),
        // Only EFI system partitions, which nothing here looks at.
        "vfat" | "" => {}
        other => panic!("a superblock of {other}"),
    }
}

/// First sector and sectors of a device. The recorded growpart speaks of other partitions than `devices`: what it says counts,
/// for there is room behind them.
fn place(case: &Case, path: &str, device: &Value) -> (u64, u64) {
    let (start, sectors) = (number(device, "start"), number(device, "size").div_ceil(SECTOR));
    let argv = |n: u64| {
        let (disk, n) = (text(device, "disk").to_owned(), n.to_string());
        [vec!["growpart".into(), "--dry-run".into(), disk.clone(), n.clone()], {
            vec!["gpart".into(), "resize".into(), "-i".into(), n, disk]
        }]
    };
    let outputs = case.setup.get("command_outputs").and_then(Value::as_list).unwrap_or_default();
    let argvs = argv(number(device, "number"));
    let said = outputs.iter().find(|o| argvs.contains(&machine::expected_argv(o)));
    let Some(said) = said.map(|o| text(o, "stdout")) else {
        return (moved(case, path, device).unwrap_or(start), sectors);
    };
    let after = |word: &str| {
        let rest = said.split_once(word)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let size = after("is size ").or_else(|| after("old: size=")).unwrap_or(sectors);
    (after("start=").unwrap_or(GROWN_AT), size)
}

/// Where a partition is that `devices` has behind one that grows.
fn moved(case: &Case, path: &str, device: &Value) -> Option<u64> {
    let disk = text(device, "disk");
    if disk.is_empty() || number(device, "start") == 2048 {
        return None;
    }
    let mut next = 2048;
    let others = devices(case).into_iter().filter(|(_, d)| text(d, "disk") == disk);
    let grown = others.clone().any(|(p, d)| p != path && number(d, "start") == 2048 && place(case, p, d).0 == GROWN_AT);
    for (other, device) in others.filter(|(_, d)| number(d, "start") != 2048) {
        if other == path {
            return grown.then_some(next);
        }
        next += number(device, "size").div_ceil(SECTOR).next_multiple_of(2048);
    }
    None
}

fn make_table(case: &Case, base: &Path, disk: &str, label: &str) {
    let image = base.join(&disk[1..]);
    let mut script = format!("label: {label}\n");
    if label == "gpt" {
        script += "first-lba: 34\n";
    }
    let size = std::fs::metadata(&image).unwrap().len() / SECTOR;
    let mut extended = None;
    for (path, device) in devices(case).into_iter().filter(|(_, d)| text(d, "disk") == disk) {
        let (start, sectors) = place(case, path, device);
        // A disk that is smaller than its partitions holds something else.
        if start + sectors > size || path == "/dev/root" {
            continue;
        }
        let kind = text(device, "parttype");
        let sectors = if kind == "5" { size - start } else { sectors };
        extended = extended.or((kind == "5").then_some(start));
        let start = if number(device, "number") > 4 && extended.is_some() { start + 2048 } else { start };
        script += &format!("{}: start={start}, size={sectors}, type={kind}\n", number(device, "number"));
    }
    if script.contains("start=") || case.setup.at(&["devices", disk, "content"]).is_none() {
        run(&["sfdisk".into(), "--quiet".into(), image.display().to_string()], &script).unwrap();
    }
}

fn run(argv: &[String], input: &str) -> Result<String, String> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", argv[0]))?;
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(format!("{argv:?}: {}", said(&output.stderr))) }
}

/// A disk's image as a path that sfdisk reads with the sectors of the case: a loop device where those are not its own.
struct Readable {
    path: PathBuf,
    is_loop: bool,
}

impl Readable {
    fn new(image: &Path, sector: u64) -> Result<Readable, String> {
        if sector == SECTOR {
            return Ok(Readable { path: image.to_owned(), is_loop: false });
        }
        let argv = ["losetup", "--find", "--show", "--sector-size", &sector.to_string(), &image.display().to_string()];
        let device = run(&argv.map(str::to_owned), "")?;
        Ok(Readable { path: device.trim().into(), is_loop: true })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if self.is_loop {
            let _ = run(&["losetup".into(), "--detach".into(), self.path.display().to_string()], "");
        }
    }
}

/// What sfdisk reads of a disk. Empty where it sees no table.
fn rows(disk: &Readable) -> Vec<Row> {
    let argv = ["sfdisk".into(), "--dump".into(), disk.path.display().to_string()];
    let Ok(dump) = run(&argv, "") else { return Vec::new() };
    let field = |line: &str, key: &str| {
        let value = line.split_once(key).unwrap().1.trim_start_matches(['=', ' ']);
        value.split([',', ' ']).next().unwrap().to_owned()
    };
    let row = |line: &str| -> Row {
        let name = line.split(" :").next().unwrap().trim_end();
        let number = name.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        let size = field(line, "size").parse().unwrap();
        (number, field(line, "start").parse().unwrap(), size, field(line, "type").to_uppercase())
    };
    dump.lines().filter(|l| l.contains("start=")).map(row).collect()
}

/// What the kernel and udev do where a program has the table read again.
pub fn reread(base: &Path, argv: &[String]) {
    let Some(disk) = argv.last().filter(|_| matches!(argv[0].as_str(), "partprobe" | "blockdev")) else { return };
    let disk = disk.trim_start_matches("/dev/");
    let image = Readable { path: base.join("dev").join(disk), is_loop: false };
    for (number, _, sectors, _) in rows(&image) {
        let name = if disk.ends_with(|c: char| c.is_ascii_digit()) {
            format!("{disk}p{number}")
        } else {
            format!("{disk}{number}")
        };
        let node = base.join("dev").join(&name);
        if !node.exists() {
            File::create(node).unwrap().set_len(sectors * SECTOR).unwrap();
            show(base, &name, sectors, Some((disk, u64::from(number))));
        }
    }
}

/// Whether a path that a case expects is made by a program that prepivot does not need: a swap file, of which only the
/// commands are shown in a tree.
pub fn is_made_by_program(case: &Case, path: &str) -> bool {
    is_about(case)
        && (case.commands().iter().any(|(argv, _)| argv.first().is_some_and(|p| p == "mkswap") && argv.last().is_some_and(|p| p == path))
            // The folder in which cloud-init gives growpart room for temporary files.
            || path.starts_with("/usr/lib/cloud-init"))
}

/// Compares the tables, erased places and commands.
pub fn compare(case: &Case, base: &Path, root: &Root, wrong: &mut Vec<String>) {
    compare_commands(case, root, wrong);
    let second = prepivot::base::testing::TempDir::new("vectors-disks");
    set_up(case, &second.0);
    let failed = play(case, &second.0);
    wrong.extend(failed.err());
    for (path, device) in devices(case).into_iter().filter(|(_, d)| text(d, "type") == "disk") {
        let sector = number(device, "sector").max(SECTOR);
        let read = |base: &Path| Readable::new(&base.join(&path[1..]), sector).map(|disk| rows(&disk));
        let (mut expected, mut found) = match (read(&second.0), read(base)) {
            (Ok(expected), Ok(found)) => (expected, found),
            (Err(e), _) | (_, Err(e)) => {
                wrong.push(e);
                continue;
            }
        };
        // sfdisk has a GPT's last partition end at a multiple of 1 MiB, sgdisk at the last usable sector.
        let is_sfdisk =
            |c: &(Vec<String>, String)| c.0.first().is_some_and(|p| p == "sfdisk") && c.0.contains(&"gpt".into());
        if case.commands().iter().any(is_sfdisk) {
            for row in expected.iter_mut().chain(&mut found) {
                row.2 = (row.1 + row.2) / 2048 * 2048 - row.1;
            }
        }
        if expected != found {
            wrong.push(format!("{path}: expected the partitions {expected:?}, found {found:?}"));
        }
    }
    compare_zeroed(case, base, wrong);
}

/// Has the recorded commands change the tables of a set of disks.
fn play(case: &Case, base: &Path) -> Result<(), String> {
    let outputs = case.setup.get("command_outputs").and_then(Value::as_list).unwrap_or_default();
    let list = case.expected.get("commands").and_then(Value::as_list).unwrap_or_default();
    for command in list.iter().filter(|c| !c.get("asks").is_some_and(Value::is_true)) {
        let mut argv = machine::expected_argv(command);
        let output = outputs.iter().find(|o| machine::expected_argv(o) == argv);
        let failed = output.is_some_and(|o| number(o, "rc") != 0);
        let Some(program) = argv.first().filter(|p| TABLE_PROGRAMS.contains(&p.as_str()) && !failed).cloned() else {
            continue;
        };
        let grown = match argv.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["growpart", disk, n] | ["gpart", "resize", "-i", n, disk] => Some(((*disk).to_owned(), (*n).to_owned())),
            _ => None,
        };
        if let Some((disk, n)) = grown {
            // As growpart: to the last usable sector.
            let image = base.join(&disk[1..]).display().to_string();
            let said = output.map_or("", |o| text(o, "stdout"));
            let size = said.split_once("new: size=").map(|(_, rest)| rest.split(',').next().unwrap_or_default());
            let size = size.map_or_else(|| (10 * (1 << 21) - 33 - GROWN_AT).to_string(), str::to_owned);
            run(
                &["sfdisk", "--no-reread", "--force", "-N", &n, &image].map(str::to_owned),
                &format!(",{}\n", size.trim()),
            )?;
            continue;
        }
        if program == "gpart" {
            continue;
        }
        let disk = argv.iter().position(|w| w.starts_with("/dev/")).ok_or("no disk")?;
        let device = case.setup.at(&["devices", &argv[disk]]).unwrap_or(&Value::Null);
        let image = Readable::new(&base.join(&argv[disk][1..]), number(device, "sector").max(SECTOR))?;
        argv[disk] = image.path.display().to_string();
        let made = run(&argv, text(command, "data"));
        // It fails on a disk without a table, and has erased what there was of one.
        if program != "sgdisk" || !argv.contains(&"-Z".to_owned()) {
            made?;
        }
    }
    Ok(())
}

fn compare_zeroed(case: &Case, base: &Path, wrong: &mut Vec<String>) {
    let zeroed: Vec<(&str, u64, u64)> = case
        .expected
        .get("zeroed")
        .and_then(Value::as_list)
        .unwrap_or_default()
        .iter()
        .filter_map(|z| match z.as_list()? {
            [path, offset, length] => Some((path.as_str()?, offset.as_int()? as u64, length.as_int()? as u64)),
            _ => None,
        })
        .collect();
    for (path, device) in devices(case).into_iter().filter(|(_, d)| d.get("content").is_some_and(Value::is_true)) {
        let bytes = std::fs::read(base.join(&path[1..])).unwrap();
        let is_zeroed =
            |at: u64| zeroed.iter().any(|(p, offset, length)| *p == path && (*offset..offset + length).contains(&at));
        let differs = (0..).zip(&bytes).find(|(at, byte)| (**byte == 0) != is_zeroed(*at));
        if let Some((at, byte)) = differs {
            wrong.push(format!("{path}: byte {at} of {} is {byte}", number(device, "size")));
        }
    }
}

fn compare_commands(case: &Case, root: &Root, wrong: &mut Vec<String>) {
    let list = case.expected.get("commands").and_then(Value::as_list).unwrap_or_default();
    let asks: Vec<Vec<String>> =
        list.iter().filter(|c| c.get("asks").is_some_and(Value::is_true)).map(machine::expected_argv).collect();
    let is_compared = |argv: &Vec<String>| {
        let program = argv.first().map_or("", String::as_str);
        let is_own = program == "wipefs"
            && argv
                .last()
                .is_some_and(|d| text(case.setup.at(&["devices", d]).unwrap_or(&Value::Null), "type") == "disk");
        !asks.contains(argv) && !ASKING.contains(&program) && !TABLE_PROGRAMS.contains(&program) && !is_own
    };
    let expected: Vec<(Vec<String>, String)> = list
        .iter()
        .map(|c| (machine::expected_argv(c), text(c, "data").to_owned()))
        .filter(|(argv, _)| is_compared(argv))
        .collect();
    let found: Vec<(Vec<String>, String)> = root
        .commands()
        .iter()
        .map(|c| {
            let stdin = String::from_utf8_lossy(c.stdin.as_deref().unwrap_or_default()).into_owned();
            (machine::by_base_name(&c.argv), stdin)
        })
        .filter(|(argv, _)| is_compared(argv))
        .collect();
    if expected != found {
        wrong.push(format!("commands: expected {expected:?}, found {found:?}"));
    }
}
