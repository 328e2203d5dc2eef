//! The parameters of bonds and bridges: one table each, with the name that each format uses.

use crate::document::{Map, Value};

/// One parameter and its names.
#[derive(Debug)]
pub struct Parameter {
    /// The model's name. Bonds: the kernel's (Documentation/networking/bonding.rst), which `BONDING_OPTS` and NetworkManager's
    /// `[bond]` use unchanged and ifupdown after `bond-`. Bridges: bridge-utils-interfaces(5) without `bridge_`.
    pub name: &'static str,
    /// netplan's names; the first is the one to write. Empty: netplan has none.
    pub netplan: &'static [&'static str],
    /// systemd.netdev(5), `[Bond]` or `[Bridge]`. Empty: none.
    pub networkd: &'static str,
    pub value_type: ValueType,
}

/// The type of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Text,
    /// A time; a number without a unit is in milliseconds.
    Milliseconds,
    /// A time; a number without a unit is in seconds.
    Seconds,
    Bool,
    /// A list in the model.
    List,
    /// One value for each port: a mapping in the model.
    Ports,
}

const fn param(
    name: &'static str,
    netplan: &'static [&'static str],
    networkd: &'static str,
    value_type: ValueType,
) -> Parameter {
    Parameter { name, netplan, networkd, value_type }
}

/// Bonds. networkd has `primary` and `active_slave` in the .network file of the member.
pub const BOND: &[Parameter] = &[
    param("mode", &["mode"], "Mode", ValueType::Text),
    param("miimon", &["mii-monitor-interval"], "MIIMonitorSec", ValueType::Milliseconds),
    param("lacp_rate", &["lacp-rate"], "LACPTransmitRate", ValueType::Text),
    param("min_links", &["min-links"], "MinLinks", ValueType::Text),
    param("xmit_hash_policy", &["transmit-hash-policy"], "TransmitHashPolicy", ValueType::Text),
    param("ad_select", &["ad-select"], "AdSelect", ValueType::Text),
    param("all_slaves_active", &["all-slaves-active", "all-members-active"], "AllSlavesActive", ValueType::Bool),
    param("arp_interval", &["arp-interval"], "ARPIntervalSec", ValueType::Milliseconds),
    param("arp_ip_target", &["arp-ip-targets"], "ARPIPTargets", ValueType::List),
    param("arp_validate", &["arp-validate"], "ARPValidate", ValueType::Text),
    param("arp_all_targets", &["arp-all-targets"], "ARPAllTargets", ValueType::Text),
    param("updelay", &["up-delay"], "UpDelaySec", ValueType::Milliseconds),
    param("downdelay", &["down-delay"], "DownDelaySec", ValueType::Milliseconds),
    param("fail_over_mac", &["fail-over-mac-policy"], "FailOverMACPolicy", ValueType::Text),
    param("num_grat_arp", &["gratuitous-arp", "gratuitious-arp"], "GratuitousARP", ValueType::Text),
    param("packets_per_slave", &["packets-per-slave", "packets-per-member"], "PacketsPerSlave", ValueType::Text),
    param("primary_reselect", &["primary-reselect-policy"], "PrimaryReselectPolicy", ValueType::Text),
    param("resend_igmp", &["resend-igmp"], "ResendIGMP", ValueType::Text),
    param("lp_interval", &["learn-packet-interval"], "LearnPacketIntervalSec", ValueType::Seconds),
    param("primary", &["primary"], "", ValueType::Text),
    param("active_slave", &[], "", ValueType::Text),
    param("ad_actor_sys_prio", &[], "AdActorSystemPriority", ValueType::Text),
    param("ad_actor_system", &[], "AdActorSystem", ValueType::Text),
    param("ad_user_port_key", &[], "AdUserPortKey", ValueType::Text),
    param("tlb_dynamic_lb", &[], "DynamicTransmitLoadBalancing", ValueType::Bool),
    param("peer_notif_delay", &[], "PeerNotifyDelaySec", ValueType::Milliseconds),
    param("num_unsol_na", &[], "", ValueType::Text),
    param("use_carrier", &[], "", ValueType::Text),
];

/// Bridges. networkd has a port's parameters in the .network file of the port.
pub const BRIDGE: &[Parameter] = &[
    param("ageing", &["ageing-time", "aging-time"], "AgeingTimeSec", ValueType::Seconds),
    param("bridgeprio", &["priority"], "Priority", ValueType::Text),
    param("fd", &["forward-delay"], "ForwardDelaySec", ValueType::Seconds),
    param("hello", &["hello-time"], "HelloTimeSec", ValueType::Seconds),
    param("maxage", &["max-age"], "MaxAgeSec", ValueType::Seconds),
    param("pathcost", &["path-cost"], "", ValueType::Ports),
    param("portprio", &["port-priority"], "", ValueType::Ports),
    param("stp", &["stp"], "STP", ValueType::Bool),
    param("mcsnoop", &[], "MulticastSnooping", ValueType::Bool),
    param("vlan_aware", &[], "VLANFiltering", ValueType::Bool),
    param("waitport", &[], "", ValueType::Ports),
    param("gcint", &[], "", ValueType::Text),
    param("hw", &[], "", ValueType::Text),
    param("maxwait", &[], "", ValueType::Text),
];

/// Whether a text is a passphrase of WPA, or the key itself in hexadecimal digits (IEEE 802.11-2020, J.4).
pub fn is_passphrase(text: &str) -> bool {
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    ((8..=63).contains(&text.len()) && is_printable)
        || (text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The words of bonds' parameters, in the order of the kernel's numbers for them (bonding.rst; bond_options.c).
const BOND_WORDS: &[(&str, &[&str])] = &[
    ("mode", &["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]),
    ("lacp_rate", &["slow", "fast"]),
    ("xmit_hash_policy", &["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"]),
    ("ad_select", &["stable", "bandwidth", "count"]),
    ("fail_over_mac", &["none", "active", "follow"]),
    ("primary_reselect", &["always", "better", "failure"]),
    ("arp_validate", &["none", "active", "backup", "all", "filter", "filter_active", "filter_backup"]),
    ("arp_all_targets", &["any", "all"]),
];

/// The value of a bond's parameter as a word, if it is the number of one.
pub fn bond_word<'a>(name: &str, value: &'a str) -> &'a str {
    let words = BOND_WORDS.iter().find(|w| w.0 == name).map_or(&[][..], |w| w.1);
    value.parse::<usize>().ok().and_then(|n| words.get(n).copied()).unwrap_or(value)
}

/// The parameter with this name in the model.
pub fn find(table: &'static [Parameter], name: &str) -> Option<&'static Parameter> {
    table.iter().find(|p| p.name == name)
}

/// Version 1's parameters (`bond-mode`, `bond_miimon`, `bridge_stp`, …) by the model's names. `prefix` is `bond` or `bridge`.
/// Names that the table lacks are kept in the same spelling, for the renderer to report. `refuse` gets each key of a
/// value that has no port and number.
pub fn from_v1(table: &'static [Parameter], prefix: &str, params: &Map, mut refuse: impl FnMut(&str)) -> Map {
    let mut out = Map::new();
    for (key, value) in params.iter() {
        let bare = key.strip_prefix(prefix).and_then(|k| k.strip_prefix(['-', '_'])).unwrap_or(key);
        let name = bare.replace('-', "_");
        // cloud-init knows some by netplan's name too (`bond-learn-packet-interval`).
        let netplan = || table.iter().find(|p| p.netplan.iter().any(|n| n.replace('-', "_") == name));
        let known = find(table, &name).or_else(netplan).map_or(name.as_str(), |p| p.name);
        if !put(&mut out, table, known, value) {
            refuse(key);
        }
    }
    out
}

/// netplan's `parameters` by the model's names. Names that the table lacks are kept unchanged. `refuse` gets each key of a
/// value that has no port and number.
pub fn from_netplan(table: &'static [Parameter], params: &Map, mut refuse: impl FnMut(&str)) -> Map {
    let mut out = Map::new();
    for (key, value) in params.iter() {
        let name = table.iter().find(|p| p.netplan.contains(&key)).map_or(key, |p| p.name);
        if !put(&mut out, table, name, value) {
            refuse(key);
        }
    }
    out
}

/// Whether the whole value is understood.
fn put(out: &mut Map, table: &'static [Parameter], name: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    let mut is_whole = true;
    let value = match find(table, name).map(|p| p.value_type) {
        Some(ValueType::List) => Value::List(words(value).into_iter().map(Value::from).collect()),
        Some(ValueType::Ports) => Value::Map(ports(name, value, &mut is_whole)),
        _ => value.clone(),
    };
    out.insert(name, value);
    is_whole
}

/// What a parameter of a bridge's ports has.
pub const PORTS: &str = "each port with its value";

fn words(value: &Value) -> Vec<String> {
    let split = |t: String| t.split([',', ' ']).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    match value {
        Value::List(list) => list.iter().filter_map(Value::text).collect(),
        other => other.text().map(split).unwrap_or_default(),
    }
}

/// `{eth3: 50}`, `["eth3 50"]` or `"eth3 50"` as a mapping from port to value. In `waitport` the value comes first.
/// `is_whole` becomes false for one that is none of these.
fn ports(name: &str, value: &Value, is_whole: &mut bool) -> Map {
    let lines = match value {
        Value::Map(map) => return map.clone(),
        Value::List(list) => list.iter().collect(),
        other => vec![other],
    };
    let mut out = Map::new();
    for line in lines {
        let line = line.text().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else {
            *is_whole = false;
            continue;
        };
        let (port, value) = if name == "waitport" { (second, first) } else { (first, second) };
        out.insert(port, value.parse().map_or_else(|_| Value::from(value), Value::Int));
    }
    out
}

/// A time in milliseconds: a number in the unit of `value_type`, or a number followed by `ms` or `s`.
pub fn milliseconds(value: &Value, value_type: ValueType) -> Option<u64> {
    let text = value.text()?;
    let text = text.trim();
    let number = |t: &str, factor: f64| {
        let n: f64 = t.trim().parse().ok()?;
        let ms = n * factor;
        ((0.0..1e15).contains(&ms) && ms.fract() == 0.0).then_some(ms as u64)
    };
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(n), _) => number(n, 1.0),
        (None, Some(n)) => number(n, 1000.0),
        (None, None) => number(text, if value_type == ValueType::Seconds { 1000.0 } else { 1.0 }),
    }
}

/// A time in whole seconds: a number of seconds, or a number followed by `ms` or `s`.
pub fn seconds(value: &Value) -> Option<i64> {
    milliseconds(value, ValueType::Seconds).and_then(|ms| i64::try_from(ms / 1000).ok())
}

/// A whole number, also as text.
pub fn integer(value: &Value) -> Option<i64> {
    value.text()?.trim().parse().ok()
}

/// The value of a bond's parameter for the kernel's option of the same name. The items of a list are separated by
/// `separator`. None for a parameter that the table lacks, and for a value that is empty or more than one line.
pub fn bond_option(name: &str, value: &Value, separator: &str) -> Option<String> {
    let parameter = find(BOND, name)?;
    let text = match parameter.value_type {
        ValueType::Milliseconds => milliseconds(value, ValueType::Milliseconds)?.to_string(),
        ValueType::Seconds => seconds(value)?.to_string(),
        ValueType::Bool => u8::from(value.is_true()).to_string(),
        ValueType::List => value.as_list()?.iter().filter_map(Value::text).collect::<Vec<_>>().join(separator),
        ValueType::Text | ValueType::Ports => value.text()?,
    };
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
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
            |key| panic!("{key}"),
        );
        let v2 = from_netplan(
            BOND,
            &map(
                "{mode: 4, mii-monitor-interval: 100, transmit-hash-policy: layer3+4, arp-ip-targets: [1.1.1.1, 2.2.2.2]}",
            ),
            |key| panic!("{key}"),
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
            |key| panic!("{key}"),
        );
        assert_eq!(
            json::to_string(&Value::Map(v1)),
            r#"{"pathcost":{"eth3":50,"eth4":75},"waitport":{"eth3":1},"odd":"x"}"#
        );
        let option = |name: &str, text: &str| bond_option(name, &yaml::parse("t", text).unwrap(), ",");
        assert_eq!(option("miimon", "1s").as_deref(), Some("1000"));
        assert_eq!(option("lp_interval", "2000ms").as_deref(), Some("2"));
        assert_eq!(option("arp_ip_target", "[1.1.1.1, 2.2.2.2]").as_deref(), Some("1.1.1.1,2.2.2.2"));
        assert_eq!(option("all_slaves_active", "yes").as_deref(), Some("1"));
        assert_eq!([option("odd", "1"), option("primary", "''"), option("mode", r#""a\nb""#)], [None, None, None]);
        let word = bond_word;
        assert_eq!(word("mode", "4"), "802.3ad");
        assert_eq!([word("mode", "9"), word("mode", "balance-rr"), word("min_links", "1")], ["9", "balance-rr", "1"]);
        assert_eq!(
            [word("lacp_rate", "1"), word("xmit_hash_policy", "1"), word("ad_select", "2")],
            ["fast", "layer3+4", "count"]
        );
        assert_eq!(
            [word("fail_over_mac", "2"), word("primary_reselect", "0"), word("arp_validate", "3")],
            ["follow", "always", "all"]
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(milliseconds(&Value::Int(100), ValueType::Milliseconds), Some(100));
        assert_eq!(milliseconds(&Value::Int(15), ValueType::Seconds), Some(15_000));
        assert_eq!(milliseconds(&Value::from("2s"), ValueType::Milliseconds), Some(2000));
        assert_eq!(milliseconds(&Value::from("1.5"), ValueType::Seconds), Some(1500));
        assert_eq!(milliseconds(&Value::from("1.5"), ValueType::Milliseconds), None);
        assert_eq!(milliseconds(&Value::from("-1"), ValueType::Milliseconds), None);
        assert_eq!(milliseconds(&Value::from("nans"), ValueType::Milliseconds), None);
    }
}
