use super::*;
use crate::base::testing::TempDir;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn tree(name: &str) -> (TempDir, Root) {
    let dir = TempDir::new(name);
    std::fs::create_dir_all(dir.0.join("etc")).unwrap();
    let root = Root::open(&dir.0, Use::Tree).unwrap();
    (dir, root)
}

#[test]
fn what_is_written_is_read_back_and_reaches_the_disk_on_commit() {
    let (dir, mut root) = tree("root-write");
    root.write("/etc/a/b", "text", Attr::root(0o640)).unwrap();
    assert_eq!(root.text("/etc/a/b"), "text");
    assert_eq!(root.list("/etc"), ["a"]);
    assert!(!dir.0.join("etc/a").exists());
    assert_eq!(root.commit(), []);
    assert_eq!(std::fs::read_to_string(dir.0.join("etc/a/b")).unwrap(), "text");
    assert_eq!(std::fs::metadata(dir.0.join("etc/a/b")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(root.done().len(), 2);

    let before = std::fs::metadata(dir.0.join("etc/a/b")).unwrap().ino();
    root.write("/etc/a/b", "text", Attr::root(0o600)).unwrap();
    assert_eq!(root.changes(), [Change::Chmod { path: "/etc/a/b".into(), attr: Attr::root(0o600) }]);
    root.commit();
    assert_eq!(
        std::fs::metadata(dir.0.join("etc/a/b")).unwrap().ino(),
        before,
        "the same content is not written again"
    );
}

#[test]
fn links_never_lead_outside() {
    let (dir, mut root) = tree("root-links");
    let outside = TempDir::new("root-outside");
    symlink(&outside.0, dir.0.join("etc/out")).unwrap();
    symlink("../../../../../../etc/real", dir.0.join("etc/up")).unwrap();
    symlink("loop", dir.0.join("etc/loop")).unwrap();
    root.write("/etc/out/file", "x", Attr::root(0o644)).unwrap();
    root.write("/etc/up", "y", Attr::root(0o644)).unwrap();
    assert!(root.write("/etc/loop", "z", Attr::root(0o644)).is_err());
    assert_eq!(root.commit(), []);
    assert_eq!(std::fs::read_dir(&outside.0).unwrap().count(), 0);
    let inside = dir.0.join(outside.0.strip_prefix("/").unwrap()).join("file");
    assert_eq!(std::fs::read_to_string(inside).unwrap(), "x");
    assert_eq!(std::fs::read_to_string(dir.0.join("etc/real")).unwrap(), "y");
    assert!(dir.0.join("etc/up").is_symlink(), "a link that is written through stays");
}

#[test]
fn a_removed_folder_is_gone_and_can_come_back() {
    let (dir, mut root) = tree("root-remove");
    std::fs::create_dir_all(dir.0.join("d/e")).unwrap();
    std::fs::write(dir.0.join("d/e/f"), "old").unwrap();
    root.remove("/d").unwrap();
    assert!(!root.exists("/d/e/f"));
    assert_eq!(root.changes(), [Change::Remove { path: "/d".into() }]);
    root.write("/d/new", "n", Attr::root(0o644)).unwrap();
    assert_eq!(root.list("/d"), ["new"]);
    assert_eq!(root.commit(), []);
    assert!(!dir.0.join("d/e").exists());
    assert!(dir.0.join("d/new").exists());
    root.remove("/nothing/there").unwrap();
}

#[test]
fn a_plan_writes_nothing_and_lists_everything() {
    let dir = TempDir::new("root-plan");
    let mut root = Root::open(&dir.0, Use::Plan).unwrap();
    root.write("/etc/hostname", "h\n", Attr::root(0o644)).unwrap();
    root.symlink("/etc/localtime", "../usr/share/zoneinfo/UTC").unwrap();
    root.run(Command::new(Stage::Final, ["true"])).unwrap();
    root.commit();
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
    let lines: Vec<String> =
        root.changes().iter().map(|c| crate::document::json::to_string(&c.to_value(&root))).collect();
    assert_eq!(
        lines,
        [
            r#"{"change":"mkdir","path":"/etc","mode":"0755","owner":"root","group":"root"}"#,
            r#"{"change":"write","path":"/etc/hostname","mode":"0644","owner":"root","group":"root","content":"h\n"}"#,
            r#"{"change":"symlink","path":"/etc/localtime","target":"../usr/share/zoneinfo/UTC"}"#,
        ]
    );
    assert_eq!(root.commands().len(), 1);
}

#[test]
fn changes_below_an_unmounted_file_system_wait_and_are_replayed() {
    let (dir, mut root) = tree("root-later");
    root.unmounted = vec!["var".into()];
    root.write("/var/log/x", b"bin\xff".to_vec(), Attr::root(0o640)).unwrap();
    root.write("/var/lib/cloud/data/instance-id", "i\n", Attr::root(0o644)).unwrap();
    root.write("/etc/y", "y", Attr::root(0o644)).unwrap();
    assert_eq!(root.commit(), []);
    root.keep_for_later().unwrap();
    assert_eq!(root.commit(), []);
    assert!(!dir.0.join("var/log").exists());
    assert!(dir.0.join("var/lib/cloud/data/instance-id").exists(), "the next initramfs must find the state");
    assert!(dir.0.join("etc/y").exists());

    std::fs::remove_dir_all(dir.0.join("var")).unwrap();
    std::fs::create_dir(dir.0.join("var")).unwrap();
    let mut later = Root::open(&dir.0, Use::Tree).unwrap();
    assert_eq!(later.replay().unwrap(), []);
    assert_eq!(std::fs::read(dir.0.join("var/log/x")).unwrap(), b"bin\xff");
    assert!(dir.0.join("var/lib/cloud/data/instance-id").exists());
    assert!(!dir.0.join("run/prepivot/replay.json").exists());
}

#[test]
fn a_failure_names_the_path_and_the_rest_goes_on() {
    let (dir, mut root) = tree("root-fail");
    root.write("/etc/one", "1", Attr::root(0o644)).unwrap();
    root.write("/etc/two", "2", Attr::root(0o644)).unwrap();
    std::fs::create_dir_all(dir.0.join("etc/one/in-the-way")).unwrap();
    let errors = root.commit();
    assert!(errors.is_empty() || errors[0].to_string().contains("/etc/one"), "{errors:?}");
    assert_eq!(std::fs::read_to_string(dir.0.join("etc/two")).unwrap(), "2");
}

#[test]
fn the_hand_over_between_the_stages_is_for_root_alone() {
    let (_dir, mut root) = tree("root-run");
    root.write(&format!("{}/log", run_dir::DIR), "x", Attr::root(0o600)).unwrap();
    assert_eq!(root.stat(run_dir::DIR).unwrap().attr, Attr::root(0o700));
    assert_eq!(root.stat("/run").unwrap().attr, Attr::root(0o755));
}

#[test]
fn a_folder_that_is_there_keeps_its_mode_and_owner() {
    let (dir, mut root) = tree("root-mkdir");
    std::fs::set_permissions(dir.0.join("etc"), std::fs::Permissions::from_mode(0o2775)).unwrap();
    root.mkdir("/etc", Attr::root(0o700)).unwrap();
    root.mkdir("/new", Attr::root(0o700)).unwrap();
    root.mkdir("/new", Attr::root(0o755)).unwrap();
    assert_eq!(root.changes(), [Change::Mkdir { path: "/new".into(), attr: Attr::root(0o700) }]);
    root.write("/file", "", Attr::root(0o644)).unwrap();
    assert!(root.mkdir("/file", Attr::root(0o755)).is_err());
    assert_eq!(root.commit(), []);
    assert_eq!(std::fs::metadata(dir.0.join("etc")).unwrap().permissions().mode() & 0o7777, 0o2775);
}
