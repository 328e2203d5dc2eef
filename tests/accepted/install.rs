//! `initramfs/install`: what it puts into a root tree, and that the units it puts there make a boot without a cycle.

use prepivot::base::testing::TempDir;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// A program that prints its arguments: `completions bash`.
const PROGRAM: &[u8] = b"#!/bin/sh\necho \"$@\"\n";

/// Everything that an install makes: a path and its mode, or a path and what it links to.
const TREE: &[(&str, &str)] = &[
    ("usr/bin/cloud-id", "-> prepivot"),
    ("usr/bin/cloud-init", "-> prepivot"),
    ("usr/bin/cloud-init-per", "-> prepivot"),
    ("usr/bin/prepivot", "755"),
    ("usr/lib/dracut/modules.d/55prepivot/module-setup.sh", "755"),
    ("usr/lib/dracut/modules.d/55prepivot/prepivot-apply.sh", "755"),
    ("usr/lib/initcpio/hooks/prepivot", "644"),
    ("usr/lib/initcpio/install/prepivot", "644"),
    ("usr/lib/systemd/system/initrd.target.wants/prepivot-apply.service", "-> ../prepivot-apply.service"),
    ("usr/lib/systemd/system/nftables.service.wants/prepivot-close.service", "-> ../prepivot-close.service"),
    ("usr/lib/systemd/system/prepivot-apply.service", "644"),
    ("usr/lib/systemd/system/prepivot-close.service", "644"),
    ("usr/lib/systemd/system/prepivot-emergency.service", "644"),
    ("usr/lib/udev/rules.d/66-azure-ephemeral.rules", "644"),
    ("usr/local/lib/systemd/system/cloud-config.service", "644"),
    ("usr/local/lib/systemd/system/cloud-config.target", "644"),
    ("usr/local/lib/systemd/system/cloud-final.service", "644"),
    ("usr/local/lib/systemd/system/cloud-init-hotplugd.service", "644"),
    ("usr/local/lib/systemd/system/cloud-init-hotplugd.socket", "644"),
    ("usr/local/lib/systemd/system/cloud-init-local.service", "644"),
    ("usr/local/lib/systemd/system/cloud-init-main.service", "-> /dev/null"),
    ("usr/local/lib/systemd/system/cloud-init-network.service", "644"),
    ("usr/local/lib/systemd/system/cloud-init.service", "-> cloud-init-network.service"),
    ("usr/local/lib/systemd/system/cloud-init.target", "644"),
    ("usr/local/lib/systemd/system/multi-user.target.wants/cloud-init.target", "-> ../cloud-init.target"),
    ("usr/local/lib/systemd/system/sshd-keygen.service.d/cloud-init.conf", "644"),
    ("usr/local/lib/systemd/system/sshd-keygen@.service.d/cloud-init.conf", "644"),
    ("usr/local/lib/systemd/system/systemd-imds-early-network.service.d/cloud-init.conf", "644"),
    ("usr/local/lib/systemd/system/systemd-imds-import.service.d/cloud-init.conf", "644"),
    ("usr/share/bash-completion/completions/cloud-id", "-> prepivot"),
    ("usr/share/bash-completion/completions/cloud-init", "-> prepivot"),
    ("usr/share/bash-completion/completions/cloud-init-per", "-> prepivot"),
    ("usr/share/bash-completion/completions/prepivot", "644"),
    ("usr/share/fish/vendor_completions.d/cloud-id.fish", "-> prepivot.fish"),
    ("usr/share/fish/vendor_completions.d/cloud-init-per.fish", "-> prepivot.fish"),
    ("usr/share/fish/vendor_completions.d/cloud-init.fish", "-> prepivot.fish"),
    ("usr/share/fish/vendor_completions.d/prepivot.fish", "644"),
    ("usr/share/initramfs-tools/hooks/prepivot", "755"),
    ("usr/share/initramfs-tools/scripts/init-bottom/prepivot", "755"),
    ("usr/share/man/man1/cloud-id.1", "-> cloud-init.1"),
    ("usr/share/man/man1/cloud-init-per.1", "-> cloud-init.1"),
    ("usr/share/man/man1/cloud-init.1", "644"),
    ("usr/share/man/man7/prepivot-architecture.7", "644"),
    ("usr/share/man/man7/prepivot-changes.7", "644"),
    ("usr/share/man/man7/prepivot-cmdline.7", "644"),
    ("usr/share/man/man7/prepivot-datasources.7", "644"),
    ("usr/share/man/man7/prepivot-differences.7", "644"),
    ("usr/share/man/man7/prepivot-images.7", "644"),
    ("usr/share/man/man7/prepivot-modules.7", "644"),
    ("usr/share/man/man7/prepivot-network.7", "644"),
    ("usr/share/man/man7/prepivot-trust.7", "644"),
    ("usr/share/man/man8/prepivot.8", "644"),
    ("usr/share/prepivot/drivers", "644"),
    ("usr/share/zsh/site-functions/_prepivot", "644"),
];

/// A root tree below a temporary folder, and a program to install.
struct Tree {
    folder: TempDir,
}

impl Tree {
    fn new() -> Self {
        let folder = TempDir::new("install");
        fs::write(folder.0.join("program"), PROGRAM).unwrap();
        fs::set_permissions(folder.0.join("program"), PermissionsExt::from_mode(0o755)).unwrap();
        fs::create_dir(folder.0.join("root")).unwrap();
        Tree { folder }
    }

    fn path(&self, inside: &str) -> std::path::PathBuf {
        self.folder.0.join("root").join(inside)
    }

    fn install(&self, more: &[&str]) -> Output {
        Command::new("initramfs/install")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .arg("--root")
            .arg(self.folder.0.join("root"))
            .arg("--binary")
            .arg(self.folder.0.join("program"))
            .args(more)
            .output()
            .expect("failed to run initramfs/install")
    }

    /// The install's lines; it must succeed and say nothing on stderr.
    fn installed(&self, more: &[&str]) -> Vec<String> {
        let output = self.install(more);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
    }

    fn files(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        walk(&self.path(""), "", &mut found);
        found
    }
}

fn walk(folder: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}{}", entry.file_name().to_string_lossy());
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            walk(&entry.path(), &format!("{name}/"), found);
        } else if meta.is_symlink() {
            found.insert(name, format!("-> {}", fs::read_link(entry.path()).unwrap().display()));
        } else {
            found.insert(name, format!("{:o}", meta.mode() & 0o7777));
        }
    }
}

#[test]
fn installs_everything_at_standard_place_and_mode() {
    let tree = Tree::new();
    let lines = tree.installed(&[]);
    let expected: BTreeMap<String, String> = TREE.iter().map(|(p, m)| (p.to_string(), m.to_string())).collect();
    assert_eq!(tree.files(), expected);
    assert_eq!(lines.len(), TREE.len(), "one line for each: {lines:#?}");
    assert_eq!(fs::read(tree.path("usr/bin/prepivot")).unwrap(), PROGRAM);
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    let tree = Tree::new();
    let run = format!(
        "umask 077; exec initramfs/install --root {} --binary {}",
        tree.path("").display(),
        tree.folder.0.join("program").display()
    );
    let status = Command::new("sh").current_dir(env!("CARGO_MANIFEST_DIR")).args(["-c", &run]).output().unwrap().status;
    assert!(status.success());
    assert_eq!(tree.files().get("usr/share/prepivot/drivers").map(String::as_str), Some("644"));
    assert_eq!(fs::metadata(tree.path("usr/share/prepivot")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn a_second_install_changes_nothing() {
    let tree = Tree::new();
    tree.installed(&[]);
    let inode = |name: &str| fs::symlink_metadata(tree.path(name)).unwrap().ino();
    let before: Vec<u64> = TREE.iter().map(|(p, _)| inode(p)).collect();
    for line in tree.installed(&[]) {
        assert!(line.starts_with("unchanged "), "{line}");
    }
    let after: Vec<u64> = TREE.iter().map(|(p, _)| inode(p)).collect();
    assert_eq!(before, after);
}

#[test]
fn what_differs_is_put_right_and_named() {
    let tree = Tree::new();
    tree.installed(&[]);
    let unit = tree.path("usr/lib/systemd/system/prepivot-apply.service");
    fs::write(&unit, "[Unit]\n").unwrap();
    fs::set_permissions(tree.path("usr/bin/prepivot"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(tree.path("usr/bin/cloud-id")).unwrap();
    symlink("elsewhere", tree.path("usr/bin/cloud-id")).unwrap();

    let changed: Vec<String> = tree.installed(&[]).into_iter().filter(|l| !l.starts_with("unchanged ")).collect();
    assert_eq!(
        changed,
        [
            "installed /usr/bin/prepivot",
            "linked    /usr/bin/cloud-id -> prepivot",
            "installed /usr/lib/systemd/system/prepivot-apply.service",
        ]
    );
    assert_ne!(fs::read(unit).unwrap(), b"[Unit]\n");
    assert_eq!(tree.files().get("usr/bin/prepivot").map(String::as_str), Some("755"));
}

#[test]
fn keeps_and_reports_an_existing_cloud_init() {
    let tree = Tree::new();
    let command = tree.path("usr/bin/cloud-init");
    let unit = tree.path("usr/lib/systemd/system/cloud-init-local.service");
    let page = tree.path("usr/share/man/man1/cloud-init.1.gz");
    let rule = tree.path("usr/lib/udev/rules.d/66-azure-ephemeral.rules");
    for (path, text) in [
        (&command, "#!/usr/bin/python3\n"),
        (&rule, "# Azure\n"),
        (&unit, "ExecStart=/usr/bin/cloud-init init --local\n"),
        (&page, "cloud-init's manual page\n"),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    let lines = tree.installed(&[]);
    let kept: Vec<&String> = lines.iter().filter(|l| l.starts_with("kept ")).collect();
    assert_eq!(kept.len(), 4, "{lines:#?}");
    assert!(kept[0].contains("/usr/bin/cloud-init ") && kept[3].contains("/usr/lib/systemd/system/cloud-"));
    assert!(kept[1].contains("/66-azure-ephemeral.rules ") && kept[2].contains("/usr/share/man/man1/cloud-init.1 "));
    assert_eq!(fs::read_to_string(&rule).unwrap(), "# Azure\n");
    assert_eq!(fs::read_to_string(&command).unwrap(), "#!/usr/bin/python3\n");
    assert_eq!(fs::read_to_string(&unit).unwrap(), "ExecStart=/usr/bin/cloud-init init --local\n");

    let files = tree.files();
    assert!(!files.keys().any(|path| path.ends_with("/cloud-final.service")), "half of the units: {files:#?}");
    assert!(!files.contains_key("usr/share/man/man1/cloud-init.1"), "{files:#?}");
    assert_eq!(files.get("usr/bin/cloud-id").map(String::as_str), Some("-> prepivot"));
    assert!(files.contains_key("usr/lib/systemd/system/prepivot-apply.service"));
}

/// Debian 11 without merged /usr: cloud-init's units are below /lib.
#[test]
fn a_cloud_init_below_lib_is_seen() {
    let tree = Tree::new();
    let theirs = ["lib/systemd/system/cloud-init-local.service", "lib/udev/rules.d/66-azure-ephemeral.rules"];
    for path in theirs.map(|path| tree.path(path)) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "ExecStart=/usr/bin/cloud-init init --local\n").unwrap();
    }
    let lines = tree.installed(&[]);
    assert_eq!(lines.iter().filter(|l| l.starts_with("kept ")).count(), 2, "{lines:#?}");
    let files = tree.files();
    assert!(!files.keys().any(|path| path.ends_with("/cloud-final.service")), "{files:#?}");
    assert!(!files.contains_key("usr/lib/udev/rules.d/66-azure-ephemeral.rules"), "{files:#?}");
}

/// What a package of cloud-init puts over an install, as a package manager does: without asking, and away again.
#[test]
fn later_cloud_init_changes_no_unit() {
    let tree = Tree::new();
    tree.installed(&[]);
    let before = tree.files();
    let theirs = ["cloud-init-local.service", "cloud-init.service", "cloud-config.service", "cloud-init-main.service"];
    for name in theirs {
        fs::write(tree.path(&format!("usr/lib/systemd/system/{name}")), "ExecStart=/usr/bin/cloud-init\n").unwrap();
    }
    for line in tree.installed(&[]) {
        assert!(line.starts_with("unchanged "), "{line}");
    }
    for name in theirs {
        fs::remove_file(tree.path(&format!("usr/lib/systemd/system/{name}"))).unwrap();
    }
    assert_eq!(tree.files(), before);
}

/// The masks of a package of cloud-init that was removed would switch off what has its names; the administrator's stay.
#[test]
fn units_that_a_removed_package_masked_are_unmasked() {
    let tree = Tree::new();
    let (masks, notes) = (tree.path("etc/systemd/system"), tree.path("var/lib/systemd/deb-systemd-helper-masked"));
    fs::create_dir_all(&masks).unwrap();
    fs::create_dir_all(&notes).unwrap();
    for name in ["cloud-init-local.service", "cloud-init.service", "cloud-final.service", "cloud-init-hotplugd.socket"]
    {
        symlink("/dev/null", masks.join(name)).unwrap();
    }
    fs::write(notes.join("cloud-init-local.service"), "").unwrap();
    fs::write(notes.join("cloud-init.service"), "").unwrap();
    fs::write(notes.join("cloud-init-hotplugd.socket"), "").unwrap();
    let lines = tree.installed(&[]);
    assert!(lines.contains(&"unmasked  /etc/systemd/system/cloud-init-local.service".to_owned()), "{lines:#?}");
    let left: Vec<String> =
        tree.files().into_keys().filter(|p| p.starts_with("etc/") || p.starts_with("var/")).collect();
    assert_eq!(left, ["etc/systemd/system/cloud-final.service"]);
}

#[test]
fn package_installs_units_in_packages_folder() {
    let tree = Tree::new();
    tree.installed(&["--package"]);
    let expected: BTreeMap<String, String> = TREE
        .iter()
        .filter(|(path, _)| !path.ends_with("/cloud-init-main.service"))
        .map(|(path, mode)| (path.replace("usr/local/lib/", "usr/lib/"), mode.to_string()))
        .collect();
    assert_eq!(tree.files(), expected);
}

#[test]
fn initrd_gets_the_program_and_own_units() {
    let tree = Tree::new();
    let program = tree.folder.0.join("program").display().to_string();
    let run = |more: &[&str]| {
        let output = Command::new("initramfs/install")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["--binary", &program, "--initrd"])
            .arg(tree.path(""))
            .args(more)
            .output()
            .expect("failed to run initramfs/install");
        assert!(output.status.success(), "{output:?}");
    };
    run(&[]);
    let units = "usr/lib/systemd/system";
    let mut expected = BTreeMap::from([("usr/bin/prepivot".to_owned(), "755".to_owned())]);
    let link = format!("{units}/initrd.target.wants/prepivot-apply.service");
    expected.insert(link, "-> ../prepivot-apply.service".to_owned());
    for name in ["apply", "emergency"] {
        expected.insert(format!("{units}/prepivot-{name}.service"), "644".to_owned());
    }
    assert_eq!(tree.files(), expected);
    run(&["--remove"]);
    assert_eq!(tree.files(), BTreeMap::new());
}

#[test]
fn remove_deletes_only_our_files() {
    let tree = Tree::new();
    tree.installed(&["--package"]);
    tree.installed(&[]);
    let theirs = [
        "usr/bin/cloud-id",
        "usr/bin/other",
        "usr/lib/systemd/system/cloud-final.service",
        "usr/lib/udev/rules.d/66-azure-ephemeral.rules",
    ];
    for path in theirs {
        let _ = fs::remove_file(tree.path(path));
        fs::write(tree.path(path), "theirs\n").unwrap();
    }
    let lines = tree.installed(&["--remove"]);
    assert!(lines.iter().all(|line| line.starts_with("removed ")), "{lines:#?}");
    assert_eq!(tree.files().into_keys().collect::<Vec<_>>(), theirs);
    assert!(!tree.path("usr/share/prepivot").exists() && !tree.path("usr/local/lib/systemd").exists());
    assert_eq!(tree.installed(&["--remove"]), [""; 0]);
}

#[test]
fn list_names_everything_and_changes_nothing() {
    let tree = Tree::new();
    let lines = tree.installed(&["--list"]);
    assert!(tree.files().is_empty());
    for (path, what) in TREE {
        let line = match what.strip_prefix("-> ") {
            Some(target) => format!("link      /{path} -> {target}"),
            None => format!("0{what}      /{path}"),
        };
        assert!(lines.contains(&line), "{line} is not in {lines:#?}");
    }
    assert_eq!(lines.len(), TREE.len());
}

#[test]
fn missing_program_and_wrong_option_explain_remedy() {
    let tree = Tree::new();
    fs::remove_file(tree.folder.0.join("program")).unwrap();
    for (more, say) in [(&[][..], "run initramfs/build first"), (&["--wrong"], "unknown option --wrong")] {
        let output = tree.install(more);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(say), "{said}");
    }
    assert!(tree.files().is_empty());
}

/// kmod is replaced: it prints the path of a module below the root, and what modprobe.d has for it.
#[test]
fn reads_modules_from_root_path_with_space() {
    let cpio = Command::new("cpio").arg("--version").output();
    if !cpio.is_ok_and(|output| output.status.success()) {
        prepivot::base::testing::skip("cpio is not installed");
        return;
    }
    let tree = Tree::new();
    let folder = &tree.folder.0;
    let modules = folder.join("my root/lib/modules/6.1");
    fs::create_dir_all(&modules).unwrap();
    for name in ["x.ko", "modules.dep"] {
        fs::write(modules.join(name), "").unwrap();
    }
    fs::create_dir(folder.join("bin")).unwrap();
    let modprobe = "echo builtin y\necho \"insmod $2/lib/modules/$4/x.ko option=1\"\n";
    for (name, script) in [("modprobe", modprobe), ("depmod", "")] {
        let path = folder.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let made = Command::new("initramfs/image")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", path)
        .arg(folder.join("my image"))
        .arg("--binary")
        .arg(folder.join("program"))
        .arg("--root")
        .arg(folder.join("my root"))
        .args(["--module", "x"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let image = fs::read(folder.join("my image")).unwrap();
    let name = b"usr/lib/modules/6.1/x.ko\0";
    assert!(image.windows(name.len()).any(|window| window == name));
}

/// The program writes the same units to /run for an image without them, with its own path in this one's place.
#[test]
fn stage_units_run_installed_program_honouring_switches() {
    let stages = [
        ("cloud-init-local", "init --local"),
        ("cloud-init-network", "init"),
        ("cloud-config", "modules --mode=config"),
        ("cloud-final", "modules --mode=final"),
    ];
    for (name, verb) in stages {
        let path = format!("{}/initramfs/units/{name}.service", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap();
        for line in [
            &format!("ExecStart=/usr/bin/prepivot {verb}"),
            "ConditionPathExists=!/etc/cloud/cloud-init.disabled",
            "ConditionKernelCommandLine=!cloud-init=disabled",
            "ConditionEnvironment=!KERNEL_CMDLINE=cloud-init=disabled",
            "RemainAfterExit=yes",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {path}");
        }
        assert_eq!(text.matches("/usr/bin/prepivot").count(), 1, "{path}");
    }
}

#[test]
fn systemd_finds_units_valid_and_free_of_cycles() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        prepivot::base::testing::skip("no systemd-analyze");
        return;
    }
    let tree = Tree::new();
    tree.installed(&["--package"]);
    let units = tree.path("usr/lib/systemd/system");
    for (stages, text) in [(true, ""), (false, "After=multi-user.target\nBefore=sysinit.target\n")] {
        let dropin = units.join("cloud-init-network.service.d");
        fs::create_dir_all(&dropin).unwrap();
        fs::write(dropin.join("order.conf"), format!("[Unit]\n{text}")).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "multi-user.target", "prepivot-apply.service", "prepivot-close.service"])
            .env("SYSTEMD_UNIT_PATH", format!("{}:", units.display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // The program is in the tree and not on this machine; units of this machine's own are its own matter.
        let ours: Vec<&str> = said
            .lines()
            .filter(|l| (l.contains("cloud-") || l.contains("prepivot")) && !l.contains("is not executable"))
            .collect();
        // The second round puts a cycle there, so that the first is known to look for one.
        assert_eq!(ours.is_empty(), stages, "{said}");
    }
}

/// udev itself, with sysfs's folders made by hand: the disks of virtual machines of both generations, and others beside them.
#[test]
fn azures_disks_have_the_names_that_fstab_uses() {
    let disks = [
        ("{00000000-0000-8899-0000-000000000000}", "4:0:0:0", "azure_root"),
        ("{00000000-0001-8899-0000-000000000000}", "5:0:1:0", "azure_resource"),
        ("{f8b3781a-1e82-4818-a1c3-63d806ec15bb}", "0:0:0:0", "azure_root"),
        ("{f8b3781a-1e82-4818-a1c3-63d806ec15bb}", "0:0:0:1", "azure_resource"),
        ("{f8b3781a-1e82-4818-a1c3-63d806ec15bb}", "0:0:0:11", ""),
        ("{f8b3781b-1e82-4818-a1c3-63d806ec15bb}", "0:0:0:1", ""),
    ];
    let mut script = "set -e\nfor folder in /dev /run /sys; do mount -t tmpfs t $folder; done\nmkdir -p /run/udev/rules.d /sys/class/block\n\
                      cp initramfs/66-azure-ephemeral.rules /run/udev/rules.d/\nexport SYSTEMD_DEVICE_VERIFY_SYSFS=0\n"
        .to_owned();
    for (number, (id, address, _)) in disks.iter().enumerate() {
        let at = format!("/sys/devices/vmbus{number}");
        let scsi = format!("{at}/host0/target0:0:0/{address}");
        let disk = format!("{scsi}/block/sdx");
        script += &format!(
            "mkdir -p /sys/bus/vmbus /sys/bus/scsi {disk}/sdx1\necho '{id}' >{at}/device_id\nln -s /sys/bus/vmbus {at}/subsystem\n\
             for at in {scsi}/../.. {scsi}/.. {scsi}; do :>$at/uevent; ln -s /sys/bus/scsi $at/subsystem; done\n:>{at}/uevent\n\
             printf 'MAJOR=8\\nMINOR=16\\nDEVNAME=sdx\\nDEVTYPE=disk\\n' >{disk}/uevent\necho 1 >{disk}/sdx1/partition\n\
             printf 'MAJOR=8\\nMINOR=17\\nDEVNAME=sdx1\\nDEVTYPE=partition\\nPARTN=1\\n' >{disk}/sdx1/uevent\n\
             for at in {disk} {disk}/sdx1; do ln -s /sys/class/block $at/subsystem; udevadm test --action=add $at 2>&1 |\n\
             sed -n 's|^ *DEVLINKS=.*/dev/disk/cloud/\\([^ ]*\\).*|{number} \\1|p'; done\n"
        );
    }
    let output = Command::new("unshare")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--mount", "sh", "-c", &format!("command -v udevadm >/dev/null || exit 9\n{script}")])
        .output()
        .unwrap();
    if !output.status.success() {
        prepivot::base::testing::skip("it needs root and udevadm");
        return;
    }
    let expected: String = disks
        .iter()
        .enumerate()
        .filter(|(_, (_, _, name))| !name.is_empty())
        .fold(String::new(), |text, (number, (_, _, name))| {
            text + &format!("{number} {name}\n{number} {name}-part1\n")
        });
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
