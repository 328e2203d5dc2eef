//! What exists for the size of the program alone: README.md of this folder says for each part what it saves, how to measure it, and
//! when it goes.

pub mod channel;
pub mod sort;
pub mod thread;
#[cfg(feature = "tls")]
pub mod tls_p256;
#[cfg(feature = "tls")]
pub mod tls_x25519;
