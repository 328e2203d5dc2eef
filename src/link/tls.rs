//! What TLS is used with: rustls' provider from ring, as far as a client of other people's servers needs it.
//!
//! Its own list has ChaCha20 too, and keys for certificates of one's own, which nobody asks for: 90 KB.

use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::SignatureScheme as Scheme;
use rustls::crypto::ring::{ALL_KX_GROUPS, cipher_suite as suite};
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use std::sync::Arc;
use webpki::ring as signature;

/// TLS 1.3 and 1.2 with AES-GCM, which every server has (1.3 demands it: RFC 8446, section 9.1; so does HTTP/2 with 1.2),
/// and every group and signature that the crate knows.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            suite::TLS13_AES_256_GCM_SHA384,
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        kx_groups: ALL_KX_GROUPS.to_vec(),
        signature_verification_algorithms: SIGNATURES,
        secure_random: &System,
        key_provider: &System,
    }
}

const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        signature::ECDSA_P256_SHA256,
        signature::ECDSA_P256_SHA384,
        signature::ECDSA_P384_SHA256,
        signature::ECDSA_P384_SHA384,
        signature::ED25519,
        signature::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        signature::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        signature::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        signature::RSA_PKCS1_2048_8192_SHA256,
        signature::RSA_PKCS1_2048_8192_SHA384,
        signature::RSA_PKCS1_2048_8192_SHA512,
        signature::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        signature::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        signature::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    // In TLS 1.2 the name of an ECDSA scheme does not say the curve.
    mapping: &[
        (Scheme::ECDSA_NISTP384_SHA384, &[signature::ECDSA_P384_SHA384, signature::ECDSA_P256_SHA384]),
        (Scheme::ECDSA_NISTP256_SHA256, &[signature::ECDSA_P256_SHA256, signature::ECDSA_P384_SHA256]),
        (Scheme::ED25519, &[signature::ED25519]),
        (Scheme::RSA_PSS_SHA512, &[signature::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (Scheme::RSA_PSS_SHA384, &[signature::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (Scheme::RSA_PSS_SHA256, &[signature::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (Scheme::RSA_PKCS1_SHA512, &[signature::RSA_PKCS1_2048_8192_SHA512]),
        (Scheme::RSA_PKCS1_SHA384, &[signature::RSA_PKCS1_2048_8192_SHA384]),
        (Scheme::RSA_PKCS1_SHA256, &[signature::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

#[derive(Debug)]
struct System;

impl SecureRandom for System {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        SystemRandom::new().fill(bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for System {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        Err(rustls::Error::General("there is no certificate of one's own here".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chacha20_is_left_out() {
        let (ours, theirs) = (provider(), rustls::crypto::ring::default_provider());
        let wanted = theirs.cipher_suites.iter().filter(|s| !format!("{s:?}").contains("CHACHA20"));
        assert!(ours.cipher_suites.iter().eq(wanted));
        assert_eq!(format!("{:?}", ours.kx_groups), format!("{:?}", theirs.kx_groups));
        let (ours, theirs) = (ours.signature_verification_algorithms, theirs.signature_verification_algorithms);
        let debug = |algorithms: &WebPkiSupportedAlgorithms| format!("{:?} {:?}", algorithms.all, algorithms.mapping);
        assert_eq!(debug(&ours), debug(&theirs));
        assert_eq!(ours.supported_schemes(), theirs.supported_schemes());
        for ((scheme, list), (other, theirs)) in ours.mapping.iter().zip(theirs.mapping) {
            let ids = |list: &[&'static dyn rustls::pki_types::SignatureVerificationAlgorithm]| {
                list.iter().map(|a| (a.public_key_alg_id(), a.signature_alg_id())).collect::<Vec<_>>()
            };
            assert_eq!((scheme, ids(list)), (other, ids(theirs)));
        }
    }
}
