//! The machine's own certificate, for servers that ask for one: cloud-init's cert.pem and key.pem. An RSA key signs with ring, one
//! on P-256 with the crate `p256`, whose arithmetic TLS has in any case.

use crate::base::digest::{Algorithm, digest};
use p256::SecretKey;
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{DerSignature, SigningKey as P256Key};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme as Scheme};
use std::sync::Arc;

/// id-ecPublicKey's prime256v1 (RFC 5480, section 2.1.1.1).
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// What precedes the private number in an ECPrivateKey (RFC 5915, section 3): version 1, and an OCTET STRING of 32 bytes.
const NUMBER: &[u8] = &[2, 1, 1, 4, 32];

#[derive(Debug, Clone)]
enum Key {
    Rsa(Arc<RsaKeyPair>),
    P256(P256Key),
}

/// The key that signs, of PKCS#1, PKCS#8 or SEC1.
///
/// # Errors
/// It is neither RSA of 2048 bits or more, nor on P-256.
pub fn load(key: &PrivateKeyDer) -> Result<Arc<dyn SigningKey>, Error> {
    let rsa = match key {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        _ => None,
    };
    let key = rsa.map(|rsa| Key::Rsa(Arc::new(rsa))).or_else(|| p256_of(key.secret_der()).map(Key::P256));
    let wrong = || Error::General("key.pem: expected an RSA key of 2048 bits or more, or one on P-256".into());
    Ok(Arc::new(key.ok_or_else(wrong)?))
}

fn p256_of(der: &[u8]) -> Option<P256Key> {
    let position = |part: &[u8]| der.windows(part.len()).position(|window| window == part);
    position(PRIME256V1)?;
    let number = der.get(position(NUMBER)? + NUMBER.len()..)?.get(..32)?;
    SecretKey::from_slice(number).ok().map(P256Key::from)
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[Scheme]) -> Option<Box<dyn Signer>> {
        let ours: &[Scheme] = match self {
            Key::Rsa(_) => &[Scheme::RSA_PSS_SHA256, Scheme::RSA_PKCS1_SHA256],
            Key::P256(_) => &[Scheme::ECDSA_NISTP256_SHA256],
        };
        let scheme = *ours.iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(Signing { key: self.clone(), scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            Key::Rsa(_) => SignatureAlgorithm::RSA,
            Key::P256(_) => SignatureAlgorithm::ECDSA,
        }
    }
}

#[derive(Debug)]
struct Signing {
    key: Key,
    scheme: Scheme,
}

impl Signer for Signing {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = || Error::General("key.pem: failed to sign with it".into());
        match &self.key {
            Key::Rsa(key) => {
                let pss = self.scheme == Scheme::RSA_PSS_SHA256;
                let padding: &dyn RsaEncoding = if pss { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(padding, &SystemRandom::new(), message, &mut signature).map_err(|_| failed())?;
                Ok(signature)
            }
            Key::P256(key) => {
                let signature: DerSignature =
                    key.sign_prehash(&digest(Algorithm::Sha256, message)).map_err(|_| failed())?;
                Ok(signature.as_bytes().to_vec())
            }
        }
    }

    fn scheme(&self) -> Scheme {
        self.scheme
    }
}
