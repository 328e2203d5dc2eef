//! NetworkManager's `[ipv4]` and `[ipv6]` (nm-settings(5)).

use super::keyfile::{escape, list};
use crate::document::Value;
use crate::network::address::{Cidr, Ip, is_v6};
use crate::network::model::{DeviceType, Interface, Method, Network, Route, Rule, Subnet};
use crate::network::render::ini::Section;
use crate::network::render::iproute;
use crate::network::render::renderer::Unsupported;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// NetworkManager requires a priority for each rule. This is the kernel's for the first rule without one.
const RULE_PRIORITY: u32 = 32765;

/// An interface's configuration for one family.
struct FamilyConfig<'a> {
    v6: bool,
    subnets: Vec<&'a Subnet>,
    /// The subnets by whose gateway, which can be of the other family than they are, this family is routed.
    routed: Vec<&'a Subnet>,
    addresses: Vec<&'a Subnet>,
    routes: Vec<&'a Route>,
    rules: Vec<&'a Rule>,
    servers: Vec<&'a String>,
}

impl<'a> FamilyConfig<'a> {
    fn of(interface: &'a Interface, v6: bool) -> FamilyConfig<'a> {
        let family = |cidr: &Option<Cidr>| cidr.as_ref().map(Cidr::is_v6);
        FamilyConfig {
            v6,
            subnets: interface.subnets.iter().filter(|s| s.is_v6() == v6).collect(),
            routed: interface
                .subnets
                .iter()
                .filter(|s| s.gateway.as_ref().map_or(s.is_v6(), Ip::is_v6) == v6)
                .collect(),
            addresses: interface.subnets.iter().filter(|s| family(&s.address) == Some(v6)).collect(),
            routes: interface.all_routes().filter(|r| r.to.is_v6() == v6).collect(),
            rules: interface
                .rules
                .iter()
                .filter(|r| family(&r.from).or(family(&r.to)).unwrap_or(false) == v6)
                .collect(),
            servers: interface.servers().filter(|s| is_v6(s) == v6).collect(),
        }
    }

    /// None: nothing is configured, and NetworkManager's default (`auto`) applies.
    fn method(&self, interface: &Interface) -> Option<&'static str> {
        let method = self.usual_method(interface)?;
        // NetworkManager has no other method for it (nm-setting-wireguard.c, `verify_connection`).
        let of_wireguard = if self.addresses.is_empty() { "disabled" } else { "manual" };
        Some(if is_wireguard(interface) { of_wireguard } else { method })
    }

    /// The method for an interface without addresses that has routes or name servers.
    fn without_addresses(interface: &Interface) -> &'static str {
        // No server is on a VRF itself, only on its ports.
        if matches!(interface.device_type, DeviceType::Vrf { .. }) { "link-local" } else { "auto" }
    }

    fn has_routes(&self) -> bool {
        !self.routes.is_empty() || self.routed.iter().any(|s| s.gateway.is_some())
    }

    fn usual_method(&self, interface: &Interface) -> Option<&'static str> {
        let link_local = |family: &str| interface.link_local.as_ref().map(|l| l.iter().any(|f| f == family));
        let is_automatic =
            self.subnets.iter().any(|s| !matches!(s.method, Method::Static | Method::Loopback | Method::Manual));
        let is_manual = interface.uses(Method::Manual);
        let with_address = !self.addresses.is_empty();
        let without_subnets = is_idle_bond(interface);
        if !self.v6 {
            return match () {
                _ if is_automatic => Some("auto"),
                _ if with_address => Some("manual"),
                _ if link_local("ipv4") == Some(true) => Some("link-local"),
                _ if without_subnets || interface.denies_dhcp4 || is_manual || is_only_v6(interface) => {
                    Some("disabled")
                }
                _ if self.has_routes() || !self.rules.is_empty() || !self.servers.is_empty() => {
                    Some(Self::without_addresses(interface))
                }
                _ => None,
            };
        }
        let is_dhcp = self.subnets.iter().any(|s| s.method.is_dhcp6());
        match interface.accept_ra {
            Some(false) if is_dhcp => Some("dhcp"),
            Some(false) if with_address => Some("manual"),
            Some(false) => Some("link-local"),
            Some(true) => Some("auto"),
            None if is_automatic => Some("auto"),
            None if with_address => Some("manual"),
            None if without_subnets || link_local("ipv6") == Some(false) => Some("disabled"),
            None if self.has_routes() || !self.rules.is_empty() || !self.servers.is_empty() => {
                Some(Self::without_addresses(interface))
            }
            None => None,
        }
    }
}

/// Whether it is a bond without IP configuration, for other devices on top of it.
fn is_idle_bond(interface: &Interface) -> bool {
    matches!(interface.device_type, DeviceType::Bond { .. })
        && interface.subnets.is_empty()
        && interface.all_routes().next().is_none()
        && interface.dns.is_empty()
}

fn is_wireguard(interface: &Interface) -> bool {
    let mode = match &interface.device_type {
        DeviceType::Tunnel(keys) => keys.get("mode"),
        _ => None,
    };
    mode.and_then(Value::as_str) == Some("wireguard")
}

/// As in cloud-init, version 1's specific IPv6 methods disable IPv4 unless it is configured too.
fn is_only_v6(interface: &Interface) -> bool {
    [Method::Dhcp6Stateful, Method::Dhcp6Stateless, Method::Slaac].into_iter().any(|m| interface.uses(m))
}

/// The family's section, without lines if nothing is configured.
pub fn section(network: &Network, interface: &Interface, v6: bool, unsupported: &mut Unsupported) -> Section {
    let family = FamilyConfig::of(interface, v6);
    let mut section = Section::new(if v6 { "ipv6" } else { "ipv4" });
    let mut options = Section::new("");
    extra(&mut options, interface, v6, unsupported);
    let method = family.method(interface).or((!options.is_empty()).then_some(if is_wireguard(interface) {
        "disabled"
    } else {
        "auto"
    }));
    // A port has no addresses, and NetworkManager no such section for it.
    let is_port = network
        .master_of(&interface.name)
        .is_some_and(|master| matches!(master.device_type, DeviceType::Bond { .. } | DeviceType::Bridge { .. }));
    let is_denied = interface.denies_dhcp4 || interface.uses(Method::Manual);
    let Some(method) = method.filter(|method| !(is_port && is_denied && *method == "disabled")) else {
        return section;
    };
    section.add("method", method);
    unsupported.keys(interface, [("addresses", is_port && method != "disabled" && !family.subnets.is_empty())]);
    if !family.subnets.is_empty() || is_idle_bond(interface) {
        let unknown = family.subnets.iter().any(|s| s.method == Method::Manual);
        section.add("may-fail", unknown || (interface.dhcp4() && interface.is_automatic_v6()));
    }
    for (i, subnet) in family.addresses.iter().enumerate() {
        section.maybe(&format!("address{}", i + 1), subnet.address.as_ref());
    }
    if method == "disabled" {
        unsupported.keys(
            interface,
            [
                ("routes", family.has_routes()),
                ("routing-policy", !family.rules.is_empty()),
                ("nameservers", !family.servers.is_empty()),
            ],
        );
        return section;
    }
    routes(&mut section, interface, &family, unsupported);
    // NetworkManager refuses name servers beside link-local addresses.
    match method {
        "link-local" => unsupported.keys(interface, [("nameservers", !family.servers.is_empty())]),
        _ => name_servers(&mut section, network, interface, v6),
    }
    overrides(&mut section, interface, v6);
    for (i, rule) in family.rules.iter().enumerate() {
        section.add(format!("routing-rule{}", i + 1), self::rule(rule, v6));
    }
    section.append(options);
    section
}

/// Reports the keys that neither family's section can express.
pub fn report(interface: &Interface, unsupported: &mut Unsupported) {
    let any = |given: &dyn Fn(&Subnet) -> bool| interface.subnets.iter().any(given);
    let without_names = |m| matches!(m, "disabled" | "link-local");
    let without_section = |v6| FamilyConfig::of(interface, v6).method(interface).is_none_or(without_names);
    let no_search = without_section(false) && without_section(true) && !interface.dns.search.is_empty();
    let keys = [
        ("dhcp4", is_wireguard(interface) && interface.dhcp4()),
        ("dhcp6", is_wireguard(interface) && interface.dhcp6()),
        ("broadcast", any(&|s| s.unusual_broadcast().is_some())),
        ("pointopoint", any(&|s| s.pointopoint.is_some())),
        ("scope", any(&|s| s.scope.is_some())),
        ("label", any(&|s| s.label.is_some())),
        ("lifetime", any(&|s| s.lifetime.is_some())),
        ("nameservers.search", no_search),
    ];
    unsupported.keys(interface, keys);
    for (name, o) in [("dhcp4-overrides", &interface.dhcp4_overrides), ("dhcp6-overrides", &interface.dhcp6_overrides)]
    {
        for (key, given) in o.switches() {
            if given && !matches!(key, "send-hostname" | "use-dns" | "use-routes") {
                unsupported.key(interface, &format!("{name}.{key}"));
            }
        }
    }
    let is_infiniband = interface.device_type == DeviceType::Infiniband;
    let is_known = |key: &str| {
        key == "activation-mode"
            || (is_infiniband && key == "infiniband-mode")
            || EXTRA.iter().any(|(netplan, ..)| *netplan == key)
    };
    unsupported.keys(interface, interface.extra_keys().map(|key| (key, !is_known(key))));
}

/// Gateways and routes. A profile has one gateway, beside its addresses; others are written as default routes.
fn routes(section: &mut Section, interface: &Interface, family: &FamilyConfig, unsupported: &mut Unsupported) {
    let mut lines: Vec<Route> = Vec::new();
    let overrides = if family.v6 { &interface.dhcp6_overrides } else { &interface.dhcp4_overrides };
    // `route-metric` is for the gateway and the lease alike.
    let of_lease = overrides.route_metric.or_else(|| interface.metric_of(|m| lease_method(m, family.v6)));
    let has_lease = family.subnets.iter().any(|s| lease_method(s.method, family.v6));
    let mut metric = None;
    let mut has_gateway = false;
    for (i, subnet) in family.routed.iter().enumerate() {
        // The kernel has one default route for each metric; the last one is used.
        let replaces = |later: &&Subnet| later.gateway.is_some() && later.metric == subnet.metric;
        match &subnet.gateway {
            Some(_) if family.routed.iter().skip(i + 1).any(replaces) => {}
            Some(_) if has_lease && of_lease.is_some() && of_lease != subnet.metric => {
                // The kernel's own if none is given (ip-route(8)).
                let own = subnet.metric.unwrap_or(if family.v6 { 1024 } else { 0 });
                lines.extend(interface.gateway_route(subnet).map(|route| Route { metric: Some(own), ..route }));
            }
            // NetworkManager ignores a gateway without an address (nm-setting-ip-config.c, `verify`).
            Some(gateway) if !has_gateway && !family.addresses.is_empty() => {
                has_gateway = true;
                section.add("gateway", gateway);
                metric = metric.or(subnet.metric);
            }
            Some(_) => lines.extend(interface.gateway_route(subnet)),
            None => metric = metric.or(subnet.metric),
        }
    }
    section.maybe("route-metric", overrides.route_metric.or(metric));
    for route in &family.routes {
        if route.crosses_families() {
            unsupported.key(interface, "routes.via");
        } else {
            lines.push((*route).clone());
        }
    }
    for (i, route) in lines.iter().enumerate() {
        let key = format!("route{}", i + 1);
        let none = if family.v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        section.add(
            key.as_str(),
            match (&route.via, route.metric) {
                (Some(via), Some(metric)) => format!("{},{via},{metric}", route.to),
                (Some(via), None) => format!("{},{via}", route.to),
                (None, Some(metric)) => format!("{},{none},{metric}", route.to),
                (None, None) => route.to.to_string(),
            },
        );
        let options = options(interface, route, unsupported);
        if !options.is_empty() {
            section.add(format!("{key}_options"), options);
        }
    }
}

fn lease_method(method: Method, v6: bool) -> bool {
    if v6 { method.is_automatic_v6() } else { method == Method::Dhcp4 }
}

/// A route's attributes, as NetworkManager writes them after `routeN_options=`.
fn options(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> String {
    // The kernel's numbers (rt_scope_t).
    const SCOPES: [(&str, u8); 4] = [("global", 0), ("site", 200), ("link", 253), ("host", 254)];
    let mut out: Vec<String> = Vec::new();
    for (key, value) in iproute::options(interface, route, unsupported) {
        match (key, SCOPES.iter().find(|(name, _)| *name == value)) {
            ("scope", Some((_, number))) if !route.to.is_v6() => out.push(format!("scope={number}")),
            ("scope", _) => unsupported.key(interface, "routes.scope"),
            _ => out.push(format!("{key}={value}")),
        }
    }
    if route.on_link == Some(true) {
        out.push("onlink=true".to_owned());
    }
    match route.route_type.as_deref() {
        None | Some("unicast") => {}
        Some(kind @ ("local" | "blackhole" | "prohibit" | "unreachable" | "throw")) => out.push(format!("type={kind}")),
        Some(_) => unsupported.key(interface, "routes.type"),
    }
    out.join(",")
}

fn rule(rule: &Rule, v6: bool) -> String {
    let priority = rule.priority.unwrap_or(RULE_PRIORITY);
    // NetworkManager requires `from` or `to`.
    let from = rule.from.clone().or_else(|| rule.to.is_none().then(|| Cidr::default_of(v6)));
    format!("priority {priority} {}", iproute::rule(&Rule { from, ..rule.clone() }))
}

/// Name servers of the family, and search domains. The machine's are used if the interface has none.
fn name_servers(section: &mut Section, network: &Network, interface: &Interface, v6: bool) {
    if interface.device_type == DeviceType::Loopback {
        return;
    }
    let mut dns = interface.name_servers();
    if dns.servers.is_empty() {
        dns.servers.clone_from(&network.dns.servers);
    }
    if dns.search.is_empty() {
        dns.search.clone_from(&network.dns.search);
    }
    for (key, values) in [
        ("dns", list(dns.servers_of(v6).map(String::as_str))),
        ("dns-search", list(dns.search.iter().map(String::as_str))),
    ] {
        if !values.is_empty() {
            section.add(key, values);
        }
    }
}

fn overrides(section: &mut Section, interface: &Interface, v6: bool) {
    let o = if v6 { &interface.dhcp6_overrides } else { &interface.dhcp4_overrides };
    section.maybe("dhcp-hostname", o.hostname.as_deref().map(escape));
    section.maybe("dhcp-send-hostname", o.send_hostname);
    section.maybe("ignore-auto-dns", o.use_dns.map(|u| !u));
    section.maybe("ignore-auto-routes", o.use_routes.map(|u| !u));
}

/// netplan's key, whether it is for IPv6, NetworkManager's key, and the conversion of the value.
type Extra = (&'static str, bool, &'static str, fn(&Value) -> Option<String>);

const EXTRA: &[Extra] = &[
    ("ipv6-privacy", true, "ip6-privacy", |v| v.as_bool().map(|b| if b { "2" } else { "0" }.to_owned())),
    ("ipv6-address-generation", true, "addr-gen-mode", |v| match v.as_str()? {
        "eui64" => Some("0".to_owned()),
        "stable-privacy" => Some("1".to_owned()),
        _ => None,
    }),
    ("ipv6-address-token", true, "token", |v| token(v.as_str()?)),
    ("dhcp-identifier", false, "dhcp-client-id", |v| match v.as_str()? {
        id @ ("mac" | "duid") => Some(id.to_owned()),
        _ => None,
    }),
];

/// The interface identifier of a token (ip-token(8)), the address's last 64 bits: NetworkManager refuses a profile with any other
/// bit, or without these.
fn token(text: &str) -> Option<String> {
    let address: Ipv6Addr = text.split('/').next()?.parse().ok()?;
    let identifier = u128::from(address) & u128::from(u64::MAX);
    (identifier != 0).then(|| Ipv6Addr::from(identifier).to_string())
}

fn extra(section: &mut Section, interface: &Interface, v6: bool, unsupported: &mut Unsupported) {
    section.maybe("mtu", interface.inet6_mtu().filter(|_| v6));
    for (netplan, _, key, convert) in EXTRA.iter().filter(|m| m.1 == v6) {
        let Some(value) = interface.extra.get(netplan) else { continue };
        match convert(value) {
            Some(value) => {
                if *key == "token" {
                    // A token only works with EUI-64.
                    section.add("addr-gen-mode", 0);
                }
                section.add(*key, value);
            }
            None => unsupported.key(interface, netplan),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Problems;
    use crate::network::render::ini;
    use crate::network::testing::network;

    fn sections(text: &str) -> [String; 2] {
        let network = network(text);
        let (report, interface) = (Problems::new(), &network.interfaces[0]);
        [false, true].map(|v6| ini::write("", &[section(&network, interface, v6, &mut Unsupported::new(&report))]))
    }

    fn v2(device: &str) -> [String; 2] {
        sections(&format!("version: 2\nethernets: {{e: {device}}}"))
    }

    #[test]
    fn gateway_is_in_the_section_of_its_family() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.2/8, gateway: 'fe80::1'}]}]";
        let [four, six] = sections(text);
        assert!(!four.contains("fe80") && six.contains("route1=::/0,fe80::1\n"), "{four}{six}");
    }

    #[test]
    fn the_method_follows_from_the_familys_configuration() {
        let method = |device: &str| v2(device).map(|s| s.lines().nth(1).unwrap_or("").replace("method=", ""));
        assert_eq!(method("{}"), ["", ""]);
        assert_eq!(method("{dhcp4: true}"), ["auto", ""]);
        assert_eq!(method("{addresses: [10.0.0.2/8, '::2/64']}"), ["manual", "manual"]);
        assert_eq!(method("{dhcp4: true, accept-ra: no}"), ["auto", "link-local"]);
        assert_eq!(method("{dhcp6: true, accept-ra: no}"), ["", "dhcp"]);
        assert_eq!(method("{dhcp4: true, link-local: []}"), ["auto", "disabled"]);
        assert_eq!(method("{addresses: ['::2/64'], accept-ra: yes}"), ["", "auto"]);
        // NetworkManager refuses a profile without a method, or with name servers and `disabled`.
        assert_eq!(method("{dhcp4: true, nameservers: {addresses: ['::9']}}"), ["auto", "auto"]);
        assert_eq!(method("{dhcp4: true, routes: [{to: '::/0', via: 'fe80::1'}]}"), ["auto", "auto"]);
        assert_eq!(method("{dhcp4: true, ipv6-privacy: true}"), ["auto", "auto"]);
    }

    #[test]
    fn gateways_routes_and_rules() {
        let [v4, v6] = v2("{addresses: [10.0.0.2/8], gateway4: 10.0.0.1, gateway6: 'fe80::1', dhcp6: true, \
            routes: [{to: 10.9.0.0/16, via: 10.0.0.9, metric: 3, on-link: true, mtu: 1400, table: 7, type: blackhole}, {to: 10.8.0.0/16, metric: 4}], \
            routing-policy: [{from: 10.0.0.0/8, table: 7, mark: 16}], dhcp6-overrides: {use-dns: false, route-metric: 9}}");
        assert_eq!(
            v4,
            "[ipv4]\nmethod=manual\nmay-fail=false\naddress1=10.0.0.2/8\ngateway=10.0.0.1\nroute1=10.9.0.0/16,0.0.0.0,3\n\
             route1_options=mtu=1400,table=7,type=blackhole\nroute2=10.8.0.0/16,0.0.0.0,4\n\
             routing-rule1=priority 32765 from 10.0.0.0/8 fwmark 0x10 table 7\n"
        );
        assert_eq!(v6, "[ipv6]\nmethod=auto\nmay-fail=false\nroute-metric=9\nignore-auto-dns=true\n");
    }

    #[test]
    fn last_gateway_of_equal_metric_is_used() {
        let two = |metric: &str| {
            sections(&format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: 10.0.0.2/8, gateway: 10.0.0.1}},\
                 {{type: static, address: 192.0.2.2/24, gateway: 192.0.2.1{metric}}}]}}]"
            ))
        };
        let v4 = &two("")[0];
        assert!(v4.contains("gateway=192.0.2.1\n") && !v4.contains("route1"), "{v4}");
        let v4 = &two(", metric: 9")[0];
        assert!(v4.contains("gateway=10.0.0.1\n") && v4.contains("route1=0.0.0.0/0,192.0.2.1,9\n"), "{v4}");
    }

    #[test]
    fn interface_without_name_servers_uses_the_machines() {
        let text = |own: &str| {
            format!(
                "version: 1\nconfig: [{{type: physical, name: e, subnets: [{{type: static, address: 10.0.0.2/8{own}}}]}}, {{type: nameserver, address: [1.1.1.1, '::1'], search: x}}]"
            )
        };
        assert!(sections(&text(""))[0].ends_with("dns=1.1.1.1;\ndns-search=x;\n"));
        assert!(sections(&text(", dns_nameservers: [9.9.9.9]"))[0].ends_with("dns=9.9.9.9;\ndns-search=x;\n"));
        assert_eq!(sections(&text(""))[1], "");
    }
}
