//! What is encrypted: whole documents, parts, files of `write_files`, and single values, which have the form
//! `encrypted(NAME:DATA)`. DATA is a credential of systemd, a file of age or what is sealed to an endorsement key, in base64; without
//! a name it is `encrypted(DATA)`.
//!
//! A value stays encrypted in everything that is kept. It is opened for the module that uses it, and for nothing else.

use super::{age, credential, endorsed};
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::mask;
use crate::document::{Map, Value};

const MARK: &str = "encrypted(";
const END: char = ')';
/// The values of `encoding` in `write_files`, which are opened as values are.
pub const ENCODINGS: [&str; 3] = ["systemd-creds", "age", "sealed"];
/// The shortest text that is hidden in messages, and the most texts of a document that are.
const SHORTEST: usize = 6;
const MOST: usize = 500;

/// What became of something that is encrypted.
pub enum Opened {
    Plain(Vec<u8>),
    /// Its key is not reachable yet: the real root has it.
    Later,
    Failed(Error),
}

/// Opens what is encrypted, for a name.
pub type Open<'a> = &'a dyn Fn(&[u8], &str) -> Opened;

/// How something is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// A credential under a key.
    Credential,
    /// A credential under no key: nothing is hidden, and anyone can make it.
    Null,
    Age,
    /// Sealed to the endorsement key of the machine's TPM.
    Endorsed,
}

/// How bytes are encrypted. None if they are not. A build without the Cargo feature `trust` knows no form.
pub fn encryption(bytes: &[u8]) -> Option<Encryption> {
    if !cfg!(feature = "trust") {
        None
    } else if age::is_age(bytes) {
        Some(Encryption::Age)
    } else if endorsed::is_sealed(bytes) {
        Some(Encryption::Endorsed)
    } else {
        let is_null = credential::is_null(bytes)?;
        Some(if is_null { Encryption::Null } else { Encryption::Credential })
    }
}

/// A value in a text.
struct Marked<'a> {
    /// Before it, and after it.
    before: &'a str,
    after: &'a str,
    name: &'a str,
    sealed: Vec<u8>,
}

/// The first value of the form `encrypted(…)` in a text.
fn marked(text: &str) -> Option<Marked<'_>> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(MARK)?;
        let (before, rest) = (text.get(..at)?, text.get(at + MARK.len()..)?);
        from = at + MARK.len();
        let (inner, after) = rest.split_once(END)?;
        let (name, data) = inner.split_once(':').unwrap_or(("", inner));
        let sealed = base64::decode_lines(data.as_bytes()).filter(|bytes| encryption(bytes).is_some());
        if let Some(sealed) = sealed {
            return Some(Marked { before, after, name, sealed });
        }
    }
}

/// A value of the form `encrypted(…)`, in one line.
///
/// # Errors
/// The name would end before its end.
pub fn value(sealed: &str, name: &str) -> Result<String> {
    if name.contains([':', END]) {
        return Err(Error::new(format!("the name of a value cannot have : or {END}")));
    }
    let name = if name.is_empty() { String::new() } else { format!("{name}:") };
    Ok(format!("{MARK}{name}{}{END}\n", base64::encode(sealed.as_bytes())))
}

/// The text with its values opened. One line feed at the end of each is left out, as an editor adds it. None if there is none.
fn open_text(text: &str, open: Open) -> Option<std::result::Result<String, Option<Error>>> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(Marked { before, after, name, sealed }) = marked(rest) {
        let plain = match open(&sealed, name) {
            Opened::Plain(plain) => String::from_utf8(plain),
            Opened::Later => return Some(Err(None)),
            Opened::Failed(e) => return Some(Err(Some(e))),
        };
        let Ok(plain) = plain else { return Some(Err(Some(Error::new("the value is not UTF-8")))) };
        let plain = plain.strip_suffix('\n').unwrap_or(&plain);
        mask::hide(plain);
        out.push_str(before);
        out.push_str(plain);
        rest = after;
    }
    if out.is_empty() && rest.len() == text.len() {
        return None;
    }
    out.push_str(rest);
    Some(Ok(out))
}

/// What opening a configuration found.
#[derive(Default)]
pub struct Found {
    /// The configuration with its values opened. None if it has none that is encrypted.
    pub opened: Option<Map>,
    /// Whether a value other than a file of `write_files` waits for its key.
    pub waits: bool,
    /// What could not be opened, with its key.
    pub problems: Vec<Error>,
}

/// Opens the values of a configuration. One that cannot be opened becomes null; a file of `write_files` stays as it is.
pub fn open_config(config: &Map, open: Open) -> Found {
    let mut found = Found::default();
    if !cfg!(feature = "trust") || !config.iter().any(|(key, value)| is_sealed(key, value)) {
        return found;
    }
    let opened = config.iter().map(|(key, value)| {
        let value = match (key, value) {
            ("write_files", Value::List(entries)) => {
                let entries = entries.iter().enumerate().map(|(at, entry)| open_file(at + 1, entry, open, &mut found));
                Value::List(entries.collect())
            }
            _ => open_value(key, value, open, &mut found),
        };
        (key, value)
    });
    found.opened = Some(opened.collect());
    found
}

/// Whether something below a key is encrypted.
fn is_sealed(key: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MARK) || key == "encoding" && ENCODINGS.contains(&text.trim()),
        Value::List(items) => items.iter().any(|item| is_sealed(key, item)),
        Value::Map(map) => map.iter().any(|(key, value)| is_sealed(key, value)),
        _ => false,
    }
}

fn open_value(path: &str, value: &Value, open: Open, found: &mut Found) -> Value {
    match value {
        Value::String(text) => match open_text(text, open) {
            None => value.clone(),
            Some(Ok(text)) => text.into(),
            Some(Err(why)) => {
                match why {
                    None => found.waits = true,
                    Some(e) => found.problems.push(e.context(path)),
                }
                Value::Null
            }
        },
        Value::List(items) => {
            let items =
                items.iter().enumerate().map(|(at, item)| open_value(&format!("{path}.{at}"), item, open, found));
            Value::List(items.collect())
        }
        Value::Map(map) => {
            let values = map.iter().map(|(key, value)| (key, open_value(&format!("{path}.{key}"), value, open, found)));
            Value::Map(values.collect())
        }
        _ => value.clone(),
    }
}

/// How an entry of `write_files` is encrypted, by its `encoding`.
pub fn is_sealed_file(entry: &Map) -> bool {
    let encoding = entry.get("encoding").and_then(Value::as_str).unwrap_or_default();
    cfg!(feature = "trust") && ENCODINGS.contains(&encoding.trim())
}

/// An entry of `write_files` with its content opened, for the name of its file. One that is not opened yet stays as it is.
fn open_file(number: usize, entry: &Value, open: Open, found: &mut Found) -> Value {
    let path = format!("write_files: entry {number}");
    let Some(map) = entry.as_map().filter(|map| is_sealed_file(map)) else {
        return open_value(&path, entry, open, found);
    };
    let file = map.get("path").and_then(Value::as_str).unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default();
    let content = map.get("content").and_then(Value::bytes).unwrap_or_default();
    // A file of age may be in base64, too, as a value is.
    let decoded = if encryption(content).is_none() { base64::decode_lines(content) } else { None };
    match open(decoded.as_deref().unwrap_or(content), name) {
        Opened::Plain(plain) => {
            let mut opened: Map =
                map.iter().filter(|(key, _)| *key != "encoding").map(|(k, v)| (k, v.clone())).collect();
            opened.insert("content", Value::Bytes(plain.into()));
            Value::Map(opened)
        }
        Opened::Later => entry.clone(),
        Opened::Failed(e) => {
            found.problems.push(e.context(format_args!("{path} ({file}): content")));
            entry.clone()
        }
    }
}

/// Hides the texts of a configuration from an encrypted document in messages, but for those that `public` has, too.
pub fn hide(config: &Map, public: Option<&Map>) {
    let mut left = MOST;
    for (key, value) in config.iter() {
        hide_value(value, public.and_then(|public| public.get(key)), &mut left);
    }
}

fn hide_value(value: &Value, public: Option<&Value>, left: &mut usize) {
    match value {
        _ if *left == 0 || Some(value) == public => {}
        Value::List(items) => items.iter().for_each(|item| hide_value(item, None, left)),
        Value::Map(map) => {
            map.iter().for_each(|(key, value)| hide_value(value, public.and_then(|public| public.get(key)), left));
        }
        _ => {
            // Each line of a text, as messages have one.
            let text = value.text().unwrap_or_default();
            for line in text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST && !line.starts_with('/')) {
                *left = left.saturating_sub(1);
                mask::hide(line);
            }
        }
    }
}

/// Opens with these keys.
///
/// # Errors
/// It has another form, the keys are others, or the name is.
pub fn open_with(
    sealed: &[u8],
    name: &str,
    now: u64,
    identities: &[age::Identity],
    keys: &credential::Keys,
) -> Result<Vec<u8>> {
    if !super::cipher::CAN_OPEN {
        return Err(Error::new("this build cannot decrypt: it is without the part tls"));
    }
    if age::is_age(sealed) {
        return age::open(sealed, identities);
    }
    if endorsed::is_sealed(sealed) {
        return endorsed::Endorsed::parse(sealed)?.open(keys.tpm.as_deref().unwrap_or_default(), name);
    }
    let bytes = credential::decoded(sealed).unwrap_or_default();
    let credential = credential::Credential::parse(&bytes);
    let credential = credential.ok_or_else(|| Error::new("it is neither a credential nor a file of age"))?;
    credential.open(keys, name, Some(now))
}

#[cfg(all(test, feature = "trust"))]
mod tests {
    use super::*;
    use crate::document::yaml;

    /// Starts of files, as far as their form.
    fn age_of(text: &str) -> String {
        base64::encode(format!("age-encryption.org/v1\n{text}").as_bytes())
    }

    fn map(text: &str) -> Map {
        yaml::parse("t", text).unwrap().as_map().unwrap().clone()
    }

    /// Opens by taking what is after the first line; `later` and `bad` are not opened.
    fn open(sealed: &[u8], name: &str) -> Opened {
        let text = String::from_utf8_lossy(sealed).into_owned();
        let plain = text.split_once('\n').map_or(&*text, |(_, plain)| plain);
        match plain {
            "later" => Opened::Later,
            "bad" => Opened::Failed(Error::new("no")),
            plain => Opened::Plain(format!("{name}+{plain}").into_bytes()),
        }
    }

    #[test]
    fn opens_values_where_they_stand() {
        let (one, two) = (age_of("one\n"), age_of("two"));
        let config = map(&format!(
            "a: 'x encrypted({one}) y encrypted(n:{two})'\nb: [1, {{c: 'encrypted({two})'}}]\nd: encrypted(text) encrypted(\n"
        ));
        let found = open_config(&config, &open);
        assert!(!found.waits && found.problems.is_empty());
        assert_eq!(found.opened, Some(map("a: x +one y n+two\nb: [1, {c: +two}]\nd: encrypted(text) encrypted(\n")));
        assert!(open_config(&map("a: encrypted\nb: [1, {c: b64}]\n"), &open).opened.is_none());
        assert_eq!(mask::hidden("say +one and n+two"), "say ******** and ********");
    }

    #[test]
    fn what_cannot_be_opened_is_null() {
        let config = map(&format!("a: encrypted({})\nb: {{c: encrypted({})}}\n", age_of("bad"), age_of("later")));
        let found = open_config(&config, &open);
        assert_eq!(found.opened, Some(map("{a: null, b: {c: null}}")));
        assert!(found.waits);
        assert_eq!(found.problems.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a: no"]);
    }

    #[test]
    fn files_are_opened_for_their_names() {
        let entry =
            |what: &str| format!("{{path: /etc/key, encoding: age, content: \"age-encryption.org/v1\\n{what}\"}}");
        let config = map(&format!("write_files: [{}, {}, {}]", entry("secret"), entry("later"), entry("bad")));
        let found = open_config(&config, &open);
        let opened = found.opened.unwrap();
        let files = opened.get("write_files").unwrap().as_list().unwrap();
        assert_eq!(files[0].get("content").and_then(Value::bytes), Some(&b"key+secret"[..]));
        assert!(files[0].get("encoding").is_none() && files[1].get("encoding").is_some());
        assert!(!found.waits, "the module waits for it");
        assert_eq!(found.problems[0].to_string(), "write_files: entry 3 (/etc/key): content: no");
    }

    #[test]
    fn hides_texts_of_encrypted_documents() {
        hide(&map("{a: [hidden-by-test], b: /hidden/path, c: shared-by-test}"), Some(&map("c: shared-by-test")));
        assert_eq!(mask::hidden("hidden-by-test /hidden/path shared-by-test"), "******** /hidden/path shared-by-test");
    }
}
