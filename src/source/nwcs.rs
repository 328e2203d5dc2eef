//! NWCS.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "NWCS", marks: &[Mark::vendor("NWCS")], ..Source::NEW };
