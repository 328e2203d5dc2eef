//! The parameters of bonds and bridges: one table each with the name that every format has for it.

use crate::document::{Map, Value};

/// One parameter and its names.
#[derive(Debug)]
pub struct Param {
    /// The model's name. Bonds: the kernel's (Documentation/networking/bonding.rst), so `BONDING_OPTS` and NetworkManager's
    /// `[bond]` take it as it is and ifupdown with `bond-` before it. Bridges: bridge-utils-interfaces(5) without `bridge_`.
    pub name: &'static str,
    /// netplan's names, the one to write first. Empty: netplan has none.
    pub netplan: &'static [&'static str],
    /// systemd.netdev(5), `[Bond]` or `[Bridge]`. Empty: none.
    pub networkd: &'static str,
    pub unit: Unit,
}

/// What a parameter's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Text,
    /// A number of milliseconds where it has no unit of its own.
    Milliseconds,
    /// A number of seconds where it has no unit of its own.
    Seconds,
    Bool,
    /// Several values: a list in the model.
    List,
    /// A value for each port: a mapping in the model.
    Ports,
}

const fn param(name: &'static str, netplan: &'static [&'static str], networkd: &'static str, unit: Unit) -> Param {
    Param { name, netplan, networkd, unit }
}

/// Bonds. `primary` is told to networkd in the part's own .network file.
pub const BOND: &[Param] = &[
    param("mode", &["mode"], "Mode", Unit::Text),
    param("miimon", &["mii-monitor-interval"], "MIIMonitorSec", Unit::Milliseconds),
    param("lacp_rate", &["lacp-rate"], "LACPTransmitRate", Unit::Text),
    param("min_links", &["min-links"], "MinLinks", Unit::Text),
    param("xmit_hash_policy", &["transmit-hash-policy"], "TransmitHashPolicy", Unit::Text),
    param("ad_select", &["ad-select"], "AdSelect", Unit::Text),
    param("all_slaves_active", &["all-slaves-active", "all-members-active"], "AllSlavesActive", Unit::Bool),
    param("arp_interval", &["arp-interval"], "ARPIntervalSec", Unit::Milliseconds),
    param("arp_ip_target", &["arp-ip-targets"], "ARPIPTargets", Unit::List),
    param("arp_validate", &["arp-validate"], "ARPValidate", Unit::Text),
    param("arp_all_targets", &["arp-all-targets"], "ARPAllTargets", Unit::Text),
    param("updelay", &["up-delay"], "UpDelaySec", Unit::Milliseconds),
    param("downdelay", &["down-delay"], "DownDelaySec", Unit::Milliseconds),
    param("fail_over_mac", &["fail-over-mac-policy"], "FailOverMACPolicy", Unit::Text),
    param("num_grat_arp", &["gratuitous-arp", "gratuitious-arp"], "GratuitousARP", Unit::Text),
    param("packets_per_slave", &["packets-per-slave", "packets-per-member"], "PacketsPerSlave", Unit::Text),
    param("primary_reselect", &["primary-reselect-policy"], "PrimaryReselectPolicy", Unit::Text),
    param("resend_igmp", &["resend-igmp"], "ResendIGMP", Unit::Text),
    param("lp_interval", &["learn-packet-interval"], "LearnPacketIntervalSec", Unit::Seconds),
    param("primary", &["primary"], "", Unit::Text),
    param("ad_actor_sys_prio", &[], "AdActorSystemPriority", Unit::Text),
    param("ad_actor_system", &[], "AdActorSystem", Unit::Text),
    param("ad_user_port_key", &[], "AdUserPortKey", Unit::Text),
    param("tlb_dynamic_lb", &[], "DynamicTransmitLoadBalancing", Unit::Bool),
    param("peer_notif_delay", &[], "PeerNotifyDelaySec", Unit::Milliseconds),
    param("num_unsol_na", &[], "", Unit::Text),
    param("use_carrier", &[], "", Unit::Text),
];

/// Bridges. What belongs to a port is told to networkd in the port's own .network file.
pub const BRIDGE: &[Param] = &[
    param("ageing", &["ageing-time", "aging-time"], "AgeingTimeSec", Unit::Seconds),
    param("bridgeprio", &["priority"], "Priority", Unit::Text),
    param("fd", &["forward-delay"], "ForwardDelaySec", Unit::Seconds),
    param("hello", &["hello-time"], "HelloTimeSec", Unit::Seconds),
    param("maxage", &["max-age"], "MaxAgeSec", Unit::Seconds),
    param("pathcost", &["path-cost"], "", Unit::Ports),
    param("portprio", &["port-priority"], "", Unit::Ports),
    param("stp", &["stp"], "STP", Unit::Bool),
    param("mcsnoop", &[], "MulticastSnooping", Unit::Bool),
    param("vlan_aware", &[], "VLANFiltering", Unit::Bool),
    param("waitport", &[], "", Unit::Ports),
    param("gcint", &[], "", Unit::Text),
    param("hw", &[], "", Unit::Text),
    param("maxwait", &[], "", Unit::Text),
];

/// Bond modes by their number (bonding.rst, `mode`).
const BOND_MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];

/// A bond mode's name, from its name or its number.
pub fn bond_mode(mode: &str) -> &str {
    mode.parse::<usize>().ok().and_then(|n| BOND_MODES.get(n).copied()).unwrap_or(mode)
}

/// The table's line for the model's name.
pub fn find(table: &'static [Param], name: &str) -> Option<&'static Param> {
    table.iter().find(|p| p.name == name)
}

/// Version 1's parameters (`bond-mode`, `bond_miimon`, `bridge_stp`, …) by the model's names. `prefix` is `bond` or `bridge`.
/// Names that the table lacks are kept, in the same spelling, for the renderer to report.
pub fn from_v1(table: &'static [Param], prefix: &str, params: &Map) -> Map {
    let mut out = Map::new();
    for (key, value) in params.iter() {
        let bare = key.strip_prefix(prefix).and_then(|k| k.strip_prefix(['-', '_'])).unwrap_or(key);
        put(&mut out, table, &bare.replace('-', "_"), value);
    }
    out
}

/// netplan's `parameters` by the model's names. Names that the table lacks are kept as they are.
pub fn from_netplan(table: &'static [Param], params: &Map) -> Map {
    let mut out = Map::new();
    for (key, value) in params.iter() {
        let name = table.iter().find(|p| p.netplan.contains(&key)).map_or(key, |p| p.name);
        put(&mut out, table, name, value);
    }
    out
}

fn put(out: &mut Map, table: &'static [Param], name: &str, value: &Value) {
    if value.is_null() {
        return;
    }
    let value = match find(table, name).map(|p| p.unit) {
        Some(Unit::List) => Value::List(words(value).into_iter().map(Value::from).collect()),
        Some(Unit::Ports) => Value::Map(ports(name, value)),
        _ => value.clone(),
    };
    out.insert(name, value);
}

fn words(value: &Value) -> Vec<String> {
    let split = |t: String| t.split([',', ' ']).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    match value {
        Value::List(list) => list.iter().filter_map(Value::text).collect(),
        other => other.text().map(split).unwrap_or_default(),
    }
}

/// `{eth3: 50}`, `["eth3 50"]` or `"eth3 50"` as a mapping from port to value. `waitport` has the value first.
fn ports(name: &str, value: &Value) -> Map {
    if let Value::Map(map) = value {
        return map.clone();
    }
    let lines = match value {
        Value::List(list) => list.iter().filter_map(Value::text).collect(),
        other => Vec::from_iter(other.text()),
    };
    let mut out = Map::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        let (port, value) = if name == "waitport" { (second, first) } else { (first, second) };
        out.insert(port, value.parse().map_or_else(|_| Value::from(value), Value::Int));
    }
    out
}

/// A time in milliseconds: a number in `unit`, or a number with `ms` or `s` after it.
pub fn milliseconds(value: &Value, unit: Unit) -> Option<u64> {
    let text = value.text()?;
    let text = text.trim();
    let number = |t: &str, factor: f64| {
        let n: f64 = t.trim().parse().ok()?;
        let ms = n * factor;
        (ms.is_finite() && (0.0..1e15).contains(&ms)).then_some(ms as u64)
    };
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(n), _) => number(n, 1.0),
        (None, Some(n)) => number(n, 1000.0),
        (None, None) => number(text, if unit == Unit::Seconds { 1000.0 } else { 1.0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{json, yaml};

    fn map(text: &str) -> Map {
        yaml::parse("t", text).unwrap().as_map().cloned().unwrap()
    }

    #[test]
    fn every_spelling_of_a_parameter_is_one_parameter() {
        let v1 = from_v1(
            BOND,
            "bond",
            &map(
                "{bond-mode: 4, bond_miimon: 100, bond-xmit-hash-policy: layer3+4, bond-arp_ip_target: '1.1.1.1,2.2.2.2'}",
            ),
        );
        let v2 = from_netplan(
            BOND,
            &map(
                "{mode: 4, mii-monitor-interval: 100, transmit-hash-policy: layer3+4, arp-ip-targets: [1.1.1.1, 2.2.2.2]}",
            ),
        );
        assert_eq!(v1, v2);
        assert_eq!(
            json::to_string(&Value::Map(v1)),
            r#"{"mode":4,"miimon":100,"xmit_hash_policy":"layer3+4","arp_ip_target":["1.1.1.1","2.2.2.2"]}"#
        );
        let v1 = from_v1(
            BRIDGE,
            "bridge",
            &map("{bridge_pathcost: [eth3 50, eth4 75], bridge-waitport: 1 eth3, bridge_odd: x}"),
        );
        assert_eq!(
            json::to_string(&Value::Map(v1)),
            r#"{"pathcost":{"eth3":50,"eth4":75},"waitport":{"eth3":1},"odd":"x"}"#
        );
        assert_eq!(bond_mode("4"), "802.3ad");
        assert_eq!(bond_mode("9"), "9");
    }

    #[test]
    fn times_have_units() {
        assert_eq!(milliseconds(&Value::Int(100), Unit::Milliseconds), Some(100));
        assert_eq!(milliseconds(&Value::Int(15), Unit::Seconds), Some(15_000));
        assert_eq!(milliseconds(&Value::from("2s"), Unit::Milliseconds), Some(2000));
        assert_eq!(milliseconds(&Value::from("-1"), Unit::Milliseconds), None);
        assert_eq!(milliseconds(&Value::from("nans"), Unit::Milliseconds), None);
    }
}
