//! `initramfs/man/build`: the manual's Markdown as man pages.

use crate::pages::{self, Page};
use prepivot::base::testing::TempDir;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn build(folder: &Path, out: &Path) -> Output {
    Command::new(folder.join("initramfs/man/build")).arg(out).output().expect("failed to run initramfs/man/build")
}

/// Each page, and the man page that it becomes.
fn built() -> Vec<(Page, String)> {
    let out = TempDir::new("man");
    let output = build(&pages::project(), &out.0);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let roff = |page: &Page| {
        let name = page.path.rsplit('/').next().unwrap().trim_end_matches(".md");
        fs::read_to_string(out.0.join(name)).unwrap_or_else(|e| panic!("no man page of {}: {e}", page.path))
    };
    let built: Vec<(Page, String)> =
        pages::manual().into_iter().map(|page| (roff(&page), page)).map(|(r, p)| (p, r)).collect();
    assert_eq!(fs::read_dir(&out.0).unwrap().count(), built.len());
    built
}

/// The words of a text: what is between characters that no word has.
fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_page_converts_with_all_its_words() {
    for (page, roff) in built() {
        let mut markdown = page.text.clone();
        for (_, target) in page.links() {
            markdown = markdown.replace(&format!("]({target})"), "]");
        }
        // A table that becomes a list has no head.
        let lines: Vec<&str> = markdown.lines().collect();
        let head = |at: usize| lines.get(at + 1).is_some_and(|below| below.starts_with("|--"));
        let kept = lines.iter().enumerate().filter(|(at, line)| !line.starts_with("<!--") && !head(*at));
        let kept: String = kept.map(|(_, line)| format!("{line}\n")).collect();
        let plain = ["\\fB", "\\fR", "\\(bu", "\\(aq", "\\(ga", "\\(ha", "\\(ti", "\\&"]
            .iter()
            .fold(roff.replace("\\-", "-").replace("\\e", "\\"), |text, escape| text.replace(escape, " "));
        let there = words(&plain.to_lowercase());
        let lost: Vec<String> = words(&kept.to_lowercase()).into_iter().filter(|w| !there.contains(w)).collect();
        assert_eq!(lost, Vec::<String>::new(), "{}", page.path);
        assert!(!roff.contains("](") && !roff.contains('`'), "{}: Markdown in the man page", page.path);
    }
}

#[test]
fn mandoc_finds_nothing_wrong_with_the_man_pages() {
    if Command::new("mandoc").arg("/dev/null").output().is_err() {
        prepivot::base::testing::skip("there is no mandoc");
        return;
    }
    let lint = |file: &Path| {
        let output = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(file).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let folder = TempDir::new("mandoc");
    let file = folder.0.join("page");
    for (page, roff) in built() {
        fs::write(&file, &roff).unwrap();
        assert_eq!(lint(&file), "", "{}", page.path);
        // What is wrong is found.
        fs::write(&file, roff + ".wrong\n").unwrap();
        assert!(lint(&file).contains("wrong"), "{}", page.path);
    }
}

#[test]
fn converter_names_the_line_of_unknown_syntax() {
    let folder = TempDir::new("man-source");
    let manual = folder.0.join(pages::MANUAL);
    fs::create_dir_all(&manual).unwrap();
    for file in ["Cargo.toml", "initramfs/man/build", "initramfs/man/man.awk"] {
        fs::copy(pages::project().join(file), folder.0.join(file)).unwrap();
    }
    let convert = |text: &str| {
        fs::write(manual.join("x.1.md"), format!("# x(1)\n\n## NAME\n\nx - y\n\n{text}\n")).unwrap();
        let output = build(&folder.0, &folder.0.join("out"));
        let made = fs::read_to_string(folder.0.join("out/x.1")).ok();
        assert_eq!(output.status.success(), made.is_some());
        made.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for wrong in ["```", "> quoted", "* item", "#### deep", "a `b", "| a | b |\n|---|---|\n| c |"] {
        let said = convert(wrong).expect_err(wrong);
        assert!(said.contains("x.1.md:7: ") || said.contains("x.1.md:9: "), "{wrong}: {said}");
    }
    for (markdown, roff) in [
        (".so `.x` 'y", ".PP\n\\&.so \\fB.x\\fR 'y\n"),
        ("`--a\\|b` \\| [y(2)](y.2.md), **c**", "\\fB\\-\\-a|b\\fR | \\fBy\\fR(2), \\fBc\\fR\n"),
        ("- one\n  more\n- two\n\ntext", ".IP \\(bu 2\none more\n.PD 0\n.IP \\(bu 2\ntwo\n.PD\n.PP\ntext\n"),
        ("    a\n\n    .b\\\n\nc", ".RS 4\n.EX\na\n\n\\&.b\\e\n.EE\n.RE\n.PP\nc\n"),
        ("| a | b |\n|---|---|\n| c | d |", ".TP\n\\fBc\\fR\nd\n"),
        ("| a | b | c |\n|---|---|---|\n| d | e | |", ".TS\nlB2 lB2 lB\nl2 l2 l.\na\tb\tc\nd\te\t\n.TE\n"),
    ] {
        let made = convert(markdown).expect(markdown);
        assert!(made.ends_with(roff), "{markdown}: {made}");
    }
    // Three columns that have no room beside each other.
    let long = "long ".repeat(20);
    let made = convert(&format!("| a | b | c |\n|---|---|---|\n| d | {long}| f |\n| {long}| e | |")).unwrap();
    let long = long.trim();
    assert!(
        made.ends_with(&format!(".TP\n\\fBd\\fR\nb: {long}\n.br\nc: f\n.PP\n\\fB{long}\\fR\n.RS\nb: e\n.RE\n")),
        "{made}"
    );
}
