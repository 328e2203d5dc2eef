//! Network configuration: one model, one file per format read, one per renderer written.

pub mod address;
pub mod convert;
pub mod fallback;
pub mod input;
mod mac;
pub mod model;
pub mod names;
pub mod params;
pub mod read;
pub mod render;

pub use input::{Choice, Input, Origin};
pub use model::{Macs, Network};
pub use render::{File, Renderer, Target};
