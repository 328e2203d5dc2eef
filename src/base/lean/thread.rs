//! Starting threads, compiled once: the standard library's way takes up to 1 KB for each thing that a thread does, and
//! `std::thread::spawn` panics if there is no room for one.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread.
///
/// # Errors
/// There is no room for one.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    start(Builder::new(), Box::new(work))
}

/// Starts a thread whose stack has `stack` bytes.
///
/// # Errors
/// There is no room for one.
pub fn spawn_with_stack(stack: usize, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    start(Builder::new().stack_size(stack), Box::new(work))
}

fn start(builder: Builder, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    builder.spawn(work)
}
