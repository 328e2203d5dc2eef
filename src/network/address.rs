//! Addresses, prefixes and netmasks as network configurations write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address, with its spelling in the document.
#[derive(Debug, Clone)]
pub struct Ip {
    text: String,
    addr: IpAddr,
}

impl Ip {
    /// Reads an address without a prefix.
    pub fn parse(text: &str) -> Option<Ip> {
        let text = text.trim();
        Some(Ip { text: text.to_owned(), addr: text.parse().ok()? })
    }

    /// The address itself.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Whether this is an IPv6 address.
    pub fn is_v6(&self) -> bool {
        self.addr.is_ipv6()
    }

    /// Whether this is an IPv6 link-local address (fe80::/10).
    pub fn is_link_local(&self) -> bool {
        matches!(self.addr, IpAddr::V6(a) if (a.segments()[0] & 0xffc0) == 0xfe80)
    }
}

/// Addresses are equal whatever their spelling.
impl PartialEq for Ip {
    fn eq(&self, other: &Ip) -> bool {
        self.addr == other.addr
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<IpAddr> for Ip {
    fn from(addr: IpAddr) -> Ip {
        Ip { text: addr.to_string(), addr }
    }
}

/// A name server with more than its address, as networkd takes one (systemd.network(5), `DNS=`): `9.9.9.9:53%eth0#dns.example`. An
/// IPv6 address with a port is in brackets.
#[derive(Debug, Clone, PartialEq)]
pub struct NameServer {
    ip: Ip,
    port: Option<u16>,
    has_device: bool,
    has_name: bool,
}

/// The port of DNS.
const DNS_PORT: u16 = 53;

impl NameServer {
    /// Reads one. None if the text is not of that form.
    pub fn parse(text: &str) -> Option<NameServer> {
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let (rest, name) = text.split_once('#').map_or((text, None), |(rest, name)| (rest, Some(name)));
        let (rest, device) = rest.split_once('%').map_or((rest, None), |(rest, device)| (rest, Some(device)));
        if !name.into_iter().chain(device).all(is_word) {
            return None;
        }
        let (ip, port) = match Ip::parse(rest) {
            Some(ip) => (ip, None),
            None => {
                let (host, port) = rest.rsplit_once(':')?;
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                let ip = Ip::parse(bare.unwrap_or(host)).filter(|ip| ip.is_v6() == bare.is_some())?;
                (ip, Some(port.parse().ok().filter(|port| *port > 0)?))
            }
        };
        Some(NameServer { ip, port, has_device: device.is_some(), has_name: name.is_some() })
    }

    /// The address, if that alone reaches the server. The name is for DNS over TLS.
    pub fn plain(&self) -> Option<&Ip> {
        Some(&self.ip).filter(|_| !self.has_device && self.port.is_none_or(|port| port == DNS_PORT))
    }

    /// Whether there is more than the address.
    pub fn has_more(&self) -> bool {
        self.port.is_some() || self.has_device || self.has_name
    }
}

/// An address with its prefix length: an interface's address, or a route's destination. Shown as `10.0.0.1/24`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cidr {
    pub ip: Ip,
    /// The prefix length, at most 32 for IPv4 and 128 for IPv6.
    pub prefix: u8,
}

/// The prefix lengths of addresses without one, as in cloud-init: IPv4, IPv6.
const DEFAULT_PREFIX: (u8, u8) = (24, 64);

impl Cidr {
    /// Reads `address`, `address/prefix` or `address/netmask`. `mask` (a prefix length or a netmask) is used if the address has
    /// none. None if the text is not such an address.
    pub fn parse(text: &str, mask: Option<&str>) -> Option<Cidr> {
        let (ip, own) = match text.trim().split_once('/') {
            // All addresses of IPv4, as ip-route(8) takes them.
            Some(("0", "0")) => ("0.0.0.0", Some("0")),
            Some((ip, mask)) => (ip, Some(mask)),
            None => (text, None),
        };
        let ip = Ip::parse(ip)?;
        let prefix = match own.or(mask.filter(|m| !m.trim().is_empty())) {
            Some(mask) => prefix_of(mask, ip.is_v6())?,
            None if ip.is_v6() => DEFAULT_PREFIX.1,
            None => DEFAULT_PREFIX.0,
        };
        Some(Cidr { ip, prefix })
    }

    /// The same for the address of a device, whose prefix has at least one bit: no stack takes another.
    pub fn parse_address(text: &str, mask: Option<&str>) -> Option<Cidr> {
        Cidr::parse(text, mask).filter(|address| address.prefix > 0)
    }

    /// Reads `address/prefix`. An address without a prefix is a single host.
    pub fn parse_or_host(text: &str) -> Option<Cidr> {
        match Ip::parse(text) {
            Some(ip) => Some(Cidr::host(ip)),
            None => Cidr::parse(text, None),
        }
    }

    /// The network of this address alone.
    pub fn host(ip: Ip) -> Cidr {
        Cidr { prefix: if ip.is_v6() { 128 } else { 32 }, ip }
    }

    /// The prefix of all addresses: a default route's destination.
    pub fn default_of(v6: bool) -> Cidr {
        let addr = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        Cidr { ip: addr.into(), prefix: 0 }
    }

    /// The network of the address: the same with the host bits cleared.
    pub fn network(&self) -> Cidr {
        let addr = match self.ip.addr() {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from(u32::from(a) & bits32(self.prefix))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from(u128::from(a) & bits128(self.prefix))),
        };
        Cidr { ip: addr.into(), prefix: self.prefix }
    }

    /// Whether this is an IPv6 network.
    pub fn is_v6(&self) -> bool {
        self.ip.is_v6()
    }

    /// Whether this is a single host's prefix: /32 or /128.
    pub fn is_host(&self) -> bool {
        self.prefix == if self.is_v6() { 128 } else { 32 }
    }

    /// Whether this is the destination of a default route.
    pub fn is_default(&self) -> bool {
        self.prefix == 0
    }

    /// The netmask, in the family's notation: `255.255.255.0`, `ffff:ffff:ffff:ffff::`.
    pub fn netmask(&self) -> String {
        match self.ip.addr() {
            IpAddr::V4(_) => Ipv4Addr::from(bits32(self.prefix)).to_string(),
            IpAddr::V6(_) => Ipv6Addr::from(bits128(self.prefix)).to_string(),
        }
    }

    /// The broadcast address, which is the network's last. None for IPv6, which has no broadcast.
    pub fn broadcast(&self) -> Option<Ip> {
        match self.ip.addr() {
            IpAddr::V4(a) => Some(IpAddr::V4(Ipv4Addr::from(u32::from(a) | !bits32(self.prefix))).into()),
            IpAddr::V6(_) => None,
        }
    }

    /// Whether `ip` lies in this network.
    pub fn contains(&self, ip: &Ip) -> bool {
        match (self.ip.addr(), ip.addr()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)) & bits32(self.prefix) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)) & bits128(self.prefix) == 0,
            _ => false,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

fn bits32(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn bits128(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// The prefix length of `24`, `255.255.255.0` or `ffff:ffff::`. None for anything else, and for a mask that is not contiguous.
pub fn prefix_of(mask: &str, v6: bool) -> Option<u8> {
    let mask = mask.trim();
    let most = if v6 { 128 } else { 32 };
    if let Ok(prefix) = mask.parse::<u8>() {
        return (prefix <= most).then_some(prefix);
    }
    let (ones, contiguous) = match mask.parse::<IpAddr>().ok()? {
        IpAddr::V4(a) if !v6 => (u32::from(a).leading_ones(), u32::from(a).count_ones()),
        IpAddr::V6(a) if v6 => (u128::from(a).leading_ones(), u128::from(a).count_ones()),
        _ => return None,
    };
    (ones == contiguous).then(|| u8::try_from(ones).ok()).flatten()
}

/// Whether the text of a name server is an IPv6 address rather than an IPv4 address, either with a port or without.
pub fn is_v6(server: &str) -> bool {
    server.contains(':') && server.matches(':').count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_have_an_address_and_more() {
        let plain = |text: &str| NameServer::parse(text).map(|server| server.plain().map(Ip::to_string));
        for (text, expected) in [
            ("9.9.9.9", Some(Some("9.9.9.9"))),
            ("9.9.9.9:53#dns.example", Some(Some("9.9.9.9"))),
            ("[2001:DB8::1]:53", Some(Some("2001:DB8::1"))),
            ("2001:db8::1#dns.example", Some(Some("2001:db8::1"))),
            ("9.9.9.9:5353", Some(None)),
            ("fe80::1%eth0", Some(None)),
            ("dns.example", None),
            ("9.9.9.9#", None),
            ("9.9.9.9%", None),
            ("9.9.9.9:0", None),
            ("[9.9.9.9]:53", None),
            ("2001:db8::1]:53", None),
            ("9.9.9.9#a b", None),
        ] {
            assert_eq!(plain(text), expected.map(|ip| ip.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn prefix_comes_from_address_mask_or_family() {
        let cidr = |t, m| Cidr::parse(t, m).map(|n| n.to_string());
        assert_eq!(cidr("10.0.0.1/8", Some("24")).as_deref(), Some("10.0.0.1/8"));
        assert_eq!(cidr("10.0.0.1", Some("255.255.254.0")).as_deref(), Some("10.0.0.1/23"));
        assert_eq!(cidr("10.0.0.1", None).as_deref(), Some("10.0.0.1/24"));
        assert_eq!(cidr("2001:DB8::1", Some("")).as_deref(), Some("2001:DB8::1/64"));
        assert_eq!(cidr("2001:db8::1", Some("ffff:ffff::")).as_deref(), Some("2001:db8::1/32"));
        assert_eq!(cidr("0.0.0.0", Some("0.0.0.0")).as_deref(), Some("0.0.0.0/0"));
        for wrong in
            [("10.0.0.1/33", None), ("10.0.0.1", Some("255.234.255.0")), ("x", None), ("10.0.0.1", Some("ffff::"))]
        {
            assert_eq!(Cidr::parse(wrong.0, wrong.1), None, "{wrong:?}");
        }
    }

    #[test]
    fn masks_and_membership() {
        let net = Cidr::parse("192.168.14.2/23", None).unwrap();
        assert_eq!(net.netmask(), "255.255.254.0");
        assert_eq!(net.broadcast().unwrap().to_string(), "192.168.15.255");
        assert!(net.contains(&Ip::parse("192.168.15.254").unwrap()));
        assert!(!net.contains(&Ip::parse("192.168.16.1").unwrap()));
        assert_eq!(net.network().to_string(), "192.168.14.0/23");
        assert_eq!(Cidr::parse("fd00:1::5/64", None).unwrap().network().to_string(), "fd00:1::/64");
        assert_eq!(Cidr::parse("::/0", None).unwrap().netmask(), "::");
        assert!(Cidr::default_of(true).contains(&Ip::parse("fe80::1").unwrap()));
        assert_eq!(Cidr::parse("fe80::/10", None).unwrap().netmask(), "ffc0::");
    }
}
