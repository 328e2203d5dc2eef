//! Percent-encoding (RFC 3986, 2.1), as in the kernel command line's `cc:`, in URLs and in MIME parameters.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The characters to escape in data: all except for the unreserved ones (RFC 3986, 2.3).
pub const ALL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for a path, in which slashes are not escaped.
pub const PATH: &AsciiSet = &ALL.remove(b'/');
/// The same for a parameter of a MIME header, as cloud-init writes it.
pub const PARAMETER: &AsciiSet = &ALL.add(b'~');

/// Escapes the characters in `escaped`, as `%2F`.
pub fn encode(text: &str, escaped: &'static AsciiSet) -> String {
    utf8_percent_encode(text, escaped).to_string()
}

/// Encodes a name or value of a form (WHATWG URL standard, "application/x-www-form-urlencoded serializing").
pub fn encode_form(text: &str) -> String {
    const ESCAPED: &AsciiSet = &ALL.add(b'~').remove(b'*').remove(b' ');
    encode(text, ESCAPED).replace(' ', "+")
}

/// Decodes `%41` to `A`; anything that is not an escape stays.
pub fn decode(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(decode("%5Bsmoser%5d %zz %4"), b"[smoser] %zz %4");
        assert_eq!(encode("a/é~ -._*", ALL), "a%2F%C3%A9~%20-._%2A");
        assert_eq!((encode("a/~", PATH), encode("a/~", PARAMETER)), ("a/~".into(), "a%2F%7E".into()));
        assert_eq!(encode_form("a b+~*-._/é"), "a+b%2B%7E*-._%2F%C3%A9");
    }
}
