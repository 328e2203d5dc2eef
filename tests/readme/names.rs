//! What the manual names is there: files, units, words of the kernel command line, variables, options, keys.

use crate::pages::{self, page, table};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The files of this project that a page names, but for those that stand for any.
fn files(text: &str) -> BTreeSet<&str> {
    let folders = ["src/", "initramfs/", "dracut/", "mkinitcpio/", "tests/"];
    text.split(|c: char| c.is_whitespace() || "`()|".contains(c))
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)))
        .map(|word| word.split('#').next().unwrap_or(word).trim_end_matches(['.', ',', ':', ';']))
        .filter(|word| !word.contains(['*', '"', '$']) && !word.contains("NAME") && !word.contains("MACHINE"))
        .collect()
}

#[test]
fn the_files_that_the_pages_name_are_there() {
    let mut number = 0;
    for page in pages::all() {
        for path in files(&page.text) {
            assert!(pages::project().join(path).exists(), "{}: {path}", page.path);
            number += 1;
        }
    }
    assert!(number >= 60, "{number}");
}

/// The value of the last line `key=` of a unit.
fn value<'a>(unit: &'a str, key: &str) -> Option<&'a str> {
    unit.lines().rev().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn the_units_are_those_of_the_table() {
    let page = page("initramfs/man/prepivot.8.md");
    let rows = table(page.section("## UNITS IN THE REAL ROOT"));
    assert_eq!(rows.len(), 9);
    for row in rows {
        let name = row[0].split(' ').next().unwrap_or_default();
        let unit = pages::text(&format!("initramfs/units/{name}"));
        let Some(command) = value(&unit, "ExecStart") else { continue };
        // A shell hands over the words of a line.
        let command = command.rsplit_once("exec ").map_or(command, |(_, end)| end.trim_end_matches(" $$words'"));
        assert!(row[1].starts_with(&format!("`{}`", command.trim_start_matches("/usr/bin/"))), "{name}: {command}");
        let limit = match value(&unit, "TimeoutStartSec") {
            Some("infinity") => "as long as".to_owned(),
            Some("3600") => "at most 1 hour".to_owned(),
            seconds => format!("at most {} minutes", seconds.expect("a limit").parse::<u32>().unwrap() / 60),
        };
        assert!(row[1].contains(&limit), "{name}: {limit}");
        // Only what needs the network waits for it.
        let after = unit.lines().filter_map(|l| l.strip_prefix("After=")).flat_map(str::split_whitespace);
        let after: Vec<&str> = after.collect();
        assert!(!after.contains(&"network-online.target"), "{name}");
        // The user's programs find the right time where the image waits for it.
        assert_eq!(after.contains(&"time-sync.target"), name == "cloud-final.service", "{name}");
    }
}

/// Keys of the kernel command line that the program's sources name in quotes.
fn keys(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            keys(&entry.path(), found);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            let quoted = text.split("\"prepivot.").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(
                quoted
                    .filter(|k| k.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
                    .map(|k| format!("prepivot.{k}")),
            );
        }
    }
}

#[test]
fn table_lists_prepivots_kernel_command_line_keys() {
    let mut code = BTreeSet::new();
    keys(&pages::project().join("src"), &mut code);
    // The name of a credential of the unit tests.
    code.remove("prepivot.test");
    let page = page("initramfs/man/prepivot-cmdline.7.md");
    let rows = table(page.section("### prepivot's own"));
    let listed: BTreeSet<String> =
        rows.iter().map(|row| row[0].trim_matches('`').split('=').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(listed, code);
}

#[test]
fn fuzz_figures_are_of_targets() {
    let targets = pages::text("tests/fuzz/src/targets.rs");
    let figures = pages::text("tests/fuzz/figures");
    let rows = figures.lines().filter(|line| !line.starts_with('#'));
    let mut number = 0;
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(targets.contains(&format!("Target {{ name: \"{}\"", words[0])), "{row}");
        assert!(words.len() == 5 && words[1..].iter().all(|word| word.parse::<u64>().is_ok()), "{row}");
        number += 1;
    }
    assert!(number > 10, "{number}");
}

/// The texts in quotes of the constant `name` of a source file.
fn constant(file: &str, name: &str) -> Vec<String> {
    let text = pages::text(&format!("src/{file}"));
    let value = text.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("src/{file}: {name}")).1;
    let value = value.split_once(" =").expect("a value").1.split_once(';').expect("its end").0;
    value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What follows one of `calls` in quotes, on the lines of the program's sources that have the word `on`.
fn quoted(folder: &Path, on: &str, calls: &[&str], found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            quoted(&entry.path(), on, calls, found);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for line in code.lines().filter(|l| l.contains(on)) {
                let words = calls.iter().flat_map(|call| line.split(call).skip(1)).filter_map(|r| r.split('"').next());
                found.extend(words.map(str::to_owned));
            }
        }
    }
}

#[test]
fn manual_lists_every_kernel_command_line_word() {
    let mut words = BTreeSet::new();
    quoted(
        &pages::project().join("src"),
        "cmdline",
        &[".value(\"", ".values(\"", ".has(\"", "is_given(\"", "strip_prefix(\""],
        &mut words,
    );
    words.extend(constant("link/cmdline_net.rs", "KEYS"));
    words.extend(constant("detect/policy.rs", "NAME_KEYS"));
    words.extend(constant("root/points.rs", "OVERLAYS"));
    words.extend(
        ["netroot", "nfsroot", "modprobe.blacklist", "systemd.set_credential", "cc:", "vultr"].map(str::to_owned),
    );
    assert!(words.len() > 30, "{words:?}");
    let text = page("initramfs/man/prepivot-cmdline.7.md").text;
    let is_there = |word: &str| {
        let ends = ["`", "=", " "];
        ends.iter().any(|end| text.contains(&format!("`{word}{end}")))
    };
    let missing: Vec<&String> = words.iter().filter(|word| !is_there(word)).collect();
    assert!(missing.is_empty(), "not in prepivot-cmdline(7): {missing:?}");
}

/// Fails with those of `words` that `text`, which is part of `page`, does not have in backquotes.
fn assert_all_quoted(words: &BTreeSet<String>, text: &str, page: &str) {
    let missing: Vec<&String> = words.iter().filter(|word| !text.contains(&format!("`{word}`"))).collect();
    assert!(missing.is_empty(), "not in {page}: {missing:?}");
}

#[test]
fn manual_lists_every_environment_variable_read() {
    let mut names = BTreeSet::new();
    quoted(&pages::project().join("src"), "env::var", &["var(\"", "var_os(\""], &mut names);
    names.extend(constant("detect/facts.rs", "VARIABLES"));
    // PATH and HOME are everyone's; tests have variables of their own.
    names.retain(|name| !["PATH", "HOME"].contains(&name.as_str()) && !name.starts_with("PREPIVOT_"));
    assert!(names.contains("NOTIFY_SOCKET") && names.contains("VMX_GUESTINFO"), "{names:?}");
    let page = page("initramfs/man/prepivot.8.md");
    let listed = page.section("## ENVIRONMENT");
    assert_all_quoted(&names, listed, "prepivot(8)");
}

#[test]
fn manual_lists_every_build_option() {
    let text = page("initramfs/man/prepivot.8.md").text;
    for script in ["initramfs/build", "initramfs/install", "initramfs/package", "initramfs/image"] {
        // The usage, at the head of the script.
        let usage = pages::text(script);
        let usage = usage.split_once("\nset -eu").expect("the script's head").0;
        let options = usage.split(|c: char| c.is_whitespace() || "[]|".contains(c)).filter(|w| w.starts_with("--"));
        let options: BTreeSet<&str> =
            options.filter(|w| w.len() > 2).map(|w| w.trim_end_matches([',', '.', ':'])).collect();
        assert!(options.len() >= 4, "{script}: {options:?}");
        for option in options {
            let ends = ["`", " ", "\n", "=", "]", "|"];
            assert!(
                ends.iter().any(|end| text.contains(&format!("{option}{end}"))),
                "{script} {option} is not in prepivot(8)"
            );
        }
    }
}

#[test]
fn table_lists_every_key_of_json_plan() {
    // The calls that make the objects are in these two files.
    let mut keys = BTreeSet::new();
    for file in ["stage/plan.rs", "root/change.rs"] {
        let text = pages::text(&format!("src/{file}"));
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        keys.extend(code.split("map.insert(\"").skip(1).filter_map(|r| r.split('"').next()).map(str::to_owned));
    }
    assert!(keys.contains("change") && keys.contains("env") && keys.contains("content_base64"), "{keys:?}");
    let page = page("initramfs/man/prepivot.8.md");
    let section = page.section("## PROVISIONING A TREE");
    assert_all_quoted(&keys, section, "prepivot(8)");
}

#[test]
fn versions_in_the_pages_are_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for (name, words) in [
        ("prepivot-images.7", format!("/prepivot_{version}-1_amd64.deb")),
        ("prepivot-images.7", format!("PREPIVOT_VERSION = {version}\n")),
        ("prepivot-images.7", format!("prepivot_{version}.bb")),
        ("cloud-init.1", format!("26.2 (prepivot {version})`")),
        ("cloud-init.1", format!("prints `prepivot {version}`")),
        ("prepivot-changes.7", format!("\n## {version}\n")),
    ] {
        assert!(page(&format!("{}/{name}.md", pages::MANUAL)).text.contains(&words), "{name}: {words}");
    }
}
