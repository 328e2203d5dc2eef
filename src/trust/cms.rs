//! Detached CMS signatures, also called PKCS#7, as `openssl cms -sign` makes them (RFC 5652), verified by the keys of certificates
//! that the policy pins (RFC 5280). No chain is followed, and no time is looked at: the policy says whom to trust.

use super::lines;
use crate::base::base64;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Error, Result};
use crate::base::p256;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The lines around a public key without a certificate.
const KEY: (&str, &str) = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----");

/// The most signers of a signature, and certificates of a file.
const MAX_SIGNERS: usize = 8;
const MAX_CERTIFICATES: usize = 16;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Tags that the context gives a meaning: `[0]`.
const CONTEXT_0: u8 = 0xa0;

/// Object identifiers, without tag and length.
const DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const SIGNED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
const CONTENT_TYPE: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03";
const MESSAGE_DIGEST: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04";
const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
const EC: &[u8] = b"\x2a\x86\x48\xce\x3d\x02\x01";
const P256: &[u8] = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
const DIGESTS: [(&[u8], Algorithm); 3] = [
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x01", Algorithm::Sha256),
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x02", Algorithm::Sha384),
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x03", Algorithm::Sha512),
];

/// Reads DER: tags of one byte, lengths of up to four.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag, its content, and all of it.
    fn next(&mut self) -> Option<(u8, Der<'a>, &'a [u8])> {
        let all = self.0;
        let (&[tag, first], mut rest) = all.split_first_chunk::<2>()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, Der(content), all.get(..all.len() - rest.len())?))
    }

    /// The content of the next element, which has this tag.
    fn take(&mut self, tag: u8) -> Option<Der<'a>> {
        let (own, content, _) = self.next()?;
        (own == tag).then_some(content)
    }

    /// The same, if the next element has this tag.
    fn skip(&mut self, tag: u8) -> Option<Der<'a>> {
        if self.0.first() == Some(&tag) { self.take(tag) } else { None }
    }

    /// What was read, if nothing is left.
    fn end<T>(self, found: T) -> Option<T> {
        self.0.is_empty().then_some(found)
    }
}

/// The form of a public key: PKCS#1 (RFC 8017, appendix A.1.1), or a point on P-256 without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Rsa,
    P256,
}

/// A certificate whose key is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its file, for messages.
    pub name: String,
    pub der: Vec<u8>,
    form: Form,
    key: Vec<u8>,
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// There is none, or one of another form or with a key that is not verified here.
pub fn certificates(name: &str, text: &str) -> Result<Vec<Certificate>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once(BEGIN) {
        let (armor, after) = begun.split_once(END).unwrap_or((begun, ""));
        let armor: String = lines(armor).map(|(_, line)| line).collect();
        let der = base64::decode(armor.as_bytes()).unwrap_or_default();
        let (form, key) = key_of(&der).filter(|_| found.len() < MAX_CERTIFICATES).ok_or_else(|| {
            let rsa = if cfg!(feature = "tls") { "RSA or " } else { "" };
            Error::new(format!("{name}: expected certificates with keys of {rsa}ECDSA on P-256"))
        })?;
        let key = key.to_vec();
        found.push(Certificate { name: name.to_owned(), der, form, key });
        rest = after;
    }
    if found.is_empty() { Err(Error::new(format!("{name}: expected {BEGIN}"))) } else { Ok(found) }
}

/// The public key of a certificate.
fn key_of(der: &[u8]) -> Option<(Form, &[u8])> {
    let mut whole = Der(der);
    let mut certificate = whole.take(SEQUENCE)?;
    whole.end(())?;
    let mut signed = certificate.take(SEQUENCE)?;
    signed.skip(CONTEXT_0);
    signed.take(INTEGER)?;
    // Algorithm, issuer, validity, subject.
    for _ in 0..4 {
        signed.take(SEQUENCE)?;
    }
    of_info(signed.take(SEQUENCE)?)
}

/// The public key in a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
fn of_info(mut info: Der<'_>) -> Option<(Form, &[u8])> {
    let mut algorithm = info.take(SEQUENCE)?;
    let key = info.take(BIT_STRING)?.0.strip_prefix(&[0])?;
    let form = match algorithm.take(OID)?.0 {
        RSA if cfg!(feature = "tls") => Form::Rsa,
        EC if algorithm.take(OID)?.0 == P256 => Form::P256,
        _ => return None,
    };
    Some((form, key))
}

/// The DER of the first public key or certificate in PEM.
pub fn unarmored(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let armor = [KEY, (BEGIN, END)].iter().find_map(|(begin, end)| text.split_once(begin)?.1.split_once(end));
    base64::decode_lines(armor?.0.as_bytes())
}

/// The public key of a certificate or a SubjectPublicKeyInfo in DER.
pub fn public_key(der: &[u8]) -> Option<(Form, &[u8])> {
    let of_bare = || {
        let mut whole = Der(der);
        let info = whole.take(SEQUENCE)?;
        whole.end(of_info(info)?)
    };
    key_of(der).or_else(of_bare)
}

/// The modulus and the exponent of a key of RSA in PKCS#1, without the zeros that begin them.
pub fn of_rsa(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut numbers = Der(key).take(SEQUENCE)?;
    let mut number = || numbers.take(INTEGER).map(|number| number.0.strip_prefix(&[0]).unwrap_or(number.0));
    Some((number()?, number()?))
}

impl Certificate {
    /// Whether both are of the same key, as those of a certificate that was renewed.
    pub fn has_key_of(&self, other: &Certificate) -> bool {
        self.key == other.key
    }

    fn has_signed(&self, message: &[u8], algorithm: Algorithm, signature: &[u8]) -> bool {
        match self.form {
            Form::Rsa => is_signed_by_rsa(&self.key, message, algorithm, signature),
            Form::P256 => {
                pair(signature).is_some_and(|pair| p256::is_signed(&self.key, &digest(algorithm, message), &pair))
            }
        }
    }
}

#[cfg(feature = "tls")]
fn is_signed_by_rsa(key: &[u8], message: &[u8], algorithm: Algorithm, signature: &[u8]) -> bool {
    use ring::signature::{
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    };
    let parameters = match algorithm {
        Algorithm::Sha1 => return false,
        Algorithm::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
    };
    UnparsedPublicKey::new(parameters, key).verify(message, signature).is_ok()
}

#[cfg(not(feature = "tls"))]
fn is_signed_by_rsa(_: &[u8], _: &[u8], _: Algorithm, _: &[u8]) -> bool {
    false
}

/// The two numbers of an ECDSA signature, in 32 bytes each.
fn pair(signature: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Der(signature);
    let mut numbers = whole.take(SEQUENCE)?;
    whole.end(())?;
    let mut out = Vec::new();
    for _ in 0..2 {
        let number = numbers.take(INTEGER)?.0;
        let digits = number.strip_prefix(&[0]).unwrap_or(number);
        out.extend(std::iter::repeat_n(0, 32_usize.checked_sub(digits.len())?));
        out.extend_from_slice(digits);
    }
    numbers.end(out)
}

/// The certificates whose keys have signed the content: for each signer of the signature that is trusted, the first with its key.
/// None if the signature has another form.
pub fn signers<'a>(blob: &[u8], content: &[u8], trusted: &'a [Certificate]) -> Option<Vec<&'a Certificate>> {
    let mut whole = Der(blob);
    let mut outer = whole.take(SEQUENCE)?;
    whole.end(())?;
    let is_signed = outer.take(OID)?.0 == SIGNED_DATA;
    let mut signed = outer.take(CONTEXT_0).filter(|_| is_signed)?.take(SEQUENCE)?;
    signed.take(INTEGER)?;
    signed.take(SET)?;
    let mut kind = signed.take(SEQUENCE)?;
    // Detached: without content of its own.
    let is_data = kind.take(OID)?.0 == DATA;
    kind.end(()).filter(|()| is_data)?;
    // Certificates and revocation lists, which are not looked at.
    signed.skip(CONTEXT_0);
    signed.skip(CONTEXT_0 + 1);
    let mut infos = signed.take(SET)?;
    signed.end(())?;
    let infos = std::iter::from_fn(|| infos.take(SEQUENCE)).take(MAX_SIGNERS);
    Some(infos.filter_map(|info| of_signer(info, content, trusted)).collect())
}

fn of_signer<'a>(mut info: Der, content: &[u8], trusted: &'a [Certificate]) -> Option<&'a Certificate> {
    info.take(INTEGER)?;
    // Who signed, as the signature says: the keys that are trusted decide.
    info.next()?;
    let hash = info.take(SEQUENCE)?.take(OID)?.0;
    let (_, algorithm) = DIGESTS.into_iter().find(|(id, _)| *id == hash)?;
    let mut message = content.to_vec();
    if info.0.first() == Some(&CONTEXT_0) {
        let (_, attributes, raw) = info.next()?;
        has_digest(attributes, &digest(algorithm, content)).filter(|good| *good)?;
        // The attributes are signed with the tag of a SET.
        message = raw.to_vec();
        message.first_mut().into_iter().for_each(|tag| *tag = SET);
    }
    info.take(SEQUENCE)?;
    let signature = info.take(OCTET_STRING)?.0;
    trusted.iter().find(|certificate| certificate.has_signed(&message, algorithm, signature))
}

/// Whether signed attributes have the content's digest and type, each once.
fn has_digest(mut attributes: Der, sum: &[u8]) -> Option<bool> {
    let (mut types, mut sums) = (0, 0);
    while !attributes.0.is_empty() {
        let mut attribute = attributes.take(SEQUENCE)?;
        let (id, mut values) = (attribute.take(OID)?.0, attribute.take(SET)?);
        attribute.end(())?;
        if id == CONTENT_TYPE {
            let is_data = values.take(OID)?.0 == DATA;
            values.end(()).filter(|()| is_data)?;
            types += 1;
        } else if id == MESSAGE_DIGEST {
            let is_it = values.take(OCTET_STRING)?.0 == sum;
            values.end(()).filter(|()| is_it)?;
            sums += 1;
        }
    }
    Some((types, sums) == (1, 1))
}
