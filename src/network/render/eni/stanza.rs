//! One stanza of interfaces(5).

use crate::network::address::Cidr;
use crate::network::model::Dns;
use std::fmt::Write;

/// An `iface` stanza, with the line before it that starts the interface.
pub struct Stanza {
    /// `auto`, `allow-hotplug`, or nothing.
    pub start: Option<&'static str>,
    /// `ifdown -a` leaves it up.
    pub stays: bool,
    name: String,
    pub v6: bool,
    pub method: &'static str,
    /// The address that it configures.
    pub address: Option<Cidr>,
    options: Vec<(String, String)>,
}

impl Stanza {
    /// A stanza without options.
    pub fn new(name: &str, v6: bool, method: &'static str) -> Stanza {
        Stanza { start: None, stays: false, name: name.to_owned(), v6, method, address: None, options: Vec::new() }
    }

    /// Adds an option.
    pub fn add(&mut self, key: &str, value: impl ToString) {
        self.options.push((key.to_owned(), value.to_string()));
    }

    /// Adds an option if there is a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Keeps the options for which `keep`, which may change the value, returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut String) -> bool) {
        self.options.retain_mut(|(key, value)| keep(key, value));
    }

    /// Adds name servers and search domains.
    pub fn name_servers(&mut self, dns: &Dns) {
        for (key, words) in [("dns-nameservers", &dns.servers), ("dns-search", &dns.search)] {
            if !words.is_empty() {
                self.add(key, words.join(" "));
            }
        }
    }

    /// The stanza's lines, after a blank line.
    pub fn to_text(&self) -> String {
        let mut out = String::from("\n");
        if let Some(start) = self.start {
            let _ = writeln!(out, "{start} {}", self.name);
        }
        if self.stays {
            let _ = writeln!(out, "no-auto-down {}", self.name);
        }
        let family = if self.v6 { "inet6" } else { "inet" };
        let _ = writeln!(out, "iface {} {family} {}", self.name, self.method);
        for (key, value) in &self.options {
            let _ = writeln!(out, "    {key} {value}");
        }
        out
    }
}
