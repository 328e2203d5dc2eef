//! A DHCP lease: address, routes, name servers, and the bytes of every option.

use super::packet::{DhcpMessage, Options, option};
use std::net::Ipv4Addr;

/// The most routes, servers or domains of one lease; the rest is ignored.
const MAX_ITEMS: usize = 64;
/// The smallest MTU that IPv4 allows (RFC 791); a smaller one is ignored, as by other Linux clients.
const MIN_MTU: u16 = 576;

/// A route of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRoute {
    pub destination: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
    /// None: the destination is on the link itself.
    pub gateway: Option<Ipv4Addr>,
}

/// An acknowledged lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    /// The name of the link; empty if unknown.
    pub link: String,
    pub address: Option<Ipv4Addr>,
    pub prefix: u8,
    pub broadcast: Option<Ipv4Addr>,
    /// Including the default route, with RFC 3442's precedence.
    pub routes: Vec<LeaseRoute>,
    pub dns: Vec<Ipv4Addr>,
    pub ntp: Vec<Ipv4Addr>,
    pub domain: String,
    pub search: Vec<String>,
    pub host_name: String,
    pub mtu: Option<u16>,
    /// The DHCP server's identifier (option 54).
    pub server: Option<Ipv4Addr>,
    /// The server of the next step of a network boot (siaddr).
    pub next_server: Option<Ipv4Addr>,
    /// How long the lease lasts, in seconds.
    pub seconds: u32,
    /// All options, those above included. The header's server and file names are under 66 and 67.
    pub options: Options,
}

impl Lease {
    /// The lease in an acknowledgement for `link`. None if it has no usable address.
    pub fn from_ack(link: &str, ack: &DhcpMessage) -> Option<Self> {
        Lease::new(link, ack.yiaddr, Some(ack.siaddr), ack.options().clone())
    }

    /// A lease of `address` with these options. None if no host can have the address, or if the netmask has gaps.
    pub fn new(link: &str, address: Ipv4Addr, next_server: Option<Ipv4Addr>, options: Options) -> Option<Self> {
        if !usable(address) {
            return None;
        }
        let get = |code: u8| options.get(code);
        let one = |code| addresses(get(code)).first().copied();
        let prefix = match one(option::SUBNET_MASK) {
            Some(mask) => prefix_of(mask)?,
            None => class_prefix(address),
        };
        Some(Lease {
            link: link.into(),
            address: Some(address),
            prefix,
            broadcast: one(option::BROADCAST),
            routes: routes(&options),
            dns: addresses(get(option::DNS)),
            ntp: addresses(get(option::NTP)),
            domain: name(get(option::DOMAIN_NAME)),
            search: search(get(option::DOMAIN_SEARCH).unwrap_or_default()),
            host_name: name(get(option::HOST_NAME)),
            mtu: number(get(option::INTERFACE_MTU)).map(u16::from_be_bytes).filter(|mtu| *mtu >= MIN_MTU),
            server: one(option::SERVER_ID),
            next_server: next_server.filter(|server| usable(*server)),
            seconds: number(get(option::LEASE_TIME)).map_or(u32::MAX, u32::from_be_bytes),
            options,
        })
    }

    /// The bytes of an option.
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        self.options.get(code)
    }

    /// An option that is one address, such as 245: Azure's wire server.
    pub fn address_option(&self, code: u8) -> Option<Ipv4Addr> {
        number::<4>(self.option(code)).map(Ipv4Addr::from)
    }

    /// An option that is text, without the NUL that some servers add.
    pub fn text_option(&self, code: u8) -> Option<String> {
        let text = std::str::from_utf8(self.option(code)?).ok()?.trim_end_matches('\0');
        Some(text.to_owned()).filter(|text| !text.is_empty() && !text.contains(char::is_control))
    }

    /// The router of the default route.
    pub fn router(&self) -> Option<Ipv4Addr> {
        self.routes.iter().find(|route| route.prefix == 0)?.gateway
    }

    /// Whether the lease has a route to `target`: by its own network, or by an option.
    pub fn reaches(&self, target: Ipv4Addr) -> bool {
        let own = self.address.is_some_and(|a| covers(a, self.prefix, target));
        own || self.routes.iter().any(|r| covers(r.destination, r.prefix, target))
    }

    /// Routes that reach `target` in 169.254/16 by the lease's router, for a link that has an address in that network. Empty if the
    /// lease has a narrower route to `target`.
    pub fn around_link_local(&self, target: Ipv4Addr) -> Vec<LeaseRoute> {
        let to_target = self.routes.iter().filter(|r| covers(r.destination, r.prefix, target));
        let best = to_target.max_by_key(|r| r.prefix).filter(|r| r.prefix <= 16);
        let Some(router) = best.and_then(|r| r.gateway) else { return Vec::new() };
        let halves = [Ipv4Addr::new(169, 254, 0, 0), Ipv4Addr::new(169, 254, 128, 0)];
        halves.map(|destination| LeaseRoute { destination, prefix: 17, gateway: Some(router) }).to_vec()
    }
}

fn covers(network: Ipv4Addr, prefix: u8, target: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    (u32::from(network) ^ u32::from(target)) & mask == 0
}

/// Whether an address can be a host's own.
fn usable(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback())
}

/// The prefix length of a netmask. None if its bits are not contiguous.
pub fn prefix_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = u32::from(mask);
    let ones = bits.leading_ones();
    (ones == bits.count_ones()).then_some(ones as u8)
}

/// The prefix length by address class, for servers and command lines without a mask.
pub fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}

fn number<const N: usize>(value: Option<&[u8]>) -> Option<[u8; N]> {
    value?.try_into().ok()
}

fn addresses(value: Option<&[u8]>) -> Vec<Ipv4Addr> {
    let (chunks, _) = value.unwrap_or_default().as_chunks::<4>();
    chunks.iter().take(MAX_ITEMS).map(|octets| Ipv4Addr::from(*octets)).collect()
}

/// A host or domain name; empty for anything that is not a valid name.
fn name(value: Option<&[u8]>) -> String {
    let text = String::from_utf8_lossy(value.unwrap_or_default());
    let text = text.trim_end_matches(['\0', '.']);
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if text.len() <= 253 && text.chars().all(good) { text.into() } else { String::new() }
}

/// The routes by RFC 3442: with option 121, options 3 and 33 are ignored. Option 249 is used if there is no
/// 121.
fn routes(options: &Options) -> Vec<LeaseRoute> {
    let get = |code: u8| options.get(code);
    for code in [option::CLASSLESS_ROUTES, option::MS_CLASSLESS_ROUTES] {
        if let Some(value) = get(code) {
            let routes = classless(value);
            if !routes.is_empty() {
                return routes;
            }
        }
    }
    let (pairs, _) = get(option::STATIC_ROUTES).unwrap_or_default().as_chunks::<8>();
    let mut routes: Vec<LeaseRoute> = pairs
        .iter()
        .take(MAX_ITEMS)
        .map(|[a, b, c, d, gateway @ ..]| {
            let destination = Ipv4Addr::new(*a, *b, *c, *d);
            let prefix = class_prefix(destination);
            // A destination with host bits is a host route: option 33 has no masks (RFC 2132, 5.8).
            let prefix = if network(destination, prefix) == destination { prefix } else { 32 };
            LeaseRoute { destination, prefix, gateway: gateway_of(Ipv4Addr::from(*gateway)) }
        })
        .filter(|r| !r.destination.is_unspecified())
        .collect();
    if let Some(router) = addresses(get(option::ROUTER)).first() {
        routes.push(LeaseRoute { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, gateway: gateway_of(*router) });
    }
    routes
}

fn gateway_of(address: Ipv4Addr) -> Option<Ipv4Addr> {
    (!address.is_unspecified()).then_some(address)
}

fn network(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    Ipv4Addr::from(u32::from(address) & mask)
}

/// Option 121: prefix length, the destination's significant octets, router. Reading stops at a malformed
/// entry.
fn classless(mut value: &[u8]) -> Vec<LeaseRoute> {
    let mut routes = Vec::new();
    while let [width @ 0..=32, rest @ ..] = value {
        let significant = usize::from(width.div_ceil(8));
        let Some((octets, rest)) = rest.split_at_checked(significant) else { break };
        let Some((gateway, rest)) = rest.split_first_chunk::<4>() else { break };
        let mut destination = [0; 4];
        destination.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
        routes.push(LeaseRoute {
            destination: network(destination.into(), *width),
            prefix: *width,
            gateway: gateway_of(Ipv4Addr::from(*gateway)),
        });
        if routes.len() == MAX_ITEMS {
            break;
        }
        value = rest;
    }
    routes
}

/// Option 119: domain names with compression, whose pointers are offsets into the option itself (RFC 3397,
/// RFC 1035 4.1.4).
fn search(value: &[u8]) -> Vec<String> {
    let mut domains = Vec::new();
    let mut at = 0;
    while at < value.len() && domains.len() < MAX_ITEMS {
        let Some((domain, next)) = domain_at(value, at) else { break };
        if !domain.is_empty() {
            domains.push(domain);
        }
        at = next;
    }
    domains
}

/// The name at `at` in `message`, and the offset after it. None for a malformed name or a loop of pointers. A
/// name that no host can have is returned empty.
pub fn domain_at(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut next = None;
    // A name has at most 127 labels (RFC 1035, 255 octets); anything longer is a loop.
    for _ in 0..128 {
        let len = usize::from(*message.get(at)?);
        match len {
            0 => return Some((name(Some(text.as_bytes())), next.unwrap_or(at + 1))),
            1..=63 => {
                let label = message.get(at + 1..at + 1 + len)?;
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&String::from_utf8_lossy(label));
                at += 1 + len;
            }
            0xc0.. => {
                next = next.or(Some(at + 2));
                at = (len & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::packet::Kind;
    use super::*;

    fn ack() -> DhcpMessage {
        let mut ack = DhcpMessage::new(Kind::Ack, 1, 0, [2, 0, 0, 0, 0, 1]);
        ack.yiaddr = Ipv4Addr::new(10, 1, 2, 3);
        ack
    }

    fn lease(ack: &DhcpMessage) -> Lease {
        Lease::from_ack("eth0", ack).unwrap()
    }

    #[test]
    fn classless_routes_override_the_router() {
        let routes = [
            32, 169, 254, 169, 254, 10, 1, 2, 2, // neutron's host route to the metadata service
            0, 10, 1, 2, 1, // default
            24, 192, 168, 9, 0, 0, 0, 0, // on the link
        ];
        let message = ack()
            .with(option::ROUTER, &[10, 1, 2, 254])
            .with(option::STATIC_ROUTES, &[1, 2, 3, 4, 10, 1, 2, 9])
            .with(option::CLASSLESS_ROUTES, &routes);
        let got = lease(&message);
        let expected = [
            ([169, 254, 169, 254], 32, Some(Ipv4Addr::new(10, 1, 2, 2))),
            ([0, 0, 0, 0], 0, Some(Ipv4Addr::new(10, 1, 2, 1))),
            ([192, 168, 9, 0], 24, None),
        ];
        let expected: Vec<_> =
            expected.map(|(d, prefix, gateway)| LeaseRoute { destination: d.into(), prefix, gateway }).into();
        assert_eq!(got.routes, expected);
        assert!(got.reaches(Ipv4Addr::new(169, 254, 169, 254)));
        let microsoft = ack().with(option::ROUTER, &[10, 1, 2, 254]).with(option::MS_CLASSLESS_ROUTES, &routes);
        assert_eq!(lease(&microsoft).routes, expected);
    }

    #[test]
    fn router_reaches_target_around_link_local_address() {
        let service = Ipv4Addr::new(169, 254, 169, 254);
        let by_router = lease(&ack().with(option::ROUTER, &[10, 1, 2, 254]));
        let around = by_router.around_link_local(service);
        let expected = [[169, 254, 0, 0], [169, 254, 128, 0]].map(Ipv4Addr::from);
        assert_eq!(around.iter().map(|r| r.destination).collect::<Vec<_>>(), expected);
        assert!(around.iter().all(|r| r.prefix == 17 && r.gateway == Some(Ipv4Addr::new(10, 1, 2, 254))));
        // A route of its own is narrower than the claimed network.
        let own_route = [32, 169, 254, 169, 254, 10, 1, 2, 2, 0, 10, 1, 2, 1];
        assert_eq!(lease(&ack().with(option::CLASSLESS_ROUTES, &own_route)).around_link_local(service), []);
        assert_eq!(lease(&ack()).around_link_local(service), []);
    }

    #[test]
    fn without_classless_routes_the_router_is_the_default() {
        let message = ack()
            .with(option::SUBNET_MASK, &[255, 255, 255, 0])
            .with(option::ROUTER, &[10, 1, 2, 254, 10, 1, 2, 253])
            .with(option::STATIC_ROUTES, &[192, 168, 7, 7, 10, 1, 2, 9]);
        let got = lease(&message);
        assert_eq!(got.prefix, 24);
        assert_eq!(got.routes[0].prefix, 32);
        assert_eq!(got.routes[1].gateway, Some(Ipv4Addr::new(10, 1, 2, 254)));
        assert!(
            !lease(&ack().with(option::SUBNET_MASK, &[255, 255, 255, 0])).reaches(Ipv4Addr::new(169, 254, 169, 254))
        );
    }

    #[test]
    fn the_rest_of_the_options() {
        let search = b"\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04";
        let message = ack()
            .with(option::HOST_NAME, b"node-1\0")
            .with(option::DOMAIN_NAME, b"example.org")
            .with(option::INTERFACE_MTU, &1442u16.to_be_bytes())
            .with(option::LEASE_TIME, &3600u32.to_be_bytes())
            .with(option::DNS, &[9, 9, 9, 9, 1, 1, 1, 1, 0])
            .with(option::NTP, &[10, 0, 0, 9])
            .with(option::BROADCAST, &[10, 255, 255, 255])
            .with(option::SERVER_ID, &[10, 0, 0, 1])
            .with(option::AZURE_ENDPOINT, &[168, 63, 129, 16])
            .with(option::DOMAIN_SEARCH, search);
        let got = lease(&message);
        assert_eq!(got.host_name, "node-1");
        assert_eq!(got.domain, "example.org");
        assert_eq!((got.mtu, got.seconds, got.prefix), (Some(1442), 3600, 8));
        assert_eq!(got.dns, [Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(1, 1, 1, 1)]);
        assert_eq!(got.search, ["eng.apple.com", "marketing.apple.com"]);
        assert_eq!(got.address_option(option::AZURE_ENDPOINT), Some(Ipv4Addr::new(168, 63, 129, 16)));
        assert_eq!(got.option(option::HOST_NAME), Some(&b"node-1\0"[..]));
        assert_eq!(
            (got.text_option(12).as_deref(), got.text_option(15).as_deref()),
            (Some("node-1"), Some("example.org"))
        );
        assert_eq!((got.text_option(1), got.address_option(6), got.address_option(99)), (None, None, None));
        assert_eq!(got.server, Some(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[test]
    fn what_is_hostile_is_left_out() {
        let message = ack()
            .with(option::HOST_NAME, b"a\nb; reboot")
            .with(option::INTERFACE_MTU, &60u16.to_be_bytes())
            .with(option::DOMAIN_SEARCH, &[0xc0, 0])
            .with(option::CLASSLESS_ROUTES, &[33, 1, 2, 3, 4, 5, 6, 7, 8]);
        let got = lease(&message);
        assert_eq!((got.host_name.as_str(), got.mtu), ("", None));
        assert!(got.search.is_empty() && got.routes.is_empty());
        assert_eq!(Lease::from_ack("eth0", &ack().with(option::SUBNET_MASK, &[255, 0, 255, 0])), None);
        let mut multicast = ack();
        multicast.yiaddr = Ipv4Addr::new(224, 0, 0, 1);
        assert_eq!(Lease::from_ack("eth0", &multicast), None);
        for len in 0..9 {
            classless(&[24, 1, 2, 3, 9, 9, 9, 9, 1][..len]);
        }
    }
}
