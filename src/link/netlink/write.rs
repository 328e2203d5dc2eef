//! The messages that are sent to the kernel.

use super::message::{Message, nested};
use super::{Address, Kind, Route};
use nix::libc;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressHeader;
use rtnetlink::packet_route::link::{LinkFlags, LinkHeader};
use rtnetlink::packet_route::route::{RouteFlags, RouteHeader, RouteProtocol, RouteScope, RouteType};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The attribute of a VLAN with its id (linux/if_link.h).
const IFLA_VLAN_ID: u16 = 1;
/// Messages that add and remove link properties (linux/rtnetlink.h).
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;
/// The flag of a nested attribute (linux/netlink.h), which the kernel requires for newer ones.
const NESTED: u16 = 0x8000;

/// Sets a link up or down.
pub fn set_up(index: u32, up: bool) -> Message {
    let flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    let header = LinkHeader { index, flags, change_mask: LinkFlags::Up, ..Default::default() };
    Message::new(libc::RTM_SETLINK, &header)
}

/// A message about the link `index`; 0 for one that does not exist yet.
pub fn link(kind: u16, index: u32) -> Message {
    Message::new(kind, &LinkHeader { index, ..Default::default() })
}

/// Adds or removes an alternative name of a link.
pub fn alternative_name(index: u32, name: &str, add: bool) -> Message {
    let names = nested(&[(libc::IFLA_ALT_IFNAME, &text(name))]);
    link(if add { RTM_NEWLINKPROP } else { RTM_DELLINKPROP }, index).with(libc::IFLA_PROP_LIST | NESTED, &names)
}

/// Creates a link.
pub fn make(name: &str, kind: Kind) -> Message {
    let mut message = link(libc::RTM_NEWLINK, 0).with(libc::IFLA_IFNAME, &text(name));
    let info = match kind {
        Kind::Bond => nested(&[(libc::IFLA_INFO_KIND, &text("bond"))]),
        Kind::Bridge => nested(&[(libc::IFLA_INFO_KIND, &text("bridge"))]),
        Kind::Vlan { parent, id } => {
            message = message.with(libc::IFLA_LINK, &parent.to_ne_bytes());
            let data = nested(&[(IFLA_VLAN_ID, &id.to_ne_bytes())]);
            nested(&[(libc::IFLA_INFO_KIND, &text("vlan")), (libc::IFLA_INFO_DATA, &data)])
        }
    };
    message.with(libc::IFLA_LINKINFO, &info)
}

/// Adds or removes an address.
///
/// # Errors
/// `InvalidInput`: no link can have the address.
pub fn address(address: Address, add: bool) -> io::Result<Message> {
    let Address { index, address, prefix: prefix_len, .. } = address;
    if address.is_multicast() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let header = AddressHeader { family: family(address), prefix_len, index, ..Default::default() };
    let kind = if add { libc::RTM_NEWADDR } else { libc::RTM_DELADDR };
    let ip = octets(address);
    let mut message = Message::new(kind, &header).with(libc::IFA_ADDRESS, &ip).with(libc::IFA_LOCAL, &ip);
    if let IpAddr::V4(ip) = address
        && prefix_len < 31
    {
        let broadcast = Ipv4Addr::from_bits(ip.to_bits() | u32::MAX >> prefix_len);
        message = message.with(libc::IFA_BROADCAST, &broadcast.octets());
    }
    Ok(message)
}

/// Asks for all IPv6 routes.
pub fn routes6() -> Message {
    Message::new(libc::RTM_GETROUTE, &RouteHeader { address_family: AddressFamily::Inet6, ..Default::default() })
}

/// Adds or removes a route. The gateway need not be in the link's own network.
///
/// # Errors
/// `InvalidInput`: the address families differ, or the prefix is too long.
pub fn route(route: Route, add: bool) -> io::Result<Message> {
    let Route { index, destination, prefix, gateway, metric } = route;
    let (family, bits) = (family(destination), if destination.is_ipv4() { 32 } else { 128 });
    if prefix > bits || gateway.is_some_and(|g| g.is_ipv4() != destination.is_ipv4()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut header = RouteHeader {
        address_family: family,
        destination_prefix_length: prefix,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        kind: RouteType::Unicast,
        ..Default::default()
    };
    if gateway.is_none() && destination.is_ipv4() {
        header.scope = RouteScope::Link;
    }
    if gateway.is_some() && add {
        header.flags = RouteFlags::Onlink;
    }
    let mut message = Message::new(if add { libc::RTM_NEWROUTE } else { libc::RTM_DELROUTE }, &header)
        .with(libc::RTA_DST, &octets(destination))
        .with(libc::RTA_OIF, &index.to_ne_bytes())
        .with(libc::RTA_PRIORITY, &metric.to_ne_bytes());
    if let Some(gateway) = gateway {
        message = message.with(libc::RTA_GATEWAY, &octets(gateway));
    }
    Ok(message)
}

/// IPPROTO_TCP.
pub const TCP: u8 = 6;

/// The family of an address.
pub fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// A string as the kernel expects it: with a NUL at its end.
pub fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// The bytes of an address.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_core::{Emitable, NetlinkSerializable};
    use rtnetlink::{
        AddressMessageBuilder, LinkBond, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVlan, RouteMessageBuilder,
    };
    use std::net::Ipv6Addr;

    /// Byte for byte what rtnetlink's own builder makes.
    #[track_caller]
    fn same(ours: &Message, kind: u16, theirs: &impl Emitable) {
        let mut expected = vec![0; theirs.buffer_len()];
        theirs.emit(&mut expected);
        let mut bytes = vec![0; ours.buffer_len()];
        ours.serialize(&mut bytes);
        assert_eq!((ours.kind, bytes), (kind, expected));
    }

    #[test]
    fn links() {
        let unspec = || LinkUnspec::new_with_index(7);
        let set = |attribute, value: &[u8]| link(libc::RTM_SETLINK, 7).with(attribute, value);
        same(&set_up(7, true), 19, &unspec().up().build());
        same(&set_up(7, false), 19, &unspec().down().build());
        same(&set(libc::IFLA_IFNAME, &text("net0")), 19, &unspec().name("net0").build());
        same(&set(libc::IFLA_MTU, &9000u32.to_ne_bytes()), 19, &unspec().mtu(9000).build());
        same(&set(libc::IFLA_ADDRESS, &[2; 6]), 19, &unspec().address(vec![2; 6]).build());
        same(&set(libc::IFLA_MASTER, &3u32.to_ne_bytes()), 19, &unspec().controller(3).build());
        same(&link(libc::RTM_DELLINK, 7), 17, &unspec().build());
        same(&link(libc::RTM_GETLINK, 0), 18, &LinkUnspec::new_with_index(0).build());
        same(&make("bond0", Kind::Bond), 16, &LinkBond::new("bond0").build());
        same(&make("br0", Kind::Bridge), 16, &LinkMessageBuilder::<LinkBridge>::new("br0").build());
        same(&make("v42", Kind::Vlan { parent: 3, id: 42 }), 16, &LinkVlan::new("v42", 3, 42).build());
    }

    #[test]
    fn addresses() {
        let at = |ip: &str, prefix| Address::new(7, ip.parse().unwrap(), prefix);
        for (ip, prefix) in [("10.1.2.3", 24), ("10.1.2.3", 0), ("10.1.2.3", 30), ("10.1.2.3", 31), ("10.1.2.3", 32)] {
            let builder = AddressMessageBuilder::<Ipv4Addr>::new().address(ip.parse().unwrap(), prefix).index(7);
            same(&address(at(ip, prefix), true).unwrap(), 20, &builder.build());
        }
        let builder = AddressMessageBuilder::<Ipv6Addr>::new().address("fd00::3".parse().unwrap(), 64).index(7);
        same(&address(at("fd00::3", 64), false).unwrap(), 21, &builder.build());
        for multicast in ["224.0.0.1", "ff02::1"] {
            assert!(address(at(multicast, 32), true).is_err());
        }
    }

    #[test]
    fn routes() {
        let to = |to: &str, prefix, gateway: Option<&str>| Route {
            index: 7,
            destination: to.parse().unwrap(),
            prefix,
            gateway: gateway.map(|g| g.parse().unwrap()),
            metric: 1024,
        };
        let builder = |to: Route| {
            let builder = RouteMessageBuilder::<IpAddr>::new().destination_prefix(to.destination, to.prefix).unwrap();
            builder.output_interface(to.index).priority(to.metric)
        };
        for four in [to("0.0.0.0", 0, Some("10.0.0.1")), to("fd00::", 8, Some("fe80::1"))] {
            let theirs = builder(four).gateway(four.gateway.unwrap()).unwrap();
            same(&route(four, true).unwrap(), 24, &theirs.clone().onlink().build());
            same(&route(four, false).unwrap(), 25, &theirs.build());
        }
        let link4 = to("169.254.169.254", 32, None);
        same(&route(link4, true).unwrap(), 24, &builder(link4).scope(RouteScope::Link).build());
        let link6 = to("::", 0, None);
        same(&route(link6, true).unwrap(), 24, &builder(link6).build());
        for wrong in [to("10.0.0.0", 33, None), to("fd00::", 129, None), to("::", 0, Some("10.0.0.1"))] {
            assert!(route(wrong, true).is_err());
        }
    }
}
