//! Alibaba Cloud ECS.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source {
    name: "AliYun",
    marks: &[Mark::Seed("AliYun", &["meta-data", "user-data"]), Mark::product("Alibaba Cloud ECS")],
    ..Source::NEW
};
