//! Percent escapes (RFC 3986, 2.1), as in the kernel command line's `cc:` and in MIME parameters.

/// `%41` becomes `A`; what is no escape stays.
pub fn decode(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

/// The value of a hexadecimal digit.
pub fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn escapes() {
        assert_eq!(super::decode("%5Bsmoser%5d %zz %4"), b"[smoser] %zz %4");
    }
}
