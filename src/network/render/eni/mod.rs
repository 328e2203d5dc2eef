//! ifupdown: stanzas of interfaces(5), in a file of their own if the distribution has a folder for such files.

mod device;
mod route;
mod stanza;

use super::grammar::{Filter, Grammar};
use super::renderer::{Evidence, File, HEADER, Owned, Renderer, Target, Unsupported};
use super::udev;
use crate::base::manual;
use crate::machine::Family;
use crate::network::model::{Control, DeviceType, Dns, Interface, Method, Network, Route, Subnet};
use stanza::Stanza;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What stanzas may have (interfaces(5), ifenslave's and bridge-utils' own pages): the options of ifupdown itself, and the parameters of
/// bonds and bridges.
const GRAMMAR: Grammar = Grammar(include_str!("grammar.txt"));

/// The most name servers and domains in all static stanzas of a device and family together.
const MAX_SERVERS: usize = 1_000;

const INTERFACES: &str = "/etc/network/interfaces";
const DEBIAN: &str = "/etc/network/interfaces.d/50-cloud-init";
pub static RENDERER: Renderer = Renderer {
    name: "eni",
    title: "ifupdown",
    // Busybox's ifup, which comes without ifquery, does not read addresses with a prefix length.
    detected_by: &[Evidence { family: None, programs: &["ifquery", "ifup", "ifdown"], any_path: &[INTERFACES] }],
    owned: &[Owned::new(INTERFACES), Owned::new(DEBIAN), udev::RULES, udev::LINKS],
    // From old images of Ubuntu.
    image_files: &[("/etc/network/interfaces.d/eth0.cfg", &["auto eth0", "iface eth0 inet dhcp"])],
    reads_run: false,
    reload: &[],
    takes_server_parts: false,
    takes_version_2: false,
    limits: manual(
        "Patterns in `match`, dummy devices, Wi-Fi, VRFs and tunnels; `optional`, `link-local`, `keep_configuration` of a \
             device that is brought up (a plain yes is `no-auto-down` on Debian), an MTU of IPv6, routing rules, an \
             address's label and lifetime, and DHCP overrides other than the hostname and the metric of DHCPv4. \
             Without the `ip` program: all options of a route but its metric.",
    ),
    render,
};

/// Renders one file for the interfaces. Names go to .link files, or on Alpine, whose eudev does not read
/// these, to rules.
fn render(network: &Network, target: &Target, unsupported: &mut Unsupported) -> Vec<File> {
    let mut stanzas = vec![loopback(network)];
    let mut gateways = Gateways::new();
    for interface in in_order(network) {
        if interface.device_type == DeviceType::Loopback {
            let own = interface.subnets.iter().filter(|s| s.method == Method::Static);
            stanzas.extend(own.filter_map(|s| subnet(interface, s, &mut gateways, target, unsupported)));
        } else if interface.is_pattern() {
            unsupported.key(interface, "match");
        } else if device::is_known(interface, unsupported) {
            stanzas.extend(self::interface(network, interface, &mut gateways, target, unsupported));
        }
    }
    let body: String = stanzas.iter().map(Stanza::to_text).collect();
    let is_alpine = target.distro.family == Family::Alpine;
    let path = if target.distro.family == Family::Debian { DEBIAN } else { INTERFACES };
    let mut files = vec![File::public(path, format!("{HEADER}{body}"))];
    if is_alpine {
        files.extend(udev::rules_file(network, udev::RULES_PATH, |i| i.rename));
    } else {
        files.extend(udev::link_files(network));
    }
    files
}

/// The stanza of `lo`, which is always up; it gets the machine's name servers.
fn loopback(network: &Network) -> Stanza {
    let mut lo = Stanza::new("lo", false, "loopback");
    lo.start = Some("auto");
    lo.name_servers(&network.dns);
    lo
}

/// Devices, each after its members and links, because ifup brings them up in the file's order.
fn in_order(network: &Network) -> Vec<&Interface> {
    // By name: how many devices have it and are not out yet, and the places of those that wait for them.
    let mut left: HashMap<&str, (usize, Vec<usize>)> = HashMap::new();
    for interface in &network.interfaces {
        left.entry(&interface.name).or_default().0 += 1;
    }
    let mut awaited = vec![0usize; network.interfaces.len()];
    for (place, (interface, awaited)) in network.interfaces.iter().zip(&mut awaited).enumerate() {
        let link = if let DeviceType::Vlan { link, .. } = &interface.device_type { Some(link) } else { None };
        for part in interface.members().iter().chain(link) {
            if let Some((_, waiting)) = left.get_mut(part.as_str()) {
                waiting.push(place);
                *awaited += 1;
            }
        }
    }
    let mut out: Vec<&Interface> = Vec::new();
    let mut now: BTreeSet<usize> = (0..awaited.len()).filter(|place| awaited.get(*place) == Some(&0)).collect();
    let mut rest: BTreeSet<usize> = (0..awaited.len()).collect();
    while !now.is_empty() {
        for place in std::mem::take(&mut now) {
            rest.remove(&place);
            let Some(interface) = network.interfaces.get(place) else { continue };
            out.push(interface);
            let Some((count, waiting)) = left.get_mut(interface.name.as_str()) else { continue };
            *count -= 1;
            for user in waiting.iter().filter(|_| *count == 0) {
                if let Some(awaited) = awaited.get_mut(*user) {
                    *awaited -= 1;
                    now.extend((*awaited == 0).then_some(user));
                }
            }
        }
    }
    // Those that wait for each other.
    out.extend(rest.into_iter().filter_map(|place| network.interfaces.get(place)));
    out
}

/// The families and metrics for which a stanza has a gateway. The kernel has one default route for each, and ifup ends with an error if
/// it refuses a gateway: further ones become routes, which may fail.
type Gateways = HashSet<(bool, Option<u32>)>;

fn interface(
    network: &Network,
    interface: &Interface,
    gateways: &mut Gateways,
    target: &Target,
    unsupported: &mut Unsupported,
) -> Vec<Stanza> {
    let subnets = interface.subnets.iter();
    let mut stanzas: Vec<Stanza> =
        subnets.filter_map(|s| subnet(interface, s, gateways, target, unsupported)).collect();
    if stanzas.is_empty() {
        stanzas.push(Stanza::new(&interface.name, false, "manual"));
    }
    // Debian's interfaces(5) has `no-auto-down`; other versions of ifupdown do not.
    let keeps = interface.keeps_all() && !interface.is_manual() && target.distro.family == Family::Debian;
    if let Some(first) = stanzas.first_mut() {
        first.start = match interface.subnets.first().map(|s| s.control) {
            Some(Control::Auto) => Some("auto"),
            Some(Control::Hotplug) => Some("allow-hotplug"),
            Some(Control::Manual) => None,
            None => device::is_started(network, interface).then_some("auto"),
        };
        first.stays = keeps;
        device::options(network, interface, first, unsupported);
    }
    name_servers(interface, &mut stanzas);
    for route in &interface.routes {
        if let Some(stanza) = of_route(&mut stanzas, route) {
            route::add(stanza, interface, route, target, unsupported);
        }
    }
    device::report(interface, keeps, unsupported);
    filter(interface, &mut stanzas, unsupported);
    stanzas
}

/// The stanza for a route. ifup carries out the stanzas of an interface one after the other, and the kernel refuses a route whose
/// gateway is not reached yet: it is the first one with an address in the gateway's network, else one whose address is not known, else
/// the family's last, else the first.
fn of_route<'a>(stanzas: &'a mut [Stanza], route: &Route) -> Option<&'a mut Stanza> {
    // The kernel refuses a source that the device does not have yet.
    let has_source = |s: &Stanza| s.address.as_ref().is_some_and(|own| Some(&own.ip) == route.from.as_ref());
    if let Some(place) = stanzas.iter().position(has_source) {
        return stanzas.get_mut(place);
    }
    let reaches = |s: &Stanza| s.address.as_ref().zip(route.via.as_ref()).is_some_and(|(own, via)| own.contains(via));
    let is_own = |s: &Stanza| s.v6 == route.to.is_v6();
    let place = stanzas.iter().position(reaches);
    let place = place.or_else(|| stanzas.iter().position(|s| is_own(s) && matches!(s.method, "dhcp" | "auto")));
    let place = place.or_else(|| stanzas.iter().rposition(is_own));
    stanzas.get_mut(place.unwrap_or(0))
}

/// A subnet's stanza. None for a static one without an address.
fn subnet(
    interface: &Interface,
    subnet: &Subnet,
    gateways: &mut Gateways,
    target: &Target,
    unsupported: &mut Unsupported,
) -> Option<Stanza> {
    let (v6, method) = match subnet.method {
        Method::Static => (subnet.is_v6(), "static"),
        Method::Dhcp4 => (false, "dhcp"),
        Method::Dhcp6 | Method::Dhcp6Stateful => (true, "dhcp"),
        Method::Dhcp6Stateless | Method::Slaac => (true, "auto"),
        Method::Manual => (false, "manual"),
        Method::Loopback => (false, "loopback"),
    };
    let mut stanza = Stanza::new(&interface.name, v6, method);
    // ifupdown leaves an interface down whose gateway is of another family than its address.
    let gateway = subnet.gateway.as_ref().filter(|gateway| gateway.is_v6() == v6);
    let gateway = gateway.filter(|_| method == "static" && gateways.insert((v6, subnet.metric)));
    match method {
        "static" => {
            let address = subnet.address.as_ref()?;
            stanza.add("address", address);
            stanza.address = Some(address.clone());
            stanza.maybe("broadcast", subnet.broadcast.as_ref());
            stanza.maybe("gateway", gateway);
            stanza.maybe("pointopoint", subnet.pointopoint.as_ref());
            stanza.maybe("scope", subnet.scope.as_ref());
        }
        "auto" => stanza.add("dhcp", u8::from(subnet.method == Method::Dhcp6Stateless)),
        "dhcp" if !v6 => stanza.maybe("hostname", interface.dhcp4_overrides.hostname.as_ref()),
        _ => {}
    }
    let lease_metric = interface.dhcp4_overrides.route_metric.filter(|_| subnet.method == Method::Dhcp4);
    stanza.maybe("metric", lease_metric.or(subnet.metric).filter(|_| device::has_metric(subnet)));
    if v6 {
        stanza.maybe("accept-ra", interface.accept_ra.map(u8::from));
        stanza.maybe("privext", interface.temporary_addresses().filter(|_| device::has_privacy(subnet)));
    }
    stanza.maybe("mtu", subnet.mtu.filter(|_| v6 || interface.mtu.is_none()));
    let other = interface.gateway_route(subnet).filter(|_| method == "static" && gateway.is_none());
    other.iter().chain(&subnet.routes).for_each(|r| route::add(&mut stanza, interface, r, target, unsupported));
    Some(stanza)
}

/// Adds the name servers to the static stanzas of their family, else to the family's first stanza, else to the first.
fn name_servers(interface: &Interface, stanzas: &mut [Stanza]) {
    let dns = interface.name_servers();
    let mut places: Vec<Dns> = vec![Dns::default(); stanzas.len()];
    for v6 in [false, true] {
        let servers: Vec<String> = dns.servers_of(v6).cloned().collect();
        if servers.is_empty() {
            continue;
        }
        let mut found: Vec<usize> = (0..stanzas.len())
            .filter(|n| stanzas.get(*n).is_some_and(|s| s.v6 == v6 && s.method == "static"))
            .collect();
        // Each stanza's servers replace those of the one before at resolvconf, so that all have them. Any of them is enough.
        if found.len().saturating_mul(servers.len() + dns.search.len()) > MAX_SERVERS {
            found.truncate(1);
        }
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
        stanza.name_servers(dns);
    }
}

/// Removes from a device's stanzas what ifupdown or the kernel would refuse.
fn filter(interface: &Interface, stanzas: &mut [Stanza], unsupported: &mut Unsupported) {
    let mut report = |key: &str| unsupported.key(interface, key);
    let mut filter = Filter::new(GRAMMAR, "iface", &mut report);
    for stanza in stanzas {
        // Parameters are filtered where they are added, by tables of their own.
        let is_filtered = |key: &str| ["bond-", "bridge-"].iter().any(|of| key.starts_with(of));
        stanza.retain(|key, value| is_filtered(key) || filter.keep(key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::{Problems, Severity};
    use crate::network::testing::{files, network, target};

    fn body(text: &str) -> String {
        files(&RENDERER, text, "debian")[0].content.strip_prefix(HEADER).unwrap().to_owned()
    }

    #[test]
    fn privacy_is_in_stanzas_that_can_have_it() {
        let of = |keys: &str| body(&format!("version: 2\nethernets: {{e: {{{keys}}}}}"));
        let text = of("ipv6-privacy: true, addresses: [10.0.0.2/8, '2001:db8::2/64']");
        assert!(text.ends_with("iface e inet static\n    address 10.0.0.2/8\n\niface e inet6 static\n    address 2001:db8::2/64\n    privext 2\n"), "{text}");
        assert!(of("ipv6-privacy: false, addresses: ['2001:db8::2/64']").ends_with("    privext 0\n"));
        assert!(!of("ipv6-privacy: true, dhcp6: true").contains("privext"));
    }

    #[test]
    fn files_and_names_are_where_the_distribution_looks() {
        let text =
            "version: 2\nethernets: {e: {match: {macaddress: '52-54-00-00-00-0A', driver: [a, b]}, set-name: lan0}}";
        let paths = |distro| files(&RENDERER, text, distro).into_iter().map(|f| f.path).collect::<Vec<_>>();
        assert_eq!(paths("debian"), [DEBIAN, "/etc/systemd/network/10-cloud-init-lan0.link"]);
        assert_eq!(paths("alpine"), [INTERFACES, udev::RULES_PATH]);
        let rules = &files(&RENDERER, text, "alpine")[1].content;
        assert!(rules.ends_with(
            "\nSUBSYSTEM==\"net\", ACTION==\"add\", DRIVERS==\"a|b\", ATTR{address}==\"52:54:00:00:00:0a\", NAME=\"lan0\"\n"
        ), "{rules}");
    }

    #[test]
    fn nothing_of_a_document_becomes_a_command() {
        let v1 = "version: 1\nconfig: [{type: physical, name: 'e;reboot', subnets: [{type: dhcp}]}, {type: physical, name: '$(reboot)'},\
            {type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/8, scope: 'link;reboot'}]},\
            {type: bridge, name: br, bridge_interfaces: [e], params: {bridge_waitport: {\"1\\n    up reboot\": 1}}}]";
        let v2 = "version: 2\nethernets: {e: {dhcp4: true, dhcp4-overrides: {hostname: 'h|reboot'}}, 'x|reboot': {dhcp4: true}}";
        for text in [v1, v2].map(body) {
            assert!(text.contains("\niface e inet ") && !text.contains("reboot"), "{text}");
        }
    }

    #[test]
    fn devices_come_after_their_members() {
        let text = "version: 2\nbridges: {br: {interfaces: [b.5], parameters: {stp: false, path-cost: {b.5: 9}}}}\nvlans: {b.5: {id: 5, link: b}}\n\
            bonds: {b: {interfaces: [x, y], parameters: {mode: 1, arp-ip-targets: [1.1.1.1, 2.2.2.2]}}}\nethernets: {x: {}, y: {}, all: {match: {name: 'en*'}}}\ndummy-devices: {d: {}}\n";
        let part = "bond-mode 1\n    bond-arp-ip-target 1.1.1.1 2.2.2.2\n";
        assert_eq!(
            body(text),
            format!(
                "\nauto lo\niface lo inet loopback\n\nauto x\niface x inet manual\n    bond-master b\n    {part}\nauto y\niface y inet manual\n    bond-master b\n    {part}\n\
                 auto b\niface b inet manual\n    {part}    bond-slaves none\n\nauto b.5\niface b.5 inet manual\n    vlan-raw-device b\n    vlan-id 5\n\n\
                 auto br\niface br inet manual\n    bridge-ports b.5\n    bridge-stp off\n    bridge-pathcost b.5 9\n"
            )
        );
        // A cycle is written too.
        assert!(body("version: 2\nvlans: {a: {id: 1, link: b}, b: {id: 2, link: a}}").contains("iface b inet manual"));
    }

    #[test]
    fn no_stanza_refers_to_an_impossible_device() {
        let text = body(
            "version: 2\nethernets: {e: {}}\nbonds: {bond012345678901: {interfaces: [e]}}\nvlans: {v: {id: 5, link: bond012345678901}}",
        );
        assert_eq!(text, "\nauto lo\niface lo inet loopback\n\niface e inet manual\n");
    }

    #[test]
    fn one_of_many_stanzas_has_the_name_servers() {
        let with_servers = |count: usize| {
            let subnet = |n| format!("{{type: static, address: 10.0.0.{n}/32, dns_nameservers: [10.1.0.{n}]}}");
            let subnets: Vec<String> = (1..=count).map(subnet).collect();
            let text =
                body(&format!("version: 1\nconfig: [{{type: physical, name: e, subnets: [{}]}}]", subnets.join(", ")));
            text.lines().filter(|line| line.trim_start().starts_with("dns-nameservers ")).count()
        };
        assert_eq!([2, 30, 40].map(with_servers), [2, 30, 1]);
    }

    #[test]
    fn adds_a_route_with_its_gateways_address() {
        let stanza_of = |keys: &str, via: &str| {
            let body =
                body(&format!("version: 2\nethernets: {{e: {{{keys}, routes: [{{to: 10.9.0.0/16, via: {via}}}]}}}}"));
            let place = body.split("iface e ").position(|stanza| stanza.contains("post-up"));
            assert_eq!(body.matches("post-up").count(), 1, "{body}");
            place.unwrap()
        };
        let two = "addresses: [10.0.0.2/24, 10.1.0.2/24]";
        assert_eq!([stanza_of(two, "10.0.0.1"), stanza_of(two, "10.1.0.1"), stanza_of(two, "10.2.0.1")], [1, 2, 2]);
        let lease = "dhcp4: true, addresses: [10.1.0.2/24, '2001:db8::2/64']";
        assert_eq!([stanza_of(lease, "10.1.0.1"), stanza_of(lease, "10.2.0.1")], [2, 1]);
        assert_eq!(stanza_of("addresses: ['2001:db8::2/64', '2001:db8::3/64']", "10.2.0.1"), 1);
    }

    #[test]
    fn a_gateway_of_another_family_is_a_route() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/24, gateway: 'fe80::1'}]}]";
        let body = body(text);
        assert!(
            !body.contains("gateway") && body.contains("post-up ip -family inet6 route add default via fe80::1"),
            "{body}"
        );
    }

    #[test]
    fn a_subnets_options_are_in_its_stanza() {
        let text = "version: 1\nconfig: [{type: physical, name: e, mtu: 1400, subnets: [{type: dhcp6, metric: 7}, {type: static, address: '::2/64', mtu: 1300}]},\
            {type: loopback, name: lo, subnets: [{type: loopback, dns_nameservers: [127.0.0.9]}]}]";
        assert_eq!(
            body(text),
            "\nauto lo\niface lo inet loopback\n    dns-nameservers 127.0.0.9\n\nauto e\niface e inet6 dhcp\n    mtu 1400\n\n\
             iface e inet6 static\n    address ::2/64\n    mtu 1300\n"
        );
    }

    #[test]
    fn a_metric_is_either_written_or_reported() {
        let of = |text: &str| {
            let report = Problems::new();
            let files = RENDERER.files(&network(text), &target("debian"), &report);
            (files[0].content.contains("metric"), report.texts(Severity::Warning).join("; "))
        };
        let subnet = |kind: &str| {
            of(&format!("version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: {kind}, metric: 7}}]}}]"))
        };
        let ignored =
            |key: &str| (false, format!("network configuration: eni cannot express {key} of e; it is ignored"));
        assert_eq!([subnet("dhcp6"), subnet("ipv6_slaac")], [ignored("metric"), ignored("metric")]);
        assert_eq!(
            [subnet("dhcp4"), subnet("static, address: '::2/64', gateway: '::1'")],
            [(true, String::new()), (true, String::new())]
        );
        let lease = |n: u8| {
            of(&format!("version: 2\nethernets: {{e: {{dhcp{n}: true, dhcp{n}-overrides: {{route-metric: 7}}}}}}"))
        };
        assert_eq!([lease(4), lease(6)], [(true, String::new()), ignored("dhcp6-overrides.route-metric")]);
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
