//! Which key of a document a problem is about.
//!
//! A problem names its key, or its text does: `ntp.pools: …`, `write_files: entry 2: …`. Of a text that names none it is the entry of
//! the module's keys whose names and values occur in it: a user's name, a device and its mount point.

use super::document::{Document, Use, at};
use super::origins::keys_read_by;
use crate::base::problem::Problem;
use crate::document::{Path, Value};
use crate::root::Stage;
use std::collections::HashSet;

/// The most entries that a text is compared with.
const MAX_ENTRIES: usize = 2_000;

/// What a problem is about.
pub struct Subject {
    /// The path of a key or entry of the document. Empty if none is known.
    pub key: String,
    /// The problem's text; without the key at its start, where that is the document's.
    pub what: String,
}

/// The subject of a problem of `document`, which `module` reported; its name is empty if none did.
pub fn of(document: &Document, problem: &Problem, module: &str) -> Subject {
    let text = problem.to_string();
    let above = match (document.usage, document.outline.as_ref().and_then(|outline| outline.get("network"))) {
        (Use::NetworkConfig, Some(Value::Map(_))) => "network.",
        _ => "",
    };
    // The document's name stands beside the text already.
    let own = (document.usage == Use::NetworkConfig).then(|| text.strip_prefix(problem.origin.as_str())).flatten();
    let text = own.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
    let failed = text.strip_prefix("module ").and_then(|rest| rest.split_once(" failed: "));
    let (module, body) = failed.unwrap_or((module, text));
    let start = body.split_once(": ").map(|(start, _)| start).unwrap_or_default();
    let first = || first_words(document, above, start, body);
    let named = || body.split_whitespace().find_map(|word| inside(document, above, bare(word)));
    let Some(key) = first().or_else(named).or_else(|| of_module(document, module, start, body)) else {
        return Subject { key: String::new(), what: text.to_owned() };
    };
    // Of what a module cannot do at all, the message stays whole.
    let whole = path(above, start);
    let is_named =
        failed.is_none() && key.strip_prefix(&whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let what = if is_named { text.get(start.len() + 2..).unwrap_or(text) } else { text };
    Subject { what: what.to_owned(), key }
}

/// The entry or key that a text begins with, as far as the document has it.
fn first_words(document: &Document, above: &str, start: &str, body: &str) -> Option<String> {
    let entry = body.strip_prefix(start)?.strip_prefix(": entry ").and_then(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(format!("{start}.{}", digits.parse::<usize>().ok()?.checked_sub(1)?))
    });
    let has = |key: &String| document.place(key).is_some();
    let whole =
        || Some(path(above, start)).filter(has).map(|key| mentioned(document, &[&key], start, body).unwrap_or(key));
    let top = || start.split_once('.').map(|(first, _)| first.to_owned()).filter(has);
    entry.filter(has).or_else(whole).or_else(|| inside(document, above, start)).or_else(top)
}

/// A word as a path of the document: `routes[0]` is `routes.0`.
fn path(above: &str, word: &str) -> String {
    format!("{above}{}", word.replace('[', ".").replace(']', ""))
}

/// The innermost key that a word names and the document has, if it is below a key of the top.
fn inside(document: &Document, above: &str, word: &str) -> Option<String> {
    let path = word.contains('.').then(|| path(above, word))?;
    let (key, _) = document.nearest(&path)?;
    key.strip_prefix(above).filter(|key| key.contains('.'))?;
    Some(key.to_owned())
}

/// A word of a sentence without quotes, stops and the genitive's ending.
fn bare(word: &str) -> &str {
    let word = word.trim_matches(|c: char| matches!(c, '"' | '\'' | '(' | ')' | ':' | ';' | ',' | '.'));
    word.strip_suffix("'s").unwrap_or(word)
}

/// The entry of a module's keys that a text mentions most of; the module's first key in the document if it mentions none. Without a
/// module: the list of modules that has a word of the text, which may be no module's name.
fn of_module(document: &Document, module: &str, start: &str, body: &str) -> Option<String> {
    if module.is_empty() {
        return mentioned(document, &Stage::WITH_MODULES.map(Stage::list_key), start, body);
    }
    let keys = keys_read_by(module);
    mentioned(document, &keys, start, body)
        .or_else(|| keys.into_iter().find(|key| document.place(key).is_some()).map(str::to_owned))
}

/// The entry at or below these keys that a text mentions most of.
fn mentioned(document: &Document, keys: &[&str], start: &str, body: &str) -> Option<String> {
    let mut mentions = Mentions {
        words: body.split_whitespace().map(bare).filter(|word| word.len() > 1).collect(),
        start,
        path: Path::default(),
        left: MAX_ENTRIES,
        best: None,
    };
    let outline = document.outline.as_ref()?;
    for key in keys {
        if let Some(value) = at(outline, key) {
            mentions.within(key, value);
        }
    }
    mentions.best.map(|(_, key)| key).filter(|key| document.place(key).is_some())
}

/// The search for the entry of a document that a text mentions.
struct Mentions<'t> {
    words: HashSet<&'t str>,
    /// The first words of the text, which may be a key.
    start: &'t str,
    path: Path,
    /// How many more entries are looked at.
    left: usize,
    /// How much of an entry was mentioned, and its path, or that of its key that is mentioned.
    best: Option<(usize, String)>,
}

impl Mentions<'_> {
    /// Compares a value and all below it.
    fn within(&mut self, key: &dyn std::fmt::Display, value: &Value) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        self.path.enter(key);
        match value {
            Value::Map(map) => {
                let named: Vec<&str> = map.keys().filter(|key| self.is_key(key)).collect();
                let values = map.iter().map(|(_, value)| self.mentioned(value)).sum::<usize>();
                let name = self.word(&key.to_string());
                self.keep(name + values + named.iter().map(|key| key.len()).sum::<usize>(), named.first().copied());
                map.iter().for_each(|(key, value)| self.within(&key, value));
            }
            Value::List(list) => {
                self.keep(list.iter().map(|value| self.mentioned(value)).sum(), None);
                list.iter().enumerate().for_each(|(at, value)| self.within(&at, value));
            }
            _ => {}
        }
        self.path.leave();
    }

    /// Keeps the entry at the path if more of it is mentioned than of those before it.
    fn keep(&mut self, mentioned: usize, key: Option<&str>) {
        if mentioned > self.best.as_ref().map_or(0, |(most, _)| *most) {
            let key = key.map(|key| format!(".{key}")).unwrap_or_default();
            self.best = Some((mentioned, format!("{}{key}", self.path.as_str())));
        }
    }

    fn mentioned(&self, value: &Value) -> usize {
        value.as_str().map_or(0, |text| self.word(text))
    }

    fn word(&self, text: &str) -> usize {
        if self.words.contains(text) { text.len() } else { 0 }
    }

    /// Whether the text mentions a key; one that may be an ordinary word counts at its start alone.
    fn is_key(&self, key: &str) -> bool {
        let today = key.replace('-', "_");
        key == self.start || today.contains('_') && self.words.contains(today.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::{Problems, Severity};

    const TEXT: &str = "#cloud-config\nusers:\n- name: bob\n  ssh_redirect_user: true\n- name: eve\n  lock_passwd: false\n\
        - {name: kim, ssh_import_id: [gh:kim]}\n- {name: old, lock-passwd: false}\nmounts:\n- [/dev/vdb, /mnt/a]\n- [/dev/vdc, /mnt/a/b]\n\
        swap: {filename: x}\nntp: {pools: [x]}\nwrite_files:\n- {path: x}\n";

    fn subject(usage: Use, text: &str, module: &str, origin: &str, reason: &str) -> (String, String) {
        let document = Document::new(usage, "d", text.as_bytes());
        let problems = Problems::new();
        problems.push(Problem::new(Severity::Warning, origin, "", reason));
        let Subject { key, what } = of(&document, &problems.entries()[0], module);
        (key, what)
    }

    #[test]
    fn messages_are_about_the_entry_that_they_mention() {
        for (module, message, key) in [
            (
                "users_groups",
                "ssh_redirect_user of bob is ignored: there is no default user",
                "users.0.ssh_redirect_user",
            ),
            (
                "users_groups",
                "Not unlocking password for user eve. 'lock_passwd: false' present",
                "users.1.lock_passwd",
            ),
            (
                "users_groups",
                "Not unlocking password for user old. 'lock_passwd: false' present",
                "users.3.lock-passwd",
            ),
            ("users_groups", "The value of 'false' in user old's 'sudo' config is deprecated", "users.3"),
            ("users_groups", "something else", "users"),
            ("ssh_import_id", "ssh_import_id: no keys are imported: no program", "users.2.ssh_import_id"),
            ("mounts", "/mnt/a/b is not mounted: it failed", "mounts.1"),
            ("mounts", "failed to set up swap: swap.filename: expected a path", "swap.filename"),
            ("", "nothing known", ""),
        ] {
            assert_eq!(
                subject(Use::UserData, TEXT, module, "", message),
                (key.to_owned(), message.to_owned()),
                "{key}"
            );
        }
    }

    #[test]
    fn key_at_the_start_is_cut_off() {
        let of = |message: &str| subject(Use::UserData, TEXT, "", "", message);
        assert_eq!(of("ntp.pools: no"), ("ntp.pools".into(), "no".into()));
        assert_eq!(
            of("mounts: /mnt/a/b is not mounted: no"),
            ("mounts.1".into(), "/mnt/a/b is not mounted: no".into())
        );
        assert_eq!(of("write_files: entry 1 (x): no"), ("write_files.0".into(), "entry 1 (x): no".into()));
        let failed = "module ntp failed: ntp.servers: no";
        assert_eq!(of(failed), ("ntp".into(), failed.into()));
    }

    #[test]
    fn unknown_module_is_of_its_list() {
        let text =
            "#cloud-config\ncloud_config_modules: [ntp]\ncloud_final_modules:\n- scripts_user\n- [nosuch, always]\n";
        let found = subject(Use::UserData, text, "", "", "Could not find module named nosuch");
        assert_eq!(found.0, "cloud_final_modules.1");
        assert_eq!(subject(Use::UserData, text, "", "", "something else").0, "");
    }

    #[test]
    fn password_that_cannot_be_set_is_of_chpasswd() {
        let text = "#cloud-config\nssh_pwauth: true\nchpasswd: {list: \"a:b\"}\n";
        let failed = "module set_passwords failed: failed to set the password of a: there is no such user";
        assert_eq!(subject(Use::UserData, text, "", "", failed).0, "chpasswd");
    }

    #[test]
    fn problems_of_the_network_are_of_its_document() {
        for (text, above) in
            [("network: {ethernets: {a: {routes: [{to: x}]}}}", "network."), ("ethernets: {a: {routes: [x]}}", "")]
        {
            let of = |reason: &str| subject(Use::NetworkConfig, text, "", "network configuration", reason);
            let key = |path: &str| format!("{above}ethernets.a{path}");
            assert_eq!(of("ethernets.a.routes[0]: no"), (key(".routes.0"), "no".into()));
            let reason = "netplan cannot express ethernets.a.routes[0]; it is ignored";
            assert_eq!(of(reason), (key(".routes.0"), reason.into()));
            assert_eq!(of("too much"), (String::new(), "too much".into()));
        }
    }
}
