//! One device in netplan's YAML.

use crate::document::{Map, Value};
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{DeviceType, DhcpOverrides, Dns, Interface, Method, Route, Rule, Subnet};
use crate::network::parameters::{self, Parameter, ValueType};
use crate::network::render::renderer::Unsupported;
use std::net::IpAddr;

/// The section of a device, and the keys that belong to its type. None for a loopback device without addresses.
pub fn section(interface: &Interface, unsupported: &mut Unsupported) -> Option<(&'static str, Map)> {
    let texts = |list: &[String]| Value::List(list.iter().map(|s| s.as_str().into()).collect());
    let mut with_members = |interfaces: &[String], params: &Map, table| {
        let mut own = Map::new();
        if !interfaces.is_empty() {
            let mut sorted = interfaces.to_vec();
            sorted.sort();
            own.insert("interfaces", texts(&sorted));
        }
        let params = parameters(interface, params, table, unsupported);
        if !params.is_empty() {
            own.insert("parameters", params);
        }
        own
    };
    Some(match &interface.device_type {
        DeviceType::Loopback if interface.addresses().next().is_none() => return None,
        DeviceType::Ethernet | DeviceType::Infiniband | DeviceType::Loopback => ("ethernets", Map::new()),
        DeviceType::Dummy => ("dummy-devices", Map::new()),
        DeviceType::Wifi(own) => ("wifis", own.clone()),
        DeviceType::Tunnel(own) => ("tunnels", own.clone()),
        DeviceType::Bond { interfaces, params } => ("bonds", with_members(interfaces, params, parameters::BOND)),
        DeviceType::Bridge { interfaces, params } => ("bridges", with_members(interfaces, params, parameters::BRIDGE)),
        DeviceType::Vlan { id, link } => {
            ("vlans", Map::from_iter([("id", Value::from(i32::from(*id))), ("link", link.as_str().into())]))
        }
        DeviceType::Vrf { table, interfaces } => {
            ("vrfs", Map::from_iter([("table", Value::from(*table)), ("interfaces", texts(interfaces))]))
        }
    })
}

fn parameters(interface: &Interface, params: &Map, table: &'static [Parameter], unsupported: &mut Unsupported) -> Map {
    let mut out = Map::new();
    for (name, value) in params.iter() {
        let Some((param, netplan)) = parameters::find(table, name).and_then(|p| Some((p, p.netplan.first()?))) else {
            unsupported.key(interface, name);
            continue;
        };
        let value = match (param.value_type, value.text()) {
            (ValueType::Bool, _) => Value::Bool(value.is_true()),
            (_, Some(text)) if parameters::bond_word(name, &text) != text => parameters::bond_word(name, &text).into(),
            _ => value.clone(),
        };
        out.insert(*netplan, value);
    }
    out
}

/// The keys of a device: `own` are those of its type, `dns` the name servers to write.
pub fn device(interface: &Interface, own: Map, dns: &Dns, unsupported: &mut Unsupported) -> Map {
    let mut out = own;
    matching(interface, &mut out, unsupported);
    if let Some(mac) = interface.mac.as_ref().and_then(|m| six_bytes(interface, m, unsupported)) {
        out.insert("macaddress", mac);
    }
    let (mtu, ipv6_mtu) = mtus(interface);
    for (key, value) in [("mtu", mtu), ("ipv6-mtu", ipv6_mtu)] {
        if let Some(value) = value {
            out.insert(key, value);
        }
    }
    for (key, value) in [
        ("accept-ra", interface.accept_ra.or(interface.uses(Method::Slaac).then_some(true))),
        ("wakeonlan", interface.wake_on_lan),
        ("optional", interface.optional),
        ("dhcp4", interface.dhcp4().then_some(true)),
        ("dhcp6", interface.dhcp6().then_some(true)),
    ] {
        if let Some(value) = value {
            out.insert(key, value);
        }
    }
    let metrics = lease_metrics(interface, unsupported);
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
        add_subnet(interface, subnet, &mut addresses, &mut routes, unsupported);
    }
    for own in &interface.routes {
        routes.extend(route(interface, own, unsupported).map(Value::from));
    }
    if !addresses.is_empty() {
        out.insert("addresses", addresses);
    }
    if !dns.is_empty() {
        let list = |texts: &[String]| Value::List(texts.iter().map(|s| s.as_str().into()).collect());
        // netplan refuses the whole file for one that is not an address.
        let (servers, names): (Vec<String>, Vec<String>) =
            dns.servers.iter().cloned().partition(|s| s.parse::<IpAddr>().is_ok());
        unsupported.keys(interface, [("nameservers", !names.is_empty())]);
        let lists = [("addresses", &servers), ("search", &dns.search)];
        let lists: Map = lists.into_iter().filter(|(_, l)| !l.is_empty()).map(|(k, l)| (k, list(l))).collect();
        if !lists.is_empty() {
            out.insert("nameservers", lists);
        }
    }
    if !routes.is_empty() {
        out.insert("routes", routes);
    }
    match interface.keeps_any() {
        true if interface.keeps_all() => drop(out.insert("critical", true)),
        true => unsupported.key(interface, "keep_configuration"),
        false if interface.is_manual() => drop(out.insert("activation-mode", "manual")),
        false => {}
    }
    for (key, value) in interface.extra.iter() {
        match key {
            "activation-mode" | "critical" | "ipv6-privacy" => drop(out.insert(key, value.clone())),
            _ => unsupported.key(interface, key),
        }
    }
    out
}

/// The MAC address in the only form that netplan takes: for another one it refuses the whole file.
fn six_bytes(interface: &Interface, mac: &str, unsupported: &mut Unsupported) -> Option<String> {
    let valid = is_mac(mac) && mac.len() == "00:00:00:00:00:00".len();
    unsupported.keys(interface, [("mac_address", !valid)]);
    valid.then(|| plain_mac(mac))
}

/// netplan matches six-byte MAC addresses only; an InfiniBand device is found by its name.
fn matching(interface: &Interface, out: &mut Map, unsupported: &mut Unsupported) {
    let mut found = Map::new();
    match &interface.matching.mac {
        Some(_) if interface.device_type == DeviceType::Infiniband => {
            unsupported.key(interface, "mac_address");
        }
        Some(mac) => {
            if let Some(mac) = six_bytes(interface, mac, unsupported) {
                found.insert("macaddress", mac);
            }
        }
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

/// The route metrics of the DHCPv4 and the DHCPv6 lease. netplan refuses two that differ, or one for two leases: networkd has
/// a single setting.
fn lease_metrics(interface: &Interface, unsupported: &mut Unsupported) -> (Option<u32>, Option<u32>) {
    let (four, six) = (interface.metric_of(|m| m == Method::Dhcp4), interface.metric_of(Method::is_automatic_v6));
    let one = |a: Option<u32>, b: Option<u32>, asked: bool| a.or(b.filter(|_| asked));
    match (four, six) {
        (Some(a), Some(b)) if a != b => {
            unsupported.key(interface, "metric");
            (four, four)
        }
        _ => (one(four, six, interface.dhcp4()), one(six, four, interface.is_automatic_v6())),
    }
}

/// The device's MTU and that of IPv6, which subnets may have too.
fn mtus(interface: &Interface) -> (Option<u32>, Option<u32>) {
    let mtu = interface.link_mtu();
    (mtu, interface.inet6_mtu().filter(|m| Some(*m) != mtu))
}

fn add_subnet(
    interface: &Interface,
    subnet: &Subnet,
    addresses: &mut Vec<Value>,
    routes: &mut Vec<Value>,
    unsupported: &mut Unsupported,
) {
    if let Some(address) = &subnet.address {
        let options = [("label", &subnet.label), ("lifetime", &subnet.lifetime)];
        let options: Map = options.into_iter().filter_map(|(k, v)| Some((k, v.as_deref()?))).collect();
        addresses.push(match options.is_empty() {
            true => address.to_string().into(),
            false => Map::from_iter([(address.to_string(), options)]).into(),
        });
    }
    let is_dhcp = subnet.method == Method::Dhcp4 || subnet.method.is_automatic_v6();
    if let Some(default) = interface.gateway_route(subnet) {
        if let Some(mut default) = route(interface, &default, unsupported) {
            default.insert("to", "default");
            routes.push(default.into());
        }
    } else if subnet.metric.is_some() && subnet.routes.is_empty() && !is_dhcp {
        unsupported.key(interface, "metric");
    }
    // A static subnet's metric applies to its routes; a lease's is in the overrides.
    let metric = subnet.metric.filter(|_| !is_dhcp);
    for own in &subnet.routes {
        let own = Route { metric: own.metric.or(metric), ..own.clone() };
        routes.extend(route(interface, &own, unsupported).map(Value::from));
    }
    for (key, given) in [("pointopoint", subnet.pointopoint.is_some()), ("scope", subnet.scope.is_some())] {
        if given {
            unsupported.key(interface, key);
        }
    }
}

/// The keys of a route without a field in the model that netplan-yaml(5) has, "Routing". netplan refuses a file with any other.
const ROUTE_KEYS: &[&str] = &["advertised-receive-window", "congestion-window"];

/// A route. None if its gateway is of the other family: netplan refuses the file.
fn route(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> Option<Map> {
    if route.via.as_ref().is_some_and(|via| via.is_v6() != route.to.is_v6()) {
        unsupported.key(interface, "routes.via");
        return None;
    }
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
    put("type", route.route_type.as_deref().map(Value::from));
    put("on-link", route.on_link.map(Value::from));
    for (key, value) in route.extra.iter() {
        match ROUTE_KEYS.contains(&key) {
            true => put(key, Some(value.clone())),
            false => unsupported.key(interface, &format!("routes.{key}")),
        }
    }
    Some(out)
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

/// The overrides. `metric` is used if they have none.
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
