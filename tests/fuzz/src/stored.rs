//! Targets for what an earlier stage, boot or version left on the disk, and for files that other programs keep.

use super::{in_tree, text};
use prepivot::base::digest::{Algorithm, digest};
use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::instance::status::Status;
use prepivot::link::system_names;
use prepivot::root::{Root, Stage, Use};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A journal, in a tree that has links out of it and staged contents: the version, the number of entries, and the entries. Length
/// and checksum are right, or nothing would be read. Nothing outside of the tree may change, and a second run finds nothing to do.
pub fn journal(data: &[u8]) {
    let Some(([version, count], entries)) = data.split_first_chunk() else { return };
    let mut bytes = b"prepivot-journal".to_vec();
    bytes.extend(u32::from(*version).to_le_bytes());
    bytes.extend(u32::from(*count).to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend_from_slice(entries);
    bytes.extend(digest(Algorithm::Sha256, &bytes));
    let (tree, outside) = (TempDir::new("fuzz-journal"), TempDir::new("fuzz-outside"));
    outside.write("file", "outside");
    tree.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    tree.write("etc/.prepivot-staged/0", "staged");
    tree.write("etc/.prepivot-journal", bytes);
    for (path, mode) in [("etc/.prepivot-staged", 0o700), ("etc/.prepivot-journal", 0o600)] {
        fs::set_permissions(tree.0.join(path), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    symlink(&outside.0, tree.0.join("link")).expect("a link");
    symlink(outside.0.join("file"), tree.0.join("etc/link")).expect("a link");
    let recover = |usage| Root::open(&tree.0, usage).expect("a root").recover();
    recover(Use::Plan);
    let errors = recover(Use::Tree);
    assert!(!errors.is_empty() || !tree.0.join("etc/.prepivot-journal").exists(), "the journal is still there");
    let names: Vec<_> =
        fs::read_dir(&outside.0).expect("the folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read(outside.0.join("file")).expect("the file"), b"outside");
    // What could not be read stays; all else was done.
    if errors.is_empty() {
        assert_eq!(recover(Use::Tree), []);
    }
}

/// status.json of this boot, which the next stage continues.
pub fn status(data: &[u8]) {
    in_tree(&[("run/cloud-init/status.json", data)], |path| {
        let mut root = Root::open(path, Use::Plan).expect("a root");
        let mut status = Status::load(&root);
        let report = Problems::new();
        report.warn("a warning");
        report.error("an error");
        for stage in Stage::ALL {
            status.note_killed(stage);
            status.begin(stage, 1.5);
            status.end(stage, &report);
            assert!(status.errors_of(stage).contains(&"an error".to_owned()), "{status:?}");
        }
        status.recoverable();
        status.withdraw(&["an error".to_owned()]);
        if status.save(&mut root).and_then(|()| status.save_result(&mut root)).is_ok() {
            assert_eq!(format!("{:?}", Status::load(&root).errors()), format!("{:?}", status.errors()));
        }
    });
}

/// hosts(5) or resolv.conf(5).
pub fn names(data: &[u8]) {
    let text = text(data);
    system_names::hosts(&text, "seed.example.org");
    let (servers, _) = system_names::resolv_conf(&text, 53, |link| (link == "eth0").then_some(2));
    assert!(!servers.is_empty());
}
