//! /etc/network/interfaces (interfaces(5)) as a datasource gives it, read by way of version 1.

use super::v1;
use crate::document::{Map, Value};
use crate::network::model::Network;

/// The most lines that are read.
const MAX_LINES: usize = 20_000;

/// Reads the text. Never fails: lines that say nothing here are reported.
pub fn read(text: &str) -> Network {
    v1::read(&to_v1(text))
}

/// A stanza's options in their order; some may be there several times.
type Options = Vec<(String, String)>;

/// One interface's stanzas put together.
struct Device {
    name: String,
    entry: Map,
    subnets: Vec<Value>,
    ports: Vec<String>,
    params: Map,
}

/// The text as the entries of version 1.
pub fn to_v1(text: &str) -> Vec<Value> {
    let mut auto: Vec<String> = Vec::new();
    let mut hotplug: Vec<String> = Vec::new();
    let mut stanzas: Vec<(Vec<String>, Options)> = Vec::new();
    let mut open = false;
    for line in lines(text) {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line.as_str(), ""));
        let names = || rest.split_whitespace().map(str::to_owned);
        match word {
            "auto" | "allow-auto" => {
                open = false;
                auto.extend(names());
            }
            "allow-hotplug" => {
                open = false;
                hotplug.extend(names());
            }
            "iface" => {
                open = true;
                stanzas.push((names().collect(), Vec::new()));
            }
            "mapping" | "source" | "source-directory" | "no-auto-down" | "no-scripts" => {
                open = false;
                log::warn!("interfaces: {word} is not read");
            }
            _ if word.starts_with("allow-") => open = false,
            _ if open => {
                if let Some((_, options)) = stanzas.last_mut() {
                    options.push((word.to_owned(), rest.trim().to_owned()));
                }
            }
            _ => log::warn!("interfaces: {word} is outside of an interface; it is left out"),
        }
    }
    let mut devices: Vec<Device> = Vec::new();
    for (head, options) in stanzas {
        let [name, family, method, ..] = head.as_slice() else {
            log::warn!("interfaces: expected iface, a name, a family and a method");
            continue;
        };
        let control = match () {
            () if auto.contains(name) => "auto",
            () if hotplug.contains(name) => "hotplug",
            () => "manual",
        };
        let i = devices.iter().position(|d| d.name == *name).unwrap_or_else(|| {
            devices.push(Device::new(name));
            devices.len() - 1
        });
        if let Some(device) = devices.get_mut(i) {
            device.stanza(family, method, control, options);
        }
    }
    masters(&mut devices);
    devices.into_iter().map(Device::entry).collect()
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

/// A part that names its bond (`bond-master`) is one of the bond's interfaces.
fn masters(devices: &mut [Device]) {
    let parts: Vec<(String, String)> = devices
        .iter_mut()
        .filter_map(|d| d.params.remove("master").and_then(|m| Some((m.text()?, d.name.clone()))))
        .collect();
    for (master, part) in parts {
        if let Some(bond) = devices.iter_mut().find(|d| d.name == master) {
            bond.entry.insert("type", "bond");
            if !bond.ports.contains(&part) {
                bond.ports.push(part);
            }
        }
    }
}

impl Device {
    fn new(name: &str) -> Device {
        let kind = if name == "lo" { "loopback" } else { "physical" };
        let mut entry = Map::from_iter([("type", kind), ("name", name)]);
        if let Some((link, id)) = name.rsplit_once('.').and_then(|(l, i)| Some((l, i.parse::<u32>().ok()?))) {
            entry.insert("type", "vlan");
            entry.insert("vlan_link", link);
            entry.insert("vlan_id", id);
        }
        Device { name: name.to_owned(), entry, subnets: Vec::new(), ports: Vec::new(), params: Map::new() }
    }

    fn stanza(&mut self, family: &str, method: &str, control: &str, options: Options) {
        let kind = match (family, method) {
            ("inet" | "inet6", "loopback") => "loopback",
            ("inet" | "inet6", "static") => "static",
            ("inet", "dhcp") => "dhcp4",
            ("inet6", "dhcp") => "dhcp6",
            ("inet6", "auto") => "ipv6_slaac",
            ("inet" | "inet6", "manual") => "manual",
            _ => {
                log::warn!("interfaces: {}: {family} {method} is not read", self.name);
                return;
            }
        };
        let mut subnet = Map::from_iter([("type", kind), ("control", control)]);
        let mut routes = Vec::new();
        for (key, value) in options {
            self.option(&key, &value, &mut subnet, &mut routes);
        }
        if !routes.is_empty() {
            subnet.insert("routes", routes);
        }
        self.subnets.push(subnet.into());
    }

    fn option(&mut self, key: &str, value: &str, subnet: &mut Map, routes: &mut Vec<Value>) {
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
                None => log::warn!("interfaces: {}: the {key} command is left out", self.name),
            },
            // What an added route is taken away with.
            "down" | "pre-down" if value.contains("route") && value.contains(" del") => {}
            option if option.starts_with("bond-") || option.starts_with("bridge-") => {
                self.params.insert(option, value);
            }
            _ => log::warn!("interfaces: {}: {key} is not read", self.name),
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
            // A part of a bond may repeat the bond's options; only the bond's count.
            let params = self.params.into_entries().into_iter().filter(|(k, _)| k.starts_with(prefix));
            self.entry.insert("params", params.collect::<Map>());
        }
        self.entry.insert("subnets", self.subnets);
        self.entry.into()
    }
}

/// A route from a command of `ip` or `route` that adds one.
fn route(command: &str) -> Option<Value> {
    let command = command.split("||").next()?;
    let mut words = command.split_whitespace().peekable();
    let program = words.next()?.rsplit('/').next()?;
    let mut out = Map::new();
    let mut v6 = false;
    if !matches!(program, "ip" | "route") {
        return None;
    }
    while let Some(word) = words.next() {
        match word {
            "route" | "r" | "add" | "-net" | "-host" | "dev" if word != "dev" => {}
            "dev" => drop(words.next()),
            "-A" | "-family" | "-f" => v6 = words.next()? == "inet6",
            "-6" => v6 = true,
            "-4" => {}
            "netmask" => drop(out.insert("netmask", words.next()?)),
            "via" | "gw" => drop(out.insert("gateway", words.next()?)),
            "metric" => drop(out.insert("metric", words.next()?)),
            "default" => drop(out.insert("network", if v6 { "::/0" } else { "0.0.0.0/0" })),
            address if address.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') => {
                out.insert("network", address);
            }
            _ => return None,
        }
    }
    (out.contains_key("network") && out.contains_key("gateway")).then(|| out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::model::{Control, Kind, Method};

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
        assert_eq!(eth0.matching.mac.as_deref(), Some("FA:16:3e:00:00:01"));
        assert_eq!(eth0.subnets[0].address.as_ref().unwrap().to_string(), "10.0.0.5/16");
        assert_eq!(eth0.subnets[0].dns.servers, ["1.1.1.1", "8.8.8.8"]);
        let routes: Vec<String> = eth0.all_routes().map(|r| r.to.to_string()).collect();
        assert_eq!(routes, ["10.9.0.0/16", "::/0"]);
        assert_eq!(eth0.subnets[1].method, Method::Slaac);
        let eth1 = n.interface("eth1").unwrap();
        assert_eq!((eth1.subnets[0].control, eth1.mtu), (Control::Hotplug, Some(1400)));
        assert_eq!(n.interface("bond0").unwrap().parts(), ["eth2"]);
        assert_eq!(n.interface("bond0.7").unwrap().kind, Kind::Vlan { id: 7, link: "bond0".into() });
        assert_eq!(n.interface("v").unwrap().kind, Kind::Vlan { id: 9, link: "eth1".into() });
        assert_eq!(n.interface("br0").unwrap().parts(), ["eth1", "v"]);
        assert_eq!(n.interface("lo").unwrap().kind, Kind::Loopback);
    }

    #[test]
    fn nonsense_is_no_interface() {
        assert!(read("iface\niface a\n  address 1\nfoo bar\nmapping x\n  map y\n").interfaces.is_empty());
    }
}
