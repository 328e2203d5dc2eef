//! Parts of the pages that are made from the program's tables.
//!
//! Such a part is between `<!-- begin generated: NAME -->` and `<!-- end generated -->`. Where one is out of date,
//! `PREPIVOT_UPDATE=1 cargo test --test readme` writes it anew.

use crate::{figures, pages};
use argh::{CommandInfoWithArgs, FlagInfo, FlagInfoKind, Optionality, PositionalInfo};
use prepivot::base::problem::{Problems, Severity};
use prepivot::detect::Mark;
use prepivot::document::yaml;
use prepivot::instance::Frequency;
use prepivot::machine::Distro;
use prepivot::module::{MODULES, Module};
use prepivot::network::read::{FORMATS, config};
use prepivot::network::render::RENDERERS;
use prepivot::network::{Macs, Target};
use prepivot::root::Stage;
use prepivot::source::closed::{LINK_LOCAL, ServiceAddress};
use prepivot::source::{SOURCES, Source};
use std::fs;

/// A part's name and what makes it.
type Part = (&'static str, fn() -> String);

static PARTS: &[Part] = &[
    ("boots", figures::boots),
    ("other costs", figures::others),
    ("sizes", figures::sizes),
    ("sizes of peers", figures::peers_sizes),
    ("boots of peers", figures::peers_boots),
    ("datasources that are read", sources),
    ("what is closed", closed),
    ("marks", marks),
    ("formats", formats),
    ("limits of the stacks", limits),
    ("keys that stacks report", reported_keys),
    ("modules by stage", modules_by_stage),
    ("modules", modules),
    ("options", options),
    ("verbs of prepivot", || verbs(true)),
    ("verbs of cloud-init", || verbs(false)),
];

const BEGIN: &str = "<!-- begin generated: ";
const END: &str = "<!-- end generated -->\n";

#[test]
fn generated_parts_are_what_the_programs_tables_say() {
    let update = std::env::var_os("PREPIVOT_UPDATE").is_some();
    let mut used = Vec::new();
    for page in pages::all() {
        let mut made = String::new();
        let mut rest = page.text.as_str();
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (name, after) = after.split_once(" -->\n").expect("the end of a mark");
            let (_, part) = PARTS.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{}: {name}", page.path));
            used.push(name.to_owned());
            made += &format!("{before}{BEGIN}{name} -->\n\n{}\n{END}", plain(&part()));
            rest = after.split_once(END).unwrap_or_else(|| panic!("{}: {name} has no end", page.path)).1;
        }
        made += rest;
        if update && made != page.text {
            fs::write(pages::project().join(&page.path), &made).expect("failed to write the page");
        }
        let differs = made.lines().zip(page.text.lines()).find(|(new, old)| new != old);
        assert!(
            update || made == page.text,
            "{} is out of date: PREPIVOT_UPDATE=1 cargo test --test readme writes it anew; first line (new, old): {differs:?}",
            page.path
        );
    }
    for (name, _) in PARTS {
        assert_eq!(used.iter().filter(|u| u == name).count(), 1, "{name}");
    }
}

/// A text of the tables as a page has it: what every terminal shows, and braces as argh prints them.
fn plain(text: &str) -> String {
    text.replace('…', "...").replace('’', "'").replace("{{", "{").replace("}}", "}")
}

/// A table; a row for each list of cells.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: String = cells.iter().map(|c| format!(" {} |", c.replace('|', "\\|"))).collect();
        format!("|{}\n", cells.replace("  |", " |"))
    };
    let head: Vec<String> = head.iter().map(|h| h.to_string()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(&head) + &rule + &rows.into_iter().map(|row| line(&row)).collect::<String>()
}

fn sources() -> String {
    let described = SOURCES.iter().filter(|s| !s.docs.is_empty());
    let parts = described.map(|s| {
        let rows = s.settings.iter().map(|(key, meaning)| vec![format!("`{key}`"), meaning.to_string()]);
        let settings =
            if s.settings.is_empty() { String::new() } else { format!("\n{}", table(&["key", "meaning"], rows)) };
        format!("### {}\n\n{}{settings}", s.name, wrapped(s.docs))
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// What of each service is closed to users; sources with the same in one row.
fn closed() -> String {
    let place = |one: &ServiceAddress| {
        let host = if one.host.is_empty() { "the address that the instance was read from" } else { one.host };
        let ports: Vec<String> = one.tcp.iter().map(u16::to_string).collect();
        if ports.is_empty() { host.to_owned() } else { format!("{host}, TCP {}", ports.join(", ")) }
    };
    let (mut rows, mut others): (Vec<Vec<String>>, _) = (Vec::new(), Vec::new());
    for source in SOURCES {
        let is_usual = source.closing.addresses == LINK_LOCAL.addresses;
        let rows = if is_usual { &mut others } else { &mut rows };
        let places: Vec<String> = source.closing.addresses.iter().map(place).collect();
        let [places, stays] = [places.join("; "), source.closing.stays.to_owned()];
        match rows.iter_mut().find(|row| row[1..] == [places.clone(), stays.clone()]) {
            Some(row) if !is_usual => row[0] += &format!(", {}", source.name),
            Some(_) => {}
            None => {
                let name = if is_usual { "all others, and none" } else { source.name };
                rows.push(vec![name.to_owned(), places, stays]);
            }
        }
    }
    table(&["datasource", "closed", "goes on"], rows.into_iter().chain(others))
}

fn marks() -> String {
    let none = "nothing on the machine: name it in `ds=` or as the only one in `datasource_list`";
    let row = |source: &&Source| {
        let mut marks: Vec<String> = Vec::new();
        let mut last = "";
        for mark in source.marks {
            match (mark, marks.last_mut()) {
                // Values of one DMI field.
                (Mark::Dmi(field, pattern), Some(text)) if last == *field => *text += &format!(" or {pattern}"),
                (Mark::Unless(_), _) => {}
                _ => marks.push(mark.to_string()),
            }
            last = if let Mark::Dmi(field, _) = mark { field } else { "" };
        }
        vec![source.name.to_owned(), if marks.is_empty() { none.to_owned() } else { marks.join("; ") }]
    };
    let recognised = SOURCES.iter().copied().filter(|s| s.name != prepivot::detect::NONE);
    table(&["source", "recognised by"], recognised.map(|s| row(&s)))
}

fn formats() -> String {
    table(&["format", "`--kind`"], FORMATS.iter().map(|f| vec![f.title.to_owned(), format!("`{}`", f.name)]))
}

fn limits() -> String {
    table(&["stack", "left out"], RENDERERS.iter().map(|r| vec![r.name.to_owned(), r.limits.to_owned()]))
}

/// The modules in the order of their names.
fn sorted() -> Vec<&'static Module> {
    let mut all: Vec<&Module> = MODULES.to_vec();
    all.sort_by_key(|m| m.name);
    all
}

/// The names of some modules.
fn names(which: impl Fn(&Module) -> bool) -> String {
    let chosen: Vec<&str> = sorted().into_iter().filter(|m| which(m)).map(|m| m.name).collect();
    chosen.join(", ")
}

/// Version 2's keys of a device, each with a value.
const DEVICE_KEYS: &[(&str, &str)] = &[
    ("accept-ra", "true"),
    ("activation-mode", "manual"),
    ("addresses", "[10.0.0.2/24]"),
    ("addresses: label", "[{10.0.0.2/24: {label: 'e:1'}}]"),
    ("addresses: lifetime", "[{10.0.0.2/24: {lifetime: 0}}]"),
    ("critical", "true"),
    ("dhcp-identifier", "mac"),
    ("dhcp4", "true"),
    ("dhcp4-overrides: hostname", "{hostname: h}"),
    ("dhcp4-overrides: route-metric", "{route-metric: 5}"),
    ("dhcp4-overrides: send-hostname", "{send-hostname: false}"),
    ("dhcp4-overrides: use-dns", "{use-dns: false}"),
    ("dhcp4-overrides: use-domains", "{use-domains: true}"),
    ("dhcp4-overrides: use-hostname", "{use-hostname: false}"),
    ("dhcp4-overrides: use-mtu", "{use-mtu: false}"),
    ("dhcp4-overrides: use-ntp", "{use-ntp: false}"),
    ("dhcp4-overrides: use-routes", "{use-routes: false}"),
    ("dhcp6", "true"),
    ("emit-lldp", "true"),
    ("gateway4", "10.0.0.1"),
    ("ignore-carrier", "true"),
    ("ipv6-address-generation", "eui64"),
    ("ipv6-address-token", "'::42'"),
    ("ipv6-mtu", "1400"),
    ("ipv6-privacy", "true"),
    ("link-local", "[ipv4]"),
    ("macaddress", "'52:54:00:00:00:01'"),
    ("match: driver", "{driver: e1000}"),
    ("match: name", "{name: 'en*'}"),
    ("mtu", "1400"),
    ("nameservers", "{addresses: [9.9.9.9], search: [a]}"),
    ("optional", "true"),
    ("receive-checksum-offload", "true"),
    ("routes", "[{to: 10.9.0.0/16, via: 10.0.0.1}]"),
    ("routes: advertised-mss", "[{to: 10.9.0.0/16, via: 10.0.0.1, advertised-mss: 1400}]"),
    ("routes: congestion-window", "[{to: 10.9.0.0/16, via: 10.0.0.1, congestion-window: 10}]"),
    ("routes: from", "[{to: 10.9.0.0/16, via: 10.0.0.1, from: 10.0.0.2}]"),
    ("routes: metric", "[{to: 10.9.0.0/16, via: 10.0.0.1, metric: 5}]"),
    ("routes: mtu", "[{to: 10.9.0.0/16, via: 10.0.0.1, mtu: 1400}]"),
    ("routes: on-link", "[{to: 10.9.0.0/16, via: 10.0.0.1, on-link: true}]"),
    ("routes: scope", "[{to: 10.9.0.0/16, scope: link}]"),
    ("routes: table", "[{to: 10.9.0.0/16, via: 10.0.0.1, table: 5}]"),
    ("routes: type", "[{to: 10.9.0.0/16, type: blackhole}]"),
    ("routing-policy", "[{from: 10.0.0.0/8, table: 5}]"),
    ("wakeonlan", "true"),
];

/// Version 2's devices, each with the rest of the document.
const DEVICES: &[(&str, &str)] = &[
    ("bonds", "bonds: {b: {interfaces: [e], parameters: {mode: active-backup, mii-monitor-interval: 100}}}"),
    ("bridges", "bridges: {b: {interfaces: [e], parameters: {stp: false, path-cost: {e: 5}, priority: 9}}}"),
    ("dummy-devices", "dummy-devices: {d: {addresses: [10.1.0.2/24]}}"),
    ("tunnels: gre", "tunnels: {t: {mode: gre, local: 10.0.0.2, remote: 10.0.0.3}}"),
    ("tunnels: vxlan", "tunnels: {t: {mode: vxlan, id: 7, local: 10.0.0.2, remote: 10.0.0.3}}"),
    (
        "tunnels: wireguard",
        "tunnels: {t: {mode: wireguard, key: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=', \
         peers: [{keys: {public: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8='}, allowed-ips: [10.0.0.0/8]}]}}",
    ),
    ("vlans", "vlans: {v: {id: 5, link: e}}"),
    ("vrfs", "vrfs: {v: {table: 9, interfaces: [e]}}"),
    ("wifis", "wifis: {w: {access-points: {home: {password: '12345678'}}}}"),
];

/// Version 2's keys that a stack reports: what its renderer says of a document with the key.
fn reported_keys() -> String {
    let of_device = DEVICE_KEYS.iter().map(|(name, value)| {
        let key = name.split(':').next().unwrap_or_default();
        // What the key is about.
        let about = match key.split('-').next() {
            Some("dhcp4") if key != "dhcp4" => "dhcp4: true, ",
            Some("ipv6") => "addresses: ['2001:db8::2/64'], ",
            _ => "",
        };
        (*name, format!("version: 2\nethernets: {{e: {{{about}{key}: {value}}}}}"))
    });
    let of_others = DEVICES.iter().map(|(name, rest)| (*name, format!("version: 2\nethernets: {{e: {{}}}}\n{rest}")));
    let stacks = ["netplan", "networkd", "network-manager", "sysconfig rhel", "sysconfig sles", "eni debian"];
    let rows = of_device.chain(of_others).filter_map(|(name, text)| {
        let input = yaml::parse("t", &text).expect("YAML");
        let network = config::read("t", &input, &Macs::default(), &Problems::new()).expect("a configuration");
        let cells = stacks.map(|stack| {
            let (stack, distro) = stack.split_once(' ').unwrap_or((stack, "debian"));
            let renderer = RENDERERS.iter().find(|renderer| renderer.name == stack).expect("a stack");
            let report = Problems::new();
            renderer.files(
                &network,
                &Target { distro: Distro::named(distro), ip_tool: true, old_netplan: false },
                &report,
            );
            if report.texts(Severity::Warning).is_empty() { "yes" } else { "no" }
        });
        let row = std::iter::once(format!("`{name}`")).chain(cells.map(str::to_owned)).collect();
        cells.contains(&"no").then_some(row)
    });
    table(&["key", "netplan", "networkd", "NM", "RHEL", "SUSE", "eni"], rows)
}

fn modules_by_stage() -> String {
    let stages =
        Stage::WITH_MODULES.into_iter().map(|stage| vec![stage.name().to_owned(), names(|m| m.stage == stage)]);
    table(&["stage", "modules"], stages)
}

fn modules() -> String {
    let code = |names: &[&str]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let row = |m: &&Module| {
        let frequency = match m.frequency {
            Frequency::Always => "always",
            Frequency::Instance => "once per instance",
            Frequency::Once => "once",
        };
        let distros = if m.distros.is_empty() { "all".to_owned() } else { m.distros.join(", ") };
        let own = [m.name, m.stage.name(), frequency, &code(m.keys), &distros];
        own.map(str::to_owned).to_vec()
    };
    let head = ["module", "stage", "frequency", "keys", "distributions"];
    table(&head, sorted().iter().map(row))
}

/// Verbs that cloud-init does not have.
const OWN: [&str; 5] = ["apply", "plan", "compare", "detect", "trust"];

fn verbs(own: bool) -> String {
    let program = prepivot::cli::command();
    let name = if own { "prepivot" } else { "cloud-init" };
    let chosen = program.commands.iter().filter(|c| OWN.contains(&c.name) == own);
    chosen.map(|c| verb(name, &[c.name], &c.command)).collect::<Vec<_>>().join("\n")
}

/// A verb, and the verbs below it.
fn verb(program: &str, path: &[&str], command: &CommandInfoWithArgs) -> String {
    let flags: Vec<&FlagInfo> = command.flags.iter().filter(|f| !f.hidden && f.long != "--help").collect();
    let positionals: Vec<&PositionalInfo> = command.positionals.iter().filter(|p| !p.hidden).collect();
    let below = if command.commands.is_empty() { None } else { Some("TOOL".to_owned()) };
    let words = flags.iter().map(|f| usage(f)).chain(positionals.iter().map(|p| argument(p))).chain(below);
    let words: String = words.map(|w| format!(" {w}")).collect();
    let mut out = format!("### {}\n\n    {program} {}{words}\n\n", path.join(" "), path.join(" "));
    out += &sentence(command.description);
    let rows: Vec<Vec<String>> = positionals
        .iter()
        .map(|p| vec![format!("`{}`", placeholder(p.name)), p.description.to_owned()])
        .chain(flags.iter().map(|f| vec![option(f), f.description.to_owned()]))
        .collect();
    if !rows.is_empty() {
        out += &format!("\n{}", table(&["argument", "meaning"], rows));
    }
    for note in command.notes {
        out += &format!("\n{}", wrapped(note));
    }
    for example in command.examples {
        let example = example.replace("{command_name}", path[path.len() - 1]);
        let before = if example.starts_with("cloud-") {
            String::new()
        } else {
            [&[program], &path[..path.len() - 1]].concat().join(" ") + " "
        };
        out += &format!("\n    {before}{example}\n");
    }
    if !command.error_codes.is_empty() {
        let rows = command.error_codes.iter().map(|e| vec![e.code.to_string(), e.description.to_owned()]);
        out += &format!("\n{}", table(&["exit code", "meaning"], rows));
    }
    for sub in &command.commands {
        out += &format!("\n{}", verb(program, &[path, &[sub.name]].concat(), &sub.command));
    }
    out
}

/// The options that stand before every verb.
fn options() -> String {
    let program = prepivot::cli::command();
    let flags = program.flags.iter().filter(|f| !f.hidden && f.long != "--help");
    table(&["option", "meaning"], flags.map(|f| vec![option(f), f.description.to_owned()]))
}

/// A description as a sentence of its own.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    wrapped(&format!("{first}{}.", letters.as_str()))
}

/// A paragraph in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("a line");
        match last.len() + 1 + word.len() {
            _ if last.is_empty() => last.push_str(word),
            ..=120 => *last += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// What a value is called: the words to choose from, else in capitals.
fn placeholder(name: &str) -> String {
    if name.contains('|') { name.to_owned() } else { name.to_uppercase() }
}

/// The option in a synopsis: `[-l]`, `--root DIR`.
fn usage(flag: &FlagInfo) -> String {
    let name = flag.short.map_or(flag.long.to_owned(), |c| format!("-{c}"));
    let words = match flag.kind {
        FlagInfoKind::Switch => name,
        FlagInfoKind::Option { arg_name } => format!("{name} {}", placeholder(arg_name)),
    };
    match flag.optionality {
        Optionality::Required => words,
        Optionality::Optional => format!("[{words}]"),
        Optionality::Repeating | Optionality::Greedy => format!("[{words}]..."),
    }
}

fn argument(positional: &PositionalInfo) -> String {
    let name = placeholder(positional.name);
    match positional.optionality {
        Optionality::Required => name,
        Optionality::Optional => format!("[{name}]"),
        Optionality::Repeating | Optionality::Greedy => format!("[{name}...]"),
    }
}

/// The option with all its spellings, for a table.
fn option(flag: &FlagInfo) -> String {
    let value = match flag.kind {
        FlagInfoKind::Switch => String::new(),
        FlagInfoKind::Option { arg_name } => format!(" {}", placeholder(arg_name)),
    };
    let short = flag.short.map(|c| format!("`-{c}`, ")).unwrap_or_default();
    format!("{short}`{}{value}`", flag.long)
}
