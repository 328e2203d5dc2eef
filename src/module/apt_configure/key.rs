//! OpenPGP keys as text (ASCII armor, RFC 9580 section 6) to the bytes that APT reads. No gpg is needed for that.

use crate::base::base64;
use crate::base::error::{Error, Result};

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";

/// The keys of all blocks in `text`, one after the other.
///
/// # Errors
/// There is no block, or one has no end, is not base64, has a wrong checksum, or is not a public key.
pub fn dearmor(text: &str) -> Result<Vec<u8>> {
    let mut keys = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.any(|line| line == BEGIN) {
        // Headers (`Version: …`, `Comment:`) end with an empty line.
        let mut body = lines.by_ref().skip_while(|l| l.contains(':')).skip_while(|l| l.is_empty());
        let (mut data, mut checksum) = (String::new(), None);
        loop {
            match body.next() {
                None => {
                    return Err(Error::new("the key has no end: expected the line -----END PGP PUBLIC KEY BLOCK-----"));
                }
                Some(END) => break,
                Some(line) => match line.strip_prefix('=') {
                    Some(sum) => checksum = Some(base64::decode_loosely(sum.as_bytes())),
                    None => data.push_str(line),
                },
            }
        }
        let key = base64::decode(data.as_bytes()).ok_or_else(|| Error::new("the key is not base64"))?;
        if checksum.is_some_and(|sum| sum != crc24(&key)) {
            return Err(Error::new("the key does not have the checksum at its end: it is damaged"));
        }
        // The first packet is a public key: tag 6, in the old or the new form (RFC 9580, section 4.2).
        if !key.first().is_some_and(|tag| matches!(tag, 0x98..=0x9b | 0xc6)) {
            return Err(Error::new("it does not begin with a public key"));
        }
        keys.extend(key);
    }
    match keys.is_empty() {
        true => Err(Error::new(format!("expected a key in text form: no line {BEGIN}"))),
        false => Ok(keys),
    }
}

/// The checksum of RFC 9580, section 6.1.
fn crc24(bytes: &[u8]) -> [u8; 3] {
    let mut crc = 0x00b7_04ce_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0186_4cfb;
            }
        }
    }
    let [_, a, b, c] = crc.to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A key that was made for this test, as `gpg --export --armour` writes it.
    pub const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n\
        mDMEawI/lBYJKwYBBAHaRw8BAQdAdR4OeilmVBmBS1Hv5jzuLzHV9OggZx7FPpS5\n\
        vWV8YkC0IlRlc3QgVmVjdG9ycyA8dmVjdG9yc0BleGFtcGxlLmNvbT6IkAQTFggA\n\
        OBYhBMMm89tcCNfRwK4japg/i2FWtOLnBQJrAj+UAhsDBQsJCAcCBhUKCQgLAgQW\n\
        AgMBAh4BAheAAAoJEJg/i2FWtOLnQzQBAIBPqq59NZP0t1WzoMnDmod04BgcRnc1\n\
        YhFQbxqNo/WfAP0ZjXYsi9E2RaHXkxXRuMQBNxzXHyX8N1+9OoIEUxJxBQ==\n\
        =Xo6O\n-----END PGP PUBLIC KEY BLOCK-----\n";

    #[test]
    fn armor_is_taken_off() {
        let bytes = dearmor(KEY).unwrap();
        assert_eq!((bytes.len(), bytes[0]), (235, 0x98));
        assert_eq!(dearmor(&format!("text before\n{KEY}{KEY}")).unwrap(), [&bytes[..], &bytes].concat());
        let headers = KEY.replacen("\n\n", "\nVersion: x 1\nComment: a: b\nComment: \n\n", 1).replace('\n', " \r\n");
        assert_eq!(dearmor(&headers).unwrap(), bytes);
        assert_eq!(dearmor(&KEY.replace("=Xo6O\n", "")).unwrap(), bytes);
    }

    #[test]
    fn what_is_no_key_is_an_error() {
        for text in [
            String::new(),
            "fakekey 4321".to_owned(),
            KEY.replace("=Xo6O", "=Xo6P"),
            KEY.replace("-----END", ""),
            KEY.replace("mDMEaw", "mDME!w"),
            format!("{BEGIN}\n\naGVsbG8=\n{END}\n"),
            format!("{BEGIN}\n{END}\n"),
        ] {
            assert!(dearmor(&text).is_err(), "{text}");
        }
    }
}
