//! UpCloud.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "UpCloud", marks: &[Mark::vendor("UpCloud")], ..Source::NEW };
