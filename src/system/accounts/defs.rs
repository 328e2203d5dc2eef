//! The system's defaults for accounts: login.defs(5) and /etc/default/useradd (useradd(8)).

use crate::root::Root;
use crate::system::password::HashMethod;
use std::collections::BTreeMap;

/// The defaults of a root.
#[derive(Debug, Default)]
pub struct Defs {
    login: BTreeMap<String, String>,
    useradd: BTreeMap<String, String>,
}

impl Defs {
    /// Reads the files of `root`: the administrator's, or else the vendor's below /usr/etc; then the
    /// drop-ins.
    pub fn read(root: &Root) -> Defs {
        let mut defs = Defs::default();
        let first = |paths: [&str; 2]| paths.iter().find(|p| root.is_file(p)).map(|p| root.text(p)).unwrap_or_default();
        read_words(&first(["/etc/login.defs", "/usr/etc/login.defs"]), &mut defs.login);
        for folder in ["/usr/etc/login.defs.d", "/etc/login.defs.d"] {
            for name in root.list(folder).iter().filter(|n| n.ends_with(".defs")) {
                read_words(&root.text(&format!("{folder}/{name}")), &mut defs.login);
            }
        }
        for line in first(["/etc/default/useradd", "/usr/etc/default/useradd"]).lines() {
            if let Some((key, value)) = line.trim().split_once('=')
                && !key.starts_with('#')
            {
                defs.useradd.insert(key.to_owned(), value.trim().to_owned());
            }
        }
        defs
    }

    /// A value of login.defs.
    pub fn login(&self, key: &str) -> Option<&str> {
        self.login.get(key).map(String::as_str)
    }

    /// A number of login.defs: decimal, octal with a leading 0, or hexadecimal with 0x.
    pub fn number(&self, key: &str) -> Option<i64> {
        let text = self.login(key)?;
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
        let value = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            i64::from_str_radix(hex, 16).ok()?
        } else if digits.len() > 1 && digits.starts_with('0') {
            i64::from_str_radix(digits, 8).ok()?
        } else {
            digits.parse().ok()?
        };
        Some(if negative { -value } else { value })
    }

    /// The value of login.defs as a user or group number, else `default`.
    pub fn id(&self, key: &str, default: u32) -> u32 {
        self.number(key).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
    }

    /// Whether login.defs has `yes` for `key`; `default` if it is not set.
    pub fn is_yes(&self, key: &str, default: bool) -> bool {
        self.login(key).map_or(default, |v| v.eq_ignore_ascii_case("yes"))
    }

    /// A value of /etc/default/useradd that is not empty.
    pub fn useradd(&self, key: &str) -> Option<&str> {
        self.useradd.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The range of numbers for users or groups (`UID`, `GID`), for system accounts or for people.
    pub fn range(&self, kind: &str, system: bool) -> (u32, u32) {
        let regular = self.id(&format!("{kind}_MIN"), 1000);
        if system {
            let max = self.id(&format!("SYS_{kind}_MAX"), regular.saturating_sub(1));
            return (self.id(&format!("SYS_{kind}_MIN"), 101), max);
        }
        (regular, self.id(&format!("{kind}_MAX"), 60000))
    }

    /// The mode of a new home: HOME_MODE, else UMASK applied to 0777.
    pub fn home_mode(&self) -> u32 {
        let umask = self.id("UMASK", 0o022);
        self.id("HOME_MODE", 0o777 & !umask) & 0o7777
    }

    /// How a plain password is hashed, and in how many rounds. Methods that only the system's own crypt
    /// supports become SHA-512.
    pub fn encryption(&self) -> (HashMethod, Option<u32>) {
        let method = match self.login("ENCRYPT_METHOD") {
            Some(m) if m.eq_ignore_ascii_case("SHA256") => HashMethod::Sha256,
            _ => HashMethod::Sha512,
        };
        let rounds = ["SHA_CRYPT_MIN_ROUNDS", "SHA_CRYPT_MAX_ROUNDS"].iter().filter_map(|k| self.number(k)).max();
        (method, rounds.and_then(|r| u32::try_from(r).ok()))
    }
}

fn read_words(text: &str, into: &mut BTreeMap<String, String>) {
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with('#')) {
        if let Some((key, value)) = line.split_once([' ', '\t']) {
            into.insert(key.to_owned(), value.trim().trim_matches('"').to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_shadow_reads_them() {
        let mut defs = Defs::default();
        read_words("# c\nUID_MIN\t\t 500\nUMASK 077\nX 0x10\nENCRYPT_METHOD SHA256\n\nBAD\nY \"q\"\n", &mut defs.login);
        assert_eq!(defs.range("UID", false), (500, 60000));
        assert_eq!(defs.range("UID", true), (101, 499));
        assert_eq!(defs.home_mode(), 0o700);
        assert_eq!(defs.number("X"), Some(16));
        assert_eq!(defs.login("Y"), Some("q"));
        assert_eq!(defs.encryption(), (HashMethod::Sha256, None));
        defs.login.insert("HOME_MODE".into(), "0750".into());
        assert_eq!(defs.home_mode(), 0o750);
    }
}
