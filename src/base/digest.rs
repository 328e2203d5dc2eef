//! SHA-1 and SHA-2 (FIPS 180-4). SHA-2 is ring's, which https needs anyway and which uses the CPU's instructions; a build without
//! https uses the crate `sha2`, which passwords need anyway.

use super::sha1::sha1;
use super::{hex, text};
#[cfg(feature = "tls")]
use ring::digest as hasher;
#[cfg(not(feature = "tls"))]
use sha2::Digest as _;
use std::borrow::Cow;

/// The length of a SHA-256 digest, in bytes.
pub const SHA256_LEN: usize = 32;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// For identifiers and old fingerprints only: collisions can be made.
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

/// The digest of `bytes`: 20, 32, 48 or 64 bytes.
#[cfg(feature = "tls")]
pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    let algorithm = match algorithm {
        Algorithm::Sha1 => return sha1(bytes).to_vec(),
        Algorithm::Sha256 => &hasher::SHA256,
        Algorithm::Sha384 => &hasher::SHA384,
        Algorithm::Sha512 => &hasher::SHA512,
    };
    hasher::digest(algorithm, bytes).as_ref().to_vec()
}

/// The digest of `bytes`: 20, 32, 48 or 64 bytes.
#[cfg(not(feature = "tls"))]
pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Sha1 => sha1(bytes).to_vec(),
        Algorithm::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
        Algorithm::Sha384 => sha2::Sha384::digest(bytes).to_vec(),
        Algorithm::Sha512 => sha2::Sha512::digest(bytes).to_vec(),
    }
}

/// `name` in at most `most` bytes: the end of one that is longer is replaced by its digest, which keeps it apart from others.
pub fn shortened(name: &str, most: usize) -> Cow<'_, str> {
    if name.len() <= most {
        return name.into();
    }
    let digest = hex::encode(&digest(Algorithm::Sha256, name.as_bytes()));
    format!("{}-{digest}", text::start(name, most.saturating_sub(digest.len() + 1))).into()
}

/// SHA-256 of bytes that come in parts.
pub struct Sha256 {
    #[cfg(feature = "tls")]
    context: hasher::Context,
    #[cfg(not(feature = "tls"))]
    context: sha2::Sha256,
}

impl Sha256 {
    /// The state before the first part.
    #[expect(clippy::new_without_default, reason = "it is made in one way")]
    pub fn new() -> Self {
        Sha256 {
            #[cfg(feature = "tls")]
            context: hasher::Context::new(&hasher::SHA256),
            #[cfg(not(feature = "tls"))]
            context: sha2::Sha256::new(),
        }
    }

    /// Adds the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.context.update(part);
    }

    /// The digest of all parts.
    pub fn finish(self) -> impl AsRef<[u8]> {
        #[cfg(feature = "tls")]
        return self.context.finish();
        #[cfg(not(feature = "tls"))]
        return self.context.finalize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sha1sum, sha256sum, sha384sum and sha512sum print them.
    #[test]
    fn digests_are_those_of_coreutils() {
        for (algorithm, start, empty) in [
            (Algorithm::Sha1, "a9993e364706816aba3e", "da39a3ee5e6b4b0d3255"),
            (Algorithm::Sha256, "ba7816bf8f01cfea4141", "e3b0c44298fc1c149afb"),
            (Algorithm::Sha384, "cb00753f45a35e8bb5a0", "38b060a751ac96384cd9"),
            (Algorithm::Sha512, "ddaf35a193617abacc41", "cf83e1357eefb8bdf154"),
        ] {
            assert!(hex::encode(&digest(algorithm, b"abc")).starts_with(start), "{algorithm:?}");
            assert!(hex::encode(&digest(algorithm, b"")).starts_with(empty), "{algorithm:?}");
        }
    }

    #[test]
    fn parts_are_one_text() {
        let text: Vec<u8> = (0..1000u32).map(|n| n.to_le_bytes()[0]).collect();
        for size in [1, 63, 64, 65, 1000] {
            let mut sum = Sha256::new();
            text.chunks(size).for_each(|part| sum.update(part));
            assert_eq!(sum.finish().as_ref(), digest(Algorithm::Sha256, &text), "{size}");
        }
        assert_eq!(digest(Algorithm::Sha256, &text).len(), SHA256_LEN);
    }

    /// The digests of a build without https are those of a build with it.
    #[cfg(feature = "tls")]
    #[test]
    fn ring_agrees_with_the_crate() {
        use sha2::Digest as _;
        for length in [0, 1, 55, 56, 63, 64, 111, 112, 127, 128, 1000] {
            let bytes = vec![0xa5; length];
            assert_eq!(digest(Algorithm::Sha256, &bytes), sha2::Sha256::digest(&bytes).to_vec(), "{length}");
            assert_eq!(digest(Algorithm::Sha384, &bytes), sha2::Sha384::digest(&bytes).to_vec(), "{length}");
            assert_eq!(digest(Algorithm::Sha512, &bytes), sha2::Sha512::digest(&bytes).to_vec(), "{length}");
        }
    }
}
