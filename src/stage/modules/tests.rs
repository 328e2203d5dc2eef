//! Tests of which modules run, when and how often.

use super::call::Task;
use super::list::entry;
use super::*;
use crate::base::problem::Problems;
use crate::base::testing::TempDir;
use crate::document::yaml;
use crate::drive::devices::Places;
use crate::machine::Machine;
use crate::module::fake_disks::Disks;
use crate::root::{Command, Use};
use crate::stage::testing;
use crate::system::ModuleContext;

#[test]
fn makes_rsa_key_in_background_with_any_list() {
    let made = |config: &str| {
        let dir = TempDir::new("at-end");
        dir.program("usr/bin/ssh-keygen");
        let mut root = dir.root(Use::Tree);
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = testing::boot_with(&root, &machine, config);
        let mut had = Vec::new();
        for _ in 0..2 {
            let mut run = Run::new(&mut root, &mut boot, &instance);
            run.stage(Stage::Final, Half::Running);
            had.push(run.has_background());
            run.background();
        }
        assert_eq!(boot.errors(), [""; 0]);
        let of = |c: &&Command| c.argv.join(" ").starts_with("ssh-keygen -q -t rsa");
        let made = root.commands().iter().filter(of).count();
        // A process is started for what is to be made alone.
        assert_eq!(had, [made > 0, false]);
        made
    };
    assert_eq!(made("{cloud_init_modules: [[ssh, always]], cloud_final_modules: [runcmd]}"), 1);
    assert_eq!(made("{cloud_init_modules: [cc_ssh], cloud_final_modules: [], ssh_genkeytypes: [ed25519]}"), 0);
    assert_eq!(made("{cloud_init_modules: [users_groups]}"), 0);
}

#[test]
fn prints_a_later_rsa_key_in_background() {
    let dir = TempDir::new("printed-without");
    dir.program("usr/bin/ssh-keygen");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let mut boot = testing::boot_with(&root, &machine, "{cloud_final_modules: [keys_to_console]}");
    let mut run = Run::new(&mut root, &mut boot, &instance);
    run.stage(Stage::Final, Half::Running);
    // No list names ssh, which would make it.
    assert!(!run.has_background());
    run.root.write("/etc/ssh/ssh_host_rsa_key", "", Attr::root(0o600)).unwrap();
    run.root.write("/etc/ssh/ssh_host_rsa_key.pub", "ssh-rsa AAAA root@h\n", Attr::root(0o644)).unwrap();
    assert!(run.has_background());
    run.background();
    assert!(!run.has_background());

    // It was there when the keys were printed.
    let instance = Instance { instance_id: "j".into(), ..Instance::default() };
    let mut run = Run::new(&mut root, &mut boot, &instance);
    run.stage(Stage::Final, Half::Running);
    assert!(!run.has_background());
    assert_eq!(boot.errors(), [""; 0]);
}

#[test]
fn sets_a_password_that_the_service_adds() {
    let dir = TempDir::new("later-password");
    dir.write("etc/passwd", "a:x:1:1::/:/bin/sh\n");
    dir.write("etc/shadow", "a:!:1:0:99999:7:::\n");
    let mut root = dir.root(Use::Tree);
    let machine = Machine::default();
    let mut is_set = |password: &str, from_network| {
        let config = yaml::parse("t", &format!("{{chpasswd: {{expire: false}}, {password}}}")).unwrap();
        let instance = Instance { instance_id: "i".into(), config, from_network, ..Instance::default() };
        store(&mut root, &instance).unwrap();
        let mut boot = testing::boot(&root, &machine);
        let config = format!(
            "{{cloud_init_modules: [set_passwords], system_info: {{default_user: {{name: a}}}}, users: [default], {password}}}"
        );
        boot.config = Some(yaml::parse("t", &config).unwrap().into());
        Run::new(&mut root, &mut boot, &instance).stage(Stage::Network, Half::BeforePivot);
        assert_eq!(boot.errors(), [""; 0]);
        let shadow = root.text("/etc/shadow");
        // The user sets another.
        root.write("/etc/shadow", "a:!:1:0:99999:7:::\n", Attr::root(0o640)).unwrap();
        let word = password.trim_start_matches("password: ");
        crate::system::password::verify(word, shadow.split(':').nth(1).unwrap_or_default())
    };
    assert!(!is_set("ssh_pwauth: false", true));
    assert!(is_set("password: one", true));
    assert!(!is_set("password: one", true));
    assert!(!is_set("password: of-a-drive", false));
    assert!(is_set("password: two", true));
}

/// What the network stage's modules run, in a tree: with `in_local_stage`, after the local stage has run those that come before services.
fn ran(config: &str, in_local_stage: bool) -> (Vec<String>, bool) {
    let dir = TempDir::new("early");
    std::fs::create_dir_all(dir.0.join("proc/self")).unwrap();
    dir.write("dev/vda", "");
    dir.write("proc/self/mounts", "gpt/root / ext4 rw 0 0\n");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let mut boot = testing::boot_with(&root, &machine, config);
    let mut run = Run::new(&mut root, &mut boot, &instance);
    let may_be_early = run.nothing_comes_first();
    if in_local_stage {
        run.before_services();
    }
    run.stage(Stage::Network, Half::Running);
    assert_eq!(boot.errors(), [""; 0]);
    (root.commands().iter().map(|c| c.argv.join(" ")).collect(), may_be_early)
}

#[test]
fn early_modules_run_once_after_users_commands() {
    let list = "cloud_init_modules: [bootcmd, growpart, resizefs]";
    assert_eq!(ran(&format!("{{{list}}}"), true), (vec!["resize2fs gpt/root".into()], true));
    assert_eq!(ran(&format!("{{{list}}}"), false), (vec!["resize2fs gpt/root".into()], true));
    let (commands, may_be_early) = ran(&format!("{{{list}, bootcmd: [sgdisk -n 0 /dev/vda]}}"), false);
    assert!(!may_be_early && commands.len() == 2, "{commands:?}");
    assert_eq!(ran("{cloud_init_modules: [growpart]}", true).0, [""; 0]);
}

#[test]
fn leaves_a_missing_disk_to_network_stage() {
    let dir = TempDir::new("early-disks");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let disks = Disks(Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") });
    let mut boot = testing::boot(&root, &machine);
    boot.outside = &disks;
    let config =
        "{cloud_init_modules: [resizefs, disk_setup, mounts], mounts: [[tmpfs, /t, tmpfs]], resize_rootfs: false,
        disk_setup: {vdb: {layout: false}}}";
    boot.config = Some(yaml::parse("t", config).unwrap().into());
    let is_done = |root: &Root| state::is_done(root, &instance, "config_disk_setup", Frequency::Instance);

    Run::new(&mut root, &mut boot, &instance).before_services();
    assert_eq!((root.text(run_dir::BEFORE_SERVICES).as_str(), is_done(&root)), ("resizefs\n", false));
    assert!(!root.exists("/etc/fstab"), "what comes after it is left, too");

    dir.write("sys/class/block/vdb/size", "8");
    dir.write("dev/vdb", "");
    Run::new(&mut root, &mut boot, &instance).before_services();
    assert_eq!((root.text(run_dir::BEFORE_SERVICES).as_str(), is_done(&root)), ("resizefs\ndisk_setup\n", true));
    assert!(root.exists("/etc/fstab"));
    assert!(!state::is_done(&root, &instance, "config_mounts.live", Frequency::Instance));

    let mut run = Run::new(&mut root, &mut boot, &instance);
    run.stage(Stage::Network, Half::Running);
    assert!(!root.exists(run_dir::BEFORE_SERVICES));
    assert!(state::is_done(&root, &instance, "config_mounts.live", Frequency::Instance));
    assert_eq!(boot.errors(), [""; 0]);
}

#[test]
fn module_runs_as_often_as_configured() {
    let runs = |entry: &str| {
        let dir = TempDir::new("often");
        let mut root = dir.root(Use::Tree);
        let machine = Machine::default();
        for id in ["i-1", "i-1", "i-2"] {
            let instance = Instance { instance_id: id.into(), ..Instance::default() };
            let mut boot = testing::boot(&root, &machine);
            let config = format!("{{cloud_init_modules: [{entry}], bootcmd: [a]}}");
            boot.config = Some(yaml::parse("t", &config).unwrap().into());
            Run::new(&mut root, &mut boot, &instance).stage(Stage::Network, Half::Running);
            assert_eq!(boot.errors(), [""; 0]);
        }
        let mode = root.stat("/run/cloud-init/bootcmd.sh").unwrap().attr.mode;
        assert_eq!(mode, 0o700, "commands can hold secrets");
        root.commands().len()
    };
    assert_eq!(["bootcmd", "[bootcmd, null]", "[bootcmd, once-per-instance]"].map(runs), [3, 3, 2]);
    assert_eq!(["[bootcmd, once]", "{name: bootcmd, frequency: once}", "[bootcmd, weekly]"].map(runs), [1, 1, 3]);
}

#[test]
fn entries_take_arguments_and_errors_report_once() {
    let read = |text: &str, half| {
        let report = Problems::new();
        let found = entry(&yaml::parse("t", text).unwrap(), half, &report);
        (found.map(|e| (e.module.name, e.args.join(" "))), report.entries().len())
    };
    for (text, args) in [("[runcmd, always, a, 5]", "a 5"), ("{name: runcmd, args: [a, b]}", "a b"), ("runcmd", "")] {
        assert_eq!(read(text, Half::BeforePivot), (Some(("runcmd", args.to_owned())), 0), "{text}");
    }
    assert_eq!(read("no_such_module", Half::BeforePivot), (None, 1));
    assert_eq!(read("no_such_module", Half::Running), (None, 0));
    assert_eq!(read("[runcmd, weekly]", Half::BeforePivot), (Some(("runcmd", String::new())), 1));
    assert_eq!(read("5", Half::BeforePivot), (None, 0));
}

#[test]
fn modules_log_what_tools_look_for() {
    let dir = TempDir::new("modules-lines");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let mut boot = testing::boot(&root, &machine);
    let config = "{no_ssh_fingerprints: true, final_message: \"one\\ntwo\"}";
    boot.config = Some(yaml::parse("t", config).unwrap().into());
    let messages = crate::base::logging::capture(|| {
        for name in ["ssh_authkey_fingerprints", "final_message"] {
            let module = module::find(name).unwrap();
            Run::new(&mut root, &mut boot, &instance).single(module, Some(Frequency::Always), &[]);
        }
    });
    for text in [
        "Running module ssh_authkey_fingerprints (cc_ssh_authkey_fingerprints) with frequency always",
        "Skipping module named ssh_authkey_fingerprints, logging of SSH fingerprints disabled",
        "Running module final_message (cc_final_message) with frequency always",
        "one\ntwo",
    ] {
        assert!(messages.iter().any(|message| message.text == text), "{text}");
    }
}

#[test]
fn module_of_another_distribution_needs_unverified_modules() {
    let dir = TempDir::new("unverified");
    dir.write("etc/os-release", "ID=debian\n");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let module = module::find("apk_configure").unwrap();
    for (config, wanted) in [
        ("{apk_repos: {}}", false),
        ("{apk_repos: {}, unverified_modules: [apk_configure]}", true),
        ("{apk_repos: {}, unverified_modules: [apk-configure]}", true),
        ("{apk_repos: {}, unverified_modules: [byobu, 5]}", false),
        ("{unverified_modules: [apk_configure]}", false),
    ] {
        let mut boot = testing::boot_with(&root, &machine, config);
        assert_eq!(Run::new(&mut root, &mut boot, &instance).is_requested(module), wanted, "{config}");
    }
}

#[test]
fn marks_a_file_system_once_it_is_made() {
    let dir = TempDir::new("marks");
    let mut root = dir.root(Use::Tree);
    let instance = Instance { instance_id: "i".into(), ..Instance::default() };
    let machine = Machine::default();
    let mut boot = testing::boot_with(&root, &machine, "{x: 1}");
    let is_marked = |cx: &mut ModuleContext| {
        let names = cx.root.list(&format!("{}/sem", cx.instance_dir()));
        cx.report.error(names.join(" "));
        Ok(())
    };
    for repeats in [true, false] {
        let module = Module { name: "x", keys: &["x"], running: Some(is_marked), repeats, ..Module::NEW };
        let mut run = Run::new(&mut root, &mut boot, &instance);
        for _ in 0..2 {
            let task = Task {
                module: &module,
                handler: is_marked,
                half: Half::Running,
                frequency: Frequency::Instance,
                args: &[],
            };
            run.run_if_due(&task);
        }
        assert!(root.exists("/var/lib/cloud/instances/i/sem/config_x"));
        root.remove("/var/lib/cloud/instances/i/sem/config_x").unwrap();
    }
    assert_eq!(boot.errors(), ["", "config_x"]);
    let repeated: Vec<&str> = module::MODULES.iter().filter(|m| m.repeats).map(|m| m.name).collect();
    assert_eq!(repeated, ["disk_setup", "mounts"]);
}
