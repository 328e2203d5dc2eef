//! Google Compute Engine.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source {
    name: "GCE",
    marks: &[Mark::product("Google Compute Engine"), Mark::serial("GoogleCloud-*")],
    ..Source::NEW
};
