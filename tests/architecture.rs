//! The order of the folders below src/ (prepivot-architecture(7), "The order of imports"), which files write, and the length of
//! test names, read from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders. Each may use those before it. `root`, the door to the disk, and `instance`, plain data, are to the left of the
/// parts that fill them.
const ORDER: &[&str] = &[
    "base", "document", "machine", "root", "drive", "link", "detect", "network", "instance", "trust", "source",
    "userdata", "system", "schema", "module", "stage", "cli",
];

/// Groups of files that use each other in a cycle. The only one is the interpreter of templates: there a value can be a
/// macro, which is syntax, and a filter calls what it is given.
const CIRCLES: &[&str] = &[
    "userdata/jinja/call userdata/jinja/data userdata/jinja/filters userdata/jinja/filters/sequence userdata/jinja/filters/text userdata/jinja/format userdata/jinja/methods userdata/jinja/operators userdata/jinja/predicates userdata/jinja/print userdata/jinja/render userdata/jinja/scope userdata/jinja/syntax userdata/jinja/value",
];

/// Files outside root/ that write, and what.
const WRITERS: &[(&str, &str)] = &[
    ("base/logging", "the kernel's log"),
    ("base/testing", "the folders of tests, and the record of skipped ones"),
    ("cli/analyze", "the file that --outfile names"),
    ("cli/collect_logs", "the archive that --tarfile names"),
    ("cli/devel/net_convert", "the folder that --directory names"),
    ("cli/plan", "the file that --html names, and a folder of its own: an empty root, and a seed"),
    ("drive/mount", "its own mount point"),
    ("drive/wait", "the kernel's polling of removable drives, below /sys"),
    ("link/setup", "settings of links, below /proc/sys"),
    ("machine/drivers/insert", "where the kernel looks for firmware, below /sys"),
    ("module/seed_random", "the kernel's random device"),
    ("stage/first_process", "the initramfs's mount points"),
    ("trust/measure", "the registers of a TPM and of TDX"),
    ("trust/swtpm", "the folders of tests"),
];

/// Calls that change a file.
const WRITES: &[&str] = &[
    "fs::write(",
    "fs::rename(",
    "fs::copy(",
    "fs::remove_",
    "fs::create_dir",
    "fs::set_permissions(",
    "fs::hard_link(",
    "fs::symlink(",
    "File::create",
    ".write(true)",
    ".append(true)",
    ".create(true)",
];

/// The doors: what reads files of the machine and of the image.
const DOORS: [&str; 3] = ["machine", "drive", "root"];

/// Files outside the doors that open or look at files by themselves, and which.
const READERS: &[(&str, &str)] = &[
    ("base/logging", "the kernel's log"),
    ("base/testing", "the record of skipped tests"),
    ("cli/collect_logs", "the archive that --tarfile names"),
    ("cli/files", "the files that the command line names"),
    ("document/testing", "the conformance vectors"),
    ("link/line", "serial ports and sockets"),
    ("module/seed_random", "the kernel's random device"),
    ("stage/first_process", "the initramfs's mount points"),
    ("trust/measure", "the registers of a TPM and of TDX"),
];

/// Calls that read a file or look at one, following links wherever they lead. `Root`, `machine::beneath` and `drive` follow
/// none out of the tree, open no FIFO and have a limit.
const READS: &[&str] = &[
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "fs::read_link(",
    "fs::metadata(",
    "fs::symlink_metadata(",
    "fs::canonicalize(",
    "fs::exists(",
    "fs::open(",
    "fs::stat(",
    "fs::lstat(",
    "File::open",
    "File::options",
    "OpenOptions",
    ".base.join(path)",
    ").exists()",
    "CWD",
];

/// A source file by its module path, `source/ec2`, with the code that is in the program.
struct Source {
    module: String,
    code: String,
}

/// The code without comments, texts and tests, which come last in a file.
fn code(text: &str) -> String {
    let mut out = String::new();
    for line in in_program(text).lines() {
        let mut parts = line.split('"');
        out += parts.next().unwrap_or_default().split("//").next().unwrap_or_default();
        // After a text follows code again, after a comment it does not.
        if !line.trim_start().starts_with("//") {
            out.extend(parts.skip(1).step_by(2));
        }
        out.push('\n');
    }
    out
}

/// What comes before the tests of a file.
fn in_program(text: &str) -> &str {
    let end = text.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|at| {
        let item = text[*at..].lines().nth(1).unwrap_or_default();
        item.contains("mod ") && item.ends_with('{')
    });
    &text[..end.unwrap_or(text.len())]
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&src, &mut paths);
    let mut all: BTreeMap<PathBuf, String> = BTreeMap::new();
    all.extend(paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())));
    // `#[cfg(test)] mod NAME;`, with or without a path.
    let mut tests = BTreeSet::new();
    for (path, text) in &all {
        let folder = path.parent().unwrap();
        let own = if path.ends_with("mod.rs") { folder.to_owned() } else { path.with_extension("") };
        for (at, _) in text.match_indices("#[cfg(test)]") {
            let mut lines = text[at..].lines().skip(1);
            let mut line = lines.next().unwrap_or_default().trim();
            if let Some(file) = line.strip_prefix("#[path = \"").and_then(|l| l.strip_suffix("\"]")) {
                tests.insert(folder.join(file));
                line = lines.next().unwrap_or_default().trim();
            }
            if let Some((_, name)) = line.strip_suffix(';').and_then(|l| l.rsplit_once("mod ")) {
                tests.extend([own.join(format!("{name}.rs")), own.join(name).join("mod.rs")]);
            }
        }
    }
    // A module of tests has its own in its folder.
    let of_tests = |path: &Path| tests.iter().any(|test| path == test || path.starts_with(test.with_extension("")));
    let in_program = |path: &&PathBuf| !of_tests(path) && path.parent() != Some(&src);
    let module = |path: &Path| {
        let path = path.strip_prefix(&src).unwrap().with_extension("");
        path.to_str().unwrap().trim_end_matches("/mod").to_owned()
    };
    all.keys().filter(in_program).map(|path| Source { module: module(path), code: code(&all[path]) }).collect()
}

/// Every path that starts with `crate::` or `super::`, the parts of `{…}` one by one.
fn paths(code: &str) -> Vec<String> {
    let name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut out = Vec::new();
    for (at, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // The middle of `super::super::`, or of another word.
        if code[..at].ends_with(name) {
            continue;
        }
        let end = code[at..].find(|c| !name(c)).map_or(code.len(), |n| at + n);
        let path = &code[at..end];
        if path.ends_with("::") && code[end..].starts_with('{') {
            expand(path, &code[end + 1..], &mut out);
        } else if path != word {
            out.push(path.to_owned());
        }
    }
    out
}

/// Adds what stands in the braces after `prefix`; what follows them.
fn expand<'a>(prefix: &str, mut rest: &'a str, out: &mut Vec<String>) -> &'a str {
    loop {
        let end = rest.find(['{', ',', '}']).expect("braces are closed");
        let item = rest[..end].split(" as ").next().unwrap_or_default().trim();
        let ends_with = &rest[end..=end];
        rest = &rest[end + 1..];
        if ends_with == "{" {
            rest = expand(&format!("{prefix}{item}"), rest, out);
        } else if !item.is_empty() {
            out.push(format!("{prefix}{item}"));
        }
        if ends_with == "}" {
            return rest;
        }
    }
}

/// What each module uses. A folder's own file (mod.rs) has what its files share, and the table of a registry has the
/// type of its entries: their uses of the entries do not form a cycle.
fn uses(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let modules: BTreeSet<&str> = sources.iter().map(|s| s.module.as_str()).collect();
    let inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    let mut all = BTreeMap::new();
    for source in sources {
        let own: Vec<&str> = source.module.split('/').collect();
        let mut used = BTreeSet::new();
        for path in paths(&source.code) {
            let words: Vec<&str> = path.split("::").collect();
            let supers = words.iter().take_while(|w| **w == "super").count();
            let base = if supers == 0 { &[] } else { own.get(..own.len().saturating_sub(supers)).unwrap_or_default() };
            let full: Vec<&str> = base.iter().chain(&words[supers.max(1)..]).copied().collect();
            let module = (1..=full.len()).rev().find_map(|n| modules.get(full[..n].join("/").as_str()).copied());
            let table = |m: &str| m.strip_suffix("/table").is_some_and(|registry| inside(&source.module, registry));
            used.extend(module.filter(|m| !inside(m, &source.module) && !inside(&source.module, m) && !table(m)));
        }
        all.insert(source.module.as_str(), used);
    }
    all
}

fn folder(module: &str) -> &str {
    module.split('/').next().unwrap_or_default()
}

/// Everything that `from` uses, and what that uses, and so on.
fn reached<'a>(from: &'a str, uses: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        open.extend(uses[module].iter().filter(|used| reached.insert(**used)));
    }
    reached
}

#[test]
fn no_folder_uses_one_to_its_right() {
    let sources = sources();
    let place = |module: &str| {
        ORDER
            .iter()
            .position(|f| *f == folder(module))
            .unwrap_or_else(|| panic!("{module}: its folder is not in ORDER"))
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for (module, used) in uses(&sources) {
        count += used.len();
        wrong.extend(used.iter().filter(|u| place(u) > place(module)).map(|u| format!("{module} uses {u}")));
    }
    assert!(count > 500, "only {count} uses were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn manual_has_the_order_of_imports() {
    let page = fs::read_to_string("initramfs/man/prepivot-architecture.7.md").unwrap();
    let rest = page.split("### The order of imports\n").nth(1).unwrap().trim_start_matches('\n');
    let listed: Vec<&str> = rest.lines().take_while(|line| !line.is_empty()).flat_map(str::split_whitespace).collect();
    assert_eq!(listed, ORDER);
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let sources = sources();
    let uses = uses(&sources);
    let all: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|module| (*module, reached(module, &uses))).collect();
    let circle = |module: &str| {
        let members = all[module].iter().filter(|other| all[**other].contains(module));
        members.copied().collect::<Vec<_>>().join(" ")
    };
    let found: BTreeSet<String> = all.keys().map(|module| circle(module)).filter(|circle| !circle.is_empty()).collect();
    let new: Vec<&String> = found.iter().filter(|circle| !CIRCLES.contains(&circle.as_str())).collect();
    assert!(new.is_empty(), "{new:#?}");
    let gone: Vec<&&str> = CIRCLES.iter().filter(|known| !found.contains(**known)).collect();
    assert!(gone.is_empty(), "no longer circles: {gone:#?}");
}

#[test]
fn only_root_writes() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| folder(&s.module) != "root") {
        let line = source.code.lines().find(|line| WRITES.iter().any(|call| line.contains(call)));
        match (line, WRITERS.iter().any(|(module, _)| *module == source.module)) {
            (Some(line), false) => wrong.push(format!("{}: {}", source.module, line.trim())),
            (None, true) => wrong.push(format!("{} writes no longer: it may leave WRITERS", source.module)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a line has a call whose name does not begin in the middle of another.
fn has_word(line: &str, call: &str) -> bool {
    let is_start = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    line.match_indices(call).any(|(at, _)| call.starts_with([')', '.']) || is_start(at))
}

#[test]
fn only_the_doors_read() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| !DOORS.contains(&folder(&s.module))) {
        let line = source.code.lines().find(|line| READS.iter().any(|call| has_word(line, call)));
        match (line, READERS.iter().any(|(module, _)| *module == source.module)) {
            (Some(line), false) => wrong.push(format!("{}: {}", source.module, line.trim())),
            (None, true) => wrong.push(format!("{} reads no longer: it may leave READERS", source.module)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `{:?}` prints nothing in the smallest programs (initramfs/build). A message takes `base::text::quoted`.
#[test]
fn no_message_is_made_by_debug() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for source in sources() {
        let file = [format!("{}.rs", source.module), format!("{}/mod.rs", source.module)];
        let path = file.iter().map(|name| src.join(name)).find(|path| path.exists()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines = in_program(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
        wrong.extend(lines.filter(|line| shows_debug(line)).map(|line| format!("{}: {}", source.module, line.trim())));
    }
    assert_eq!(wrong, ["cli/devel/net_convert: program.say(format_args!(\"the configuration:\\n{network:#?}\"));"]);
}

/// Whether a line has a format of `Debug`: `{:?}`, `{name:#?}`.
fn shows_debug(line: &str) -> bool {
    line.match_indices("?}").any(|(at, _)| {
        let start = line[..at].trim_end_matches('#');
        start.ends_with(':') && start.rfind('{').is_some_and(|open| !start[open..].contains('}'))
    })
}

/// A test would write to the `/run` of the machine that it runs on: it has `Root::open_new`.
#[test]
fn only_initramfss_stage_uses_the_machines_run() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&src, &mut paths);
    let opens = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(", Use::NewRoot)");
    let found: Vec<&Path> =
        paths.iter().filter(|path| opens(path)).map(|path| path.strip_prefix(&src).unwrap()).collect();
    assert_eq!(found, [Path::new("stage/local.rs")]);
}

/// A module that is renamed or removed is not left in the list by which the program's functions are ordered.
#[test]
fn seldom_run_names_modules() {
    let modules = sources();
    let listed = fs::read_to_string("src/base/lean/seldom-run").unwrap();
    let paths = listed.lines().filter_map(|line| line.trim_start_matches('!').strip_prefix("prepivot::"));
    let unknown: Vec<_> = paths
        .filter(|path| {
            let module = path.replace("::", "/");
            !modules.iter().any(|source| {
                source.module.strip_prefix(&module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        })
        .collect();
    assert!(unknown.is_empty(), "src/base/lean/seldom-run: no such modules: {unknown:?}");
}

/// The most words of a test's name: subject, verb, condition.
const MAX_WORDS: usize = 8;

#[test]
fn test_names_have_eight_words_at_most() {
    let mut paths = Vec::new();
    for folder in ["src", "tests"] {
        rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut paths);
    }
    let (mut tests, mut long) = (0, Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("#[test]\n") {
            let function = text[at..].lines().skip(1).find_map(|line| line.trim().strip_prefix("fn "));
            let name = function.and_then(|rest| rest.split('(').next()).unwrap_or_default();
            tests += 1;
            if name.split('_').count() > MAX_WORDS {
                long.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(tests > 1000 && long.is_empty(), "{tests} tests; more than {MAX_WORDS} words:\n{}", long.join("\n"));
}

#[test]
fn comments_texts_and_tests_are_not_read() {
    let text = "use crate::{a::{b, c as d}, e};\n// use crate::f;\nlet x = \"crate::g\"; super::super::h::i(); not_crate::j;\n\
        #[cfg(test)]\nmod tests {\nuse crate::k;";
    assert_eq!(paths(&code(text)), ["crate::a::b", "crate::a::c", "crate::e", "super::super::h::i"]);
}
