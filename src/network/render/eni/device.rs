//! Devices for ifupdown: the options of ifenslave, bridge-utils and vlan, and the keys that interfaces(5) cannot express.

use super::GRAMMAR;
use super::stanza::Stanza;
use crate::document::{Map, Value};
use crate::machine::nic::is_name;
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{DeviceType, Interface, Method, Network, Subnet, is_valid_name};
use crate::network::parameters::{self, ValueType};
use crate::network::render::renderer::Unsupported;

/// Whether ifupdown can create or configure the device.
pub fn is_known(interface: &Interface, unsupported: &mut Unsupported) -> bool {
    let section = match &interface.device_type {
        // No device can have the name: ifup would fail, and the ports of a bond or bridge would wait for it.
        _ if !is_name(&interface.name) => "name",
        DeviceType::Ethernet
        | DeviceType::Infiniband
        | DeviceType::Loopback
        | DeviceType::Bond { .. }
        | DeviceType::Bridge { .. }
        | DeviceType::Vlan { .. } => {
            return true;
        }
        DeviceType::Dummy => "dummy-devices",
        DeviceType::Wifi(_) => "access-points",
        DeviceType::Vrf { .. } => "vrfs",
        DeviceType::Tunnel(_) => "tunnels",
    };
    unsupported.key(interface, section);
    unsupported.leave_out(interface);
    false
}

/// Whether a device without addresses is brought up at boot: bonds and their members, and other devices that do not exist until then.
pub fn is_started(network: &Network, interface: &Interface) -> bool {
    !interface.is_physical()
        || matches!(network.master_of(&interface.name).map(|m| &m.device_type), Some(DeviceType::Bond { .. }))
}

/// The device's options, for its first stanza.
pub fn options(network: &Network, interface: &Interface, stanza: &mut Stanza, unsupported: &mut Unsupported) {
    if let Some(mtu) = interface.mtu {
        stanza.add("mtu", mtu);
    }
    match interface.mac.as_deref() {
        Some(mac) if is_mac(mac) => stanza.add("hwaddress", plain_mac(mac)),
        Some(_) => unsupported.key(interface, "macaddress"),
        None => {}
    }
    if interface.wake_on_lan == Some(true) {
        stanza.add("ethernet-wol", "g");
    }
    match &interface.device_type {
        DeviceType::Bond { params, .. } => {
            bond_options(interface, params, stanza, unsupported);
            // The members name the bond, and are brought up on their own.
            stanza.add("bond-slaves", "none");
        }
        DeviceType::Bridge { interfaces, params } => {
            let ports = if interfaces.is_empty() { "none".to_owned() } else { interfaces.join(" ") };
            stanza.add("bridge-ports", ports);
            bridge_options(interface, params, stanza, unsupported);
        }
        DeviceType::Vlan { id, link } => {
            stanza.add("vlan-raw-device", link);
            stanza.add("vlan-id", id);
        }
        _ => {}
    }
    match network.master_of(&interface.name) {
        Some(bond @ Interface { name, device_type: DeviceType::Bond { params, .. }, .. }) => {
            stanza.add("bond-master", name);
            bond_options(bond, params, stanza, unsupported);
        }
        Some(Interface { name, device_type: DeviceType::Vrf { .. }, .. }) => unsupported.key(interface, name),
        _ => {}
    }
}

/// `bond` is the device whose parameters these are: the stanza's own, or the bond that it is a member of.
fn bond_options(bond: &Interface, params: &Map, stanza: &mut Stanza, unsupported: &mut Unsupported) {
    for (key, value) in params.iter() {
        match parameters::bond_option(key, value, " ").filter(|text| GRAMMAR.takes("bond", key, text)) {
            Some(text) => stanza.add(&format!("bond-{}", key.replace('_', "-")), text),
            None => unsupported.key(bond, key),
        }
    }
}

fn bridge_options(interface: &Interface, params: &Map, stanza: &mut Stanza, unsupported: &mut Unsupported) {
    for (key, value) in params.iter() {
        let option = format!("bridge-{}", key.replace('_', "-"));
        let value_type = parameters::find(parameters::BRIDGE, key).map(|p| p.value_type);
        match (value_type, value) {
            (Some(ValueType::Ports), Value::Map(ports)) => {
                for (port, value) in ports.iter() {
                    match line(value).filter(|text| is_valid_name(port) && GRAMMAR.takes("bridge", key, text)) {
                        Some(value) if key == "waitport" => stanza.add(&option, format!("{value} {port}")),
                        Some(value) => stanza.add(&option, format!("{port} {value}")),
                        None => unsupported.key(interface, key),
                    }
                }
            }
            (Some(ValueType::Bool), _) => stanza.add(&option, if value.is_true() { "on" } else { "off" }),
            (Some(_), _) => match line(value).filter(|text| GRAMMAR.takes("bridge", key, text)) {
                Some(text) => stanza.add(&option, text),
                None => unsupported.key(interface, key),
            },
            _ => unsupported.key(interface, key),
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

/// Whether the subnet's stanza can have a metric. Those of IPv6 without an address of their own have none (interfaces(5)).
pub fn has_metric(subnet: &Subnet) -> bool {
    !subnet.method.is_dhcp6() && !matches!(subnet.method, Method::Dhcp6Stateless | Method::Slaac)
}

/// Whether the subnet's stanza can have `privext` (interfaces(5)).
pub fn has_privacy(subnet: &Subnet) -> bool {
    subnet.is_v6() && !subnet.method.is_dhcp6()
}

/// Reports the keys that interfaces(5) cannot express. `keeps`: the device is not brought down at shutdown.
pub fn report(interface: &Interface, keeps: bool, unsupported: &mut Unsupported) {
    let (four, six) = (&interface.dhcp4_overrides, &interface.dhcp6_overrides);
    let keys = [
        ("optional", interface.optional == Some(true)),
        // An interface that is not brought up at boot keeps its configuration anyway.
        ("keep_configuration", interface.keeps_any() && !interface.is_manual() && !keeps),
        ("link-local", interface.has_own_link_local()),
        ("ipv6-mtu", interface.ipv6_mtu.is_some()),
        ("routing-policy", !interface.rules.is_empty()),
        ("label", interface.subnets.iter().any(|s| s.label.is_some())),
        ("lifetime", interface.subnets.iter().any(|s| s.lifetime.is_some())),
        ("metric", interface.subnets.iter().any(|s| s.metric.is_some() && !has_metric(s))),
        ("dhcp6-overrides.hostname", six.hostname.is_some()),
        ("dhcp6-overrides.route-metric", six.route_metric.is_some()),
    ];
    unsupported.keys(interface, keys);
    for (name, o) in [("dhcp4-overrides", four), ("dhcp6-overrides", six)] {
        for (key, given) in o.switches() {
            if given {
                unsupported.key(interface, &format!("{name}.{key}"));
            }
        }
    }
    let is_lost = |key: &&str| *key != "ipv6-privacy" || !interface.subnets.iter().any(has_privacy);
    interface.extra_keys().filter(is_lost).for_each(|key| unsupported.key(interface, key));
}
