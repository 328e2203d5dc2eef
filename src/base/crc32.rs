//! CRC-32 (ISO 3309, IEEE 802.3), as in gzip (RFC 1952, 8), GPT (UEFI, 5.3.2) and SmartOS's protocol.

/// The remainder for each value of a byte, with the bit-reversed polynomial that all of these use.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    add(0, bytes)
}

/// Continues a checksum: `crc` is that of the bytes before `bytes`, 0 for none.
pub fn add(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        TABLE.get(usize::from(low ^ byte)).map_or(0, |change| (crc >> 8) ^ change)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(crc32(b""), 0);
        // The check value in catalogues of CRCs.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(add(crc32(b"1234"), b"56789"), 0xcbf4_3926);
    }
}
