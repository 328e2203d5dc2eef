//! Random numbers for DHCP's transaction ids, jitter and link-local addresses. They spread machines over time and
//! addresses; no security depends on them: who could guess a transaction id of DHCP is on the link, where it is broadcast. What
//! must not be guessed is from [`crate::base::random`].

use std::hash::{BuildHasher, Hasher, RandomState};

/// A stream of random numbers (xorshift64*).
pub struct Rng(u64);

impl Rng {
    /// Seeded by the system, which does not block in early boot, and by `mark`, which distinguishes two links if the
    /// system has no entropy yet.
    pub fn new(mark: &[u8]) -> Self {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write(mark);
        Rng(hasher.finish() | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A factor between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(self.next()) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_stay_in_range() {
        let mut rng = Rng::new(b"eth0");
        let numbers: std::collections::HashSet<u32> = (0..1000).map(|_| rng.next()).collect();
        assert!(numbers.len() > 990);
        assert!((0..1000).map(|_| rng.between(0.75, 1.25)).all(|f| (0.75..=1.25).contains(&f)));
        assert_ne!(Rng::new(b"a").next(), Rng::new(b"b").next());
    }
}
