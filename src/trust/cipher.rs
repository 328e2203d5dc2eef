//! The cipher of credentials and of what is sealed, AES-256-GCM (NIST SP 800-38D), and what keys are derived by, by ring, which https
//! needs anyway. A build without https opens nothing.

/// Bytes of a key, of a nonce, and of the tag at the end of what is encrypted.
pub const KEY_LEN: usize = 32;
pub const NONCE_LEN: usize = 12;
pub const TAG_LEN: usize = 16;

/// Decrypts `sealed`, which ends with its tag. None if it, the nonce or `head`, which is authenticated with it, is not what was
/// encrypted with this key.
#[cfg(feature = "tls")]
pub fn open(key: &[u8], nonce: &[u8], head: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut bytes = sealed.to_vec();
    let length = key.open_in_place(nonce, Aad::from(head), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

#[cfg(not(feature = "tls"))]
pub fn open(_: &[u8], _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// The opposite of [`open`]. Nothing, if the key or the nonce has another length.
#[cfg(feature = "tls")]
pub fn seal(key: &[u8], nonce: &[u8], head: &[u8], plain: &[u8]) -> Vec<u8> {
    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let seal = || {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = plain.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::from(head), &mut bytes).ok()?;
        Some(bytes)
    };
    seal().unwrap_or_default()
}

#[cfg(not(feature = "tls"))]
pub fn seal(_: &[u8], _: &[u8], _: &[u8], _: &[u8]) -> Vec<u8> {
    Vec::new()
}

/// A key of 32 bytes that is derived from a secret by HKDF with SHA-256 (RFC 5869).
#[cfg(feature = "tls")]
pub fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> [u8; KEY_LEN] {
    use ring::hkdf::{HKDF_SHA256, Salt};
    let mut key = [0; KEY_LEN];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    // It fails for longer keys alone.
    let _ = extracted.expand(&[info], HKDF_SHA256).and_then(|output| output.fill(&mut key));
    key
}

#[cfg(not(feature = "tls"))]
pub fn derive(_: &[u8], _: &[u8], _: &[u8]) -> [u8; KEY_LEN] {
    [0; KEY_LEN]
}

/// Whether `tag` is the HMAC with SHA-256 (RFC 2104) of `message`.
#[cfg(feature = "tls")]
pub fn is_authentic(key: &[u8], message: &[u8], tag: &[u8]) -> bool {
    use ring::hmac::{HMAC_SHA256, Key, verify};
    verify(&Key::new(HMAC_SHA256, key), message, tag).is_ok()
}

#[cfg(not(feature = "tls"))]
pub fn is_authentic(_: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

/// The HMAC with SHA-256 of `message`.
#[cfg(feature = "tls")]
pub fn authenticated(key: &[u8], message: &[u8]) -> Vec<u8> {
    use ring::hmac::{HMAC_SHA256, Key, sign};
    sign(&Key::new(HMAC_SHA256, key), message).as_ref().to_vec()
}

#[cfg(not(feature = "tls"))]
pub fn authenticated(_: &[u8], _: &[u8]) -> Vec<u8> {
    Vec::new()
}

/// Whether this build can decrypt.
pub const CAN_OPEN: bool = cfg!(feature = "tls");
