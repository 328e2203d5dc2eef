//! What the README and the manual say of costs and sizes: tests/bench/figures and figures-peers, and the limits of the sizes in
//! tests/run and tests/minimal/run.

use crate::generated::table;
use crate::pages;

/// A row of the table of boots: its label, the series and the boot in tests/bench/figures.
type Row = (&'static str, &'static str);

/// Boots without prepivot, each with the boots that are compared with it.
const BOOTS: [(Row, &[Row]); 2] = [
    (
        ("first boot, without prepivot", "dracut-systemd control"),
        &[
            ("prepivot, from a drive", "dracut-systemd first"),
            ("prepivot, from a drive: users, keys and files alone", "plain first"),
            ("prepivot, from the service", "service first"),
            ("prepivot as /init, from a drive", "init first"),
            ("Debian's cloud-init, from a drive", "cloud-init first"),
            ("Debian's cloud-init, from the service", "cloud-init-service first"),
        ],
    ),
    (
        ("later boots, without prepivot", "dracut-systemd provisioned-control"),
        &[
            ("prepivot, second and later boots", "dracut-systemd second"),
            ("prepivot as /init, second boot", "init second"),
            ("Debian's cloud-init, second boot", "cloud-init second"),
        ],
    ),
];

/// The peer of tests/bench/figures-peers that is none.
const NO_PEER: &str = "none";

/// The numbers of a line of tests/bench/figures.
fn figures<const N: usize>(name: &str) -> [f64; N] {
    let text = pages::text("tests/bench/figures");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("tests/bench/figures has no {name}"));
    let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().unwrap_or_else(|e| panic!("{name}: {n}: {e}"))).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{name}: {line}: not {N} numbers"))
}

pub fn boots() -> String {
    let cells = |label: &str, numbers: &[f64]| {
        std::iter::once(label.to_owned()).chain(numbers.iter().map(|n| format!("{n:.2}"))).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for ((label, control), compared) in BOOTS {
        let control: [f64; 3] = figures(control);
        rows.push([cells(label, &control), vec![String::new(); 3]].concat());
        for (label, boot) in compared {
            let times: [f64; 3] = figures(boot);
            let more = std::array::from_fn::<f64, 3, _>(|at| times[at] - control[at]);
            rows.push(cells(label, &[times, more].concat()));
        }
    }
    table(&["", "CPU", "up", "done", "CPU, more", "up, more", "done, more"], rows)
}

pub fn others() -> String {
    let ([first, first_cpu], [later, later_cpu]) = (figures("apply first"), figures("apply second"));
    let [memory] = figures("apply memory");
    let [plain_cpu, plain_up] = figures("plain third-more");
    let ([ours], [theirs]) = (figures("service requests"), figures("cloud-init-service requests"));
    let [grown] = figures("partition cpu");
    let rows = [
        ("`apply`, first boot from a drive, host keys included", format!("{first:.2} s, {first_cpu:.2} s of it CPU")),
        ("`apply`, later boots", format!("{later:.2} s, {later_cpu:.2} s of it CPU")),
        ("third boot with users, keys and files alone, more", format!("CPU {plain_cpu:.2} s, up {plain_up:.2} s")),
        ("growpart and resizefs with nothing to grow", format!("CPU {grown:.2} s")),
        ("requests to the service", format!("{ours} (cloud-init: {theirs})")),
        ("peak memory, the program itself included", format!("{memory:.1} MB")),
    ];
    table(&["what", "cost"], rows.map(|(what, cost)| vec![what.to_owned(), cost]))
}

/// The lines of tests/bench/figures-peers, in words.
fn peers_lines() -> Vec<Vec<String>> {
    let text = pages::text("tests/bench/figures-peers");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// A number of a line of tests/bench/figures-peers.
fn peers_number(word: &String) -> f64 {
    word.parse().unwrap_or_else(|e| panic!("figures-peers: {word}: {e}"))
}

/// What each peer's boots take more than those of the same root without any, and which parts of the job were not done.
pub fn peers_boots() -> String {
    let lines = peers_lines();
    let row = |label: String, costs: [f64; 6], undone: String| {
        let [cpu, up, done, requests, memory, processes] = costs;
        let times = [cpu, up, done].map(|n| format!("{n:.2}"));
        let counts = [requests, memory, processes].map(|n| format!("{n:.0}"));
        [vec![label], times.to_vec(), counts.to_vec(), vec![undone]].concat()
    };
    let costs = |line: &[String]| std::array::from_fn::<f64, 6, _>(|at| peers_number(&line[4 + at]));
    let label = |line: &[String]| format!("{}, {}", line[0], line[1]);
    let mut rows = Vec::new();
    for boot in ["first", "second"] {
        let mut boots = lines.iter().filter(|line| line[2] == boot);
        let control = boots.next().filter(|line| line[0] == NO_PEER).expect("a boot without any comes first");
        let without = costs(control);
        rows.push(row(format!("{boot} boot, without any"), without, String::new()));
        for line in boots {
            let with = costs(line);
            let undone = if line[10] == "-" { String::new() } else { line[10].replace(',', ", ") };
            rows.push(row(label(line), std::array::from_fn(|at| with[at] - without[at]), undone));
        }
    }
    for line in lines.iter().filter(|line| line[2] == "cannot") {
        rows.push([vec![label(line)], vec![String::new(); 6], vec![line[3..].join(" ")]].concat());
    }
    table(&["", "CPU", "up", "done", "requests", "memory", "processes", "not done"], rows)
}

/// What each peer adds to the initramfs and to the root, in MB.
pub fn peers_sizes() -> String {
    let lines = peers_lines();
    let mut sizes = lines.iter().filter(|line| line[1] == "size");
    let control =
        sizes.next().filter(|line| line[0] == NO_PEER).expect("figures-peers begins with the root without any");
    let rows = sizes.map(|line| {
        let more = line[2..5]
            .iter()
            .zip(&control[2..5])
            .map(|(with, without)| format!("{:.1}", peers_number(with) - peers_number(without)));
        let label = line.get(5).map_or_else(|| line[0].clone(), |version| format!("{} {version}", line[0]));
        std::iter::once(label).chain(more).collect()
    });
    table(&["adds, in MB", "initramfs", "by zstd", "root"], rows)
}

/// A limit in a script of the tests, in MB.
fn limit(script: &str, name: &str) -> f64 {
    let text = pages::text(script);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|v| v.parse::<f64>().ok()).unwrap_or_else(|| panic!("{script}: no {name}")) / 1e6
}

pub fn sizes() -> String {
    let whole = ["largest", "by_zstd", "by_gzip"].map(|name| format!("{:.2} MB", limit("tests/run", name)));
    let minimal = format!("{:.2} MB", limit("tests/minimal/run", "largest"));
    let rows = [
        [vec!["whole".to_owned()], whole.to_vec()].concat(),
        vec!["`--minimal`".to_owned(), minimal, String::new(), String::new()],
    ];
    table(&["program", "at most", "by zstd", "by gzip"], rows)
}

#[test]
fn the_builds_table_has_the_limit() {
    let page = pages::page("initramfs/man/prepivot.8.md");
    let ways = pages::table(page.section("### The static build"));
    assert_eq!(ways[0][2], format!("{:.1} MB", limit("tests/run", "largest")));
}
