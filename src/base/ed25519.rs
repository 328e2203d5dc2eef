//! Keys for Ed25519 (RFC 8032) by the crate `curve25519-dalek`, in 6 KB instead of ring's 35.

use super::error::Result;
use super::random;
use curve25519_dalek::EdwardsPoint;
use sha2::{Digest, Sha512};

/// Bytes of a private key, and of a public key (RFC 8032, section 5.1.5).
pub const LEN: usize = 32;

/// A new private key and its public key.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn new_key() -> Result<([u8; LEN], [u8; LEN])> {
    let mut private = [0; LEN];
    random::fill(&mut private, "a key")?;
    Ok((private, public_of(&private)))
}

/// The public key of a private key: half of its SHA-512, with some bits set, times the base point (RFC 8032, section 5.1.5).
fn public_of(private: &[u8; LEN]) -> [u8; LEN] {
    let hash = Sha512::digest(private);
    let mut scalar = [0; LEN];
    scalar.iter_mut().zip(hash).for_each(|(to, byte)| *to = byte);
    EdwardsPoint::mul_base_clamped(scalar).compress().to_bytes()
}

/// Whether `signature` is that of `message` by the private key of `public` (RFC 8032, section 5.1.7). ring's function is in a build
/// with https anyway.
#[cfg(all(feature = "trust", feature = "tls"))]
pub fn is_signed(public: &[u8], message: &[u8], signature: &[u8]) -> bool {
    use ring::signature::{ED25519, UnparsedPublicKey};
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

/// Whether `signature` is that of `message` by the private key of `public` (RFC 8032, section 5.1.7).
#[cfg(all(feature = "trust", not(feature = "tls")))]
pub fn is_signed(public: &[u8], message: &[u8], signature: &[u8]) -> bool {
    by_dalek(public, message, signature).unwrap_or(false)
}

/// A build that verifies nothing accepts nothing.
#[cfg(not(feature = "trust"))]
pub fn is_signed(_: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

/// The same by curve25519-dalek: whether S times the base point is R + k times the key, with k the hash of R, the key and the
/// message. None if a part is not of the right form.
#[cfg(all(feature = "trust", any(test, not(feature = "tls"))))]
fn by_dalek(public: &[u8], message: &[u8], signature: &[u8]) -> Option<bool> {
    use curve25519_dalek::Scalar;
    use curve25519_dalek::edwards::CompressedEdwardsY;
    let (r, s) = signature.split_at_checked(LEN)?;
    let key = CompressedEdwardsY::from_slice(public).ok()?.decompress()?;
    let s: Option<Scalar> = Scalar::from_canonical_bytes(s.try_into().ok()?).into();
    let mut hash = Sha512::new();
    [r, public, message].iter().for_each(|part| hash.update(part));
    let mut wide = [0; 2 * LEN];
    wide.iter_mut().zip(hash.finalize()).for_each(|(to, byte)| *to = byte);
    let k = Scalar::from_bytes_mod_order_wide(&wide);
    let expected = EdwardsPoint::vartime_double_scalar_mul_basepoint(&k, &-key, &s?);
    Some(expected.compress().as_bytes() == r)
}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;

    /// The keys of RFC 8032, section 7.1.
    #[test]
    fn the_vectors_of_rfc_8032() {
        for (private, public) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            ),
            (
                "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
                "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            ),
            (
                "f5e5767cf153319517630f226876b86c8160cc583bc013744c6bf255f5cc0ee5",
                "278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e",
            ),
            (
                "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
                "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
            ),
        ] {
            let private = hex::decode(private).unwrap().try_into().unwrap();
            assert_eq!(hex::encode(&public_of(&private)), public);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn rings_keys_are_the_same() {
        use ring::signature::{Ed25519KeyPair, KeyPair};
        for _ in 0..100 {
            let (private, public) = new_key().unwrap();
            assert_eq!(Ed25519KeyPair::from_seed_unchecked(&private).unwrap().public_key().as_ref(), public);
            assert_ne!(private, new_key().unwrap().0);
        }
    }

    /// RFC 8032, section 7.1, test 3.
    #[cfg(feature = "trust")]
    #[test]
    fn signatures_are_verified_as_in_rfc_8032() {
        let public = hex::decode("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025").unwrap();
        let signature = hex::decode(
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
             18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        );
        let (signature, message) = (signature.unwrap(), [0xaf, 0x82]);
        assert!(is_signed(&public, &message, &signature));
        assert_eq!(by_dalek(&public, &message, &signature), Some(true));
        for at in 0..signature.len() {
            let mut changed = signature.clone();
            changed[at] ^= 1;
            assert!(!is_signed(&public, &message, &changed), "byte {at}");
            assert_ne!(by_dalek(&public, &message, &changed), Some(true), "byte {at}");
        }
        // S plus the order of the group is the same number, and another signature.
        let order = hex::decode("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010").unwrap();
        let (mut more, mut carry) = (signature.clone(), 0);
        for (to, byte) in more[LEN..].iter_mut().zip(order) {
            let sum = u16::from(*to) + u16::from(byte) + carry;
            (*to, carry) = (sum.to_le_bytes()[0], sum >> 8);
        }
        for (key, message, signature) in [
            (&public[..], &b"\xaf\x83"[..], &signature[..]),
            (&public, &message, &more),
            (&public, &message, &signature[..63]),
            (&public[..31], &message, &signature),
            (&public, &message, &[]),
        ] {
            assert!(!is_signed(key, message, signature));
            assert_ne!(by_dalek(key, message, signature), Some(true));
        }
    }
}
