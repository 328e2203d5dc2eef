//! The machine's links and addresses, kept up to date by the kernel's events.

use super::netlink::{Address, Event, Events, Link, Netlink, next};
use crate::base::error::Result;
use crate::machine::beneath;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::rc::Rc;
use tokio::sync::watch;

/// The most advertised name servers that are kept.
const MAX_SERVERS6: usize = 64;

/// The current links and addresses. Clones share them.
#[derive(Clone)]
pub struct LinkTable {
    state: Rc<RefCell<State>>,
    changed: watch::Receiver<()>,
}

#[derive(Default)]
struct State {
    /// By index.
    links: Vec<Link>,
    addresses: Vec<Address>,
    /// The indexes of links that lead to an IPv6 router.
    routers6: Vec<u32>,
    /// Name servers that routers have advertised, with the index of the link.
    servers6: Vec<(u32, IpAddr)>,
}

impl LinkTable {
    /// Reads the current state and follows events from now on. Must be called in a tokio LocalSet.
    pub async fn follow(netlink: &Netlink, mut events: Events) -> Result<Self> {
        let (sender, changed) = watch::channel(());
        let links = LinkTable { state: Rc::default(), changed };
        links.read(netlink).await?;
        let (follower, netlink) = (links.clone(), netlink.clone());
        tokio::task::spawn_local(async move {
            while let Some(event) = next(&mut events).await {
                if event == Event::Lost {
                    if let Err(e) = follower.read(&netlink).await {
                        log::warn!("{e}");
                    }
                } else {
                    follower.state.borrow_mut().apply(event);
                }
                let _ = sender.send(());
            }
        });
        Ok(links)
    }

    /// Reads everything again.
    pub async fn read(&self, netlink: &Netlink) -> Result<()> {
        let (mut links, addresses, routers6) =
            (netlink.links().await?, netlink.addresses().await?, netlink.routers6().await);
        links.sort_by_key(|l| l.index);
        links.dedup_by_key(|l| l.index);
        let mut state = self.state.borrow_mut();
        (state.links, state.addresses, state.routers6) = (links, addresses, routers6);
        Ok(())
    }

    /// All links, by index.
    pub fn links(&self) -> Vec<Link> {
        self.state.borrow().links.clone()
    }

    /// The link with this name.
    pub fn named(&self, name: &str) -> Option<Link> {
        self.state.borrow().links.iter().find(|l| l.name == name).cloned()
    }

    /// Whether the link has carrier.
    pub fn has_carrier(&self, index: u32) -> bool {
        let state = self.state.borrow();
        state.place(index).ok().and_then(|at| state.links.get(at)).is_some_and(|l| l.up && l.carrier)
    }

    /// Whether the link has a configured address: one that the kernel did not add by itself.
    pub fn has_address(&self, index: u32) -> bool {
        self.address(index, |ip| !link_local6(ip))
    }

    /// Whether the link has an IPv4 address other than 169.254/16 and loopback.
    pub fn has_global_ipv4(&self, index: u32) -> bool {
        self.address(index, |ip| matches!(ip, IpAddr::V4(ip) if !ip.is_link_local() && !ip.is_loopback()))
    }

    /// Whether the link has a link-local IPv6 address that can be used.
    pub fn has_link_local_ipv6(&self, index: u32) -> bool {
        self.address(index, link_local6)
    }

    /// Whether the link has an IPv6 default route: from a router advertisement, or by the program that configured it.
    pub fn has_ipv6_router(&self, index: u32) -> bool {
        self.state.borrow().routers6.contains(&index)
    }

    /// Whether the link has an IPv6 address that is used beyond the link.
    pub fn has_global_ipv6(&self, index: u32) -> bool {
        self.address(index, |ip| ip.is_ipv6() && !link_local6(ip))
    }

    /// The name servers that routers have advertised on the link.
    pub fn name_servers6(&self, index: u32) -> Vec<IpAddr> {
        self.state.borrow().servers6.iter().filter(|(of, _)| *of == index).map(|(_, server)| *server).collect()
    }

    fn address(&self, index: u32, wanted: impl Fn(IpAddr) -> bool) -> bool {
        self.state.borrow().addresses.iter().any(|a| a.index == index && !a.tentative && wanted(a.address))
    }

    /// Waits until `condition` holds.
    pub async fn wait_until(&self, condition: impl Fn(&LinkTable) -> bool) {
        let mut changed = self.changed.clone();
        while !condition(self) {
            if changed.changed().await.is_err() {
                // There will be no more events, so that only the caller's deadline ends the wait.
                std::future::pending::<()>().await;
            }
        }
    }
}

fn link_local6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip))
}

impl State {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Lost => {}
            Event::Link(link) => match self.place(link.index) {
                Ok(at) => drop(self.links.splice(at..=at, [link])),
                Err(at) => self.links.insert(at, link),
            },
            Event::LinkGone(index) => {
                self.links.retain(|l| l.index != index);
                self.routers6.retain(|i| *i != index);
                self.servers6.retain(|(i, _)| *i != index);
                self.addresses.retain(|a| a.index != index);
            }
            Event::Address(address) => {
                self.forget(address);
                self.addresses.push(address);
            }
            Event::AddressGone(address) => self.forget(address),
            Event::DefaultRoute6(index) if self.routers6.contains(&index) => {}
            Event::DefaultRoute6(index) => self.routers6.push(index),
            Event::NameServers6(index, servers) => {
                for server in servers.into_iter().map(|server| (index, server)) {
                    if !self.servers6.contains(&server) && self.servers6.len() < MAX_SERVERS6 {
                        self.servers6.push(server);
                    }
                }
            }
        }
    }

    /// The position of the link with this index; an error has the position to insert it at.
    fn place(&self, index: u32) -> std::result::Result<usize, usize> {
        self.links.binary_search_by_key(&index, |l| l.index)
    }

    fn forget(&mut self, address: Address) {
        self.addresses.retain(|a| a.index != address.index || a.address != address.address);
    }
}

/// Which kinds of links may be raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    Devices,
    /// Virtual links too: those that the kernel command line asks for, and a test's.
    Virtual,
}

/// Why a link must not be changed. None if it may be raised: an Ethernet device that is down, without an
/// address, not a port of another link, and not virtual.
///
/// `addressed`: whether it has an address.
pub fn why_unusable(link: &Link, addressed: bool, allowed: Allowed, sys: &Path) -> Option<&'static str> {
    let has = |name: &str| beneath::exists(sys, &format!("class/net/{}/{name}", link.name));
    let rules = [
        (!link.ethernet || link.mac.is_none(), "not Ethernet"),
        (link.enslaved, "part of another link"),
        (link.up, "up already"),
        (addressed, "has an address already"),
        (allowed == Allowed::Devices && (link.software || !has("device")), "not a device"),
        // A wireless link has no carrier before it has joined a network.
        (has("wireless") || has("phy80211"), "wireless"),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    fn link() -> Link {
        Link::idle(2, "eth0", 1)
    }

    #[test]
    fn only_idle_devices_are_touched() {
        let sys = TempDir::new("sys");
        std::fs::create_dir_all(sys.0.join("class/net/eth0/device")).unwrap();
        assert_eq!(why_unusable(&link(), false, Allowed::Devices, &sys.0), None);
        assert!(why_unusable(&link(), true, Allowed::Devices, &sys.0).is_some());
        assert!(why_unusable(&Link { up: true, ..link() }, false, Allowed::Devices, &sys.0).is_some());
        assert!(why_unusable(&Link { ethernet: false, ..link() }, false, Allowed::Devices, &sys.0).is_some());
        assert!(why_unusable(&Link { enslaved: true, ..link() }, false, Allowed::Virtual, &sys.0).is_some());
        let veth = Link { name: "veth0".into(), software: true, ..link() };
        assert!(why_unusable(&veth, false, Allowed::Devices, &sys.0).is_some());
        assert_eq!(why_unusable(&veth, false, Allowed::Virtual, &sys.0), None);
        std::fs::create_dir_all(sys.0.join("class/net/eth0/phy80211")).unwrap();
        assert_eq!(why_unusable(&link(), false, Allowed::Devices, &sys.0), Some("wireless"));
    }
}
