//! # resizefs
//!
//! Grows the root's file system to the size of its device, in every boot, while it is mounted: ext2, ext3, ext4, XFS, btrfs,
//! bcachefs and ZFS, each with the program of its own. With `resize_rootfs: noblock` nothing waits for the program; false
//! turns the module off. f2fs cannot grow while it is mounted, and an overlay has no size. In an image without the program, the file
//! system stays as it is. It comes right after growpart (there: when).
//!
//! ```yaml
//! resize_rootfs: noblock
//! ```
//!
//! ```schema
//! resize_rootfs: (true false noblock)
//! ```

use super::{BeforeServices, Module};
use crate::base::error::{Error, Result};
use crate::detect::virt;
use crate::document::Value;
use crate::drive::block::{self, Block};
use crate::drive::extent;
use crate::instance::Frequency;
use crate::machine::Machine;
use crate::root::{Command, FileKind, Stage, installed};
use crate::system::mount_table::{self, Mounted};
use crate::system::{ModuleContext, disk_sizes};

/// The first btrfs-progs whose resize can wait for another exclusive operation.
const BTRFS_QUEUE: (u32, u32) = (5, 10);

pub static MODULE: Module = Module {
    name: "resizefs",
    stage: Stage::Network,
    frequency: Frequency::Always,
    running: Some(running),
    idle: Some(idle),
    before_services: BeforeServices::Running,
    ..Module::NEW
};

fn idle(cx: &mut ModuleContext) -> bool {
    disk_sizes::are_as_recorded(cx) || is_full(cx)
}

/// Whether the file system of this initramfs's new root has the size of its device.
fn is_full(cx: &ModuleContext) -> bool {
    mount_table::device_of_new_root(cx).is_some_and(|(mounted, block, _)| fills(cx, &mounted, &block))
}

/// Whether the running system's root has the size of its device, by what the device says.
fn is_live_root_full(cx: &ModuleContext, mounted: &Mounted) -> bool {
    let block =
        cx.outside.places().filter(|_| cx.root.is_live()).and_then(|places| block::at(&places, &mounted.source));
    block.is_some_and(|block| fills(cx, mounted, &block))
}

fn fills(cx: &ModuleContext, mounted: &Mounted, block: &Block) -> bool {
    let device = cx.root.open_device(&block.node);
    device.is_ok_and(|device| extent::read(&mounted.kind, &device).is_some_and(|extent| extent.fills(block.size)))
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    // growpart has run by then.
    if grow(cx)? { disk_sizes::record(cx) } else { Ok(()) }
}

/// Whether the command has ended: a power cut may interrupt one that nothing waits for.
fn grow(cx: &mut ModuleContext) -> Result<bool> {
    let argument = cx.args.first().map(|a| Value::from(a.as_str()));
    let asked = argument.as_ref().or(cx.config.get("resize_rootfs"));
    let waits = !asked.and_then(Value::as_str).is_some_and(|word| word.trim().eq_ignore_ascii_case("noblock"));
    if waits && !asked.is_none_or(Value::is_true) {
        return Ok(true);
    }
    let Some(mounted) = mount_table::containing(cx.root, "/") else {
        // The tree of a plan is mounted nowhere.
        if !cx.root.is_plan() {
            cx.report.warn("resizefs: the kernel does not say what is mounted on /");
        }
        return Ok(true);
    };
    if is_live_root_full(cx, &mounted) {
        log::info!("resizefs: / has the size of its device");
        return Ok(true);
    }
    let Some(argv) = command(cx, &mounted)? else { return Ok(true) };
    // An image without the file system's tools has chosen the size that it has.
    if let Some(program) = argv.first().filter(|program| is_missing(cx, program)) {
        log::info!("resizefs: / stays as large as it is: there is no {program}");
        return Ok(true);
    }
    let command = Command::new(argv);
    if waits { cx.root.run(command) } else { cx.root.start(command) }.map(|()| waits)
}

/// Whether the running system lacks a program.
fn is_missing(cx: &ModuleContext, program: &str) -> bool {
    cx.root.is_live() && installed::which(cx.root, program).is_none()
}

/// The command that grows the root's file system. None if there is nothing to grow; reports the surprising cases.
fn command(cx: &mut ModuleContext, mounted: &Mounted) -> Result<Option<Vec<String>>> {
    let words = |words: &[&str]| Ok(Some(words.iter().map(|w| (*w).to_owned()).collect()));
    let kind = mounted.kind.to_ascii_lowercase();
    if kind == "zfs" {
        let pool = mounted.source.split('/').next().unwrap_or_default();
        let disk = disk_of_pool(cx, pool)?;
        return match disk.and_then(|disk| device(cx, &disk)) {
            Some(disk) => words(&["zpool", "online", "-e", pool, &disk]),
            None => Ok(None),
        };
    }
    if kind.starts_with("overlay") {
        log::info!("resizefs: / is an overlay, which has no size of its own");
        return Ok(None);
    }
    let Some(device) = device(cx, &mounted.source) else { return Ok(None) };
    if kind.starts_with("btrfs") {
        // A snapshot that is mounted read-only is resized through the one writable subvolume that snapper's layouts have.
        let point = if mounted.has("ro") && cx.root.is_dir("/.snapshots") { "//.snapshots" } else { "/" };
        return match can_queue(cx)? {
            true => words(&["btrfs", "filesystem", "resize", "--enqueue", "max", point]),
            false => words(&["btrfs", "filesystem", "resize", "max", point]),
        };
    }
    if kind.starts_with("ext") {
        return words(&["resize2fs", &device]);
    }
    if kind.starts_with("xfs") {
        return words(&["xfs_growfs", "/"]);
    }
    if kind.starts_with("bcachefs") {
        return words(&["bcachefs", "device", "resize", &device]);
    }
    cx.report.warn(format_args!("resizefs: a file system of type {} cannot grow while it is mounted", mounted.kind));
    Ok(None)
}

/// The device of the root, as a path for programs. None if it does not exist, which is reported except in a container.
fn device(cx: &mut ModuleContext, source: &str) -> Option<String> {
    if source == "overlayroot" {
        return None;
    }
    if source.starts_with("gpt/") {
        return Some(source.to_owned());
    }
    let root = cx.root.path().to_owned();
    let is_container = || virt::is_container(&virt::detect(&Machine::read(&root)));
    let mut device = source.to_owned();
    if device == "/dev/root" && !cx.root.exists(&device) && !is_container() {
        match mount_table::root_on_cmdline(cx.root) {
            Some(named) => device = named,
            None => {
                cx.report.warn("resizefs: the kernel calls the root /dev/root, and its command line has no root=");
                return None;
            }
        }
    }
    if !device.starts_with("/dev/") && !cx.root.exists(&device) {
        device = format!("/dev/{}", device.trim_start_matches('/'));
    }
    let known = cx.outside.places().and_then(|places| block::at(&places, &device));
    // A node of the kernel's that sysfs does not list as a block device.
    let is_device = known.is_some() || cx.root.stat(&device).is_some_and(|s| s.kind == FileKind::Other);
    if !is_device && !is_container() {
        cx.report.warn(format_args!("resizefs: {device}, the device of /, is no device that is there"));
    }
    is_device.then_some(device)
}

/// The first disk of a ZFS pool that is online.
fn disk_of_pool(cx: &mut ModuleContext, pool: &str) -> Result<Option<String>> {
    if !cx.root.exists("/dev/zfs") {
        return Ok(None);
    }
    let output = cx.root.output(Command::new(["zpool", "status", pool]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let disk = text.lines().find(|l| l.contains("ONLINE") && !l.contains(pool) && !l.contains("state"));
    let disk = disk.and_then(|l| l.split_whitespace().next()).filter(|_| output.status == 0);
    if disk.is_none() {
        cx.report.warn(format_args!("resizefs: zpool status shows no disk of the pool {pool} that is online"));
    }
    Ok(disk.map(str::to_owned))
}

/// Whether the root's btrfs knows `--enqueue`.
fn can_queue(cx: &mut ModuleContext) -> Result<bool> {
    if is_missing(cx, "btrfs") {
        return Ok(false);
    }
    let output = cx.root.output(Command::new(["btrfs", "--version"]))?;
    if output.status != 0 {
        return Err(Error::new(format!("btrfs --version ended with exit status {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.lines().next().and_then(|l| l.rsplit_once('v')).map_or("", |(_, v)| v).trim().split('.');
    let mut number = || {
        let digits: String = numbers.next().unwrap_or("").chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    Ok((number(), number()) >= BTRFS_QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::fake_disks::{MIB, Machine};

    const STATUS: &str =
        "  pool: rpool\n state: ONLINE\nconfig:\n\tNAME    STATE\n\trpool   ONLINE  0 0 0\n\t  vda1  ONLINE  0 0 0\n";

    fn machine(mount: &str, answers: &[(&'static str, i32, &'static str)]) -> Machine {
        let mut machine = Machine::new(&[]);
        machine.disk("vda", 64 * MIB);
        machine.partition("vda", 16 * MIB);
        machine.file("proc/self/mounts", &format!("{mount} 0 0\n"));
        machine.answers = answers.to_vec();
        machine
    }

    #[test]
    fn a_pool_grows_by_its_disk() {
        let machine = machine("rpool/ROOT/x / zfs rw", &[("zpool status", 0, STATUS)]);
        assert_eq!(machine.run("{}", running).commands, [""; 0], "there is no /dev/zfs");
        machine.file("dev/zfs", "");
        let done = machine.run("{}", running);
        assert_eq!(done.commands, ["zpool status rpool", "zpool online -e rpool /dev/vda1"]);
    }

    #[test]
    fn unawaited_growth_is_not_recorded_as_done() {
        for (config, is_recorded) in [("{}", true), ("resize_rootfs: noblock", false)] {
            let done = machine("/dev/vda1 / ext4 rw", &[]).run(config, running);
            assert_eq!(done.commands.len(), 1);
            assert_eq!(done.root.exists("/var/lib/cloud/data/disk-sizes"), is_recorded, "{config}");
        }
    }

    #[test]
    fn warns_once_of_what_cannot_grow() {
        let done = machine("/dev/vda1 / f2fs rw", &[]).run("{}", running);
        assert_eq!((done.commands.len(), done.warnings.len()), (0, 1));
        let done = machine("/dev/vdz1 / ext4 rw", &[]).run("{}", running);
        assert_eq!((done.commands.len(), done.warnings.len()), (0, 1));
        let done = machine("overlay / overlay rw,lowerdir=/ro,upperdir=/rw", &[]).run("{}", running);
        assert_eq!((done.commands.len(), done.warnings.len()), (0, 0), "it has no size");
        let machine = machine("/dev/vda1 / ext4 rw", &[("resize2fs", 1, "")]);
        assert_eq!(machine.run("resize_rootfs: noblock", running).commands, ["resize2fs /dev/vda1"]);
    }
}
