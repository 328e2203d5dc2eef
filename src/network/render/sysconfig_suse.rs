//! ifcfg and ifroute files of SUSE's distributions (ifcfg(5), ifroute(5) of wicked).

use super::sysconfig::{NAME, Variables, bonding, is_started, mtu, report};
use super::{File, HEADER, cannot, sysconfig_rhel};
use crate::document::{Map, Value};
use crate::network::model::{Control, Interface, Kind, Method, Network, Route};
use crate::network::params::{self, Unit};
use std::fmt::Write;

const FOLDER: &str = "/etc/sysconfig/network";

/// The device's file, and that of its routes.
pub fn files(network: &Network, interface: &Interface) -> Vec<File> {
    let mut v = Variables::default();
    let master = network.master_of(&interface.name);
    let is_slave = matches!(master.map(|m| &m.kind), Some(Kind::Bond { .. }));
    let hotplugged = interface.subnets.iter().any(|s| s.control == Control::Hotplug);
    v.add(
        "STARTMODE",
        match is_started(interface) {
            false => "manual",
            true if is_slave || hotplugged => "hotplug",
            true => "auto",
        },
    );
    v.add("BOOTPROTO", if is_slave { "none" } else { protocol(interface) });
    v.maybe("DHCLIENT6_MODE", dhcp6_mode(interface));
    v.maybe("MTU", mtu(interface));
    let own = interface.matching.mac.as_ref().filter(|_| interface.is_physical());
    v.maybe("LLADDR", interface.mac.as_ref().or(own));
    if interface.wake_on_lan == Some(true) {
        v.add("ETHTOOL_OPTIONS", "wol g");
    }
    device(interface, &mut v);
    match master.map(|m| &m.kind) {
        Some(Kind::Bridge { .. }) => v.add("BRIDGE", "yes"),
        Some(Kind::Vrf { .. }) => cannot(NAME, &interface.name, "vrfs"),
        _ => {}
    }
    addresses(interface, &mut v);
    v.maybe("DHCLIENT_HOSTNAME_OPTION", interface.dhcp4_overrides.hostname.as_ref());
    let lease_metric = interface.subnets.iter().filter(|s| s.method == Method::Dhcp4).find_map(|s| s.metric);
    v.maybe("DHCLIENT_ROUTE_PRIORITY", interface.dhcp4_overrides.route_metric.or(lease_metric));
    unsaid(interface);
    report(interface, &[]);
    let mut files = vec![v.to_file(format!("{FOLDER}/ifcfg-{}", interface.name))];
    files.extend(routes(network, interface));
    files
}

fn protocol(interface: &Interface) -> &'static str {
    let automatic6 = interface.dhcp6() || interface.subnets.iter().any(|s| s.method == Method::Slaac);
    match (interface.dhcp4(), automatic6) {
        (true, true) => "dhcp",
        (true, false) => "dhcp4",
        (false, true) => "dhcp6",
        (false, false) => "static",
    }
}

/// Addresses from the server, or information alone.
fn dhcp6_mode(interface: &Interface) -> Option<&'static str> {
    let is = |method| interface.subnets.iter().any(|s| s.method == method);
    match () {
        _ if is(Method::Dhcp6) || is(Method::Dhcp6Stateful) => Some("managed"),
        _ if is(Method::Dhcp6Stateless) || is(Method::Slaac) => Some("info"),
        _ => None,
    }
}

fn device(interface: &Interface, v: &mut Variables) {
    match &interface.kind {
        Kind::Infiniband => v.add("TYPE", "InfiniBand"),
        Kind::Bond { interfaces, params } => {
            v.add("BONDING_MASTER", "yes");
            v.maybe("BONDING_MODULE_OPTS", bonding(interface, params));
            for (i, part) in interfaces.iter().enumerate() {
                v.add(format!("BONDING_SLAVE_{i}"), part);
            }
        }
        Kind::Bridge { interfaces, params } => {
            v.add("BRIDGE_PORTS", interfaces.join(" "));
            bridge(interface, interfaces, params, v);
        }
        Kind::Vlan { id, link } => {
            v.add("ETHERDEVICE", link);
            v.add("VLAN_ID", id);
        }
        _ => {}
    }
}

fn bridge(interface: &Interface, ports: &[String], params: &Map, v: &mut Variables) {
    for (name, value) in params.iter() {
        let seconds = params::milliseconds(value, Unit::Seconds).map(|ms| ms / 1000);
        // A value for each port, in the ports' order; `-` is the default.
        let of_ports = || {
            let of = |port: &String| value.get(port).and_then(Value::as_int).map_or("-".to_owned(), |n| n.to_string());
            ports.iter().map(of).collect::<Vec<_>>().join(" ")
        };
        match (name, seconds) {
            ("stp", _) => v.add("BRIDGE_STP", if value.is_true() { "on" } else { "off" }),
            ("ageing", Some(n)) => v.add("BRIDGE_AGEINGTIME", n),
            ("fd", Some(n)) => v.add("BRIDGE_FORWARDDELAY", n),
            ("hello", Some(n)) => v.add("BRIDGE_HELLOTIME", n),
            ("maxage", Some(n)) => v.add("BRIDGE_MAXAGE", n),
            ("bridgeprio", Some(n)) => v.add("BRIDGE_PRIORITY", n),
            ("pathcost", _) if value.as_map().is_some() => v.add("BRIDGE_PATHCOSTS", of_ports()),
            ("portprio", _) if value.as_map().is_some() => v.add("BRIDGE_PORTPRIORITIES", of_ports()),
            (other, _) => cannot(NAME, &interface.name, other),
        }
    }
}

fn addresses(interface: &Interface, v: &mut Variables) {
    let (mut n4, mut n6) = (0, 0);
    for net in interface.addresses() {
        match (net.is_v6(), n4, n6) {
            (true, _, 0) => v.add("IPADDR6", net),
            (true, ..) => v.add(format!("IPADDR6_{n6}"), net),
            (false, 0, _) => {
                v.add("IPADDR", &net.ip);
                v.add("NETMASK", net.netmask());
            }
            (false, ..) => {
                v.add(format!("IPADDR{n4}"), &net.ip);
                v.add(format!("NETMASK{n4}"), net.netmask());
            }
        }
        if net.is_v6() { n6 += 1 } else { n4 += 1 }
    }
}

fn unsaid(interface: &Interface) {
    for (key, given) in [
        (
            "accept-ra",
            interface.accept_ra == Some(true) && !interface.subnets.iter().any(|s| s.method == Method::Slaac),
        ),
        ("ipv6-mtu", interface.ipv6_mtu.is_some() || interface.subnets.iter().any(|s| s.is_v6() && s.mtu.is_some())),
        ("routing-policy", !interface.rules.is_empty()),
        ("dhcp6-overrides.hostname", interface.dhcp6_overrides.hostname.is_some()),
        ("dhcp6-overrides.route-metric", interface.dhcp6_overrides.route_metric.is_some()),
    ] {
        if given {
            cannot(NAME, &interface.name, key);
        }
    }
}

/// A line for each route: destination, gateway, netmask (which the destination has), device, and iproute2's options.
fn routes(network: &Network, interface: &Interface) -> Option<File> {
    let mut out = String::from(HEADER);
    let gateways = interface.subnets.iter().filter_map(|s| {
        let gateway = s.gateway.as_ref()?;
        let to = crate::network::address::Net::default_of(gateway.is_v6());
        Some(Route { metric: s.metric, ..Route::new(to, Some(gateway.clone())) })
    });
    for route in gateways.chain(interface.all_routes().chain(network.routes_over(interface)).cloned()) {
        let via = route.via.as_ref().map_or("-".to_owned(), |v| v.to_string());
        // An IPv6 default route without a gateway has to say its family.
        match (route.to.is_default(), &route.via) {
            (true, Some(_)) => _ = write!(out, "default"),
            _ => _ = write!(out, "{}", route.to),
        }
        let _ = write!(out, " {via} - {}", interface.name);
        if let Some(metric) = route.metric {
            let _ = write!(out, " metric {metric}");
        }
        let options = sysconfig_rhel::options(interface, &route);
        if !options.is_empty() {
            let _ = write!(out, " {options}");
        }
        out.push('\n');
    }
    (out != HEADER).then(|| File::public(format!("{FOLDER}/ifroute-{}", interface.name), out))
}
