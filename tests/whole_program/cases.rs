//! Each folder of `tests/cases` is a test of its name, which plans and applies a seed to a root tree through the real
//! binary.
//!
//! A case's folder has
//!
//! - `case`: lines of a key and a value: `about` (what is shown), `distro`, `stack` (what configures its network);
//! - `seed`: a folder, as `--seed` takes it; `seed.2`, if there is one, is applied after it: a second boot;
//! - `root`: files put over the distribution's tree, its `sys` and `proc` among them;
//! - `expected` (`expected.2`): exit code, messages (each line once), every change of the tree but the state's, and every command of the plan.
//!
//! `BLESS=1 cargo test --test cases [NAME]` writes what is found as what is expected: read the difference before you keep it.

mod program;
// The tests of whole_program and tests/crash share it, and use other parts.
#[allow(dead_code)]
mod tree;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use prepivot::base::testing::TempDir;
use prepivot::document::{Value, json};
use program::{Output, prepivot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tree::{Entry, Tree};

/// A secret that a case may have and no output may show.
const SECRET: &str = "s3cret";

/// Files with a secret that another user than root has to read: APT asks mirrors as the user _apt.
const OPEN: [&str; 1] = ["/etc/apt/apt.conf.d/90cloud-init-aptproxy"];

/// The plan's lines, parsed.
pub fn plan(root: &Path, seed: &Path) -> (Output, Vec<Value>) {
    let output = prepivot("plan", root, seed, &["--json"]);
    let lines = output.stdout.lines().map(|l| json::parse("plan", l.as_bytes()).expect("a line of JSON")).collect();
    (output, lines)
}

/// Plans, applies, and plans again. Gives what `expected` is compared with; `wrong` gets what no case may do.
fn run(root: &Tree, seed: &Path, wrong: &mut Vec<String>) -> String {
    let before = root.entries();
    let (planned, lines) = plan(root.path(), seed);
    let shown = prepivot("plan", root.path(), seed, &[]);
    if root.entries() != before {
        wrong.push("a plan changes the tree".into());
    }
    let applied = prepivot("apply", root.path(), seed, &[]);
    let after = root.entries();
    compare_plan(&lines, &before, &after, wrong);
    let files = || root.inodes(after.keys().filter(|path| !is_state(path)));
    let inodes = files();
    let again = prepivot("apply", root.path(), seed, &[]);
    for (path, _) in files().into_iter().filter(|(path, inode)| inodes.get(path) != Some(inode)) {
        wrong.push(format!("a second apply writes {path} again, as it is"));
    }
    for (path, _, _) in tree::differences(&after, &root.entries()) {
        wrong.push(format!("a second apply changes {path}"));
    }
    for (what, text) in [
        ("plan", &shown.stdout),
        ("plan's messages", &planned.stderr),
        ("apply's messages", &applied.stderr),
        ("a second apply's messages", &again.stderr),
    ] {
        if text.contains(SECRET) {
            wrong.push(format!("{what}: a secret is said"));
        }
    }
    for (path, entry) in after.iter().filter(|(path, entry)| before.get(*path) != Some(entry)) {
        let has_secret = entry.content.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes());
        if has_secret && entry.mode & 0o007 != 0 && !OPEN.contains(&path.as_str()) {
            wrong.push(format!("{path}: everyone may read a secret: mode {:04o}", entry.mode));
        }
    }
    let mut found = format!("exit {}\n", applied.code);
    let mut said = BTreeSet::new();
    for line in applied.stderr.lines().filter(|line| said.insert(*line)) {
        found += &format!("say {}\n", line.replace(&*seed.to_string_lossy(), "SEED"));
    }
    for (path, old, new) in tree::differences(&before, &after).into_iter().filter(|(p, ..)| !is_state(p)) {
        found += &tree::describe(path, old, new);
    }
    for line in lines.iter().filter(|l| l.get("change").and_then(Value::as_str) == Some("run")) {
        let argv: Vec<String> =
            line.get("argv").and_then(Value::as_list).into_iter().flatten().filter_map(Value::text).collect();
        found += &format!("run {} {}\n", line.get("when").and_then(Value::text).unwrap_or_default(), argv.join(" "));
    }
    found
}

/// The state is compared by the tests of the parts that write it.
fn is_state(path: &str) -> bool {
    ["/var/lib/cloud", "/run/cloud-init", "/run/prepivot"].iter().any(|p| path.starts_with(p)) || path == "/var/lib"
}

/// What the plan says that apply does is what apply did.
fn compare_plan(
    lines: &[Value],
    before: &BTreeMap<String, Entry>,
    after: &BTreeMap<String, Entry>,
    wrong: &mut Vec<String>,
) {
    let mut planned: BTreeMap<String, &Value> = BTreeMap::new();
    for line in lines.iter().filter(|l| l.get("when").is_none()) {
        planned.insert(line.get("path").and_then(Value::text).unwrap_or_default(), line);
    }
    let changed: BTreeMap<&str, Option<&Entry>> =
        tree::differences(before, after).into_iter().map(|(path, _, new)| (path, new)).collect();
    for (path, line) in &planned {
        let text = |key: &str| line.get(key).and_then(Value::text);
        let Some(new) = changed.get(path.as_str()) else {
            wrong.push(format!("{path}: planned, and apply does not change it"));
            continue;
        };
        let Some(new) = new else {
            if text("change").as_deref() != Some("remove") {
                wrong.push(format!("{path}: apply removes it, and the plan says {:?}", text("change")));
            }
            continue;
        };
        if let Some(mode) = text("mode").filter(|m| *m != format!("{:04o}", new.mode)) {
            wrong.push(format!("{path}: planned with mode {mode}, and apply gives it {:04o}", new.mode));
        }
        let content = text("content").filter(|_| !tree::is_random(path));
        let plain = |bytes: &[u8]| tree::without_hashes(&String::from_utf8_lossy(bytes));
        if content.is_some_and(|c| c.as_bytes() != new.content && plain(c.as_bytes()) != plain(&new.content)) {
            wrong.push(format!("{path}: apply writes another content than the plan has"));
        }
    }
    // What is below a removed folder goes with it.
    let gone = |path: &str| planned.keys().any(|p| path.starts_with(&format!("{p}/")));
    for (path, new) in changed {
        let said = planned.contains_key(path) || (new.is_none() && gone(path));
        if !said {
            wrong.push(format!("{path}: apply changes it, and the plan does not say so"));
        }
    }
}

/// Compares `found` with the file at `path`, or writes it there.
fn check(path: &Path, found: &str, wrong: &mut Vec<String>) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    if old == new {
        return;
    }
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(2);
    let part = |lines: &[&str]| lines.iter().skip(from).take(12).map(|l| format!("\n      {l}")).collect::<String>();
    wrong.push(format!(
        "{}: differs from line {}\n    expected:{}\n    found:{}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        same + 1,
        part(&old),
        part(&new)
    ));
}

/// Runs a case. Fails with a line for each thing that is wrong.
fn run_case(case: &Path) -> Result<Completion, Failed> {
    let dir = TempDir::new("case");
    let root = Tree::of_case(case, &dir.0);
    let mut wrong = Vec::new();
    for (seed, expected) in [("seed", "expected"), ("seed.2", "expected.2")] {
        if seed == "seed" || case.join(seed).exists() {
            let found = run(&root, &case.join(seed), &mut wrong);
            check(&case.join(expected), &found, &mut wrong);
        }
    }
    if wrong.is_empty() { Ok(Completion::Completed) } else { Err(wrong.join("\n").into()) }
}

/// Why no case can run here, if that is so.
fn obstacle() -> Option<&'static str> {
    (!rustix::process::geteuid().is_root()).then_some("files are given to other users, which needs root")
}

fn trial(case: PathBuf) -> Trial {
    let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Trial::ignorable_test(name, move || match obstacle() {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => run_case(&case),
    })
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(folder).expect("the folder of the cases");
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.expect("a case").path()).collect();
    cases.sort();
    let count = cases.len();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), cases.into_iter().map(trial).collect());
    if let Some(reason) = obstacle() {
        println!("skipped: {count} cases: {reason}");
    }
    conclusion.exit();
}
