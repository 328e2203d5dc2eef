//! Random bytes for keys, passwords and identifiers, from the kernel (getrandom(2)).

use super::error::{Error, Result};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Fills `bytes`. Early in a boot it waits until the kernel has gathered enough entropy. `purpose` names the use of the bytes in an
/// error: `a key`.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn fill(bytes: &mut [u8], purpose: &str) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            // A signal can end a call for more than 256 bytes early.
            Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::new(format!("the kernel gave no random bytes for {purpose}: {e}"))),
        }
    }
    Ok(())
}

/// A number that nobody outside can guess, for identifiers. It never waits: before the kernel has gathered entropy it is made of
/// what there is (getrandom(2), `GRND_INSECURE`, Linux 5.6), or of the standard library's seed.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    for flags in [GetRandomFlags::INSECURE, GetRandomFlags::NONBLOCK] {
        if getrandom(&mut bytes, flags) == Ok(bytes.len()) {
            return u64::from_ne_bytes(bytes);
        }
    }
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_filled() {
        let mut sum = [0; 1000];
        for _ in 0..8 {
            let mut bytes = [0; 1000];
            fill(&mut bytes, "a test").unwrap();
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum |= byte);
        }
        // One byte of 1000 is zero eight times with a probability of 2^-54.
        assert!(!sum.contains(&0));
        fill(&mut [], "nothing").unwrap();
    }
}
