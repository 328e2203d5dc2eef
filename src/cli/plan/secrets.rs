//! What of the documents is secret, and masking it.

use super::document::{Document, Place};
use crate::base::mask::{self, MASK};
use crate::document::{Map, Path, Value};

/// Shorter secrets are masked only where they are given: elsewhere they would hide half of the text.
const MIN_LENGTH: usize = 4;
/// With more of them, nothing of the documents is shown.
const MAX_SECRETS: usize = 1_000;
/// Parts of the names of keys whose values are secret.
const SECRET: [&str; 10] =
    ["passw", "secret", "token", "private", "psk", "api_key", "apikey", "credential", "passphrase", "validation_cert"];

/// The secrets of all documents.
#[derive(Default)]
pub struct Secrets {
    /// Whether they are shown.
    pub shown: bool,
    texts: Vec<String>,
}

impl Secrets {
    /// The secrets of these documents.
    pub fn of(documents: &[Document], shown: bool) -> Secrets {
        let mut secrets = Secrets { shown, texts: Vec::new() };
        for document in documents {
            for (_, value) in secret_values(document) {
                secrets.add(value);
            }
        }
        // A secret may be part of another one.
        crate::base::sort::by(&mut secrets.texts, |a, b| b.len().cmp(&a.len()));
        secrets.texts.dedup();
        secrets
    }

    fn add(&mut self, value: &Value) {
        for text in value.texts() {
            for line in text.lines() {
                let line = line.trim();
                // `chpasswd: {list: [user:password]}`
                let password = line.split_once(':').map_or("", |(_, rest)| rest.trim());
                let long = [line, password].into_iter().filter(|part| part.len() >= MIN_LENGTH);
                self.texts.extend(long.map(str::to_owned));
            }
        }
    }

    /// A text in which no secret of a document is left, nor passwords in URLs and mount options.
    pub fn clean(&self, text: &str) -> String {
        if self.shown {
            return text.to_owned();
        }
        if self.texts.len() > MAX_SECRETS {
            return MASK.to_owned();
        }
        let masked = mask::urls(text).split_inclusive('\n').map(mask::options).collect::<String>();
        self.texts
            .iter()
            .fold(masked, |text, secret| if text.contains(secret) { text.replace(secret, MASK) } else { text })
    }

    /// The lines of a document as they may be shown.
    pub fn lines(&self, document: &Document) -> Vec<String> {
        let mut lines: Vec<String> = document.text.lines().map(str::to_owned).collect();
        if self.shown {
            return lines;
        }
        if document.config().is_none() || self.texts.len() > MAX_SECRETS {
            // What is secret is not known.
            return lines.iter().map(|line| only_key(line)).collect();
        }
        let places = document.all_places();
        for (path, _) in secret_values(document) {
            let Some(start) = document.place(&path) else { continue };
            let below = format!("{path}.");
            let after = places.get(places.partition_point(|(_, place)| *place <= start)..).unwrap_or_default();
            let end = after.iter().find(|(other, _)| !other.starts_with(&below)).map(|(_, place)| *place);
            let end = end.unwrap_or((lines.len() + 1, 1));
            hide(&mut lines, path.rsplit('.').next().unwrap_or_default(), start, end);
        }
        lines.iter().map(|line| self.clean(line)).collect()
    }
}

/// Masks the value of `key` from its place to that of what comes next.
fn hide(lines: &mut [String], key: &str, start: Place, end: Place) {
    for (at, line) in
        lines.iter_mut().enumerate().skip(start.0 - 1).take(end.0 + 1 - start.0).map(|(at, line)| (at + 1, line))
    {
        let before = |column: usize| line.chars().take(column - 1).collect::<String>();
        if at == start.0 {
            let is_item = key.bytes().all(|b| b.is_ascii_digit());
            let key = if is_item { String::new() } else { format!("{key}: ") };
            *line = format!("{}{key}{MASK}", before(start.1));
        } else if at > start.0 && at < end.0 {
            MASK.clone_into(line);
        } else if at == end.0 && before(end.1).contains(|c: char| !matches!(c, ' ' | '-')) {
            let rest: String = line.chars().skip(end.1 - 1).collect();
            *line = format!("{MASK} {rest}");
        }
    }
}

/// A line of which only what is certainly a key is shown.
fn only_key(line: &str) -> String {
    let body = line.trim_start_matches([' ', '-']);
    let is_key = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    match body.split_once(':').filter(|(key, _)| is_key(key)) {
        Some((key, rest)) => {
            let indent = &line[..line.len() - body.len()];
            format!("{indent}{key}:{}", if rest.trim().is_empty() { "" } else { " ********" })
        }
        None if line.starts_with('#') || line.trim().is_empty() => line.to_owned(),
        None => MASK.to_owned(),
    }
}

/// The paths of values that are secret.
fn secret_values(document: &Document) -> Vec<(String, &Value)> {
    let (mut found, mut path) = (Vec::new(), Path::default());
    if let Some(config) = document.config() {
        in_map(config, &mut path, &mut found);
    }
    found
}

fn in_map<'d>(map: &'d Map, path: &mut Path, found: &mut Vec<(String, &'d Value)>) {
    for (key, value) in map.iter() {
        path.enter(&key);
        let is_private_file = key == "content" && is_private(map);
        let is_list_of_passwords = path.as_str() == "chpasswd.list";
        let is_text = match value {
            Value::String(_) | Value::Bytes(_) | Value::Int(_) => true,
            Value::List(list) => list.iter().all(|item| matches!(item, Value::String(_) | Value::Int(_))),
            _ => false,
        };
        // A place is not a secret: `validation_cert: system`.
        let is_place = key == "validation_cert" && value.as_str() == Some("system");
        if is_text && !is_place && (is_secret(key) || is_private_file || is_list_of_passwords) {
            found.push((path.as_str().to_owned(), value));
        } else {
            in_value(value, path, found);
        }
        path.leave();
    }
}

fn in_value<'d>(value: &'d Value, path: &mut Path, found: &mut Vec<(String, &'d Value)>) {
    match value {
        Value::Map(map) => in_map(map, path, found),
        Value::List(list) => {
            for (at, value) in list.iter().enumerate() {
                path.enter(&at);
                in_value(value, path, found);
                path.leave();
            }
        }
        _ => {}
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    !key.starts_with("lock_") && SECRET.iter().any(|part| key.contains(part))
}

/// Whether an entry of `write_files` asks for a file that not everyone may read.
fn is_private(entry: &Map) -> bool {
    let mode = entry.get("permissions").and_then(Value::text);
    mode.is_some_and(|mode| u32::from_str_radix(&mode, 8).is_ok_and(|mode| mode & 0o004 == 0))
}

#[cfg(test)]
mod tests {
    use super::super::document::Use;
    use super::*;

    #[test]
    fn values_are_masked_wherever_they_stand() {
        let text = "#cloud-config\npassword: geheim1\nchpasswd:\n  expire: false\n  list: |\n    bob:geheim2\nusers:\n- name: bob\n  \
                    lock_passwd: true\n- {name: eve, hashed_passwd: $6$geheim3, uid: 5}\nwrite_files:\n- path: /etc/s\n  permissions: '0600'\n  \
                    content: |\n    key=geheim4\n    more\n- path: /etc/p\n  content: see geheim1\nhostname: x\n";
        let documents = [Document::new(Use::UserData, "u", text.as_bytes())];
        let secrets = Secrets::of(&documents, false);
        let lines = secrets.lines(&documents[0]).join("\n");
        assert!(!lines.contains("geheim"), "{lines}");
        for left in [
            "password: ********",
            "  expire: false",
            "  lock_passwd: true",
            "- path: /etc/s",
            "hostname: x",
            "name: eve",
        ] {
            assert!(lines.contains(left), "{left}: {lines}");
        }
        assert_eq!(secrets.clean("echo geheim2 https://a:b@c"), "echo ******** https://********@c");
        assert_eq!(Secrets::of(&documents, true).clean("geheim2"), "geheim2");
        let broken = [Document::new(Use::UserData, "u", b"#cloud-config\npassword: geheim\n- geheim [\n")];
        assert!(!Secrets::of(&broken, false).lines(&broken[0]).join("").contains("geheim"));
    }
}
