//! UUIDs: random ones, and their byte order on a GPT.

use super::error::Result;
use super::random;

/// A random UUID (RFC 9562, section 5.4), in its own byte order.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes, "a UUID")?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// Converts between a UUID's own byte order and that on a GPT (UEFI 2.10, appendix A: the first three fields are little-endian).
pub fn swap(bytes: &mut [u8; 16]) {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_variant_are_those_of_random_uuids() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one, other);
        assert_eq!((one[6] >> 4, one[8] >> 6), (4, 2));
    }
}
