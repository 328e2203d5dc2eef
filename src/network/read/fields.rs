//! Reads a mapping key by key. A value of the wrong type is reported with its path and ignored.

use crate::base::problem::About;
use crate::document::{Map, Value};
use crate::network::address::{Cidr, Ip};
use crate::network::mac::plain_mac;
use crate::network::model::is_valid_name;
use crate::network::parameters;

/// The keys of one mapping that have not been read yet.
pub struct Fields<'p> {
    path: String,
    map: Map,
    problems: About<'p>,
}

/// Whether a text can be part of a line of a configuration file.
fn printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// The MAC address that YAML 1.1 took for a number of base 60 (yaml.org/type/int): `52:54:00:12:34:56` without quotes is
/// 41135085296. None if the number is of no such address.
pub fn mac_of_number(number: i64) -> Option<String> {
    let digits: Vec<i64> = (0..6).rev().map(|place| number / 60_i64.pow(place)).collect();
    let first = digits.first().filter(|first| (1..100).contains(*first))?;
    let rest = digits.iter().skip(1).map(|digit| format!(":{:02}", digit % 60));
    Some(std::iter::once(format!("{first:02}")).chain(rest).collect())
}

impl<'p> Fields<'p> {
    /// The mapping at `path` of the document. A value that is not a mapping is reported; null is an empty mapping.
    pub fn new(path: impl Into<String>, value: Value, problems: About<'p>) -> Option<Fields<'p>> {
        let path = path.into();
        match value {
            Value::Map(map) => Some(Fields { path, map, problems }),
            Value::Null => Some(Fields { path, map: Map::new(), problems }),
            other => {
                problems.reject(&path, "a mapping", other.kind());
                None
            }
        }
    }

    /// Reports that the whole mapping is ignored.
    pub fn reject(&self, expected: &str, found: &str) {
        self.problems.reject(&self.path, expected, found);
    }

    /// Reports that the value of a key is ignored.
    pub fn reject_key(&self, key: &str, expected: &str, found: &str) {
        self.problems.reject(&self.path_of(key), expected, found);
    }

    /// Where to report problems that are not about the type of a value.
    pub fn problems(&self) -> About<'p> {
        self.problems
    }

    /// The path of one of its keys.
    pub fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Whether a key has a value that has not been read.
    pub fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Takes a key's value; null and an empty text, which a template leaves of a missing value, are treated as absent.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|v| !v.is_null() && v.as_str() != Some(""))
    }

    fn parse<T>(&mut self, key: &str, expected: &str, parse: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(key)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.reject_key(key, expected, value.kind());
        }
        parsed
    }

    /// A scalar as one line of text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.parse(key, "one line of text", |v| v.text().filter(|t| printable(t)))
    }

    /// A device's name.
    pub fn name(&mut self, key: &str) -> Option<String> {
        self.plain(key, "a device's name")
    }

    /// One word that a shell takes as it is: ifupdown makes command lines of such values.
    pub fn word(&mut self, key: &str) -> Option<String> {
        self.plain(key, "one plain word")
    }

    fn plain(&mut self, key: &str, expected: &str) -> Option<String> {
        self.parse(key, expected, |v| v.text().filter(|t| is_valid_name(t)))
    }

    /// A boolean, also as one of the words that cloud-init takes for one, or `y` or `n`, as netplan does: to YAML they are texts.
    pub fn boolean(&mut self, key: &str) -> Option<bool> {
        self.parse(key, "true or false", |v| {
            let is = |letter: &str| v.as_str().is_some_and(|text| text.eq_ignore_ascii_case(letter));
            if v.is_true() || is("y") { Some(true) } else { (v.is_false() || is("n")).then_some(false) }
        })
    }

    /// A number, also as text.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &str) -> Option<T> {
        self.parse(key, "a number in range", |v| match v {
            Value::Int(i) => T::try_from(*i).ok(),
            Value::String(s) => s.trim().parse().ok().and_then(|i: i64| T::try_from(i).ok()),
            _ => None,
        })
    }

    /// An MTU. Zero is treated as absent, as cloud-init does for netplan (`_maybe_strip_invalid_mtu`): no device can have it.
    pub fn mtu(&mut self, key: &str) -> Option<u32> {
        self.number(key).filter(|mtu| *mtu != 0)
    }

    /// A MAC address, in lower case. Without quotes, one of decimal digits alone is a number to YAML 1.1.
    pub fn mac(&mut self, key: &str) -> Option<String> {
        let number = self.map.get(key).and_then(Value::as_int).and_then(mac_of_number);
        if let Some(mac) = &number {
            self.map.insert(key, mac.as_str());
            let why = format_args!("{mac} is a number to YAML unless it is quoted; it is taken as the address");
            self.problems.warn_key(&self.path_of(key), why);
        }
        self.text(key).as_deref().map(plain_mac)
    }

    /// The gateway of a route: `Some(None)` if the route has none. None if the value is wrong, which is reported: without its
    /// gateway it would be another route.
    pub fn gateway(&mut self, key: &str) -> Option<Option<Ip>> {
        let Some(value) = self.take(key) else { return Some(None) };
        let via = value.text().and_then(|text| self.address(key, &text));
        if via.is_none() {
            self.reject("a route by the IP address of a gateway", "something else");
        }
        via.map(Some)
    }

    /// An IP address.
    pub fn ip(&mut self, key: &str) -> Option<Ip> {
        let value = self.take(key)?;
        let address = value.text().and_then(|text| self.address(key, &text));
        if address.is_none() {
            self.reject_key(key, "an IP address", value.kind());
        }
        address
    }

    /// The address of a text. Some have the prefix of their network, for which no network stack takes a gateway or a name server.
    fn address(&self, key: &str, text: &str) -> Option<Ip> {
        let address = Cidr::parse(text, None)?.ip;
        if text.contains('/') {
            self.problems.warn_key(&self.path_of(key), format_args!("the prefix of {text} is ignored"));
        }
        Some(address)
    }

    /// An address with a prefix. An address without one is a single host.
    pub fn cidr(&mut self, key: &str) -> Option<Cidr> {
        self.parse(key, "an IP address with a prefix", |v| v.text().and_then(|t| Cidr::parse_or_host(&t)))
    }

    /// Name servers: [`Fields::words`].
    pub fn servers(&mut self, key: &str) -> Vec<String> {
        let mut servers = self.words(key);
        for server in servers.iter_mut().filter(|server| server.contains('/')) {
            if let Some(address) = self.address(key, server) {
                *server = address.to_string();
            }
        }
        servers
    }

    /// Texts: a list, or one text with several words.
    pub fn words(&mut self, key: &str) -> Vec<String> {
        let values = match self.take(key) {
            None => return Vec::new(),
            Some(Value::List(list)) => list,
            Some(other) => vec![other],
        };
        let mut out = Vec::new();
        for value in values {
            match value.text().filter(|t| printable(t)) {
                Some(text) => out.extend(text.split([' ', ',']).filter(|w| !w.is_empty()).map(str::to_owned)),
                None => self.reject_key(key, "texts", value.kind()),
            }
        }
        out
    }

    /// Names of devices.
    pub fn names(&mut self, key: &str) -> Vec<String> {
        let mut words = self.words(key);
        words.retain(|w| {
            let valid = is_valid_name(w);
            if !valid {
                self.reject_key(key, "names of devices", "another text");
            }
            valid
        });
        words
    }

    /// A mapping; None if the key is absent.
    pub fn map(&mut self, key: &str) -> Option<Fields<'p>> {
        let value = self.take(key)?;
        Fields::new(self.path_of(key), value, self.problems)
    }

    /// The mappings of a list. A mapping in place of the list is its only item.
    pub fn list(&mut self, key: &str) -> Vec<Fields<'p>> {
        let problems = self.problems;
        let path = self.path_of(key);
        match self.take(key) {
            None => Vec::new(),
            Some(Value::List(list)) => {
                let item = |(i, value)| Fields::new(format!("{path}[{i}]"), value, problems);
                list.into_iter().enumerate().filter_map(item).collect()
            }
            Some(Value::Map(map)) => Vec::from_iter(Fields::new(path, Value::Map(map), problems)),
            Some(other) => {
                problems.reject(&path, "a list", other.kind());
                Vec::new()
            }
        }
    }

    /// The unread entries, in the document's order.
    pub fn entries(self) -> impl Iterator<Item = (String, Value)> {
        self.map.into_entries().into_iter()
    }

    /// All keys with their values, and what reports that the value of one is ignored.
    pub fn parameters(self) -> (Map, impl FnMut(&str) + 'p) {
        let (prefix, problems) = (self.path_of(""), self.problems);
        let refuse = move |key: &str| problems.reject(&format!("{prefix}{key}"), parameters::PORTS, "something else");
        (self.rest(), refuse)
    }

    /// The keys that have not been read, without nulls.
    pub fn rest(self) -> Map {
        self.map.into_entries().into_iter().filter(|(_, v)| !v.is_null()).collect()
    }

    /// Reports what has not been read as unknown.
    pub fn finish(self) {
        for (key, _) in self.map.iter().filter(|(_, v)| !v.is_null()) {
            self.problems.warn_key(&self.path_of(key), "not known; it is ignored");
        }
    }
}
