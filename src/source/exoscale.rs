//! Exoscale.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "Exoscale", marks: &[Mark::product("Exoscale*")], ..Source::NEW };
