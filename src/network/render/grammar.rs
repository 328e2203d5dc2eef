//! The language of the stacks' grammars: which keys a stack's files may have, and which values. A renderer's output is filtered by its
//! stack's grammar, so that one odd value never costs a machine its network.
//!
//! A grammar is a text of tables, each for a section or a mapping: `[name]`, and a line for each key: the key, the kind of its values,
//! and `!` if the rest would mean something else without the key. A `#` in a key is a number, or nothing.
//!
//! | kind | values |
//! |---|---|
//! | `any` | all |
//! | `text` | any scalar that is not empty |
//! | `bool` | `yes`, `on`, `true` and their opposites |
//! | `5..9`, `..9`, `u32` | a whole number in this range |
//! | `number` | a number that is not negative |
//! | `mac`, `ip`, `ip4`, `ip6` | an address |
//! | `server` | an address, and what networkd takes after it (`NameServer`) |
//! | `hwaddr` | a MAC address, also of InfiniBand |
//! | `cidr` | an address with its prefix length, at least 1 |
//! | `net` | an address with a prefix length or without |
//! | `destination` | the same, or `default` |
//! | `endpoint` | a host and a port |
//! | `passphrase` | of WPA, or the key itself in hexadecimal digits |
//! | `key` | of WireGuard |
//! | `tunnelkey` | a number or an IPv4 address |
//! | `device` | a name that a network device can have |
//! | `ifname`, `netdev` | a name or pattern that systemd takes; a name that it takes for a device of its own |
//! | `span` | a time: a number, also of `s` or `ms` |
//! | `a\|b` | one of these words; `bool` and ranges may be among them |
//! | a kind and `*`, or `;` | such values with spaces between them, or with a semicolon after each |

use super::ini::Section;
use crate::machine::nic::is_name;
use crate::network::address::{Cidr, Ip, NameServer};
use crate::network::mac::{is_infiniband_mac, is_mac};
use crate::network::parameters::is_passphrase;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The grammar of a stack's files.
#[derive(Clone, Copy)]
pub struct Grammar(pub &'static str);

/// The parameters of bonds by the kernel's names (bonding.rst; bond_options.c), which several stacks pass on.
const BONDING: &str = include_str!("bonding.txt");

/// What a grammar says of a key.
pub struct Rule {
    /// The kind of its values.
    pub kind: &'static str,
    /// Whether the rest would mean something else without the key.
    pub is_vital: bool,
}

impl Grammar {
    /// The lines of a table, of this grammar or of the parameters of bonds. Empty if there is none of this name.
    pub fn table(self, name: &str) -> &'static str {
        let tables = self.0.split("\n[").chain([BONDING]).map(|table| table.strip_prefix('[').unwrap_or(table));
        tables
            .filter_map(|table| table.split_once("]\n"))
            .find(|(known, _)| *known == name)
            .map_or("", |(_, lines)| lines)
    }

    /// Whether a table has a key with such a value.
    pub fn takes(self, table: &str, key: &str, value: &str) -> bool {
        rule(self.table(table), key).is_some_and(|rule| fits(rule.kind, value))
    }
}

/// What a table says of a key. None: the stack does not know the key.
pub fn rule(table: &'static str, key: &str) -> Option<Rule> {
    let fits = |known: &str| match known.split_once('#') {
        Some((head, tail)) => {
            let number = key.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
            number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        }
        None => known == key,
    };
    let (_, kind) = table.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| fits(known))?;
    let vital = kind.strip_suffix('!');
    Some(Rule { kind: vital.unwrap_or(kind), is_vital: vital.is_some() })
}

/// Whether a text is a boolean of YAML 1.1 or of systemd.
fn is_bool(text: &str) -> bool {
    ["true", "on", "yes", "y", "false", "off", "no", "n"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether systemd takes a text for a device's name or for a pattern of names (systemd's `ifname_valid_full`).
fn is_ifname(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b':' | b'/' | b'%'))
        && text.len() < 128
        && text.bytes().any(|b| !b.is_ascii_digit())
        && !matches!(text, "." | ".." | "all" | "default")
}

/// Whether a text is a WireGuard key: 32 bytes in base64.
pub fn is_wireguard_key(text: &str) -> bool {
    text.len() == 44
        && text
            .strip_suffix('=')
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')))
}

/// Whether a text is a host, an address of IPv6 in brackets, and a port behind a colon.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_host = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.len() <= 253 && host.split('.').all(is_label),
    };
    is_host && port.parse::<u16>().is_ok()
}

/// Whether a text is an address with its prefix length.
pub fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(_, prefix)| prefix.parse::<u8>().is_ok())
        && Cidr::parse_address(text, None).is_some()
}

/// Whether a text is one value of a kind.
pub fn fits(kind: &str, text: &str) -> bool {
    let ip = || Ip::parse(text);
    let is_net = || Cidr::parse_or_host(text).is_some();
    match kind {
        "any" => true,
        "text" => !text.is_empty(),
        "bool" => is_bool(text),
        "u32" => text.parse::<u32>().is_ok(),
        "mac" => is_mac(text),
        "hwaddr" => is_mac(text) || is_infiniband_mac(text),
        "number" => text.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0),
        "ip" => ip().is_some(),
        "ip4" => ip().is_some_and(|ip| !ip.is_v6()),
        "ip6" => ip().is_some_and(|ip| ip.is_v6()),
        "server" => NameServer::parse(text).is_some(),
        "cidr" => is_cidr(text),
        "net" => is_net(),
        "destination" => text == "default" || is_net(),
        "endpoint" => is_endpoint(text),
        "passphrase" => is_passphrase(text),
        "key" => is_wireguard_key(text),
        "tunnelkey" => text.parse::<u32>().is_ok() || text.parse::<Ipv4Addr>().is_ok(),
        "device" => is_name(text),
        "ifname" => is_ifname(text),
        "netdev" => is_name(text) && is_ifname(text),
        "range" => {
            text.split_once('-').is_some_and(|(least, most)| [least, most].iter().all(|n| n.parse::<u16>().is_ok()))
        }
        // Without a unit it is one of two units, and a whole number in both.
        "span" => match ["ms", "s"].iter().find_map(|unit| text.strip_suffix(unit)) {
            Some(number) => number.parse::<f32>().is_ok() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.'),
            None => text.parse::<u32>().is_ok(),
        },
        _ => kind.split('|').any(|one| match one.split_once("..") {
            Some((least, most)) => text.parse::<u64>().is_ok_and(|number| {
                number >= least.parse().unwrap_or(0) && most.parse().is_ok_and(|most: u64| number <= most)
            }),
            None => one == text || (matches!(one, "bool" | "ip6") && one != kind && fits(one, text)),
        }),
    }
}

/// A value without what does not fit its kind. None if nothing fits. The second is whether anything was left out.
fn filtered(kind: &str, value: &str) -> (Option<String>, bool) {
    let (of, is_semicolon) = match (kind.strip_suffix('*'), kind.strip_suffix(';')) {
        (Some(of), _) => (of, false),
        (None, Some(of)) => (of, true),
        _ => {
            let is_kept = fits(kind, value);
            return (is_kept.then(|| value.to_owned()), !is_kept);
        }
    };
    let words: Vec<&str> = value.split(if is_semicolon { ';' } else { ' ' }).filter(|word| !word.is_empty()).collect();
    let kept: Vec<&str> = words.iter().copied().filter(|word| fits(of, word)).collect();
    let has_lost = kept.len() < words.len();
    match (kept.is_empty(), is_semicolon) {
        (true, _) => (None, true),
        (_, true) => (Some(kept.join(";") + ";"), has_lost),
        (_, false) => (Some(kept.join(" ")), has_lost),
    }
}

/// Filters the lines of one table.
pub struct Filter<'a> {
    table: &'static str,
    /// What is called with each key that is left out, in whole or in part.
    report: &'a mut dyn FnMut(&str),
    /// Whether no vital key was left out.
    pub is_whole: bool,
}

impl<'a> Filter<'a> {
    /// A filter of the lines that a grammar's table knows.
    pub fn new(grammar: Grammar, table: &str, report: &'a mut dyn FnMut(&str)) -> Filter<'a> {
        Filter { table: grammar.table(table), report, is_whole: true }
    }

    /// Whether the stack takes the key. What it would refuse of the value is removed.
    pub fn keep(&mut self, key: &str, value: &mut String) -> bool {
        let rule = rule(self.table, key);
        let (kept, has_lost) = rule.as_ref().map_or((None, true), |rule| filtered(rule.kind, value));
        if has_lost {
            (self.report)(key);
        }
        self.is_whole &= kept.is_some() || !rule.is_some_and(|rule| rule.is_vital);
        kept.map(|kept| *value = kept).is_some()
    }
}

/// Removes from the sections of a file what the stack would refuse, and calls `report` with each key as `[Section] Key`. A section
/// whose name has a `.` is in the table of what comes before that. False if one of the first `needed` sections, without which the file
/// would be for another device or refused, had to be removed.
pub fn filter(grammar: Grammar, sections: &mut Vec<Section>, needed: usize, mut report: impl FnMut(&str)) -> bool {
    let (mut place, mut has_needed) = (0, true);
    sections.retain_mut(|section| {
        let name = section.name().to_owned();
        let table = name.split('.').next().unwrap_or_default();
        let mut of_section = |key: &str| report(&format!("[{name}] {key}"));
        let mut filter = Filter::new(grammar, table, &mut of_section);
        section.retain(|key, value| filter.keep(key, value));
        has_needed &= filter.is_whole || place >= needed;
        place += 1;
        filter.is_whole
    });
    has_needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::render::ini;

    const ODD: Grammar = Grammar("[A]\nKnown u32\nAddress# cidr!\nNames device*\nMore ip;\n\n[B]\nMode one|two\n");

    #[test]
    fn filters_values_by_their_kind() {
        for (kind, good, bad) in [
            ("bool", "On", "maybe"),
            ("5..9", "5", "10"),
            ("..9", "0", "-1"),
            ("cidr", "10.0.0.1/8", "10.0.0.1"),
            ("cidr", "::1/64", "10.0.0.1/33"),
            ("cidr", "10.0.0.1/1", "::1/0"),
            ("destination", "default", "10.0.0.256"),
            ("endpoint", "[::1]:51820", "a b:1"),
            ("endpoint", "wg.example.com:51820", "::1"),
            ("endpoint", "10.0.0.9:1", "fe80::1:51820"),
            ("endpoint", "a-b:65535", "[10.0.0.9]:65536"),
            ("key", "4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=", "secret"),
            ("tunnelkey", "1.2.3.4", "odd"),
            ("device", "eth0.5", "a name of many letters"),
            ("ifname", "en*", "7"),
            ("netdev", "eth0.5", "ü"),
            ("span", "150ms", "1h"),
            ("span", "1.5s", "-1"),
            ("span", "20", "infs"),
            ("span", "2s", "1.5"),
            ("one|two", "two", "one|two"),
            ("bool|two", "no", "one"),
            ("..2|two", "2", "3"),
            ("ip6|two", "::2", "10.0.0.2"),
            ("range", "1-65535", "1-65536"),
            ("server", "[2001:db8::1]:853%eth0#dns.example", "2001:db8::1]:853"),
        ] {
            assert!(fits(kind, good), "{kind}: {good}");
            assert!(!fits(kind, bad), "{kind}: {bad}");
        }
    }

    #[test]
    fn leaves_out_what_a_table_refuses() {
        let mut a = Section::new("A.of");
        for (key, value) in [
            ("Known", "-1"),
            ("Odd", "1"),
            ("Address7", "::1/64"),
            ("Names", "a 0123456789abcdef b"),
            ("More", "x;::1;"),
        ] {
            a.add(key, value);
        }
        let (mut b, mut c) = (Section::new("A"), Section::new("B"));
        b.add("Known", 5);
        b.add("Address1", "::1");
        c.add("Mode", "three");
        let (mut sections, mut reported) = (vec![a, b, c], Vec::new());
        let has_needed = [1, 2].map(|needed| filter(ODD, &mut sections.clone(), needed, |_| ()));
        assert_eq!(has_needed, [true, false]);
        assert!(filter(ODD, &mut sections, 0, |key| reported.push(key.to_owned())));
        assert_eq!(ini::write("", &sections), "[A.of]\nAddress7=::1/64\nNames=a b\nMore=::1;\n");
        assert_eq!(reported, ["[A.of] Known", "[A.of] Odd", "[A.of] Names", "[A.of] More", "[A] Address1", "[B] Mode"]);
    }
}
