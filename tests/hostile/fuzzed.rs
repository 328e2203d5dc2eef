//! What tests/fuzz keeps and what it found: every input is answered in bounded time, without a panic.

#[path = "../fuzz/src/targets.rs"]
mod targets;

use prepivot::base::testing::cpu_time;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The CPU time of one input, of a program that is not optimised.
const LONGEST: Duration = Duration::from_secs(10);

/// The files of a folder, in their order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn run_all(kind: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(kind);
    let names: Vec<_> = targets::TARGETS.iter().map(|target| target.name).collect();
    for path in files(&folder) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(names.contains(&name), "{}: there is no such target", path.display());
    }
    let mut count = 0;
    for target in targets::TARGETS {
        let inputs = files(&folder.join(target.name));
        assert!(kind != "corpus" || !inputs.is_empty(), "{} has no corpus", target.name);
        for path in inputs {
            println!("{}", path.display());
            let before = cpu_time();
            (target.run)(&std::fs::read(&path).expect("an input"));
            assert!(cpu_time() - before < LONGEST, "{}: {:?}", path.display(), cpu_time() - before);
            count += 1;
        }
    }
    count
}

#[test]
fn every_input_of_the_corpora() {
    assert!(run_all("corpus") >= targets::TARGETS.len());
}

#[test]
fn every_input_that_was_found() {
    assert!(run_all("found") > 0);
}
