use super::*;
use crate::base::testing::TempDir;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn tree(name: &str) -> (TempDir, Root) {
    let dir = TempDir::new(name);
    std::fs::create_dir_all(dir.0.join("etc")).unwrap();
    let root = dir.root(Use::Tree);
    (dir, root)
}

#[test]
fn reads_back_changes_and_commits_them() {
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
fn new_folder_hides_nothing_the_disk_has() {
    let (dir, mut root) = tree("root-new-folder");
    dir.write("d/e/old", "old");
    // Before an earlier run's changes are made, nothing is known of the disk.
    root.mkdir("/early", Attr::root(0o755)).unwrap();
    root.recover();
    root.mkdir("/new/a", Attr::root(0o755)).unwrap();
    for path in ["early/x", "new/a/x"] {
        dir.write(path, "of another");
    }
    assert_eq!([root.exists("/early/x"), root.exists("/new/a/x")], [true, false], "the disk is not asked");
    assert_eq!((root.list("/new"), root.list("/new/a")), (vec!["a".to_owned()], Vec::new()));
    // A folder that is made again has its old content on the disk.
    root.remove("/d").unwrap();
    root.write("/d/e/new", "new", Attr::root(0o644)).unwrap();
    assert!(!root.exists("/d/e/old") && root.list("/d/e") == ["new"]);
    root.symlink("/new/link", "/d").unwrap();
    assert_eq!((root.text("/new/link/e/new"), root.read_link("/new/link").as_deref()), ("new".into(), Some("/d")));
    assert_eq!(root.commit(), []);
    assert!(!dir.0.join("d/e/old").exists() && dir.0.join("d/e/new").exists());

    // The image's seed stays in place, even if the rest of the state is kept elsewhere.
    let dir = TempDir::new("root-new-state");
    dir.write("etc/fstab", "tmpfs /var tmpfs defaults 0 0\n");
    dir.write("var/lib/cloud/seed/nocloud/meta-data", "{}");
    let mut root = dir.root(Use::NewRoot);
    root.recover();
    root.write("/var/lib/cloud/data/instance-id", "i-1\n", Attr::root(0o644)).unwrap();
    assert_eq!(root.text("/var/lib/cloud/seed/nocloud/meta-data"), "{}");
}

#[test]
fn removed_folder_can_be_created_again() {
    let (dir, mut root) = tree("root-remove");
    dir.write("d/e/f", "old");
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
    let mut root = dir.root(Use::Plan);
    root.write("/etc/hostname", "h\n", Attr::root(0o644)).unwrap();
    root.symlink("/etc/localtime", "../usr/share/zoneinfo/UTC").unwrap();
    root.run(Command::new(["true"])).unwrap();
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
fn changes_below_unmounted_file_system_wait_and_merge() {
    let (dir, mut root) = tree("root-later");
    root.overlay.mounts_mut().expect(&["var", "home"]);
    let attr = Attr::root(0o644);
    root.write("/var/log/x", b"bin\xff".to_vec(), Attr::root(0o640)).unwrap();
    root.append("/var/log/cloud-init.log", b"new\n", attr).unwrap();
    root.append("/home/u/list", b"new\n", attr).unwrap();
    root.edit("/home/u/keys", attr, |old| Ok(Some([old, b"a\nb\n"].concat()))).unwrap();
    root.write_new("/home/u/.profile", "skeleton", attr).unwrap();
    root.mkdir("/home/u", Attr::root(0o755)).unwrap();
    root.write("/var/lib/cloud/data/instance-id", "i\n", attr).unwrap();
    root.write("/etc/y", "y", attr).unwrap();
    assert_eq!(root.text("/home/u/list"), "new\n");
    assert_eq!(root.commit(), []);
    assert!(!dir.0.join("var/log").exists() && !dir.0.join("home").exists());
    assert!(dir.0.join("var/lib/cloud/data/instance-id").exists(), "the next initramfs must find the state");
    assert!(dir.0.join("etc/y").exists());

    // Another boot's initramfs: they still wait.
    let mut next = dir.root(Use::Tree);
    next.overlay.mounts_mut().expect(&["var", "home"]);
    next.usage = Use::NewRoot;
    assert_eq!(next.recover(), []);
    assert!(!dir.0.join("var/log").exists());

    // The file systems are mounted, and have something already.
    std::fs::remove_dir_all(dir.0.join("var")).unwrap();
    for (folder, mode) in [("var/log", 0o2775), ("home/u", 0o700)] {
        std::fs::create_dir_all(dir.0.join(folder)).unwrap();
        std::fs::set_permissions(dir.0.join(folder), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for (file, text) in [
        ("var/log/cloud-init.log", "old\n"),
        ("home/u/list", "old\n"),
        ("home/u/keys", "b\nc"),
        ("home/u/.profile", "own"),
    ] {
        std::fs::write(dir.0.join(file), text).unwrap();
    }
    for _ in 0..2 {
        let mut later = dir.root(Use::Tree);
        assert_eq!(later.recover(), []);
        let text = |path: &str| std::fs::read_to_string(dir.0.join(path)).unwrap();
        assert_eq!(std::fs::read(dir.0.join("var/log/x")).unwrap(), b"bin\xff");
        assert_eq!(text("var/log/cloud-init.log"), "old\nnew\n");
        assert_eq!(text("home/u/list"), "old\nnew\n");
        assert_eq!(text("home/u/keys"), "b\nc\na\n");
        assert_eq!(text("home/u/.profile"), "own");
        assert_eq!(text("var/lib/cloud/data/instance-id"), "i\n");
        let mode = |path: &str| std::fs::metadata(dir.0.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("var/log"), mode("home/u")), (0o2775, 0o700));
        assert_eq!(later.list("/etc"), ["y"], "nothing is left of the list");
    }
}

fn left_behind(root: &mut Root) -> Vec<record::Entry> {
    root.write("/etc/a", "new", Attr::root(0o600)).unwrap();
    root.mkdir("/srv/d", Attr::root(0o2750)).unwrap();
    root.symlink("/etc/link", "a").unwrap();
    root.remove("/etc/old").unwrap();
    root.changes().into_iter().map(|change| record::Entry { change, hidden: false }).collect()
}

#[test]
fn carries_out_a_left_journal_unless_torn() {
    let (dir, mut root) = tree("root-journal");
    dir.write("etc/old", "old");
    let entries = left_behind(&mut root);
    drop(journal_file::JournalFile::write(root.overlay.disk(), "etc", &entries, &[]).unwrap());
    let path = dir.0.join("etc/.prepivot-journal");
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);

    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let mut torn = dir.root(Use::Tree);
    assert_eq!(torn.recover(), []);
    assert_eq!(torn.list("/etc"), ["old"]);

    // Half of it was made when the run was cut off, with a temporary file.
    std::fs::write(&path, &whole).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    dir.write("etc/.a.prepivot", "ne");
    std::fs::create_dir_all(dir.0.join("srv/.d.prepivot/x")).unwrap();
    let plan = {
        let mut plan = dir.root(Use::Plan);
        assert_eq!(plan.recover(), []);
        plan.changes().len()
    };
    assert_eq!(plan, 4, "srv is there already");
    // A change without the call finds it as well.
    let mut next = dir.root(Use::Tree);
    next.write("/etc/more", "", Attr::root(0o644)).unwrap();
    assert_eq!(next.commit(), []);
    assert_eq!(next.list("/etc"), ["a", "link", "more"]);
    assert_eq!(next.list("/srv"), ["d"]);
    assert_eq!(next.text("/etc/link"), "new");
    assert_eq!(next.stat("/srv/d").unwrap().attr, Attr::root(0o2750));
}

/// A root with a large file to write, one of them over a small one, and one whose folder is removed first.
fn with_large_files(dir: &TempDir) -> (Root, Vec<(&'static str, Vec<u8>)>) {
    let mut root = dir.root(Use::Tree);
    let large = |byte: u8| vec![byte; staging::LARGE as usize + 5];
    let files =
        vec![("/srv/new/a", large(1)), ("/etc/old", large(2)), ("/etc/was-folder", large(3)), ("/etc/small", vec![4])];
    root.remove("/etc/was-folder").unwrap();
    for (at, (path, content)) in files.iter().enumerate() {
        root.write(path, content.clone(), Attr::root(0o600 + at as u32)).unwrap();
    }
    (root, files)
}

fn tree_with_old_files(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    for folder in ["etc/was-folder/x", "srv"] {
        std::fs::create_dir_all(dir.0.join(folder)).unwrap();
    }
    dir.write("etc/old", "old");
    dir
}

#[test]
fn large_contents_are_written_once_beside_the_journal() {
    let dir = tree_with_old_files("root-staged");
    let (mut root, files) = with_large_files(&dir);
    assert_eq!(root.commit(), []);
    for (at, (path, content)) in files.iter().enumerate() {
        assert!(root.read(path).unwrap().unwrap() == *content, "{path}");
        assert_eq!(root.stat(path).unwrap().attr.mode, 0o600 + at as u32);
    }
    assert_eq!(root.list("/etc"), ["old", "small", "was-folder"]);
}

#[test]
fn journal_with_staged_content_resumes_at_any_point() {
    let whole = |dir: &TempDir| {
        let (root, _) = with_large_files(dir);
        let entries: Vec<_> =
            root.changes().into_iter().map(|change| record::Entry { change, hidden: false }).collect();
        let large = staging::eligible(root.overlay.disk(), "etc", &entries);
        // Not the file in the place of a folder: its removal would be repeated.
        assert_eq!(large.len(), 2);
        let (journal, staged) = journal_file::JournalFile::write(root.overlay.disk(), "etc", &entries, &large).unwrap();
        drop(journal);
        (root, staged.unwrap())
    };
    let steps = whole(&tree_with_old_files("root-staged-steps")).1.len();
    for made in 0..=steps {
        let dir = tree_with_old_files("root-staged-cut");
        let (root, entries) = whole(&dir);
        let size = std::fs::metadata(dir.0.join("etc/.prepivot-journal")).unwrap().len();
        assert!(size < 2 * staging::LARGE, "one of the contents is in it: {size}");
        entries[..made].iter().for_each(|e| root.overlay.disk().apply(&e.change, &mut Default::default()).unwrap());
        let mut plan = dir.root(Use::Plan);
        assert_eq!(plan.recover(), []);
        let mut next = dir.root(Use::Tree);
        assert_eq!(next.recover(), []);
        let (_, files) = with_large_files(&dir);
        for (at, (path, content)) in files.iter().enumerate() {
            assert!(plan.read(path).unwrap().unwrap() == *content, "{path} after {made}");
            assert!(next.read(path).unwrap().unwrap() == *content, "{path} after {made}");
            assert_eq!(next.stat(path).unwrap().attr.mode, 0o600 + at as u32, "{path} after {made}");
        }
        assert_eq!(next.list("/etc"), ["old", "small", "was-folder"], "after {made}");
    }
    // Cut off before the journal was complete.
    let dir = tree_with_old_files("root-staged-torn");
    whole(&dir);
    let path = dir.0.join("etc/.prepivot-journal");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut next = dir.root(Use::Tree);
    assert_eq!(next.recover(), []);
    assert_eq!(
        (next.list("/etc"), next.text("/etc/old")),
        (vec!["old".to_owned(), "was-folder".to_owned()], "old".into())
    );
    // Content that is neither staged nor in its place, and another user's folder.
    for break_it in [&|path: &Path| std::fs::remove_file(path.join("0")).unwrap() as _, &|path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }] as [&dyn Fn(&Path); 2]
    {
        let dir = tree_with_old_files("root-staged-gone");
        whole(&dir);
        break_it(&dir.0.join("etc/.prepivot-staged"));
        let mut next = dir.root(Use::Tree);
        let errors = next.recover();
        assert!(errors[0].to_string().starts_with("failed to write /"), "{errors:?}");
        assert_eq!(next.read("/etc/small").unwrap().unwrap(), [4], "the rest is made");
        assert!(!next.exists("/etc/.prepivot-staged") && !next.exists("/etc/.prepivot-journal"));
    }
}

#[test]
fn lost_staged_content_marks_nothing_as_done() {
    for is_moved in [false, true] {
        let dir = tree_with_old_files("root-staged-lost");
        if is_moved {
            // `system_info: paths: cloud_dir`.
            std::fs::create_dir_all(dir.0.join("srv/cloud")).unwrap();
            std::fs::create_dir_all(dir.0.join("var/lib")).unwrap();
            symlink("/srv/cloud", dir.0.join(layout::STATE)).unwrap();
        }
        let (mut root, _) = with_large_files(&dir);
        let mark = format!("/{}/data/instance-id", layout::STATE);
        root.write(&mark, "i-1\n", Attr::root(0o644)).unwrap();
        let mut entries: Vec<_> =
            root.changes().into_iter().map(|change| record::Entry { change, hidden: false }).collect();
        entries.sort_by_key(|e| e.change.path().ends_with("instance-id"));
        let large = staging::eligible(root.overlay.disk(), "etc", &entries);
        drop(journal_file::JournalFile::write(root.overlay.disk(), "etc", &entries, &large).unwrap());
        std::fs::remove_file(dir.0.join("etc/.prepivot-staged/0")).unwrap();
        let mut next = dir.root(Use::Tree);
        assert_eq!(next.recover().len(), 1);
        assert!(next.is_unwritten() && !next.exists(&mark), "the next stage provisions again: {is_moved}");
        assert_eq!(next.read("/etc/small").unwrap().unwrap(), [4], "the rest is made");
    }
}

#[test]
fn large_file_inherits_nothing_from_journals_folder() {
    let (dir, mut root) = tree("root-staged-acl");
    let etc = dir.0.join("etc");
    // The rights of the owner, the user 1000, the group and others to new files: its version, then for each tag, bits and id
    // (acl(5)).
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1u16, 7u16, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        acl.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    if rustix::fs::setxattr(&etc, c"system.posix_acl_default", &acl, rustix::fs::XattrFlags::empty()).is_err() {
        crate::base::testing::skip("the temporary folder's file system has no access control lists");
        return;
    }
    root.write("/srv/secret", vec![1; staging::LARGE as usize], Attr::root(0o640)).unwrap();
    assert_eq!(root.commit(), []);
    let access = rustix::fs::getxattr(dir.0.join("srv/secret"), c"system.posix_acl_access", &mut [0; 100]);
    assert!(access.is_err(), "the user 1000 may read it");
}

#[test]
fn ignores_another_users_journal() {
    let (dir, mut root) = tree("root-foreign");
    let entries = left_behind(&mut root);
    drop(journal_file::JournalFile::write(root.overlay.disk(), "etc", &entries, &[]).unwrap());
    let path = dir.0.join("etc/.prepivot-journal");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut next = dir.root(Use::Tree);
    let errors = next.recover();
    assert!(errors.len() == 1 && errors[0].to_string().contains("/etc/.prepivot-journal"), "{errors:?}");
    assert!(!next.exists("/etc/a"));
    // The next best folder has this run's.
    next.write("/etc/b", "", Attr::root(0o644)).unwrap();
    assert_eq!(next.commit(), []);
    assert_eq!(next.list("/"), ["etc"]);
}

#[test]
fn a_log_grows_in_place() {
    let (dir, mut root) = tree("root-log");
    std::fs::create_dir_all(dir.0.join("var/log")).unwrap();
    let path = dir.0.join("var/log/cloud-init.log");
    std::fs::write(&path, "a\n").unwrap();
    let before = std::fs::metadata(&path).unwrap().ino();
    root.append("/var/log/cloud-init.log", b"b\n", Attr::root(0o640)).unwrap();
    root.append("/var/log/cloud-init.log", b"c\n", Attr::root(0o640)).unwrap();
    assert_eq!(root.text("/var/log/cloud-init.log"), "a\nb\nc\n");
    assert_eq!(root.stat("/var/log/cloud-init.log").unwrap().size, 6);
    assert_eq!(root.commit(), []);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), before);
}

#[test]
fn failure_names_its_path_and_rest_continues() {
    let (dir, mut root) = tree("root-fail");
    root.write("/etc/one", "1", Attr::root(0o644)).unwrap();
    root.write("/etc/two", "2", Attr::root(0o644)).unwrap();
    std::fs::create_dir_all(dir.0.join("etc/one/in-the-way")).unwrap();
    let errors = root.commit();
    assert!(errors.is_empty() || errors[0].to_string().contains("/etc/one"), "{errors:?}");
    assert_eq!(std::fs::read_to_string(dir.0.join("etc/two")).unwrap(), "2");
}

#[test]
fn only_root_reads_the_hand_over() {
    let (_dir, mut root) = tree("root-run");
    root.write(&format!("{}/log", run_dir::DIR), "x", Attr::root(0o600)).unwrap();
    assert_eq!(root.stat(run_dir::DIR).unwrap().attr, Attr::root(0o700));
    assert_eq!(root.stat("/run").unwrap().attr, Attr::root(0o755));
}

#[test]
fn existing_folder_keeps_mode_and_owner() {
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

/// For chown(2), this number leaves the owner as it is.
#[test]
fn writes_nothing_for_an_invalid_owner() {
    for wrong in [Attr { uid: u32::MAX, ..Attr::root(0o644) }, Attr { gid: u32::MAX, ..Attr::root(0o644) }] {
        let (dir, mut root) = tree("root-no-owner");
        let before = root.list("/etc");
        root.write("/etc/file", "x", wrong).unwrap();
        root.mkdir("/etc/folder", wrong).unwrap();
        let errors: Vec<String> = root.commit().iter().map(ToString::to_string).collect();
        assert!(errors.len() == 2 && errors.iter().all(|e| e.contains("/etc/f")), "{errors:?}");
        let names =
            std::fs::read_dir(dir.0.join("etc")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.collect::<std::collections::BTreeSet<_>>(), before.into_iter().collect());
    }
}

#[test]
fn a_semaphore_is_made_in_its_place() {
    let (dir, mut root) = tree("root-semaphore");
    let path = "/var/lib/cloud/instances/i-1/sem/config_x";
    for (text, mode) in [("first", 0o644), ("second", 0o600)] {
        root.write(path, text, Attr::root(mode)).unwrap();
        assert_eq!(root.commit(), []);
        let meta = std::fs::metadata(dir.0.join(&path[1..])).unwrap();
        assert_eq!((root.text(path).as_str(), meta.permissions().mode() & 0o7777), (text, mode));
    }
    assert_eq!(root.list("/var/lib/cloud/instances/i-1/sem"), ["config_x"]);
}

#[test]
fn forgets_unchanged_files_but_no_removals() {
    let (_dir, mut root) = tree("unchanged");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let file = Attr { mode: 0o644, uid, gid };
    root.write("/etc/a/same", "x", file).unwrap();
    root.write("/etc/a/gone/old", "x", file).unwrap();
    assert_eq!(root.commit(), []);
    root.write("/etc/a/same", "x", file).unwrap();
    root.symlink("/etc/link", "a").unwrap();
    root.remove("/etc/a/gone").unwrap();
    root.mkdir("/etc/a/gone", Attr { mode: 0o755, ..file }).unwrap();
    let before = root.changes();
    root.drop_unchanged();
    assert_eq!(root.changes(), before);
    assert!(!root.exists("/etc/a/gone/old") && root.text("/etc/a/same") == "x");
    let left: Vec<&str> = root.overlay.nodes().map(|(path, _)| path).collect();
    assert_eq!(left, ["etc/a/gone/old", "etc/link"]);
}

#[test]
fn reads_the_vendors_os_release_without_etcs() {
    let dir = TempDir::new("os-release");
    let mut root = dir.root(Use::Tree);
    assert_eq!(installed::distro(&root).name, "unknown");
    root.write("/usr/lib/os-release", "ID=fedora\n", Attr::root(0o644)).unwrap();
    assert_eq!(installed::distro(&root).name, "fedora");
    root.write("/etc/os-release", "ID=debian\n", Attr::root(0o644)).unwrap();
    assert_eq!(installed::distro(&root).name, "debian");
    root.write("/etc/rpi-issue", "Raspberry Pi reference 2025-10-01\n", Attr::root(0o644)).unwrap();
    assert_eq!(installed::distro(&root).name, "raspberry-pi-os");
}

#[test]
fn without_a_journal_the_same_is_written() {
    let dir = TempDir::new("root-no-journal");
    dir.write("var/lib/cloud/data/list", "old\n");
    // Another user's journals: there is no place for one.
    for folder in ["etc", "var/lib", ""] {
        let path = dir.0.join(folder).join(".prepivot-journal");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let mut root = dir.root(Use::Tree);
    root.recover();
    root.overlay.mounts_mut().expect(&["var"]);
    let attr = Attr::root(0o644);
    // Seen by the next initramfs, too.
    root.append("/var/lib/cloud/data/list", b"new\n", attr).unwrap();
    let long = ["a", "b"].map(|end| format!("/srv/{}{end}", "x".repeat(240)));
    for path in &long {
        root.write(path, path.as_str(), attr).unwrap();
    }
    let errors = root.commit();
    assert!(errors.len() == 1 && errors[0].to_string().contains("a power cut before the end"), "{errors:?}");
    assert_eq!(std::fs::read_to_string(dir.0.join("var/lib/cloud/data/list")).unwrap(), "old\nnew\n");
    for path in &long {
        assert_eq!(root.text(path), *path);
    }
    assert_eq!(root.list("/srv").len(), 2);
}

#[test]
fn volatile_files_are_in_no_journal() {
    let (dir, mut root) = tree("root-volatile");
    dir.write("sys/kernel/x", "of the kernel");
    let number = || std::fs::metadata(dir.0.join("sys/kernel/x")).unwrap().ino();
    let before = number();
    for path in ["/tmp/a/x", "/dev/shm/x", "/run/x", "/sys/kernel/x"] {
        root.write(path, "x", Attr::root(0o600)).unwrap();
    }
    assert!(!root.has_changes_on_disk());
    root.write("/etc/x", "x", Attr::root(0o600)).unwrap();
    assert!(root.has_changes_on_disk());
    assert_eq!(root.commit(), []);
    assert_eq!(["/tmp/a/x", "/dev/shm/x", "/sys/kernel/x"].map(|path| root.text(path)), ["x"; 3]);
    assert_eq!(number(), before);
    // The kernel may show what it was given, and still act on it again.
    root.write("/sys/kernel/x", "x", Attr::root(0o600)).unwrap();
    assert_eq!(root.changes().len(), 1);
}

#[test]
fn writes_kernel_files_directly() {
    let mut root = Root::open(Path::new("/"), Use::Tree).unwrap();
    root.write("/proc/self/comm", "written", Attr::root(0o640)).unwrap();
    assert_eq!(root.commit(), [], "its mode cannot be changed");
    assert_eq!(root.text("/proc/self/comm"), "written\n");
    root.write("/proc/self/oom_score_adj", "no number", Attr::root(0o644)).unwrap();
    let errors = root.commit();
    assert!(errors.len() == 1 && errors[0].to_string().contains("/oom_score_adj: Invalid argument"), "{errors:?}");
}
