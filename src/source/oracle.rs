//! Oracle Cloud Infrastructure.

use super::Source;
use crate::detect::Mark;
pub static SOURCE: Source = Source { name: "Oracle", marks: &[Mark::asset_tag("OracleCloud.com")], ..Source::NEW };
