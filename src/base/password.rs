//! Passwords: recognises hashes, hashes plain passwords, and generates random ones.

use crate::base::error::{Error, Result};
use crate::base::random;
use sha_crypt::Params;

/// The longest password, in bytes (crypt(5): CRYPT_MAX_PASSPHRASE_SIZE without its NUL).
const MAX_PASSWORD: usize = 511;
/// The length of a random password, in characters.
const RANDOM_LENGTH: usize = 20;
/// The alphabet of crypt's base64, in order (crypt(5)).
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The most rounds of hashing, which take about half a second: more would delay a boot.
const MAX_ROUNDS: u32 = 1_000_000;

/// The hash method for plain passwords (`ENCRYPT_METHOD` of login.defs). Others are only accepted as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashMethod {
    Sha256,
    Sha512,
}

/// Whether a text looks like a hash of crypt(5): `$id$salt$hash`, with a known id.
pub fn is_hash(text: &str) -> bool {
    let mut parts = text.split('$');
    let id = parts.nth(1).unwrap_or("");
    text.starts_with('$')
        && matches!(id, "1" | "2a" | "2b" | "2x" | "2y" | "5" | "6" | "7" | "y" | "gy" | "md5" | "sha1")
        && parts.clone().count() >= 2
        && parts.skip(1).all(|p| !p.is_empty())
        && is_field(text)
}

/// Whether a text can be a password field unchanged: a hash, `*`, `!`, or empty.
pub fn is_field(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() && b != b':')
}

/// Hashes a plain password with a random salt. `rounds`: None for the method's default.
///
/// # Errors
/// It is empty, too long, or contains a line feed or NUL; or the kernel returns no random numbers.
pub fn hash(plain: &str, method: HashMethod, rounds: Option<u32>) -> Result<String> {
    if plain.is_empty() {
        return Err(Error::new("the password is empty"));
    }
    if plain.len() > MAX_PASSWORD {
        return Err(Error::new(format!("the password is longer than {MAX_PASSWORD} bytes")));
    }
    if plain.contains(['\n', '\r', '\0']) {
        return Err(Error::new("the password holds the end of a line or a NUL byte"));
    }
    let mut bytes = [0; 16];
    random::fill(&mut bytes, "a password")?;
    let salt: String = bytes.iter().map(|b| char::from(letter(u32::from(*b)))).collect();
    Ok(crypt(plain, method, &salt, rounds))
}

/// Whether the SHA-crypt hash `hash` belongs to the password `plain`.
pub fn verify(plain: &str, hash: &str) -> bool {
    let mut parts = hash.split('$').skip(1);
    let method = match parts.next() {
        Some("5") => HashMethod::Sha256,
        Some("6") => HashMethod::Sha512,
        _ => return false,
    };
    let mut salt = parts.next().unwrap_or("");
    let rounds = salt.strip_prefix("rounds=").and_then(|r| r.parse().ok());
    if rounds.is_some() {
        salt = parts.next().unwrap_or("");
    }
    crypt(plain, method, salt, rounds) == hash
}

fn crypt(plain: &str, method: HashMethod, salt: &str, rounds: Option<u32>) -> String {
    let (id, rounds) = match method {
        HashMethod::Sha256 => ('5', rounds),
        HashMethod::Sha512 => ('6', rounds),
    };
    let rounds = rounds.map(|r| r.clamp(Params::ROUNDS_MIN, MAX_ROUNDS));
    let params = rounds.and_then(|r| Params::new(r).ok()).unwrap_or(Params::RECOMMENDED);
    let mut out = match rounds {
        Some(rounds) => format!("${id}$rounds={rounds}${salt}$"),
        None => format!("${id}${salt}$"),
    };
    // Both take three bytes at a time, each a third of the digest apart, in rotating order; then the
    // remaining bytes.
    match method {
        HashMethod::Sha256 => {
            let d = sha_crypt::sha256_crypt(plain.as_bytes(), salt.as_bytes(), params);
            encode(&mut out, &d[..30], [[0, 1, 2], [2, 0, 1], [1, 2, 0]]);
            put(&mut out, [0, d[31], d[30]], 3);
        }
        HashMethod::Sha512 => {
            let d = sha_crypt::sha512_crypt(plain.as_bytes(), salt.as_bytes(), params);
            encode(&mut out, &d[..63], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
            put(&mut out, [0, 0, d[63]], 2);
        }
    }
    out
}

/// SHA-crypt's order of bytes (Drepper, "Unix crypt using SHA-256 and SHA-512", step 22): the digest in three columns.
fn encode(out: &mut String, digest: &[u8], turns: [[usize; 3]; 3]) {
    let column = digest.len() / 3;
    for i in 0..column {
        let bytes = turns[i % 3].map(|c| digest[c * column + i]);
        put(out, bytes, 4);
    }
}

fn put(out: &mut String, bytes: [u8; 3], letters: u32) {
    let mut bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    for _ in 0..letters {
        out.push(char::from(letter(bits)));
        bits >>= 6;
    }
}

fn letter(bits: u32) -> u8 {
    ALPHABET[(bits & 63) as usize]
}

/// A random password of [`RANDOM_LENGTH`] characters with at least one digit, lower-case letter, upper-case
/// letter and punctuation mark.
///
/// # Errors
/// The kernel returns no random numbers.
pub fn random() -> Result<String> {
    loop {
        let mut password = String::new();
        while password.len() < RANDOM_LENGTH {
            let mut byte = [0];
            random::fill(&mut byte, "a password")?;
            // Values that are not printable characters are skipped, so that all characters are equally
            // likely.
            match byte[0] & 127 {
                c if c.is_ascii_graphic() => password.push(char::from(c)),
                _ => {}
            }
        }
        let classes: [fn(&char) -> bool; 4] =
            [char::is_ascii_digit, char::is_ascii_lowercase, char::is_ascii_uppercase, char::is_ascii_punctuation];
        if classes.iter().all(|class| password.chars().any(|c| class(&c))) {
            return Ok(password);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `openssl passwd` and glibc print them.
    #[test]
    fn hashes_are_crypts() {
        for (method, rounds, salt, plain, expected) in [
            (
                HashMethod::Sha512,
                None,
                "saltstring",
                "Hello world!",
                "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
            ),
            (
                HashMethod::Sha256,
                None,
                "saltstring",
                "Hello world!",
                "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
            ),
            (
                HashMethod::Sha256,
                Some(10000),
                "saltstringsaltst",
                "Hello world!",
                "$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA",
            ),
        ] {
            let found = crypt(plain, method, salt, rounds);
            assert_eq!(found, expected);
            assert!(verify(plain, &found) && !verify("other", &found));
        }
    }

    #[test]
    fn what_is_a_hash() {
        for hash in ["$1$s$h", "$6$rounds=5000$s$h", "$y$j9T$salt$hash", "$2b$12$abcdef", "$gy$j9T$s$h"] {
            assert!(is_hash(hash), "{hash}");
        }
        for text in ["", "$", "$6$", "$6$salt", "$6$salt$", "$99$s$h", "plain", "x$6$s$h", "$6$s$h:0", "$6$s$h\nroot::"]
        {
            assert!(!is_hash(text), "{text}");
        }
    }

    #[test]
    fn random_passwords_mix_classes_and_differ() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_eq!(one.len(), 20);
        assert_ne!(one, two);
        assert!(one.chars().any(|c| c.is_ascii_digit()) && one.chars().any(|c| c.is_ascii_punctuation()));
    }

    #[test]
    fn refuses_a_password_with_a_line_feed() {
        for bad in ["", "a\nroot::0", "a\0", &"x".repeat(512)] {
            assert!(hash(bad, HashMethod::Sha512, None).is_err());
        }
        let hash = hash("ok", HashMethod::Sha512, None).unwrap();
        assert!(is_hash(&hash) && verify("ok", &hash));
    }
}
