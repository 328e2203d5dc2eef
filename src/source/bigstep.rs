//! Bigstep Metal Cloud.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source =
    Source { name: "Bigstep", marks: &[Mark::File("/var/lib/cloud/data/seed/bigstep/url")], ..Source::NEW };
