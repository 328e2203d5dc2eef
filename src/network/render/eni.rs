//! ifupdown: stanzas of interfaces(5), in a file of their own where the distribution has a folder for such.

use super::{Exists, File, HEADER, Target, cannot, eni_device as device, eni_route as route, has_program, link};
use crate::machine::Family;
use crate::network::model::{Control, Dns, Interface, Kind, Method, Network, Subnet};
use std::fmt::Write;

/// cloud-init's name of the renderer.
pub const NAME: &str = "eni";
const INTERFACES: &str = "/etc/network/interfaces";
const DEBIAN: &str = "/etc/network/interfaces.d/50-cloud-init";
/// Files that are written.
pub const OWNED: &[&str] = &[INTERFACES, DEBIAN, link::RULES, link::OWNED];

/// Whether the root has ifupdown. Busybox's ifup, which has no ifquery, does not read addresses with a prefix length.
pub fn available(exists: &Exists, _: &Target) -> bool {
    ["ifquery", "ifup", "ifdown"].iter().all(|p| has_program(exists, p)) && exists(INTERFACES)
}

/// One file. Names are told by .link files; on Alpine, whose eudev does not read them, by rules.
pub fn render(network: &Network, target: &Target) -> Vec<File> {
    let mut stanzas = vec![loopback(network)];
    for interface in in_order(network) {
        if interface.kind == Kind::Loopback {
            let own = interface.subnets.iter().filter(|s| s.method == Method::Static);
            stanzas.extend(own.filter_map(|s| subnet(interface, s, target)));
        } else if interface.is_pattern() {
            cannot(NAME, &interface.name, "match");
        } else if device::is_known(interface) {
            stanzas.extend(self::interface(network, interface, target));
        }
    }
    let body: String = stanzas.iter().map(Stanza::to_text).collect();
    let is_alpine = target.distro.family == Family::Alpine;
    let path = if target.distro.family == Family::Debian { DEBIAN } else { INTERFACES };
    let mut files = vec![File::public(path, format!("{HEADER}{body}"))];
    if is_alpine {
        files.extend(link::rules(network, link::RULES, |i| i.rename));
    } else {
        files.extend(link::files(network));
    }
    files
}

/// An `iface` stanza, with the line that says when it is brought up.
pub struct Stanza {
    start: Option<&'static str>,
    name: String,
    v6: bool,
    method: &'static str,
    options: Vec<(String, String)>,
}

impl Stanza {
    fn new(name: &str, v6: bool, method: &'static str) -> Stanza {
        Stanza { start: None, name: name.to_owned(), v6, method, options: Vec::new() }
    }

    /// Adds an option.
    pub fn add(&mut self, key: &str, value: impl ToString) {
        self.options.push((key.to_owned(), value.to_string()));
    }

    fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    fn names(&mut self, dns: &Dns) {
        for (key, words) in [("dns-nameservers", &dns.servers), ("dns-search", &dns.search)] {
            if !words.is_empty() {
                self.add(key, words.join(" "));
            }
        }
    }

    fn to_text(&self) -> String {
        let mut out = String::from("\n");
        if let Some(start) = self.start {
            let _ = writeln!(out, "{start} {}", self.name);
        }
        let family = if self.v6 { "inet6" } else { "inet" };
        let _ = writeln!(out, "iface {} {family} {}", self.name, self.method);
        for (key, value) in &self.options {
            let _ = writeln!(out, "    {key} {value}");
        }
        out
    }
}

/// `lo`, which has the machine's name servers: it is always up.
fn loopback(network: &Network) -> Stanza {
    let mut lo = Stanza::new("lo", false, "loopback");
    lo.start = Some("auto");
    let own = network.interfaces.iter().filter(|i| i.kind == Kind::Loopback).flat_map(|i| &i.subnets);
    let mut dns = Dns::default();
    own.filter(|s| s.method == Method::Loopback).for_each(|s| dns.merge(&s.dns));
    dns.merge(&network.dns);
    lo.names(&dns);
    lo
}

/// Devices after those that they are made of: ifup takes them in the file's order.
fn in_order(network: &Network) -> Vec<&Interface> {
    let mut out: Vec<&Interface> = Vec::new();
    let mut rest: Vec<&Interface> = network.interfaces.iter().collect();
    while !rest.is_empty() {
        let waits = |i: &Interface| {
            let link = if let Kind::Vlan { link, .. } = &i.kind { Some(link) } else { None };
            i.parts().iter().chain(link).any(|part| rest.iter().any(|r| r.name == *part))
        };
        let (later, now): (Vec<_>, Vec<_>) = rest.iter().copied().partition(|i| waits(i));
        let is_circle = now.is_empty();
        out.extend(now);
        rest = later;
        if is_circle {
            out.append(&mut rest);
        }
    }
    out
}

fn interface(network: &Network, interface: &Interface, target: &Target) -> Vec<Stanza> {
    let mut stanzas: Vec<Stanza> = interface.subnets.iter().filter_map(|s| subnet(interface, s, target)).collect();
    if stanzas.is_empty() {
        stanzas.push(Stanza::new(&interface.name, false, "manual"));
    }
    if let Some(first) = stanzas.first_mut() {
        first.start = match interface.subnets.first().map(|s| s.control) {
            Some(Control::Auto) => Some("auto"),
            Some(Control::Hotplug) => Some("allow-hotplug"),
            Some(Control::Manual) => None,
            None => device::starts_by_itself(network, interface).then_some("auto"),
        };
        device::options(network, interface, first);
    }
    names(interface, &mut stanzas);
    for route in interface.routes.iter().chain(network.routes_over(interface)) {
        if let Some(stanza) = of_family(&mut stanzas, route.to.is_v6()) {
            route::add(stanza, interface, route, target);
        }
    }
    device::report(interface);
    stanzas
}

/// The first stanza of a family, else the first.
fn of_family(stanzas: &mut [Stanza], v6: bool) -> Option<&mut Stanza> {
    let place = stanzas.iter().position(|s| s.v6 == v6).unwrap_or(0);
    stanzas.get_mut(place)
}

/// A subnet's stanza. None for a static one without an address.
fn subnet(interface: &Interface, subnet: &Subnet, target: &Target) -> Option<Stanza> {
    let (v6, method) = match subnet.method {
        Method::Static => (subnet.is_v6(), "static"),
        Method::Dhcp4 => (false, "dhcp"),
        Method::Dhcp6 | Method::Dhcp6Stateful => (true, "dhcp"),
        Method::Dhcp6Stateless | Method::Slaac => (true, "auto"),
        Method::Manual => (false, "manual"),
        Method::Loopback => (false, "loopback"),
    };
    let mut stanza = Stanza::new(&interface.name, v6, method);
    match method {
        "static" => {
            stanza.add("address", subnet.address.as_ref()?);
            stanza.maybe("broadcast", subnet.broadcast.as_ref());
            stanza.maybe("gateway", subnet.gateway.as_ref());
            stanza.maybe("pointopoint", subnet.pointopoint.as_ref());
            stanza.maybe("scope", subnet.scope.as_ref());
        }
        "auto" => stanza.add("dhcp", u8::from(subnet.method == Method::Dhcp6Stateless)),
        "dhcp" if !v6 => stanza.maybe("hostname", interface.dhcp4_overrides.hostname.as_ref()),
        _ => {}
    }
    let of_lease = match subnet.method {
        Method::Dhcp4 => interface.dhcp4_overrides.route_metric,
        method if method.is_dhcp6() => interface.dhcp6_overrides.route_metric,
        _ => None,
    };
    stanza.maybe("metric", of_lease.or(subnet.metric));
    if v6 {
        stanza.maybe("accept-ra", interface.accept_ra.map(u8::from));
    }
    stanza.maybe("mtu", subnet.mtu.filter(|_| v6 || interface.mtu.is_none()));
    subnet.routes.iter().for_each(|r| route::add(&mut stanza, interface, r, target));
    Some(stanza)
}

/// Name servers go to the static stanzas of their family, else to another one.
fn names(interface: &Interface, stanzas: &mut [Stanza]) {
    let mut dns = Dns::default();
    interface.subnets.iter().for_each(|s| dns.merge(&s.dns));
    dns.merge(&interface.dns);
    let mut places: Vec<Dns> = vec![Dns::default(); stanzas.len()];
    for v6 in [false, true] {
        let servers: Vec<String> = dns.servers_of(v6).cloned().collect();
        if servers.is_empty() {
            continue;
        }
        let mut found: Vec<usize> = (0..stanzas.len())
            .filter(|n| stanzas.get(*n).is_some_and(|s| s.v6 == v6 && s.method == "static"))
            .collect();
        if found.is_empty() {
            found.push(stanzas.iter().position(|s| s.v6 == v6).unwrap_or(0));
        }
        for place in found {
            if let Some(place) = places.get_mut(place) {
                place.merge(&Dns { servers: servers.clone(), search: dns.search.clone() });
            }
        }
    }
    if let Some(first) = places.first_mut().filter(|_| dns.servers.is_empty()) {
        first.merge(&dns);
    }
    for (stanza, dns) in stanzas.iter_mut().zip(&places) {
        stanza.names(dns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::machine::Distro;
    use crate::network::{Macs, read, render};

    fn files(text: &str, distro: &str) -> Vec<File> {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let target = Target { distro: Distro::named(distro), ip_tool: true };
        (render::by_name("eni").unwrap().render)(&network, &target)
    }

    fn body(text: &str) -> String {
        files(text, "debian")[0].content.strip_prefix(HEADER).unwrap().to_owned()
    }

    #[test]
    fn files_and_names_are_where_the_distribution_looks() {
        let text =
            "version: 2\nethernets: {e: {match: {macaddress: '52-54-00-00-00-0A', driver: [a, b]}, set-name: lan0}}";
        let paths = |distro| files(text, distro).into_iter().map(|f| f.path).collect::<Vec<_>>();
        assert_eq!(paths("debian"), [DEBIAN, "/etc/systemd/network/10-cloud-init-lan0.link"]);
        assert_eq!(paths("alpine"), [INTERFACES, link::RULES]);
        let rules = &files(text, "alpine")[1].content;
        assert!(rules.ends_with(
            "\nSUBSYSTEM==\"net\", ACTION==\"add\", DRIVERS==\"a|b\", ATTR{address}==\"52:54:00:00:00:0a\", NAME=\"lan0\"\n"
        ), "{rules}");
    }

    #[test]
    fn devices_come_after_their_parts() {
        let text = "version: 2\nbridges: {br: {interfaces: [b.5], parameters: {stp: false, path-cost: {b.5: 9}}}}\nvlans: {b.5: {id: 5, link: b}}\n\
            bonds: {b: {interfaces: [x, y], parameters: {mode: 1, arp-ip-targets: [1.1.1.1, 2.2.2.2]}}}\nethernets: {x: {}, y: {}, all: {match: {name: 'en*'}}}\ndummy-devices: {d: {}}\n";
        let part = "bond-mode 1\n    bond-arp-ip-target 1.1.1.1 2.2.2.2\n";
        assert_eq!(
            body(text),
            format!(
                "\nauto lo\niface lo inet loopback\n\nauto x\niface x inet manual\n    bond-master b\n    {part}\nauto y\niface y inet manual\n    bond-master b\n    {part}\n\
                 auto b\niface b inet manual\n    {part}    bond-slaves none\n\niface b.5 inet manual\n    vlan-raw-device b\n    vlan-id 5\n\n\
                 iface br inet manual\n    bridge-ports b.5\n    bridge-stp off\n    bridge-pathcost b.5 9\n"
            )
        );
        // A circle is written all the same.
        assert!(body("version: 2\nvlans: {a: {id: 1, link: b}, b: {id: 2, link: a}}").contains("iface b inet manual"));
    }

    #[test]
    fn what_belongs_to_a_subnet_is_in_its_stanza() {
        let text = "version: 1\nconfig: [{type: physical, name: e, mtu: 1400, subnets: [{type: dhcp6, metric: 7}, {type: static, address: '::2/64', mtu: 1300}]},\
            {type: loopback, name: lo, subnets: [{type: loopback, dns_nameservers: [127.0.0.9]}]}]";
        assert_eq!(
            body(text),
            "\nauto lo\niface lo inet loopback\n    dns-nameservers 127.0.0.9\n\nauto e\niface e inet6 dhcp\n    metric 7\n    mtu 1400\n\n\
             iface e inet6 static\n    address ::2/64\n    mtu 1300\n"
        );
    }

    #[test]
    fn starts_and_methods() {
        let body = body(
            "version: 1\nconfig: [{type: physical, name: a, mtu: 1400, subnets: [{type: dhcp, control: manual}]}, {type: physical, name: b, subnets: [{type: dhcp6, control: hotplug}]},\
             {type: physical, name: c, wakeonlan: true, subnets: [{type: ipv6_dhcpv6-stateless}, {type: static, address: 10.0.0.2/8, broadcast: 10.9.9.9, pointopoint: 10.0.0.1, scope: link}]},\
             {type: loopback, name: lo, subnets: [{type: loopback}, {type: static, address: 127.0.0.9/8}]}]",
        );
        assert_eq!(
            body,
            "\nauto lo\niface lo inet loopback\n\niface a inet dhcp\n    mtu 1400\n\nallow-hotplug b\niface b inet6 dhcp\n\n\
             auto c\niface c inet6 auto\n    dhcp 1\n    ethernet-wol g\n\niface c inet static\n    address 10.0.0.2/8\n    broadcast 10.9.9.9\n    pointopoint 10.0.0.1\n    scope link\n\n\
             iface lo inet static\n    address 127.0.0.9/8\n"
        );
    }
}
