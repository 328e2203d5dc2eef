//! The network model: every input format is parsed to it, and every renderer writes it.

use super::address::{Cidr, Ip, NameServer, is_v6};
use crate::document::{Map, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The origin of all problems of a network configuration, whichever document it came in.
pub const ORIGIN: &str = "network configuration";

/// Sections of version 2 that only netplan has, which gets it as it is. The other stacks report them.
pub const NETPLAN_SECTIONS: [&str; 4] = ["modems", "virtual-ethernets", "openvswitch", "nm-devices"];

/// A machine's network configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// Devices in the document's order; names are unique.
    pub interfaces: Vec<Interface>,
    /// Name servers of the whole machine (version 1 `nameserver` without `interface`).
    pub dns: Dns,
    /// The mapping below `network:` if the input was version 2. netplan gets it unchanged.
    pub v2: Option<Map>,
}

/// One network device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interface {
    /// The key of version 2, the name of version 1.
    pub id: String,
    /// The device's name: the one that it is renamed to, else that of this machine's device with its MAC
    /// address, else the id.
    pub name: String,
    pub device_type: DeviceType,
    /// How an existing device is found.
    pub matching: Match,
    /// Whether the device is renamed to `name` (`set-name`, and version 1's physical devices with a MAC address).
    pub rename: bool,
    /// The MAC address to be set on the device.
    pub mac: Option<String>,
    pub mtu: Option<u32>,
    /// The MTU for IPv6 only.
    pub ipv6_mtu: Option<u32>,
    /// Addresses and how they are obtained. Version 2: DHCPv4, DHCPv6, then one for each address.
    pub subnets: Vec<Subnet>,
    /// Name servers of the interface (version 2 `nameservers`, version 1 `nameserver` with `interface`).
    pub dns: Dns,
    /// Routes of the interface: those of version 2, and version 1's `route` entries, which do not name an
    /// interface. Version 1's other routes are in subnets.
    pub routes: Vec<Route>,
    /// Routing policy rules.
    pub rules: Vec<Rule>,
    /// Whether the document says that DHCPv4 does not run. If it says nothing, NetworkManager's default applies.
    pub denies_dhcp4: bool,
    pub dhcp4_overrides: DhcpOverrides,
    pub dhcp6_overrides: DhcpOverrides,
    pub accept_ra: Option<bool>,
    pub wake_on_lan: Option<bool>,
    /// Whether the boot continues without waiting for it.
    pub optional: Option<bool>,
    /// Families with link-local addresses: `ipv4`, `ipv6`.
    pub link_local: Option<Vec<String>>,
    /// networkd's KeepConfiguration (version 1 `keep_configuration`, version 2 `critical`).
    pub keep_configuration: Option<String>,
    /// Keys without a field of their own, by their name in the document. A renderer reports those it cannot express.
    pub extra: Map,
    /// Whether the document does not configure it, but only refers to it: as a member of a bond, bridge or
    /// VRF, or as a VLAN's link.
    pub implicit: bool,
}

/// The type of a device. Bonds, bridges, VRFs and VLANs refer to other devices by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DeviceType {
    #[default]
    Ethernet,
    Infiniband,
    Loopback,
    Dummy,
    /// netplan's keys of the device, passwords included: `access-points`, `regulatory-domain`, …
    Wifi(Map),
    /// Parameters by their names in the kernel: [`super::parameters`].
    Bond {
        interfaces: Vec<String>,
        params: Map,
    },
    /// Parameters by the names of bridge-utils without `bridge_`: [`super::parameters`].
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

/// How a device is found. All criteria must match. Without any, it is the device with the interface's name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Match {
    /// The MAC address, with colons.
    pub mac: Option<String>,
    /// A shell pattern for the device's current name.
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

/// One address, or one way to obtain addresses, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subnet {
    pub method: Method,
    pub control: Control,
    /// The address, for [`Method::Static`].
    pub address: Option<Cidr>,
    /// Only for a subnet with an address: a lease brings its own default route, and a second one would
    /// remain.
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

/// How a subnet's address is obtained. The names are version 1's subnet types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    Static,
    Dhcp4,
    /// `dhcp6`: neither stateful nor stateless is specified.
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
    pub to: Cidr,
    pub via: Option<Ip>,
    /// Preferred source address.
    pub from: Option<Ip>,
    pub metric: Option<u32>,
    pub mtu: Option<u32>,
    pub table: Option<u32>,
    pub scope: Option<String>,
    /// `unicast`, `blackhole`, `unreachable`, …
    pub route_type: Option<String>,
    pub on_link: Option<bool>,
    /// Keys without a field of their own (`congestion-window`, …).
    pub extra: Map,
}

/// A routing policy rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rule {
    pub from: Option<Cidr>,
    pub to: Option<Cidr>,
    pub table: Option<u32>,
    pub priority: Option<u32>,
    pub mark: Option<u32>,
    pub tos: Option<u32>,
}

/// DHCP settings that differ from the network stack's defaults (netplan `dhcp4-overrides`).
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

/// The longest id of an interface, in bytes. It need not be a device's name.
const MAX_NAME: usize = 128;

/// Whether a text can be the name or the id of an interface, which become parts of file names, and of command lines that ifupdown
/// passes to a shell.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| c.is_control() || c.is_whitespace() || "/\"'\\$`;&|<>()".contains(c))
}

/// Whether a tunnel of netplan's mode has its ends in IPv6.
pub fn is_tunnel_by_v6(mode: &str) -> bool {
    matches!(mode, "ip6gre" | "ip6gretap" | "ip6ip6" | "ipip6" | "vti6")
}

/// Calls `change` with the key and the mapping of each device in the mapping below `network:` of version 2.
pub fn change_devices(v2: &mut Map, change: &mut dyn FnMut(&str, &mut Map)) {
    let keys = |map: &Map| map.keys().map(str::to_owned).collect::<Vec<_>>();
    for section in keys(v2) {
        let Some(Value::Map(devices)) = v2.get_mut(&section) else { continue };
        for id in keys(devices) {
            if let Some(Value::Map(device)) = devices.get_mut(&id) {
                change(&id, device);
            }
        }
    }
}

impl Network {
    /// The interface called `name`.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name)
    }

    /// The bond, bridge or VRF that `name` is a member of.
    pub fn master_of(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.members().iter().any(|p| p == name))
    }

    /// The VLANs on top of `name`.
    pub fn vlans_on<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Interface> {
        self.interfaces.iter().filter(move |i| matches!(&i.device_type, DeviceType::Vlan { link, .. } if link == name))
    }

    /// Makes the network stack leave devices as it finds them, for a root that is reached over them: their
    /// addresses, routes and leases stay when the stack starts, stops, or loses its lease. A device for which
    /// the document sets this itself is not changed.
    pub fn keep(&mut self, carries_root: &dyn Fn(&Interface) -> bool) {
        let is_open = |i: &&mut Interface| i.keep_configuration.is_none();
        let mut kept: HashSet<String> = HashSet::new();
        for interface in self.interfaces.iter_mut().filter(|i| carries_root(i)).filter(is_open) {
            interface.keep_configuration = Some("yes".into());
            kept.insert(interface.id.clone());
        }
        if let Some(v2) = &mut self.v2 {
            change_devices(v2, &mut |id, device| {
                if kept.contains(id) {
                    device.insert("critical", true);
                }
            });
        }
    }

    /// The same network, with the address alone in place of each name server that has more and is reached by its address; and these
    /// servers as they were, each once. None if no server has more than its address.
    pub fn with_plain_servers(&self) -> Option<(Network, Vec<String>)> {
        let has_more = |text: &String| NameServer::parse(text).is_some_and(|server| server.has_more());
        if !self.interfaces.iter().flat_map(Interface::servers).chain(&self.dns.servers).any(has_more) {
            return None;
        }
        let mut network = self.clone();
        let of_devices = network.interfaces.iter_mut().flat_map(|interface| {
            interface.subnets.iter_mut().map(|subnet| &mut subnet.dns).chain([&mut interface.dns])
        });
        let (mut before, mut changed) = (Vec::new(), Vec::new());
        for text in of_devices.chain([&mut network.dns]).flat_map(|dns| &mut dns.servers) {
            let server = NameServer::parse(text).filter(NameServer::has_more);
            if let Some(ip) = server.as_ref().and_then(NameServer::plain) {
                before.push(std::mem::replace(text, ip.to_string()));
            }
        }
        // At once: one by one, each would be compared with all others.
        add_new(&mut changed, &before);
        Some((network, changed))
    }

    /// The network as it is when the named devices cannot be created: they have no members, and are members of none. The VLANs on top
    /// of them, and of each other, are not in it; they are returned beside it.
    pub fn detached_from(&self, mut names: HashSet<String>) -> (Network, Vec<Interface>) {
        let mut above: HashMap<&str, Vec<&str>> = HashMap::new();
        for interface in &self.interfaces {
            if let DeviceType::Vlan { link, .. } = &interface.device_type {
                above.entry(link).or_default().push(&interface.name);
            }
        }
        let mut open: Vec<&str> = names.iter().filter_map(|name| above.remove(name.as_str())).flatten().collect();
        while let Some(vlan) = open.pop() {
            open.extend(above.remove(vlan).unwrap_or_default());
            names.insert(vlan.to_owned());
        }
        let is_on_top = |i: &Interface| matches!(&i.device_type, DeviceType::Vlan { link, .. } if names.contains(link));
        let mut network = self.clone();
        let on_top = network.interfaces.extract_if(.., |i| is_on_top(i)).collect();
        for interface in &mut network.interfaces {
            let is_left_out = names.contains(&interface.name);
            if let DeviceType::Bond { interfaces, .. }
            | DeviceType::Bridge { interfaces, .. }
            | DeviceType::Vrf { interfaces, .. } = &mut interface.device_type
            {
                interfaces.retain(|member| !is_left_out && !names.contains(member));
            }
        }
        (network, on_top)
    }

    /// The interface's own name servers, else the machine's.
    pub fn dns_of<'a>(&'a self, interface: &'a Interface) -> &'a Dns {
        if interface.dns.is_empty() { &self.dns } else { &interface.dns }
    }
}

impl Interface {
    /// The names of the members of a bond, bridge or VRF.
    pub fn members(&self) -> &[String] {
        match &self.device_type {
            DeviceType::Bond { interfaces, .. }
            | DeviceType::Bridge { interfaces, .. }
            | DeviceType::Vrf { interfaces, .. } => interfaces,
            _ => &[],
        }
    }

    /// Whether the device exists without being created.
    pub fn is_physical(&self) -> bool {
        matches!(self.device_type, DeviceType::Ethernet | DeviceType::Infiniband | DeviceType::Wifi(_))
    }

    /// Whether several devices may match, or one whose name is unknown.
    pub fn is_pattern(&self) -> bool {
        !self.rename
            && (self.matching.name.is_some() || !self.matching.drivers.is_empty())
            && self.matching.mac.is_none()
    }

    /// Whether `name` is sure to be the device's name in the real root. Otherwise it is the key of whatever matches, or the name
    /// that this machine's device has in the initramfs, where udev may not have renamed it yet.
    pub fn is_named(&self) -> bool {
        self.rename || self.matching == Match::default()
    }

    /// Whether it is not brought up at boot.
    pub fn is_manual(&self) -> bool {
        self.subnets.iter().any(|s| s.control == Control::Manual)
    }

    /// Whether `keep_configuration` is plainly true.
    pub fn keeps_all(&self) -> bool {
        matches!(self.keep_configuration.as_deref(), Some("true" | "True" | "yes" | "on" | "1"))
    }

    /// Whether `keep_configuration` asks for anything.
    pub fn keeps_any(&self) -> bool {
        self.keep_configuration.as_deref().is_some_and(|kept| !Value::from(kept).is_false())
    }

    /// Whether `link_local` is not netplan's default, which is IPv6 alone.
    pub fn has_own_link_local(&self) -> bool {
        self.link_local.as_ref().is_some_and(|families| *families != ["ipv6"])
    }

    /// The keys of `extra` that ask for something: of all but those for offloading, `false` is netplan's default.
    pub fn extra_keys(&self) -> impl Iterator<Item = &str> {
        let asks = |(key, value): &(&str, &Value)| !value.is_false() || key.ends_with("-offload");
        self.extra.iter().filter(asks).map(|(key, _)| key)
    }

    /// Whether a subnet has this method.
    pub fn uses(&self, method: Method) -> bool {
        self.subnets.iter().any(|s| s.method == method)
    }

    /// Whether DHCPv4 is used.
    pub fn dhcp4(&self) -> bool {
        self.uses(Method::Dhcp4)
    }

    /// Whether DHCPv6 is used in any form; SLAAC alone is not DHCPv6.
    pub fn dhcp6(&self) -> bool {
        self.subnets.iter().any(|s| s.method.is_dhcp6())
    }

    /// Whether IPv6 addresses come from DHCPv6 or router advertisements.
    pub fn is_automatic_v6(&self) -> bool {
        self.dhcp6() || self.uses(Method::Slaac)
    }

    /// Static addresses, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &Cidr> {
        self.subnets.iter().filter_map(|s| s.address.as_ref())
    }

    /// Whether a gateway lies outside of all of the interface's networks, so that it must be taken as on-link.
    pub fn is_on_link(&self, gateway: &Ip) -> bool {
        self.addresses().any(|a| a.is_v6() == gateway.is_v6())
            && !gateway.is_link_local()
            && !self.addresses().any(|a| a.contains(gateway))
    }

    /// The default route by way of a subnet's gateway, marked as on-link if the gateway is outside of all networks.
    pub fn gateway_route(&self, subnet: &Subnet) -> Option<Route> {
        let gateway = subnet.gateway.as_ref()?;
        let mut route = Route::new(Cidr::default_of(gateway.is_v6()), Some(gateway.clone()));
        route.metric = subnet.metric;
        route.on_link = self.is_on_link(gateway).then_some(true);
        Some(route)
    }

    /// Routes of the interface and of its subnets, without those of gateways.
    pub fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.subnets.iter().flat_map(|s| &s.routes).chain(&self.routes)
    }

    /// Name servers of the interface's subnets and its own, in this order; some may be there twice.
    pub fn servers(&self) -> impl Iterator<Item = &String> {
        self.subnets.iter().flat_map(|s| &s.dns.servers).chain(&self.dns.servers)
    }

    /// How temporary addresses of IPv6 are used, as the kernel counts (`use_tempaddr`): 0 for not at all, 2 for rather than others. None
    /// if the configuration does not say.
    pub fn temporary_addresses(&self) -> Option<u8> {
        self.extra.get("ipv6-privacy").map(|on| if on.is_true() { 2 } else { 0 })
    }

    /// The device's MTU, else that of its last IPv4 subnet with one, as in cloud-init.
    pub fn link_mtu(&self) -> Option<u32> {
        self.mtu.or_else(|| self.subnet_mtu(false))
    }

    /// The MTU of IPv6, else that of the last IPv6 subnet with one.
    pub fn inet6_mtu(&self) -> Option<u32> {
        self.ipv6_mtu.or_else(|| self.subnet_mtu(true))
    }

    fn subnet_mtu(&self, v6: bool) -> Option<u32> {
        self.subnets.iter().filter(|s| s.is_v6() == v6).filter_map(|s| s.mtu).next_back()
    }

    /// The first metric of a subnet whose method is one of these.
    pub fn metric_of(&self, of: impl Fn(Method) -> bool) -> Option<u32> {
        self.subnets.iter().filter(|s| of(s.method)).find_map(|s| s.metric)
    }

    /// Name servers of the subnets, then of the interface, without repetitions.
    pub fn name_servers(&self) -> Dns {
        let mut dns = Dns::default();
        self.subnets.iter().for_each(|s| dns.merge(&s.dns));
        dns.merge(&self.dns);
        dns
    }
}

impl DhcpOverrides {
    /// The yes-or-no overrides by netplan's names, and whether each is not netplan's default.
    pub fn switches(&self) -> [(&'static str, bool); 7] {
        [
            ("send-hostname", self.send_hostname == Some(false)),
            ("use-dns", self.use_dns == Some(false)),
            ("use-domains", self.use_domains.as_deref().is_some_and(|domains| domains != "false")),
            ("use-hostname", self.use_hostname == Some(false)),
            ("use-mtu", self.use_mtu == Some(false)),
            ("use-ntp", self.use_ntp == Some(false)),
            ("use-routes", self.use_routes == Some(false)),
        ]
    }
}

impl Method {
    /// Whether DHCPv6 is used.
    pub fn is_dhcp6(self) -> bool {
        matches!(self, Method::Dhcp6 | Method::Dhcp6Stateful | Method::Dhcp6Stateless)
    }

    /// Whether IPv6 addresses come from DHCPv6 or router advertisements.
    pub fn is_automatic_v6(self) -> bool {
        self.is_dhcp6() || self == Method::Slaac
    }
}

impl Subnet {
    /// The broadcast address, if it differs from the last address of the network.
    pub fn unusual_broadcast(&self) -> Option<&Ip> {
        let usual = self.address.as_ref().and_then(Cidr::broadcast);
        self.broadcast.as_ref().filter(|b| usual.is_some_and(|u| u != **b))
    }

    /// Whether it is for IPv6: by its method, else by its address.
    pub fn is_v6(&self) -> bool {
        match self.method {
            Method::Static | Method::Manual | Method::Loopback => self.address.as_ref().is_some_and(Cidr::is_v6),
            Method::Dhcp4 => false,
            _ => true,
        }
    }
}

impl Route {
    /// Whether its gateway is of another family than its destination. The kernel has IPv4 routes by IPv6 gateways, and few stacks can
    /// express them.
    pub fn crosses_families(&self) -> bool {
        self.via.as_ref().is_some_and(|via| via.is_v6() != self.to.is_v6())
    }

    /// A route with a destination, a gateway and no options.
    pub fn new(to: Cidr, via: Option<Ip>) -> Route {
        Route {
            to,
            via,
            from: None,
            metric: None,
            mtu: None,
            table: None,
            scope: None,
            route_type: None,
            on_link: None,
            extra: Map::new(),
        }
    }
}

/// Adds each text that is not there yet.
fn add_new(list: &mut Vec<String>, new: &[String]) {
    // Most often a few are added, and a set would cost more than to look through the list.
    const FEW: usize = 8;
    if new.len() <= FEW {
        for text in new {
            if !list.contains(text) {
                list.push(text.clone());
            }
        }
        return;
    }
    let mut known: BTreeSet<&str> = list.iter().map(String::as_str).collect();
    let added: Vec<String> = new.iter().filter(|text| known.insert(text)).cloned().collect();
    list.extend(added);
}

impl Dns {
    /// Whether there are neither servers nor domains.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }

    /// Adds the servers and domains of another that are not there yet.
    pub fn merge(&mut self, other: &Dns) {
        add_new(&mut self.servers, &other.servers);
        add_new(&mut self.search, &other.search);
    }

    /// The servers of one family.
    pub fn servers_of(&self, v6: bool) -> impl Iterator<Item = &String> {
        self.servers.iter().filter(move |s| is_v6(s) == v6)
    }
}
