//! The envelope of signed user-data: a first line, signatures, an empty line, and to the end the bytes that are signed. These may
//! begin with a statement, which says for what, and until when, the rest is.
//!
//! No part of it has a second reading: what is after the empty line is what was signed, byte by byte, and what is used.

use super::sshsig;
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::text::quoted;

/// The first line.
pub const FIRST: &str = "#prepivot-signed\n";
/// The first line of a statement.
pub const STATEMENT: &str = "#prepivot-statement\n";

/// The most bytes of the signatures, of a statement, and the most signatures.
const MAX_HEAD: usize = 64 << 10;
const MAX_STATEMENT: usize = 4 << 10;
const MAX_SIGNATURES: usize = 8;

/// The keys of a statement, in any order.
pub const KEYS: [&str; 10] = [
    "kind",
    "serial",
    "expires",
    "instance-id",
    "uuid",
    "mac",
    "metadata",
    "network-config",
    "vendor-data",
    "vendor-data2",
];

/// The form of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Ssh,
    /// CMS, also called PKCS#7.
    Cms,
}

/// The lines around the signatures of each form.
const ARMOR: [(Form, &str, &str); 3] = [
    (Form::Ssh, sshsig::BEGIN, sshsig::END),
    (Form::Cms, "-----BEGIN CMS-----", "-----END CMS-----"),
    (Form::Cms, "-----BEGIN PKCS7-----", "-----END PKCS7-----"),
];

/// An envelope that was taken apart, and not verified.
pub struct Envelope<'a> {
    pub signatures: Vec<(Form, Vec<u8>)>,
    /// What is signed: the statement and the payload.
    pub signed: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Takes an envelope apart. None if the bytes are none.
    ///
    /// # Errors
    /// They begin as one, and go on otherwise.
    pub fn parse(raw: &'a [u8]) -> Option<Result<Envelope<'a>>> {
        Some(parts(raw.strip_prefix(FIRST.as_bytes())?).ok_or_else(|| {
            Error::new(
                "the envelope has another form: after its first line come signatures in armor, and then an empty line",
            )
        }))
    }
}

impl<'a> Envelope<'a> {
    /// The envelope of bytes whose signatures came in a file beside them.
    ///
    /// # Errors
    /// The file has something else than signatures in armor.
    pub fn beside(signed: &'a [u8], signatures: &[u8]) -> Result<Envelope<'a>> {
        let text = Some(signatures).filter(|bytes| bytes.len() <= MAX_HEAD).and_then(|b| std::str::from_utf8(b).ok());
        let signatures = text.and_then(|text| armored(text.strip_suffix('\n').unwrap_or(text)));
        let other =
            || Error::new("the file of its signature has another form: expected signatures in armor, and nothing else");
        Ok(Envelope { signatures: signatures.ok_or_else(other)?, signed })
    }
}

fn parts(rest: &[u8]) -> Option<Envelope<'_>> {
    let end = rest.get(..rest.len().min(MAX_HEAD))?.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, signed) = (std::str::from_utf8(rest.get(..end)?).ok()?, rest.get(end + 2..)?);
    Some(Envelope { signatures: armored(head)?, signed })
}

/// Signatures in armor, and nothing else: at least one.
fn armored(text: &str) -> Option<Vec<(Form, Vec<u8>)>> {
    let (mut signatures, mut lines) = (Vec::new(), text.split('\n'));
    while let Some(line) = lines.next() {
        let (form, _, last) = ARMOR.into_iter().find(|(_, first, _)| line == *first)?;
        let mut text = String::new();
        loop {
            match lines.next()? {
                line if line == last => break,
                line => text.push_str(line),
            }
        }
        signatures.push((form, base64::decode(text.as_bytes())?));
    }
    (1..=MAX_SIGNATURES).contains(&signatures.len()).then_some(signatures)
}

/// What a signed document says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Statement<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Statement<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
    }

    /// Splits signed bytes into the statement, an empty one if there is none, and the payload.
    ///
    /// # Errors
    /// It has another form, a key that is not known, or one twice.
    pub fn split(signed: &'a [u8]) -> Result<(Statement<'a>, &'a [u8])> {
        let Some(rest) = signed.strip_prefix(STATEMENT.as_bytes()) else { return Ok((Statement::default(), signed)) };
        let start = rest.get(..rest.len().min(MAX_STATEMENT)).unwrap_or_default();
        let end = start.windows(2).position(|pair| pair == b"\n\n");
        let text = end.and_then(|end| std::str::from_utf8(start.get(..end)?).ok());
        let (end, text) = end.zip(text).ok_or_else(|| Error::new("the statement does not end with an empty line"))?;
        let mut statement = Statement::default();
        for line in text.split('\n') {
            let pair = line.split_once(": ").filter(|(key, _)| KEYS.contains(key) && statement.get(key).is_none());
            let pair = pair.ok_or_else(|| {
                Error::new(format!(
                    "the statement has a line that is not KEY: VALUE with a key that is known, once: {}",
                    quoted(line)
                ))
            })?;
            statement.0.push(pair);
        }
        Ok((statement, rest.get(end + 2..).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::mutations;

    const ARMORED: &str = "-----BEGIN SSH SIGNATURE-----\nAAAA\nAAAA\n-----END SSH SIGNATURE-----\n";

    #[test]
    fn takes_an_envelope_apart() {
        let raw = format!("{FIRST}{ARMORED}-----BEGIN CMS-----\nBBBB\n-----END CMS-----\n\n#cloud-config\n\nx: 1\n");
        let envelope = Envelope::parse(raw.as_bytes()).unwrap().unwrap();
        assert_eq!(envelope.signatures, [(Form::Ssh, vec![0; 6]), (Form::Cms, vec![4, 16, 65])]);
        assert_eq!(envelope.signed, b"#cloud-config\n\nx: 1\n");
        assert!(Envelope::parse(b"#cloud-config\n").is_none());
        mutations(raw.as_bytes(), 2000, |bytes| {
            let Some(Ok(envelope)) = Envelope::parse(bytes) else { return };
            assert!(!envelope.signatures.is_empty() && bytes.ends_with(envelope.signed));
        });
    }

    #[test]
    fn an_envelope_of_another_form_is_an_error() {
        for rest in [
            "\n",
            "\n\nx",
            &format!("{ARMORED}x"),
            &format!(" {ARMORED}\nx"),
            &format!("{ARMORED}note\n\nx"),
            &format!("note: x\n{ARMORED}\nx"),
            &ARMORED.replace("AAAA\nAAAA", "AAAA AAAA"),
            "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END CMS-----\n\nx",
            &format!("{}\nx", ARMORED.repeat(MAX_SIGNATURES + 1)),
            &format!("{}\n\nx", "A".repeat(MAX_HEAD)),
        ] {
            let raw = format!("{FIRST}{rest}");
            assert!(Envelope::parse(raw.as_bytes()).unwrap().is_err(), "{}", &rest[..rest.len().min(80)]);
        }
    }

    #[test]
    fn a_statement_is_split_from_the_payload() {
        let raw = format!("{STATEMENT}serial: 7\ninstance-id: a: b\n\n#cloud-config\n\nserial: 8\n");
        let (statement, payload) = Statement::split(raw.as_bytes()).unwrap();
        assert_eq!((statement.get("serial"), statement.get("instance-id")), (Some("7"), Some("a: b")));
        assert_eq!(payload, b"#cloud-config\n\nserial: 8\n");
        assert_eq!(Statement::split(b"x").unwrap(), (Statement::default(), &b"x"[..]));
        for text in
            ["", "serial: 7\n", "serial: 7\nserial: 8\n\n", "other: 1\n\n", "serial:7\n\n", "\n\n", "serial: 7\r\n\r\n"]
        {
            assert!(Statement::split(format!("{STATEMENT}{text}").as_bytes()).is_err(), "{text}");
        }
        let long = format!("{STATEMENT}instance-id: {}\n\n", "x".repeat(MAX_STATEMENT));
        assert!(Statement::split(long.as_bytes()).is_err());
        mutations(raw.as_bytes(), 2000, |bytes| {
            let Ok((statement, payload)) = Statement::split(bytes) else { return };
            // Without the first line there is no statement, and everything is the payload.
            let is_stated = bytes.starts_with(STATEMENT.as_bytes());
            assert!(bytes.ends_with(payload) && is_stated == (payload.len() < bytes.len()));
            assert!(is_stated || statement == Statement::default());
        });
    }
}
