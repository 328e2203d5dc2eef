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
    ("with systemd, a unit; without, a hook", "tests/accepted", "dracut installs units with systemd"),
    ("with `systemd`, a unit; without, a hook", "tests/accepted", "mkinitcpio builds systemd image with its units"),
    ("an init-bottom script", "tests/accepted", "initramfs tools image build never fails"),
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
    let page = page("initramfs/man/prepivot-cmdline.7.md");
    let rows = table(page.section("### prepivot's own"));
    let listed: BTreeSet<String> =
        rows.iter().map(|row| row[0].trim_matches('`').split('=').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(listed, code);
}

#[test]
fn table_lists_every_fuzz_target_with_counts() {
    let targets = std::fs::read_to_string("tests/fuzz/src/targets.rs").unwrap();
    let targets: BTreeSet<&str> =
        targets.split("Target { name: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let page = page("initramfs/man/prepivot-architecture.7.md");
    let (_, after) = page.text.split_once("`tests/fuzz/run --seconds 25` tried").expect("the paragraph of the table");
    let rows = pages::table(after);
    let cells = || rows.iter().flat_map(|row| row.chunks(3));
    assert_eq!(cells().map(|row| row[0].as_str()).collect::<BTreeSet<_>>(), targets);
    let inputs: u64 = cells().map(|row| row[1].replace(',', "").parse::<u64>().expect("a number")).sum();
    let digits = after.replace(',', "");
    assert!(digits.contains(&format!("{inputs} inputs in all")), "{inputs}");
}

/// Limits that the manual gives: the page, its words, and the line of the source that has the same number.
const LIMITS: &[(&str, &str, &str, &str)] = &[
    (
        "prepivot-cmdline.7",
        "120 by default, 3600 at most",
        "stage/mod.rs",
        "BUDGET: Duration = Duration::from_secs(120)",
    ),
    (
        "prepivot-cmdline.7",
        "120 by default, 3600 at most",
        "stage/mod.rs",
        "MAX_BUDGET: Duration = Duration::from_secs(3600)",
    ),
    ("prepivot-datasources.7", "the stage's: 120 s", "stage/mod.rs", "BUDGET: Duration = Duration::from_secs(120)"),
    (
        "prepivot-datasources.7",
        "of at most eight names) has it | 20 s",
        "source/choose.rs",
        "MAYBE_TIME: Duration = Duration::from_secs(20)",
    ),
    ("prepivot-datasources.7", "of at most eight names", "source/choose.rs", "MAX_CHOICE: usize = 8;"),
    (
        "prepivot-datasources.7",
        "no service to ask | 1.5 s",
        "stage/search.rs",
        "UNCERTAIN: Duration = Duration::from_millis(1500)",
    ),
    (
        "prepivot-datasources.7",
        "before a service is asked | 30 s",
        "stage/search.rs",
        "COLDPLUG: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "that found nothing | 10 s",
        "stage/search.rs",
        "REREAD: Duration = Duration::from_secs(10)",
    ),
    (
        "prepivot-datasources.7",
        "did not answer in the initramfs, in the real root's network stage | 30 s",
        "stage/search.rs",
        "SERVED: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "the instance of the last boot can stay | 10 s",
        "stage/search.rs",
        "KNOWN: Duration = Duration::from_secs(10)",
    ),
    (
        "prepivot-datasources.7",
        "on a boot that may ask again | 30 s",
        "stage/refresh.rs",
        "BUDGET: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "reports to the service in the real root | 60 s",
        "stage/feedback.rs",
        "LIMIT: Duration = Duration::from_secs(60)",
    ),
    (
        "prepivot-datasources.7",
        "events to a webhook | 30 s, to all webhooks 60 s; after three failures",
        "stage/reporting.rs",
        "LIMIT: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "to all webhooks 60 s",
        "stage/reporting.rs",
        "TOTAL: Duration = Duration::from_secs(60)",
    ),
    ("prepivot-datasources.7", "after three failures in a row", "stage/reporting.rs", "MAX_FAILED: u32 = 3;"),
    (
        "prepivot-datasources.7",
        "documents of `#include`, in the real root | 120 s",
        "stage/web.rs",
        "INCLUDES: Duration = Duration::from_secs(120)",
    ),
    (
        "prepivot-datasources.7",
        "a link's carrier | 30 s",
        "link/raise.rs",
        "CARRIER_WAIT: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "after 4 s a link-local address",
        "link/raise.rs",
        "FALLBACK_AFTER: Duration = Duration::from_secs(4)",
    ),
    (
        "prepivot-datasources.7",
        "a router and an address by it, whose advertisements also name name servers | 5 s, 13 s and 2 s",
        "link/raise.rs",
        "V6_WAIT: Duration = Duration::from_secs(5)",
    ),
    (
        "prepivot-datasources.7",
        "a router and an address by it, whose advertisements also name name servers | 5 s, 13 s and 2 s",
        "link/raise.rs",
        "ROUTER_WAIT: Duration = Duration::from_secs(13)",
    ),
    (
        "prepivot-datasources.7",
        "a router and an address by it, whose advertisements also name name servers | 5 s, 13 s and 2 s",
        "link/raise.rs",
        "ADDRESS_WAIT: Duration = Duration::from_secs(2)",
    ),
    (
        "prepivot-datasources.7",
        "once another has answered that there is no such service | 5 s",
        "link/session.rs",
        "SILENT_AFTER_NO: Duration = Duration::from_secs(5)",
    ),
    (
        "prepivot-datasources.7",
        "a message after 0.5 s",
        "link/dhcp/mod.rs",
        "FIRST_WAIT: Duration = Duration::from_millis(500)",
    ),
    (
        "prepivot-datasources.7",
        "and so on up to 64 s",
        "link/dhcp/mod.rs",
        "LONGEST_WAIT: Duration = Duration::from_secs(64)",
    ),
    (
        "prepivot-datasources.7",
        "one request | 10 s, 30 s, or `timeout`",
        "link/http/network.rs",
        "CONNECT: Duration = Duration::from_secs(10)",
    ),
    (
        "prepivot-datasources.7",
        "one request | 10 s, 30 s, or `timeout`",
        "link/http/client.rs",
        "ATTEMPT: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "again after 0.25 s",
        "link/http/client.rs",
        "FIRST_BACKOFF: Duration = Duration::from_millis(250)",
    ),
    (
        "prepivot-datasources.7",
        "and so on up to 8 s",
        "link/http/client.rs",
        "LONGEST_BACKOFF: Duration = Duration::from_secs(8)",
    ),
    (
        "prepivot-datasources.7",
        "vendor-data and values of EC2's tree 5 times",
        "source/openstack/service.rs",
        "VENDOR_TRIES: u32 = 5;",
    ),
    (
        "prepivot-datasources.7",
        "vendor-data and values of EC2's tree 5 times",
        "source/ec2/tree.rs",
        "VALUE_TRIES: u32 = 5;",
    ),
    (
        "prepivot-datasources.7",
        "20 s where a document fails in another way",
        "link/http/mod.rs",
        "WITHIN: Duration = Duration::from_secs(20)",
    ),
    (
        "prepivot-datasources.7",
        "the network stage of a later boot | 10 s",
        "stage/refresh.rs",
        "UNASKED: Duration = Duration::from_secs(10)",
    ),
    (
        "prepivot-datasources.7",
        "a password or custom data | 10 s",
        "source/azure/service.rs",
        "MEDIA_TIME: Duration = Duration::from_secs(10)",
    ),
    (
        "prepivot-datasources.7",
        "a machine's serial port: CloudSigma, SmartOS | 60 s",
        "source/cloud_sigma.rs",
        "TIME: Duration = Duration::from_secs(60)",
    ),
    (
        "prepivot-datasources.7",
        "a machine's serial port: CloudSigma, SmartOS | 60 s",
        "source/smart_os/mod.rs",
        "TIME: u64 = 60;",
    ),
    (
        "prepivot-datasources.7",
        "LXD's socket; Windows's programs | 30 s",
        "source/lxd.rs",
        "TIME: Duration = Duration::from_secs(30)",
    ),
    (
        "prepivot-datasources.7",
        "LXD's socket; Windows's programs | 30 s",
        "source/wsl/mod.rs",
        "TIME: Duration = Duration::from_secs(30)",
    ),
    ("prepivot.8", "at most 3 minutes", "system/service.rs", "NETWORK: Duration = Duration::from_secs(180)"),
    ("prepivot.8", "It waits 90 s for the device", "stage/mount_root.rs", "WAIT: Duration = Duration::from_secs(90)"),
    ("prepivot.8", "all parts together | 32 MB", "userdata/mod.rs", "MAX_UNPACKED: usize = 32 << 20"),
    ("prepivot.8", "16 MB, 250,000 nodes, 100 levels", "document/yaml/mod.rs", "MAX_BYTES: usize = 16 << 20"),
    ("prepivot.8", "16 MB, 250,000 nodes, 100 levels", "document/mod.rs", "MAX_NODES: usize = 250_000"),
    ("prepivot.8", "16 MB, 250,000 nodes, 100 levels", "document/mod.rs", "MAX_DEPTH: usize = 100;"),
    ("prepivot.8", "parts; URLs that are included | 1,000; 100", "userdata/mime/mod.rs", "MAX_PARTS: usize = 1000"),
    ("prepivot.8", "parts; URLs that are included | 1,000; 100", "userdata/parts.rs", "MAX_FETCHES: usize = 100;"),
    ("prepivot.8", "12 MB; 4,000,000", "userdata/jinja/budget.rs", "MAX_VALUES: usize = 12 << 20"),
    ("prepivot.8", "12 MB; 4,000,000", "userdata/jinja/budget.rs", "MAX_STEPS: usize = 4_000_000"),
    (
        "prepivot.8",
        "all entries together; `random_seed`",
        "module/write_files/content.rs",
        "MAX_CONTENTS: usize = 24 << 20",
    ),
    (
        "prepivot.8",
        "`random_seed`, unpacked | 24 MB",
        "module/write_files/content.rs",
        "MAX_CONTENTS: usize = 24 << 20",
    ),
    ("prepivot.8", "one budget of 50 MB", "base/budget.rs", "BYTES: usize = 54 << 20"),
    ("prepivot.8", "4 MB are kept for what", "base/budget.rs", "RESERVE: usize = 4 << 20"),
    ("prepivot.8", "40,000,000 steps of about", "base/budget.rs", "STEPS: usize = 40_000_000"),
    ("prepivot.8", "which 64 KB in a row", "base/gzip.rs", "MAX_SILENT: usize = 64 << 10"),
    ("prepivot.8", "node counts for 140 bytes", "document/mod.rs", "NODE_COST: usize = 140;"),
    ("prepivot.8", "a key for 220", "document/mod.rs", "KEY_COST: usize = 80;"),
    ("prepivot.8", "its first 50,000", "network/read/format.rs", "[50_000, 20_000, 5_000]"),
    ("prepivot.8", "folders of one path | 128", "root/resolve.rs", "MAX_COMPONENTS: usize = 128"),
    (
        "prepivot.8",
        "1,000 plain passwords of the usual 5,000 rounds",
        "system/accounts/mod.rs",
        "HASH_ROUNDS: u32 = 5_000_000",
    ),
    (
        "prepivot-modules.7",
        "systemctl waits up to 180 s",
        "system/service.rs",
        "SERVICE: Duration = Duration::from_secs(180)",
    ),
    ("prepivot-modules.7", "x-systemd.device-timeout=30s", "module/mounts/mod.rs", "\"x-systemd.device-timeout=30s\""),
];

#[test]
fn manuals_limits_equal_the_programs() {
    for (name, words, file, line) in LIMITS {
        let text: String =
            page(&format!("{}/{name}.md", pages::MANUAL)).text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "{name} no longer says: {words}");
        assert!(pages::text(&format!("src/{file}")).contains(line), "src/{file} no longer has {line}; {name}: {words}");
    }
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
