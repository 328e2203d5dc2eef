//! Akamai (Linode).

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source =
    Source { name: "Akamai", marks: &[Mark::vendor("Linode"), Mark::vendor("Akamai")], ..Source::NEW };
