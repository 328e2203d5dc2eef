//! What one stage may use, in all, for what comes from outside: bytes of memory and steps of work, whatever the documents are. A
//! bound of one document says nothing of several, nor of what is made of them.

use super::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most steps of a stage. One takes about 50 ns, so that all of them take 2 s.
const STEPS: usize = 40_000_000;

/// The most bytes of a stage: of its documents as they are read, and of what is made of them until it is written. What is freed before
/// the stage ends is not given back.
const BYTES: usize = 54 << 20;
/// What documents leave of that to the changes of all modules: users can log in whatever a list of files has used up.
const RESERVE: usize = 4 << 20;

/// The most rounds in which all passwords of a stage together are hashed: 1,000 passwords in the usual 5,000 rounds, which take 3 to
/// 8 s.
pub const ROUNDS: usize = 5_000_000;

const MEMORY: &str = "too much memory";

/// What is left of a stage's budget.
struct Budget {
    steps: AtomicUsize,
    bytes: AtomicUsize,
    rounds: AtomicUsize,
}

impl Budget {
    const fn new(steps: usize, bytes: usize) -> Budget {
        Budget { steps: AtomicUsize::new(steps), bytes: AtomicUsize::new(bytes), rounds: AtomicUsize::new(ROUNDS) }
    }
}

/// A process runs one stage. Until the program begins one there is no limit: who uses the library has limits of its own.
#[cfg(not(test))]
fn with<T>(job: impl FnOnce(&Budget) -> T) -> T {
    static BUDGET: Budget = Budget::new(usize::MAX / 2, usize::MAX / 2);
    job(&BUDGET)
}

/// Unit tests share a process: each thread of theirs has a budget.
#[cfg(test)]
fn with<T>(job: impl FnOnce(&Budget) -> T) -> T {
    thread_local!(static BUDGET: Budget = const { Budget::new(STEPS, BYTES) });
    BUDGET.with(job)
}

/// Begins a budget.
pub fn begin() {
    with(|budget| {
        budget.steps.store(STEPS, Relaxed);
        budget.bytes.store(BYTES, Relaxed);
        budget.rounds.store(ROUNDS, Relaxed);
    });
}

/// Uses steps.
///
/// # Errors
/// None are left.
pub fn step(steps: usize) -> Result<()> {
    with(|budget| less(&budget.steps, steps, "too many steps"))
}

/// Uses rounds of hashing passwords: one limit for all modules.
///
/// # Errors
/// There are not that many left.
pub fn round(rounds: usize) -> Result<()> {
    with(|budget| less(&budget.rounds, rounds, "too many rounds of hashing"))
}

/// Uses memory. What does not fit leaves the rest for others.
///
/// # Errors
/// There is not that much left.
pub fn take(bytes: usize) -> Result<()> {
    check(bytes)?;
    take_last(bytes)
}

/// Uses memory, of what documents leave, too.
///
/// # Errors
/// There is not that much left.
pub fn take_last(bytes: usize) -> Result<()> {
    with(|budget| less(&budget.bytes, bytes, MEMORY))
}

/// Uses memory for what is never refused: a stage's own state, and what an earlier stage had room for.
pub fn take_all(bytes: usize) {
    with(|budget| {
        let _ = budget.bytes.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(bytes)));
    });
}

/// Gives memory back that was used and is free again.
pub fn give(bytes: usize) {
    with(|budget| budget.bytes.fetch_add(bytes, Relaxed));
}

/// Whether so much memory is left, before anything is made that takes it.
///
/// # Errors
/// It is not.
pub fn check(bytes: usize) -> Result<()> {
    check_last(bytes.saturating_add(RESERVE))
}

/// The same for changes, to which documents leave a part.
///
/// # Errors
/// It is not.
pub fn check_last(bytes: usize) -> Result<()> {
    with(|budget| if budget.bytes.load(Relaxed) < bytes { Err(exhausted(MEMORY)) } else { Ok(()) })
}

fn less(of: &AtomicUsize, used: usize, what: &str) -> Result<()> {
    let taken = of.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(used));
    taken.map(drop).map_err(|_| exhausted(what))
}

fn exhausted(what: &str) -> Error {
    Error::new(format!("all documents together take {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_is_left_after_the_last() {
        begin();
        assert!(step(STEPS - 1).is_ok() && step(1).is_ok() && step(0).is_ok());
        assert_eq!(step(1).unwrap_err().to_string(), "all documents together take too many steps");
        begin();
        assert!(step(STEPS + 1).is_err() && step(STEPS).is_ok());
        begin();
        assert!(take(BYTES - RESERVE).is_ok() && step(1).is_ok());
        assert_eq!(take(1).unwrap_err().to_string(), "all documents together take too much memory");
        assert!(check(0).is_ok() && take_last(RESERVE).is_ok() && take_last(1).is_err());
        take_all(1);
        give(RESERVE + 1);
        assert!(take(1).is_ok() && take(1).is_err());
        assert!(round(ROUNDS).is_ok() && round(1).is_err());
    }
}
