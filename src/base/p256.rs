//! Keys on the curve P-256 (SP 800-186), by the crate `p256`.
//!
//! ring also has the curve, with a table of 150 KB that saves a millisecond per key.

use super::error::{Error, Result};
use super::random;
use p256::SecretKey;
use p256::elliptic_curve::point::AffineCoordinates;
use std::iter;

/// How often to draw a new number after one that is not a valid key. One in 2^32 is not.
const TRIES: usize = 8;
/// Bytes of a public key in the uncompressed form (SEC 1, section 2.3.3).
pub const PUBLIC_LEN: usize = 65;

/// A new private key and its public key in the uncompressed form.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn new_key() -> Result<(SecretKey, [u8; PUBLIC_LEN])> {
    let mut bytes = [0; 32];
    for _ in 0..TRIES {
        random::fill(&mut bytes, "a key")?;
        if let Ok(key) = SecretKey::from_slice(&bytes) {
            let public = public_of(&key);
            return Ok((key, public));
        }
    }
    Err(Error::new("the kernel's random bytes are no key"))
}

/// The public key, in the uncompressed form: a byte 4, then the coordinates. The crate's own function for it brings 4 KB of the
/// messages of errors that it cannot have.
fn public_of(key: &SecretKey) -> [u8; PUBLIC_LEN] {
    let public = key.public_key();
    let point = public.as_affine();
    let mut out = [0; PUBLIC_LEN];
    let bytes = iter::once(4).chain(point.x()).chain(point.y());
    out.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    out
}

/// The secret that a private key shares with a public one in the uncompressed form: the first coordinate of their product (SEC 1,
/// section 3.3.1). None if that is no public key.
pub fn exchange(key: &SecretKey, public: &[u8]) -> Option<Vec<u8>> {
    let public = p256::PublicKey::from_sec1_bytes(public).ok()?;
    let product = (public.to_projective() * *key.to_nonzero_scalar()).to_affine();
    Some(product.x().to_vec())
}

/// Whether r and s, of 32 bytes each, sign the digest by the private key of `public`, which is in the uncompressed form (FIPS
/// 186-5, section 6.4.2).
#[cfg(feature = "trust")]
pub fn is_signed(public: &[u8], digest: &[u8], signature: &[u8]) -> bool {
    use p256::ecdsa::signature::hazmat::PrehashVerifier;
    use p256::ecdsa::{Signature, VerifyingKey};
    let is_uncompressed = public.len() == PUBLIC_LEN && public.first() == Some(&4);
    let key = p256::PublicKey::from_sec1_bytes(public).ok().filter(|_| is_uncompressed);
    let signature = Signature::from_slice(signature).ok();
    key.zip(signature)
        .is_some_and(|(key, signature)| VerifyingKey::from(&key).verify_prehash(digest, &signature).is_ok())
}

/// A build that verifies nothing accepts nothing.
#[cfg(not(feature = "trust"))]
pub fn is_signed(_: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_key_equals_the_crates() {
        for _ in 0..20 {
            let (key, public) = new_key().unwrap();
            assert_eq!(*p256::Sec1Point::from(key.public_key()).as_bytes(), public);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn ring_agrees_on_the_public_key() {
        use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
        let ((key, public), (other, _)) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(key.to_bytes(), other.to_bytes());
        let random = ring::rand::SystemRandom::new();
        let bytes = key.to_bytes();
        let checked =
            EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_ASN1_SIGNING, &bytes, &public, &random);
        assert_eq!(checked.unwrap().public_key().as_ref(), public);
    }
}
