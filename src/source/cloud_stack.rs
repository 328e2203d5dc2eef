//! Apache CloudStack: the virtual router's metadata and passwords.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "CloudStack", marks: &[Mark::product("CloudStack*")], ..Source::NEW };
