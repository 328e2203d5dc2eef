use super::*;
use crate::module::fake_disks::{Done, MIB, Machine};
use std::os::unix::fs::FileExt;

fn run(machine: &Machine, config: &str) -> Done {
    machine.run(config, running)
}

#[test]
fn nothing_that_holds_something_is_overwritten_unasked() {
    let superblocks: [(u64, &[u8]); 7] = [
        (0, b"XFSB"),
        (512, b"LABELONE"),
        (0, b"LUKS\xba\xbe"),
        (4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
        (4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
        (16384, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0"),
        (65536 + 64, b"_BHRfS_M"),
    ];
    for (at, bytes) in superblocks {
        let machine = Machine::new(&["mkfs.ext4"]);
        machine.disk("vdb", 64 * MIB);
        machine.open("vdb").write_all_at(bytes, at).unwrap();
        let before = std::fs::read(machine.dir.0.join("dev/vdb")).unwrap();
        let done = run(&machine, "disk_setup: {/dev/vdb: {layout: true}}");
        assert_eq!((done.commands, done.warnings), (vec![], vec![]), "{bytes:?}");
        for partition in ["none", "any", "auto"] {
            let config = format!("fs_setup: [{{device: vdb, filesystem: ext4, partition: {partition}}}]");
            let done = run(&machine, &config);
            assert_eq!(
                (done.commands.len(), done.warnings.len()),
                (0, 1),
                "{partition} {bytes:?}: {:?}",
                done.commands
            );
        }
        assert!(std::fs::read(machine.dir.0.join("dev/vdb")).unwrap() == before);
        let done = run(&machine, "disk_setup: {/dev/vdb: {layout: true, overwrite: true}}");
        assert_eq!(done.warnings, [""; 0]);
        assert_eq!(machine.table("vdb").len(), 1, "{bytes:?}");
        let rest = crate::drive::label::probe(&machine.open("vdb")).unwrap();
        assert_eq!(rest, None, "nothing of the old is left: {bytes:?}");
    }
}

#[test]
fn partitioned_disk_gets_no_file_system_itself() {
    let machine = Machine::new(&["mkfs.ext4"]);
    machine.disk("vdb", 64 * MIB);
    machine.partition("vdb", 16 * MIB);
    let done = run(&machine, "fs_setup: [{device: vdb, filesystem: ext4, partition: none}]");
    assert_eq!((done.commands.len(), done.warnings.len()), (0, 1), "{:?}", done.commands);
    let done = run(&machine, "fs_setup: [{device: vdb, filesystem: ext4, partition: none, overwrite: true}]");
    assert_eq!(done.commands, ["/usr/bin/mkfs.ext4 -F /dev/vdb"]);
}

#[test]
fn word_after_a_dot_names_the_place() {
    for (device, expected) in [("vdb.auto", "-F /dev/vdb1"), ("d.any", "-F /dev/vdb1"), ("d.none", "-F /dev/vdb")] {
        let machine = Machine::new(&["mkfs.ext4"]);
        machine.disk("vdb", 64 * MIB);
        machine.partition("vdb", 16 * MIB);
        let config = format!(
            "device_aliases: {{d: /dev/vdb}}\nfs_setup: [{{device: {device}, filesystem: ext4, overwrite: true}}]"
        );
        let done = run(&machine, &config);
        assert_eq!((done.commands, done.warnings), (vec![format!("/usr/bin/mkfs.ext4 {expected}")], vec![]));
    }
}

#[test]
fn damaged_tables_count_as_tables() {
    let machine = Machine::new(&[]);
    machine.disk("vdb", 64 * MIB);
    run(&machine, "disk_setup: {vdb: {layout: true, table_type: gpt}}");
    assert_eq!(machine.table("vdb").len(), 1);
    for at in [512, 64 * MIB - 512] {
        machine.open("vdb").write_all_at(b"broken", at).unwrap();
    }
    let before = std::fs::read(machine.dir.0.join("dev/vdb")).unwrap();
    run(&machine, "disk_setup: {vdb: {layout: [50, 50]}}");
    assert!(std::fs::read(machine.dir.0.join("dev/vdb")).unwrap() == before);
    run(&machine, "disk_setup: {vdb: {layout: [50, 50], overwrite: true}}");
    assert_eq!(machine.table("vdb").len(), 2);
}

#[test]
fn layouts_that_make_no_sense_change_nothing() {
    for layout in [
        "[60, 60, 10]",
        "[x]",
        "[-1]",
        "[[50, 83, 1]]",
        "5",
        "{a: b}",
        "[50, [101, 83]]",
        "[1, 1, 1, 1, 1]",
        "[nan]",
        "[[100, ffff]]",
    ] {
        let machine = Machine::new(&[]);
        machine.disk("vdb", 64 * MIB);
        let done = run(&machine, &format!("disk_setup: {{vdb: {{layout: {layout}}}}}"));
        assert_eq!((done.warnings.len(), machine.table("vdb").len()), (1, 0), "{layout}: {:?}", done.warnings);
    }
}

#[test]
fn options_of_the_programs_that_make_file_systems() {
    let machine = Machine::new(&["mkfs.vfat", "mkfs.f2fs", "mkswap"]);
    machine.disk("vdb", 64 * MIB);
    machine.partition("vdb", 16 * MIB);
    for (definition, command) in [
        ("device: vdb.1, filesystem: vfat, label: EFI", "/usr/bin/mkfs.vfat -n EFI /dev/vdb1"),
        ("device: /dev/vdb.1, filesystem: VFAT", "/usr/bin/mkfs.vfat /dev/vdb1"),
        (
            "device: vdb, partition: 1, filesystem: f2fs, label: x, overwrite: true",
            "/usr/bin/mkfs.f2fs -l x -f /dev/vdb1",
        ),
        ("device: vdb, filesystem: swap", "/usr/bin/mkswap /dev/vdb1"),
        ("device: vdb1, filesystem: vfat, extra_opts: [-s, 4]", "/usr/bin/mkfs.vfat -s 4 /dev/vdb1"),
        ("device: vdb1, filesystem: vfat, extra_opts: -s  4", "/usr/bin/mkfs.vfat -s 4 /dev/vdb1"),
        (
            "device: vdb1, filesystem: x, label: l, cmd: [mk, '%(filesystem)s', '%(label)s', '%(device)s']",
            "mk x l /dev/vdb1",
        ),
        ("device: vdb1, label: l, cmd: 'mk %(label)s %(device)s'", "sh -c mk l /dev/vdb1"),
        ("device: vdb1, label: '', cmd: 'mk \"%(label)s\" %(device)s', extra_opts: []", "sh -c mk \"\" /dev/vdb1"),
    ] {
        let done = run(&machine, &format!("fs_setup: [{{{definition}}}]"));
        assert_eq!(done.commands, [command], "{definition}: {:?}", done.warnings);
    }
    for definition in [
        "device: vdb1",
        "filesystem: ext4",
        "device: vdb1, filesystem: ../x",
        "device: vdb, filesystem: vfat, partition: some",
    ] {
        let done = run(&machine, &format!("fs_setup: [{{{definition}}}]"));
        assert_eq!((done.commands.len(), done.warnings.len()), (0, 1), "{definition}");
    }
}

#[test]
fn replaces_only_the_file_system_to_replace() {
    let machine = Machine::new(&["mkfs.ext4"]);
    machine.disk("vdb", 64 * MIB);
    machine.partition("vdb", 16 * MIB);
    machine.open("vdb1").write_all_at(b"NTFS    ", 3).unwrap();
    let done = run(&machine, "fs_setup: [{device: vdb, filesystem: ext4, replace_fs: ntfs}]");
    assert_eq!(done.commands, ["/usr/bin/mkfs.ext4 -F /dev/vdb1"]);
    let done = run(&machine, "fs_setup: [{device: vdb, filesystem: ext4, replace_fs: xfs}]");
    assert_eq!((done.commands.len(), done.warnings.len()), (0, 1));
    machine.open("vdb1").write_all_at(&[0; 8], 3).unwrap();
    for replaced in ["ntfs", "false"] {
        let done = run(&machine, &format!("fs_setup: [{{device: vdb, filesystem: ext4, replace_fs: {replaced}}}]"));
        assert_eq!(done.commands, ["/usr/bin/mkfs.ext4 /dev/vdb1"], "nothing is replaced");
    }
}
