//! The README and the manual pages, and the parts of Markdown that they use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the manual pages, below the project's.
pub const MANUAL: &str = "initramfs/man";

/// A Markdown document.
pub struct Page {
    /// Its path below the project's folder: `initramfs/man/prepivot.8.md`.
    pub path: String,
    pub text: String,
}

/// The project's folder.
pub fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the project.
pub fn text(path: &str) -> String {
    fs::read_to_string(project().join(path)).unwrap_or_else(|e| panic!("failed to read {path}: {e}"))
}

/// The document at `path`, which is below the project's folder.
pub fn page(path: &str) -> Page {
    Page { path: path.to_owned(), text: text(path) }
}

/// The manual pages, by name.
pub fn manual() -> Vec<Page> {
    let entries = fs::read_dir(project().join(MANUAL)).expect("the folder of the manual pages");
    let names: BTreeSet<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).filter(|n| n.ends_with(".md")).collect();
    assert!(names.len() >= 8, "manual pages are missing: {names:?}");
    names.iter().map(|name| page(&format!("{MANUAL}/{name}"))).collect()
}

/// The README and all manual pages.
pub fn all() -> Vec<Page> {
    std::iter::once(page("README.md")).chain(manual()).collect()
}

impl Page {
    /// The text below a heading, to the next heading of the same level or a higher one.
    pub fn section(&self, heading: &str) -> &str {
        let start =
            self.text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading} in {}", self.path));
        let rest = &self.text[start + heading.len() + 2..];
        let level = heading.find(' ').expect("a heading");
        let higher = |line: &str| (1..=level).any(|n| line.starts_with(&format!("{} ", "#".repeat(n))));
        let end = rest.match_indices('\n').find(|(at, _)| rest.get(at + 1..).is_some_and(higher));
        &rest[..end.map_or(rest.len(), |(at, _)| at)]
    }

    /// The name by which links reach a heading: GitHub's.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = self.text.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim());
        headings
            .map(|h| {
                let kept = h.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
                kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
            })
            .collect()
    }

    /// The links: their texts and where they lead.
    pub fn links(&self) -> Vec<(&str, &str)> {
        let ends = self.text.match_indices("](");
        ends.map(|(at, _)| {
            let start = self.text[..at].rfind('[').expect("a link's start");
            let rest = &self.text[at + 2..];
            (&self.text[start + 1..at], &rest[..rest.find(')').expect("a link's end")])
        })
        .collect()
    }

    /// Why a link of this page leads nowhere; None where it leads somewhere.
    pub fn broken(&self, target: &str) -> Option<String> {
        let (path, anchor) = target.split_once('#').map_or((target, None), |(p, a)| (p, Some(a)));
        let folder = Path::new(&self.path).parent().expect("a folder");
        let path = if path.is_empty() { PathBuf::from(&self.path) } else { folder.join(path) };
        if !project().join(&path).exists() {
            return Some(format!("{}: {target}: there is no such file", self.path));
        }
        let there = page(path.to_str().unwrap()).anchors();
        let anchor = anchor.filter(|a| !there.contains(*a))?;
        Some(format!("{}: {target}: no heading {anchor} in {there:?}", self.path))
    }
}

/// The rows of the first table in `text`, without its head; each cell trimmed.
pub fn table(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    lines.skip(2).map(cells).collect()
}

/// The cells of a table's line. `\|` is no border.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\0");
    inner.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// The names in the first column of the first table in `text`; a cell may have several, with commas between them.
pub fn first_column(text: &str) -> BTreeSet<String> {
    table(text).iter().flat_map(|row| names(&row[0])).collect()
}

/// The names in a list with commas.
pub fn names(list: &str) -> BTreeSet<String> {
    list.split([',', ' ', '\n']).filter(|n| !n.is_empty()).map(str::to_owned).collect()
}
