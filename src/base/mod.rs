//! Small helpers that every other folder may use.

pub mod base64;
pub mod budget;
pub mod cancel;
pub mod clock;
pub mod crc32;
pub mod deadline;
pub mod deprecated;
pub mod digest;
pub mod ed25519;
pub mod error;
pub mod event;
pub mod file_url;
pub mod glob;
pub mod gzip;
pub mod hex;
pub mod lean;
pub mod logging;
pub mod mask;
pub mod md5;
pub mod p256;
pub mod password;
pub mod percent;
pub mod problem;
pub mod random;
pub mod sha1;
pub mod signal;
pub mod tar;
#[doc(hidden)]
pub mod testing;
pub mod text;
pub mod uuid;

pub use lean::{channel, sort, thread};

/// The most symbolic links that are followed on one path, as in Linux (path_resolution(7)).
pub const MAX_LINKS: usize = 40;

/// A text of the tables that only the manual shows: empty in a build without the feature `manual`, which does not carry it.
pub const fn manual(text: &'static str) -> &'static str {
    if cfg!(feature = "manual") { text } else { "" }
}
