//! Values of NetworkManager's keyfiles (nm-settings-keyfile(5), GLib's key files).

use crate::base::digest::{Algorithm, digest};
use crate::document::Value;

/// The UUID of a profile, for references from others: version 5 (RFC 9562, section 5.5) of the device's name, in cloud-init's
/// namespace.
pub fn uuid(name: &str) -> String {
    const NAMESPACE: u128 = 0xa3924cb8_09e0_43e9_890b_77972a800108;
    let sha1 = digest(Algorithm::Sha1, &[&NAMESPACE.to_be_bytes(), name.as_bytes()].concat());
    let head = sha1.iter().take(16).fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    // The version in four bits, the variant in two.
    let n = head & !(0xf << 76) & !(0x3 << 62) | 5 << 76 | 2 << 62;
    let hex = format!("{n:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default()).join("-")
}

/// A list: a semicolon after each value, and each value once.
pub fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut out: Vec<String> = Vec::new();
    for value in values {
        let value = escape(value).replace(';', "\\;") + ";";
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out.concat()
}

/// A text with its special characters escaped.
pub fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let escaped = text.replace('\\', "\\\\");
    match escaped.strip_prefix(' ') {
        Some(rest) => format!("\\s{rest}"),
        None => escaped,
    }
}

/// A scalar as a value on one line. None for anything else.
pub fn line(value: &Value) -> Option<String> {
    value.text().filter(|t| !t.chars().any(char::is_control)).map(|t| escape(&t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_cloud_inits() {
        assert_eq!(uuid("eth0"), "1dd9a779-d327-56e1-8454-c65e2556c12c");
        assert_eq!(uuid("bond0"), "54317911-f840-516b-a10d-82cb4c1f075c");
    }

    #[test]
    fn values_cannot_end_a_list_or_a_line() {
        assert_eq!(list(["a;b", "c\\d", "a;b"]), "a\\;b;c\\\\d;");
        assert_eq!(escape(" x\ny"), "\\sxy");
    }
}
