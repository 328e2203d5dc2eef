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

/// Converts content to UTF-8 from the Latin charsets that mail programs use. Valid UTF-8 stays.
pub fn to_utf8(charset: &str, content: Vec<u8>) -> Vec<u8> {
    let latin = matches!(
        charset.trim().to_ascii_lowercase().as_str(),
        "iso-8859-1" | "iso8859-1" | "latin1" | "latin-1" | "iso-8859-15" | "windows-1252" | "cp1252"
    );
    if !latin || std::str::from_utf8(&content).is_ok() {
        return content;
    }
    content.iter().map(|b| char::from(*b)).collect::<String>().into_bytes()
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
        assert_eq!(to_utf8("ISO-8859-1", b"caf\xe9".to_vec()), "café".as_bytes());
        assert_eq!(to_utf8("latin1", "café".into()), "café".as_bytes());
        assert_eq!(to_utf8("utf-8", b"caf\xe9".to_vec()), b"caf\xe9");
    }
}
