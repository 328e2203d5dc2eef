//! One time budget for a stage, passed down; every wait is limited by it.

use std::time::{Duration, Instant};

/// The time when a stage gives up waiting. Copies have the same time.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline `budget` from now.
    pub fn after(budget: Duration) -> Self {
        let now = Instant::now();
        Deadline(now.checked_add(budget).unwrap_or(now))
    }

    /// The time left; zero once it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// A deadline for one part: at most `budget` from now, and never later than this one.
    pub fn at_most(self, budget: Duration) -> Self {
        Deadline(self.0.min(Self::after(budget).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_never_outlives_the_whole() {
        let stage = Deadline::after(Duration::from_secs(1));
        assert!(stage.at_most(Duration::from_secs(60)).left() <= Duration::from_secs(1));
        assert!(stage.at_most(Duration::ZERO).passed());
        assert!(!stage.passed());
    }
}
