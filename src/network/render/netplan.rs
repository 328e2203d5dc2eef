//! netplan: /etc/netplan/50-cloud-init.yaml. Version 2 goes through whole; other input is written as version 2.

use super::{Exists, File, HEADER, Target, cannot, has_program};
use crate::document::{Map, Value, to_yaml};
use crate::network::model::{DhcpOverrides, Dns, Interface, Kind, Method, Network, Route, Rule, Subnet};
use crate::network::params::{self, Param, Unit};

const NAME: &str = "netplan";
/// The file.
pub const PATH: &str = "/etc/netplan/50-cloud-init.yaml";

/// Sections in the order in which they are written: what others are made of comes first. netplan reads a file with references to
/// what comes later twice, and then (0.106) takes path costs for given twice.
const SECTIONS: [&str; 8] = ["ethernets", "wifis", "dummy-devices", "bonds", "bridges", "vlans", "tunnels", "vrfs"];

/// Files that are written.
pub const OWNED: &[&str] = &[PATH];

/// Whether the root has netplan.
pub fn available(exists: &Exists, _: &Target) -> bool {
    has_program(exists, "netplan")
}

/// One file, for root alone: it may hold passwords.
pub fn render(network: &Network, _: &Target) -> Vec<File> {
    let inner = match &network.v2 {
        Some(v2) => {
            let mut v2 = v2.clone();
            v2.insert("version", 2);
            v2
        }
        None => to_v2(network),
    };
    let document = Value::Map(Map::from_iter([("network", inner)]));
    vec![File::private(PATH, format!("{HEADER}{}", to_yaml(&document)))]
}

/// The model as the mapping below `network:`.
pub fn to_v2(network: &Network) -> Map {
    let mut sections: Vec<(&str, Map)> = SECTIONS.iter().map(|s| (*s, Map::new())).collect();
    // Name servers of the machine go to interfaces with addresses and none of their own; without such, to those with DHCP.
    let wants_dns = |i: &&Interface| i.addresses().next().is_some() && nameservers(i).is_empty();
    let any_static = network.interfaces.iter().any(|i| wants_dns(&i));
    for interface in &network.interfaces {
        let mut dns = nameservers(interface);
        if wants_dns(&interface) || (!any_static && dns.is_empty() && (interface.dhcp4() || interface.dhcp6())) {
            dns = network.dns.clone();
        }
        let Some((section, own)) = kind(interface) else { continue };
        let device = device(network, interface, own, &dns);
        if let Some((_, devices)) = sections.iter_mut().find(|(name, _)| *name == section) {
            devices.insert(interface.name.as_str(), device);
        }
    }
    let mut out = Map::from_iter([("version", 2)]);
    for (section, devices) in sections.into_iter().filter(|(_, d)| !d.is_empty()) {
        out.insert(section, devices);
    }
    out
}

/// Name servers of the interface and of its subnets.
fn nameservers(interface: &Interface) -> Dns {
    let mut dns = Dns::default();
    for subnet in &interface.subnets {
        dns.merge(&subnet.dns);
    }
    dns.merge(&interface.dns);
    dns
}

/// The section, and the keys that its kind has.
fn kind(interface: &Interface) -> Option<(&'static str, Map)> {
    let texts = |list: &[String]| Value::List(list.iter().map(|s| s.as_str().into()).collect());
    let made = |interfaces: &[String], params: &Map, table| {
        let mut own = Map::new();
        if !interfaces.is_empty() {
            own.insert("interfaces", texts(interfaces));
        }
        let params = parameters(&interface.name, params, table);
        if !params.is_empty() {
            own.insert("parameters", params);
        }
        own
    };
    Some(match &interface.kind {
        Kind::Loopback if interface.addresses().next().is_none() => return None,
        Kind::Ethernet | Kind::Infiniband | Kind::Loopback => ("ethernets", Map::new()),
        Kind::Dummy => ("dummy-devices", Map::new()),
        Kind::Wifi(own) => ("wifis", own.clone()),
        Kind::Tunnel(own) => ("tunnels", own.clone()),
        Kind::Bond { interfaces, params } => ("bonds", made(interfaces, params, params::BOND)),
        Kind::Bridge { interfaces, params } => ("bridges", made(interfaces, params, params::BRIDGE)),
        Kind::Vlan { id, link } => {
            ("vlans", Map::from_iter([("id", Value::from(i32::from(*id))), ("link", link.as_str().into())]))
        }
        Kind::Vrf { table, interfaces } => {
            ("vrfs", Map::from_iter([("table", Value::from(*table)), ("interfaces", texts(interfaces))]))
        }
    })
}

fn parameters(interface: &str, params: &Map, table: &'static [Param]) -> Map {
    let mut out = Map::new();
    for (name, value) in params.iter() {
        let Some((param, netplan)) = params::find(table, name).and_then(|p| Some((p, p.netplan.first()?))) else {
            cannot(NAME, interface, name);
            continue;
        };
        let value = match (param.unit, value.text()) {
            (Unit::Bool, _) if value.is_true() => Value::Bool(true),
            (Unit::Bool, _) => Value::Bool(false),
            (_, Some(mode)) if param.name == "mode" => params::bond_mode(&mode).into(),
            _ => value.clone(),
        };
        out.insert(*netplan, value);
    }
    out
}

fn device(network: &Network, interface: &Interface, own: Map, dns: &Dns) -> Map {
    let mut out = own;
    matching(interface, &mut out);
    if let Some(mac) = &interface.mac {
        out.insert("macaddress", mac.as_str());
    }
    let (mtu, ipv6_mtu) = mtus(interface);
    for (key, value) in [("mtu", mtu), ("ipv6-mtu", ipv6_mtu)] {
        if let Some(value) = value {
            out.insert(key, value);
        }
    }
    for (key, value) in [
        ("accept-ra", interface.accept_ra),
        ("wakeonlan", interface.wake_on_lan),
        ("optional", interface.optional),
        ("dhcp4", interface.dhcp4().then_some(true)),
        ("dhcp6", is_automatic_v6(interface).then_some(true)),
    ] {
        if let Some(value) = value {
            out.insert(key, value);
        }
    }
    let metrics = lease_metrics(interface);
    for (key, given, metric) in [
        ("dhcp4-overrides", &interface.dhcp4_overrides, metrics.0),
        ("dhcp6-overrides", &interface.dhcp6_overrides, metrics.1),
    ] {
        let overrides = overrides(given, metric);
        if !overrides.is_empty() {
            out.insert(key, overrides);
        }
    }
    if let Some(families) = &interface.link_local {
        out.insert("link-local", Value::List(families.iter().map(|f| f.as_str().into()).collect()));
    }
    if !interface.rules.is_empty() {
        out.insert("routing-policy", Value::List(interface.rules.iter().map(rule).collect()));
    }
    let mut addresses: Vec<Value> = Vec::new();
    let mut routes = Vec::new();
    for subnet in &interface.subnets {
        subnet_into(interface, subnet, &mut addresses, &mut routes);
    }
    routes.extend(interface.routes.iter().chain(network.routes_over(interface)).map(route));
    if !addresses.is_empty() {
        out.insert("addresses", addresses);
    }
    if !dns.is_empty() {
        let list = |texts: &[String]| Value::List(texts.iter().map(|s| s.as_str().into()).collect());
        let lists = [("addresses", &dns.servers), ("search", &dns.search)];
        out.insert(
            "nameservers",
            lists.into_iter().filter(|(_, l)| !l.is_empty()).map(|(k, l)| (k, list(l))).collect::<Map>(),
        );
    }
    if !routes.is_empty() {
        out.insert("routes", routes);
    }
    match &interface.keep_configuration {
        Some(_) if interface.keeps_all() => drop(out.insert("critical", true)),
        Some(_) => cannot(NAME, &interface.name, "keep_configuration"),
        None if interface.is_manual() => drop(out.insert("activation-mode", "manual")),
        None => {}
    }
    for (key, value) in interface.more.iter() {
        match key {
            // Keys of netplan's own that are written above.
            "activation-mode" | "critical" => drop(out.insert(key, value.clone())),
            _ => cannot(NAME, &interface.name, key),
        }
    }
    out
}

/// netplan matches six-byte MAC addresses only; an InfiniBand device is found by its name.
fn matching(interface: &Interface, out: &mut Map) {
    let mut found = Map::new();
    match &interface.matching.mac {
        Some(_) if interface.kind == Kind::Infiniband => cannot(NAME, &interface.name, "mac_address"),
        Some(mac) => drop(found.insert("macaddress", mac.replace('-', ":"))),
        None => {}
    }
    if let [driver] = interface.matching.drivers.as_slice() {
        found.insert("driver", driver.as_str());
    } else if !interface.matching.drivers.is_empty() {
        found.insert("driver", Value::List(interface.matching.drivers.iter().map(|d| d.as_str().into()).collect()));
    }
    if let Some(name) = &interface.matching.name {
        found.insert("name", name.as_str());
    }
    if !found.is_empty() {
        out.insert("match", found);
        if interface.rename {
            out.insert("set-name", interface.name.as_str());
        }
    }
}

/// The metrics of the leases' routes. netplan refuses two that differ, or one where there are two leases (networkd has one setting).
fn lease_metrics(interface: &Interface) -> (Option<u32>, Option<u32>) {
    let metric = |of: fn(Method) -> bool| {
        interface.subnets.iter().filter(|s| of(s.method) && s.gateway.is_none()).find_map(|s| s.metric)
    };
    let (four, six) = (metric(|m| m == Method::Dhcp4), metric(Method::is_dhcp6));
    let one = |a: Option<u32>, b: Option<u32>, asked: bool| a.or(b.filter(|_| asked));
    match (four, six) {
        (Some(a), Some(b)) if a != b => {
            cannot(NAME, &interface.name, "metric");
            (four, four)
        }
        _ => (one(four, six, interface.dhcp4()), one(six, four, is_automatic_v6(interface))),
    }
}

/// netplan has one word for all that IPv6 gives by itself; the router's flags decide which it is.
fn is_automatic_v6(interface: &Interface) -> bool {
    interface.dhcp6() || interface.subnets.iter().any(|s| s.method == Method::Slaac)
}

/// The device's MTU and IPv6's: subnets may say them too.
fn mtus(interface: &Interface) -> (Option<u32>, Option<u32>) {
    let of = |v6: bool| interface.subnets.iter().filter(|s| s.is_v6() == v6).find_map(|s| s.mtu);
    let mtu = interface.mtu.or_else(|| of(false));
    let ipv6 = interface.ipv6_mtu.or_else(|| of(true)).filter(|m| Some(*m) != mtu);
    (mtu, ipv6)
}

fn subnet_into(interface: &Interface, subnet: &Subnet, addresses: &mut Vec<Value>, routes: &mut Vec<Value>) {
    if let Some(address) = &subnet.address {
        let options = [("label", &subnet.label), ("lifetime", &subnet.lifetime)];
        let options: Map = options.into_iter().filter_map(|(k, v)| Some((k, v.as_deref()?))).collect();
        addresses.push(match options.is_empty() {
            true => address.to_string().into(),
            false => Map::from_iter([(address.to_string(), options)]).into(),
        });
    }
    let is_dhcp = subnet.method == Method::Dhcp4 || subnet.method.is_dhcp6();
    if let Some(gateway) = &subnet.gateway {
        let mut default = Map::from_iter([("to", Value::from("default")), ("via", gateway.to_string().into())]);
        if interface.is_on_link(gateway) {
            default.insert("on-link", true);
        }
        if let Some(metric) = subnet.metric {
            default.insert("metric", metric);
        }
        routes.push(default.into());
    } else if subnet.metric.is_some() && subnet.routes.is_empty() && !is_dhcp {
        cannot(NAME, &interface.name, "metric");
    }
    // A static subnet's metric is for its routes; a lease's is in the overrides.
    let metric = subnet.metric.filter(|_| !is_dhcp);
    routes.extend(subnet.routes.iter().map(|r| route(&Route { metric: r.metric.or(metric), ..r.clone() })));
    for (key, given) in [("pointopoint", subnet.pointopoint.is_some()), ("scope", subnet.scope.is_some())] {
        if given {
            cannot(NAME, &interface.name, key);
        }
    }
}

fn route(route: &Route) -> Value {
    let mut out = Map::from_iter([("to", route.to.to_string())]);
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key, value);
        }
    };
    put("via", route.via.as_ref().map(|ip| ip.to_string().into()));
    put("from", route.from.as_ref().map(|ip| ip.to_string().into()));
    put("metric", route.metric.map(Value::from));
    put("mtu", route.mtu.map(Value::from));
    put("table", route.table.map(Value::from));
    put("scope", route.scope.as_deref().map(Value::from));
    put("type", route.kind.as_deref().map(Value::from));
    put("on-link", route.on_link.map(Value::from));
    for (key, value) in route.more.iter() {
        put(key, Some(value.clone()));
    }
    out.into()
}

fn rule(rule: &Rule) -> Value {
    let mut out = Map::new();
    for (key, net) in [("from", &rule.from), ("to", &rule.to)] {
        if let Some(net) = net {
            out.insert(key, net.to_string());
        }
    }
    let numbers =
        [("table", rule.table), ("priority", rule.priority), ("mark", rule.mark), ("type-of-service", rule.tos)];
    for (key, number) in numbers {
        if let Some(number) = number {
            out.insert(key, number);
        }
    }
    out.into()
}

/// The overrides; `metric` is a subnet's.
fn overrides(given: &DhcpOverrides, metric: Option<u32>) -> Map {
    let mut out = Map::new();
    for (key, value) in [("hostname", &given.hostname), ("use-domains", &given.use_domains)] {
        match value.as_deref() {
            Some(text @ ("true" | "false")) => drop(out.insert(key, text == "true")),
            Some(text) => drop(out.insert(key, text)),
            None => {}
        }
    }
    if let Some(metric) = given.route_metric.or(metric) {
        out.insert("route-metric", metric);
    }
    for (key, value) in [
        ("send-hostname", given.send_hostname),
        ("use-dns", given.use_dns),
        ("use-hostname", given.use_hostname),
        ("use-mtu", given.use_mtu),
        ("use-ntp", given.use_ntp),
        ("use-routes", given.use_routes),
    ] {
        if let Some(value) = value {
            out.insert(key, value);
        }
    }
    out
}
