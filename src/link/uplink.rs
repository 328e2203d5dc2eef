//! The uplink: the link and address family through which a service is asked.

use super::dhcp::Lease;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The addresses that an uplink reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// IPv4: with a leased or configured address, or with one from 169.254/16 that only reaches the link
    /// itself.
    Ipv4,
    /// IPv6 on the link (`fe80::a9fe:a9fe`).
    Ipv6LinkLocal,
    /// IPv6 beyond the link, through a router that advertised itself.
    Ipv6Routed,
}

impl Reach {
    /// All of them.
    pub const ALL: [Reach; 3] = [Reach::Ipv4, Reach::Ipv6LinkLocal, Reach::Ipv6Routed];
}

/// A link and an address family, the system's own network, or a local socket, through which a service can be
/// asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// The link's name. None: the system's routes are used (the real root, whose network another program
    /// configures).
    pub link: Option<String>,
    /// The link's index; 0 without a link.
    pub index: u32,
    pub reach: Reach,
    /// The uplink's name servers. Empty: the system's resolver is used.
    pub dns: Vec<IpAddr>,
    /// Domains in which a short name is looked up.
    pub search: Vec<String>,
    /// The DHCP lease, if the address is leased. For [`Uplink::system`] see [`super::leases`].
    pub lease: Option<Lease>,
    /// A Unix stream socket to use instead of TCP, whatever the URL's host (LXD's /dev/lxd/sock).
    pub socket: Option<PathBuf>,
}

impl Uplink {
    /// The system's own routes and resolver.
    pub fn system() -> Self {
        Uplink {
            link: None,
            index: 0,
            reach: Reach::Ipv4,
            dns: Vec::new(),
            search: Vec::new(),
            lease: None,
            socket: None,
        }
    }

    /// An uplink over one link.
    pub fn of(link: &str, index: u32, reach: Reach) -> Self {
        Uplink { link: Some(link.into()), index, reach, ..Uplink::system() }
    }

    /// HTTP over the Unix stream socket at `path`.
    pub fn socket(path: &Path) -> Self {
        Uplink { socket: Some(path.into()), ..Uplink::system() }
    }

    /// Whether the host of `url` may be reachable. A host name is never on the link itself.
    pub fn reaches(&self, url: &str) -> bool {
        if self.socket.is_some() {
            return true;
        }
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let Some(six) = authority.strip_prefix('[') else {
            let host = authority.split(':').next().unwrap_or_default();
            let four = host.parse::<Ipv4Addr>().is_ok();
            return self.reach == Reach::Ipv4 || (self.reach == Reach::Ipv6Routed && !four);
        };
        let (address, zone) = six.split(']').next().map(|a| a.split_once('%').unwrap_or((a, ""))).unwrap_or_default();
        let zone = zone.strip_prefix("25").unwrap_or(zone);
        let Ok(address) = address.parse::<Ipv6Addr>() else { return false };
        let here = zone.is_empty() || self.link.as_deref() == Some(zone);
        match self.reach {
            Reach::Ipv6LinkLocal => address.is_unicast_link_local() && here,
            Reach::Ipv6Routed => !address.is_unicast_link_local(),
            Reach::Ipv4 => self.link.is_none() && !address.is_unicast_link_local(),
        }
    }

    /// The name in messages: the link's, `network`, or the socket's path.
    pub fn name(&self) -> String {
        match (&self.link, &self.socket) {
            (Some(link), _) => link.clone(),
            (None, Some(socket)) => socket.display().to_string(),
            (None, None) => "network".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_uplink_reaches_its_own_scope() {
        let [four, link, routed] = Reach::ALL.map(|r| Uplink::of("eth0", 2, r));
        let reached = |url: &str| [&four, &link, &routed, &Uplink::system()].map(|u| u.reaches(url));
        assert_eq!(reached("http://169.254.169.254/openstack"), [true, false, false, true]);
        assert_eq!(reached("http://[fe80::a9fe:a9fe]"), [false, true, false, false]);
        assert_eq!(reached("http://[fe80::a9fe:a9fe%25eth0]/"), [false, true, false, false]);
        assert_eq!(reached("http://[fe80::a9fe:a9fe%25eth1]/"), [false; 4]);
        assert_eq!(reached("http://[fd00:ec2::254]:80/"), [false, false, true, true]);
        assert_eq!(reached("https://user:pw@seed.example.org:8443/"), [true, false, true, true]);
        assert!(Uplink::socket(Path::new("/dev/lxd/sock")).reaches("http://lxd/1.0"));
    }
}
