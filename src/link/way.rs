//! A way by which a service can be asked.

use super::dhcp::Lease;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

impl Reach {
    /// All.
    pub const ALL: [Reach; 3] = [Reach::V4, Reach::V6Link, Reach::V6Routed];
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

    /// A way by one link.
    pub fn of(link: &str, index: u32, reach: Reach) -> Self {
        Way { link: Some(link.into()), index, reach, ..Way::system() }
    }

    /// Whether the host of `url` lies where this way leads. A name may lie anywhere but on the link itself.
    pub fn leads_to(&self, url: &str) -> bool {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let Some(six) = authority.strip_prefix('[') else {
            let host = authority.split(':').next().unwrap_or_default();
            let four = host.parse::<Ipv4Addr>().is_ok();
            return self.reach == Reach::V4 || (self.reach == Reach::V6Routed && !four);
        };
        let (address, zone) = six.split(']').next().map(|a| a.split_once('%').unwrap_or((a, ""))).unwrap_or_default();
        let zone = zone.strip_prefix("25").unwrap_or(zone);
        let Ok(address) = address.parse::<Ipv6Addr>() else { return false };
        let here = zone.is_empty() || self.link.as_deref() == Some(zone);
        match self.reach {
            Reach::V6Link => address.is_unicast_link_local() && here,
            Reach::V6Routed => !address.is_unicast_link_local(),
            Reach::V4 => self.link.is_none() && !address.is_unicast_link_local(),
        }
    }

    /// For messages: the link's name, or `network`.
    pub fn name(&self) -> &str {
        self.link.as_deref().unwrap_or("network")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_leads_to_its_own() {
        let [four, link, routed] = [Reach::V4, Reach::V6Link, Reach::V6Routed].map(|r| Way::of("eth0", 2, r));
        let leads = |url: &str| [&four, &link, &routed, &Way::system()].map(|w| w.leads_to(url));
        assert_eq!(leads("http://169.254.169.254/openstack"), [true, false, false, true]);
        assert_eq!(leads("http://[fe80::a9fe:a9fe]"), [false, true, false, false]);
        assert_eq!(leads("http://[fe80::a9fe:a9fe%25eth0]/"), [false, true, false, false]);
        assert_eq!(leads("http://[fe80::a9fe:a9fe%25eth1]/"), [false; 4]);
        assert_eq!(leads("http://[fd00:ec2::254]:80/"), [false, false, true, true]);
        assert_eq!(leads("https://user:pw@seed.example.org:8443/"), [true, false, true, true]);
    }
}
