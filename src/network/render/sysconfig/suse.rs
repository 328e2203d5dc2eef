//! ifcfg and ifroute files of SUSE's distributions (ifcfg(5), ifroute(5) of wicked).

use super::common::{self, bonding, is_started, report, route_options, slaves};
use super::variables::Variables;
use crate::document::{Map, Value};
use crate::network::address::Cidr;
use crate::network::model::{Control, DeviceType, Interface, Method, Network};
use crate::network::parameters;
use crate::network::render::iproute;
use crate::network::render::renderer::{File, HEADER, Unsupported};
use std::fmt::Write;

const FOLDER: &str = "/etc/sysconfig/network";

/// The device's file, and that of its routes.
pub fn files(network: &Network, interface: &Interface, unsupported: &mut Unsupported) -> Vec<File> {
    let mut v = Variables::default();
    let master = network.master_of(&interface.name);
    let is_slave = matches!(master.map(|m| &m.device_type), Some(DeviceType::Bond { .. }));
    let hotplugged = interface.subnets.iter().any(|s| s.control == Control::Hotplug);
    v.add(
        "STARTMODE",
        match is_started(interface) {
            false => "manual",
            true if is_slave || hotplugged => "hotplug",
            // As auto, and `wicked ifdown` leaves it up.
            true if interface.keeps_all() => "nfsroot",
            true => "auto",
        },
    );
    v.add("BOOTPROTO", if is_slave { "none" } else { protocol(interface) });
    v.maybe("DHCLIENT6_MODE", dhcp6_mode(interface));
    v.maybe("MTU", interface.link_mtu());
    let own = interface.matching.mac.as_ref().filter(|_| interface.is_physical());
    let address = interface.mac.as_ref().or(own);
    // wicked takes six bytes with colons only, and refuses the whole file for another: none for InfiniBand.
    let address = address.filter(|_| interface.device_type != DeviceType::Infiniband);
    v.maybe("LLADDR", address);
    if interface.wake_on_lan == Some(true) {
        v.add("ETHTOOL_OPTIONS", "wol g");
    }
    device(interface, &mut v, unsupported);
    if matches!(master.map(|m| &m.device_type), Some(DeviceType::Vrf { .. })) {
        unsupported.key(interface, "vrfs");
    }
    addresses(interface, &mut v);
    v.maybe("DHCLIENT_HOSTNAME_OPTION", interface.dhcp4_overrides.hostname.as_ref());
    v.maybe("DHCLIENT_SET_DEFAULT_ROUTE", (interface.dhcp4_overrides.use_routes == Some(false)).then_some("no"));
    let lease_metric = interface.metric_of(|m| m == Method::Dhcp4);
    v.maybe("DHCLIENT_ROUTE_PRIORITY", interface.dhcp4_overrides.route_metric.or(lease_metric));
    report_own(interface, unsupported);
    let sysctl = sysctl(interface);
    report(interface, &["dhcp4-overrides.use-routes", "infiniband-mode", "ipv6-privacy"], unsupported);
    if !super::filter("suse", &mut v, interface, unsupported) {
        return Vec::new();
    }
    let mut files = vec![v.to_file(format!("{FOLDER}/ifcfg-{}", interface.name))];
    files.extend(routes(interface, unsupported));
    files.extend(sysctl);
    files
}

/// The kernel's settings that no variable has (ifsysctl(5)). With `/` between the parts, a name may have dots.
fn sysctl(interface: &Interface) -> Option<File> {
    let settings =
        [("accept_ra", interface.accept_ra.map(u8::from)), ("use_tempaddr", interface.temporary_addresses())];
    let mut out = String::from(HEADER);
    for (key, value) in settings {
        if let Some(value) = value {
            let _ = writeln!(out, "net/ipv6/conf/{}/{key} = {value}", interface.name);
        }
    }
    (out.len() > HEADER.len()).then(|| File::public(format!("{FOLDER}/ifsysctl-{}", interface.name), out))
}

fn protocol(interface: &Interface) -> &'static str {
    match (interface.dhcp4(), interface.is_automatic_v6()) {
        (true, true) => "dhcp",
        (true, false) => "dhcp4",
        (false, true) => "dhcp6",
        (false, false) => "static",
    }
}

/// Whether DHCPv6 assigns addresses (`managed`) or only other information (`info`).
fn dhcp6_mode(interface: &Interface) -> Option<&'static str> {
    let any = |methods: [Method; 2]| methods.into_iter().any(|m| interface.uses(m));
    match () {
        _ if any([Method::Dhcp6, Method::Dhcp6Stateful]) => Some("managed"),
        _ if any([Method::Dhcp6Stateless, Method::Slaac]) => Some("info"),
        _ => None,
    }
}

fn device(interface: &Interface, v: &mut Variables, unsupported: &mut Unsupported) {
    match &interface.device_type {
        DeviceType::Infiniband => {
            v.add("TYPE", "InfiniBand");
            let mode = interface.extra.get("infiniband-mode").and_then(Value::as_str);
            // wicked knows ib0 by its name, and others by the mode.
            if mode.is_some() || interface.name.strip_prefix("ib").is_none_or(|n| n.parse::<u32>().is_err()) {
                v.add("IPOIB_MODE", mode.unwrap_or("datagram"));
            }
        }
        DeviceType::Bond { interfaces, params } => {
            v.add("BONDING_MASTER", "yes");
            v.maybe("BONDING_MODULE_OPTS", bonding(interface, params, unsupported));
            for (i, part) in slaves(interfaces).into_iter().enumerate() {
                v.add(format!("BONDING_SLAVE_{i}"), part);
            }
        }
        DeviceType::Bridge { interfaces, params } => {
            v.add("BRIDGE", "yes");
            v.maybe("BRIDGE_PORTS", (!interfaces.is_empty()).then(|| interfaces.join(" ")));
            bridge(interface, interfaces, params, v, unsupported);
        }
        DeviceType::Vlan { id, link } => {
            v.add("ETHERDEVICE", link);
            v.add("VLAN_ID", id);
        }
        _ => {}
    }
}

fn bridge(interface: &Interface, ports: &[String], params: &Map, v: &mut Variables, unsupported: &mut Unsupported) {
    for (name, value) in params.iter() {
        // One value for each port, in the ports' order; `-` is the default.
        let mut of_ports = || {
            let mut of = |port: &String| common::port_parameter(interface, port, name, value, unsupported);
            ports.iter().map(|port| of(port).unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
        };
        match (name, parameters::seconds(value)) {
            ("stp", _) => v.add("BRIDGE_STP", if value.is_true() { "on" } else { "off" }),
            ("ageing", Some(n)) => v.add("BRIDGE_AGEINGTIME", n),
            ("fd", Some(n)) => v.add("BRIDGE_FORWARDDELAY", n),
            ("hello", Some(n)) => v.add("BRIDGE_HELLOTIME", n),
            ("maxage", Some(n)) => v.add("BRIDGE_MAXAGE", n),
            ("bridgeprio", Some(n)) => v.add("BRIDGE_PRIORITY", n),
            ("pathcost" | "portprio", _) if ports.is_empty() => {}
            ("pathcost", _) if value.as_map().is_some() => v.add("BRIDGE_PATHCOSTS", of_ports()),
            ("portprio", _) if value.as_map().is_some() => v.add("BRIDGE_PORTPRIORITIES", of_ports()),
            (other, _) => unsupported.key(interface, other),
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
        match net.is_v6() {
            true => n6 += 1,
            // IPADDR6 is the first IPv6 address.
            false => n4 += if n4 == 5 { 2 } else { 1 },
        }
    }
}

/// Reports the keys that only SUSE's files cannot express.
fn report_own(interface: &Interface, unsupported: &mut Unsupported) {
    let overrides = &interface.dhcp6_overrides;
    let keys = [
        ("macaddress", interface.mac.is_some() && interface.device_type == DeviceType::Infiniband),
        ("ipv6-mtu", interface.inet6_mtu().is_some()),
        ("routing-policy", !interface.rules.is_empty()),
        ("dhcp6-overrides.hostname", overrides.hostname.is_some()),
        ("dhcp6-overrides.route-metric", overrides.route_metric.is_some()),
    ];
    unsupported.keys(interface, keys);
}

/// The types of routes without a gateway and a device, which wicked takes by these names.
const TYPES: [&str; 4] = ["blackhole", "prohibit", "throw", "unreachable"];

/// A line for each route: destination, gateway, netmask (which the destination has), device, and iproute2's options.
fn routes(interface: &Interface, unsupported: &mut Unsupported) -> Option<File> {
    let mut out = String::from(HEADER);
    let gateways = interface.subnets.iter().filter_map(|s| interface.gateway_route(s));
    let mut all: Vec<_> = gateways.chain(interface.all_routes().cloned()).collect();
    common::keep_families(interface, &mut all, unsupported);
    for route in all {
        let own_type = route.route_type.as_deref().filter(|_| !iproute::is_unicast(&route));
        if own_type.is_some_and(|t| !TYPES.contains(&t)) {
            unsupported.key(interface, "routes.type");
            continue;
        }
        let via = route.via.as_ref().filter(|_| own_type.is_none());
        // wicked refuses `onlink`. A route to the gateway alone makes it reachable too; it is in the same table.
        if let Some(via) = via.filter(|_| route.on_link == Some(true)) {
            let table = route.table.map(|t| format!(" table {t}")).unwrap_or_default();
            let line = format!("{} - - {}{table}\n", Cidr::host(via.clone()), interface.name);
            if !out.lines().any(|l| l == line.trim_end()) {
                out.push_str(&line);
            }
        }
        // An IPv6 default route without a gateway has to say its family.
        let to = if route.to.is_default() && via.is_some() { "default".into() } else { route.to.to_string() };
        let via = via.map_or("-".to_owned(), |v| v.to_string());
        let _ = write!(out, "{to} {via} - {}", interface.name);
        let metric = route.metric.map(|m| format!("metric {m}"));
        let options = route_options(interface, &route, unsupported);
        for word in metric.into_iter().chain(options).chain(own_type.map(str::to_owned)) {
            let _ = write!(out, " {word}");
        }
        out.push('\n');
    }
    (out != HEADER).then(|| File::public(format!("{FOLDER}/ifroute-{}", interface.name), out))
}
