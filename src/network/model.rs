//! The one model that every format is read to and every renderer reads.

use super::address::{Ip, Net};
pub use super::mac::{Macs, is_mac, plain_mac};
use crate::document::Map;

/// A machine's network configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// Devices in the document's order; names are unique.
    pub interfaces: Vec<Interface>,
    /// Name servers of the whole machine (version 1 `nameserver` without `interface`).
    pub dns: Dns,
    /// Routes of no interface in particular (version 1 `route`).
    pub routes: Vec<Route>,
    /// The input, whole, where it was version 2: netplan gets it as it is. The mapping below `network:`.
    pub v2: Option<Map>,
}

/// One network device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interface {
    /// The key of version 2, the name of version 1.
    pub id: String,
    /// The device's name: what it is to be renamed to, what a device with its MAC is called on this machine, else the id.
    pub name: String,
    pub kind: Kind,
    /// How the device is found, for devices that exist by themselves.
    pub matching: Match,
    /// Whether the device gets `name`, whatever it was called (`set-name`, and version 1's physical devices with a MAC).
    pub rename: bool,
    /// The MAC address that the device gets.
    pub mac: Option<String>,
    pub mtu: Option<u32>,
    /// The MTU of IPv6 alone.
    pub ipv6_mtu: Option<u32>,
    /// Addresses and ways to get them. Version 2: DHCPv4, DHCPv6, then one for each address.
    pub subnets: Vec<Subnet>,
    /// Name servers of the interface (version 2 `nameservers`, version 1 `nameserver` with `interface`).
    pub dns: Dns,
    /// Routes of the interface (version 2); version 1 has them in subnets.
    pub routes: Vec<Route>,
    /// Routing policy rules.
    pub rules: Vec<Rule>,
    pub dhcp4_overrides: DhcpOverrides,
    pub dhcp6_overrides: DhcpOverrides,
    pub accept_ra: Option<bool>,
    pub wake_on_lan: Option<bool>,
    /// Whether boot may go on without it.
    pub optional: Option<bool>,
    /// Families with link-local addresses: `ipv4`, `ipv6`.
    pub link_local: Option<Vec<String>>,
    /// networkd's KeepConfiguration (version 1 `keep_configuration`).
    pub keep_configuration: Option<String>,
    /// Keys without a field of their own, by their name in the document. A renderer that can't express one says so.
    pub more: Map,
    /// Nothing configures it: it is only named as a part of a bond, a bridge or a VRF, or below a VLAN.
    pub implicit: bool,
}

/// What kind of device it is. Devices that it is made of are given by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Kind {
    #[default]
    Ethernet,
    Infiniband,
    Loopback,
    Dummy,
    /// netplan's keys of the device, passwords included: `access-points`, `regulatory-domain`, …
    Wifi(Map),
    /// Parameters by their names in the kernel: [`super::params`].
    Bond {
        interfaces: Vec<String>,
        params: Map,
    },
    /// Parameters by the names of bridge-utils without `bridge_`: [`super::params`].
    Bridge {
        interfaces: Vec<String>,
        params: Map,
    },
    Vlan {
        id: u16,
        link: String,
    },
    Vrf {
        table: u32,
        interfaces: Vec<String>,
    },
    /// netplan's keys of the tunnel: `mode`, `local`, `remote`, `key`, `peers`, …
    Tunnel(Map),
}

/// How a device is found. All that is given must fit; nothing given: the device with the interface's name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Match {
    /// The MAC address, spelled as in the document.
    pub mac: Option<String>,
    /// A shell pattern for the present name.
    pub name: Option<String>,
    /// Shell patterns for the driver.
    pub drivers: Vec<String>,
}

/// Name servers and search domains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dns {
    pub servers: Vec<String>,
    pub search: Vec<String>,
}

/// One way to get an address, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subnet {
    pub method: Method,
    pub control: Control,
    /// The address, for [`Method::Static`].
    pub address: Option<Net>,
    pub gateway: Option<Ip>,
    pub broadcast: Option<Ip>,
    /// The other end of a point-to-point link.
    pub pointopoint: Option<Ip>,
    pub scope: Option<String>,
    pub metric: Option<u32>,
    pub mtu: Option<u32>,
    pub dns: Dns,
    pub routes: Vec<Route>,
    /// netplan's options of an address.
    pub label: Option<String>,
    pub lifetime: Option<String>,
}

/// How a subnet's address is got. The names are version 1's subnet types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    Static,
    Dhcp4,
    /// `dhcp6`, which says neither stateful nor stateless.
    Dhcp6,
    Dhcp6Stateful,
    /// Addresses by router advertisement, the rest by DHCPv6.
    Dhcp6Stateless,
    /// Addresses by router advertisement.
    Slaac,
    #[default]
    Manual,
    Loopback,
}

/// When an interface is brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Control {
    #[default]
    Auto,
    Manual,
    Hotplug,
}

/// A route.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    pub to: Net,
    pub via: Option<Ip>,
    /// Preferred source address.
    pub from: Option<Ip>,
    pub metric: Option<u32>,
    pub mtu: Option<u32>,
    pub table: Option<u32>,
    pub scope: Option<String>,
    /// `unicast`, `blackhole`, `unreachable`, …
    pub kind: Option<String>,
    pub on_link: Option<bool>,
    /// Keys without a field of their own (`congestion-window`, …).
    pub more: Map,
}

/// A routing policy rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rule {
    pub from: Option<Net>,
    pub to: Option<Net>,
    pub table: Option<u32>,
    pub priority: Option<u32>,
    pub mark: Option<u32>,
    pub tos: Option<u32>,
}

/// What is taken from DHCP, where it is not the stack's default (netplan `dhcp4-overrides`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DhcpOverrides {
    pub hostname: Option<String>,
    pub route_metric: Option<u32>,
    pub send_hostname: Option<bool>,
    pub use_dns: Option<bool>,
    /// `true`, `false` or `route`.
    pub use_domains: Option<String>,
    pub use_hostname: Option<bool>,
    pub use_mtu: Option<bool>,
    pub use_ntp: Option<bool>,
    pub use_routes: Option<bool>,
}

impl Network {
    /// The interface called `name`.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name)
    }

    /// The bond, bridge or VRF that `name` is part of.
    pub fn master_of(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.parts().iter().any(|p| p == name))
    }

    /// The VLANs on top of `name`.
    pub fn vlans_on<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Interface> {
        self.interfaces.iter().filter(move |i| matches!(&i.kind, Kind::Vlan { link, .. } if link == name))
    }

    /// The machine's routes that go over `interface`: the first one with an address in the gateway's network,
    /// else the first one with static addresses, else the first one that anything configures.
    pub fn routes_over<'a>(&'a self, interface: &'a Interface) -> impl Iterator<Item = &'a Route> {
        self.routes.iter().filter(move |r| self.interface_for(r).is_some_and(|i| i.name == interface.name))
    }

    fn interface_for(&self, route: &Route) -> Option<&Interface> {
        let reaches = |i: &&Interface| route.via.as_ref().is_some_and(|via| i.addresses().any(|a| a.contains(via)));
        let first = |fits: &dyn Fn(&&Interface) -> bool| self.interfaces.iter().find(fits);
        first(&reaches)
            .or_else(|| first(&|i| i.kind != Kind::Loopback && i.addresses().next().is_some()))
            .or_else(|| first(&|i| i.kind != Kind::Loopback && !i.subnets.is_empty()))
    }

    /// The interface's own name servers, else the machine's.
    pub fn dns_of<'a>(&'a self, interface: &'a Interface) -> &'a Dns {
        if interface.dns.is_empty() { &self.dns } else { &interface.dns }
    }
}

impl Interface {
    /// The names of the devices that a bond, a bridge or a VRF is made of.
    pub fn parts(&self) -> &[String] {
        match &self.kind {
            Kind::Bond { interfaces, .. } | Kind::Bridge { interfaces, .. } | Kind::Vrf { interfaces, .. } => {
                interfaces
            }
            _ => &[],
        }
    }

    /// Whether the device exists by itself: nobody has to make it.
    pub fn is_physical(&self) -> bool {
        matches!(self.kind, Kind::Ethernet | Kind::Infiniband | Kind::Wifi(_))
    }

    /// Whether the match can be for several devices, or for one whose name is not known.
    pub fn is_pattern(&self) -> bool {
        !self.rename
            && (self.matching.name.is_some() || !self.matching.drivers.is_empty())
            && self.matching.mac.is_none()
    }

    /// Whether the device is, or gets, called `name`; else the name only stands for what the match finds.
    pub fn is_named(&self) -> bool {
        self.rename || self.matching == Match::default() || self.name != self.id
    }

    /// Whether it is not to be brought up with the machine.
    pub fn is_manual(&self) -> bool {
        self.subnets.iter().any(|s| s.control == Control::Manual)
    }

    /// Whether `keep_configuration` is a plain yes.
    pub fn keeps_all(&self) -> bool {
        matches!(self.keep_configuration.as_deref(), Some("true" | "True" | "yes" | "on" | "1"))
    }

    /// Whether DHCPv4 is asked for.
    pub fn dhcp4(&self) -> bool {
        self.subnets.iter().any(|s| s.method == Method::Dhcp4)
    }

    /// Whether DHCPv6 of any kind is asked for; SLAAC alone is not.
    pub fn dhcp6(&self) -> bool {
        self.subnets.iter().any(|s| s.method.is_dhcp6())
    }

    /// Static addresses, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &Net> {
        self.subnets.iter().filter_map(|s| s.address.as_ref())
    }

    /// Whether a subnet's gateway lies outside of all networks of the interface, so that it has to be taken as on the link.
    pub fn is_on_link(&self, gateway: &Ip) -> bool {
        self.addresses().any(|a| a.is_v6() == gateway.is_v6())
            && !gateway.is_link_local()
            && !self.addresses().any(|a| a.contains(gateway))
    }

    /// Routes of the interface and of its subnets; gateways are not among them.
    pub fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.subnets.iter().flat_map(|s| &s.routes).chain(&self.routes)
    }
}

impl DhcpOverrides {
    /// The keys that take something from the lease that is taken by default, or leave it: whether each is given, by netplan's name.
    pub fn switches(&self) -> [(&'static str, bool); 7] {
        [
            ("send-hostname", self.send_hostname.is_some()),
            ("use-dns", self.use_dns.is_some()),
            ("use-domains", self.use_domains.is_some()),
            ("use-hostname", self.use_hostname.is_some()),
            ("use-mtu", self.use_mtu.is_some()),
            ("use-ntp", self.use_ntp.is_some()),
            ("use-routes", self.use_routes.is_some()),
        ]
    }
}

impl Method {
    /// Whether DHCPv6 is asked for.
    pub fn is_dhcp6(self) -> bool {
        matches!(self, Method::Dhcp6 | Method::Dhcp6Stateful | Method::Dhcp6Stateless)
    }
}

impl Subnet {
    /// The broadcast address, where it is another than the network's last.
    pub fn odd_broadcast(&self) -> Option<&Ip> {
        let usual = self.address.as_ref().and_then(Net::broadcast);
        self.broadcast.as_ref().filter(|b| usual.is_some_and(|u| u != **b))
    }

    /// Whether it is for IPv6: by its method, else by its address.
    pub fn is_v6(&self) -> bool {
        match self.method {
            Method::Static | Method::Manual | Method::Loopback => self.address.as_ref().is_some_and(Net::is_v6),
            Method::Dhcp4 => false,
            _ => true,
        }
    }
}

impl Route {
    /// A route to `to`, with nothing else said.
    pub fn new(to: Net, via: Option<Ip>) -> Route {
        Route {
            to,
            via,
            from: None,
            metric: None,
            mtu: None,
            table: None,
            scope: None,
            kind: None,
            on_link: None,
            more: Map::new(),
        }
    }
}

impl Dns {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }

    /// Adds another's servers and domains that are not there yet.
    pub fn merge(&mut self, other: &Dns) {
        for server in &other.servers {
            if !self.servers.contains(server) {
                self.servers.push(server.clone());
            }
        }
        for domain in &other.search {
            if !self.search.contains(domain) {
                self.search.push(domain.clone());
            }
        }
    }

    /// The servers of one family.
    pub fn servers_of(&self, v6: bool) -> impl Iterator<Item = &String> {
        self.servers.iter().filter(move |s| super::address::is_v6(s) == v6)
    }
}
