//! ifcfg files of Red Hat's distributions (initscripts' sysconfig.txt; nm-settings-ifcfg-rh(5)).

use super::common::{self, bonding, is_started, report, route_options, slaves};
use super::variables::Variables;
use crate::document::{Map, Value};
use crate::network::address::Cidr;
use crate::network::model::{DeviceType, Interface, Method, Network, Route, Rule};
use crate::network::parameters;
use crate::network::render::iproute;
use crate::network::render::renderer::{File, HEADER, Unsupported};
use std::fmt::Write;

const FOLDER: &str = "/etc/sysconfig/network-scripts";

/// The number of name servers that the resolver uses (resolv.conf(5), MAXNS).
const MAX_SERVERS: usize = 3;

/// Keys that the files can express, of those that only some stacks know.
const KNOWN: &[&str] = &[
    "dhcp4-overrides.send-hostname",
    "dhcp4-overrides.use-dns",
    "dhcp4-overrides.use-routes",
    "dhcp6-overrides.use-dns",
    "dhcp6-overrides.use-routes",
    "infiniband-mode",
    "ipv6-privacy",
];

/// The device's file, those of its routes and of its rules.
pub fn files(network: &Network, interface: &Interface, unsupported: &mut Unsupported) -> Vec<File> {
    let mut v = Variables::default();
    v.add("DEVICE", &interface.name);
    // Without an MTU there is nothing to bring up for.
    let is_idle = interface.uses(Method::Manual) && interface.link_mtu().is_none();
    v.yes_no("ONBOOT", Some(is_started(interface) && !is_idle));
    v.yes_no("USERCTL", Some(false));
    v.maybe("HWADDR", interface.matching.mac.as_ref().filter(|_| interface.is_physical()));
    v.maybe("MACADDR", interface.mac.as_ref());
    v.maybe("MTU", interface.link_mtu());
    device(network, interface, &mut v, unsupported);
    addresses(interface, &mut v);
    for (v6, key) in [(false, "IPV4_ROUTE_METRIC"), (true, "IPV6_ROUTE_METRIC")] {
        v.maybe(key, interface.subnets.iter().filter(|s| s.is_v6() == v6).find_map(|s| s.metric));
    }
    let mut rest = routes(network, interface, &mut v);
    // The files have no key for a type, and such a route would lead to the device.
    unsupported.keys(interface, [("routes.type", !rest.iter().all(iproute::is_unicast))]);
    rest.retain(iproute::is_unicast);
    common::keep_families(interface, &mut rest, unsupported);
    overrides(interface, &mut v, unsupported);
    let dns = interface.name_servers();
    // resolv.conf has all name servers; here they are beside addresses.
    if interface.addresses().next().is_some() {
        for (i, server) in dns.servers.iter().take(MAX_SERVERS).enumerate() {
            v.add(format!("DNS{}", i + 1), server);
        }
    }
    // Beside the name servers of a lease, the domains are only here.
    let search = if dns.is_empty() && network.dns.servers.is_empty() { &network.dns.search } else { &dns.search };
    let is_here = !search.is_empty() && (dns.servers.is_empty() || interface.addresses().next().is_some());
    v.maybe("DOMAIN", is_here.then(|| search.join(" ")));
    report(interface, KNOWN, unsupported);
    if !super::filter("rhel", &mut v, interface, unsupported) {
        return Vec::new();
    }
    let mut files = vec![v.to_file(format!("{FOLDER}/ifcfg-{}", interface.name))];
    files.extend(route_file(interface, &rest, unsupported));
    files.extend(route6_file(interface, &rest, unsupported));
    for (v6, name) in [(false, "rule"), (true, "rule6")] {
        let of = |r: &&Rule| r.from.as_ref().or(r.to.as_ref()).is_some_and(|n| n.is_v6()) == v6;
        let lines: String = interface.rules.iter().filter(of).map(rule).collect();
        if !lines.is_empty() {
            files.push(File::public(format!("{FOLDER}/{name}-{}", interface.name), format!("{HEADER}{lines}")));
        }
    }
    files
}

fn device(network: &Network, interface: &Interface, v: &mut Variables, unsupported: &mut Unsupported) {
    match &interface.device_type {
        DeviceType::Infiniband => {
            v.add("TYPE", "InfiniBand");
            let mode = interface.extra.get("infiniband-mode").and_then(Value::as_str);
            v.yes_no("CONNECTED_MODE", (mode == Some("connected")).then_some(true));
        }
        DeviceType::Bond { interfaces, params } => {
            v.add("TYPE", "Bond");
            v.add("BONDING_MASTER", "yes");
            v.maybe("BONDING_OPTS", bonding(interface, params, unsupported));
            for (i, part) in slaves(interfaces).into_iter().enumerate() {
                v.add(format!("BONDING_SLAVE{i}"), part);
            }
        }
        DeviceType::Bridge { params, .. } => {
            v.add("TYPE", "Bridge");
            bridge(interface, params, v, unsupported);
        }
        DeviceType::Vlan { id, link } => {
            v.add("VLAN", "yes");
            v.add("PHYSDEV", link);
            // Network scripts take the id from a name such as eth0.5.
            if interface.name.rsplit_once('.').is_none_or(|(_, n)| n.parse() != Ok(*id)) {
                v.add("VLAN_ID", id);
            }
        }
        _ => v.add("TYPE", "Ethernet"),
    }
    match network.master_of(&interface.name) {
        Some(Interface { name, device_type: DeviceType::Bond { .. }, .. }) => {
            v.add("MASTER", name);
            v.add("SLAVE", "yes");
        }
        Some(Interface { name, device_type: DeviceType::Bridge { params, .. }, .. }) => {
            v.add("BRIDGE", name);
            let mut option = |key: &str, own: &str| {
                let value = common::port_parameter(interface, &interface.name, key, params.get(key)?, unsupported)?;
                Some(format!("{own}={value}"))
            };
            let options = [option("pathcost", "path_cost"), option("portprio", "priority")];
            let options: Vec<String> = options.into_iter().flatten().collect();
            v.maybe("BRIDGING_OPTS", (!options.is_empty()).then(|| options.join(" ")));
        }
        Some(Interface { name, .. }) => unsupported.key(interface, name),
        None => {}
    }
    if interface.wake_on_lan == Some(true) {
        v.add("ETHTOOL_OPTS", "wol g");
    }
}

fn bridge(interface: &Interface, params: &Map, v: &mut Variables, unsupported: &mut Unsupported) {
    for (name, value) in params.iter() {
        match (name, parameters::seconds(value)) {
            ("stp", _) => v.yes_no("STP", Some(value.is_true())),
            ("ageing", Some(n)) => v.add("AGEING", n),
            ("fd", Some(n)) => v.add("DELAY", n),
            ("bridgeprio", Some(n)) => v.add("PRIO", n),
            // These are in the ports' own files.
            ("pathcost" | "portprio", _) => {}
            (other, _) => unsupported.key(interface, other),
        }
    }
}

fn addresses(interface: &Interface, v: &mut Variables) {
    v.add("BOOTPROTO", if interface.dhcp4() { "dhcp" } else { "none" });
    let (mut n4, mut more6) = (0, Vec::new());
    if interface.subnets.iter().any(|s| s.is_v6()) {
        v.add("IPV6INIT", "yes");
    }
    if interface.dhcp6() {
        v.add("DHCPV6C", "yes");
    }
    if interface.uses(Method::Dhcp6Stateful) {
        v.add("IPV6_FAILURE_FATAL", "yes");
    }
    if interface.uses(Method::Dhcp6Stateless) {
        v.add("DHCPV6C_OPTIONS", "-S");
    }
    for net in interface.addresses() {
        if net.is_v6() {
            more6.push(net.to_string());
            continue;
        }
        let suffix = if n4 == 0 { String::new() } else { n4.to_string() };
        v.add(format!("IPADDR{suffix}"), &net.ip);
        v.add(format!("NETMASK{suffix}"), net.netmask());
        n4 += 1;
    }
    let automatic = interface.uses(Method::Slaac) || interface.uses(Method::Dhcp6Stateless);
    if let Some((first, others)) = more6.split_first() {
        v.add("IPV6ADDR", first);
        v.maybe("IPV6ADDR_SECONDARIES", (!others.is_empty()).then(|| others.join(" ")));
        v.yes_no("IPV6_FORCE_ACCEPT_RA", Some(false));
    }
    let autoconf = match interface.accept_ra {
        _ if automatic => Some(true),
        Some(true) if !more6.is_empty() => Some(true),
        _ => (!more6.is_empty() || interface.uses(Method::Dhcp6Stateful)).then_some(false),
    };
    v.yes_no("IPV6_AUTOCONF", autoconf);
    v.yes_no("IPV6_FORCE_ACCEPT_RA", interface.accept_ra);
    v.maybe("IPV6_MTU", interface.inet6_mtu());
}

/// Writes the default route of each family. Returns the other routes, which have files of their own.
fn routes(network: &Network, interface: &Interface, v: &mut Variables) -> Vec<Route> {
    let gateways = interface.subnets.iter().filter_map(|s| interface.gateway_route(s));
    let all = gateways.chain(interface.all_routes().cloned());
    let mut rest = Vec::new();
    let mut found: [Option<Route>; 2] = [None, None];
    for route in all {
        let place = usize::from(route.to.is_v6());
        // IPV4_ROUTE_METRIC and IPV6_ROUTE_METRIC are the lease's.
        let is_usual = |route: &Route| {
            let is_of_lease = |of_lease| route.metric.is_none_or(|m| m == of_lease);
            let is_main = route.to.is_default() && route.table.is_none() && iproute::is_unicast(route);
            is_main && lease_metric(interface, route.to.is_v6()).is_none_or(is_of_lease)
        };
        let fits = !has_options(&route) && !is_from_host(interface, &route);
        match found.get_mut(place) {
            // The gateway again, as a route.
            Some(Some(first))
                if is_usual(&route)
                    && fits
                    && first.via == route.via
                    && (first.metric.is_none() || route.metric.is_none() || first.metric == route.metric) =>
            {
                first.metric = first.metric.or(route.metric);
            }
            // The kernel has one for each metric; the last one is used.
            Some(found) if is_usual(&route) && found.as_ref().is_none_or(|first| first.metric == route.metric) => {
                let is_same = |old: &Route| old.to == route.to && old.metric == route.metric;
                rest.retain(|old| !(is_usual(old) && is_same(old)));
                *found = fits.then(|| route.clone());
                if !fits || is_far(interface, &route) {
                    rest.push(route);
                }
            }
            _ => rest.push(route),
        }
    }
    for route in found.into_iter().flatten() {
        let [gateway, metric] = match route.to.is_v6() {
            true => ["IPV6_DEFAULTGW", "IPV6_ROUTE_METRIC"],
            false => ["GATEWAY", "IPV4_ROUTE_METRIC"],
        };
        v.maybe(gateway, route.via.as_ref());
        v.maybe(metric, route.metric);
        v.add("DEFROUTE", "yes");
    }
    // If the configuration has a default route, a lease's is used only on the interface that has the route.
    if interface.dhcp4() && has_default(network) {
        v.yes_no("DHCLIENT_SET_DEFAULT_ROUTE", Some(interface.all_routes().any(|r| r.to.is_default())));
    }
    rest
}

/// Whether the route's gateway is on the link of a device that has the addresses of single hosts: as a route it can have `onlink`.
fn is_from_host(interface: &Interface, route: &Route) -> bool {
    let mut own = interface.addresses().filter(|a| a.is_v6() == route.to.is_v6());
    route.on_link == Some(true) && own.all(Cidr::is_host)
}

/// Whether network scripts ignore the route's gateway, which NetworkManager takes, so that it must be in a route file, too: that of IPv4
/// has to be in the first address's network, if there is no lease (initscripts, ifup-eth).
fn is_far(interface: &Interface, route: &Route) -> bool {
    let Some(via) = route.via.as_ref() else { return false };
    let mut own = interface.addresses().filter(|a| a.is_v6() == via.is_v6());
    let is_outside = |address: &Cidr| !address.contains(via);
    match via.is_v6() || interface.dhcp4() {
        true => route.on_link == Some(true) && own.all(is_outside),
        false => own.next().is_some_and(is_outside),
    }
}

/// Whether the route has what GATEWAY and IPV6_DEFAULTGW cannot express.
fn has_options(route: &Route) -> bool {
    route.mtu.is_some() || route.from.is_some() || !route.extra.is_empty()
}

/// The metric that is given for the family's lease.
fn lease_metric(interface: &Interface, v6: bool) -> Option<u32> {
    let (overrides, is_lease): (_, fn(Method) -> bool) = match v6 {
        true => (&interface.dhcp6_overrides, Method::is_automatic_v6),
        false => (&interface.dhcp4_overrides, |method| method == Method::Dhcp4),
    };
    let has_lease = interface.subnets.iter().any(|s| is_lease(s.method));
    overrides.route_metric.filter(|_| has_lease).or_else(|| interface.metric_of(is_lease))
}

fn has_default(network: &Network) -> bool {
    network.interfaces.iter().flat_map(Interface::all_routes).any(|r| r.to.is_default())
}

fn options(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> String {
    let mut words = route_options(interface, route, unsupported);
    if route.on_link == Some(true) {
        words.push("onlink".to_owned());
    }
    words.join(" ")
}

fn route_file(interface: &Interface, routes: &[Route], unsupported: &mut Unsupported) -> Option<File> {
    let mut v = Variables::default();
    for (i, route) in routes.iter().filter(|r| !r.to.is_v6()).enumerate() {
        v.add(format!("ADDRESS{i}"), &route.to.ip);
        v.add(format!("NETMASK{i}"), route.to.netmask());
        v.maybe(&format!("GATEWAY{i}"), route.via.as_ref());
        v.maybe(&format!("METRIC{i}"), route.metric);
        let options = options(interface, route, unsupported);
        v.maybe(&format!("OPTIONS{i}"), (!options.is_empty()).then_some(options));
    }
    routes.iter().any(|r| !r.to.is_v6()).then(|| v.to_file(format!("{FOLDER}/route-{}", interface.name)))
}

fn route6_file(interface: &Interface, routes: &[Route], unsupported: &mut Unsupported) -> Option<File> {
    let mut out = String::from(HEADER);
    for route in routes.iter().filter(|r| r.to.is_v6()) {
        let _ = write!(out, "{}", route.to);
        if let Some(via) = &route.via {
            let _ = write!(out, " via {via}");
        }
        if let Some(metric) = route.metric {
            let _ = write!(out, " metric {metric}");
        }
        let _ = write!(out, " dev {}", interface.name);
        let options = options(interface, route, unsupported);
        if !options.is_empty() {
            let _ = write!(out, " {options}");
        }
        out.push('\n');
    }
    (out != HEADER).then(|| File::public(format!("{FOLDER}/route6-{}", interface.name), out))
}

fn rule(rule: &Rule) -> String {
    let priority = rule.priority.map(|p| format!(" priority {p}")).unwrap_or_default();
    format!("{}{priority}\n", iproute::rule(rule))
}

fn overrides(interface: &Interface, v: &mut Variables, unsupported: &mut Unsupported) {
    let (four, six) = (&interface.dhcp4_overrides, &interface.dhcp6_overrides);
    v.maybe("IPV4_ROUTE_METRIC", four.route_metric.or_else(|| interface.metric_of(|m| m == Method::Dhcp4)));
    v.maybe("IPV6_ROUTE_METRIC", six.route_metric.or_else(|| interface.metric_of(Method::is_automatic_v6)));
    v.maybe("DHCP_HOSTNAME", four.hostname.as_ref());
    v.yes_no("DHCP_SEND_HOSTNAME", four.send_hostname);
    v.yes_no("PEERDNS", four.use_dns);
    v.yes_no("PEERROUTES", four.use_routes);
    v.maybe("DHCPV6_HOSTNAME", six.hostname.as_ref());
    v.yes_no("IPV6_PEERDNS", six.use_dns);
    v.yes_no("IPV6_PEERROUTES", six.use_routes);
    match interface.extra.get("ipv6-privacy") {
        Some(Value::Bool(true)) => v.add("IPV6_PRIVACY", "rfc3041"),
        Some(Value::Bool(false)) => v.add("IPV6_PRIVACY", "no"),
        Some(_) => unsupported.key(interface, "ipv6-privacy"),
        None => {}
    }
}
