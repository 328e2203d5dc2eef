//! The network that the kernel command line configures: `ip=`, `vlan=`, `bond=`, `bridge=`, `ifname=`,
//! `rd.route=` and `nameserver=` as in dracut.cmdline(7), and klibc's longer `ip=`.

use super::dhcp::{class_prefix, prefix_of};
use crate::base::problem::Problems;
use crate::machine::Cmdline;
use crate::machine::nic::is_name;
use std::net::{IpAddr, Ipv4Addr};

/// The most such words that are read.
const MAX_ITEMS: usize = 64;

/// Links to create and configure before any service is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkPlan {
    /// Bonds, bridges and VLANs, in the order in which they can be created.
    pub made: Vec<Made>,
    pub ip: Vec<Ip>,
    pub routes: Vec<StaticRoute>,
    pub dns: Vec<IpAddr>,
    /// Hardware addresses, each with the name that its link is to get.
    pub names: Vec<([u8; 6], String)>,
    pub pin: Pin,
    /// Words that could not be parsed, with the reason, for the log.
    pub problems: Problems,
}

/// The restriction of the network by `prepivot.network=`, against rogue DHCP servers and wrong cables. A list separated by commas,
/// of
///
/// - `mac:52:54:00:12:34:56`: only links with one of these hardware addresses are used,
/// - `server:10.0.0.2`: only leases of DHCP servers with one of these identifiers (option 54) are used. Then nothing else is used:
///   no 169.254/16 address, no IPv6, no link that another program has set up.
///
/// An identifier proves nothing: anyone who can send frames on the link can claim to be the server. A value that
/// cannot be parsed closes the network: no link is used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pin {
    /// The hardware addresses of links that may be used. Empty: all links.
    pub macs: Vec<[u8; 6]>,
    /// The DHCP servers whose leases may be used. Empty: all servers.
    pub servers: Vec<Ipv4Addr>,
    /// The value could not be read.
    pub closed: bool,
}

impl Pin {
    /// Whether a link with this hardware address may be used.
    pub fn allows(&self, mac: Option<[u8; 6]>) -> bool {
        !self.closed && (self.macs.is_empty() || mac.is_some_and(|mac| self.macs.contains(&mac)))
    }

    /// Whether only leases of certain servers may be used.
    pub fn leases_only(&self) -> bool {
        !self.servers.is_empty()
    }

    fn read(&mut self, value: &str) -> Result<(), &'static str> {
        for item in value.split(',') {
            let mac = item.strip_prefix("mac:").and_then(mac_of);
            let server = item.strip_prefix("server:").and_then(|text| text.parse::<Ipv4Addr>().ok());
            self.macs.extend(mac);
            self.servers.extend(server);
            if mac.is_none() && server.is_none() {
                self.closed = true;
                return Err("expected mac:ADDRESS or server:ADDRESS, separated by commas; no network is used");
            }
        }
        Ok(())
    }
}

/// A virtual link that the kernel creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    Bond {
        name: String,
        ports: Vec<String>,
        /// Names and values as in /sys/class/net/NAME/bonding.
        options: Vec<(String, String)>,
        mtu: Option<u32>,
    },
    Bridge {
        name: String,
        ports: Vec<String>,
    },
    Vlan {
        name: String,
        parent: String,
        id: u16,
    },
}

/// How a link gets its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A static address, or none.
    Off,
    Dhcp,
    /// IPv6 by router advertisements.
    Auto6,
    /// Only link-local addresses.
    LinkLocal,
}

/// One `ip=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ip {
    /// None: all links.
    pub device: Option<String>,
    pub method: Method,
    pub address: Option<(IpAddr, u8)>,
    pub gateway: Option<IpAddr>,
    pub mtu: Option<u32>,
    pub mac: Option<[u8; 6]>,
    pub dns: Vec<IpAddr>,
}

/// One `rd.route=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticRoute {
    pub destination: IpAddr,
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
}

impl LinkPlan {
    /// The name servers of a link whose `ip=` is `ip`: first its own, then those of all links.
    pub fn name_servers(&self, ip: Option<&Ip>) -> Vec<IpAddr> {
        ip.iter().flat_map(|ip| &ip.dns).chain(&self.dns).copied().collect()
    }

    /// Parses the words of a kernel command line. Invalid ones are left out and reported in `problems`.
    pub fn parse(cmdline: &Cmdline) -> Self {
        let mut plan = LinkPlan::default();
        let words = cmdline.words().map(|w| w.split_once('=').unwrap_or((w, "")));
        for (key, value) in words.filter(|(key, _)| KEYS.contains(key)).take(MAX_ITEMS) {
            if let Err(why) = plan.read(key, value) {
                plan.problems.about("kernel command line").warn_key(&format!("{key}={value}"), why);
            }
        }
        // A VLAN's parent may be a bond, and a bridge's ports may be either.
        crate::base::sort::by_key(&mut plan.made, |m| match m {
            Made::Bond { .. } => 0,
            Made::Vlan { .. } => 1,
            Made::Bridge { .. } => 2,
        });
        plan
    }

    fn read(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        match key {
            "ip" => self.ip.extend(ip(value)?),
            "bond" => self.made.push(bond(value)?),
            "bridge" => {
                let (name, ports) = value.split_once(':').unwrap_or(("br0", "eth0"));
                self.made.push(Made::Bridge { name: device(name)?, ports: devices(ports)? });
            }
            "vlan" => self.made.push(vlan(value)?),
            "ifname" => {
                let (name, mac) = value.split_once(':').ok_or("expected NAME:MAC")?;
                self.names.push((mac_of(mac).ok_or("expected NAME:MAC")?, device(name)?));
            }
            "rd.route" => self.routes.push(route(value)?),
            "prepivot.network" => self.pin.read(value)?,
            "nameserver" => self.dns.push(address(value).ok_or("expected an IP address")?),
            _ => return Err("teams are not made; use bond="),
        }
        Ok(())
    }

    /// The `ip=` that applies to a link: the one that names it, else the one for all links.
    pub fn for_link(&self, name: &str) -> Option<&Ip> {
        let named = self.ip.iter().find(|ip| ip.device.as_deref() == Some(name));
        named.or_else(|| self.ip.iter().find(|ip| ip.device.is_none()))
    }

    /// Whether an `ip=` names the link. Then it is used even if it is a virtual link.
    pub fn names_link(&self, name: &str) -> bool {
        self.ip.iter().any(|ip| ip.device.as_deref() == Some(name))
    }

    /// Whether the link may be raised. If any `ip=` names links, only those may be, and none that `ip=`
    /// switches off.
    pub fn allows(&self, name: &str) -> bool {
        let names_some = self.ip.iter().any(|ip| ip.device.is_some());
        match self.for_link(name) {
            Some(ip) => (ip.device.is_some() || !names_some) && (ip.method != Method::Off || ip.address.is_some()),
            None => !names_some,
        }
    }
}

const KEYS: [&str; 9] =
    ["ip", "bond", "bridge", "vlan", "ifname", "rd.route", "nameserver", "team", "prepivot.network"];

/// None for a value with which the kernel or the firmware has configured the network already.
fn ip(value: &str) -> Result<Option<Ip>, &'static str> {
    let fields = split(value);
    let field = |n: usize| fields.get(n).copied().unwrap_or_default();
    let mut ip =
        Ip { device: None, method: Method::Dhcp, address: None, gateway: None, mtu: None, mac: None, dns: Vec::new() };
    if fields.contains(&"ibft") {
        return Ok(None);
    }
    if fields.len() == 1 {
        ip.method = method(value).ok_or("expected how to get an address: dhcp, off, auto6, …")?;
        return Ok(Some(ip));
    }
    // DEVICE:METHOD[:MTU[:MAC]]. An address has dots or brackets, so no device looks like one.
    if let (Some(method), true, None) = (method(field(1)), !field(0).is_empty(), address(field(0))) {
        ip.device = Some(device(field(0))?);
        ip.method = method;
        extras(&fields[2..], &mut ip)?;
        return Ok(Some(ip));
    }
    // CLIENT:PEER:GATEWAY:NETMASK:HOSTNAME:DEVICE:METHOD[:MTU[:MAC]] or [:DNS[:DNS[:NTP]]]
    if !field(5).is_empty() {
        ip.device = Some(device(field(5))?);
    }
    if !field(0).is_empty() {
        let client = address(field(0)).ok_or("the first field is no IP address")?;
        ip.address = Some((client, prefix(field(3), client).ok_or("the fourth field is no netmask")?));
        ip.method = Method::Off;
    }
    if !field(2).is_empty() {
        ip.gateway = Some(address(field(2)).ok_or("the third field is no IP address")?);
    }
    match field(6) {
        "" => {}
        text => ip.method = method(text).ok_or("the seventh field says no way to get an address")?,
    }
    extras(fields.get(7..).unwrap_or_default(), &mut ip)?;
    Ok(Some(ip))
}

/// The optional fields at the end: MTU and MAC, or name servers and a time server.
fn extras(fields: &[&str], ip: &mut Ip) -> Result<(), &'static str> {
    let Some((first, rest)) = fields.split_first() else { return Ok(()) };
    if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
        ip.mtu = if first.is_empty() { None } else { Some(first.parse().map_err(|_| "the MTU is too large")?) };
        if rest.len() == 6 {
            ip.mac = Some(mac_of(&rest.join(":")).ok_or("expected a MAC address at the end")?);
            return Ok(());
        }
    }
    // The third field is a time server, which is not used.
    ip.dns.extend(fields.iter().take(2).filter_map(|f| address(f)));
    Ok(())
}

fn method(text: &str) -> Option<Method> {
    match text {
        "dhcp" | "on" | "any" | "both" | "bootp" => Some(Method::Dhcp),
        "dhcp6" | "auto6" | "either6" => Some(Method::Auto6),
        "link6" | "link-local" => Some(Method::LinkLocal),
        "off" | "none" | "static" => Some(Method::Off),
        _ => None,
    }
}

/// Splits at colons outside of brackets.
fn split(value: &str) -> Vec<&str> {
    let mut depth = 0u32;
    value
        .split(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ':' && depth == 0
        })
        .collect()
}

/// An IPv4 address, or an IPv6 address with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text).parse().ok()
}

/// A prefix length, from a netmask or a number. If empty: by address class, or 64 for IPv6.
fn prefix(text: &str, of: IpAddr) -> Option<u8> {
    let most = if of.is_ipv4() { 32 } else { 128 };
    match (text, of) {
        ("", IpAddr::V4(ip)) => Some(class_prefix(ip)),
        ("", IpAddr::V6(_)) => Some(64),
        (text, _) => match text.parse::<Ipv4Addr>() {
            Ok(mask) => prefix_of(mask).filter(|_| of.is_ipv4()),
            Err(_) => text.parse().ok().filter(|len| *len <= most),
        },
    }
}

fn device(name: &str) -> Result<String, &'static str> {
    if is_name(name) { Ok(name.into()) } else { Err("not a name that a link can have") }
}

fn devices(list: &str) -> Result<Vec<String>, &'static str> {
    list.split(',').filter(|n| !n.is_empty()).map(device).collect()
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let octets: Option<Vec<u8>> =
        text.split([':', '-']).map(|o| if o.len() == 2 { u8::from_str_radix(o, 16).ok() } else { None }).collect();
    octets?.try_into().ok()
}

/// NAME[:PORTS[:OPTIONS[:MTU]]]. The default is bond0 of eth0 and eth1.
fn bond(value: &str) -> Result<Made, &'static str> {
    let fields = split(value);
    let field = |n: usize| fields.get(n).copied().unwrap_or_default();
    let or = |text: &'static str, n| if field(n).is_empty() { text.to_owned() } else { field(n).to_owned() };
    let options = or("mode=balance-rr", 2);
    let options = options.split(',').filter(|o| !o.is_empty()).map(|o| {
        let (key, value) = o.split_once('=').ok_or("a bonding option is no KEY=VALUE")?;
        let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !key.is_empty();
        if plain { Ok((key.to_owned(), value.replace(';', ","))) } else { Err("not a bonding option's name") }
    });
    Ok(Made::Bond {
        name: device(&or("bond0", 0))?,
        ports: devices(&or("eth0,eth1", 1))?,
        options: options.collect::<Result<_, _>>()?,
        mtu: if field(3).is_empty() { None } else { Some(field(3).parse().map_err(|_| "the MTU is no number")?) },
    })
}

/// NAME:PARENT. The digits at the end of the name are the VLAN id.
fn vlan(value: &str) -> Result<Made, &'static str> {
    let (name, parent) = value.split_once(':').ok_or("expected NAME:PARENT")?;
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let id = name.get(digits..).unwrap_or_default().parse().map_err(|_| "the name does not end in a VLAN id")?;
    if id > 4094 {
        return Err("a VLAN id is at most 4094");
    }
    Ok(Made::Vlan { name: device(name)?, parent: device(parent)?, id })
}

/// NET/LENGTH:GATEWAY[:DEVICE]. Without a device, the one that reaches the gateway.
fn route(value: &str) -> Result<StaticRoute, &'static str> {
    let fields = split(value);
    let (network, length) = match fields.first().copied().unwrap_or_default().trim_matches(['[', ']']).split_once('/') {
        Some((network, length)) => (network.trim_end_matches(']'), length),
        None => (fields.first().copied().unwrap_or_default(), ""),
    };
    let destination = address(network).ok_or("expected NET/LENGTH:GATEWAY")?;
    let whole = if destination.is_ipv4() { "32" } else { "128" };
    let length = if length.is_empty() { whole } else { length };
    let prefix = prefix(length, destination).ok_or("expected NET/LENGTH:GATEWAY")?;
    let gateway = fields.get(1).filter(|g| !g.is_empty()).map(|g| address(g).ok_or("the gateway is no IP address"));
    let gateway = gateway.transpose()?;
    if gateway.is_some_and(|g| g.is_ipv4() != destination.is_ipv4()) {
        return Err("the gateway is of another family");
    }
    Ok(StaticRoute { destination, prefix, gateway })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> LinkPlan {
        LinkPlan::parse(&Cmdline::new(text))
    }

    fn one(word: &str) -> Ip {
        let plan = read(word);
        assert_eq!(plan.problems, Problems::new());
        plan.ip[0].clone()
    }

    #[test]
    fn every_form_of_ip() {
        assert_eq!(one("ip=dhcp").method, Method::Dhcp);
        assert_eq!(one("ip=off").method, Method::Off);
        assert_eq!(one("ip=either6").method, Method::Auto6);
        let named = one("ip=ens3:dhcp:1400:52:54:00:12:34:56");
        assert_eq!((named.device.as_deref(), named.mtu), (Some("ens3"), Some(1400)));
        assert_eq!(named.mac, Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        let full = one("ip=10.0.0.5::10.0.0.1:255.255.255.0:node:eth1:none:9.9.9.9:1.1.1.1:10.0.0.9");
        assert_eq!(full.address, Some(("10.0.0.5".parse().unwrap(), 24)));
        assert_eq!((full.gateway, full.method), ("10.0.0.1".parse().ok(), Method::Off));
        assert_eq!(full.dns, ["9.9.9.9".parse::<IpAddr>().unwrap(), "1.1.1.1".parse().unwrap()]);
        let six = one("ip=[2001:db8::5]::[2001:db8::1]:64:node:eth1:none:1500");
        assert_eq!(six.address, Some(("2001:db8::5".parse().unwrap(), 64)));
        assert_eq!(six.mtu, Some(1500));
        assert_eq!(one("ip=::::node:eth1:dhcp").device.as_deref(), Some("eth1"));
        assert_eq!(one("ip=10.0.0.5:::::eth1").address, Some(("10.0.0.5".parse().unwrap(), 8)));
        assert_eq!(read("ip=ibft").ip, []);
    }

    #[test]
    fn links_are_made_from_the_bottom_up() {
        let plan = read(
            "bridge=br1:vlan0005,eth9 vlan=vlan0005:bond1 quiet bond=bond1:eth0,eth1:mode=802.3ad,miimon=100:9000",
        );
        let options = vec![("mode".into(), "802.3ad".into()), ("miimon".into(), "100".into())];
        let bond =
            Made::Bond { name: "bond1".into(), ports: vec!["eth0".into(), "eth1".into()], options, mtu: Some(9000) };
        let vlan = Made::Vlan { name: "vlan0005".into(), parent: "bond1".into(), id: 5 };
        let bridge = Made::Bridge { name: "br1".into(), ports: vec!["vlan0005".into(), "eth9".into()] };
        assert_eq!(plan.made, [bond, vlan, bridge]);
        let plain = read("bond vlan=eth0.7:eth0");
        assert!(
            matches!(&plain.made[0], Made::Bond { name, ports, .. } if name == "bond0" && ports == &["eth0", "eth1"])
        );
        assert!(matches!(plain.made[1], Made::Vlan { id: 7, .. }));
    }

    #[test]
    fn routes_servers_and_names() {
        let plan = read(
            "rd.route=192.168.9.0/24:10.0.0.1:eth0 rd.route=[2001:db8:1::/48]:[2001:db8::1] nameserver=9.9.9.9 ifname=net0:52:54:00:00:00:01",
        );
        assert_eq!(plan.routes[0].prefix, 24);
        assert_eq!(plan.routes[1].gateway, "2001:db8::1".parse().ok());
        assert_eq!((plan.dns.len(), plan.names[0].1.as_str()), (1, "net0"));
        assert_eq!(plan.problems, Problems::new());
    }

    #[test]
    fn who_may_be_raised() {
        assert!(read("quiet").allows("eth0"));
        assert!(read("ip=dhcp").allows("eth0"));
        assert!(!read("ip=off").allows("eth0"));
        let named = read("ip=eth1:dhcp ip=eth2:off");
        assert!(named.allows("eth1") && !named.allows("eth0") && !named.allows("eth2"));
    }

    #[test]
    fn a_pinned_network() {
        let mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
        let none = read("quiet").pin;
        assert!(none.allows(None) && none.allows(Some(mac)) && !none.leases_only());
        let pin = read("prepivot.network=mac:52:54:00:12:34:56,server:10.0.0.2 prepivot.network=server:10.0.0.3").pin;
        assert!(pin.allows(Some(mac)) && !pin.allows(Some([2; 6])) && !pin.allows(None));
        assert_eq!(pin.servers, [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)]);
        for wrong in ["", "mac:52", "server:10.0.0", "server:10.0.0.2,", "eth0", "server:::1"] {
            let plan = read(&format!("prepivot.network={wrong}"));
            assert!(!plan.pin.allows(Some(mac)) && plan.problems.len() == 1, "{wrong}");
        }
    }

    #[test]
    fn nonsense_is_told_and_left_out() {
        let words = [
            "ip=",
            "ip=x",
            "ip=1.2.3.4:::33.0.1.2",
            "vlan=eth0",
            "vlan=v9999:eth0",
            "bond=a/b",
            "team=t:a",
            "ifname=a:b",
            "rd.route=x",
            "nameserver=",
            "ip=[::1",
            "ip=:::::../..:dhcp",
            "bond=b:e:../x=1",
            "ip=[[[[:]:",
        ];
        for word in words {
            let plan = read(word);
            assert_eq!((plan.problems.len(), plan.ip.len(), plan.made.len()), (1, 0, 0), "{word}");
        }
    }
}
