//! Network configuration: one model, one file per format that is read, one folder per network stack that is written for.

pub mod address;
pub mod fallback;
pub mod input;
pub mod mac;
pub mod model;
pub mod names;
pub mod parameters;
pub mod read;
pub mod render;
#[cfg(test)]
mod testing;

pub use input::{Choice, ConfigOrigin, Input};
pub use mac::Macs;
pub use model::Network;
pub use render::{File, Renderer, Target};
