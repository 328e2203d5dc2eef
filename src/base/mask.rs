//! Masks secrets in texts for people: plans, messages and logs.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// Texts that no message shows, whatever it is about: what was encrypted.
static HIDDEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The most of them. Each costs a search in each message.
const MAX_HIDDEN: usize = 1000;

/// A shorter one is part of other words.
const SHORTEST: usize = 4;

/// Hides a text in all messages of this process from now on.
pub fn hide(text: &str) {
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    if text.len() >= SHORTEST && hidden.len() < MAX_HIDDEN && !hidden.iter().any(|own| own == text) {
        hidden.push(text.to_owned());
    }
}

/// `text` with what is hidden, and the credentials of URLs, masked.
pub fn hidden(text: &str) -> Cow<'_, str> {
    let hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    if hidden.is_empty() { urls(text) } else { secrets(text, &hidden) }
}

/// Replaces a secret.
pub const MASK: &str = "********";

/// `text` with the credentials of each URL in it masked: `https://user:password@host/` becomes `https://********@host/`
/// (RFC 3986, section 3.2.1).
pub fn urls(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let end = |c: char| {
            matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '\\') || c.is_whitespace() || c.is_control()
        };
        let authority = &after[..after.find(end).unwrap_or(after.len())];
        out.push_str(before);
        out.push_str("://");
        rest = match authority.rfind('@') {
            Some(at) => {
                out.push_str(MASK);
                &after[at..]
            }
            None => after,
        };
    }
    if out.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(out + rest) }
}

/// Options in fstab(5) whose values are passwords (mount.cifs(8)).
const PASSWORDS: [&str; 4] = ["password", "pass", "password2", "pass2"];

/// `text` with the passwords in mount options masked: `user=a,password=b` becomes `user=a,password=********`.
pub fn options(text: &str) -> Cow<'_, str> {
    let is_end = |c: char| c == ',' || c.is_whitespace();
    let mut out = String::new();
    let mut found = false;
    for option in text.split_inclusive(is_end) {
        match option.split_once('=') {
            Some((name, value)) if PASSWORDS.contains(&name) => {
                found = true;
                out.extend([name, "=", MASK, &value[value.trim_end_matches(is_end).len()..]]);
            }
            _ => out.push_str(option),
        }
    }
    if found { Cow::Owned(out) } else { Cow::Borrowed(text) }
}

/// `text` with every occurrence of `secrets` masked, and the credentials of URLs.
pub fn secrets<'a>(text: &'a str, secrets: &[String]) -> Cow<'a, str> {
    let mut out = urls(text);
    // A secret may be part of another one.
    let mut secrets: Vec<&str> = secrets.iter().map(String::as_str).filter(|secret| !secret.is_empty()).collect();
    crate::base::sort::by(&mut secrets, |a, b| b.len().cmp(&a.len()));
    for secret in secrets {
        if out.contains(secret) {
            out = Cow::Owned(out.replace(secret, MASK));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_urls() {
        for (text, masked) in [
            ("http://user:pw@host/a b", "http://********@host/a b"),
            ("no URL, a@b://", "no URL, a@b://"),
            ("x=https://t0ken@h?q=a@b 'ftp://u:p@ss@h'", "x=https://********@h?q=a@b 'ftp://********@h'"),
            ("http://host/~user@x http://h:80 http://[::1]@", "http://host/~user@x http://h:80 http://********@"),
            ("http://a:b@http://c:d@h/", "http://********@http://********@h/"),
            ("éö://ü:ü@ü", "éö://********@ü"),
        ] {
            assert_eq!(urls(text), masked);
        }
        assert!(matches!(urls("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn passwords_in_mount_options() {
        let line = "//s/a=b\t/m\tcifs\tpassword=a b,pass=c=d,user=x,password2=e\t0 0";
        let masked = "//s/a=b\t/m\tcifs\tpassword=******** b,pass=********,user=x,password2=********\t0 0";
        assert_eq!(options(line), masked);
        assert!(matches!(options("rw,credentials=/etc/c,passwords=x"), Cow::Borrowed(_)));
    }

    #[test]
    fn secrets_wherever_they_stand() {
        let list = ["pw".to_owned(), String::new(), "pw-long".to_owned()];
        assert_eq!(secrets("--password=pw pw-long u://a@b", &list), "--password=******** ******** u://********@b");
    }
}
