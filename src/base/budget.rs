//! What one stage may use, in all, for what comes from outside: bytes of memory and steps of work, whatever the documents are. A
//! bound of one document says nothing of several, nor of what is made of them.

use super::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most steps of a stage. One takes about 50 ns, so that all of them take 2 s.
const STEPS: usize = 40_000_000;

/// The most bytes of a stage: of its documents as they are read, and of what is made of them until it is written. What is freed before
/// the stage ends is not given back.
const BYTES: usize = 56 << 20;

/// What is left of a stage's budget.
struct Budget {
    steps: AtomicUsize,
    bytes: AtomicUsize,
}

impl Budget {
    const fn new() -> Budget {
        Budget { steps: AtomicUsize::new(STEPS), bytes: AtomicUsize::new(BYTES) }
    }
}

/// A process runs one stage. Unit tests share one: each thread of theirs has its own budget.
#[cfg(not(test))]
fn with<T>(job: impl FnOnce(&Budget) -> T) -> T {
    static BUDGET: Budget = Budget::new();
    job(&BUDGET)
}

#[cfg(test)]
fn with<T>(job: impl FnOnce(&Budget) -> T) -> T {
    thread_local!(static BUDGET: Budget = const { Budget::new() });
    BUDGET.with(job)
}

/// Begins a new budget: at the start of a stage, and of a test that shares its process with others.
pub fn renew() {
    with(|budget| {
        budget.steps.store(STEPS, Relaxed);
        budget.bytes.store(BYTES, Relaxed);
    });
}

/// Uses steps.
///
/// # Errors
/// None are left.
pub fn step(steps: usize) -> Result<()> {
    with(|budget| less(&budget.steps, steps, "too many steps"))
}

/// Uses memory. What does not fit leaves the rest for others.
///
/// # Errors
/// There is not that much left.
pub fn take(bytes: usize) -> Result<()> {
    with(|budget| less(&budget.bytes, bytes, "too much memory"))
}

fn less(of: &AtomicUsize, used: usize, what: &str) -> Result<()> {
    let taken = of.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(used));
    taken.map(drop).map_err(|_| Error::new(format!("all documents together take {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_is_left_after_the_last() {
        renew();
        assert!(step(STEPS - 1).is_ok() && step(1).is_ok() && step(0).is_ok());
        assert_eq!(step(1).unwrap_err().to_string(), "all documents together take too many steps");
        renew();
        assert!(step(STEPS + 1).is_err() && step(STEPS).is_ok());
        renew();
        assert!(take(BYTES).is_ok() && step(1).is_ok());
        assert_eq!(take(1).unwrap_err().to_string(), "all documents together take too much memory");
    }
}
