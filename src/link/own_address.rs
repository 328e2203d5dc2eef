//! This machine's addresses: those of its links, and the source addresses by the running system's default routes. For the latter
//! nothing is sent: the kernel chooses the address when a datagram socket is connected.

use super::netlink::Netlink;
use crate::base::error::{Context, Result};
use std::net::{IpAddr, UdpSocket};

/// The IPv4 address of the default route; None without one.
pub fn ipv4() -> Option<String> {
    // 192.0.2.0/24 is for documentation (RFC 5737).
    of("0.0.0.0:0", "192.0.2.1:9")
}

/// The IPv6 address of the default route; None without one.
pub fn ipv6() -> Option<String> {
    // 2001:db8::/32 is for documentation (RFC 3849).
    of("[::]:0", "[2001:db8::1]:9")
}

fn of(any: &str, far: &str) -> Option<String> {
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

/// The addresses of a link.
#[derive(Debug, PartialEq, Eq)]
pub struct OfLink {
    /// Its hardware address: `00:50:56:00:00:01`.
    pub mac: String,
    /// With the length of the network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// The addresses that can be used of each link with a hardware address.
///
/// # Errors
/// There is no netlink.
pub fn of_links() -> Result<Vec<OfLink>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "failed to start the network runtime")?.block_on(async {
        let (netlink, _events) = Netlink::open()?;
        let (links, addresses) = (netlink.links().await?, netlink.addresses().await?);
        let links = links.into_iter().filter_map(|link| Some((link.index, link.mac.filter(|mac| *mac != [0; 6])?)));
        let of =
            |index| addresses.iter().filter(move |a| a.index == index && !a.tentative).map(|a| (a.address, a.prefix));
        let links = links.map(|(index, mac)| OfLink {
            mac: mac.map(|octet| format!("{octet:02x}")).join(":"),
            addresses: of(index).collect(),
        });
        Ok(links.collect())
    })
}
