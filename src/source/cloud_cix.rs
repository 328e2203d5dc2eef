//! CloudCIX.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "CloudCIX", marks: &[Mark::product("CloudCIX")], ..Source::NEW };
