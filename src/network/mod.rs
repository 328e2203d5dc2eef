//! Network configuration: one model, one file per format read, one per renderer written.

pub mod address;
pub mod model;
pub mod params;
pub mod read;
pub mod render;

pub use model::{Macs, Network};
pub use render::{File, Renderer, Target};
