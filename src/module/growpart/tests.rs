use super::*;
use crate::base::problem::Problems;
use crate::base::testing::{TempDir, skip};
use crate::document::yaml;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::module::fake_disks::{MIB, Machine as Fake};
use crate::root::{Root, Use};
use crate::system::{Device, Outside, WebRequest};
use std::os::unix::fs::FileExt;
use std::process::Command as Process;

const BEGUN: &str = "/var/lib/cloud/data/growpart-lvm";
const KEY: &str = "{\"key\": \"c2VjcmV0\", \"slot\": 5}";

/// A disk with room behind its one partition, which is mounted or lies below what is.
fn machine(programs: &[&str], mounted: &str) -> Fake {
    let machine = Fake::new(programs);
    machine.disk("vda", 64 * MIB);
    machine.partition("vda", 16 * MIB);
    machine.file("proc/self/mounts", &format!("{mounted} / ext4 rw 0 0\n"));
    machine
}

fn end(machine: &Fake, disk: &str) -> u64 {
    machine.table(disk)[0].end * 512
}

#[test]
fn partition_grows_once_and_plan_shows_it() {
    let machine = machine(&[], "/dev/vda1");
    let done = machine.run("{}", running);
    assert_eq!(
        (done.commands.as_slice(), done.warnings.as_slice()),
        (&["growpart /dev/vda 1".to_owned()][..], &[][..])
    );
    assert_eq!(end(&machine, "vda"), 64 * MIB);
    assert_eq!(machine.run("{}", running).commands, [""; 0]);
    // Nothing of the same in a plan, nor where it is switched off.
    let machine = self::machine(&[], "/dev/vda1");
    machine.file("etc/growroot-disabled", "");
    assert_eq!(machine.run("{}", running).commands, [""; 0]);
    let done = machine.run("growpart: {ignore_growroot_disabled: true, devices: [/home/x]}", running);
    assert_eq!(done.commands, ["growpart /dev/vda 1"]);
}

#[test]
fn a_logical_volume_gets_what_its_group_gains() {
    let mut machine = machine(&["lvextend"], "/dev/mapper/vg-root");
    machine.mapping("dm-0", "vg-root", "LVM-x", &["vda1"]);
    machine.answers = vec![("lvs", 0, "  10\n"), ("lvs", 0, "  22\n")];
    let lvs = "lvs --noheadings --options vg_free_count /dev/mapper/vg-root";
    let done = machine.run("{}", running);
    let extended = ["pvresize /dev/vda1", lvs, "lvextend --extents +12 /dev/mapper/vg-root"];
    assert_eq!(done.commands, [&[lvs, "growpart /dev/vda 1"][..], &extended].concat());
    assert_eq!((end(&machine, "vda"), done.root.exists(BEGUN)), (64 * MIB, false));
    assert_eq!(machine.run("{}", running).commands, [""; 0], "what is free for other reasons stays free");

    // A cut after the table has grown: the next boot does the rest.
    machine.file(&BEGUN[1..], "10 /dev/mapper/vg-root\n");
    machine.answers = vec![("lvs", 0, "22\n")];
    assert_eq!(machine.run("{}", running).commands, extended);

    // Without an answer from lvs nothing is assumed.
    let mut machine = self::machine(&["lvextend"], "/dev/mapper/vg-root");
    machine.mapping("dm-0", "vg-root", "LVM-x", &["vda1"]);
    machine.answers = vec![("lvs", 5, "")];
    let done = machine.run("{}", running);
    assert_eq!((done.commands.len(), done.warnings.len(), end(&machine, "vda")), (1, 1, 17 * MIB));
}

#[test]
fn retries_failed_growth_on_the_next_boot() {
    let mut machine = machine(&["lvextend"], "/dev/mapper/vg-root");
    machine.mapping("dm-0", "vg-root", "LVM-x", &["vda1"]);
    for (status, free, has_failed) in [(5, "", true), (0, "10\n", false)] {
        machine.answers = vec![("lvs", status, free), ("lvs", 0, "22\n")];
        let mut done = machine.run("{}", |cx| running(cx).and_then(|()| disk_sizes::record(cx)));
        let record = "/var/lib/cloud/data/disk-sizes";
        assert_eq!((done.root.exists(record), done.root.text(record) == "failed\n"), (true, has_failed));
        assert_eq!(done.root.commit(), []);
    }
}

#[test]
fn grows_encrypted_root_and_removes_its_key_file() {
    let with_luks = |key: bool| {
        let machine = machine(&["cryptsetup"], "/dev/mapper/root");
        machine.mapping("dm-0", "root", "CRYPT-LUKS2-x", &["vda1"]);
        machine.open("vda1").write_all_at(b"LUKS\xba\xbe", 0).unwrap();
        if key {
            machine.file("cc_growpart_keydata", KEY);
        }
        machine
    };
    let resize = "cryptsetup --key-file - resize /dev/mapper/root";
    let kill = "cryptsetup luksKillSlot --batch-mode /dev/vda1 5";
    let machine = with_luks(true);
    let done = machine.run("{}", running);
    assert_eq!(done.commands, ["growpart /dev/vda 1", resize, kill]);
    assert_eq!(done.root.commands()[1].stdin.as_deref(), Some(&b"secret"[..]));
    assert!(!done.root.exists("/cc_growpart_keydata") && done.warnings.is_empty());
    assert_eq!(end(&machine, "vda"), 64 * MIB);

    let mut machine = with_luks(true);
    machine.answers = vec![(resize, 2, ""), (kill, 1, "")];
    let done = machine.run("{}", running);
    assert!(!done.root.exists("/cc_growpart_keydata"), "a key that has not helped is removed, too");
    assert_eq!(done.warnings.len(), 2, "{:?}", done.warnings);
    assert!(!done.warnings.join(" ").contains("c2VjcmV0"));

    let machine = with_luks(false);
    assert_eq!(machine.run("{}", running).commands, ["growpart /dev/vda 1"]);
    machine.file("cc_growpart_keydata", "{\"key\": 5}");
    assert!(machine.run("{}", running).warnings[0].contains("expected {\"key\""));
}

#[test]
fn array_grows_only_with_safe_metadata() {
    let with = |metadata: &str, used: u64| {
        let machine = machine(&["mdadm"], "/dev/md0");
        machine.disk("vdb", 64 * MIB);
        machine.partition("vdb", 16 * MIB);
        machine.raid("md0", "raid1", metadata, used, &["vda1", "vdb1"]);
        machine
    };
    let machine = with("1.2", 15 * MIB);
    let done = machine.run("{}", running);
    assert_eq!(done.commands, ["growpart /dev/vda 1", "growpart /dev/vdb 1", "mdadm --grow /dev/md0 --size=max"]);
    assert_eq!(machine.run("{}", running).commands, [""; 0]);
    let machine = with("1.0", 15 * MIB);
    assert_eq!(machine.run("{}", running).commands, [""; 0]);
    assert_eq!(end(&machine, "vda"), 17 * MIB, "metadata at the end would be lost");
}

#[test]
fn leaves_other_and_misleading_devices_alone() {
    let machine = machine(&["lvextend"], "/dev/mapper/vg-root");
    machine.disk("vdb", 64 * MIB);
    machine.partition("vdb", 16 * MIB);
    machine.mapping("dm-0", "vg-root", "LVM-x", &["vda1", "vdb1"]);
    machine.mapping("dm-1", "odd", "mpath-x", &["vda1"]);
    machine.mapping("dm-2", "circle", "LVM-y", &["dm-2"]);
    for device in ["/", "/dev/vda", "/dev/none", "/dev/mapper/odd", "/dev/mapper/circle", "relative"] {
        let done = machine.run(&format!("growpart: {{devices: [{device}]}}"), running);
        assert_eq!((done.commands, done.warnings), (vec![], vec![]), "{device}");
    }
    assert_eq!(end(&machine, "vda"), 17 * MIB);
}

/// This machine's devices.
struct Here;

impl Outside for Here {
    fn device(&self, _: &str) -> Option<Device> {
        None
    }
    fn places(&self) -> Option<Places> {
        Some(Places::default())
    }
    fn memory(&self) -> Option<u64> {
        None
    }
    fn http(&self, _: &WebRequest, _: u32) -> Result<Vec<u8>> {
        unreachable!()
    }
}

/// A loop device with a mounted partition; taken apart when dropped.
struct Loop {
    dir: TempDir,
    node: String,
}

fn say(argv: &[&str]) -> std::result::Result<String, String> {
    let output = Process::new(argv[0]).args(&argv[1..]).output().map_err(|e| format!("{}: {e}", argv[0]))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(format!("{argv:?}: {}", text(&output.stderr))) }
}

impl Loop {
    fn new() -> std::result::Result<Loop, String> {
        let dir = TempDir::new("loop");
        let image = dir.0.join("disk").display().to_string();
        let script = dir.0.join("script").display().to_string();
        std::fs::write(&script, "label: gpt\n2048,81920,L\n").unwrap();
        std::fs::create_dir(dir.0.join("mnt")).unwrap();
        say(&["truncate", "--size", "64M", &image])?;
        say(&["sh", "-c", &format!("sfdisk --quiet {image} <{script}")])?;
        let node = say(&["losetup", "--find", "--show", &image])?;
        let disk = Loop { dir, node };
        let part = disk.part();
        // The kernel may not read tables by itself, and a partition of the device's last user may be left.
        let _ = say(&["delpart", &disk.node, "1"]);
        say(&["addpart", &disk.node, "1", "2048", "81920"])?;
        say(&["mkfs.ext4", "-q", &part])?;
        say(&["mount", &part, &disk.point()])?;
        Ok(disk)
    }

    fn part(&self) -> String {
        format!("{}p1", self.node)
    }

    fn point(&self) -> String {
        self.dir.0.join("mnt").display().to_string()
    }

    fn size(&self) -> u64 {
        let name = self.part().replace("/dev/", "");
        std::fs::read_to_string(format!("/sys/class/block/{name}/size")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = say(&["umount", &self.point()]);
        let _ = say(&["delpart", &self.node, "1"]);
        let _ = say(&["losetup", "--detach", &self.node]);
    }
}

#[test]
fn the_kernel_grows_a_partition_that_is_mounted() {
    let disk = match Loop::new() {
        Ok(disk) => disk,
        Err(e) => return skip(e),
    };
    assert_eq!(disk.size(), 81920);
    say(&["truncate", "--size", "96M", &disk.dir.0.join("disk").display().to_string()]).unwrap();
    say(&["losetup", "--set-capacity", &disk.node]).unwrap();
    let config = yaml::parse("t", &format!("growpart: {{devices: [{}/]}}", disk.point())).unwrap();
    let mut root = Root::open(std::path::Path::new("/"), Use::Tree).unwrap();
    let report = Problems::new();
    let instance = Instance::default();
    let distro = Distro::named("debian");
    let mut cx =
        ModuleContext { outside: &Here, ..ModuleContext::new(&mut root, &config, &instance, &distro, &report) };
    running(&mut cx).unwrap();
    assert_eq!(report.entries(), []);
    let end = 96 * 2048 - 33;
    assert_eq!(disk.size(), end - 2048);
    assert!(say(&["sfdisk", "--dump", &disk.node]).unwrap().contains(&format!("size={:>12}", end - 2048)));
    // A disk in use gets no new table.
    let steps = [vec![crate::root::Write { offset: 0, content: vec![0; 512] }]];
    let error = root.write_device(&disk.node, &steps, true, Command::new(["wipefs"])).unwrap_err();
    assert!(error.to_string().contains("it is in use"), "{error}");
    assert!(say(&["sfdisk", "--dump", &disk.node]).is_ok());
}
