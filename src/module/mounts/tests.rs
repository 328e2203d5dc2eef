use super::*;
use crate::base::logging;
use crate::base::problem::Problems;
use crate::base::testing::TempDir;
use crate::document::{Map, yaml};
use crate::drive::devices::Places;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::Use;
use crate::system::{Device, Outside, WebRequest};

/// Devices by path or tag, with what is on them.
struct Devices(Vec<(&'static str, Option<&'static str>)>, Places);

impl Outside for Devices {
    fn device(&self, name: &str) -> Option<Device> {
        let (path, content) = self.0.iter().find(|(path, _)| *path == name)?;
        Some(Device { path: (*path).to_owned(), content: content.map(str::to_owned) })
    }
    fn places(&self) -> Option<Places> {
        Some(self.1.clone())
    }
    fn memory(&self) -> Option<u64> {
        Some(2 << 30)
    }
    fn http(&self, _: &WebRequest, _: u32) -> Result<Vec<u8>> {
        unreachable!()
    }
}

const ROOT_LINE: &str = "LABEL=root / ext4 defaults 0 1\n";

struct Machine {
    dir: TempDir,
    devices: Devices,
    instance: Instance,
}

impl Machine {
    fn new(fstab: &str) -> Machine {
        let dir = TempDir::new("mounts");
        dir.write("etc/fstab", fstab);
        let devices = vec![
            ("/dev/vdb", None),
            ("/dev/vdb1", Some("ext4")),
            ("/dev/vdc", Some("xfs")),
            ("/dev/vdd", None),
            ("/dev/vde", Some("crypto_LUKS")),
            ("/dev/vdf", Some("swap")),
            // A disk that was partitioned over a file system.
            ("/dev/vdg", Some("xfs")),
            ("/dev/vdg1", Some("ext4")),
            ("/dev/vdh", None),
            ("/dev/vdh1", None),
            ("/dev/vdh11", Some("ext4")),
            ("/dev/nbd0", Some("ext4")),
            ("LABEL=data", Some("ext4")),
        ];
        let names = devices.iter().filter_map(|(path, _)| path.strip_prefix("/dev/"));
        names.for_each(|name| show(&dir, name));
        let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
        Machine { dir, devices: Devices(devices, places), instance: Instance::default() }
    }

    /// The lines of fstab after the first, and the commands.
    fn run(&self, config: &str, handler: fn(&mut ModuleContext) -> Result<()>) -> (Vec<String>, Vec<String>) {
        let config = yaml::parse("cloud-config", config).unwrap();
        let mut root = self.dir.root(Use::Tree);
        let distro = Distro::named("debian");
        let report = Problems::new();
        let mut cx = ModuleContext {
            outside: &self.devices,
            ..ModuleContext::new(&mut root, &config, &self.instance, &distro, &report)
        };
        handler(&mut cx).unwrap();
        let commands = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        assert_eq!(root.commit(), []);
        let text = std::fs::read_to_string(self.dir.0.join("etc/fstab")).unwrap();
        verify(&self.dir);
        (text.lines().skip(1).map(str::to_owned).collect(), commands)
    }

    /// The report of the running system.
    fn warnings(&self, config: &str) -> Vec<String> {
        let config = yaml::parse("cloud-config", config).unwrap();
        let mut root = self.dir.root(Use::Tree);
        let report = Problems::new();
        let distro = Distro::named("debian");
        let mut cx = ModuleContext {
            outside: &self.devices,
            ..ModuleContext::new(&mut root, &config, &self.instance, &distro, &report)
        };
        running(&mut cx).unwrap();
        report.entries().iter().map(|e| e.to_string()).collect()
    }

    fn lines(&self, config: &str) -> Vec<String> {
        self.run(config, before_pivot).0
    }
}

/// Describes a disk or partition in sysfs.
fn show(dir: &TempDir, name: &str) {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let folder = match name.strip_prefix(disk) {
        Some(number) if !number.is_empty() && disk != "nbd" => {
            dir.write(&format!("sys/devices/{disk}/{name}/partition"), number);
            format!("{disk}/{name}")
        }
        _ => name.to_owned(),
    };
    dir.write(&format!("sys/devices/{folder}/size"), "8");
    dir.write(&format!("dev/{name}"), "");
    std::fs::create_dir_all(dir.0.join("sys/class/block")).unwrap();
    let link = dir.0.join("sys/class/block").join(name);
    std::os::unix::fs::symlink(format!("../../devices/{folder}"), link).unwrap();
}

/// util-linux reads what was written and finds no line that it cannot parse.
fn verify(dir: &TempDir) {
    let out =
        std::process::Command::new("findmnt").arg("--verify").arg("--tab-file").arg(dir.0.join("etc/fstab")).output();
    match out {
        Ok(out) => {
            let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert!(!said.contains("parse error") || said.contains("0 parse errors"), "{said}");
        }
        Err(e) => crate::base::testing::skip(format!("findmnt: {e}")),
    }
}

const TAIL: &str = "nofail,x-systemd.device-timeout=30s,comment=cloudconfig";
const ORDERED: &str = "nofail,x-systemd.before=local-fs.target,x-systemd.device-timeout=30s,comment=cloudconfig";
const DEFAULTS: &str =
    "defaults,nofail,x-systemd.before=local-fs.target,x-systemd.device-timeout=30s,comment=cloudconfig";

#[test]
fn finds_devices_by_every_name_with_nofail() {
    let machine = Machine::new(ROOT_LINE);
    for (entry, line) in [
        ("[/dev/vdb1, /data]", format!("/dev/vdb1\t/data\tauto\t{DEFAULTS}\t0\t2")),
        ("[vdb, /data]", format!("/dev/vdb1\t/data\tauto\t{DEFAULTS}\t0\t2")),
        ("[vdg, /data]", format!("/dev/vdg1\t/data\tauto\t{DEFAULTS}\t0\t2")),
        ("[/dev/vdg, /data]", format!("/dev/vdg1\t/data\tauto\t{DEFAULTS}\t0\t2")),
        ("[vdh.11, /data]", format!("/dev/vdh11\t/data\tauto\t{DEFAULTS}\t0\t2")),
        ("['srv:/x', /n]", "srv:/x\t/n\tauto\tdefaults,nofail,_netdev,comment=cloudconfig\t0\t2".into()),
        ("[srv, /n, glusterfs]", "srv\t/n\tglusterfs\tdefaults,nofail,_netdev,comment=cloudconfig\t0\t2".into()),
        ("[/dev/nbd0, /n]", format!("/dev/nbd0\t/n\tauto\tdefaults,nofail,_netdev,{}\t0\t2", &TAIL[7..])),
        // cloud-init's default options, written out.
        (
            "[vdc, /d, auto, 'nofail,x-systemd.after=cloud-init-network.service,_netdev']",
            format!("/dev/vdc\t/d\tauto\t{ORDERED}\t0\t2"),
        ),
        (
            "[vdc, /d, auto, 'noauto,x-systemd.requires=cloud-init.service,_netdev']",
            "/dev/vdc\t/d\tauto\tnoauto,comment=cloudconfig\t0\t2".into(),
        ),
        // Names of devices, but no device here has them.
        (
            "[root, /srv/host, virtiofs]",
            "root\t/srv/host\tvirtiofs\tdefaults,nofail,x-systemd.before=local-fs.target,comment=cloudconfig\t0\t2"
                .into(),
        ),
        ("[ebs/home, /h, zfs, nofail]", "ebs/home\t/h\tzfs\tnofail,comment=cloudconfig\t0\t2".into()),
        ("[vdc, /data, xfs, noatime]", format!("/dev/vdc\t/data\txfs\tnoatime,{ORDERED}\t0\t2")),
        ("[LABEL=data, /data, ext4, 'ro,nofail', 0, 0]", {
            "LABEL=data\t/data\text4\tro,nofail,x-systemd.device-timeout=30s,comment=cloudconfig\t0\t0".into()
        }),
        ("[vdc, /d, auto, 'x-systemd.device-timeout=5']", {
            "/dev/vdc\t/d\tauto\tx-systemd.device-timeout=5,nofail,x-systemd.before=local-fs.target,comment=cloudconfig\t0\t2".into()
        }),
        ("[vdf, none, swap, sw]", format!("/dev/vdf\tnone\tswap\tsw,{TAIL}\t0\t2")),
        ("[vdf, '', swap, sw]", format!("/dev/vdf\tnone\tswap\tsw,{TAIL}\t0\t2")),
        ("[/dev/sr0, /cd, auto, 'noauto,user']", {
            "/dev/sr0\t/cd\tauto\tnoauto,user,comment=cloudconfig\t0\t2".into()
        }),
        (
            "['srv:/x', /n, nfs, ro]",
            "srv:/x\t/n\tnfs\tro,nofail,x-systemd.before=remote-fs.target,comment=cloudconfig\t0\t2".into(),
        ),
        (
            "[//srv/x, /n, cifs, ro]",
            "//srv/x\t/n\tcifs\tro,nofail,x-systemd.before=remote-fs.target,comment=cloudconfig\t0\t2".into(),
        ),
        (
            "[tmpfs, /t, tmpfs, 'size=1G']",
            "tmpfs\t/t\ttmpfs\tsize=1G,nofail,x-systemd.before=local-fs.target,comment=cloudconfig\t0\t2".into(),
        ),
        ("[vdc, /d, auto, 'x-systemd.automount']", format!("/dev/vdc\t/d\tauto\tx-systemd.automount,{TAIL}\t0\t2")),
        ("[vdc, /d, auto, _netdev]", {
            let tail = TAIL.replacen(',', ",x-systemd.before=remote-fs.target,", 1);
            format!("/dev/vdc\t/d\tauto\t_netdev,{tail}\t0\t2")
        }),
        ("[/dev/vdz9, /d, auto, defaults]", format!("/dev/vdz9\t/d\tauto\tdefaults,{TAIL}\t0\t2")),
        (
            "[/a, /b, none, bind]",
            "/a\t/b\tnone\tbind,nofail,x-systemd.before=local-fs.target,comment=cloudconfig\t0\t2".into(),
        ),
    ] {
        assert_eq!(machine.lines(&format!("mounts: [{entry}]")), [line], "{entry}");
    }
}

#[test]
fn absent_or_empty_device_gets_its_line() {
    let machine = Machine::new(ROOT_LINE);
    for (entry, name) in [
        ("[/dev/vdz, /data]", "/dev/vdz"),
        ("[vdz1, /data]", "/dev/vdz1"),
        ("[vdz.2, /data]", "/dev/vdz2"),
        ("[LABEL=nothing, /data]", "LABEL=nothing"),
        ("[UUID=0000-0000, /data]", "UUID=0000-0000"),
        ("[/dev/vdd, /data]", "/dev/vdd"),
        ("[/dev/vde, /data]", "/dev/vde"),
        ("[/dev/vdf, /data]", "/dev/vdf"),
        ("[vdb.2, /data]", "/dev/vdb2"),
        ("[/dev/vdh1, /data]", "/dev/vdh1"),
        ("[vdh1, /data]", "/dev/vdh1"),
    ] {
        let config = format!("mounts: [{entry}]");
        assert_eq!(machine.lines(&config), [format!("{name}\t/data\tauto\tdefaults,{TAIL}\t0\t2")], "{entry}");
        // The mount may fail: that is reported, and is not a failure of the module.
        assert_eq!(machine.warnings(&config).len(), 1, "{entry}");
    }
    for entry in ["[ephemeral0, /data]", "[word, /data]", "[LABEL=, /data]", "[vdc, relative]"] {
        let config = format!("mounts: [{entry}]");
        assert_eq!(machine.lines(&config), [""; 0], "{entry}");
        assert_eq!(machine.warnings(&config).len(), 1, "{entry}");
    }
}

#[test]
fn running_system_mounts_a_late_device() {
    let mut machine = Machine::new(ROOT_LINE);
    let config = "mounts: [[vdz, /late]]";
    assert_eq!(machine.lines(config), [format!("/dev/vdz\t/late\tauto\tdefaults,{TAIL}\t0\t2")]);
    machine.devices.0.push(("/dev/vdz", Some("ext4")));
    let (lines, commands) = machine.run(config, running);
    assert_eq!(lines, [format!("/dev/vdz\t/late\tauto\t{DEFAULTS}\t0\t2")]);
    assert_eq!(commands, ["mount -a", "systemctl daemon-reload"]);

    // systemd mounts the entries that it has read from fstab, but a disk is mounted before scripts run.
    for (path, text) in [
        ("run/systemd/generator/late.mount", ""),
        ("run/systemd/generator/share.mount", ""),
        ("proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n"),
    ] {
        machine.dir.write(path, text);
    }
    let config = "mounts: [[vdz, /late], [server:/share, /share, nfs]]";
    machine.run(config, super::before_pivot);
    assert_eq!(machine.run(config, running).1, ["mount /late"]);
    std::fs::write(machine.dir.0.join("proc/self/mounts"), "/dev/vdz /late ext4 rw 0 0\n").unwrap();
    assert_eq!(machine.run(config, running).1, [""; 0]);
}

#[test]
fn new_file_system_gets_its_line_once_made() {
    // systemd would check the device as soon as it appears, and mkfs would find it in use.
    for made in ["fs_setup: [{device: vdz.1, filesystem: ext4}]", "disk_setup: {vdz: {layout: true}}"] {
        let mut machine = Machine::new(ROOT_LINE);
        let config = format!("{{mounts: [[vdz1, /new], [vdd, /empty], [vdb1, /old]], {made}}}");
        assert_eq!(machine.lines(&config), [format!("/dev/vdb1\t/old\tauto\t{DEFAULTS}\t0\t2")], "{made}");
        machine.devices.0.push(("/dev/vdz1", Some("ext4")));
        let (lines, commands) = machine.run(&config, running);
        assert_eq!(
            (lines.len(), commands),
            (3, vec!["mount -a".to_owned(), "systemctl daemon-reload".into()]),
            "{made}"
        );
    }
}

#[test]
fn local_stage_mounts_from_a_changed_disk() {
    let mounts = "[[vdb1, /old], [/old/home, /home, none, bind], [vdb1, /net, ext4, _netdev], [vdc, /other]]";
    let other = format!("/dev/vdc\t/other\tauto\t{DEFAULTS}\t0\t2");
    for made in [
        "fs_setup: [{device: vdb.1, filesystem: ext4, overwrite: true}]",
        "fs_setup: [{device: vdb, partition: 1}]",
        "disk_setup: {vdb: {layout: true, overwrite: true}}",
        "disk_setup: {mine: {layout: true}}, device_aliases: {mine: /dev/vdb}",
    ] {
        let machine = Machine::new(ROOT_LINE);
        let config = format!("{{mounts: {mounts}, {made}}}");
        assert_eq!(machine.lines(&config), [other.as_str()], "{made}");
        let (lines, commands) = machine.run(&config, before_services);
        assert_eq!(lines.len(), 4, "{made}: {lines:?}");
        assert_eq!(commands, ["mount /old", "mount /home", "mount /other", "systemctl daemon-reload"], "{made}");
        assert!(
            lines[3] == other && lines[2].contains("_netdev,nofail,x-systemd.before=remote-fs.target"),
            "{lines:?}"
        );
    }
    // A link of udev's that is not there yet may lead to any disk.
    let machine = Machine::new(ROOT_LINE);
    let config = "{mounts: [[vdc, /other]], disk_setup: {/dev/disk/by-id/x: {layout: true}}}";
    assert_eq!(machine.lines(config), [""; 0]);
}

#[test]
fn local_stage_mounts_present_devices_unknown_to_systemd() {
    let machine = Machine::new(ROOT_LINE);
    let config = "mounts: [[vdc, /data], [vdz, /late], ['srv:/x', /n, nfs, defaults], [vdf, none, swap]]";
    let (lines, commands) = machine.run(config, before_services);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(commands, ["mount /data", "swapon -a", "systemctl daemon-reload"]);
    machine.dir.write("run/systemd/generator/data.mount", "");
    let (again, commands) = machine.run(config, before_services);
    assert_eq!((again, commands), (lines, Vec::new()));
}

#[test]
fn nothing_is_awaited_before_what_it_depends_on() {
    let before = |fstab: &str, mounts: &str| {
        let lines = Machine::new(&format!("{ROOT_LINE}{fstab}")).lines(&format!("mounts: [{mounts}]"));
        let targets = lines.iter().filter(|line| fstab::is_ours(line)).map(|line| {
            let target = line.split(',').find_map(|o| o.strip_prefix("x-systemd.before="));
            target.map_or("-", |target| target.split('-').next().unwrap()).to_owned()
        });
        targets.collect::<Vec<_>>().join(" ")
    };
    for (fstab, mounts, targets) in [
        ("", "[vdb, /data], [/data/home, /home, none, bind]", "local local"),
        ("", "[vdb, /data], [vdc, /data/db, ext4, 'defaults,noatime']", "local local"),
        ("", "['srv:/e', /nfs, nfs, defaults], [/nfs/home, /home, none, bind]", "remote remote"),
        ("", "[/nfs/home, /home, none, bind], ['srv:/e', /nfs, nfs]", "- -"),
        ("", "[/b/x, /c, none, bind], [/a/x, /b, none, bind], ['srv:/e', /a/, nfs, defaults]", "remote remote remote"),
        ("", "[vdz, /data], [/data/home, /home, none, bind], [vdc, /data/db]", "- - -"),
        ("", "[vdz, '/my data'], ['/my data/i.img', /img, ext4, loop]", "- -"),
        ("", "[vdb, /data, ext4, 'defaults,x-systemd.automount'], [vdc, /data/db]", "- -"),
        ("", "[vdb, /data, ext4, 'noauto'], [vdc, /data/db], [vdc, /database]", "- - local"),
        ("srv:/e /nfs nfs defaults 0 0\n", "[/nfs/home, /home, none, bind]", "remote"),
        ("srv:/e /nfs/ nfs nofail 0 0\n", "[vdc, /nfs/home]", "-"),
        ("/dev/vdq /my\\040data ext4 nofail 0 0\n", "[vdc, '/my data/x']", "-"),
        ("/dev/vdq /data ext4 defaults 0 0\n", "[vdc, /data/x]", "local"),
        ("", "[overlay, /m, overlay, 'lowerdir=/data/l,x-systemd.requires-mounts-for=/data'], [vdb, /data]", "- local"),
        (
            "",
            "[vdb, /data, ext4, x-systemd.wanted-by=a.service], [vdc, /d, ext4, x-systemd.required-by=a.service]",
            "- -",
        ),
    ] {
        assert_eq!(before(fstab, mounts), targets, "{fstab}{mounts}");
    }
}

#[test]
fn replaces_our_earlier_lines_and_keeps_others() {
    let others = "# a comment, comment=cloudconfig\n\n/dev/x\t/x  ext4 defaults\n";
    let machine = Machine::new(&format!("{ROOT_LINE}{others}/dev/old /old auto defaults,comment=cloudconfig 0 2\n"));
    let kept = machine.lines("{}");
    assert_eq!(kept.len(), 4, "nothing is asked for: nothing changes: {kept:?}");
    let lines = machine.lines("mounts: [[vdc, /data]]");
    assert_eq!(format!("{}\n", lines[..3].join("\n")), others);
    assert_eq!(lines.len(), 4);
    assert!(lines[3].starts_with("/dev/vdc\t/data\t"));
    assert_eq!(machine.lines("mounts: [[vdc, /data]]"), lines, "a second time changes nothing");
    assert_eq!(machine.lines("mounts: [[vdc, /x]]").len(), 3, "the image's own line for a mount point wins");
}

#[test]
fn the_sources_names_and_the_users_aliases() {
    let mut machine = Machine::new(ROOT_LINE);
    machine.instance.device_names =
        [("ephemeral0", "sdb"), ("swap", "sdf"), ("ami", "sda1")].into_iter().collect::<Map>();
    let lines = machine.lines("{}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("/dev/vdb1\t/mnt\tauto\t"), "{lines:?}");
    assert!(lines[1].starts_with("/dev/vdf\tnone\tswap\tsw,nofail"), "{lines:?}");
    let mut lines = Vec::new();
    let aliased = "{mounts: [[ephemeral0.1, /e], [mine, /m]], device_aliases: {mine: /dev/vdc}}";
    let messages = logging::capture(|| lines = machine.lines(aliased));
    for text in ["changed ephemeral0.1 => /dev/vdb1", "changed mine => /dev/vdc"] {
        assert!(messages.iter().any(|message| message.text == text), "{text}");
    }
    assert!(lines[0].starts_with("/dev/vdb1\t/e\t") && lines[1].starts_with("/dev/vdc\t/m\t"), "{lines:?}");
    for entry in ["[ephemeral0, null]", "[ephemeral0]", "[/dev/vdb1, '']"] {
        let lines = machine.lines(&format!("mounts: [{entry}]"));
        assert!(lines.len() == 1 && lines[0].starts_with("/dev/vdf\t"), "{entry}: {lines:?}");
    }
    let lines = machine.lines("mounts: [[ephemeral0, null], [ephemeral0, /e]]");
    assert!(lines.len() == 2 && lines[0].starts_with("/dev/vdb1\t/e\t"), "{lines:?}");
}

#[test]
fn finds_openstacks_disks_by_label_without_usable_metadata() {
    let mut machine = Machine::new(ROOT_LINE);
    machine.devices.0.extend([("LABEL=ephemeral0", Some("ext4")), ("TYPE=swap", Some("swap"))]);
    for (source, names, expected) in [
        ("NoCloud", &[][..], &[][..]),
        ("OpenStack", &[], &["LABEL=ephemeral0\t/mnt\tauto\t", "TYPE=swap\tnone\tswap\tsw,nofail"]),
        ("ConfigDrive", &[("ephemeral0", "sda2"), ("swap", "sdf")], &["LABEL=ephemeral0\t/mnt\t", "/dev/vdf\tnone\t"]),
        ("ConfigDrive", &[("ephemeral0", "sdb"), ("swap", "sdf")], &["/dev/vdb1\t/mnt\t", "/dev/vdf\tnone\t"]),
    ] {
        machine.instance.source = source.into();
        machine.instance.device_names = names.iter().copied().collect::<Map>();
        let lines = machine.lines("{}");
        let is_expected = lines.iter().zip(expected).all(|(line, start)| line.starts_with(start));
        assert!(lines.len() == expected.len() && is_expected, "{source}: {lines:?}");
    }
    machine.devices.0.retain(|(name, _)| !name.contains('='));
    machine.instance.device_names = Map::new();
    assert_eq!(machine.lines("mounts: [[ephemeral0, /e]]"), [""; 0]);
}

#[test]
fn does_not_mount_the_images_disk_again() {
    let mut machine = Machine::new(&format!("{ROOT_LINE}/dev/vdb1 /scratch ext4 defaults 0 2\n"));
    machine.instance.device_names = [("ephemeral0", "sdb")].into_iter().collect::<Map>();
    assert_eq!(machine.lines("{}"), ["/dev/vdb1 /scratch ext4 defaults 0 2"]);
    let lines = machine.lines("mounts: [[ephemeral0, /own]]");
    assert!(lines.len() == 2 && lines[1].starts_with("/dev/vdb1\t/own\t"), "{lines:?}");
}

#[test]
fn no_value_adds_a_line_or_field() {
    let machine = Machine::new(ROOT_LINE);
    let hostile = [
        "a b",
        "a\\nb",
        "a\\tb",
        "\\n/dev/evil / ext4 defaults 0 0\\n",
        "#x",
        "\\\\",
        "\\r",
        "\\u2028",
        "\\0",
        "",
        ",,,",
        "nofail\\n",
        "..",
        "/../..",
        "'",
        "\\\"",
        "%s",
        "LABEL=",
        "=",
        ":",
        "//",
        "ü",
    ];
    let fields = ["/dev/vdc", "/data", "auto", "defaults", "0", "2"];
    let mut all = String::new();
    for value in hostile {
        for at in 0..6 {
            let words: Vec<String> =
                (0..6).map(|i| format!("\"{}\"", if i == at { value } else { fields[i] })).collect();
            for config in [
                format!("mounts: [[{}]]", words.join(", ")),
                format!("{{mount_default_fields: [null, null, {}], mounts: [[vdc, /d]]}}", words[2..].join(", ")),
            ] {
                let lines = machine.lines(&config);
                assert!(lines.len() <= 1, "{config}: {lines:?}");
                for line in lines {
                    all += &format!("{line}\n");
                    assert_eq!(line.split('\t').count(), 6, "{config}: {line:?}");
                    assert_eq!(line.split([' ', '\t']).filter(|f| !f.is_empty()).count(), 6, "{config}: {line:?}");
                    assert!(line.contains("nofail"), "{config}: {line:?}");
                }
            }
        }
    }
    // libmount takes each of the lines.
    let table = machine.dir.0.join("all-lines");
    std::fs::write(&table, all).unwrap();
    match std::process::Command::new("findmnt").args(["--verify", "--tab-file"]).arg(&table).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("0 parse errors"), "{said}");
        }
        Err(e) => crate::base::testing::skip(format!("findmnt: {e}")),
    }
    for config in ["{mounts: 5}", "{mounts: [5, null, {a: b}, [], [[]], [null], [vdc]]}", "{swap: [], mounts: []}"] {
        let parsed = yaml::parse("t", config).unwrap();
        let mut root = machine.dir.root(Use::Tree);
        let distro = Distro::named("debian");
        let report = Problems::new();
        let mut cx = ModuleContext {
            outside: &machine.devices,
            ..ModuleContext::new(&mut root, &parsed, &machine.instance, &distro, &report)
        };
        let _ = before_pivot(&mut cx);
        let _ = running(&mut cx);
    }
}

#[test]
fn running_system_makes_swap_file_with_one_line() {
    let machine = Machine::new(ROOT_LINE);
    let config = "swap: {filename: /swap.img, size: auto, maxsize: 10G}";
    assert_eq!(machine.lines(config), [""; 0], "no line before there is a file");
    let (lines, commands) = machine.run(config, running);
    assert_eq!(lines, ["/swap.img\tnone\tswap\tsw,nofail\t0\t0"]);
    assert_eq!(
        commands,
        ["fallocate -l 2048M /swap.img", "mkswap /swap.img", "swapon -a", "mount -a", "systemctl daemon-reload"]
    );
    assert_eq!(machine.run(config, running).0.len(), 1);
    assert_eq!(machine.run("swap: {size: 1Q}", running).1, [""; 0]);
    assert_eq!(machine.warnings("swap: {size: 512, filename: /s}").len(), 1, "a size without a unit is bytes");
}

/// A machine whose devices cannot be looked at.
struct Unseen;

impl Outside for Unseen {
    fn device(&self, _: &str) -> Option<Device> {
        None
    }
    fn knows_devices(&self) -> bool {
        false
    }
    fn memory(&self) -> Option<u64> {
        None
    }
    fn http(&self, _: &WebRequest, _: u32) -> Result<Vec<u8>> {
        unreachable!()
    }
}

#[test]
fn keeps_another_machines_devices_as_given() {
    let dir = TempDir::new("mounts-unseen");
    dir.write("dev/null", "");
    let config = Value::default();
    let resolve = |spec: &str| {
        let mut root = dir.root(Use::Plan);
        let instance = Instance::default();
        let distro = Distro::named("debian");
        let report = Problems::new();
        let cx =
            ModuleContext { outside: &Unseen, ..ModuleContext::new(&mut root, &config, &instance, &distro, &report) };
        device::resolve(&cx, spec, "auto", "defaults")
    };
    let device = |path: &str| What::Device(path.into());
    for (spec, path) in [
        ("/dev/vdb1", "/dev/vdb1"),
        ("vdb", "/dev/vdb"),
        ("vdb.2", "/dev/vdb2"),
        ("nvme0n1.1", "/dev/nvme0n1p1"),
        ("LABEL=data", "LABEL=data"),
    ] {
        assert_eq!(resolve(spec), device(path), "{spec}");
    }
    assert_eq!(resolve("ephemeral0"), What::Unknown);
    for name in ["vdb", "vdb1", "vdc"] {
        std::fs::write(dir.0.join("dev").join(name), "").unwrap();
    }
    assert_eq!((resolve("vdb"), resolve("/dev/vdc")), (device("/dev/vdb1"), device("/dev/vdc")));
    for spec in ["/dev/vdd", "vdb.2", "sda"] {
        assert!(matches!(resolve(spec), What::Late(..)), "{spec}");
    }
}
