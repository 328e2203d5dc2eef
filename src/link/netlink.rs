//! rtnetlink: links, addresses and routes read, changed and watched.

use crate::error::{Context, Result};
use futures_core::Stream;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage as Message;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{
    AddressMessageBuilder, Handle, LinkMessageBuilder, LinkUnspec, MulticastGroup, RouteMessageBuilder,
    new_multicast_connection,
};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::{Pin, pin};

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Of six octets; None for a link of another kind.
    pub mac: Option<[u8; 6]>,
    /// ARPHRD_ETHER and no loopback.
    pub ethernet: bool,
    /// Administratively up.
    pub up: bool,
    pub carrier: bool,
    /// Part of a bond, bridge or team, or the hidden half of a fail-over pair.
    pub enslaved: bool,
    /// The kernel made it in software (veth, bridge, bond, vlan, …): IFLA_INFO_KIND is there.
    pub software: bool,
    pub mtu: u32,
}

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    /// IPv6: duplicate address detection has not ended, it cannot be used yet.
    pub tentative: bool,
}

/// A route by one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub index: u32,
    pub destination: IpAddr,
    pub prefix: u8,
    /// Of the destination's family. None: the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    pub metric: u32,
}

/// What the kernel told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More happened than the socket could hold: what is known has to be read anew.
    Lost,
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    /// An IPv6 default route by this link, from a router advertisement.
    DefaultRoute6(u32),
}

/// What happens, as it happens.
pub type Events = Pin<Box<dyn Stream<Item = Event>>>;

/// A connection to the kernel's network configuration. Wants a tokio runtime around it.
#[derive(Clone)]
pub struct Netlink(Handle);

impl Netlink {
    /// Opens the connection; its events start now. The connection's own work is spawned on the current runtime.
    pub fn open() -> Result<(Self, Events)> {
        let groups =
            [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr, MulticastGroup::Ipv6Route];
        let (connection, handle, messages) =
            new_multicast_connection(&groups).context(|| "failed to open rtnetlink: has the kernel a network?")?;
        tokio::spawn(connection);
        let events = Filter(Box::pin(messages));
        Ok((Netlink(handle), Box::pin(events)))
    }

    /// All links.
    pub async fn links(&self) -> Result<Vec<Link>> {
        let answers = self.ask(Message::GetLink(LinkMessage::default()), NLM_F_DUMP).await;
        let answers = answers.context(|| "failed to list network links")?;
        Ok(answers.iter().filter_map(|m| if let Message::NewLink(l) = m { read_link(l) } else { None }).collect())
    }

    /// All addresses of all links.
    pub async fn addresses(&self) -> Result<Vec<Address>> {
        let answers = self.ask(Message::GetAddress(AddressMessage::default()), NLM_F_DUMP).await;
        let answers = answers.context(|| "failed to list network addresses")?;
        Ok(answers.iter().filter_map(|m| if let Message::NewAddress(a) = m { read_address(a) } else { None }).collect())
    }

    /// Sets a link up or down.
    pub async fn set_up(&self, index: u32, up: bool) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(index);
        self.set(if up { link.up() } else { link.down() }).await
    }

    /// Gives a link another name; most kernels want it to be down.
    pub async fn rename(&self, index: u32, name: &str) -> io::Result<()> {
        self.set(LinkUnspec::new_with_index(index).name(name)).await
    }

    /// Sets a link's MTU.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        self.set(LinkUnspec::new_with_index(index).mtu(mtu)).await
    }

    /// Sets a link's hardware address.
    pub async fn set_mac(&self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        self.set(LinkUnspec::new_with_index(index).address(mac.to_vec())).await
    }

    /// Makes a link part of a bond or bridge; index 0 takes it out.
    pub async fn set_controller(&self, index: u32, controller: u32) -> io::Result<()> {
        self.set(LinkUnspec::new_with_index(index).controller(controller)).await
    }

    async fn set(&self, link: LinkMessageBuilder<LinkUnspec>) -> io::Result<()> {
        self.ask(Message::SetLink(link.build()), NLM_F_ACK).await.map(drop)
    }

    /// Makes a link (a bond, bridge or VLAN).
    pub async fn make(&self, link: LinkMessage) -> io::Result<()> {
        self.ask(Message::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await.map(drop)
    }

    /// Removes a link that was made.
    pub async fn remove(&self, index: u32) -> io::Result<()> {
        self.ask(Message::DelLink(LinkUnspec::new_with_index(index).build()), NLM_F_ACK).await.map(drop)
    }

    /// Adds an address, or takes it away.
    pub async fn address(&self, address: Address, add: bool) -> io::Result<()> {
        let message = match address.address {
            IpAddr::V4(ip) => AddressMessageBuilder::<Ipv4Addr>::new().address(ip, address.prefix).index(address.index),
            IpAddr::V6(ip) => {
                let message = AddressMessageBuilder::<Ipv6Addr>::new().address(ip, address.prefix);
                return self.change_address(message.index(address.index).build(), add).await;
            }
        };
        self.change_address(message.build(), add).await
    }

    async fn change_address(&self, message: AddressMessage, add: bool) -> io::Result<()> {
        if add {
            self.ask(Message::NewAddress(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await.map(drop)
        } else {
            self.ask(Message::DelAddress(message), NLM_F_ACK).await.map(drop)
        }
    }

    /// Adds a route, or takes it away. A gateway need not lie in the link's own network.
    pub async fn route(&self, route: Route, add: bool) -> io::Result<()> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(route.destination, route.prefix)
            .map_err(wrong)?
            .output_interface(route.index)
            .priority(route.metric);
        builder = match route.gateway {
            Some(gateway) => builder.gateway(gateway).map_err(wrong)?,
            None if route.destination.is_ipv4() => builder.scope(RouteScope::Link),
            None => builder,
        };
        if route.gateway.is_some() && add {
            builder = builder.onlink();
        }
        if add {
            self.ask(Message::NewRoute(builder.build()), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await.map(drop)
        } else {
            self.ask(Message::DelRoute(builder.build()), NLM_F_ACK).await.map(drop)
        }
    }

    /// One request and all its answers. The kernel answers at once; there is nothing to time.
    async fn ask(&self, message: Message, flags: u16) -> io::Result<Vec<Message>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        let mut handle = self.0.clone();
        let answers = handle.request(request).map_err(|_| io::Error::other("the rtnetlink connection is gone"))?;
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

/// The kernel's messages, those that say something here.
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
                    if let Some(event) = read_event(message) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn read_event(message: NetlinkMessage<Message>) -> Option<Event> {
    let message = match message.payload {
        NetlinkPayload::InnerMessage(message) => message,
        NetlinkPayload::Overrun(_) => return Some(Event::Lost),
        _ => return None,
    };
    match message {
        Message::NewLink(link) => read_link(&link).map(Event::Link),
        Message::DelLink(link) => Some(Event::LinkGone(link.header.index)),
        Message::NewAddress(address) => read_address(&address).map(Event::Address),
        Message::DelAddress(address) => read_address(&address).map(Event::AddressGone),
        Message::NewRoute(route) => default_route6(&route).map(Event::DefaultRoute6),
        _ => None,
    }
}

/// None for messages about a bridge's ports, which describe a link a second time and in part.
fn read_link(message: &LinkMessage) -> Option<Link> {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: None,
        ethernet: message.header.link_layer_type == LinkLayerType::Ether && !flags.contains(LinkFlags::Loopback),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        enslaved: flags.contains(LinkFlags::Port),
        software: false,
        mtu: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(mac) => link.mac = mac.as_slice().try_into().ok(),
            LinkAttribute::Controller(index) => link.enslaved |= *index != 0,
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::LinkInfo(info) => link.software |= info.iter().any(|i| matches!(i, LinkInfo::Kind(_))),
            _ => {}
        }
    }
    (!link.name.is_empty() && u8::from(message.header.interface_family) == 0).then_some(link)
}

fn read_address(message: &AddressMessage) -> Option<Address> {
    let mut tentative = message.header.flags.contains(AddressHeaderFlags::Tentative);
    let (mut peer, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => peer = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Flags(flags) => tentative |= flags.contains(AddressFlags::Tentative),
            _ => {}
        }
    }
    let address = local.or(peer)?;
    Some(Address { index: message.header.index, address, prefix: message.header.prefix_len, tentative })
}

fn default_route6(message: &RouteMessage) -> Option<u32> {
    let six = message.header.address_family == rtnetlink::packet_route::AddressFamily::Inet6;
    if !six || message.header.destination_prefix_length != 0 {
        return None;
    }
    message.attributes.iter().find_map(|a| if let RouteAttribute::Oif(index) = a { Some(*index) } else { None })
}

impl std::fmt::Display for Route {
    /// For messages: `169.254.169.254/32 via 10.0.0.2`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.destination, self.prefix)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))
    }
}
