//! Decodes transfer encodings (RFC 2045, 6) and charsets other than UTF-8.

/// Decodes a transfer encoding. Invalid data is decoded as far as possible, as in mail programs.
pub fn decode(encoding: &str, body: &[u8]) -> Vec<u8> {
    match encoding.trim().to_ascii_lowercase().as_str() {
        "base64" => crate::base::base64::decode_loosely(body),
        "quoted-printable" => quoted_printable(body),
        "uuencode" | "x-uuencode" | "uue" | "x-uue" => uuencode(body),
        _ => body.to_vec(),
    }
}

/// The characters of 0x80 to 0x9f in windows-1252. Five are not assigned: they are Latin-1's, as in the WHATWG's
/// Encoding Standard.
const WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The decoder of a charset other than UTF-8 and ASCII, for one byte; None if the charset is unknown.
fn charset_named(name: &str) -> Option<fn(u8) -> char> {
    match name.trim().to_ascii_lowercase().as_str() {
        "iso-8859-1" | "iso8859-1" | "latin1" | "latin-1" => Some(char::from),
        "iso-8859-15" | "iso8859-15" | "latin9" | "latin-9" => Some(latin9),
        "windows-1252" | "cp1252" => Some(windows),
        _ => None,
    }
}

fn windows(byte: u8) -> char {
    let special = WINDOWS.get(usize::from(byte.wrapping_sub(0x80)));
    special.copied().unwrap_or(char::from(byte))
}

fn latin9(byte: u8) -> char {
    match byte {
        0xa4 => '€',
        0xa6 => 'Š',
        0xa8 => 'š',
        0xb4 => 'Ž',
        0xb8 => 'ž',
        0xbc => 'Œ',
        0xbd => 'œ',
        0xbe => 'Ÿ',
        _ => char::from(byte),
    }
}

/// Converts content to UTF-8 from the Latin charsets that mail programs use. Valid UTF-8 stays, and so does what
/// would take more than `room` bytes.
pub fn to_utf8(charset: &str, content: Vec<u8>, room: usize) -> Vec<u8> {
    let Some(char_of) = charset_named(charset).filter(|_| std::str::from_utf8(&content).is_err()) else {
        return content;
    };
    let chars = content.iter().map(|byte| char_of(*byte));
    let length = chars.clone().map(char::len_utf8).sum();
    if length > room {
        return content;
    }
    let mut text = String::with_capacity(length);
    text.extend(chars);
    text.into_bytes()
}

/// Whether content is in a charset that is not known here: it is declared, and neither UTF-8 nor ASCII fits. Text
/// in UTF-16 has zero bytes.
pub fn is_unknown(charset: &str, content: &[u8]) -> bool {
    let named = |name: &str| charset.trim().eq_ignore_ascii_case(name);
    let fits = !content.contains(&0) && std::str::from_utf8(content).is_ok();
    !fits && !["utf-8", "utf8", "us-ascii", "ascii", ""].into_iter().any(named) && charset_named(charset).is_none()
}

fn quoted_printable(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'=' {
            out.push(*byte);
            continue;
        }
        let blanks = after.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let line_end = after.get(blanks..).unwrap_or_default();
        if let Some(next) = line_end.strip_prefix(b"\r\n").or_else(|| line_end.strip_prefix(b"\n")) {
            rest = next;
        } else if let [high, low, next @ ..] = after
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            out.push(high << 4 | low);
            rest = next;
        } else {
            out.push(b'=');
        }
    }
    out
}

/// Decodes uuencode: lines between `begin` and `end`, each with a length, then four characters for three
/// bytes, offset by the space character.
fn uuencode(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let lines = body.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let encoded = lines.skip_while(|l| !l.starts_with(b"begin ")).skip(1).take_while(|l| *l != b"end");
    for line in encoded {
        let [length, digits @ ..] = line else { continue };
        let six = |d: &u8| u32::from(d.wrapping_sub(b' ') & 0x3f);
        let mut bytes = Vec::new();
        for four in digits.chunks(4) {
            let bits = (0..4).fold(0, |bits, i| bits << 6 | four.get(i).map_or(0, six));
            bytes.extend_from_slice(bits.to_be_bytes().get(1..).unwrap_or_default());
        }
        bytes.truncate(six(length) as usize);
        out.extend(bytes);
    }
    out
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_encodings() {
        for (encoding, body, content) in [
            ("Base64", "aGVs\r\nbG8=\r\n", "hello"),
            ("base64", "aGVsbG8", "hello"),
            ("base64", "aGV*sbG\n8", "hello"),
            ("base64", "", ""),
            ("quoted-printable", "caf=C3=A9=\n!=20=\r\n=  \nx=3d", "café! x="),
            ("quoted-printable", "a=zz=\n=", "a=zz="),
            ("x-uuencode", "begin 644 f\n%:&5L;&\\\n`\nend\nmore\n", "hello"),
            ("8bit", "as it is=3D", "as it is=3D"),
            (" 7BIT ", "x", "x"),
        ] {
            assert_eq!(String::from_utf8_lossy(&decode(encoding, body.as_bytes())), content, "{encoding} {body}");
        }
    }

    #[test]
    fn charsets() {
        assert_eq!(to_utf8("ISO-8859-1", b"caf\xe9".to_vec(), 9), "café".as_bytes());
        assert_eq!(to_utf8("latin1", "café".into(), 9), "café".as_bytes());
        assert_eq!(to_utf8("utf-8", b"caf\xe9".to_vec(), 9), b"caf\xe9");
        assert_eq!(to_utf8("latin1", b"caf\xe9".to_vec(), 5), "café".as_bytes());
        assert_eq!(to_utf8("latin1", b"caf\xe9".to_vec(), 4), b"caf\xe9");
        let all: Vec<u8> = (0x80..=0xff).collect();
        let text = |charset: &str| String::from_utf8(to_utf8(charset, all.clone(), 1 << 10)).unwrap();
        let latin1: String = ('\u{80}'..='\u{ff}').collect();
        assert_eq!(text("ISO-8859-1"), latin1);
        // 0x80 to 0x9f, of which five are not assigned; the rest is Latin-1.
        let windows =
            "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ".chars().chain(latin1.chars().skip(32));
        assert_eq!(text("Windows-1252"), windows.collect::<String>());
        let differ: Vec<_> = text("iso-8859-15").chars().zip(latin1.chars()).filter(|(new, old)| new != old).collect();
        assert_eq!(
            differ,
            [('€', '¤'), ('Š', '¦'), ('š', '¨'), ('Ž', '´'), ('ž', '¸'), ('Œ', '¼'), ('œ', '½'), ('Ÿ', '¾')]
        );
    }
}
