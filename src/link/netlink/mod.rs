//! rtnetlink: reads, changes and watches links, addresses and routes. And nf_tables and policy rules, for what is closed to users.

mod exchange;
mod message;
mod read;
pub mod rules;
pub mod tables;
mod write;

pub use exchange::Exchange;

use crate::base::error::{Context, Result};
use futures_core::Stream;
use message::Message;
use nix::libc;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::AddressHeader;
use rtnetlink::proto::{ConnectionHandle, new_connection};
use rtnetlink::sys::{AsyncSocket, SocketAddr, protocols::NETLINK_ROUTE};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

/// How long an answer of the kernel's is waited for. It comes at once, but a driver may hold the lock of all links for seconds.
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Alternative names, which programs may use too.
    pub alternatives: Vec<String>,
    /// Its hardware address. None if that does not have six octets.
    pub mac: Option<[u8; 6]>,
    /// Whether it is ARPHRD_ETHER and not loopback.
    pub ethernet: bool,
    /// Administratively up.
    pub up: bool,
    pub carrier: bool,
    /// Whether it is part of a bond, bridge or team, or the hidden half of a failover pair.
    pub enslaved: bool,
    /// Whether it is virtual (veth, bridge, bond, vlan, …): it has IFLA_INFO_KIND.
    pub software: bool,
    pub mtu: u32,
}

#[cfg(test)]
impl Link {
    /// An Ethernet device as the kernel finds it; `octet` is the last octet of its address.
    pub fn idle(index: u32, name: &str, octet: u8) -> Link {
        Link {
            index,
            name: name.into(),
            alternatives: Vec::new(),
            mac: Some([2, 0, 0, 0, 0, octet]),
            ethernet: true,
            up: false,
            carrier: false,
            enslaved: false,
            software: false,
            mtu: 1500,
        }
    }
}

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    /// Whether duplicate address detection has not ended yet, so that it cannot be used (IPv6).
    pub tentative: bool,
    /// Whether the kernel added it: IPv6, link-local or from a router advertisement.
    pub automatic: bool,
}

impl Address {
    /// An address to be added or removed.
    pub fn new(index: u32, address: IpAddr, prefix: u8) -> Self {
        Address { index, address, prefix, tentative: false, automatic: false }
    }
}

/// A route over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub index: u32,
    pub destination: IpAddr,
    pub prefix: u8,
    /// Of the destination's family. None: the destination is on the link.
    pub gateway: Option<IpAddr>,
    pub metric: u32,
}

/// The event in a message of type `kind`, RTM_*, whose bytes after nlmsghdr are `payload`. None if it is of no interest here.
pub fn parse(kind: u16, payload: &[u8]) -> Option<Event> {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    let message = Message::deserialize(&header, payload).ok()?;
    read::event(NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message)))
}

/// A change that the kernel reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Events were lost because the socket was full: everything must be read again.
    Lost,
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    /// An IPv6 default route over this link, usually from a router advertisement.
    DefaultRoute6(u32),
    /// Name servers that a router on this link has advertised.
    NameServers6(u32, Vec<IpAddr>),
}

/// A stream of events.
pub type Events = Pin<Box<dyn Stream<Item = Event>>>;

/// A kind of virtual link to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bond,
    Bridge,
    Vlan { parent: u32, id: u16 },
}

/// A connection to the kernel's network configuration. Needs a tokio runtime.
#[derive(Clone)]
pub struct Netlink(ConnectionHandle<Message>);

impl Netlink {
    /// Opens the connection, whose events start now. Its background task is spawned on the current runtime.
    ///
    /// # Errors
    /// The kernel has no netlink, or the process no file descriptors left.
    pub fn open() -> Result<(Self, Events)> {
        use MulticastGroup::{Ipv4Ifaddr, Ipv6Ifaddr, Ipv6Route, Link, NdUseropt};
        let what = || "failed to open rtnetlink: has the kernel a network?";
        let groups =
            [Link, Ipv4Ifaddr, Ipv6Ifaddr, Ipv6Route, NdUseropt].iter().fold(0, |all, g| all | 1 << (*g as u32 - 1));
        let (mut connection, handle, messages) = new_connection(NETLINK_ROUTE).context(what)?;
        connection.socket_mut().socket_mut().bind(&SocketAddr::new(0, groups)).context(what)?;
        tokio::spawn(connection);
        let events = Filter(Box::pin(messages));
        Ok((Netlink(handle), Box::pin(events)))
    }

    /// All links.
    pub async fn links(&self) -> Result<Vec<Link>> {
        let answers = self.ask(write::link(libc::RTM_GETLINK, 0), NLM_F_DUMP).await;
        let answers = answers.context(|| "failed to list network links")?;
        Ok(answers.iter().filter(|m| m.kind == libc::RTM_NEWLINK).filter_map(read::link).collect())
    }

    /// All addresses of all links.
    pub async fn addresses(&self) -> Result<Vec<Address>> {
        let answers = self.ask(Message::new(libc::RTM_GETADDR, &AddressHeader::default()), NLM_F_DUMP).await;
        let answers = answers.context(|| "failed to list network addresses")?;
        Ok(answers.iter().filter(|m| m.kind == libc::RTM_NEWADDR).filter_map(read::address).collect())
    }

    /// The links with an IPv6 default route; none if the kernel has no IPv6.
    pub async fn routers6(&self) -> Vec<u32> {
        let answers = self.ask(write::routes6(), NLM_F_DUMP).await.unwrap_or_default();
        answers.iter().filter(|m| m.kind == libc::RTM_NEWROUTE).filter_map(read::default_route6).collect()
    }

    /// Sets a link up or down.
    pub async fn set_up(&self, index: u32, up: bool) -> io::Result<()> {
        self.change(write::set_up(index, up)).await
    }

    /// Renames a link; most kernels require it to be down.
    pub async fn rename(&self, index: u32, name: &str) -> io::Result<()> {
        self.set(index, libc::IFLA_IFNAME, &write::text(name)).await
    }

    /// Adds or removes an alternative name of a link.
    pub async fn alternative_name(&self, index: u32, name: &str, add: bool) -> io::Result<()> {
        let message = write::alternative_name(index, name, add);
        if add { self.add(message).await } else { self.change(message).await }
    }

    /// Sets a link's MTU.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        self.set(index, libc::IFLA_MTU, &mtu.to_ne_bytes()).await
    }

    /// Sets a link's hardware address.
    pub async fn set_mac(&self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        self.set(index, libc::IFLA_ADDRESS, &mac).await
    }

    /// Adds a link to a bond or bridge; with index 0, removes it.
    pub async fn set_controller(&self, index: u32, controller: u32) -> io::Result<()> {
        self.set(index, libc::IFLA_MASTER, &controller.to_ne_bytes()).await
    }

    async fn set(&self, index: u32, attribute: u16, value: &[u8]) -> io::Result<()> {
        self.change(write::link(libc::RTM_SETLINK, index).with(attribute, value)).await
    }

    /// Creates a link (a bond, bridge or VLAN), which is down.
    pub async fn make(&self, name: &str, kind: Kind) -> io::Result<()> {
        self.add(write::make(name, kind)).await
    }

    /// Removes a link that was created.
    pub async fn remove(&self, index: u32) -> io::Result<()> {
        self.change(write::link(libc::RTM_DELLINK, index)).await
    }

    /// Adds or removes an address.
    pub async fn address(&self, address: Address, add: bool) -> io::Result<()> {
        let message = write::address(address, add)?;
        if add { self.add(message).await } else { self.change(message).await }
    }

    /// Adds or removes a route. The gateway need not be in the link's own network.
    pub async fn route(&self, route: Route, add: bool) -> io::Result<()> {
        let message = write::route(route, add)?;
        if add { self.add(message).await } else { self.change(message).await }
    }

    /// Sends a request that fails if the object exists.
    async fn add(&self, message: Message) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await.map(drop)
    }

    async fn change(&self, message: Message) -> io::Result<()> {
        self.ask(message, NLM_F_ACK).await.map(drop)
    }

    /// Sends a request and collects the responses. The kernel answers at once, but drops its answer if events have filled the
    /// socket (netlink(7), ENOBUFS). A change whose answer is lost is assumed to be made: any wait for it has its own deadline.
    async fn ask(&self, message: Message, flags: u16) -> io::Result<Vec<Message>> {
        match tokio::time::timeout(ANSWER, self.answers(message, flags)).await {
            Ok(answers) => answers,
            Err(_) if flags == NLM_F_DUMP => Err(io::Error::other("the kernel's answer was lost")),
            Err(_) => {
                log::debug!("the kernel's answer to a change of the network was lost");
                Ok(Vec::new())
            }
        }
    }

    async fn answers(&self, message: Message, flags: u16) -> io::Result<Vec<Message>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        let answers = self
            .0
            .request(request, SocketAddr::new(0, 0))
            .map_err(|_| io::Error::other("the rtnetlink connection is gone"))?;
        let mut answers = pin!(answers);
        let mut found = Vec::new();
        while let Some(answer) = poll_fn(|cx| answers.as_mut().poll_next(cx)).await {
            match answer.payload {
                NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
                NetlinkPayload::InnerMessage(message) => found.push(message),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The next event; None once the connection is gone.
pub async fn next(events: &mut Events) -> Option<Event> {
    poll_fn(|cx| events.as_mut().poll_next(cx)).await
}

/// The kernel's messages that are events here.
struct Filter<S>(Pin<Box<S>>);

impl<S, A> Stream for Filter<S>
where
    S: Stream<Item = (NetlinkMessage<Message>, A)>,
{
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        use std::task::Poll;
        loop {
            match self.0.as_mut().poll_next(cx) {
                Poll::Ready(Some((message, _))) => {
                    if let Some(event) = read::event(message) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl std::fmt::Display for Route {
    /// For messages: `169.254.169.254/32 via 10.0.0.2`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.destination, self.prefix)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn does_not_wait_for_a_lost_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Nothing reads its socket: no answer ever comes.
            let (_connection, handle, _messages) = new_connection::<Message>(NETLINK_ROUTE).unwrap();
            let netlink = Netlink(handle);
            let started = Instant::now();
            let error = netlink.links().await.unwrap_err().to_string();
            assert_eq!(error, "failed to list network links: the kernel's answer was lost");
            netlink.set_up(1, true).await.unwrap();
            assert!(started.elapsed() < Duration::from_secs(30));
        });
    }
}
