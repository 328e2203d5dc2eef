//! The common parts of Red Hat's and SUSE's ifcfg files.

use crate::document::{Map, Value};
use crate::network::model::{Interface, Route, Subnet};
use crate::network::parameters;
use crate::network::render::iproute;
use crate::network::render::renderer::Unsupported;

/// Whether the interface is brought up at boot.
pub fn is_started(interface: &Interface) -> bool {
    !interface.is_manual() && interface.extra.get("activation-mode").and_then(Value::as_str).is_none()
}

/// The options of a bond as the kernel's module takes them: `mode=4 miimon=100`.
pub fn bonding(interface: &Interface, params: &Map, unsupported: &mut Unsupported) -> Option<String> {
    let mut out = Vec::new();
    for (name, value) in params.iter() {
        // A module's option cannot name a member that is active.
        let text = parameters::bond_option(name, value, ",").filter(|t| !t.contains(char::is_whitespace));
        let text = text.filter(|text| name != "active_slave" && super::GRAMMAR.takes("bond", name, text));
        match text {
            Some(text) => out.push(format!("{name}={text}")),
            None => unsupported.key(interface, name),
        }
    }
    (!out.is_empty()).then(|| out.join(" "))
}

/// The members of a bond, sorted as in cloud-init.
pub fn slaves(interfaces: &[String]) -> Vec<&String> {
    let mut slaves: Vec<&String> = interfaces.iter().collect();
    slaves.sort();
    slaves
}

/// The options of a route in iproute2's words: `mtu 1400`, `table 7`.
pub fn route_options(interface: &Interface, route: &Route, unsupported: &mut Unsupported) -> Vec<String> {
    let options = iproute::options(interface, route, unsupported);
    options.into_iter().map(|(key, value)| format!("{key} {value}")).collect()
}

/// A port's value of a bridge's parameter, of which `values` has one for each port. Reported if it is none.
pub fn port_parameter(
    interface: &Interface,
    port: &str,
    key: &str,
    values: &Value,
    unsupported: &mut Unsupported,
) -> Option<String> {
    let value = parameters::integer(values.get(port)?).map(|number| number.to_string());
    let value = value.filter(|value| super::GRAMMAR.takes("port", key, value));
    unsupported.keys(interface, [(key, value.is_none())]);
    value
}

/// Removes routes by a gateway of the other family, which the files cannot express.
pub fn keep_families(interface: &Interface, routes: &mut Vec<Route>, unsupported: &mut Unsupported) {
    routes.retain(|route| {
        unsupported.keys(interface, [("routes.via", route.crosses_families())]);
        !route.crosses_families()
    });
}

/// Reports the keys that neither family of distributions can express. `known` are overrides and other keys that the caller writes.
pub fn report(interface: &Interface, known: &[&str], unsupported: &mut Unsupported) {
    let any = |given: &dyn Fn(&Subnet) -> bool| interface.subnets.iter().any(given);
    let keys = [
        ("optional", interface.optional == Some(true)),
        // An interface that is not brought up at boot keeps its configuration anyway; and so does one of NetworkManager's.
        ("keep_configuration", interface.keeps_any() && !interface.keeps_all() && is_started(interface)),
        ("link-local", interface.has_own_link_local()),
        ("broadcast", any(&|s| s.unusual_broadcast().is_some())),
        ("pointopoint", any(&|s| s.pointopoint.is_some())),
        ("scope", any(&|s| s.scope.is_some())),
        ("label", any(&|s| s.label.is_some())),
        ("lifetime", any(&|s| s.lifetime.is_some())),
    ];
    unsupported.keys(interface, keys);
    for (name, o) in [("dhcp4-overrides", &interface.dhcp4_overrides), ("dhcp6-overrides", &interface.dhcp6_overrides)]
    {
        for (key, given) in o.switches() {
            let key = format!("{name}.{key}");
            if given && !known.contains(&key.as_str()) {
                unsupported.key(interface, &key);
            }
        }
    }
    let is_known = |key: &str| key == "activation-mode" || known.contains(&key);
    unsupported.keys(interface, interface.extra_keys().map(|key| (key, !is_known(key))));
}
