//! Hexadecimal digits.

/// Two digits in lower case for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of pairs of digits, in either case. None for any other text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    if rest.is_empty() {
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_digits_are_decoded() {
        assert_eq!((encode(&[0, 0xaf]), decode("00aF")), ("00af".into(), Some(vec![0, 0xaf])));
        assert_eq!((decode("0aF"), decode("0g"), decode("é")), (None, None, None));
    }
}
