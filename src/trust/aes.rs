//! AES with a key of 128 bits (FIPS 197) in the mode CFB (NIST SP 800-38A), encryption alone: what a TPM imports is wrapped so, and
//! ring has neither the mode nor the bare cipher.
//!
//! The time that it takes depends on what is encrypted. Only the machine of whoever seals runs it, once for each secret.

const BLOCK: usize = 16;
/// Bytes of a key.
pub const KEY_LEN: usize = 16;
const ROUNDS: usize = 10;

type Block = [u8; BLOCK];

/// Encrypts with a first block of zeros.
pub fn cfb(key: &[u8; KEY_LEN], plain: &[u8]) -> Vec<u8> {
    let table = substitutes();
    let keys = round_keys(key, &table);
    let (mut feedback, mut out) = ([0; BLOCK], Vec::with_capacity(plain.len()));
    for piece in plain.chunks(BLOCK) {
        let mask = encrypted(feedback, &keys, &table);
        feedback.iter_mut().zip(piece.iter().zip(mask)).for_each(|(to, (byte, mask))| *to = byte ^ mask);
        out.extend_from_slice(feedback.get(..piece.len()).unwrap_or_default());
    }
    out
}

/// A byte times x, as a polynomial (section 4.2.1).
fn doubled(byte: u8) -> u8 {
    let carried = if byte >> 7 == 1 { 0x1b } else { 0 };
    byte << 1 ^ carried
}

/// The table of SubBytes (section 5.1.1).
fn substitutes() -> [u8; 256] {
    let (mut table, mut power, mut inverse) = ([0x63; 256], 1u8, 1u8);
    loop {
        // Times 3, which generates all numbers but zero, and divided by 3.
        power ^= doubled(power);
        inverse ^= inverse << 1;
        inverse ^= inverse << 2;
        inverse ^= inverse << 4;
        inverse ^= (inverse >> 7) * 9;
        let turned = (1..5).fold(inverse, |sum, bits| sum ^ inverse.rotate_left(bits));
        table[usize::from(power)] = turned ^ 0x63;
        if power == 1 {
            return table;
        }
    }
}

/// The keys of the rounds (section 5.2).
fn round_keys(key: &[u8; KEY_LEN], table: &[u8; 256]) -> [Block; ROUNDS + 1] {
    let (mut keys, mut factor) = ([*key; ROUNDS + 1], 1);
    for at in 1..=ROUNDS {
        let old = keys[at - 1];
        let mut word: [u8; 4] = std::array::from_fn(|n| table[usize::from(old[12 + (n + 1) % 4])]);
        word[0] ^= factor;
        factor = doubled(factor);
        for (new, old) in keys[at].chunks_mut(4).zip(old.chunks(4)) {
            word.iter_mut().zip(old).for_each(|(byte, old)| *byte ^= old);
            new.copy_from_slice(&word);
        }
    }
    keys
}

/// One block (section 5.1). Byte `at` is in row `at % 4` and column `at / 4`.
fn encrypted(block: Block, keys: &[Block; ROUNDS + 1], table: &[u8; 256]) -> Block {
    let with = |block: Block, key: &Block| -> Block { std::array::from_fn(|at| block[at] ^ key[at]) };
    let mut state = with(block, &keys[0]);
    for (number, key) in keys.iter().enumerate().skip(1) {
        let shifted: Block = std::array::from_fn(|at| table[usize::from(state[(at + 4 * (at % 4)) % BLOCK])]);
        let mixed = |at: usize| {
            let of = |row: usize| shifted[at / 4 * 4 + (at + row) % 4];
            doubled(of(0) ^ of(1)) ^ of(1) ^ of(2) ^ of(3)
        };
        state = with(if number < ROUNDS { std::array::from_fn(mixed) } else { shifted }, key);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hex;

    /// FIPS 197, appendix B, and NIST SP 800-38A, F.3.13, of which the first block is given by the feedback of one of its own.
    #[test]
    fn blocks_are_those_of_the_standard() {
        let bytes = |text: &str| -> Block { hex::decode(text).unwrap().try_into().unwrap() };
        let key = bytes("2b7e151628aed2a6abf7158809cf4f3c");
        let table = substitutes();
        let keys = round_keys(&key, &table);
        assert_eq!(keys[10], bytes("d014f9a8c9ee2589e13f0cc8b6630ca6"));
        for (plain, sealed) in [
            ("3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
            ("6bc1bee22e409f96e93d7e117393172a", "3ad77bb40d7a3660a89ecaf32466ef97"),
        ] {
            assert_eq!(encrypted(bytes(plain), &keys, &table), bytes(sealed));
        }
    }

    /// As `openssl enc -aes-128-cfb -K 2b7e… -iv 00…` writes it.
    #[test]
    fn cfb_is_that_of_openssl() {
        let key = hex::decode("2b7e151628aed2a6abf7158809cf4f3c").unwrap().try_into().unwrap();
        assert_eq!(hex::encode(&cfb(&key, b"the quick brown fox jumps over the lazy dog")), CFB);
        assert_eq!(cfb(&key, b""), b"");
    }

    const CFB: &str = "099f0e2c6bcdf0d055629235d66c3a4f280359d3507072406c53c075303263260b3a0ecfa51987adf82ff2";
}
