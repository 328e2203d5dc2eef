//! What the README claims, and the test that fails where it is not so.

use crate::pages::{self, page, table};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Words of the README, a folder of tests, and words of the test that shows it. Names of functions are written with spaces.
const CLAIMS: &[(&str, &str, &str)] = &[
    (
        "PID 1 of the real root starts on a machine that is already configured",
        "tests/boot",
        "at what the initramfs left",
    ),
    ("The root itself needs nothing installed", "tests/boot/cases", "prepivot installed in the image too"),
    ("missing prepivot never stops a boot", "tests/accepted", "a boot goes on whatever the program does"),
    ("missing prepivot never stops a boot", "tests/accepted", "a boot without the program is left alone"),
    ("with systemd, a unit; without, a hook", "tests/accepted", "dracut installs units where systemd runs the image"),
    ("with `systemd`, a unit; without, a hook", "tests/accepted", "mkinitcpio builds a systemd image with units"),
    ("an init-bottom script", "tests/accepted", "initramfs tools builds an image"),
    ("To see what would change, and change nothing", "tests/whole_program", "a plan changes the tree"),
    ("every datasource of cloud-init as ds-identify does", "tests/conformance", "ds identify.json"),
    ("the metadata service, by IPv4 and IPv6", "tests/boot/cases", "fe80::a9fe:a9fe"),
    ("with IMDSv2's token", "tests/net", "latest/api/token"),
    ("read also by a kernel without drivers", "tests/boot/cases", "a kernel without isofs"),
    ("read also by a kernel without drivers", "tests/boot/cases", "a kernel without vfat"),
    ("cloud-init's user-data formats are supported", "tests/conformance", "userdata.json"),
    ("written for every network stack", "tests/conformance", "network.json"),
    ("A metadata service is asked only where", "tests/net", "a virtual machine without a mark and without a list"),
    ("gets its line in fstab", "tests/boot/guest", "absent-waits"),
    ("No line that is written can stop a boot", "tests/cases", "nofail"),
    ("`#part-handler` runs where the root has Python", "src/stage", "handlers take their types as in cloud init"),
];

/// Whether a file below `folder` has the words.
fn has(folder: &Path, words: &str) -> bool {
    fs::read_dir(folder).expect("a folder of tests").flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => has(&entry.path(), words),
        _ => fs::read_to_string(entry.path()).is_ok_and(|text| text.replace('_', " ").contains(words)),
    })
}

#[test]
fn every_claim_has_its_test() {
    let readme: String = page("README.md").text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (claim, folder, words) in CLAIMS {
        assert!(readme.contains(claim), "the README no longer says: {claim}");
        assert!(has(&pages::project().join(folder), words), "no test in {folder} has the words: {words}");
    }
}

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
    for (command, option) in
        [("initramfs/install", "--root"), ("initramfs/install", "--list"), ("initramfs/build", "--way")]
    {
        assert!(
            pages::text(command).contains(&format!("#   {option} "))
                || pages::text(command).contains(&format!("[{option} "))
        );
    }
}

/// The value of the last line `key=` of a unit.
fn value<'a>(unit: &'a str, key: &str) -> Option<&'a str> {
    unit.lines().rev().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn the_units_are_those_of_the_table() {
    let page = page("initramfs/man/prepivot.8.md");
    let rows = table(page.section("## UNITS IN THE REAL ROOT"));
    assert_eq!(rows.len(), 6);
    for row in rows {
        let name = row[0].split(' ').next().unwrap_or_default();
        let unit = pages::text(&format!("initramfs/units/{name}"));
        let Some(command) = value(&unit, "ExecStart") else { continue };
        assert!(row[1].starts_with(&format!("`{}`", command.trim_start_matches("/usr/bin/"))), "{name}: {command}");
        let limit = match value(&unit, "TimeoutStartSec") {
            Some("infinity") => "as long as".to_owned(),
            Some("3600") => "at most 1 hour".to_owned(),
            seconds => format!("at most {} minutes", seconds.expect("a limit").parse::<u32>().unwrap() / 60),
        };
        assert!(row[1].contains(&limit), "{name}: {limit}");
        // Only what needs the network waits for it.
        let after = unit.lines().filter(|l| l.starts_with("After="));
        assert_eq!(after.filter(|l| l.contains("network-online.target")).count(), 0, "{name}");
    }
}

/// Keys of the kernel command line that the program's sources name in quotes.
fn keys(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            keys(&entry.path(), found);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            let quoted = text.split("\"prepivot.").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(quoted.filter(|k| k.chars().all(|c| c.is_ascii_lowercase())).map(|k| format!("prepivot.{k}")));
        }
    }
}

#[test]
fn prepivots_own_keys_of_the_kernel_command_line_are_in_the_table() {
    let mut code = BTreeSet::new();
    keys(&pages::project().join("src"), &mut code);
    let page = page("initramfs/man/prepivot-cmdline.7.md");
    let rows = table(page.section("### prepivot's own"));
    let listed: BTreeSet<String> =
        rows.iter().map(|row| row[0].trim_matches('`').split('=').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(listed, code);
}

#[test]
fn every_fuzz_target_is_in_the_table_with_what_was_tried() {
    let targets = std::fs::read_to_string("tests/fuzz/src/targets.rs").unwrap();
    let targets: BTreeSet<&str> =
        targets.split("Target { name: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let page = page("initramfs/man/prepivot-architecture.7.md");
    let (_, after) = page.text.split_once("What `tests/fuzz/run").expect("the paragraph of the table");
    let rows = pages::table(after);
    let cells = || rows.iter().flat_map(|row| row.chunks(3));
    assert_eq!(cells().map(|row| row[0].as_str()).collect::<BTreeSet<_>>(), targets);
    let inputs: u64 = cells().map(|row| row[1].replace(',', "").parse::<u64>().expect("a number")).sum();
    let digits = after.replace(',', "");
    assert!(digits.contains(&format!("{inputs} inputs in all")), "{inputs}");
}
