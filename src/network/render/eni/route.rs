//! Routes for ifupdown: commands that run when the interface comes up and goes down.

use super::stanza::Stanza;
use crate::network::address::Ip;
use crate::network::model::{Interface, Route};
use crate::network::render::iproute;
use crate::network::render::renderer::{Target, Unsupported};

/// ifupdown's variable for the interface. The name itself could hold characters that are special to a shell.
const INTERFACE: &str = "\"$IFACE\"";

/// Adds the commands for a route. The interface stays up if they fail.
pub fn add(stanza: &mut Stanza, interface: &Interface, route: &Route, target: &Target, unsupported: &mut Unsupported) {
    let command = if target.ip_tool { ip } else { net_tools };
    let (before, after) = command(interface, route, unsupported);
    stanza.add("post-up", format!("{before} add {after} || true"));
    stanza.add("pre-down", format!("{before} del {after} || true"));
}

/// Whether the route needs a device: it has no gateway, or one that does not determine the link.
fn needs_link(route: &Route) -> bool {
    route.via.as_ref().is_none_or(Ip::is_link_local) || route.on_link == Some(true)
}

/// The words before and after the verb, for `ip` (ip-route(8)).
fn ip(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> (String, String) {
    let mut out = Vec::new();
    match route.route_type.as_deref() {
        None | Some("unicast") => {}
        Some(
            kind @ ("local" | "blackhole" | "prohibit" | "unreachable" | "throw" | "nat" | "anycast" | "multicast"),
        ) => {
            out.push(kind.to_owned());
        }
        Some(_) => unsupported.key(interface, "routes.type"),
    }
    out.push(if route.to.is_default() { "default".to_owned() } else { route.to.to_string() });
    let mut add = |key: &str, value: Option<String>| out.extend(value.map(|v| format!("{key} {v}")));
    let family = if route.crosses_families() { "inet6 " } else { "" };
    add("via", route.via.as_ref().map(|via| format!("{family}{via}")));
    add("dev", needs_link(route).then(|| INTERFACE.to_owned()));
    add("metric", route.metric.map(|m| m.to_string()));
    out.extend(
        iproute::options(interface, route, unsupported).into_iter().map(|(key, value)| format!("{key} {value}")),
    );
    if route.on_link == Some(true) {
        out.push("onlink".to_owned());
    }
    let family = if route.to.is_v6() { " -family inet6" } else { "" };
    (format!("ip{family} route"), out.join(" "))
}

/// The same for `route` of net-tools and busybox (route(8)).
fn net_tools(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> (String, String) {
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
    for (key, set) in [
        ("mtu", route.mtu.is_some()),
        ("table", route.table.is_some()),
        ("from", route.from.is_some()),
        ("scope", route.scope.is_some()),
        ("type", !iproute::is_unicast(route)),
        ("on-link", route.on_link == Some(true)),
    ] {
        if set {
            unsupported.key(interface, &format!("routes.{key}"));
        }
    }
    route.extra.keys().for_each(|key| unsupported.key(interface, &format!("routes.{key}")));
    ("route".to_owned(), out.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Problems;
    use crate::network::address::Cidr;

    fn lines(change: impl Fn(&mut Route)) -> [String; 2] {
        let mut route = Route::new(Cidr::parse("10.9.0.0/16", None).unwrap(), Ip::parse("10.0.0.1"));
        change(&mut route);
        let (interface, report) = (Interface::default(), Problems::new());
        let mut unsupported = Unsupported::new(&report);
        let both = [ip(&interface, &route, &mut unsupported), net_tools(&interface, &route, &mut unsupported)];
        both.map(|(before, after)| format!("{before} add {after}"))
    }

    #[test]
    fn routes_by_either_tool() {
        assert_eq!(lines(|_| ()), ["ip route add 10.9.0.0/16 via 10.0.0.1", "route add -net 10.9.0.0/16 gw 10.0.0.1"]);
        let all = lines(|r| {
            r.metric = Some(3);
            r.mtu = Some(1400);
            r.table = Some(7);
            r.route_type = Some("local".into());
            r.on_link = Some(true);
        });
        assert_eq!(
            all[0],
            "ip route add local 10.9.0.0/16 via 10.0.0.1 dev \"$IFACE\" metric 3 mtu 1400 table 7 onlink"
        );
        assert_eq!(all[1], "route add -net 10.9.0.0/16 gw 10.0.0.1 metric 3 dev \"$IFACE\"");
        let default = lines(|r| *r = Route::new(Cidr::default_of(true), Ip::parse("fe80::1")));
        assert_eq!(default[0], "ip -family inet6 route add default via fe80::1 dev \"$IFACE\"");
        assert_eq!(default[1], "route add -A inet6 default gw fe80::1 dev \"$IFACE\"");
        let host = lines(|r| r.to.prefix = 32);
        assert_eq!(host[1], "route add -host 10.9.0.0/32 gw 10.0.0.1");
    }
}
