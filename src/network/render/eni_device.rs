//! Devices for ifupdown: the options of ifenslave, bridge-utils and vlan, and what interfaces(5) has no word for.

use super::cannot;
use super::eni::{NAME, Stanza};
use crate::document::{Map, Value};
use crate::network::model::{Interface, Kind, Network, is_mac, plain_mac};
use crate::network::params::{self, Unit};

/// Whether ifupdown can make the device.
pub fn is_known(interface: &Interface) -> bool {
    let section = match &interface.kind {
        Kind::Ethernet
        | Kind::Infiniband
        | Kind::Loopback
        | Kind::Bond { .. }
        | Kind::Bridge { .. }
        | Kind::Vlan { .. } => {
            return true;
        }
        Kind::Dummy => "dummy-devices",
        Kind::Wifi(_) => "access-points",
        Kind::Vrf { .. } => "vrfs",
        Kind::Tunnel(_) => "tunnels",
    };
    cannot(NAME, &interface.name, section);
    false
}

/// Whether the device is brought up although nothing is said of addresses: bonds and what they are made of.
pub fn starts_by_itself(network: &Network, interface: &Interface) -> bool {
    matches!(interface.kind, Kind::Bond { .. })
        || matches!(network.master_of(&interface.name).map(|m| &m.kind), Some(Kind::Bond { .. }))
}

/// The device's options, for its first stanza.
pub fn options(network: &Network, interface: &Interface, stanza: &mut Stanza) {
    if let Some(mtu) = interface.mtu {
        stanza.add("mtu", mtu);
    }
    match interface.mac.as_deref() {
        Some(mac) if is_mac(mac) => stanza.add("hwaddress", plain_mac(mac)),
        Some(_) => cannot(NAME, &interface.name, "macaddress"),
        None => {}
    }
    if interface.wake_on_lan == Some(true) {
        stanza.add("ethernet-wol", "g");
    }
    match &interface.kind {
        Kind::Bond { params, .. } => {
            bond(&interface.name, params, stanza);
            // The parts name the bond, and come up by themselves.
            stanza.add("bond-slaves", "none");
        }
        Kind::Bridge { interfaces, params } => {
            let ports = if interfaces.is_empty() { "none".to_owned() } else { interfaces.join(" ") };
            stanza.add("bridge-ports", ports);
            bridge(interface, params, stanza);
        }
        Kind::Vlan { id, link } => {
            stanza.add("vlan-raw-device", link);
            stanza.add("vlan-id", id);
        }
        _ => {}
    }
    match network.master_of(&interface.name) {
        Some(Interface { name, kind: Kind::Bond { params, .. }, .. }) => {
            stanza.add("bond-master", name);
            bond(name, params, stanza);
        }
        Some(Interface { name, kind: Kind::Vrf { .. }, .. }) => cannot(NAME, &interface.name, name),
        _ => {}
    }
}

fn bond(name: &str, params: &Map, stanza: &mut Stanza) {
    for (key, value) in params.iter() {
        let text = match params::find(params::BOND, key).map(|p| p.unit) {
            Some(unit @ (Unit::Milliseconds | Unit::Seconds)) => params::milliseconds(value, unit)
                .map(|ms| if unit == Unit::Seconds { ms / 1000 } else { ms })
                .map(|n| n.to_string()),
            Some(Unit::Bool) if value.is_true() => Some("1".to_owned()),
            Some(Unit::Bool) => Some("0".to_owned()),
            Some(_) => line(value),
            None => None,
        };
        match text {
            Some(text) => stanza.add(&format!("bond-{}", key.replace('_', "-")), text),
            None => cannot(NAME, name, key),
        }
    }
}

fn bridge(interface: &Interface, params: &Map, stanza: &mut Stanza) {
    for (key, value) in params.iter() {
        let option = format!("bridge-{}", key.replace('_', "-"));
        let unit = params::find(params::BRIDGE, key).map(|p| p.unit);
        match (unit, value) {
            (Some(Unit::Ports), Value::Map(ports)) => {
                for (port, value) in ports.iter() {
                    match line(value) {
                        Some(value) if key == "waitport" => stanza.add(&option, format!("{value} {port}")),
                        Some(value) if crate::network::read::fields::valid_name(port) => {
                            stanza.add(&option, format!("{port} {value}"));
                        }
                        _ => cannot(NAME, &interface.name, key),
                    }
                }
            }
            (Some(Unit::Bool), _) => stanza.add(&option, if value.is_true() { "on" } else { "off" }),
            (Some(_), _) if line(value).is_some() => stanza.add(&option, line(value).unwrap_or_default()),
            _ => cannot(NAME, &interface.name, key),
        }
    }
}

/// A value as one line.
fn line(value: &Value) -> Option<String> {
    let text = match value {
        Value::List(list) => list.iter().filter_map(Value::text).collect::<Vec<_>>().join(" "),
        other => other.text()?,
    };
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
}

/// What interfaces(5) has no word for.
pub fn report(interface: &Interface) {
    let (four, six) = (&interface.dhcp4_overrides, &interface.dhcp6_overrides);
    for (key, given) in [
        ("optional", interface.optional == Some(true)),
        // Nobody touches an interface that is brought up by hand.
        ("keep_configuration", interface.keep_configuration.is_some() && !interface.is_manual()),
        ("link-local", interface.link_local.is_some()),
        ("ipv6-mtu", interface.ipv6_mtu.is_some()),
        ("routing-policy", !interface.rules.is_empty()),
        ("label", interface.subnets.iter().any(|s| s.label.is_some())),
        ("lifetime", interface.subnets.iter().any(|s| s.lifetime.is_some())),
        ("dhcp6-overrides.hostname", six.hostname.is_some()),
        ("dhcp6-overrides.route-metric", six.route_metric.is_some()),
    ] {
        if given {
            cannot(NAME, &interface.name, key);
        }
    }
    for (name, o) in [("dhcp4-overrides", four), ("dhcp6-overrides", six)] {
        for (key, given) in o.switches() {
            if given {
                cannot(NAME, &interface.name, &format!("{name}.{key}"));
            }
        }
    }
    interface.more.keys().for_each(|key| cannot(NAME, &interface.name, key));
}
