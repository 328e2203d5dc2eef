//! Hetzner Cloud.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "Hetzner", marks: &[Mark::vendor("Hetzner")], ..Source::NEW };
