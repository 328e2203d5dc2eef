//! One time budget for a stage, passed down; every wait is limited by it.

use std::time::{Duration, Instant};

/// The longest budget, which the clock can count from any time on: as good as none.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// The time when a stage gives up waiting. Copies have the same time.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline `budget` from now.
    pub fn after(budget: Duration) -> Self {
        Deadline(Instant::now() + budget.min(LONGEST))
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
        // A setting may ask for more time than the clock can count.
        for budget in [Duration::MAX, Duration::from_secs(i64::MAX as u64)] {
            assert!(Deadline::after(budget).left() > Duration::from_secs(3600));
            assert!(!stage.at_most(budget).passed());
        }
    }
}
