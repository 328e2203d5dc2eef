//! AES with a key of 128 bits in the mode CFB (NIST SP 800-38A, section 6.3), encryption alone: what a TPM imports is wrapped so, and
//! ring has neither the mode nor the bare cipher.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

const BLOCK: usize = 16;
/// Bytes of a key.
pub const KEY_LEN: usize = 16;

/// Encrypts with a first block of zeros.
pub fn cfb(key: &[u8; KEY_LEN], plain: &[u8]) -> Vec<u8> {
    let cipher = Aes128::new(key.into());
    let (mut feedback, mut out) = ([0; BLOCK], Vec::with_capacity(plain.len()));
    for piece in plain.chunks(BLOCK) {
        cipher.encrypt_block((&mut feedback).into());
        feedback.iter_mut().zip(piece).for_each(|(mask, byte)| *mask ^= byte);
        out.extend_from_slice(feedback.get(..piece.len()).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hex;

    /// As `openssl enc -aes-128-cfb -K 2b7e… -iv 00…` writes it.
    #[test]
    fn cfb_is_that_of_openssl() {
        let key = hex::decode("2b7e151628aed2a6abf7158809cf4f3c").unwrap().try_into().unwrap();
        assert_eq!(hex::encode(&cfb(&key, b"the quick brown fox jumps over the lazy dog")), CFB);
        assert_eq!(cfb(&key, b""), b"");
    }

    const CFB: &str = "099f0e2c6bcdf0d055629235d66c3a4f280359d3507072406c53c075303263260b3a0ecfa51987adf82ff2";
}
