//! How a file that is there compares with the one that prepivot would leave.

use super::{disks, netplan};
use crate::base::glob;
use crate::document::{Value, json, yaml};

/// Differences between what cloud-init leaves and what prepivot would leave that are meant: one a line, in four fields between ` | `.
/// prepivot-differences(7) has more of each; tests/differential reads the file, too.
///
/// - the row's name in the output of `compare`
/// - a glob for the whole path; `*` matches slashes too
/// - what differs: `any` (whatever it is), `kept` (the file is there, and prepivot makes none), `made` (prepivot makes the file, and it
///   is not there), `mode` (or owner), `lines A, B, …` (lines that contain one of these texts), `words A, B, …` (these texts
///   themselves; the comma before B is not part of it), `disks` (lines of fstab for disks that the machine does not have), `more A, B,
///   …` (prepivot's netplan file has these keys, or more below them, and the network configuration is of version 1)
/// - the reason, for people
static STATED: &str = include_str!("stated.txt");

/// What the files that are compared do not tell.
pub struct Known<'a> {
    /// Whether the machine has a device.
    pub has_device: &'a dyn Fn(&str) -> bool,
    /// Whether the network configuration is of version 1.
    pub is_version_1: bool,
}

/// A difference that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stated {
    pub id: &'static str,
    files: &'static str,
    what: &'static str,
    pub reason: &'static str,
}

/// How a file compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Same,
    /// The same but for comments, order or notation.
    Alike,
    Stated(Stated),
    Different,
}

/// The rows for a path.
pub fn stated(path: &str) -> impl Iterator<Item = Stated> {
    let rows = STATED.lines().filter_map(|line| {
        let mut fields = line.splitn(4, " | ");
        Some(Stated { id: fields.next()?, files: fields.next()?, what: fields.next()?, reason: fields.next()? })
    });
    rows.filter(move |row| glob::matches(row.files, path))
}

/// Compares the content that is at `path` with the one that is to be.
pub fn contents(path: &str, there: &[u8], wanted: &[u8], known: &Known) -> Verdict {
    if there == wanted {
        return Verdict::Same;
    }
    let texts = (std::str::from_utf8(there), std::str::from_utf8(wanted));
    let (Ok(there), Ok(wanted)) = texts else { return by_row(path, "any").unwrap_or(Verdict::Different) };
    // What a document appends is there already.
    let is_appended = wanted.strip_prefix(there).is_some_and(|tail| !tail.is_empty() && there.ends_with(tail));
    if is_appended {
        return Verdict::Same;
    }
    let (there, wanted) = (accounts(path, there), accounts(path, wanted));
    if alike(path, &there, &wanted) {
        return Verdict::Alike;
    }
    // More than one row may be about a file: each takes away what it is about, and the one after which nothing is left is named.
    let (mut there, mut wanted) = (there, wanted);
    for row in stated(path) {
        let (kind, words) = row.what.split_once(' ').unwrap_or((row.what, ""));
        (there, wanted) = match kind {
            "any" => return Verdict::Stated(row),
            "lines" => (without_lines(&there, words), without_lines(&wanted, words)),
            "words" => (without_words(&there, words), without_words(&wanted, words)),
            "disks" => disks::without_missing(&there, &wanted, known.has_device),
            "more" if known.is_version_1 => {
                let kept = netplan::without_more(path, &there, &wanted, words).unwrap_or(wanted);
                (there, kept)
            }
            _ => continue,
        };
        if alike(path, &there, &wanted) {
            return Verdict::Stated(row);
        }
    }
    Verdict::Different
}

/// The row for a path and a difference of one word.
pub fn by_row(path: &str, what: &str) -> Option<Verdict> {
    stated(path).find(|row| row.what == "any" || row.what == what).map(Verdict::Stated)
}

/// Hashes of passwords have a random salt, the day of the last change is today, and no least age is 0 or nothing: none is compared.
fn accounts(path: &str, text: &str) -> String {
    if path != "/etc/shadow" {
        return text.to_owned();
    }
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let [_, hash, day, least, ..] = fields.as_mut_slice() {
            *day = "";
            if *least == "0" {
                *least = "";
            }
            if hash.starts_with('$') {
                *hash = "$";
            }
        }
        fields.join(":") + "\n"
    };
    text.lines().map(line).collect()
}

fn without_lines(text: &str, words: &str) -> String {
    let is_kept = |line: &&str| !words.split(", ").any(|word| line.contains(word));
    text.split_inclusive('\n').filter(is_kept).collect()
}

fn without_words(text: &str, words: &str) -> String {
    words.split(", ").fold(text.to_owned(), |text, word| text.replace(word, ""))
}

/// Whether two texts say the same to who reads them: as documents, or as lines without comments, in any order.
fn alike(path: &str, there: &str, wanted: &str) -> bool {
    let documents = |parse: fn(&str, &[u8]) -> Option<Value>| {
        let meant = |text: &str| Some(netplan::normal(path, without_empty(&parse(path, text.as_bytes())?)));
        meant(there).is_some_and(|value| Some(value) == meant(wanted))
    };
    let of_yaml = |path: &str, text: &[u8]| yaml::parse(path, std::str::from_utf8(text).ok()?).ok();
    if path.ends_with(".yaml") && documents(of_yaml) {
        return true;
    }
    if path.ends_with(".json") && documents(|path, text| Some(json::sorted(&json::parse(path, text).ok()?))) {
        return true;
    }
    let comments: &[&str] = if path.starts_with("/etc/apt/apt.conf") { &["#", "//"] } else { &["#", ";"] };
    lines(there, comments) == lines(wanted, comments)
}

/// A document without its empty lists and maps.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| {
        value.as_map().is_some_and(|map| map.iter().next().is_none())
            || value.as_list().is_some_and(<[Value]>::is_empty)
    };
    if let Some(map) = value.as_map() {
        let kept = map.iter().map(|(key, item)| (key, without_empty(item))).filter(|(_, item)| !is_empty(item));
        return Value::Map(kept.collect());
    }
    match value.as_list() {
        Some(list) => list.iter().map(without_empty).collect::<Vec<_>>().into(),
        None => value.clone(),
    }
}

/// Whether a file says nothing to netplan, which is the same as no file.
pub fn configures_nothing(path: &str, content: &[u8]) -> bool {
    let document = std::str::from_utf8(content).ok().and_then(|text| yaml::parse(path, text).ok());
    path.starts_with("/etc/netplan/")
        && document.is_some_and(|document| {
            let network = without_empty(&document).get("network").cloned().unwrap_or_default();
            network.as_map().is_some_and(|map| map.iter().all(|(key, _)| matches!(key, "version" | "renderer")))
        })
}

/// The lines that are no comments, sorted, each with single spaces and its words between commas without empty ones.
fn lines(text: &str, comments: &[&str]) -> Vec<String> {
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| {
            if word.contains(',') {
                word.split(',').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(",")
            } else {
                word.to_owned()
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let is_text = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !comments.iter().any(|start| line.starts_with(start))
    };
    let mut lines: Vec<String> = text.lines().filter(is_text).map(words).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_version_1(is_version_1: bool) -> Known<'static> {
        Known { has_device: &|_| true, is_version_1 }
    }

    #[test]
    fn comments_order_and_notation_are_alike() {
        let compared = |path: &str, there: &str, wanted: &str| {
            contents(path, there.as_bytes(), wanted.as_bytes(), &of_version_1(false))
        };
        assert_eq!(compared("/a", "# x\nb  c\na\n", "a\nb c\n"), Verdict::Alike);
        assert_eq!(compared("/a.yaml", "a: {b: \"1\"}\n", "a:\n  b: '1'\n"), Verdict::Alike);
        assert_eq!(compared("/a.yaml", "a: {b: {}, c: 1, d: []}\n", "a: {c: 1}\n"), Verdict::Alike);
        assert_eq!(compared("/a.yaml", "a: 1\n", "a: 2\n"), Verdict::Different);
        assert!(configures_nothing("/etc/netplan/50.yaml", b"network: {version: 2, ethernets: {}}\n"));
        assert!(!configures_nothing("/etc/netplan/50.yaml", b"network: {version: 2, ethernets: {a: {dhcp4: true}}}\n"));
        assert!(!configures_nothing("/srv/a.yaml", b"network: {version: 2}\n"));
        assert_eq!(compared("/a", "a\n", "a\nb\n"), Verdict::Different);
        assert_eq!(compared("/etc/apt/apt.conf.d/9", "//x\na \"//b\";\n", "// y\na \"//b\";\n"), Verdict::Alike);
        assert_eq!(compared("/etc/apt/apt.conf.d/9", "a \"//b\";\n", "a \"//c\";\n"), Verdict::Different);
        // A document appends once, and not again.
        assert_eq!(compared("/a", "x\na\n", "x\na\na\n"), Verdict::Same);
        assert_eq!(compared("/etc/shadow", "u:$6$a$b:9:0::\n", "u:$6$c$d:8:::\n"), Verdict::Alike);
        assert_eq!(compared("/etc/shadow", "u:$6$a$b:9:0::\n", "u:!:8:::\n"), Verdict::Different);
    }

    #[test]
    fn each_row_is_whole_and_fits_its_files() {
        let rows: Vec<&str> = STATED.lines().collect();
        for row in &rows {
            let fields: Vec<&str> = row.splitn(4, " | ").collect();
            assert_eq!(fields.len(), 4, "{row}");
            assert!(stated(fields[1]).any(|stated| stated.id == fields[0]), "{row}");
            let page = include_str!("../../../initramfs/man/prepivot-differences.7.md");
            let of_row = |line: &str| {
                line.starts_with(&format!("| `{}` |", fields[0]))
                    && line.contains(&format!("`{}`", fields[1]))
                    && line.contains(fields[3])
            };
            assert!(page.lines().any(of_row), "the manual has no row for {row}");
            let kind = fields[2].split(' ').next().unwrap();
            assert!(["any", "kept", "made", "mode", "lines", "words", "disks", "more"].contains(&kind), "{row}");
        }
        let fstab = |there: &str, wanted: &str| {
            contents("/etc/fstab", there.as_bytes(), wanted.as_bytes(), &of_version_1(false))
        };
        let by_row = fstab("a /b auto defaults,nofail 0 2\n", "a /b auto defaults 0 2\n");
        assert!(matches!(by_row, Verdict::Stated(row) if row.id == "no-fail"), "{by_row:?}");
        assert_eq!(fstab("a /b auto nofail 0 2\n", "a /c auto defaults 0 2\n"), Verdict::Different);
    }

    #[test]
    fn what_cloud_init_leaves_out_is_stated() {
        let netplan = |text: &str| format!("network: {{version: 2, ethernets: {{a: {{{text}}}}}}}\n");
        let compared = |there: &str, wanted: &str, is_version_1| {
            let (there, wanted) = (netplan(there), netplan(wanted));
            let path = "/etc/netplan/50-cloud-init.yaml";
            contents(path, there.as_bytes(), wanted.as_bytes(), &of_version_1(is_version_1))
        };
        let (one, two) = ("{to: default, via: 192.0.2.1}", "{to: 10.0.0.0/8, via: 192.0.2.2}");
        let (first, second, both) =
            (format!("routes: [{one}]"), format!("routes: [{two}]"), format!("routes: [{one}, {two}]"));
        let is_stated = |verdict| matches!(verdict, Verdict::Stated(row) if row.id == "version-1");
        assert!(
            is_stated(compared(&first, &both, true))
                && is_stated(compared("dhcp4: true", "dhcp4: true, activation-mode: manual", true))
        );
        assert!(is_stated(compared("mtu: 9", "mtu: 9, nameservers: {search: [x]}", true)));
        let with = |more: &str| format!("addresses: [192.0.2.9/24, 192.0.2.8/24], mtu: 9, {more}");
        assert!(is_stated(compared(
            &with(&first),
            &with("routes: [{via: 192.0.2.1, to: default}, {to: 10.0.0.0/8}]"),
            true
        )));
        // Not of version 1; only cloud-init has it; it is another one; it is no such key.
        assert_eq!(compared(&first, &both, false), Verdict::Different);
        assert_eq!(compared(&both, &first, true), Verdict::Different);
        assert_eq!(compared(&first, &second, true), Verdict::Different);
        assert_eq!(compared("dhcp4: true", "dhcp4: true, mtu: 9", true), Verdict::Different);
    }
}
