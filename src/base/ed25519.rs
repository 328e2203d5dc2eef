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
}
