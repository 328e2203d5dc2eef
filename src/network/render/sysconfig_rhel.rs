//! ifcfg files of Red Hat's distributions (initscripts' sysconfig.txt; nm-settings-ifcfg-rh(5)).

use super::sysconfig::{NAME, Variables, bonding, dns_of, is_started, mtu, report};
use super::{File, HEADER, cannot};
use crate::document::{Map, Value};
use crate::network::model::{Interface, Kind, Method, Network, Route, Rule};
use crate::network::params::{self, Unit};
use std::fmt::Write;

const FOLDER: &str = "/etc/sysconfig/network-scripts";

/// As many name servers as the resolver asks (resolv.conf(5), MAXNS).
const MAX_SERVERS: usize = 3;

/// What the files have words for beside the model's own fields.
const KNOWN: &[&str] = &[
    "dhcp4-overrides.send-hostname",
    "dhcp4-overrides.use-dns",
    "dhcp4-overrides.use-routes",
    "dhcp6-overrides.use-dns",
    "dhcp6-overrides.use-routes",
    "ipv6-privacy",
];

/// The device's file, those of its routes and of its rules.
pub fn files(network: &Network, interface: &Interface) -> Vec<File> {
    let mut v = Variables::default();
    v.add("DEVICE", &interface.name);
    v.yes_no("ONBOOT", Some(is_started(interface)));
    v.yes_no("USERCTL", Some(false));
    v.maybe("HWADDR", interface.matching.mac.as_ref().filter(|_| interface.is_physical()));
    v.maybe("MACADDR", interface.mac.as_ref());
    v.maybe("MTU", mtu(interface));
    device(network, interface, &mut v);
    addresses(interface, &mut v);
    let rest = routes(network, interface, &mut v);
    overrides(interface, &mut v);
    let dns = dns_of(interface);
    // Name servers are in resolv.conf in any case; here they are where addresses are.
    if interface.addresses().next().is_some() {
        for (i, server) in dns.servers.iter().take(MAX_SERVERS).enumerate() {
            v.add(format!("DNS{}", i + 1), server);
        }
        v.maybe("DOMAIN", (!dns.search.is_empty()).then(|| dns.search.join(" ")));
    }
    report(interface, KNOWN);
    let mut files = vec![v.to_file(format!("{FOLDER}/ifcfg-{}", interface.name))];
    files.extend(route_file(interface, &rest));
    files.extend(route6_file(interface, &rest));
    for (v6, name) in [(false, "rule"), (true, "rule6")] {
        let of = |r: &&Rule| r.from.as_ref().or(r.to.as_ref()).is_some_and(|n| n.is_v6()) == v6;
        let lines: String = interface.rules.iter().filter(of).map(rule).collect();
        if !lines.is_empty() {
            files.push(File::public(format!("{FOLDER}/{name}-{}", interface.name), format!("{HEADER}{lines}")));
        }
    }
    files
}

fn device(network: &Network, interface: &Interface, v: &mut Variables) {
    match &interface.kind {
        Kind::Infiniband => v.add("TYPE", "InfiniBand"),
        Kind::Bond { interfaces, params } => {
            v.add("TYPE", "Bond");
            v.add("BONDING_MASTER", "yes");
            v.maybe("BONDING_OPTS", bonding(interface, params));
            for (i, part) in interfaces.iter().enumerate() {
                v.add(format!("BONDING_SLAVE{i}"), part);
            }
        }
        Kind::Bridge { params, .. } => {
            v.add("TYPE", "Bridge");
            bridge(interface, params, v);
        }
        Kind::Vlan { id, link } => {
            v.add("VLAN", "yes");
            v.add("PHYSDEV", link);
            // Where the name does not say it.
            if interface.name.rsplit_once('.').is_none_or(|(_, n)| n.parse() != Ok(*id)) {
                v.add("VLAN_ID", id);
            }
        }
        _ => v.add("TYPE", "Ethernet"),
    }
    match network.master_of(&interface.name) {
        Some(Interface { name, kind: Kind::Bond { .. }, .. }) => {
            v.add("MASTER", name);
            v.add("SLAVE", "yes");
        }
        Some(Interface { name, kind: Kind::Bridge { params, .. }, .. }) => {
            v.add("BRIDGE", name);
            let option = |key: &str, own: &str| {
                let value = params.get(key)?.get(&interface.name)?.as_int()?;
                Some(format!("{own}={value}"))
            };
            let options: Vec<String> =
                [option("pathcost", "path_cost"), option("portprio", "priority")].into_iter().flatten().collect();
            v.maybe("BRIDGING_OPTS", (!options.is_empty()).then(|| options.join(" ")));
        }
        Some(Interface { name, .. }) => cannot(NAME, &interface.name, name),
        None => {}
    }
    if interface.wake_on_lan == Some(true) {
        v.add("ETHTOOL_OPTS", "wol g");
    }
}

fn bridge(interface: &Interface, params: &Map, v: &mut Variables) {
    for (name, value) in params.iter() {
        let seconds = || params::milliseconds(value, Unit::Seconds).map(|ms| ms / 1000);
        match (name, seconds()) {
            ("stp", _) => v.yes_no("STP", Some(value.is_true())),
            ("ageing", Some(n)) => v.add("AGEING", n),
            ("fd", Some(n)) => v.add("DELAY", n),
            ("bridgeprio", Some(n)) => v.add("PRIO", n),
            // The ports' own files have these.
            ("pathcost" | "portprio", _) => {}
            (other, _) => cannot(NAME, &interface.name, other),
        }
    }
}

fn addresses(interface: &Interface, v: &mut Variables) {
    v.add("BOOTPROTO", if interface.dhcp4() { "dhcp" } else { "none" });
    let (mut n4, mut more6) = (0, Vec::new());
    let is = |method| interface.subnets.iter().any(|s| s.method == method);
    if interface.subnets.iter().any(|s| s.is_v6()) {
        v.add("IPV6INIT", "yes");
    }
    if interface.dhcp6() {
        v.add("DHCPV6C", "yes");
    }
    if is(Method::Dhcp6Stateful) {
        v.add("IPV6_FAILURE_FATAL", "yes");
    }
    if is(Method::Dhcp6Stateless) {
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
    let automatic = is(Method::Slaac) || is(Method::Dhcp6Stateless);
    if let Some((first, others)) = more6.split_first() {
        v.add("IPV6ADDR", first);
        v.maybe("IPV6ADDR_SECONDARIES", (!others.is_empty()).then(|| others.join(" ")));
        v.yes_no("IPV6_FORCE_ACCEPT_RA", Some(false));
    }
    let autoconf = match interface.accept_ra {
        _ if automatic => Some(true),
        Some(true) if !more6.is_empty() => Some(true),
        _ => (!more6.is_empty() || is(Method::Dhcp6Stateful)).then_some(false),
    };
    v.yes_no("IPV6_AUTOCONF", autoconf);
    v.yes_no("IPV6_FORCE_ACCEPT_RA", interface.accept_ra);
    let mtu6 = interface.subnets.iter().filter(|s| s.is_v6()).find_map(|s| s.mtu);
    v.maybe("IPV6_MTU", interface.ipv6_mtu.or(mtu6));
}

/// Writes the default routes, of which there is one for each family. The others are left for the files of routes.
fn routes(network: &Network, interface: &Interface, v: &mut Variables) -> Vec<Route> {
    let mut all: Vec<Route> = Vec::new();
    for subnet in &interface.subnets {
        if let Some(gateway) = &subnet.gateway {
            let to = crate::network::address::Net::default_of(gateway.is_v6());
            all.push(Route { metric: subnet.metric, ..Route::new(to, Some(gateway.clone())) });
        }
    }
    all.extend(interface.all_routes().chain(network.routes_over(interface)).cloned());
    let mut rest = Vec::new();
    let mut found = [const { None }; 2];
    for route in all {
        let place = usize::from(route.to.is_v6());
        let is_plain = route.table.is_none() && route.kind.as_deref().is_none_or(|k| k == "unicast");
        match found.get_mut(place) {
            // The gateway may be said again as a route.
            Some(Some(via)) if route.to.is_default() && is_plain && *via == route.via => {}
            Some(found @ None) if route.to.is_default() && is_plain => {
                *found = Some(route.via.clone());
                let [gateway, metric] = match route.to.is_v6() {
                    true => ["IPV6_DEFAULTGW", "IPV6_ROUTE_METRIC"],
                    false => ["GATEWAY", "IPV4_ROUTE_METRIC"],
                };
                v.maybe(gateway, route.via.as_ref());
                v.maybe(metric, route.metric);
                v.add("DEFROUTE", "yes");
            }
            _ => rest.push(route),
        }
    }
    // Where the configuration has a default route, a lease brings one to its own interface only.
    if interface.dhcp4() && has_default(network) {
        v.yes_no("DHCLIENT_SET_DEFAULT_ROUTE", Some(interface.all_routes().any(|r| r.to.is_default())));
    }
    rest
}

fn has_default(network: &Network) -> bool {
    network.routes.iter().chain(network.interfaces.iter().flat_map(|i| i.all_routes())).any(|r| r.to.is_default())
}

/// What of a route is said in iproute2's words.
pub fn options(interface: &Interface, route: &Route) -> String {
    let mut out = Vec::new();
    let mut add = |key: &str, value: Option<String>| out.extend(value.map(|v| format!("{key} {v}")));
    add("mtu", route.mtu.map(|m| m.to_string()));
    add("table", route.table.map(|t| t.to_string()));
    add("src", route.from.as_ref().map(|f| f.to_string()));
    match route.scope.as_deref() {
        Some(scope @ ("global" | "site" | "link" | "host")) => add("scope", Some(scope.to_owned())),
        Some(_) => cannot(NAME, &interface.name, "routes.scope"),
        None => {}
    }
    if route.kind.as_deref().is_some_and(|k| k != "unicast") {
        cannot(NAME, &interface.name, "routes.type");
    }
    for (key, value) in route.more.iter() {
        match (key, value) {
            ("congestion-window", Value::Int(n)) => add("initcwnd", Some(n.to_string())),
            ("advertised-receive-window", Value::Int(n)) => add("initrwnd", Some(n.to_string())),
            ("advertised-mss", Value::Int(n)) => add("advmss", Some(n.to_string())),
            _ => cannot(NAME, &interface.name, &format!("routes.{key}")),
        }
    }
    if route.on_link == Some(true) {
        out.push("onlink".to_owned());
    }
    out.join(" ")
}

fn route_file(interface: &Interface, routes: &[Route]) -> Option<File> {
    let mut v = Variables::default();
    for (i, route) in routes.iter().filter(|r| !r.to.is_v6()).enumerate() {
        v.add(format!("ADDRESS{i}"), &route.to.ip);
        v.add(format!("NETMASK{i}"), route.to.netmask());
        v.maybe(&format!("GATEWAY{i}"), route.via.as_ref());
        v.maybe(&format!("METRIC{i}"), route.metric);
        let options = options(interface, route);
        v.maybe(&format!("OPTIONS{i}"), (!options.is_empty()).then_some(options));
    }
    routes.iter().any(|r| !r.to.is_v6()).then(|| v.to_file(format!("{FOLDER}/route-{}", interface.name)))
}

fn route6_file(interface: &Interface, routes: &[Route]) -> Option<File> {
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
        let options = options(interface, route);
        if !options.is_empty() {
            let _ = write!(out, " {options}");
        }
        out.push('\n');
    }
    (out != HEADER).then(|| File::public(format!("{FOLDER}/route6-{}", interface.name), out))
}

fn rule(rule: &Rule) -> String {
    let mut out = Vec::new();
    for (key, value) in [
        ("from", rule.from.as_ref().map(|n| n.to_string())),
        ("to", rule.to.as_ref().map(|n| n.to_string())),
        ("tos", rule.tos.map(|t| format!("{t:#x}"))),
        ("fwmark", rule.mark.map(|m| format!("{m:#x}"))),
        ("table", rule.table.map(|t| t.to_string())),
        ("priority", rule.priority.map(|p| p.to_string())),
    ] {
        out.extend(value.map(|v| format!("{key} {v}")));
    }
    out.join(" ") + "\n"
}

fn overrides(interface: &Interface, v: &mut Variables) {
    let (four, six) = (&interface.dhcp4_overrides, &interface.dhcp6_overrides);
    v.maybe("IPV4_ROUTE_METRIC", four.route_metric.or_else(|| metric(interface, Method::Dhcp4)));
    v.maybe("IPV6_ROUTE_METRIC", six.route_metric.or_else(|| metric(interface, Method::Dhcp6)));
    v.maybe("DHCP_HOSTNAME", four.hostname.as_ref());
    v.yes_no("DHCP_SEND_HOSTNAME", four.send_hostname);
    v.yes_no("PEERDNS", four.use_dns);
    v.yes_no("PEERROUTES", four.use_routes);
    v.maybe("DHCPV6_HOSTNAME", six.hostname.as_ref());
    v.yes_no("IPV6_PEERDNS", six.use_dns);
    v.yes_no("IPV6_PEERROUTES", six.use_routes);
    match interface.more.get("ipv6-privacy") {
        Some(Value::Bool(true)) => v.add("IPV6_PRIVACY", "rfc3041"),
        Some(Value::Bool(false)) => v.add("IPV6_PRIVACY", "no"),
        Some(_) => cannot(NAME, &interface.name, "ipv6-privacy"),
        None => {}
    }
}

fn metric(interface: &Interface, method: Method) -> Option<u32> {
    interface.subnets.iter().filter(|s| s.method == method).find_map(|s| s.metric)
}
