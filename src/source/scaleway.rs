//! Scaleway.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source {
    name: "Scaleway",
    marks: &[Mark::vendor("Scaleway"), Mark::Word("scaleway"), Mark::File("/var/run/scaleway")],
    ..Source::NEW
};
