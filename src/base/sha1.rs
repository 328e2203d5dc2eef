//! SHA-1 (FIPS 180-4, section 6.1), only for identifiers and fingerprints that have this form: no security depends on it.

use super::md5::padded;

/// The digest of `message`.
pub fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(message, u64::to_be_bytes).as_chunks::<64>().0 {
        // The next 16 of the 80 words of a block.
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for i in 0..80 {
            let [word, _, w2, _, _, _, _, _, w8, _, _, _, _, w13, _, _] = words;
            let (mixed, constant) = match i / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(word).wrapping_add(constant);
            (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
            let [first, ..] = &mut words;
            *first = (word ^ w2 ^ w8 ^ w13).rotate_left(1);
            words.rotate_left(1);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;

    /// As sha1sum prints them; the lengths around a block's end are among them.
    #[test]
    fn digests_are_those_of_sha1sum() {
        for (message, digest) in
            [("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"), ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d")]
        {
            assert_eq!(hex::encode(&sha1(message.as_bytes())), digest);
        }
        for (length, digest) in [
            (55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"),
            (56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"),
            (63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5"),
            (64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"),
            (1000, "291e9a6c66994949b57ba5e650361e98fc36b1ba"),
        ] {
            assert_eq!(hex::encode(&sha1(&vec![b'a'; length])), digest, "{length}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn ring_agrees() {
        use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
        for length in 0..200u8 {
            let message: Vec<u8> = (0..length).collect();
            assert_eq!(sha1(&message), digest(&SHA1_FOR_LEGACY_USE_ONLY, &message).as_ref(), "{length}");
        }
    }
}
