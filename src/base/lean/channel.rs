//! A channel between threads with a receive timeout. std's is lock-free and takes 20 KB of the program, which
//! a few answers do not need.

use crate::base::deadline::Deadline;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    sent: VecDeque<T>,
    senders: usize,
    receiver: bool,
}

impl<T> Channel<T> {
    /// The state. No thread can panic while it holds the lock.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end; each thread has its own.
pub struct Sender<T>(Arc<Channel<T>>);

/// The receiving end.
pub struct Receiver<T>(Arc<Channel<T>>);

/// A new channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { sent: VecDeque::new(), senders: 1, receiver: true });
    let channel = Arc::new(Channel { state, changed: Condvar::new() });
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends `answer`. Returns false if the receiver is gone.
    pub fn send(&self, answer: T) -> bool {
        let mut state = self.0.state();
        if state.receiver {
            state.sent.push_back(answer);
        }
        self.0.changed.notify_one();
        state.receiver
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    /// The next answer, in the order in which they were sent. None if all senders are gone, or nothing
    /// arrives by the deadline.
    pub fn receive(&self, deadline: Option<Deadline>) -> Option<T> {
        let mut state = self.0.state();
        loop {
            if let Some(answer) = state.sent.pop_front() {
                return Some(answer);
            }
            let left = deadline.map_or(Duration::MAX, Deadline::left);
            if state.senders == 0 || left.is_zero() {
                return None;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receiver = false;
        state.sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    #[test]
    fn receives_in_order_until_the_last_sender_drops() {
        let (sender, receiver) = channel();
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let sender = sender.clone();
                thread::spawn(move || (0..100).for_each(|at| assert!(sender.send((number, at)))))
            })
            .collect();
        drop(sender);
        let answers: Vec<_> = std::iter::from_fn(|| receiver.receive(None)).collect();
        assert_eq!(answers.len(), 400);
        for number in 0..4 {
            let of_one: Vec<_> = answers.iter().filter(|(n, _)| *n == number).map(|(_, at)| *at).collect();
            assert_eq!(of_one, Vec::from_iter(0..100));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn wait_times_out_and_sender_sees_closed_channel() {
        let (sender, receiver) = channel();
        let started = Instant::now();
        assert_eq!(receiver.receive(Some(Deadline::after(Duration::from_millis(50)))), None);
        assert!(started.elapsed() >= Duration::from_millis(50) && started.elapsed() < Duration::from_secs(30));
        assert_eq!(receiver.receive(Some(Deadline::after(Duration::ZERO))), None, "a time that has passed");
        assert!(sender.send(Arc::new(1)));
        assert_eq!(receiver.receive(Some(Deadline::after(Duration::ZERO))), Some(Arc::new(1)), "what is there already");
        let left = Arc::new(2);
        assert!(sender.send(left.clone()));
        drop(receiver);
        assert!(!sender.send(left.clone()));
        assert_eq!(Arc::strong_count(&left), 1, "nothing of it is kept");
    }

    #[test]
    fn a_sender_that_goes_wakes_the_receiver() {
        let (sender, receiver) = channel::<()>();
        let waiting = thread::spawn(move || receiver.receive(Some(Deadline::after(Duration::from_secs(60)))));
        thread::sleep(Duration::from_millis(20));
        let started = Instant::now();
        drop(sender);
        assert_eq!(waiting.join().unwrap(), None);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
