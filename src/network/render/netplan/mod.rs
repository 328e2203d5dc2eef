//! netplan: /etc/netplan/50-cloud-init.yaml. Version 2 is written unchanged, without the parts that netplan would refuse; other
//! input is written as version 2.

mod device;
mod grammar;

use super::renderer::{Evidence, File, HEADER, Owned, Renderer, Target, Unsupported};
use crate::base::manual;
use crate::document::{Map, Value, to_yaml, yaml};
use crate::network::model::{Dns, Interface, Match, Network, change_devices};
use crate::network::names::DeviceName;

const PATH: &str = "/etc/netplan/50-cloud-init.yaml";

/// The configuration of Ubuntu Core's images (cloud-init 26.2, netplan.py, KNOWN_SNAPD_CONFIG): DHCP on every device.
const SNAPD_CONFIG: &[&str] = &[
    "network:",
    "version: 2",
    "ethernets:",
    "all-en:",
    "match:",
    "name: \"en*\"",
    "dhcp4: true",
    "all-eth:",
    "match:",
    "name: \"eth*\"",
    "dhcp4: true",
];

pub static RENDERER: Renderer = Renderer {
    name: "netplan",
    title: "netplan",
    detected_by: &[Evidence { family: None, programs: &["netplan"], any_path: &[] }],
    // netplan itself makes a .link file for each `set-name`.
    owned: &[Owned::naming(PATH, names)],
    image_files: &[("/etc/netplan/00-snapd-config.yaml", SNAPD_CONFIG)],
    reads_run: true,
    reload: &["netplan", "apply"],
    takes_server_parts: false,
    takes_version_2: true,
    limits: manual(
        "Version 2 reaches netplan as it is, but for keys and values that it, or the device's renderer, refuses. Of version 1: `keep_configuration` other than a plain yes, `pointopoint`, \
             `scope`, a second metric for the leases of one interface, MAC addresses and name servers that are none, and \
             parameters of bonds and bridges that netplan has no key for. An InfiniBand device is found by its name.",
    ),
    render,
};

/// Sections in the order in which they are written: devices before those that refer to them. netplan reads a
/// file with forward references twice, and then (0.106) reports path costs as duplicates.
const SECTIONS: [&str; 8] = ["ethernets", "wifis", "dummy-devices", "bonds", "bridges", "vlans", "tunnels", "vrfs"];

/// Renders one file, which only root can read because it may hold passwords.
fn render(network: &Network, target: &Target, unsupported: &mut Unsupported) -> Vec<File> {
    let mut inner = match &network.v2 {
        Some(v2) => {
            let mut v2 = v2.clone();
            // netplan refuses an MTU of zero (cloud-init 26.2, netplan.py, `_maybe_strip_invalid_mtu`).
            change_devices(&mut v2, &mut |_, device| {
                if device.get("mtu").and_then(Value::as_int) == Some(0) {
                    device.remove("mtu");
                }
            });
            v2.insert("version", 2);
            v2
        }
        None => to_v2(network, unsupported),
    };
    if target.old_netplan {
        grammar::remove_newer(&mut inner, unsupported);
    }
    grammar::filter(&mut inner, unsupported);
    let document = Value::Map(Map::from_iter([("network", inner)]));
    vec![File::private(PATH, format!("{HEADER}{}", to_yaml(&document)))]
}

/// The model as the mapping below `network:`.
fn to_v2(network: &Network, unsupported: &mut Unsupported) -> Map {
    let mut sections: Vec<(&str, Map)> = SECTIONS.iter().map(|s| (*s, Map::new())).collect();
    // The machine's name servers go to interfaces with addresses and no name servers of their own; if there is no such interface,
    // to those with DHCP.
    let wants_dns = |i: &Interface, own: &Dns| i.addresses().next().is_some() && own.is_empty();
    let any_static = network.interfaces.iter().any(|i| wants_dns(i, &i.name_servers()));
    for interface in &network.interfaces {
        let mut dns = interface.name_servers();
        let is_dhcp = interface.dhcp4() || interface.dhcp6();
        if wants_dns(interface, &dns) || (!any_static && dns.is_empty() && is_dhcp) {
            dns = network.dns.clone();
        }
        let Some((section, keys)) = device::section(interface, unsupported) else { continue };
        let device = device::device(interface, keys, &dns, unsupported);
        if let Some((_, devices)) = sections.iter_mut().find(|(name, _)| *name == section) {
            devices.insert(interface.name.as_str(), device);
        }
    }
    let mut out = Map::from_iter([("version", 2)]);
    for (section, devices) in sections.into_iter().filter(|(_, d)| !d.is_empty()) {
        out.insert(section, devices);
    }
    out
}

/// The device names in netplan's YAML: each `set-name`. Text that is not YAML has none.
fn names(text: &str) -> Vec<DeviceName> {
    let Ok(document) = yaml::parse("netplan", text) else { return Vec::new() };
    let named = |device: &Value| {
        let texts = |key: &str| device.at(&["match", key]).map(Value::texts).unwrap_or_default();
        let one = |key: &str| texts(key).into_iter().next();
        let matching = Match { mac: one("macaddress"), name: one("name"), drivers: texts("driver") };
        DeviceName { matching, name: device.get("set-name")?.text()? }.complete()
    };
    let devices = document.at(&["network", "ethernets"]).and_then(Value::as_map);
    devices.map(|d| d.iter().filter_map(|(_, device)| named(device)).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::files;

    fn body(text: &str) -> String {
        files(&RENDERER, text, "ubuntu")[0].content.strip_prefix(HEADER).unwrap().to_owned()
    }

    #[test]
    fn writes_no_route_key_that_netplan_refuses() {
        let text = "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: dhcp}]}, \
                    {type: route, id: 4, destination: 10.0.0.0/12, gateway: 172.23.31.1, metric: 5}]";
        let files = files(&RENDERER, text, "ubuntu");
        let content = &files[0].content;
        assert!(content.contains("metric: 5") && !content.contains("id: 4"), "{content}");
    }

    #[test]
    fn omits_a_zero_mtu_from_version_2() {
        let text = body("version: 2\nethernets: {a: {mtu: 0, dhcp4: true}, b: {mtu: 1400}}\nbonds: {c: {mtu: 0}}");
        assert!(text.contains("mtu: 1400") && !text.contains("mtu: 0"), "{text}");
    }

    #[test]
    fn sorts_members_and_sets_each_leases_metric() {
        let text = body(
            "version: 1\nconfig:\n- {type: bond, name: b, bond_interfaces: [q, p], params: {}}\n\
             - {type: physical, name: e, subnets: [{type: ipv6_slaac, metric: 7}]}",
        );
        assert!(text.contains("- p\n      - q\n") && text.contains("route-metric: 7"), "{text}");
    }

    #[test]
    fn what_netplan_would_refuse_is_left_out() {
        let text = body(
            "version: 1\nconfig:\n- {type: physical, name: e, mac_address: nonsense, subnets: [{type: static, address: 10.0.0.2/8, dns_nameservers: [dns.example, '::1', 9.9.9.9]}]}\n\
             - {type: bond, name: b, mac_address: 52-54-00-00-00-0A, bond_interfaces: [e], params: {bond-mode: 4, bond-lacp-rate: 1}}\n\
             - {type: bond, name: c, mac_address: nonsense, bond_interfaces: []}\n",
        )
        .replace('\'', "");
        assert!(!text.contains("nonsense") && !text.contains("match") && !text.contains("set-name"), "{text}");
        assert!(text.contains("macaddress: 52:54:00:00:00:0a\n") && text.contains("lacp-rate: fast\n"), "{text}");
        assert!(text.contains("addresses:\n        - ::1\n        - 9.9.9.9\n"), "{text}");
    }

    #[test]
    fn text_without_names_names_no_device() {
        for text in ["x: [", "[]", "network: {ethernets: {a: {set-name: b}, c: {match: {name: c}}, d: 1}}"] {
            assert_eq!(names(text), [], "{text}");
        }
    }
}
