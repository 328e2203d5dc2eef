//! OpenSSH's signatures of files, as `ssh-keygen -Y sign` makes them (OpenSSH's PROTOCOL.sshsig).

use crate::base::digest::{Algorithm, digest};
use crate::base::{ed25519, p256};

/// The line before a signature, and the one after it.
pub const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
pub const END: &str = "-----END SSH SIGNATURE-----";

/// The types of keys whose signatures are verified.
pub const TYPES: &[&str] = if cfg!(feature = "tls") { &[ED25519, ECDSA, RSA] } else { &[ED25519, ECDSA] };
const ED25519: &str = "ssh-ed25519";
const ECDSA: &str = "ecdsa-sha2-nistp256";
const CURVE: &str = "nistp256";
const RSA: &str = "ssh-rsa";

const MAGIC: &[u8] = b"SSHSIG";

/// A signature that was taken apart, and not verified.
pub struct Signature<'a> {
    /// The public key that made it, in OpenSSH's form.
    pub key: &'a [u8],
    namespace: &'a [u8],
    hash: &'a [u8],
    algorithm: &'a [u8],
    bytes: &'a [u8],
}

/// Reads OpenSSH's strings: four bytes of length, and that many bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn string(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (string, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        self.0 = rest;
        Some(string)
    }

    /// A positive number without its leading zero, in `length` bytes.
    fn number(&mut self, length: usize) -> Option<Vec<u8>> {
        let string = self.string()?;
        let digits = string.strip_prefix(&[0]).unwrap_or(string);
        let mut number = vec![0; length.checked_sub(digits.len())?];
        number.extend_from_slice(digits);
        Some(number)
    }

    /// What the strings were, if nothing is left.
    fn end<T>(&self, found: T) -> Option<T> {
        self.0.is_empty().then_some(found)
    }
}

impl<'a> Signature<'a> {
    /// Takes a signature apart, the bytes between the armor's lines. None if it has another form.
    pub fn parse(blob: &'a [u8]) -> Option<Signature<'a>> {
        let mut reader = Reader(blob.strip_prefix(MAGIC)?.strip_prefix(&[0, 0, 0, 1])?);
        let (key, namespace, reserved, hash) = (reader.string()?, reader.string()?, reader.string()?, reader.string()?);
        let mut inner = Reader(reader.string()?);
        reader.end(())?;
        let (algorithm, bytes) = (inner.string()?, inner.string()?);
        inner.end(())?;
        reserved.is_empty().then_some(Signature { key, namespace, hash, algorithm, bytes })
    }

    /// Whether it is that of `message` in `namespace`.
    pub fn verifies(&self, namespace: &str, message: &[u8]) -> bool {
        self.namespace == namespace.as_bytes() && self.is_of(message).unwrap_or(false)
    }

    fn is_of(&self, message: &[u8]) -> Option<bool> {
        let hash = match self.hash {
            b"sha256" => Algorithm::Sha256,
            b"sha512" => Algorithm::Sha512,
            _ => return None,
        };
        let sum = digest(hash, message);
        let mut signed = MAGIC.to_vec();
        for part in [self.namespace, &[], self.hash, &sum] {
            signed.extend(u32::try_from(part.len()).ok()?.to_be_bytes());
            signed.extend_from_slice(part);
        }
        let mut key = Reader(self.key);
        let kind = std::str::from_utf8(key.string()?).ok()?;
        match (kind, self.algorithm) {
            (ED25519, b"ssh-ed25519") => {
                let public = key.string()?;
                key.end(ed25519::is_signed(public, &signed, self.bytes))
            }
            (ECDSA, b"ecdsa-sha2-nistp256") => {
                let (curve, public) = (key.string()?, key.string()?);
                let mut numbers = Reader(self.bytes);
                let pair = [numbers.number(32)?, numbers.number(32)?].concat();
                numbers.end(())?;
                let is_signed =
                    curve == CURVE.as_bytes() && p256::is_signed(public, &digest(Algorithm::Sha256, &signed), &pair);
                key.end(is_signed)
            }
            #[cfg(feature = "tls")]
            (RSA, algorithm) => {
                use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents};
                let parameters = match algorithm {
                    b"rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
                    b"rsa-sha2-512" => &RSA_PKCS1_2048_8192_SHA512,
                    _ => return None,
                };
                let (e, n) = (key.string()?, key.string()?);
                let [e, n] = [e, n].map(|number| number.strip_prefix(&[0]).unwrap_or(number));
                let is_signed = RsaPublicKeyComponents { n, e }.verify(parameters, &signed, self.bytes).is_ok();
                key.end(is_signed)
            }
            _ => None,
        }
    }
}

/// The type of a public key in OpenSSH's form. None if its signatures are not verified.
pub fn type_of(key: &[u8]) -> Option<&'static str> {
    let kind = Reader(key).string()?;
    TYPES.iter().copied().find(|name| name.as_bytes() == kind)
}
