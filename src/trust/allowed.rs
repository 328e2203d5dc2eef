//! The keys that a policy trusts: OpenSSH's files of allowed signers (ssh-keygen(1)), and of revoked keys.

use super::{lines, sshsig};
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Error, Result};
use crate::base::text::quoted;
use crate::base::{base64, clock, glob};

/// The most keys of a file.
const MAX_KEYS: usize = 256;

/// A key whose signatures are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    /// Whose it is, for messages.
    pub principal: String,
    pub blob: Vec<u8>,
    /// Patterns for namespaces. Empty: every namespace.
    namespaces: Vec<String>,
    /// From when until when it is accepted, in seconds since 1970.
    after: Option<u64>,
    before: Option<u64>,
}

impl Key {
    /// Why its signature in `namespace` is not accepted at the time `now`, or at any time if that is None.
    pub fn refuses(&self, namespace: &str, now: Option<u64>) -> Option<&'static str> {
        let is_named = |pattern: &String| glob::matches(pattern, namespace);
        if !self.namespaces.is_empty() && !self.namespaces.iter().any(is_named) {
            return Some("it is not for this kind of document (namespaces)");
        }
        let now = now?;
        if self.after.is_some_and(|after| now < after) {
            return Some("it is not valid yet (valid-after)");
        }
        self.before.is_some_and(|before| now >= before).then_some("it is not valid any more (valid-before)")
    }

    /// What it prints as: whose it is, and its fingerprint.
    pub fn title(&self) -> String {
        format!("{} ({})", self.principal, fingerprint(&self.blob))
    }
}

/// The fingerprint of a key, as `ssh-keygen -l` prints it.
pub fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", base64::encode(&digest(Algorithm::Sha256, blob)).trim_end_matches('='))
}

/// Reads a file of allowed signers; `name` is its name in errors. What is not understood is an error, because a key without its
/// restriction would be trusted too much.
///
/// # Errors
/// A line has another form, or an option that is unknown here.
pub fn signers(name: &str, text: &str) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    for (number, line) in lines(text) {
        let key = signer(line).map_err(|e| e.context(format_args!("{name}: line {number}")))?;
        keys.push(key);
    }
    if keys.len() > MAX_KEYS { Err(Error::new(format!("{name}: more than {MAX_KEYS} keys"))) } else { Ok(keys) }
}

fn signer(line: &str) -> Result<Key> {
    let mut words = words(line).into_iter();
    let mut key = Key { principal: words.next().unwrap_or_default().replace('"', ""), ..Key::default() };
    let mut kind = words.next().unwrap_or_default();
    if blob(&kind, words.as_slice().first()).is_err() {
        for option in split(&kind, ',') {
            let (name, value) = option.split_once('=').unwrap_or((&option, ""));
            let value = value.replace('"', "");
            let time =
                || time(&value).ok_or_else(|| Error::new(format!("{name}: expected YYYYMMDD, or YYYYMMDDHHMMSS")));
            match name.to_ascii_lowercase().as_str() {
                "namespaces" if !value.is_empty() => key.namespaces = value.split(',').map(str::to_owned).collect(),
                "valid-after" => key.after = Some(time()?),
                "valid-before" => key.before = Some(time()?),
                _ => {
                    return Err(Error::new(format!(
                        "neither a type of key nor an option that is known: {}",
                        quoted(name)
                    )));
                }
            }
        }
        kind = words.next().unwrap_or_default();
    }
    key.blob = blob(&kind, words.next().as_ref())?;
    Ok(key)
}

/// The key of a type and its base64.
fn blob(kind: &str, text: Option<&String>) -> Result<Vec<u8>> {
    let blob = text.and_then(|text| base64::decode(text.as_bytes())).unwrap_or_default();
    match sshsig::type_of(&blob) {
        Some(own) if own == kind => Ok(blob),
        _ => Err(Error::new(format!("expected a key of the types {}", sshsig::TYPES.join(", ")))),
    }
}

/// The words of a line; white space in quotes does not separate.
fn words(line: &str) -> Vec<String> {
    split(line, ' ').into_iter().filter(|word| !word.is_empty()).collect()
}

fn split(text: &str, separator: char) -> Vec<String> {
    let (mut all, mut is_quoted) = (vec![String::new()], false);
    for c in text.chars() {
        is_quoted ^= c == '"';
        if !is_quoted && (c == separator || separator == ' ' && c == '\t') {
            all.push(String::new());
        } else {
            all.last_mut().into_iter().for_each(|word| word.push(c));
        }
    }
    all
}

/// Seconds since 1970 of `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, with or without a Z: in UTC in every case, because no time
/// zone is known before the pivot.
fn time(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !matches!(digits.len(), 8 | 12 | 14) {
        return None;
    }
    let all = format!("{digits:0<14}");
    let part = |from: usize, to: usize| all.get(from..to).unwrap_or_default();
    let (date, time) = ([part(0, 4), part(4, 6), part(6, 8)], [part(8, 10), part(10, 12), part(12, 14)]);
    clock::parse_iso8601(&format!("{}T{}Z", date.join("-"), time.join(":")))
}

/// Reads a file of revoked keys: a public key or its fingerprint in each line. Each is returned as its fingerprint.
///
/// # Errors
/// A line is neither.
pub fn revoked(name: &str, text: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for (number, line) in lines(text) {
        let words = words(line);
        let key = match words.as_slice() {
            [print, ..] if print.starts_with("SHA256:") && print.len() == 50 => Some(print.clone()),
            [_, text, ..] => base64::decode(text.as_bytes()).map(|blob| fingerprint(&blob)),
            _ => None,
        };
        all.push(key.ok_or_else(|| Error::new(format!("{name}: line {number}: expected a public key or SHA256:…")))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    #[test]
    fn reads_allowed_signers() {
        let text = format!(
            "# who\n\nrelease@example {KEY} comment\n\
             \"a b\" namespaces=\"prepivot-user-data,x*\",valid-after=\"20260101\",valid-before=20270101000000Z {KEY}\n"
        );
        let keys = signers("f", &text).unwrap();
        let names: Vec<&str> = keys.iter().map(|key| key.principal.as_str()).collect();
        assert_eq!(names, ["release@example", "a b"]);
        let (from, until) = (1_767_225_600, 1_798_761_600);
        assert_eq!((keys[1].after, keys[1].before), (Some(from), Some(until)));
        for (namespace, now, refused) in [
            ("prepivot-user-data", from, ""),
            ("xyz", until - 1, ""),
            ("file", from, "namespaces"),
            ("xyz", from - 1, "valid-after"),
            ("xyz", until, "valid-before"),
        ] {
            let why = keys[1].refuses(namespace, Some(now)).unwrap_or_default();
            assert!(why.contains(refused) && why.is_empty() == refused.is_empty(), "{why}");
        }
        assert_eq!(keys[0].refuses("anything", Some(0)), None);
        assert!(keys[0].title().starts_with("release@example (SHA256:"));
    }

    #[test]
    fn what_is_not_understood_is_no_key() {
        for line in [
            "me",
            "me ssh-ed25519",
            "me ssh-ed25519 AAAA",
            "me ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti",
            &format!("me cert-authority {KEY}"),
            &format!("me valid-before=tomorrow {KEY}"),
            &format!("me namespaces= {KEY}"),
            &format!("me namespaces=\"a\",other=1 {KEY}"),
            "me ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQ=",
        ] {
            assert!(signers("f", line).is_err(), "{line}");
        }
        assert!(signers("f", &format!("me {KEY}\n").repeat(MAX_KEYS + 1)).is_err());
    }

    #[test]
    fn revoked_keys_are_known_by_their_fingerprints() {
        let print = fingerprint(&signers("f", &format!("me {KEY}")).unwrap()[0].blob);
        assert_eq!(revoked("f", &format!("# gone\n{KEY} me\n{print}\n")).unwrap(), [print.clone(), print]);
        assert!(revoked("f", "SHA256:short").is_err() && revoked("f", "x").is_err());
    }
}
