//! DigitalOcean droplets.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "DigitalOcean", marks: &[Mark::vendor("DigitalOcean")], ..Source::NEW };
