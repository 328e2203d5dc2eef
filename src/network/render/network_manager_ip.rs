//! NetworkManager's `[ipv4]` and `[ipv6]` (nm-settings(5)).

use super::cannot;
use super::ini::Section;
use super::network_manager::{NAME, escape, list};
use crate::document::Value;
use crate::network::address::Net;
use crate::network::model::{Dns, Interface, Kind, Method, Network, Route, Rule, Subnet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// NetworkManager insists on a priority for each rule. The kernel gives this one to the first rule that has none.
const RULE_PRIORITY: u32 = 32765;

/// What is asked of one family.
struct Asked<'a> {
    v6: bool,
    subnets: Vec<&'a Subnet>,
    addresses: Vec<&'a Subnet>,
    routes: Vec<&'a Route>,
    rules: Vec<&'a Rule>,
    servers: Vec<&'a String>,
}

impl<'a> Asked<'a> {
    fn of(network: &'a Network, interface: &'a Interface, v6: bool) -> Asked<'a> {
        let routes = interface.all_routes().chain(network.routes_over(interface));
        let own = interface.subnets.iter().flat_map(|s| &s.dns.servers).chain(&interface.dns.servers);
        let is_v6 = |net: &Option<Net>| net.as_ref().map(Net::is_v6);
        Asked {
            v6,
            subnets: interface.subnets.iter().filter(|s| s.is_v6() == v6).collect(),
            addresses: interface.subnets.iter().filter(|s| is_v6(&s.address) == Some(v6)).collect(),
            routes: routes.filter(|r| r.to.is_v6() == v6).collect(),
            rules: interface.rules.iter().filter(|r| is_v6(&r.from).or(is_v6(&r.to)).unwrap_or(false) == v6).collect(),
            servers: own.filter(|s| crate::network::address::is_v6(s) == v6).collect(),
        }
    }

    /// None: nothing is asked, and NetworkManager's default (`auto`) holds.
    fn method(&self, network: &Network, interface: &Interface) -> Option<&'static str> {
        let link_local = |family: &str| interface.link_local.as_ref().map(|l| l.iter().any(|f| f == family));
        let is_automatic = self.subnets.iter().any(|s| !matches!(s.method, Method::Static | Method::Loopback));
        let with_address = !self.addresses.is_empty();
        let without_subnets = is_idle_bond(network, interface);
        if !self.v6 {
            return match () {
                _ if is_automatic => Some("auto"),
                _ if with_address => Some("manual"),
                _ if link_local("ipv4") == Some(true) => Some("link-local"),
                _ if without_subnets || is_only_v6(interface) => Some("disabled"),
                _ if !self.routes.is_empty() || !self.rules.is_empty() || !self.servers.is_empty() => Some("auto"),
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
            None if !self.routes.is_empty() || !self.rules.is_empty() || !self.servers.is_empty() => Some("auto"),
            None => None,
        }
    }
}

/// Whether it is a bond without addresses, with nothing said of the family: it is there for what is on top of it.
fn is_idle_bond(network: &Network, interface: &Interface) -> bool {
    matches!(interface.kind, Kind::Bond { .. })
        && interface.subnets.is_empty()
        && network.routes_over(interface).next().is_none()
        && interface.all_routes().next().is_none()
        && interface.dns.is_empty()
}

/// As in cloud-init, version 1's particular ways to get IPv6 addresses switch IPv4 off where it is not asked for.
fn is_only_v6(interface: &Interface) -> bool {
    let particular = [Method::Dhcp6Stateful, Method::Dhcp6Stateless, Method::Slaac];
    interface.subnets.iter().any(|s| particular.contains(&s.method))
}

/// The family's section. It has no lines where nothing is asked.
pub fn section(network: &Network, interface: &Interface, v6: bool) -> Section {
    let asked = Asked::of(network, interface, v6);
    let mut section = Section::new(if v6 { "ipv6" } else { "ipv4" });
    let mut options = Section::new("");
    more(&mut options, interface, v6);
    let method = asked.method(network, interface).or((!options.is_empty()).then_some("auto"));
    let Some(method) = method else { return section };
    section.add("method", method);
    if !asked.subnets.is_empty() || is_idle_bond(network, interface) {
        let automatic6 = interface.dhcp6() || interface.subnets.iter().any(|s| s.method == Method::Slaac);
        let unknown = asked.subnets.iter().any(|s| s.method == Method::Manual);
        section.add("may-fail", unknown || (interface.dhcp4() && automatic6));
    }
    for (i, subnet) in asked.addresses.iter().enumerate() {
        section.maybe(&format!("address{}", i + 1), subnet.address.as_ref());
    }
    if method == "disabled" {
        for (given, key) in [
            (asked.routes.is_empty(), "routes"),
            (asked.rules.is_empty(), "routing-policy"),
            (asked.servers.is_empty(), "nameservers"),
        ] {
            if !given {
                cannot(NAME, &interface.name, key);
            }
        }
        return section;
    }
    routes(&mut section, interface, &asked);
    names(&mut section, network, interface, v6);
    overrides(&mut section, interface, v6);
    for (i, rule) in asked.rules.iter().enumerate() {
        section.add(format!("routing-rule{}", i + 1), self::rule(rule, v6));
    }
    section.append(options);
    section
}

/// Says once for both families what has no place in either.
pub fn report(network: &Network, interface: &Interface) {
    let any = |given: &dyn Fn(&Subnet) -> bool| interface.subnets.iter().any(given);
    for (key, given) in [
        ("broadcast", any(&|s| s.odd_broadcast().is_some())),
        ("pointopoint", any(&|s| s.pointopoint.is_some())),
        ("scope", any(&|s| s.scope.is_some())),
        ("label", any(&|s| s.label.is_some())),
        ("lifetime", any(&|s| s.lifetime.is_some())),
    ] {
        if given {
            cannot(NAME, &interface.name, key);
        }
    }
    let unsaid = |v6| Asked::of(network, interface, v6).method(network, interface).is_none_or(|m| m == "disabled");
    if unsaid(false) && unsaid(true) && !interface.dns.search.is_empty() {
        cannot(NAME, &interface.name, "nameservers.search");
    }
    for (name, o) in [("dhcp4-overrides", &interface.dhcp4_overrides), ("dhcp6-overrides", &interface.dhcp6_overrides)]
    {
        for (key, given) in [
            ("use-domains", o.use_domains.is_some()),
            ("use-hostname", o.use_hostname == Some(false)),
            ("use-mtu", o.use_mtu == Some(false)),
            ("use-ntp", o.use_ntp == Some(false)),
        ] {
            if given {
                cannot(NAME, &interface.name, &format!("{name}.{key}"));
            }
        }
    }
    for key in
        interface.more.keys().filter(|k| *k != "activation-mode" && !MORE.iter().any(|(netplan, ..)| netplan == k))
    {
        cannot(NAME, &interface.name, key);
    }
}

/// Gateways and routes. A profile has one gateway, next to addresses; others are routes to everywhere.
fn routes(section: &mut Section, interface: &Interface, asked: &Asked) {
    let mut lines: Vec<(Route, bool)> = Vec::new();
    let mut metric = None;
    let mut has_gateway = false;
    for subnet in &asked.subnets {
        match &subnet.gateway {
            Some(gateway) if !has_gateway && !asked.addresses.is_empty() && gateway.is_v6() == asked.v6 => {
                has_gateway = true;
                section.add("gateway", gateway);
                metric = metric.or(subnet.metric);
            }
            Some(gateway) => {
                let mut route = Route::new(Net::default_of(gateway.is_v6()), Some(gateway.clone()));
                route.metric = subnet.metric;
                lines.push((route, interface.is_on_link(gateway)));
            }
            None => metric = metric.or(subnet.metric),
        }
    }
    let overrides = if asked.v6 { &interface.dhcp6_overrides } else { &interface.dhcp4_overrides };
    section.maybe("route-metric", overrides.route_metric.or(metric));
    lines.extend(asked.routes.iter().map(|r| ((*r).clone(), r.on_link == Some(true))));
    for (i, (route, on_link)) in lines.iter().enumerate() {
        let key = format!("route{}", i + 1);
        let none = if asked.v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        section.add(
            key.as_str(),
            match (&route.via, route.metric) {
                (Some(via), Some(metric)) => format!("{},{via},{metric}", route.to),
                (Some(via), None) => format!("{},{via}", route.to),
                (None, Some(metric)) => format!("{},{none},{metric}", route.to),
                (None, None) => route.to.to_string(),
            },
        );
        let options = options(interface, route, *on_link);
        if !options.is_empty() {
            section.add(format!("{key}_options"), options);
        }
    }
}

/// Keys of a route without a field in the model, and NetworkManager's attributes.
const ROUTE_KEYS: &[(&str, &str)] =
    &[("congestion-window", "initcwnd"), ("advertised-receive-window", "initrwnd"), ("advertised-mss", "advmss")];

fn options(interface: &Interface, route: &Route, on_link: bool) -> String {
    // As iproute2 numbers them (rt_scopes).
    const SCOPES: [(&str, u8); 4] = [("global", 0), ("site", 200), ("link", 253), ("host", 254)];
    let mut out: Vec<String> = Vec::new();
    let mut add = |key: &str, value: Option<String>| out.extend(value.map(|v| format!("{key}={v}")));
    add("mtu", route.mtu.map(|m| m.to_string()));
    add("table", route.table.map(|t| t.to_string()));
    add("src", route.from.as_ref().map(|f| f.to_string()));
    add("onlink", on_link.then(|| "true".to_owned()));
    if let Some(scope) = route.scope.as_deref() {
        match SCOPES.iter().find(|(name, _)| *name == scope) {
            Some((_, number)) if !route.to.is_v6() => add("scope", Some(number.to_string())),
            _ => cannot(NAME, &interface.name, "routes.scope"),
        }
    }
    match route.kind.as_deref() {
        None | Some("unicast") => {}
        Some(kind @ ("local" | "blackhole" | "prohibit" | "unreachable" | "throw")) => {
            add("type", Some(kind.to_owned()))
        }
        Some(_) => cannot(NAME, &interface.name, "routes.type"),
    }
    for (key, value) in route.more.iter() {
        match (ROUTE_KEYS.iter().find(|(netplan, _)| *netplan == key), value) {
            (Some((_, own)), Value::Int(n)) if u32::try_from(*n).is_ok() => add(own, Some(n.to_string())),
            _ => cannot(NAME, &interface.name, &format!("routes.{key}")),
        }
    }
    out.join(",")
}

fn rule(rule: &Rule, v6: bool) -> String {
    let mut out = format!("priority {}", rule.priority.unwrap_or(RULE_PRIORITY));
    let from = rule.from.clone().or_else(|| rule.to.is_none().then(|| Net::default_of(v6)));
    for (key, value) in [
        ("from", from.map(|n| n.to_string())),
        ("to", rule.to.as_ref().map(|n| n.to_string())),
        ("tos", rule.tos.map(|t| format!("{t:#x}"))),
        ("fwmark", rule.mark.map(|m| format!("{m:#x}"))),
        ("table", rule.table.map(|t| t.to_string())),
    ] {
        if let Some(value) = value {
            out += &format!(" {key} {value}");
        }
    }
    out
}

/// Name servers of the family, and search domains. The machine's stand in for what the interface has none of.
fn names(section: &mut Section, network: &Network, interface: &Interface, v6: bool) {
    if interface.kind == Kind::Loopback {
        return;
    }
    let mut dns = Dns::default();
    interface.subnets.iter().for_each(|s| dns.merge(&s.dns));
    dns.merge(&interface.dns);
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

/// A key of netplan's, the family, and NetworkManager's key and value for a value of netplan's.
type More = (&'static str, bool, &'static str, fn(&Value) -> Option<String>);

const MORE: &[More] = &[
    ("ipv6-privacy", true, "ip6-privacy", |v| v.as_bool().map(|b| if b { "2" } else { "0" }.to_owned())),
    ("ipv6-address-generation", true, "addr-gen-mode", |v| match v.as_str()? {
        "eui64" => Some("0".to_owned()),
        "stable-privacy" => Some("1".to_owned()),
        _ => None,
    }),
    ("ipv6-address-token", true, "token", |v| v.as_str()?.parse::<Ipv6Addr>().ok().map(|a| a.to_string())),
    ("dhcp-identifier", false, "dhcp-client-id", |v| match v.as_str()? {
        id @ ("mac" | "duid") => Some(id.to_owned()),
        _ => None,
    }),
];

fn more(section: &mut Section, interface: &Interface, v6: bool) {
    section.maybe("mtu", interface.ipv6_mtu.filter(|_| v6));
    for (netplan, _, key, convert) in MORE.iter().filter(|m| m.1 == v6) {
        let Some(value) = interface.more.get(netplan) else { continue };
        match convert(value) {
            Some(value) => {
                if *key == "token" {
                    // A token is for EUI-64 alone.
                    section.add("addr-gen-mode", 0);
                }
                section.add(*key, value);
            }
            None => cannot(NAME, &interface.name, netplan),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::network::render::ini;
    use crate::network::{Macs, read};

    fn sections(text: &str) -> [String; 2] {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        [false, true].map(|v6| ini::write("", &[section(&network, &network.interfaces[0], v6)]))
    }

    fn v2(device: &str) -> [String; 2] {
        sections(&format!("version: 2\nethernets: {{e: {device}}}"))
    }

    #[test]
    fn methods_follow_what_is_asked_of_the_family() {
        let method = |device: &str| v2(device).map(|s| s.lines().nth(1).unwrap_or("").replace("method=", ""));
        assert_eq!(method("{}"), ["", ""]);
        assert_eq!(method("{dhcp4: true}"), ["auto", ""]);
        assert_eq!(method("{addresses: [10.0.0.2/8, '::2/64']}"), ["manual", "manual"]);
        assert_eq!(method("{dhcp4: true, accept-ra: no}"), ["auto", "link-local"]);
        assert_eq!(method("{dhcp6: true, accept-ra: no}"), ["", "dhcp"]);
        assert_eq!(method("{dhcp4: true, link-local: []}"), ["auto", "disabled"]);
        assert_eq!(method("{addresses: ['::2/64'], accept-ra: yes}"), ["", "auto"]);
        // A section without a method, or with name servers and `disabled`, would cost the whole profile.
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
            "[ipv4]\nmethod=manual\nmay-fail=false\naddress1=10.0.0.2/8\ngateway=10.0.0.1\nroute1=10.9.0.0/16,10.0.0.9,3\n\
             route1_options=mtu=1400,table=7,onlink=true,type=blackhole\nroute2=10.8.0.0/16,0.0.0.0,4\n\
             routing-rule1=priority 32765 from 10.0.0.0/8 fwmark 0x10 table 7\n"
        );
        assert_eq!(
            v6,
            "[ipv6]\nmethod=auto\nmay-fail=false\nroute-metric=9\nroute1=::/0,fe80::1\nignore-auto-dns=true\n"
        );
    }

    #[test]
    fn the_machines_name_servers_stand_in_for_the_interfaces_own() {
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
