//! ChaCha20 with Poly1305 (RFC 8439), which files of age are encrypted with. ring has it, too, in 46 KB of assembly for four kinds of
//! processors, and https here does without.

use super::cipher::{KEY_LEN, NONCE_LEN, TAG_LEN};
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use poly1305::Poly1305;
use poly1305::universal_hash::{KeyInit, UniversalHash};

/// Bytes of a block of ChaCha20. The first is the key of Poly1305 and no part of the stream.
const BLOCK: u32 = 64;

/// The cipher at the beginning of the stream, and what authenticates. None if the key or the nonce has another length.
fn begin(key: &[u8], nonce: &[u8]) -> Option<(ChaCha20, Poly1305)> {
    let (key, nonce): ([u8; KEY_LEN], [u8; NONCE_LEN]) = (key.try_into().ok()?, nonce.try_into().ok()?);
    let mut cipher = ChaCha20::new(&key.into(), &nonce.into());
    let mut authentication = [0; KEY_LEN];
    cipher.apply_keystream(&mut authentication);
    cipher.try_seek(BLOCK).ok()?;
    Some((cipher, Poly1305::new(&authentication.into())))
}

/// What is authenticated: nothing beside what is encrypted, that, and both lengths.
fn authenticate(mut poly: Poly1305, encrypted: &[u8]) -> Poly1305 {
    poly.update_padded(encrypted);
    let mut lengths = [0; 16];
    let length = u64::try_from(encrypted.len()).unwrap_or(u64::MAX).to_le_bytes();
    lengths.iter_mut().skip(8).zip(length).for_each(|(to, byte)| *to = byte);
    poly.update(&[lengths.into()]);
    poly
}

/// Decrypts what ends with its tag. None if it or the nonce is not what was encrypted with this key.
pub fn open(key: &[u8], nonce: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (mut cipher, poly) = begin(key, nonce)?;
    let (encrypted, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_LEN)?)?;
    let tag: [u8; TAG_LEN] = tag.try_into().ok()?;
    authenticate(poly, encrypted).verify(&tag.into()).ok()?;
    let mut plain = encrypted.to_vec();
    cipher.try_apply_keystream(&mut plain).ok()?;
    Some(plain)
}

/// The opposite of [`open`].
#[cfg(test)]
pub fn seal(key: &[u8], nonce: &[u8], plain: &[u8]) -> Vec<u8> {
    let (mut cipher, poly) = begin(key, nonce).unwrap();
    let mut sealed = plain.to_vec();
    cipher.apply_keystream(&mut sealed);
    let tag = authenticate(poly, &sealed).finalize();
    sealed.extend_from_slice(&tag);
    sealed
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

    #[test]
    fn is_the_cipher_that_ring_has() {
        for length in [0, 1, 15, 16, 17, 63, 64, 65, 300, 70_000] {
            let (key, nonce) = ([length as u8; KEY_LEN], [7; NONCE_LEN]);
            let plain: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
            let mut theirs = plain.clone();
            let other = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).unwrap());
            let nonce_of_ring = Nonce::try_assume_unique_for_key(&nonce).unwrap();
            other.seal_in_place_append_tag(nonce_of_ring, Aad::empty(), &mut theirs).unwrap();
            assert_eq!(seal(&key, &nonce, &plain), theirs);
            assert_eq!(open(&key, &nonce, &theirs), Some(plain));
            for at in [0, theirs.len() / 2, theirs.len() - 1] {
                let mut changed = theirs.clone();
                changed[at] ^= 1;
                assert_eq!(open(&key, &nonce, &changed), None);
            }
            assert_eq!(open(&key, &nonce, &theirs[..TAG_LEN - 1]), None);
            assert_eq!(open(&key[1..], &nonce, &theirs), None);
        }
    }
}
