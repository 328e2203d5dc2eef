//! Named checks of strings and keys in schemas.

use super::texts;
use crate::machine::nic::MAX_DEVICE_NAME;
use crate::system::accounts::days_of;

/// The expectation of a check, and whether the text satisfies it. A line feed at the end is ignored: cloud-init's
/// patterns end in `$`, which in Python also matches before it.
pub fn check(name: &str, text: &str) -> (&'static str, bool) {
    let line = text.strip_suffix('\n').unwrap_or(text);
    match name {
        "line" => ("a line of text", !line.is_empty() && !line.contains('\n')),
        "line_or_nothing" => ("a line of text", !line.contains('\n')),
        "pair" => ("NAME:PASSWORD", is_pair(line) && !line.contains('\n')),
        "size" => ("a size such as 512M", is_size(line)),
        "minutes" => ("a number of minutes", is_number(line.strip_prefix('+').unwrap_or(line))),
        "tags" => {
            ("words of letters, digits, - and _ with commas between them", line.split(',').all(|t| is_name(t, "-_")))
        }
        "date" => ("a date such as 2031-12-31", is_date(text)),
        "device" => ("a device's name, 15 characters at most", text.chars().count() <= MAX_DEVICE_NAME),
        "module" => ("a module's name", is_module(text)),
        "host_key" => ("rsa, ecdsa or ed25519 with _private, _public or _certificate", is_host_key(line)),
        "repository" => ("letters, digits, spaces and signs", is_repository(line)),
        "option" => ("letters, digits and _", is_name(line, "_")),
        _ => ("a string", true),
    }
}

/// The ids that cloud-init's pattern for repositories effectively accepts: its ` -_` is a range.
fn is_repository(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || (' '..='_').contains(&c))
}

/// Letters, digits and these characters; at least one.
fn is_name(text: &str, signs: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Something on both sides of a colon.
fn is_pair(text: &str) -> bool {
    text.char_indices().any(|(at, c)| c == ':' && at > 0 && at + 1 < text.len())
}

/// `512M`, `1.5G`, `.5T`
fn is_size(text: &str) -> bool {
    let number = text.strip_suffix(['B', 'K', 'M', 'G', 'T']).unwrap_or_default();
    let (whole, rest) = number.split_once('.').unwrap_or(("", number));
    (whole.is_empty() || is_number(whole)) && is_number(rest)
}

/// Year, month and day as in RFC 3339: a valid date since 1970.
fn is_date(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(fits) && days_of(text).is_some()
}

fn is_host_key(text: &str) -> bool {
    let (kind, part) = text.split_once('_').unwrap_or_default();
    matches!(kind, "rsa" | "ecdsa" | "ed25519") && matches!(part, "private" | "public" | "certificate")
}

/// Whether cloud-init has, or had, a module of that name.
fn is_module(name: &str) -> bool {
    texts::module(&name.replace('-', "_")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (name, good, bad) in [
            ("line", "a|a\n|\t", "|\n|a\nb|a\n\n"),
            ("line_or_nothing", "|a|\n", "a\nb"),
            ("pair", "a:b|a::|:a:b|é:b\n", "a:|:b|ab||a:\n|a:b\nc:d|:"),
            ("size", "512M|1.5G|.5T|0B|00.0K\n", "|M|5|5.M|1.2.3G|-5M|5m|1 G|٣M"),
            ("minutes", "+5|5|0", "|+|++5|5m|-5|now"),
            ("tags", "a|a-b,c_d,1", "|a,|,a|a,,b|a b|é"),
            (
                "date",
                "2024-02-29|2000-02-29|1999-12-31",
                "2023-02-29|1900-02-29|2024-13-01|2024-00-01|2024-04-31|0000-01-01|1900-01-01|24-01-01|2024-1-1|2024-01-01\n|20240101|2024-01-+1|2024-01-01-01|",
            ),
            ("device", "eth0||123456789012345|ééééééééééééééé", "1234567890123456"),
            (
                "module",
                "users_groups|users-groups|update_hostname|reset-rmc|ubuntu_advantage",
                "users|cc_runcmd||nosuch|Others",
            ),
            ("host_key", "rsa_private|ed25519_certificate|ecdsa_public\n", "dsa_private|rsa_key|rsa|rsa_private_"),
            ("repository", "My Repo-1_[x]/$|a|$$", "|a~b|{a}|é"),
            ("option", "gpg_check1", "|a-b|a b|$$"),
        ] {
            for text in good.split('|') {
                assert!(check(name, text).1, "{name}: {text:?}");
            }
            for text in bad.split('|') {
                assert!(!check(name, text).1, "{name}: {text:?}");
            }
        }
    }
}
