//! Keys on the curve P-256 (SP 800-186), by the crate `p256`.
//!
//! ring also has the curve, with a table of 150 KB that saves a millisecond per key.

use super::error::{Error, Result};
use super::random;
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point;

/// How often to draw a new number after one that is not a valid key. One in 2^32 is not.
const TRIES: usize = 8;
/// Bytes of a public key in the uncompressed form (SEC 1, section 2.3.3).
pub const PUBLIC_LEN: usize = 65;

/// A new private key and its public key in the uncompressed form.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn new_key() -> Result<(SecretKey, [u8; PUBLIC_LEN])> {
    let mut bytes = [0; 32];
    for _ in 0..TRIES {
        random::fill(&mut bytes, "a key")?;
        if let Ok(key) = SecretKey::from_slice(&bytes)
            && let Ok(public) = key.public_key().to_sec1_point(false).as_bytes().try_into()
        {
            return Ok((key, public));
        }
    }
    Err(Error::new("the kernel's random bytes are no key"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
