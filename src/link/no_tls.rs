//! The HTTP client in a build without https (the Cargo feature `tls`).

use crate::base::error::{Error, Result};
use crate::link::dns::UplinkResolver;
use crate::link::http::TlsFiles;
use crate::link::tcp::LinkConnector;
use ureq::Agent;
use ureq::config::Config as AgentConfig;

/// The TLS configuration: there is none.
#[derive(Clone, Copy)]
pub enum Config {}

/// # Errors
/// Always.
pub fn config(_: &TlsFiles) -> Result<Config> {
    Err(Error::new("this build of prepivot leaves https out: use http, or a build with TLS"))
}

/// Never called, because no value of [`Config`] exists.
pub fn agent(_: AgentConfig, _: LinkConnector, _: UplinkResolver, tls: Config) -> Agent {
    match tls {}
}
