//! One time budget for a stage, passed down; every wait is limited by it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest budget, which the clock can count from any time on: as good as none.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// Time that a deadline can be given once, while it runs.
#[derive(Debug)]
pub struct Extension {
    time: Duration,
    granted: AtomicBool,
}

impl Extension {
    pub const fn of(time: Duration) -> Self {
        Extension { time, granted: AtomicBool::new(false) }
    }

    /// The time that it adds: zero until it is granted.
    pub fn granted(&self) -> Duration {
        if self.granted.load(Ordering::Relaxed) { self.time } else { Duration::ZERO }
    }
}

/// The time when a stage gives up waiting. Copies have the same time, and the same extension.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    end: Instant,
    extension: Option<&'static Extension>,
}

impl Deadline {
    /// A deadline `budget` from now.
    pub fn after(budget: Duration) -> Self {
        Deadline { end: Instant::now() + budget.min(LONGEST), extension: None }
    }

    /// The same deadline, which [`Deadline::extend`] can move.
    pub fn extensible(self, extension: &'static Extension) -> Self {
        Deadline { extension: Some(extension), ..self }
    }

    /// Grants the extension. Returns the time that it adds; None if there is none, or it was granted before.
    pub fn extend(self) -> Option<Duration> {
        let extension = self.extension?;
        (!extension.granted.swap(true, Ordering::Relaxed)).then_some(extension.time)
    }

    /// The time left; zero once it has passed.
    pub fn left(self) -> Duration {
        let more = self.extension.map_or(Duration::ZERO, Extension::granted);
        (self.end + more).saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// A deadline for one part: at most `budget` from now, and never later than this one.
    pub fn at_most(self, budget: Duration) -> Self {
        if budget < self.left() { Self::after(budget) } else { self }
    }

    /// A deadline that comes `time` before this one.
    pub fn before(self, time: Duration) -> Self {
        Deadline { end: self.end.checked_sub(time).unwrap_or(self.end), ..self }
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
    #[test]
    fn extension_moves_the_whole_and_no_part() {
        static MORE: Extension = Extension::of(Duration::from_secs(1000));
        let stage = Deadline::after(Duration::from_secs(10)).extensible(&MORE);
        let (part, earlier) = (stage.at_most(Duration::from_secs(5)), stage.before(Duration::from_secs(8)));
        assert!(earlier.left() <= Duration::from_secs(2));
        assert_eq!((part.extend(), stage.extend(), stage.extend()), (None, Some(Duration::from_secs(1000)), None));
        let left = [part, stage, earlier].map(|deadline| deadline.left().as_secs() / 100);
        assert_eq!(left, [0, 10, 10]);
    }
}
