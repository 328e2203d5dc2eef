//! MD5 (RFC 1321), only to name the cached answers of `#include-once` as cloud-init does.

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest in hexadecimal.
pub fn hex(data: &[u8]) -> String {
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64) + if padded.len() % 64 > 56 { 64 } else { 0 }, 0);
    let bits = (data.len() as u64).wrapping_mul(8).to_le_bytes();
    padded.truncate(padded.len() - bits.len());
    padded.extend(bits);

    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let words: Vec<u32> =
            block.chunks_exact(4).map(|w| w.iter().rev().fold(0, |word, b| word << 8 | u32::from(*b))).collect();
        let next = compress(state, &words);
        state.iter_mut().zip(next).for_each(|(s, n)| *s = s.wrapping_add(n));
    }
    state.iter().flat_map(|word| word.to_le_bytes()).map(|b| format!("{b:02x}")).collect()
}

fn compress([mut a, mut b, mut c, mut d]: [u32; 4], words: &[u32]) -> [u32; 4] {
    for i in 0..64 {
        let (mix, word) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), 5 * i + 1),
            2 => (b ^ c ^ d, 3 * i + 5),
            _ => (c ^ (b | !d), 7 * i),
        };
        let sine = ((i + 1) as f64).sin().abs() * 4_294_967_296.0;
        let sum = a.wrapping_add(mix).wrapping_add(sine as u32).wrapping_add(words[word % 16]);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    /// The test suite of RFC 1321, A.5, and the lengths around a block's end.
    #[test]
    fn the_standards_examples() {
        let digits = "1234567890".repeat(8);
        for (data, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (&digits, "57edf4a22be3c955ac49da2e2107b67a"),
            (&digits[..55], "c9ccf168914a1bcfc3229f1948e67da0"),
            (&digits[..56], "49f193adce178490e34d1b3a4ec0064c"),
            (&digits[..64], "eb6c4179c0a7c82cc2828c1e6338e165"),
            ("http://host/cc", "171fba53d346871e1234ab37e44c485f"),
        ] {
            assert_eq!(super::hex(data.as_bytes()), digest, "{data}");
        }
    }
}
