//! OpenStack's network_data.json (nova's network metadata schema), read by way of version 1, as cloud-init does.

use super::format::{Format, Syntax};
use super::v1;
use crate::base::error::{Error, Result};
use crate::base::manual;
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Map, Value};
use crate::machine::nic::MAX_DEVICE_NAME;
use crate::network::mac::{Macs, plain_mac};
use crate::network::model::{Interface, Network, is_valid_name};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

const DOCUMENT: &str = "network_data.json";

/// Keys that a network shares with version 1's subnets.
const SUBNET_KEYS: &[&str] =
    &["netmask", "broadcast", "metric", "gateway", "pointopoint", "scope", "dns_nameservers", "dns_search"];

/// Keys that a route shares with version 1's routes.
const ROUTE_KEYS: &[&str] = &["network", "destination", "netmask", "gateway", "metric"];

pub static FORMAT: Format = Format {
    name: "network_data.json",
    title: manual("OpenStack's network_data.json"),
    syntax: Syntax::Json,
    recognises: |document| document.get("links").is_some_and(|links| links.as_list().is_some()),
    reader: read,
};

/// Reads network_data.json for this machine. A link without a name whose MAC address no device has yet is found by its MAC
/// address when it appears.
///
/// # Errors
/// The document is not a mapping; or no device will appear later, and a link has no name and no device has its MAC address.
fn read(_: &str, value: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
    let converted = Converter::run(value, macs, report)?;
    if macs.is_complete() {
        converted.check_names()?;
    }
    let mut network = v1::read(&converted.config, report);
    let unnamed: HashMap<&String, &String> = converted.unnamed.iter().map(|(link, name)| (name, link)).collect();
    network.interfaces.retain_mut(|interface| {
        let Some(link) = unnamed.get(&interface.name) else { return true };
        interface.rename = false;
        if interface.matching.mac.is_none() {
            warn(report, format_args!("link {link} has neither a name nor a MAC address"));
        }
        interface.matching.mac.is_some()
    });
    network.interfaces.iter_mut().for_each(leave_to_advertisements);
    Ok(network)
}

/// Removes IPv6 default routes from subnets whose addresses are automatic. The router advertises its own;
/// with a second one of the same metric, the kernel would balance flows between the two (ECMP).
fn leave_to_advertisements(interface: &mut Interface) {
    if interface.accept_ra == Some(false) {
        return;
    }
    for subnet in interface.subnets.iter_mut().filter(|s| s.method.is_automatic_v6()) {
        subnet.gateway = subnet.gateway.take().filter(|gateway| !gateway.is_v6());
        subnet.routes.retain(|route| !(route.to.is_default() && route.to.is_v6()));
    }
}

/// network_data.json as version 1.
///
/// # Errors
/// The document is not a mapping; a link has no name and no device has its MAC address.
pub fn to_v1(value: &Value, macs: &Macs, report: &Problems) -> Result<Value> {
    let converted = Converter::run(value, macs, report)?;
    converted.check_names()?;
    Ok(Map::from_iter([("version", Value::Int(1)), ("config", converted.config.into())]).into())
}

fn warn(report: &Problems, text: impl fmt::Display) {
    report.about(DOCUMENT).warn(format_args!("{text}; it is ignored"));
}

#[derive(Default)]
struct Converter {
    config: Vec<Value>,
    /// The name of each link's device, by the link's id.
    names: BTreeMap<String, String>,
    /// Links whose device has no known name, each with a generated name.
    unnamed: BTreeMap<String, String>,
    /// The names so far.
    taken: HashSet<String>,
    /// How many bonds there are so far, with names or without.
    bonds: usize,
}

impl Converter {
    fn run(value: &Value, macs: &Macs, report: &Problems) -> Result<Converter> {
        if value.as_map().is_none() {
            return Err(Error::new(format!("{DOCUMENT}: expected a mapping, found {}", value.kind())));
        }
        let links = mappings(value, "links");
        let networks = by_link(mappings(value, "networks"));
        let mut converter = Converter::default();
        // VLANs and bonds refer to links that may come later.
        for link in &links {
            converter.name(link, macs, report);
        }
        for link in &links {
            converter.link(link, &networks, macs, report);
        }
        for service in mappings(value, "services") {
            let mut entry = service.clone();
            entry.insert("type", "nameserver");
            converter.config.push(entry.into());
        }
        Ok(converter)
    }

    /// Fails if a link has no name.
    fn check_names(&self) -> Result<()> {
        match self.unnamed.keys().next() {
            Some(link) => {
                Err(Error::new(format!("{DOCUMENT}: link {link} has no name, and no device has its MAC address")))
            }
            None => Ok(()),
        }
    }

    /// Finds the name of a link that is not a VLAN.
    fn name(&mut self, link: &Map, macs: &Macs, report: &Problems) {
        let (Some(id), link_type) = (text(link, "id"), text(link, "type").unwrap_or_default()) else {
            warn(report, "a link without an id");
            return;
        };
        let given = text(link, "name").filter(|n| is_valid_name(n));
        let number = self.bonds;
        self.bonds += usize::from(link_type == "bond");
        let name = match (given, link_type.as_str()) {
            (_, "vlan") => return,
            (Some(name), _) => name,
            (None, "bond") => {
                // One more than there are names is enough to find a free one.
                let mut free = (number..=number + self.taken.len())
                    .map(|n| format!("bond{n}"))
                    .filter(|n| !self.taken.contains(n));
                free.next().unwrap_or_default()
            }
            (None, _) => {
                let known = mac(link).and_then(|m| macs.name(&m).map(str::to_owned));
                known.unwrap_or_else(|| {
                    // Derived from the id, because it has to be unique, and valid in a file name.
                    let placeholder: String =
                        id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
                    self.unnamed.insert(id.clone(), placeholder.clone());
                    placeholder
                })
            }
        };
        self.taken.insert(name.clone());
        self.names.insert(id, name);
    }

    /// A name for a VLAN that the kernel takes: the device's name with the tag, else one of the tag alone.
    fn vlan_name(&mut self, below: &str, tag: &str) -> String {
        let mut name = format!("{below}.{tag}");
        if name.len() > MAX_DEVICE_NAME {
            let short = format!("vlan{tag}");
            // One more than there are names is enough to find a free one.
            let numbered = (1..=self.taken.len() + 1).map(|n| format!("{short}.{n}"));
            let free = std::iter::once(short.clone()).chain(numbered).find(|name| !self.taken.contains(name));
            name = free.unwrap_or(short);
        }
        self.taken.insert(name.clone());
        name
    }

    fn name_of(&self, id: &str) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    fn link(&mut self, link: &Map, networks: &Networks, macs: &Macs, report: &Problems) {
        let Some(id) = text(link, "id") else { return };
        let mut entry = Map::new();
        if let Some(mtu) = link.get("mtu") {
            entry.insert("mtu", mtu.clone());
        }
        let mac = mac(link);
        match text(link, "type").as_deref() {
            Some("bond") => {
                entry.insert("type", "bond");
                entry.insert("name", self.name_of(&id));
                if let Some(mac) = mac {
                    entry.insert("mac_address", mac);
                }
                let parts = link.get("bond_links").and_then(Value::as_list).unwrap_or_default();
                let parts = parts.iter().filter_map(Value::text).map(|p| self.name_of(&p).into());
                entry.insert("bond_interfaces", Value::List(parts.collect()));
                let params = link.iter().filter(|(k, _)| *k != "bond_links");
                let params = params.filter_map(|(k, v)| {
                    let key = k.strip_prefix("bond_")?;
                    // These two name a link.
                    let is_link = matches!(key, "primary" | "active_slave");
                    let name = v.text().filter(|_| is_link).map(|id| self.name_of(&id).into());
                    Some((format!("bond-{key}"), name.unwrap_or_else(|| v.clone())))
                });
                entry.insert("params", params.collect::<Map>());
            }
            Some("vlan") => {
                let (Some(below), Some(tag)) = (text(link, "vlan_link"), text(link, "vlan_id")) else {
                    warn(report, format_args!("link {id}: expected vlan_link and vlan_id"));
                    return;
                };
                let below_name = self.name_of(&below);
                let name = self.vlan_name(&below_name, &tag);
                entry.insert("type", "vlan");
                entry.insert("name", name.as_str());
                entry.insert("vlan_link", below_name);
                entry.insert("vlan_id", link.get("vlan_id").cloned().unwrap_or_default());
                if let Some(mac) = text(link, "vlan_mac_address") {
                    entry.insert("mac_address", mac);
                }
                self.names.insert(id.clone(), name);
            }
            _ => {
                let name = self.name_of(&id);
                let infiniband = macs.infiniband(&name);
                entry.insert("type", if infiniband.is_some() { "infiniband" } else { "physical" });
                let mac = infiniband.map(str::to_owned).or(mac);
                entry.insert("mac_address", mac.map_or(Value::Null, Value::from));
                entry.insert("name", name);
            }
        }
        let mut subnets = Vec::new();
        for network in networks.get(&id).into_iter().flatten() {
            if let Some((subnet, accept_ra)) = subnet(network, report) {
                subnets.push(subnet);
                if let Some(accept) = accept_ra {
                    entry.insert("accept-ra", accept);
                }
            }
        }
        entry.insert("subnets", Value::List(subnets));
        self.config.push(entry.into());
    }
}

/// Networks by the id of their link, each in the document's order.
type Networks<'a> = HashMap<String, Vec<&'a Map>>;

fn by_link(networks: Vec<&Map>) -> Networks<'_> {
    let mut out = Networks::new();
    for network in networks {
        if let Some(link) = text(network, "link") {
            out.entry(link).or_default().push(network);
        }
    }
    out
}

/// A network as a subnet, and whether to accept router advertisements: with a static IPv6 address they would
/// add another one, but with DHCPv6 they announce the default route.
fn subnet(network: &Map, report: &Problems) -> Option<(Value, Option<bool>)> {
    let network_type = text(network, "type").unwrap_or_default();
    let method = match network_type.as_str() {
        "ipv4_dhcp" => "dhcp4",
        "ipv6_dhcp" => "dhcp6",
        // cloud-init passes types on that it does not know; these are valid in version 1.
        "ipv6_slaac" | "ipv6_dhcpv6-stateless" | "ipv6_dhcpv6-stateful" | "dhcp" | "dhcp4" | "dhcp6" | "manual" => {
            &network_type
        }
        "ipv4" | "static" => "static",
        "ipv6" | "static6" => "static6",
        _ => {
            warn(
                report,
                format_args!(
                    "network type: expected ipv4, ipv4_dhcp, ipv6 and the like, found {}",
                    quoted(&network_type)
                ),
            );
            return None;
        }
    };
    let mut out = Map::from_iter([("type", method)]);
    for key in SUBNET_KEYS {
        if let Some(value) = network.get(key) {
            out.insert(*key, value.clone());
        }
    }
    if matches!(method, "static" | "static6") {
        out.insert("address", network.get("ip_address").cloned().unwrap_or_default());
    }
    for family in ["ipv4", "ipv6"] {
        if network_type == family {
            out.insert(family, true);
        }
    }
    let mut servers = Vec::new();
    let mut routes = Vec::new();
    for route in list(network, "routes") {
        servers.extend(services(route));
        let known = route.iter().filter(|(k, _)| ROUTE_KEYS.contains(k));
        routes.push(Value::Map(known.map(|(k, v)| (k, v.clone())).collect()));
    }
    let mut known: HashSet<String> = servers.iter().filter_map(Value::text).collect();
    servers.extend(services(network).into_iter().filter(|s| s.text().is_none_or(|address| known.insert(address))));
    if !servers.is_empty() {
        out.insert("dns_nameservers", servers);
    }
    if !routes.is_empty() {
        out.insert("routes", routes);
    }
    let accept_ra = match network_type.as_str() {
        "ipv6_dhcp" | "ipv6_dhcpv6-stateful" => Some(true),
        "ipv6" | "static6" => Some(false),
        _ => None,
    };
    Some((out.into(), accept_ra))
}

/// The addresses of the name servers in `services`.
fn services(map: &Map) -> Vec<Value> {
    let dns = list(map, "services").filter(|s| text(s, "type").as_deref() == Some("dns"));
    dns.filter_map(|s| s.get("address").filter(|a| !a.is_null()).cloned()).collect()
}

/// The mappings of a list in the document.
fn mappings<'a>(value: &'a Value, key: &str) -> Vec<&'a Map> {
    value.as_map().map(|map| list(map, key).collect()).unwrap_or_default()
}

fn list<'a>(map: &'a Map, key: &str) -> impl Iterator<Item = &'a Map> {
    map.get(key).and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_map)
}

fn text(map: &Map, key: &str) -> Option<String> {
    map.get(key).and_then(Value::text).filter(|t| !t.is_empty())
}

fn mac(link: &Map) -> Option<String> {
    text(link, "ethernet_mac_address").map(|m| plain_mac(&m))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn read(value: &Value, macs: &Macs) -> Result<Network> {
        super::read("t", value, macs, &Problems::new())
    }

    fn to_v1(value: &Value, macs: &Macs) -> Result<Value> {
        super::to_v1(value, macs, &Problems::new())
    }

    fn parse(text: &str) -> Value {
        json::parse("t", text.as_bytes()).unwrap()
    }

    #[test]
    fn finds_a_later_link_by_its_mac() {
        let data = parse(
            r#"{"links": [{"id": "tap/1-a", "type": "ovs", "ethernet_mac_address": "FA:16:3E:00:00:01"},
                {"id": "v", "type": "vlan", "vlan_link": "tap/1-a", "vlan_id": 5}, {"id": "none", "type": "phy"}],
                "networks": [{"link": "tap/1-a", "type": "ipv4_dhcp"}, {"link": "v", "type": "odd"}]}"#,
        );
        assert!(to_v1(&data, &Macs::default()).unwrap_err().to_string().contains("link none has no name"));
        let network = read(&data, &Macs::default()).unwrap();
        let names: Vec<&str> = network.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["tap1-a", "tap1-a.5"]);
        let tap = &network.interfaces[0];
        assert_eq!(
            (tap.matching.mac.as_deref(), tap.rename, tap.is_named()),
            (Some("fa:16:3e:00:00:01"), false, false)
        );
        assert!(tap.dhcp4());
        let network = read(&data, &Macs::from_iter([("fa-16-3e-00-00-01", "ens3")])).unwrap();
        assert_eq!(network.interfaces[0].name, "ens3");
        assert!(network.interfaces[0].rename);
    }

    #[test]
    fn routes_name_servers_come_first_without_duplicates() {
        let data = parse(
            r#"{"links": [{"id": "a", "name": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
                "networks": [{"link": "a", "type": "ipv6_dhcpv6-stateful", "services": [{"type": "dns", "address": "::5"}, {"type": "dns", "address": "::6"}, {"type": "dns", "address": "::5"}],
                    "routes": [{"network": "::", "netmask": "::", "gateway": "::1", "id": 3, "services": [{"type": "dns", "address": "::6"}]}]}]}"#,
        );
        let v1 = to_v1(&data, &Macs::default()).unwrap();
        let link = &v1.get("config").and_then(Value::as_list).unwrap()[0];
        assert_eq!(link.get("accept-ra"), Some(&Value::Bool(true)));
        let subnet = &link.get("subnets").and_then(Value::as_list).unwrap()[0];
        assert_eq!(json::to_string(subnet.get("dns_nameservers").unwrap()), r#"["::6","::5"]"#);
        let route = &subnet.get("routes").and_then(Value::as_list).unwrap()[0];
        assert_eq!(route.as_map().unwrap().keys().collect::<Vec<_>>(), ["network", "netmask", "gateway"]);
    }

    #[test]
    fn many_name_servers_cost_by_their_number() {
        let services: Vec<String> = (0..60_000)
            .map(|n| format!(r#"{{"type": "dns", "address": "fd00::{:x}:{:x}"}}"#, n >> 8, n & 255))
            .collect();
        let link = r#"[{"id": "a", "name": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}]"#;
        let network = format!(r#"{{"link": "a", "type": "ipv6_slaac", "services": [{}]}}"#, services.join(","));
        let data = parse(&format!(r#"{{"links": {link}, "networks": [{network}]}}"#));
        let begin = std::time::Instant::now();
        let v1 = to_v1(&data, &Macs::default()).unwrap();
        // Comparing each with all before it takes over 40 s in a build for tests.
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
        let link = &v1.get("config").and_then(Value::as_list).unwrap()[0];
        let subnet = &link.get("subnets").and_then(Value::as_list).unwrap()[0];
        assert_eq!(subnet.get("dns_nameservers").and_then(Value::as_list).map(<[Value]>::len), Some(60_000));
    }

    #[test]
    fn accepts_version_1_types_and_leased_default_routes() {
        let data = parse(
            r#"{"links": [{"id": "a", "name": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
                "networks": [{"link": "a", "type": "dhcp4", "gateway": "10.0.0.1"},
                    {"link": "a", "type": "ipv4", "ip_address": "10.1.0.2/24", "gateway": "10.1.0.1"}]}"#,
        );
        let network = read(&data, &Macs::default()).unwrap();
        let a = network.interface("a").unwrap();
        assert!(a.dhcp4());
        let gateways: Vec<_> = a.subnets.iter().map(|s| a.gateway_route(s).is_some()).collect();
        assert_eq!(gateways, [false, true]);
    }

    #[test]
    fn finds_infiniband_device_by_its_short_address() {
        let nic = crate::machine::Nic {
            name: "ib0".into(),
            mac: "a0:00:02:20:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1".into(),
            kind: 32,
            ..Default::default()
        };
        let data = parse(r#"{"links": [{"id": "x", "type": "phy", "ethernet_mac_address": "ec:0d:9a:15:e2:c1"}]}"#);
        let v1 = to_v1(&data, &Macs::of(std::slice::from_ref(&nic))).unwrap();
        let link = &v1.get("config").and_then(Value::as_list).unwrap()[0];
        assert_eq!(link.get("type").and_then(Value::as_str), Some("infiniband"));
        assert_eq!(link.get("mac_address").and_then(Value::as_str), Some(nic.mac.as_str()));
    }

    #[test]
    fn routers_advertise_the_default_route_of_automatic_addresses() {
        let of = |network_type: &str| {
            let data = parse(&format!(
                r#"{{"links": [{{"id": "a", "name": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}}],
                    "networks": [{{"link": "a", "type": "{network_type}", "ip_address": "2001:db8::5", "netmask": "ffff:ffff:ffff:ffff::",
                        "gateway": "2001:db8::1", "routes": [{{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}},
                            {{"network": "2001:db8:9::", "netmask": "ffff:ffff:ffff::", "gateway": "2001:db8::9"}}]}}]}}"#
            ));
            let network = read(&data, &Macs::default()).unwrap();
            let a = network.interface("a").unwrap();
            let routes: Vec<String> = a.all_routes().map(|r| r.to.to_string()).collect();
            (a.subnets[0].gateway.is_some(), routes.join(" "))
        };
        for automatic in ["ipv6_slaac", "ipv6_dhcpv6-stateless", "ipv6_dhcpv6-stateful", "ipv6_dhcp"] {
            assert_eq!(of(automatic), (false, "2001:db8:9::/48".into()), "{automatic}");
        }
        assert_eq!(of("ipv6"), (true, "::/0 2001:db8:9::/48".into()));
    }
}
