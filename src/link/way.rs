//! A way by which a service can be asked.

use super::dhcp::Lease;
use std::net::IpAddr;

/// What a way can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// IPv4, by a lease, an address that was there, or a link-local one that only finds the metadata service.
    V4,
    /// IPv6 on the link itself (`fe80::a9fe:a9fe`).
    V6Link,
    /// IPv6 beyond the link, by a router that advertised itself.
    V6Routed,
}

/// One link and address family that is ready, or the system's own network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// None: the routes of the system decide (the real root, where the network is somebody else's).
    pub link: Option<String>,
    /// The link's index; 0 where there is none.
    pub index: u32,
    pub reach: Reach,
    /// Name servers that came with it.
    pub dns: Vec<IpAddr>,
    /// Domains in which a short name is looked up.
    pub search: Vec<String>,
    /// How the address was got, if by DHCP.
    pub lease: Option<Lease>,
}

impl Way {
    /// The system's own routes and resolver.
    pub fn system() -> Self {
        Way { link: None, index: 0, reach: Reach::V4, dns: Vec::new(), search: Vec::new(), lease: None }
    }

    /// For messages: the link's name, or `network`.
    pub fn name(&self) -> &str {
        self.link.as_deref().unwrap_or("network")
    }
}
