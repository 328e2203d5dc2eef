//! /etc/network/interfaces (interfaces(5)) from a datasource, read by way of version 1.

use super::format::{Format, Syntax, text};
use super::v1;
use crate::base::error::Result;
use crate::base::manual;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::network::mac::Macs;
use crate::network::model::Network;
use std::collections::{HashMap, HashSet};
use std::fmt;

pub static FORMAT: Format =
    Format { name: "eni", title: manual("/etc/network/interfaces"), syntax: Syntax::Text, recognises, reader: read };

/// The most lines that are read.
const MAX_LINES: usize = 20_000;

fn recognises(document: &Value) -> bool {
    let is_iface = |line: &str| line.split_whitespace().next().is_some_and(|word| matches!(word, "iface" | "auto"));
    document.as_str().is_some_and(|text| text.lines().take(MAX_LINES).any(is_iface))
}

/// Reads the text. Lines that are not understood are reported and ignored.
///
/// # Errors
/// The document is not a text.
fn read(document: &str, value: &Value, _: &Macs, report: &Problems) -> Result<Network> {
    let entries = to_v1(text(document, value)?, report);
    Ok(v1::read(&entries, report))
}

fn warn(report: &Problems, text: impl fmt::Display) {
    report.about("/etc/network/interfaces").warn(format_args!("{text}; it is ignored"));
}

/// A stanza's options in their order; a key may occur several times.
type Options = Vec<(String, String)>;

/// All stanzas of one interface.
struct Device {
    name: String,
    entry: Map,
    subnets: Vec<Value>,
    ports: Vec<String>,
    params: Map,
}

/// The text as the entries of version 1.
fn to_v1(text: &str, report: &Problems) -> Vec<Value> {
    let Parsed { auto, hotplug, stanzas } = parse(text, report);
    let mut devices: Vec<Device> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (head, options) in stanzas {
        let [name, family, method, ..] = head.as_slice() else {
            warn(report, "expected a name, a family and a method after iface");
            continue;
        };
        let control = match () {
            () if auto.contains(name) => "auto",
            () if hotplug.contains(name) => "hotplug",
            () => "manual",
        };
        // `eth0:1` is an alias: a further address of eth0.
        let name = name.split_once(':').map_or(name.as_str(), |(device, _)| device);
        let place = *places.entry(name.to_owned()).or_insert_with(|| {
            devices.push(Device::new(name));
            devices.len() - 1
        });
        if let Some(device) = devices.get_mut(place) {
            device.stanza(family, method, control, options, report);
        }
    }
    enslave(&mut devices, &places);
    start_parts(&mut devices);
    devices.into_iter().map(Device::entry).collect()
}

/// The parsed lines: the devices that are started, and the words after `iface` with the options of the stanza.
#[derive(Default)]
struct Parsed {
    auto: HashSet<String>,
    hotplug: HashSet<String>,
    stanzas: Vec<(Vec<String>, Options)>,
}

fn parse(text: &str, report: &Problems) -> Parsed {
    let mut parsed = Parsed::default();
    // Whether the lines belong to the last stanza.
    let mut in_stanza = false;
    for line in lines(text) {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line.as_str(), ""));
        let names = || rest.split_whitespace().map(str::to_owned);
        let starts_stanza = word == "iface";
        match word {
            "auto" | "allow-auto" => parsed.auto.extend(names()),
            "allow-hotplug" => parsed.hotplug.extend(names()),
            "iface" => parsed.stanzas.push((names().collect(), Vec::new())),
            "mapping" | "source" | "source-directory" | "no-auto-down" | "no-scripts" => {
                warn(report, format_args!("{word} is not supported"));
            }
            _ if word.starts_with("allow-") => {}
            _ => {
                match parsed.stanzas.last_mut().filter(|_| in_stanza) {
                    Some((_, options)) => options.push((word.to_owned(), rest.trim().to_owned())),
                    None => warn(report, format_args!("{word} is outside of an interface")),
                }
                continue;
            }
        }
        in_stanza = starts_stanza;
    }
    parsed
}

/// Lines without comments, with continued ones joined.
fn lines(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut continued = false;
    for line in text.lines().take(MAX_LINES) {
        let line = line.trim();
        let (line, more) = line.strip_suffix('\\').map_or((line, false), |l| (l, true));
        match out.last_mut() {
            Some(last) if continued => {
                last.push(' ');
                last.push_str(line);
            }
            _ => out.push(line.to_owned()),
        }
        continued = more;
    }
    out.retain(|l| !l.is_empty() && !l.starts_with('#'));
    out
}

/// Adds the devices that name their bond (`bond-master`) to the bond's interfaces.
fn enslave(devices: &mut [Device], places: &HashMap<String, usize>) {
    let members: Vec<(String, String)> = devices
        .iter_mut()
        .filter_map(|d| d.params.remove("master").and_then(|m| Some((m.text()?, d.name.clone()))))
        .collect();
    let mut known: HashSet<(String, String)> = HashSet::new();
    for device in devices.iter() {
        known.extend(device.ports.iter().map(|port| (device.name.clone(), port.clone())));
    }
    for (master, member) in members {
        if let Some(bond) = places.get(&master).and_then(|place| devices.get_mut(*place)) {
            bond.entry.insert("type", "bond");
            if known.insert((master, member.clone())) {
                bond.ports.push(member);
            }
        }
    }
}

/// Lets devices be started that others are built on. They often have no `auto`: ifup brings them up with what is on top.
fn start_parts(devices: &mut [Device]) {
    let link = |d: &Device| d.entry.get("vlan_link").and_then(Value::text);
    let parts: HashSet<String> = devices.iter().flat_map(|d| d.ports.iter().cloned().chain(link(d))).collect();
    for device in devices.iter_mut().filter(|d| parts.contains(&d.name)) {
        for subnet in &mut device.subnets {
            if let Value::Map(subnet) = subnet
                && subnet.get("type").and_then(Value::as_str) == Some("manual")
            {
                subnet.remove("control");
            }
        }
    }
}

impl Device {
    fn new(name: &str) -> Device {
        let device_type = if name == "lo" { "loopback" } else { "physical" };
        let mut entry = Map::from_iter([("type", device_type), ("name", name)]);
        if let Some((link, id)) = name.rsplit_once('.').and_then(|(l, i)| Some((l, i.parse::<u32>().ok()?))) {
            entry.insert("type", "vlan");
            entry.insert("vlan_link", link);
            entry.insert("vlan_id", id);
        }
        Device { name: name.to_owned(), entry, subnets: Vec::new(), ports: Vec::new(), params: Map::new() }
    }

    fn stanza(&mut self, family: &str, method: &str, control: &str, options: Options, report: &Problems) {
        let subnet_type = match (family, method) {
            ("inet" | "inet6", "loopback") => "loopback",
            ("inet" | "inet6", "static") => "static",
            ("inet", "dhcp") => "dhcp4",
            ("inet6", "dhcp") => "dhcp6",
            ("inet6", "auto") => "ipv6_slaac",
            ("inet" | "inet6", "manual") => "manual",
            _ => {
                warn(report, format_args!("{}: {family} {method} is not supported", self.name));
                return;
            }
        };
        let mut subnet = Map::from_iter([("type", subnet_type), ("control", control)]);
        let mut routes = Vec::new();
        for (key, value) in options {
            self.option(&key, &value, &mut subnet, &mut routes, report);
        }
        if !routes.is_empty() {
            subnet.insert("routes", routes);
        }
        self.subnets.push(subnet.into());
    }

    fn option(&mut self, key: &str, value: &str, subnet: &mut Map, routes: &mut Vec<Value>, report: &Problems) {
        let words = || Value::List(value.split_whitespace().map(Value::from).collect());
        match key.replace('_', "-").as_str() {
            "address" | "netmask" | "gateway" | "broadcast" | "pointopoint" | "scope" | "metric" => {
                subnet.insert(key, value);
            }
            "mtu" => drop(self.entry.insert("mtu", value)),
            "hwaddress" => {
                let mac = value.split_whitespace().last().unwrap_or_default();
                self.entry.insert("mac_address", mac);
            }
            "accept-ra" => drop(self.entry.insert("accept-ra", value != "0")),
            "privext" => drop(self.entry.insert("ipv6-privacy", value != "0")),
            "dns-nameservers" | "dns-nameserver" => drop(subnet.insert("dns_nameservers", words())),
            "dns-search" | "dns-domain" => drop(subnet.insert("dns_search", words())),
            "bond-slaves" | "bridge-ports" => {
                self.entry.insert("type", if key.starts_with("bond") { "bond" } else { "bridge" });
                self.ports.extend(value.split_whitespace().filter(|w| *w != "none").map(str::to_owned));
            }
            "bond-master" => drop(self.params.insert("master", value)),
            "vlan-raw-device" => {
                self.entry.insert("type", "vlan");
                self.entry.insert("vlan_link", value);
                let id = self.name.strip_prefix("vlan").and_then(|id| id.parse::<u32>().ok());
                if let (None, Some(id)) = (self.entry.get("vlan_id"), id) {
                    self.entry.insert("vlan_id", id);
                }
            }
            "vlan-id" => drop(self.entry.insert("vlan_id", value)),
            "up" | "post-up" => match route(value) {
                Some(route) => routes.push(route),
                None => warn(report, format_args!("{}: the {key} command adds no route", self.name)),
            },
            // The counterpart of a command that adds a route.
            "down" | "pre-down" if value.contains("route") && value.contains(" del") => {}
            option if option.starts_with("bond-") || option.starts_with("bridge-") => {
                self.params.insert(option, value);
            }
            _ => warn(report, format_args!("{}: {key} is not supported", self.name)),
        }
    }

    fn entry(mut self) -> Value {
        let ports = |list: Vec<String>| Value::List(list.into_iter().map(Value::from).collect());
        let own = match self.entry.get("type").and_then(Value::as_str) {
            Some("bond") => Some(("bond_interfaces", "bond-")),
            Some("bridge") => Some(("bridge_interfaces", "bridge-")),
            _ => None,
        };
        if let Some((key, prefix)) = own {
            self.entry.insert(key, ports(self.ports));
            // A member of a bond may repeat the bond's options; only those of the bond itself are used.
            let params = self.params.into_entries().into_iter().filter(|(k, _)| k.starts_with(prefix));
            self.entry.insert("params", params.collect::<Map>());
        }
        self.entry.insert("subnets", self.subnets);
        self.entry.into()
    }
}

/// The route that a command of `ip` or `route` adds. None if it is another command.
fn route(command: &str) -> Option<Value> {
    let command = command.split("||").next()?;
    let mut words = command.split_whitespace().peekable();
    let program = words.next()?.rsplit('/').next()?;
    let mut out = Map::new();
    let mut v6 = false;
    // To these commands an address without a prefix is a single host.
    let mut is_host = program == "ip";
    if !matches!(program, "ip" | "route") {
        return None;
    }
    while let Some(word) = words.next() {
        match word {
            "route" | "r" | "add" | "-net" | "dev" if word != "dev" => {}
            "-host" => is_host = true,
            "dev" => drop(words.next()),
            "-A" | "-family" | "-f" => v6 = words.next()? == "inet6",
            "-6" => v6 = true,
            "-4" => {}
            "netmask" => drop(out.insert("netmask", words.next()?)),
            "via" | "gw" => drop(out.insert("gateway", words.next()?)),
            "metric" => drop(out.insert("metric", words.next()?)),
            "default" => {
                out.insert("network", if v6 { "::/0" } else { "0.0.0.0/0" });
                is_host = false;
            }
            address if address.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') => {
                out.insert("network", address);
                is_host &= !address.contains('/');
                v6 |= address.contains(':');
            }
            _ => return None,
        }
    }
    if is_host && !out.contains_key("netmask") && out.contains_key("gateway") {
        out.insert("prefix", if v6 { "128" } else { "32" });
    }
    (out.contains_key("network") && out.contains_key("gateway")).then(|| out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::model::{Control, DeviceType, Method};

    fn read(text: &str) -> Network {
        super::read("t", &text.into(), &Macs::default(), &Problems::new()).unwrap()
    }

    #[test]
    fn privacy_is_that_of_version_2() {
        let of = |value: &str| {
            let network = read(&format!("auto e\niface e inet6 auto\n    privext {value}\n"));
            network.interface("e").unwrap().extra.get("ipv6-privacy").cloned()
        };
        assert_eq!((of("2"), of("0")), (Some(true.into()), Some(false.into())));
    }

    #[test]
    fn stanzas_of_one_device_are_one_interface() {
        let n = read(
            "# nova\nauto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n  hwaddress ether FA:16:3e:00:00:01\n\
             \x20 address 10.0.0.5\n  netmask 255.255.0.0\n  gateway 10.0.0.1\n  dns-nameservers 1.1.1.1 \\\n   8.8.8.8\n  dns-search a b\n\
             \x20 post-up route add -net 10.9.0.0 netmask 255.255.0.0 gw 10.0.0.9 metric 7 || true\n  up ip -6 route add default via fe80::1\n\
             \x20 up echo hello\niface eth0 inet6 auto\nallow-hotplug eth1\niface eth1 inet dhcp\n  mtu 1400\niface eth2 inet manual\n  bond-master bond0\n\
             auto bond0\niface bond0 inet dhcp\n  bond-mode 4\n  bond_miimon 100\n  bond-slaves none\nauto bond0.7\niface bond0.7 inet manual\n\
             iface v inet manual\n  vlan-raw-device eth1\n  vlan_id 9\niface br0 inet manual\n  bridge_ports eth1 v\n  bridge_stp off\n",
        );
        let eth0 = n.interface("eth0").unwrap();
        assert_eq!(eth0.matching.mac.as_deref(), Some("fa:16:3e:00:00:01"));
        assert_eq!(eth0.subnets[0].address.as_ref().unwrap().to_string(), "10.0.0.5/16");
        assert_eq!(eth0.subnets[0].dns.servers, ["1.1.1.1", "8.8.8.8"]);
        let routes: Vec<String> = eth0.all_routes().map(|r| r.to.to_string()).collect();
        assert_eq!(routes, ["10.9.0.0/16", "::/0"]);
        assert_eq!(eth0.subnets[1].method, Method::Slaac);
        let eth1 = n.interface("eth1").unwrap();
        assert_eq!((eth1.subnets[0].control, eth1.mtu), (Control::Hotplug, Some(1400)));
        assert_eq!(n.interface("bond0").unwrap().members(), ["eth2"]);
        assert_eq!(n.interface("bond0.7").unwrap().device_type, DeviceType::Vlan { id: 7, link: "bond0".into() });
        assert_eq!(n.interface("v").unwrap().device_type, DeviceType::Vlan { id: 9, link: "eth1".into() });
        assert_eq!(n.interface("br0").unwrap().members(), ["eth1", "v"]);
        assert_eq!(n.interface("lo").unwrap().device_type, DeviceType::Loopback);
    }

    #[test]
    fn a_command_without_a_prefix_means_one_host() {
        let n = read(
            "iface a inet static\n address 10.0.0.5/24\n up ip route add 192.0.2.8 via 10.0.0.1\n up route add -host 192.0.2.9 gw 10.0.0.1\n\
             \x20up ip -6 route add 2001:db8::9 via fe80::1\n up ip route add 198.51.100.0/24 via 10.0.0.1\n up ip route add default via 10.0.0.1\n",
        );
        let routes: Vec<String> = n.interface("a").unwrap().all_routes().map(|r| r.to.to_string()).collect();
        assert_eq!(routes, ["192.0.2.8/32", "192.0.2.9/32", "2001:db8::9/128", "198.51.100.0/24", "0.0.0.0/0"]);
    }

    #[test]
    fn lower_devices_start_with_those_above() {
        let n = read(
            "iface a inet manual\niface b inet manual\n bond-master bond0\nauto bond0\niface bond0 inet dhcp\nauto br0\niface br0 inet dhcp\n\
             \x20 bridge_ports c\niface c inet manual\nauto a.5\niface a.5 inet dhcp\niface d inet manual\niface e inet dhcp\nauto e.6\n\
             iface e.6 inet dhcp\n",
        );
        let is_manual = |name: &&str| n.interface(name).unwrap().is_manual();
        assert_eq!(["a", "b", "c", "d", "e"].into_iter().filter(is_manual).collect::<Vec<_>>(), ["d", "e"]);
    }

    #[test]
    fn an_alias_is_a_further_address() {
        let n = read("auto eth0\niface eth0 inet dhcp\nauto eth0:1\niface eth0:1 inet static\n address 10.0.0.3/24\n");
        let [eth0] = n.interfaces.as_slice() else { panic!("{n:?}") };
        assert!(eth0.dhcp4() && eth0.addresses().count() == 1);
    }

    #[test]
    fn text_without_stanzas_has_no_interface() {
        assert!(read("iface\niface a\n  address 1\nfoo bar\nmapping x\n  map y\n").interfaces.is_empty());
    }
}
