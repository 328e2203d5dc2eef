//! Routes and rules in the words of iproute2 (ip-route(8), ip-rule(8)), which several stacks use.

use super::renderer::Unsupported;
use crate::document::Value;
use crate::network::model::{Interface, Route, Rule};

/// A route's keys without a field in the model: netplan's name, ip-route's.
const ROUTE_KEYS: &[(&str, &str)] =
    &[("congestion-window", "initcwnd"), ("advertised-receive-window", "initrwnd"), ("advertised-mss", "advmss")];

/// The scopes that ip-route(8) knows by name.
const SCOPES: [&str; 4] = ["global", "site", "link", "host"];

/// The options of a route beside destination, gateway, metric and type, as keys and values.
pub fn options(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    out.extend(route.mtu.map(|m| ("mtu", m.to_string())));
    out.extend(route.table.map(|t| ("table", t.to_string())));
    out.extend(route.from.as_ref().map(|f| ("src", f.to_string())));
    match route.scope.as_deref() {
        Some(scope) if SCOPES.contains(&scope) => out.push(("scope", scope.to_owned())),
        Some(_) => unsupported.key(interface, "routes.scope"),
        None => {}
    }
    for (key, value) in route.extra.iter() {
        match (ROUTE_KEYS.iter().find(|(netplan, _)| *netplan == key), value) {
            (Some((_, own)), Value::Int(n)) if u32::try_from(*n).is_ok() => out.push((own, n.to_string())),
            _ => unsupported.key(interface, &format!("routes.{key}")),
        }
    }
    out
}

/// A rule's selectors and its table: `from … to … tos … fwmark … table …`.
pub fn rule(rule: &Rule) -> String {
    let words = [
        ("from", rule.from.as_ref().map(ToString::to_string)),
        ("to", rule.to.as_ref().map(ToString::to_string)),
        ("tos", rule.tos.map(|t| format!("{t:#x}"))),
        ("fwmark", rule.mark.map(|m| format!("{m:#x}"))),
        ("table", rule.table.map(|t| t.to_string())),
    ];
    let words = words.into_iter().filter_map(|(key, value)| Some(format!("{key} {}", value?)));
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the route is of the usual type.
pub fn is_unicast(route: &Route) -> bool {
    route.route_type.as_deref().is_none_or(|t| t == "unicast")
}
