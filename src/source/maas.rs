//! MAAS: Canonical's Metal as a Service, over HTTP with OAuth.

use super::Source;

pub static SOURCE: Source = Source { name: "MAAS", marks: &[], ..Source::NEW };
