//! The hooks of the three frameworks. Their build side runs against functions that write down how they are called;
//! their run side against a program that fails or not, which must only ever stop a boot that asked for that.

use prepivot::base::testing::TempDir;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn project(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The module names of `initramfs/drivers`.
fn drivers() -> Vec<String> {
    let text = fs::read_to_string(project("initramfs/drivers")).unwrap();
    text.lines().flat_map(|l| l.split('#').next().unwrap().split_whitespace()).map(str::to_string).collect()
}

/// Runs `text` with `shell`; what it printed. It must end well and say nothing on stderr.
fn run(shell: &str, text: &str) -> Vec<String> {
    let output =
        Command::new(shell).args(["-c", text]).output().unwrap_or_else(|e| panic!("failed to run {shell}: {e}"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    assert!(output.status.success(), "{output:?}\n{text}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
}

#[test]
fn every_script_parses_in_its_shells() {
    // Read by another script, without a first line that names a shell.
    let parts = ["arch", "deb", "rpm"].map(|format| format!("initramfs/packages/{format}"));
    let mut posix: Vec<String> = parts.into_iter().chain(["mkinitcpio/hooks/prepivot".into()]).collect();
    let folders = [".ci", "initramfs", "initramfs/man", "initramfs/packages", "dracut", "tests"].map(String::from);
    let of_tests = fs::read_dir(project("tests")).unwrap().map(|e| e.unwrap()).filter(|e| e.path().is_dir());
    let of_tests = of_tests.map(|e| e.file_name().into_string().unwrap()).chain(["boot/guest".to_owned()]);
    let of_tests = of_tests.map(|name| format!("tests/{name}"));
    for folder in folders.into_iter().chain(of_tests) {
        let names = fs::read_dir(project(&folder)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let is_script = |path: &String| {
            let whole = project(path);
            fs::metadata(&whole).unwrap().is_file() && fs::read(&whole).unwrap().starts_with(b"#!/bin/sh\n")
        };
        posix.extend(names.map(|name| format!("{folder}/{name}")).filter(is_script));
    }
    assert!(posix.len() >= 25, "{posix:?}");
    let bash = ["dracut/module-setup.sh", "mkinitcpio/install/prepivot"];
    let check = |program: &str, arguments: &[&str], path: &str| match Command::new(program)
        .args(arguments)
        .arg(project(path))
        .output()
    {
        Ok(o) => assert!(o.status.success(), "{program} {path}: {}", String::from_utf8_lossy(&o.stdout)),
        Err(e) => prepivot::base::testing::skip(format!("{program}: {e}")),
    };
    for path in &posix {
        check("sh", &["-n"], path);
        check("dash", &["-n"], path);
        check("busybox", &["sh", "-n"], path);
    }
    for path in bash {
        check("bash", &["-n"], path);
    }
    for path in posix.iter().map(String::as_str).chain(bash) {
        // SC1091: a file that is read is there on the machine that the script is for.
        check("shellcheck", &["--exclude=SC1091"], path);
    }
}

#[test]
fn the_drivers_are_plain_names_each_once() {
    let names = drivers();
    for name in &names {
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{name}");
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for must in
        ["isofs", "vfat", "nls_cp437", "nls_ascii", "nls_iso8859-1", "sr_mod", "virtio_blk", "virtio_net", "af_packet"]
    {
        assert!(names.iter().any(|n| n == must), "{must}");
    }
}

/// dracut's module with its helpers replaced; `included` are the modules of the image.
fn dracut(included: &str, calls: &str) -> Vec<String> {
    dracut_of(std::path::Path::new("/nowhere"), included, calls)
}

/// The same in a tree that may have a list of drivers.
fn dracut_of(tree: &std::path::Path, included: &str, calls: &str) -> Vec<String> {
    let text = format!(
        r#"
        say() {{ printf '%s\n' "$*"; }}
        require_binaries() {{ say require "$@"; }}
        dracut_module_included() {{ [[ " {included} " == *" $1 "* ]]; }}
        instmods() {{ printf 'instmods hostonly=%s %s\n' "$hostonly" "$*"; }}
        for f in inst_simple inst_hook systemctl; do eval "$f() {{ say $f \"\$@\"; }}"; done
        hostonly=yes moddir=/m initdir=/i systemdsystemunitdir=/u dracutsysrootdir={tree} SYSTEMCTL=systemctl
        . {setup}
        {calls}"#,
        tree = tree.display(),
        setup = project("dracut/module-setup.sh"),
    );
    run("bash", &text)
}

#[test]
fn dracut_asks_for_listed_drivers_by_name_unfiltered() {
    assert_eq!(dracut("", "installkernel; echo $?"), ["0"]);
    let tree = TempDir::new("dracut-drivers");
    fs::create_dir_all(tree.0.join("etc/prepivot")).unwrap();
    fs::copy(project("initramfs/drivers"), tree.0.join("etc/prepivot/drivers")).unwrap();
    let lines = dracut_of(&tree.0, "", "installkernel");
    assert_eq!(lines, [format!("instmods hostonly= {}", drivers().join(" "))]);
}

#[test]
fn a_trust_policy_brings_drivers_of_tpms() {
    let tree = TempDir::new("dracut-trust");
    fs::create_dir_all(tree.0.join("etc/prepivot")).unwrap();
    fs::write(tree.0.join("etc/prepivot/trust.conf"), "user-data = measure\n").unwrap();
    assert_eq!(dracut_of(&tree.0, "", "installkernel"), ["instmods hostonly= tpm_tis tpm_crb"]);
}

/// An install overwrites /usr/share, which a user's own list is not in.
#[test]
fn a_list_of_drivers_in_etc_takes_precedence() {
    let folder = TempDir::new("own-drivers");
    let own = folder.0.join("etc/prepivot");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("drivers"), "isofs # mine\n9p\n").unwrap();

    let lines = dracut("", &format!("dracutsysrootdir={}; installkernel", folder.0.display()));
    assert_eq!(lines, ["instmods hostonly= isofs 9p"]);

    let script =
        |path: &str| fs::read_to_string(project(path)).unwrap().replace("/etc/prepivot", own.to_str().unwrap());
    let hook = script("initramfs/hook")
        .replace(". /usr/share/initramfs-tools/hook-functions", "")
        .replace("[ -x /usr/bin/prepivot ]", "true");
    let functions = "copy_exec() { :; }; manual_add_modules() { echo \"$*\"; }";
    assert_eq!(run("sh", &format!("{functions}\n{hook}")), ["isofs 9p"]);

    let functions = "add_module() { echo \"$1\"; }; add_binary() { :; }; add_runscript() { :; }";
    let build = || run("bash", &format!("{functions}\n{}\nbuild", script("mkinitcpio/install/prepivot")));
    assert_eq!(build(), ["isofs?", "9p?"]);

    // No names: neither an empty one, nor those of standard input, which dracut's instmods reads then.
    fs::write(own.join("drivers"), "# none yet\n").unwrap();
    assert_eq!(build(), [""; 0]);
    assert_eq!(dracut_of(&folder.0, "", "installkernel; echo $?"), ["0"]);
}

#[test]
fn dracut_installs_units_with_systemd_else_hooks() {
    assert_eq!(
        dracut("base systemd systemd-initrd", "install"),
        [
            "inst_simple /usr/bin/prepivot",
            "inst_simple /usr/lib/systemd/system/prepivot-apply.service /u/prepivot-apply.service",
            "inst_simple /usr/lib/systemd/system/prepivot-emergency.service /u/prepivot-emergency.service",
            "systemctl -q --root /i add-wants initrd.target prepivot-apply.service",
        ]
    );
    assert_eq!(
        dracut("base", "install"),
        ["inst_simple /usr/bin/prepivot", "inst_hook pre-pivot 50 /m/prepivot-apply.sh"]
    );
}

#[test]
fn dracut_omits_the_module_when_checking_root_mounts() {
    assert_eq!(dracut("", "check; echo $?"), ["require prepivot", "0"]);
    assert_eq!(dracut("", "mount_needs=1; check; echo $?"), ["1"]);
    assert_eq!(dracut("", "require_binaries() { return 1; }; check; echo $?"), ["1"]);
    assert_eq!(dracut("", "depends; echo $?"), ["0"]);
}

/// mkinitcpio's build() with its helpers replaced; with `systemd`, as the systemd hook leaves the shell.
fn mkinitcpio(systemd: bool, listed: bool) -> (Vec<String>, TempDir) {
    let image = TempDir::new("mkinitcpio");
    let units = image.0.join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    let declare = if systemd {
        format!(
            r#"add_systemd_unit() {{ say unit "$1"; cp {}/"$1" {}/; }}"#,
            project("initramfs/units"),
            units.display()
        )
    } else {
        String::new()
    };
    let list = if listed { project("initramfs/drivers") } else { "/nowhere".to_owned() };
    let install = fs::read_to_string(project("mkinitcpio/install/prepivot")).unwrap();
    let install = install.replace("/etc/prepivot/drivers", &list);
    let text = format!(
        r#"
        say() {{ printf '%s\n' "$*"; }}
        for f in module binary symlink; do eval "add_$f() {{ say $f \"\$@\"; }}"; done
        add_runscript() {{ say runscript; }}
        {declare}
        BUILDROOT={root}
        {install}
        build"#,
        root = image.0.display(),
    );
    (run("bash", &text), image)
}

#[test]
fn mkinitcpio_builds_busybox_image_with_runtime_hook() {
    let (lines, _image) = mkinitcpio(false, true);
    let mut expected: Vec<String> = drivers().iter().map(|d| format!("module {d}?")).collect();
    expected.extend(["binary /usr/bin/prepivot".to_string(), "runscript".to_string()]);
    assert_eq!(lines, expected);
}

#[test]
fn mkinitcpio_builds_systemd_image_with_its_units() {
    let (lines, image) = mkinitcpio(true, false);
    assert_eq!(
        lines,
        [
            "binary /usr/bin/prepivot",
            "unit prepivot-emergency.service",
            "unit prepivot-apply.service",
            "symlink /usr/lib/systemd/system/initrd.target.wants/prepivot-apply.service ../prepivot-apply.service",
        ]
    );
    let text = fs::read_to_string(image.0.join("usr/lib/systemd/system/prepivot-apply.service")).unwrap();
    assert!(text.contains("ExecStart=/usr/bin/prepivot apply --root /sysroot --framework mkinitcpio\n"), "{text}");
}

#[test]
fn initramfs_tools_image_build_never_fails() {
    let folder = TempDir::new("initramfs-tools");
    let functions = folder.0.join("hook-functions");
    fs::write(&functions, "copy_exec() { echo copy_exec \"$@\"; }\nmanual_add_modules() { echo modules \"$@\"; }\n")
        .unwrap();
    let list = project("initramfs/drivers");
    let hook = |program: &str, list: &str| {
        fs::read_to_string(project("initramfs/hook"))
            .unwrap()
            .replace("/usr/share/initramfs-tools/hook-functions", functions.to_str().unwrap())
            .replace("/etc/prepivot/drivers", list)
            .replace("[ -x /usr/bin/prepivot ]", &format!("[ -x {program} ]"))
    };
    assert_eq!(
        run("sh", &hook("/bin/sh", &list)),
        ["copy_exec /usr/bin/prepivot /usr/bin".to_string(), format!("modules {}", drivers().join(" "))]
    );
    assert!(run("sh", &format!("set -- prereqs\n{}", hook("/bin/sh", &list))).is_empty());
    assert_eq!(run("sh", &hook("/bin/sh", "/nowhere")), ["copy_exec /usr/bin/prepivot /usr/bin"]);

    let output = Command::new("sh").args(["-c", &hook("/nowhere", &list)]).output().unwrap();
    assert!(output.status.success(), "an image without prepivot still boots");
    assert!(String::from_utf8_lossy(&output.stderr).contains("this image does not provision"));
}

/// A run-side script with its program, kernel command line and framework replaced; what was called, in order.
fn boot(script: &str, prelude: &str, calls: &str, program_ends: u8, cmdline: &str) -> Vec<String> {
    boot_of(script, prelude, calls, program_ends, cmdline, "/nowhere")
}

/// The same, with the file by which the trust policy stops a boot.
fn boot_of(script: &str, prelude: &str, calls: &str, program_ends: u8, cmdline: &str, stopped: &str) -> Vec<String> {
    let folder = TempDir::new("boot");
    let at = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
    fs::write(at("cmdline"), format!("{cmdline}\n")).unwrap();
    fs::write(at("functions"), "panic() { echo \"emergency: $*\"; }\n").unwrap();
    let text = fs::read_to_string(project(script))
        .unwrap()
        .replace("/usr/bin/prepivot", &at("prepivot"))
        .replace("/run/prepivot/stopped", stopped)
        .replace("/proc/cmdline", &at("cmdline"))
        .replace("/scripts/functions", &at("functions"));
    // dracut's own getarg, in small: the value of one key. mkinitcpio before 39 has none.
    let getarg = if script.starts_with("dracut/") {
        format!(
            "getarg() {{ for w in $(cat {}); do case $w in \"${{1%=}}\"=*) echo \"${{w#*=}}\" ;; esac; done; }}",
            at("cmdline")
        )
    } else {
        String::new()
    };
    // Written by the shell that runs it: a file that this process has open, even for a moment, may be busy.
    let program = format!(
        "printf '#!/bin/sh\\necho \"prepivot $*\"\\nexit {program_ends}\\n' >{0}; chmod 755 {0}",
        at("prepivot")
    );
    run("sh", &format!("{program}\n{getarg}\n{prelude}\n{text}\n{calls}"))
}

/// Script, what the framework has set up, what it calls then, and the program's command line.
const STAGES: &[(&str, &str, &str, &str)] = &[
    ("dracut/prepivot-apply.sh", DRACUT, "", "prepivot apply --root /sysroot --framework dracut"),
    ("mkinitcpio/hooks/prepivot", MKINITCPIO, "run_latehook", "prepivot apply --root /new_root --framework mkinitcpio"),
    ("initramfs/bottom", "rootmnt=/root", "", "prepivot apply --root /root --framework initramfs-tools"),
];
const DRACUT: &str = "NEWROOT=/sysroot; emergency_shell() { echo \"emergency: $*\"; }";
const MKINITCPIO: &str = "err() { :; }; launch_interactive_shell() { echo emergency:; }";

#[test]
fn a_boot_goes_on_whatever_the_program_does() {
    for (script, prelude, calls, expected) in STAGES {
        for status in [0, 1, 134] {
            let cmdline = "root=/dev/vda quiet prepivot.fail=boot";
            assert_eq!(boot(script, prelude, calls, status, cmdline), [*expected], "{script} {status}");
        }
    }
}

#[test]
fn requested_emergency_stops_at_the_frameworks_place() {
    let cmdline = "root=/dev/vda prepivot.fail=emergency quiet";
    for (script, prelude, calls, expected) in STAGES {
        assert_eq!(boot(script, prelude, calls, 0, cmdline), [*expected], "{script}");
        let lines = boot(script, prelude, calls, 1, cmdline);
        assert_eq!(lines[0], *expected, "{script}");
        assert!(lines.len() == 2 && lines[1].starts_with("emergency:"), "{script}: {lines:?}");
    }
}

#[test]
fn a_boot_without_the_program_is_left_alone() {
    for (script, prelude, calls, _) in STAGES {
        let text = fs::read_to_string(project(script)).unwrap().replace("/usr/bin/prepivot", "/nowhere/prepivot");
        assert!(run("sh", &format!("{prelude}\n{text}\n{calls}")).is_empty(), "{script}");
    }
}

#[test]
fn trust_policy_stops_boot_in_every_framework() {
    let folder = TempDir::new("stopped");
    let stopped = folder.0.join("stopped").to_str().unwrap().to_owned();
    fs::write(&stopped, "").unwrap();
    for (script, prelude, calls, expected) in STAGES {
        let lines = boot_of(script, prelude, calls, 1, "quiet", &stopped);
        assert!(lines.len() == 2 && lines[0] == *expected && lines[1].starts_with("emergency:"), "{script}: {lines:?}");
    }
}

/// A UKI signs and measures what is in its initramfs: a policy is nowhere else.
#[test]
fn every_image_gets_trust_policy_and_keys_only() {
    let folder = TempDir::new("policy");
    let own = folder.0.join("etc/prepivot");
    fs::create_dir_all(&own).unwrap();
    for name in ["trust.conf", "allowed_signers", "identities", "release.crt", "release.key", "notes"] {
        fs::write(own.join(name), "").unwrap();
    }
    let names = ["trust.conf", "allowed_signers", "identities", "release.crt"];
    let lines = dracut_of(&folder.0, "base", "install");
    let taken: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("inst_simple /etc/prepivot/")).collect();
    assert_eq!(taken, names);

    let script =
        |path: &str| fs::read_to_string(project(path)).unwrap().replace("/etc/prepivot", own.to_str().unwrap());
    let whole = names.map(|name| own.join(name).to_str().unwrap().to_owned());
    let hook = script("initramfs/hook")
        .replace(". /usr/share/initramfs-tools/hook-functions", "")
        .replace("[ -x /usr/bin/prepivot ]", "true");
    // With what a policy measures into.
    let expected: Vec<String> = whole.into_iter().chain(["modules tpm_tis tpm_crb".to_owned()]).collect();
    let functions = "copy_exec() { :; }; copy_file() { echo \"$2\"; }; manual_add_modules() { echo \"modules $*\"; }";
    assert_eq!(run("sh", &format!("{functions}\n{hook}")), expected);

    let functions = "add_file() { echo \"$1\"; }; add_binary() { :; }; add_runscript() { :; }; \
        add_module() { printf %s\\\\n \"module $1\"; }";
    let made = run("bash", &format!("{functions}\n{}\nbuild", script("mkinitcpio/install/prepivot")));
    let (modules, files): (Vec<String>, Vec<String>) = made.into_iter().partition(|line| line.starts_with("module "));
    assert_eq!((files.as_slice(), modules.len()), (&expected[..4], 2), "{modules:?}");
}

/// In a systemd image only a unit with the condition may leave the way to the pivot.
#[test]
fn failed_unit_starts_emergency_only_if_requested() {
    let unit = |name: &str| fs::read_to_string(project(&format!("initramfs/units/prepivot-{name}.service"))).unwrap();
    let text = unit("apply");
    assert_eq!(
        text.lines().filter(|l| l.starts_with("OnFailure")).collect::<Vec<_>>(),
        ["OnFailure=prepivot-emergency.service"]
    );
    assert!(text.contains("\nConditionPathExists=/etc/initrd-release\n"), "it must do nothing in the real root");
    // One of the two.
    let either = "\nConditionKernelCommandLine=|prepivot.fail=emergency\nConditionPathExists=|/run/prepivot/stopped\n";
    assert!(unit("emergency").contains(either));
    assert!(unit("emergency").contains("\nConditionPathExists=/etc/initrd-release\n"));
}
