//! P-256 for TLS: key exchange and ECDSA signatures with the crate `p256` instead of ring, whose table for
//! this curve takes 150 KB.

use crate::base::digest::{Algorithm, digest};
use crate::base::p256::{self as keys, PUBLIC_LEN};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use p256::ecdsa::{DerSignature, Signature, VerifyingKey};
use p256::{PublicKey, SecretKey};
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// ECDHE on secp256r1 (RFC 8446, section 4.2.8.2).
pub const SECP256R1: &dyn SupportedKxGroup = &Group;
/// ECDSA with SHA-256 (RFC 5758, section 3.2).
pub const ECDSA_SHA256: &dyn SignatureVerificationAlgorithm =
    &Ecdsa { id: alg_id::ECDSA_SHA256, digest: Algorithm::Sha256 };
/// ECDSA with SHA-384.
pub const ECDSA_SHA384: &dyn SignatureVerificationAlgorithm =
    &Ecdsa { id: alg_id::ECDSA_SHA384, digest: Algorithm::Sha384 };

#[derive(Debug)]
struct Group;

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let (private, public) = keys::new_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Exchange { private, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

struct Exchange {
    private: SecretKey,
    public: [u8; PUBLIC_LEN],
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = uncompressed(peer).ok_or(PeerMisbehaved::InvalidKeyShare)?;
        Ok(self.private.diffie_hellman(&peer).raw_secret_bytes().as_slice().into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

/// A point on the curve, uncompressed: the only form that TLS and certificates allow.
fn uncompressed(bytes: &[u8]) -> Option<PublicKey> {
    let good = bytes.len() == PUBLIC_LEN && bytes.first() == Some(&4);
    good.then(|| PublicKey::from_sec1_bytes(bytes).ok()).flatten()
}

#[derive(Debug)]
struct Ecdsa {
    id: AlgorithmIdentifier,
    digest: Algorithm,
}

impl SignatureVerificationAlgorithm for Ecdsa {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = uncompressed(public_key).ok_or(InvalidSignature)?;
        let signature =
            DerSignature::from_bytes(signature).and_then(Signature::try_from).map_err(|_| InvalidSignature)?;
        let sum = digest(self.digest, message);
        VerifyingKey::from(&key).verify_prehash(&sum, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair,
    };

    /// ring's signature of `message` by a new key: the public key and the signature.
    fn signed(algorithm: &'static EcdsaSigningAlgorithm, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        (pair.public_key().as_ref().to_vec(), pair.sign(&random, message).unwrap().as_ref().to_vec())
    }

    #[test]
    fn accepts_rings_signatures_and_rejects_changed_ones() {
        for _ in 0..20 {
            let (key, signature) = signed(&ECDSA_P256_SHA256_ASN1_SIGNING, b"message");
            assert!(ECDSA_SHA256.verify_signature(&key, b"message", &signature).is_ok());
            assert!(ECDSA_SHA384.verify_signature(&key, b"message", &signature).is_err());
            assert!(ECDSA_SHA256.verify_signature(&key, b"massage", &signature).is_err());
            let (other, _) = signed(&ECDSA_P256_SHA256_ASN1_SIGNING, b"message");
            assert!(ECDSA_SHA256.verify_signature(&other, b"message", &signature).is_err());
            for at in 0..signature.len() {
                let mut changed = signature.clone();
                changed[at] ^= 1;
                assert!(ECDSA_SHA256.verify_signature(&key, b"message", &changed).is_err(), "byte {at}");
            }
            for end in 0..signature.len() {
                assert!(ECDSA_SHA256.verify_signature(&key, b"message", &signature[..end]).is_err(), "{end} bytes");
            }
        }
        let (key, signature) = signed(&ECDSA_P384_SHA384_ASN1_SIGNING, b"message");
        assert!(ECDSA_SHA384.verify_signature(&key, b"message", &signature).is_err());
        // The signature of all zeros, and none (CVE-2022-21449 and its like).
        let (key, _) = signed(&ECDSA_P256_SHA256_ASN1_SIGNING, b"message");
        for signature in [&[0x30, 6, 2, 1, 0, 2, 1, 0][..], &[0x30, 0], &[]] {
            assert!(ECDSA_SHA256.verify_signature(&key, b"message", signature).is_err());
        }
    }

    #[test]
    fn a_secret_is_agreed_with_ring() {
        use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
        let random = SystemRandom::new();
        let ours = SECP256R1.start().unwrap();
        let theirs = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let public = theirs.compute_public_key().unwrap();
        let peer = UnparsedPublicKey::new(&ECDH_P256, ours.pub_key().to_vec());
        let secret = agree_ephemeral(theirs, &peer, <[u8]>::to_vec).unwrap();
        assert_eq!(ours.complete(public.as_ref()).unwrap().secret_bytes(), secret);
    }

    #[test]
    fn a_key_that_is_no_point_is_refused() {
        let (_, good) = keys::new_key().unwrap();
        let mut compressed = good[..33].to_vec();
        compressed[0] = 2 + (good[64] & 1);
        let mut beside = good;
        beside[64] ^= 1;
        for key in [&compressed[..], &beside, &good[..64], &[0], &[]] {
            assert!(SECP256R1.start().unwrap().complete(key).is_err(), "{key:?}");
        }
        assert!(SECP256R1.start().unwrap().complete(&good).is_ok());
    }
}
