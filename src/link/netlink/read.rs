//! Parses the kernel's messages.

use super::message::{self, Message};
use super::{Address, Event, Link};
use nix::libc;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressFlags, AddressHeader};
use rtnetlink::packet_route::link::{LinkFlags, LinkHeader, LinkLayerType};
use rtnetlink::packet_route::route::RouteHeader;
use std::net::IpAddr;

/// The option of a router advertisement that names name servers.
const RDNSS: u8 = 25;

/// The event in a message; None for messages that do not matter here.
pub fn event(message: NetlinkMessage<Message>) -> Option<Event> {
    let message = match message.payload {
        NetlinkPayload::InnerMessage(message) => message,
        NetlinkPayload::Overrun(_) => return Some(Event::Lost),
        _ => return None,
    };
    match message.kind {
        libc::RTM_NEWLINK => link(&message).map(Event::Link),
        libc::RTM_DELLINK => message.header(LinkHeader::parse).map(|header| Event::LinkGone(header.index)),
        libc::RTM_NEWADDR => address(&message).map(Event::Address),
        libc::RTM_DELADDR => address(&message).map(Event::AddressGone),
        libc::RTM_NEWROUTE => default_route6(&message).map(Event::DefaultRoute6),
        libc::RTM_NEWNDUSEROPT => name_servers6(&message),
        _ => None,
    }
}

/// A link. None for messages about a bridge's ports, which describe a link a second time and only in part.
pub fn link(message: &Message) -> Option<Link> {
    let header = message.header(LinkHeader::parse)?;
    let flags = header.flags;
    let mut link = Link {
        index: header.index,
        name: String::new(),
        alternatives: Vec::new(),
        mac: None,
        ethernet: header.link_layer_type == LinkLayerType::Ether && !flags.contains(LinkFlags::Loopback),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        enslaved: flags.contains(LinkFlags::Port),
        software: false,
        mtu: 0,
    };
    for (kind, value) in message.attributes(&header) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value)?,
            libc::IFLA_PROP_LIST => {
                let names = message::attributes(value).filter(|(kind, _)| *kind == libc::IFLA_ALT_IFNAME);
                link.alternatives = names.filter_map(|(_, name)| text(name)).collect();
            }
            libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
            libc::IFLA_MASTER => link.enslaved |= number(value)? != 0,
            libc::IFLA_MTU => link.mtu = number(value)?,
            libc::IFLA_LINKINFO => {
                link.software |= message::attributes(value).any(|(kind, _)| kind == libc::IFLA_INFO_KIND);
            }
            _ => {}
        }
    }
    (!link.name.is_empty() && header.interface_family == AddressFamily::Unspec).then_some(link)
}

/// An address.
pub fn address(message: &Message) -> Option<Address> {
    let header = message.header(AddressHeader::parse)?;
    let mut flags = AddressFlags::from_bits_retain(u32::from(header.flags.bits()));
    let (mut peer, mut local) = (None, None);
    for (kind, value) in message.attributes(&header) {
        match kind {
            libc::IFA_ADDRESS => peer = Some(ip(value)?),
            libc::IFA_LOCAL => local = Some(ip(value)?),
            libc::IFA_FLAGS => {
                flags |= AddressFlags::from_bits_retain(number(value)?);
            }
            _ => {}
        }
    }
    let (address, prefix) = (local.or(peer)?, header.prefix_len);
    // Programs that handle router advertisements themselves keep the kernel from adding a route for each
    // address.
    let advertised = !flags.intersects(AddressFlags::Permanent | AddressFlags::Noprefixroute) && prefix == 64;
    let automatic = matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local() || advertised);
    let tentative = flags.contains(AddressFlags::Tentative);
    Some(Address { index: header.index, address, prefix, tentative, automatic })
}

/// The link of an IPv6 default route. None for other routes.
pub fn default_route6(message: &Message) -> Option<u32> {
    let header = message.header(RouteHeader::parse)?;
    if header.address_family != AddressFamily::Inet6 || header.destination_prefix_length != 0 {
        return None;
    }
    message.attributes(&header).find_map(|(kind, value)| if kind == libc::RTA_OIF { number(value) } else { None })
}

/// The name servers in options of a router advertisement, which the kernel passes on (struct nduseroptmsg; RFC 8106, section 5.1).
fn name_servers6(message: &Message) -> Option<Event> {
    message.header(|bytes| Ok(options(bytes))).flatten()
}

fn options(bytes: &[u8]) -> Option<Event> {
    let (header, mut options) = bytes.split_first_chunk::<16>()?;
    let [_, _, l0, l1, index @ .., _, _, _, _, _, _, _, _] = *header;
    options = options.get(..usize::from(u16::from_ne_bytes([l0, l1])))?;
    let mut servers = Vec::new();
    while let [kind, length, ..] = *options
        && length > 0
    {
        let (option, rest) = options.split_at_checked(usize::from(length) * 8)?;
        if kind == RDNSS {
            // A withdrawn server has no time left.
            let (_, addresses) = option.split_at_checked(8).filter(|(head, _)| !head.ends_with(&[0; 4]))?;
            servers.extend(addresses.chunks_exact(16).filter_map(ip));
        }
        options = rest;
    }
    Some(Event::NameServers6(u32::from_ne_bytes(index), servers))
}

fn text(value: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(value).ok()?.trim_end_matches('\0').to_owned())
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(value).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::message::nested;
    use super::*;

    fn eth0() -> Message {
        let header = LinkHeader {
            index: 2,
            link_layer_type: LinkLayerType::Ether,
            flags: LinkFlags::Up | LinkFlags::LowerUp,
            ..Default::default()
        };
        Message::new(libc::RTM_NEWLINK, &header)
            .with(libc::IFLA_IFNAME, b"eth0\0")
            .with(libc::IFLA_MTU, &1500u32.to_ne_bytes())
            .with(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1])
    }

    fn told(message: Message) -> Option<Event> {
        event(NetlinkMessage::from(message))
    }

    #[test]
    fn name_servers_of_a_router() {
        let server = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
        let message = |lifetime: u8, length: u8| {
            let mut bytes = vec![10, 0, 32, 0, 7, 0, 0, 0, 134, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend([31, 1, 0, 0, 0, 0, 0, 0, 25, length, 0, 0, 0, 0, 0, lifetime]);
            bytes.extend(server);
            bytes
        };
        let read = |bytes: &[u8]| options(bytes);
        assert_eq!(read(&message(9, 3)), Some(Event::NameServers6(7, vec![IpAddr::from(server)])));
        for bad in [message(0, 3), message(9, 4)] {
            assert_eq!(read(&bad), None);
        }
        for len in 0..message(9, 3).len() {
            assert_eq!(read(&message(9, 3)[..len]), None);
        }
        assert_eq!(read(&message(9, 0)), Some(Event::NameServers6(7, Vec::new())));
    }

    #[test]
    fn links() {
        let mut expected = Link {
            index: 2,
            name: "eth0".into(),
            alternatives: Vec::new(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            ethernet: true,
            up: true,
            carrier: true,
            enslaved: false,
            software: false,
            mtu: 1500,
        };
        assert_eq!(told(eth0()), Some(Event::Link(expected.clone())));
        let kind = nested(&[(libc::IFLA_INFO_KIND, b"veth\0")]);
        expected.software = true;
        expected.enslaved = true;
        expected.alternatives = vec!["enp0s3".into(), "ens3".into()];
        let names = nested(&[(libc::IFLA_ALT_IFNAME, b"enp0s3\0"), (libc::IFLA_ALT_IFNAME, b"ens3\0")]);
        let port = eth0()
            .with(libc::IFLA_PROP_LIST, &names)
            .with(libc::IFLA_LINKINFO, &kind)
            .with(libc::IFLA_MASTER, &5u32.to_ne_bytes());
        assert_eq!(told(port), Some(Event::Link(expected)));
        assert_eq!(told(eth0().with(libc::IFLA_MTU, &[1])), None);
        let bridge = LinkHeader { interface_family: AddressFamily::Bridge, index: 2, ..Default::default() };
        assert_eq!(told(Message::new(libc::RTM_NEWLINK, &bridge).with(libc::IFLA_IFNAME, b"eth0\0")), None);
        assert_eq!(told(Message::new(libc::RTM_DELLINK, &bridge)), Some(Event::LinkGone(2)));
    }

    #[test]
    fn damaged_messages_are_read_or_refused() {
        let kind = nested(&[(libc::IFLA_INFO_KIND, b"veth\0")]);
        let names = nested(&[(libc::IFLA_ALT_IFNAME, b"enp0s3\0"), (libc::IFLA_ALT_IFNAME, b"ens3\0")]);
        let mut message =
            NetlinkMessage::from(eth0().with(libc::IFLA_PROP_LIST, &names).with(libc::IFLA_LINKINFO, &kind));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        assert!(NetlinkMessage::<Message>::deserialize(&bytes).is_ok_and(|message| event(message).is_some()));
        crate::base::testing::mutations(&bytes, 2000, |bytes| {
            let _ = NetlinkMessage::<Message>::deserialize(bytes).map(event);
        });
    }

    #[test]
    fn addresses_and_routes() {
        let header = AddressHeader { family: AddressFamily::Inet6, prefix_len: 64, index: 2, ..Default::default() };
        let six = std::net::Ipv6Addr::from_bits(1 << 125 | 3).octets();
        let new = Message::new(libc::RTM_NEWADDR, &header).with(libc::IFA_ADDRESS, &six);
        let mut address = Address { automatic: true, ..Address::new(2, six.into(), 64) };
        assert_eq!(told(new.clone()), Some(Event::Address(address)));
        address.tentative = true;
        let flags = AddressFlags::Tentative.bits().to_ne_bytes();
        assert_eq!(told(new.clone().with(libc::IFA_FLAGS, &flags)), Some(Event::Address(address)));
        let flags = (AddressFlags::Tentative | AddressFlags::Permanent).bits().to_ne_bytes();
        address.automatic = false;
        assert_eq!(told(new.clone().with(libc::IFA_FLAGS, &flags)), Some(Event::Address(address)));
        address.address = [10, 0, 0, 1].into();
        let peer = new.with(libc::IFA_LOCAL, &[10, 0, 0, 1]).with(libc::IFA_FLAGS, &flags);
        assert_eq!(told(peer), Some(Event::Address(address)));

        let header = RouteHeader { address_family: AddressFamily::Inet6, ..Default::default() };
        let route = Message::new(libc::RTM_NEWROUTE, &header).with(libc::RTA_OIF, &2u32.to_ne_bytes());
        assert_eq!(told(route), Some(Event::DefaultRoute6(2)));
        let header = RouteHeader { destination_prefix_length: 64, ..header };
        assert_eq!(told(Message::new(libc::RTM_NEWROUTE, &header).with(libc::RTA_OIF, &[2, 0, 0, 0])), None);
    }
}
