//! Vultr.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source {
    name: "Vultr",
    marks: &[Mark::vendor("Vultr"), Mark::Word("vultr"), Mark::File("/etc/vultr")],
    ..Source::NEW
};
