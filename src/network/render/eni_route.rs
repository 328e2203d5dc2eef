//! Routes for ifupdown: commands that are run when the interface comes up and goes down.

use super::eni::{NAME, Stanza};
use super::{Target, cannot};
use crate::document::Value;
use crate::network::address::Ip;
use crate::network::model::{Interface, Route};

/// ifupdown's name of the interface. The name itself may hold what a shell takes for more.
const INTERFACE: &str = "\"$IFACE\"";

/// Adds a route, and its removal. A mistake in one leaves the interface up.
pub fn add(stanza: &mut Stanza, interface: &Interface, route: &Route, target: &Target) {
    let (before, after) = if target.ip_tool { ip(interface, route) } else { net_tools(interface, route) };
    stanza.add("post-up", format!("{before} add {after} || true"));
    stanza.add("pre-down", format!("{before} del {after} || true"));
}

/// Keys of a route without a field in the model, and iproute2's words.
const ROUTE_KEYS: &[(&str, &str)] =
    &[("congestion-window", "initcwnd"), ("advertised-receive-window", "initrwnd"), ("advertised-mss", "advmss")];

/// Whether the gateway, if there is one, does not say by itself on which link it is.
fn needs_link(route: &Route) -> bool {
    route.via.as_ref().is_none_or(Ip::is_link_local) || route.on_link == Some(true)
}

/// What is before and after the verb, for `ip` (ip-route(8)).
fn ip(interface: &Interface, route: &Route) -> (String, String) {
    let mut out = Vec::new();
    match route.kind.as_deref() {
        None | Some("unicast") => {}
        Some(
            kind @ ("local" | "blackhole" | "prohibit" | "unreachable" | "throw" | "nat" | "anycast" | "multicast"),
        ) => {
            out.push(kind.to_owned());
        }
        Some(_) => cannot(NAME, &interface.name, "routes.type"),
    }
    out.push(if route.to.is_default() { "default".to_owned() } else { route.to.to_string() });
    let mut add = |key: &str, value: Option<String>| out.extend(value.map(|v| format!("{key} {v}")));
    add("via", route.via.as_ref().map(|v| v.to_string()));
    add("dev", needs_link(route).then(|| INTERFACE.to_owned()));
    add("metric", route.metric.map(|m| m.to_string()));
    add("mtu", route.mtu.map(|m| m.to_string()));
    add("table", route.table.map(|t| t.to_string()));
    add("src", route.from.as_ref().map(|f| f.to_string()));
    match route.scope.as_deref() {
        Some(scope @ ("global" | "site" | "link" | "host")) => add("scope", Some(scope.to_owned())),
        Some(_) => cannot(NAME, &interface.name, "routes.scope"),
        None => {}
    }
    for (key, value) in route.more.iter() {
        match (ROUTE_KEYS.iter().find(|(netplan, _)| *netplan == key), value) {
            (Some((_, own)), Value::Int(n)) => add(own, Some(n.to_string())),
            _ => cannot(NAME, &interface.name, &format!("routes.{key}")),
        }
    }
    if route.on_link == Some(true) {
        out.push("onlink".to_owned());
    }
    let family = if route.to.is_v6() { " -family inet6" } else { "" };
    (format!("ip{family} route"), out.join(" "))
}

/// For `route` of net-tools and busybox (route(8)).
fn net_tools(interface: &Interface, route: &Route) -> (String, String) {
    let mut out = Vec::new();
    if route.to.is_v6() {
        out.push("-A inet6".to_owned());
    }
    let most = if route.to.is_v6() { 128 } else { 32 };
    match (route.to.is_default(), route.to.is_v6(), route.to.prefix == most) {
        (true, ..) => out.push("default".to_owned()),
        (_, true, _) => out.push(route.to.to_string()),
        (_, false, true) => out.push(format!("-host {}", route.to)),
        (_, false, false) => out.push(format!("-net {}", route.to)),
    }
    out.extend(route.via.as_ref().map(|via| format!("gw {via}")));
    out.extend(route.metric.map(|metric| format!("metric {metric}")));
    if needs_link(route) {
        out.push(format!("dev {INTERFACE}"));
    }
    for (key, given) in [
        ("mtu", route.mtu.is_some()),
        ("table", route.table.is_some()),
        ("from", route.from.is_some()),
        ("scope", route.scope.is_some()),
        ("type", route.kind.as_deref().is_some_and(|k| k != "unicast")),
        ("on-link", route.on_link == Some(true)),
    ] {
        if given {
            cannot(NAME, &interface.name, &format!("routes.{key}"));
        }
    }
    route.more.keys().for_each(|key| cannot(NAME, &interface.name, &format!("routes.{key}")));
    ("route".to_owned(), out.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::address::Net;

    fn lines(change: impl Fn(&mut Route)) -> [String; 2] {
        let mut route = Route::new(Net::parse("10.9.0.0/16", None).unwrap(), Ip::parse("10.0.0.1"));
        change(&mut route);
        let (interface, (a, b)) = (Interface::default(), (ip, net_tools));
        [a(&interface, &route), b(&interface, &route)].map(|(before, after)| format!("{before} add {after}"))
    }

    #[test]
    fn routes_by_either_tool() {
        assert_eq!(lines(|_| ()), ["ip route add 10.9.0.0/16 via 10.0.0.1", "route add -net 10.9.0.0/16 gw 10.0.0.1"]);
        let all = lines(|r| {
            r.metric = Some(3);
            r.mtu = Some(1400);
            r.table = Some(7);
            r.kind = Some("local".into());
            r.on_link = Some(true);
        });
        assert_eq!(
            all[0],
            "ip route add local 10.9.0.0/16 via 10.0.0.1 dev \"$IFACE\" metric 3 mtu 1400 table 7 onlink"
        );
        assert_eq!(all[1], "route add -net 10.9.0.0/16 gw 10.0.0.1 metric 3 dev \"$IFACE\"");
        let default = lines(|r| *r = Route::new(Net::default_of(true), Ip::parse("fe80::1")));
        assert_eq!(default[0], "ip -family inet6 route add default via fe80::1 dev \"$IFACE\"");
        assert_eq!(default[1], "route add -A inet6 default gw fe80::1 dev \"$IFACE\"");
        let host = lines(|r| r.to.prefix = 32);
        assert_eq!(host[1], "route add -host 10.9.0.0/32 gw 10.0.0.1");
    }
}
