//! Checks names and fields of the account files. A colon or a line feed in one would create another entry.

use crate::base::error::{Error, Result};
use crate::base::text::quoted;

/// The longest name, in bytes (UT_NAMESIZE of utmp(5), which is also useradd's limit).
const MAX_NAME: usize = 32;
/// The longest other field, in bytes.
const MAX_FIELD: usize = 4096;

/// Checks the name of a user or group (`what`): letters, digits, `_`, `.` and `-`, no leading `-`, not only
/// digits, and optionally a `$` at the end (useradd(8), CAVEATS, with the larger set that distributions
/// allow).
///
/// # Errors
/// The name is invalid.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let body = name.strip_suffix('$').unwrap_or(name);
    let good = !body.is_empty()
        && name.len() <= MAX_NAME
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        && !body.starts_with('-')
        && !is_number(body)
        && !matches!(body, "." | "..");
    if good {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} is no name for a {what}: at most {MAX_NAME} letters, digits, _, . and -, not only digits, and not - first",
        quoted(name)
    )))
}

/// Whether a text has digits only: the number of a user or group, and no name.
pub fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// Checks a field of passwd(5): no colon, no control characters, not too long. `what` names it in the error.
///
/// # Errors
/// The field is invalid.
pub fn check_field(what: &str, value: &str) -> Result<()> {
    if value.len() > MAX_FIELD {
        return Err(Error::new(format!("{what}: longer than {MAX_FIELD} bytes")));
    }
    if value.contains(':') || value.chars().any(char::is_control) {
        return Err(Error::new(format!("{what}: a colon or a control character, which account files cannot hold")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["u", "foo-bar", "_apt", "A.b", "host$", "3com", &"x".repeat(32)] {
            assert!(check_name("user", good).is_ok(), "{good}");
        }
        for bad in
            ["", "-u", "a:b", "a\nroot", "12", "..", ".", "$", "a b", "ä", "a/b", "a,b", "%wheel", &"x".repeat(33)]
        {
            assert!(check_name("user", bad).is_err(), "{bad}");
        }
        assert!(check_field("gecos", "Ä B,,,").is_ok());
        for bad in ["a:b", "a\nb", "a\0", "a\x1b"] {
            assert!(check_field("gecos", bad).is_err());
        }
    }
}
