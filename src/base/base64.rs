//! Base64 (RFC 4648, section 4). By hand: the crate that was here before puts 33 KB into the program for every width that a
//! digit can have.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As text in one line, padded.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize];
            out.push(if digit <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

/// What [`encode`] would write as exactly this text: padded, no white space, no bits left over. None for all else.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = decode_loosely(text);
    (encode(&bytes).as_bytes() == text).then_some(bytes)
}

/// Up to the first `=`; bytes that are not of its alphabet are skipped, an incomplete end is dropped.
pub fn decode_loosely(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u16, 0);
    for six in text.iter().take_while(|b| **b != b'=').filter_map(|b| digit(*b)) {
        bits = bits << 6 | u16::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

/// The value of a letter of the alphabet.
pub fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
            assert_eq!(decode_loosely(format!(" {}\n", text.trim_end_matches('=')).as_bytes()), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
        assert!(encode(&[0xfb, 0xff]).starts_with("+/"));
    }

    #[test]
    fn what_is_not_exactly_base64_is_none() {
        for text in
            ["Zg", "Zg=", "Zg===", "Z", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "=", "Zg==Zg==", "Zm9v=", "Zm-_", "Zmé="]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
