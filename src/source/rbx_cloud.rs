//! Rootbox: cloud.json on a drive labelled CLOUDMD.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "RbxCloud", marks: &[Mark::Label("CLOUDMD")], ..Source::NEW };
