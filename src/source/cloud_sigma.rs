//! CloudSigma: a JSON document over the second serial port.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "CloudSigma", marks: &[Mark::product("CloudSigma")], ..Source::NEW };
