//! MD5 (RFC 1321), only for fingerprints and cached files whose names have this form: no security depends on it.

/// The integer parts of 2^32 times the sines of 1 to 64 (3.4).
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];
/// How far each of the four rounds rotates, in turn.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The padded `message`, in blocks of 64 bytes: after it a bit, zeros, and its length in bits in the byte order `order` (3.1,
/// 3.2), as for SHA-1.
pub(super) fn padded(message: &[u8], order: fn(u64) -> [u8; 8]) -> Vec<u8> {
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend(order((message.len() as u64).wrapping_mul(8)));
    padded
}

/// The digest of `message`.
pub fn md5(message: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(message, u64::to_le_bytes).as_chunks::<64>().0 {
        let [mut a, mut b, mut c, mut d] = state;
        for (i, sine) in SINES.iter().enumerate() {
            let (mixed, word) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), 5 * i + 1),
                2 => (b ^ c ^ d, 3 * i + 5),
                _ => (c ^ (b | !d), 7 * i),
            };
            let word = block.as_chunks::<4>().0.get(word % 16).map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let shift = SHIFTS.get(i / 16).and_then(|round| round.get(i % 4)).copied().unwrap_or_default();
            let sum = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(*sine);
            (a, b, c, d) = (d, b.wrapping_add(sum.rotate_left(shift)), b, c);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1321, A.5, and the lengths around a block's end.
    #[test]
    fn the_test_suite_of_the_rfc() {
        let digits = "1234567890".repeat(8);
        for (message, digest) in [
            (&digits[..55], "c9ccf168914a1bcfc3229f1948e67da0"),
            (&digits[..56], "49f193adce178490e34d1b3a4ec0064c"),
            (&digits[..64], "eb6c4179c0a7c82cc2828c1e6338e165"),
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(u128::from_be_bytes(md5(message.as_bytes())), u128::from_str_radix(digest, 16).unwrap());
        }
    }
}
