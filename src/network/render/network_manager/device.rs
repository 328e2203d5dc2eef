//! NetworkManager's sections for each device type (nm-settings(5)).

use super::keyfile::{escape, uuid};
use super::{tunnel, wifi};
use crate::document::{Map, Value};
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{DeviceType, Interface, Network};
use crate::network::parameters;
use crate::network::render::ini::Section;
use crate::network::render::renderer::Unsupported;
use std::net::Ipv4Addr;

/// The type of a device's profile.
pub fn profile_type(device: &DeviceType) -> &'static str {
    match device {
        DeviceType::Ethernet => "ethernet",
        DeviceType::Infiniband => "infiniband",
        DeviceType::Loopback => "loopback",
        DeviceType::Dummy => "dummy",
        DeviceType::Wifi(_) => "wifi",
        DeviceType::Bond { .. } => "bond",
        DeviceType::Bridge { .. } => "bridge",
        DeviceType::Vlan { .. } => "vlan",
        DeviceType::Vrf { .. } => "vrf",
        DeviceType::Tunnel(keys) => match keys.get("mode").and_then(Value::as_str) {
            Some("wireguard") => "wireguard",
            Some("vxlan") => "vxlan",
            _ => "ip-tunnel",
        },
    }
}

/// The sections of a device's own type, for each of its profiles: one, or with Wi-Fi one for each network. No profile if
/// NetworkManager has no such device.
pub fn variants(network: &Network, interface: &Interface, unsupported: &mut Unsupported) -> Vec<Vec<Section>> {
    let own = match &interface.device_type {
        DeviceType::Ethernet | DeviceType::Dummy => Vec::new(),
        DeviceType::Loopback => vec![Section::new("loopback")],
        DeviceType::Infiniband => {
            let mut section = Section::new("infiniband");
            let mode = interface.extra.get("infiniband-mode").and_then(Value::as_str);
            section.add("transport-mode", if mode == Some("connected") { "connected" } else { "datagram" });
            vec![section]
        }
        DeviceType::Wifi(keys) => {
            let networks = wifi::networks(interface, keys, unsupported);
            return networks.into_iter().map(|own| with_link(network, interface, own, unsupported)).collect();
        }
        DeviceType::Bond { params, .. } => vec![bond(interface, params, unsupported)],
        DeviceType::Bridge { params, .. } => vec![bridge(interface, params, unsupported)],
        DeviceType::Vlan { id, link } => {
            let mut section = Section::new("vlan");
            section.add("id", id);
            section.add("parent", uuid(link));
            vec![section]
        }
        DeviceType::Vrf { table, .. } => {
            let mut section = Section::new("vrf");
            section.add("table", table);
            vec![section]
        }
        DeviceType::Tunnel(keys) => match tunnel::sections(interface, keys, unsupported) {
            Some(sections) => sections,
            None => {
                unsupported.key(interface, "mode");
                return Vec::new();
            }
        },
    };
    vec![with_link(network, interface, own, unsupported)]
}

/// Adds what every link has: MTU, MAC addresses and Wake-on-LAN; and the section of a bridge's port.
fn with_link(
    network: &Network,
    interface: &Interface,
    mut sections: Vec<Section>,
    unsupported: &mut Unsupported,
) -> Vec<Section> {
    let mtu = interface.link_mtu().or_else(|| interface.subnets.iter().find_map(|s| s.mtu));
    let own = match profile_type(&interface.device_type) {
        own @ ("infiniband" | "wifi" | "loopback" | "wireguard" | "ip-tunnel") => own,
        _ => "ethernet",
    };
    let mut link = Section::new(own);
    link.maybe("mtu", mtu);
    match &interface.matching.mac {
        Some(mac) if interface.is_physical() && is_mac(mac) => {
            link.add("mac-address", plain_mac(mac).to_ascii_uppercase());
        }
        Some(mac) if !is_mac(mac) => unsupported.key(interface, "match.macaddress"),
        _ => {}
    }
    if let Some(mac) = &interface.mac {
        let upper = plain_mac(mac).to_ascii_uppercase();
        match (&interface.device_type, own) {
            _ if !is_mac(mac) => unsupported.key(interface, "macaddress"),
            (DeviceType::Bridge { .. }, _) => {
                if let Some(bridge) = sections.first_mut() {
                    bridge.add("mac-address", upper);
                }
            }
            (_, "ethernet" | "wifi") => link.add("cloned-mac-address", upper),
            _ => unsupported.key(interface, "macaddress"),
        }
    }
    match (interface.wake_on_lan, own) {
        // Magic packets (NMSettingWiredWakeOnLan).
        (Some(true), "ethernet") => link.add("wake-on-lan", 64),
        (Some(true), _) => unsupported.key(interface, "wakeonlan"),
        _ => {}
    }
    match sections.iter_mut().find(|s| s.name() == own) {
        Some(section) => section.append(link),
        None => sections.push(link),
    }
    if let Some(DeviceType::Bridge { params, .. }) = network.master_of(&interface.name).map(|m| &m.device_type) {
        let mut port = Section::new("bridge-port");
        for (name, key) in [("pathcost", "path-cost"), ("portprio", "priority")] {
            let value = params.get(name).and_then(|p| p.get(&interface.name));
            port.maybe(key, value.and_then(Value::text));
        }
        sections.push(port);
    }
    sections
}

/// NetworkManager's names are the kernel's. It refuses a profile whose options do not fit the mode or each other
/// (nm-setting-bond.c, `verify`), and the kernel has no ARP monitoring with 802.3ad (bond_options.c).
fn bond(interface: &Interface, params: &Map, unsupported: &mut Unsupported) -> Section {
    let mut section = Section::new("bond");
    let option = |name: &str| parameters::bond_option(name, params.get(name)?, ",");
    let mode = option("mode").unwrap_or_else(|| "0".into());
    let mode = parameters::bond_word("mode", &mode);
    let has_arp = !matches!(mode, "802.3ad" | "balance-tlb" | "balance-alb");
    let targets = option("arp_ip_target").unwrap_or_default();
    let targets: Vec<&str> = targets.split(',').filter(|t| t.parse::<Ipv4Addr>().is_ok()).collect();
    let is_monitored = option("arp_interval").is_some_and(|n| n != "0");
    for name in params.keys() {
        let fits = match name {
            "lacp_rate" => mode == "802.3ad",
            "primary" => matches!(mode, "active-backup" | "balance-tlb" | "balance-alb"),
            "arp_interval" => !is_monitored || (has_arp && !targets.is_empty()),
            "arp_ip_target" => is_monitored && has_arp && !targets.is_empty(),
            _ => true,
        };
        let own = option(name);
        let written = match name {
            "arp_ip_target" => Some(targets.join(",")),
            // Two names of the same number in the kernel.
            "num_unsol_na" => option("num_grat_arp").or_else(|| own.clone()),
            _ => own.clone(),
        };
        let written = written.filter(|_| fits);
        unsupported.keys(interface, [(name, written.is_none() || written != own)]);
        section.maybe(name, written.as_deref().map(escape));
    }
    section
}

/// The model's name and NetworkManager's.
const BRIDGE: &[(&str, &str)] = &[
    ("bridgeprio", "priority"),
    ("ageing", "ageing-time"),
    ("fd", "forward-delay"),
    ("hello", "hello-time"),
    ("maxage", "max-age"),
];

fn bridge(interface: &Interface, params: &Map, unsupported: &mut Unsupported) -> Section {
    let mut section = Section::new("bridge");
    section.maybe("stp", params.get("stp").map(Value::is_true));
    for (name, value) in params.iter() {
        if let Some((_, key)) = BRIDGE.iter().find(|b| b.0 == name) {
            // With STP, a bridge may not forward at once.
            let is_too_soon = |n: i64| n < 2 && !(n == 0 && params.get("stp").is_some_and(|s| !s.is_true()));
            match parameters::seconds(value).filter(|n| name != "fd" || !is_too_soon(*n)) {
                Some(n) => section.add(*key, n),
                None => unsupported.key(interface, name),
            }
            continue;
        }
        match name {
            "mcsnoop" => section.add("multicast-snooping", value.is_true()),
            "vlan_aware" => section.add("vlan-filtering", value.is_true()),
            // `stp` is written above; the others are in the ports' own profiles.
            "stp" | "pathcost" | "portprio" => {}
            other => unsupported.key(interface, other),
        }
    }
    section
}

#[cfg(test)]
mod tests {
    use crate::network::render::network_manager::RENDERER;
    use crate::network::render::renderer::File;

    fn files(text: &str) -> Vec<(String, String)> {
        let own = |f: File| {
            let name = f.path.strip_suffix(".nmconnection")?.rsplit_once("cloud-init-")?.1.to_owned();
            Some((name, f.content.split_once("origin=cloud-init\n")?.1.to_owned()))
        };
        crate::network::testing::files(&RENDERER, text, "fedora").into_iter().filter_map(own).collect()
    }

    fn of(files: &[(String, String)], name: &str) -> String {
        files.iter().find(|f| f.0 == name).unwrap().1.clone()
    }

    #[test]
    fn devices_are_created_with_all_their_parameters() {
        let all = files(
            "version: 2\nethernets: {a: {wakeonlan: true, macaddress: '52:54:00:00:00:09', mtu: 1400}}\n\
             bonds:\n  b: {interfaces: [a], parameters: {mode: 4, mii-monitor-interval: 1s, arp-ip-targets: [1.1.1.1, 2.2.2.2], primary: a, all-slaves-active: true}}\n\
             bridges: {br: {interfaces: [b], parameters: {forward-delay: 1, max-age: 10, path-cost: {b: 75}}}}\nvrfs: {v: {table: 9, interfaces: [br]}}\n\
             vlans: {l: {id: 5, link: br, macaddress: '52:54:00:00:00:0a'}}\n\
             tunnels:\n  wg: {mode: wireguard, key: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=', port: 5, peers: [{keys: {public: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=', shared: '4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8='}, allowed-ips: [0.0.0.0/0, '::/0'], keepalive: 3}, {keys: {public: 'x]'}}]}\n\
             \x20 vx: {mode: vxlan, id: 7, link: a, remote: 239.1.1.9}\n  g: {mode: gre, local: 1.1.1.1, remote: 2.2.2.2, key: 8}\n  x: {mode: odd}\n",
        );
        assert_eq!(of(&all, "a"), "\n[ethernet]\nmtu=1400\ncloned-mac-address=52:54:00:00:00:09\nwake-on-lan=64\n");
        assert!(
            of(&all, "b")
                .starts_with("\n[bond]\nmode=4\nmiimon=1000\nall_slaves_active=1\n\n[bridge-port]\npath-cost=75\n"),
            "{}",
            of(&all, "b")
        );
        // NetworkManager takes no delay below 2, and would drop the profile.
        assert_eq!(of(&all, "br"), "\n[bridge]\nmax-age=10\n");
        assert_eq!(of(&all, "v"), "\n[vrf]\ntable=9\n");
        assert!(of(&all, "l").starts_with("\n[vlan]\nid=5\nparent="));
        assert!(of(&all, "l").ends_with("\n[ethernet]\ncloned-mac-address=52:54:00:00:00:0A\n"));
        assert_eq!(
            of(&all, "wg"),
            "\n[wireguard]\nprivate-key=4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=\nlisten-port=5\n\n[wireguard-peer.4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=]\npreshared-key=4GgaQCy68nzNsUE5aJ9fuLzHhB65tAlwbmA72MWnOm8=\npreshared-key-flags=0\nallowed-ips=0.0.0.0/0;::/0;\npersistent-keepalive=3\n"
        );
        assert_eq!(of(&all, "vx"), "\n[vxlan]\nremote=239.1.1.9\nid=7\nparent=a\n");
        assert_eq!(of(&all, "g"), "\n[ip-tunnel]\nmode=2\nlocal=1.1.1.1\nremote=2.2.2.2\ninput-key=8\noutput-key=8\n");
        assert!(!all.iter().any(|f| f.0 == "x"));
    }

    #[test]
    fn channels_are_those_of_their_band() {
        let own = |keys: &str| {
            let text = format!("version: 2\nwifis: {{w: {{access-points: {{x: {{{keys}}}}}}}}}");
            files(&text).iter().find(|f| f.1.contains("[wifi]")).unwrap().1.split("\n\n").next().unwrap().to_owned()
        };
        assert_eq!(own("band: 5GHz, channel: 36"), "\n[wifi]\nssid=x\nband=a\nchannel=36\n");
        for keys in ["band: 5GHz, channel: 4096", "band: 5GHz, channel: 1", "channel: 36"] {
            assert!(!own(keys).contains("channel"), "{keys}");
        }
    }

    #[test]
    fn both_ends_of_tunnel_have_one_family() {
        let own = |keys: &str| {
            of(&files(&format!("version: 2\ntunnels: {{t: {{{keys}}}}}")), "t").split("\n\n").next().unwrap().to_owned()
        };
        assert_eq!(own("mode: vxlan, id: 7, local: 10.0.0.2, remote: '::1'"), "\n[vxlan]\nremote=::1\nid=7\n");
        assert_eq!(own("mode: vxlan, id: 7, local: '::1'"), "\n[vxlan]\nlocal=::1\nid=7\n");
        assert_eq!(own("mode: sit, local: '::1', remote: 10.0.0.3"), "\n[ip-tunnel]\nmode=3\nremote=10.0.0.3\n");
    }

    #[test]
    fn writes_only_options_of_the_bonds_mode() {
        let bond = |params: &str| {
            let text =
                format!("version: 1\nconfig: [{{type: bond, name: b, bond_interfaces: [a], params: {{{params}}}}}]");
            of(&files(&text), "b").split("\n\n").next().unwrap().replace('\n', " ")
        };
        let all = "lacp_rate: 1, primary: a, arp_interval: 9, arp_ip_target: [1.1.1.1, '::1']";
        assert_eq!(bond(all), " [bond] arp_interval=9 arp_ip_target=1.1.1.1");
        assert_eq!(bond(&format!("mode: 1, {all}")), " [bond] mode=1 primary=a arp_interval=9 arp_ip_target=1.1.1.1");
        assert_eq!(bond(&format!("mode: 802.3ad, {all}")), " [bond] mode=802.3ad lacp_rate=1");
        assert_eq!(bond(&format!("mode: balance-alb, {all}")), " [bond] mode=balance-alb primary=a");
        assert_eq!(bond("mode: 1, arp_interval: 9, arp_ip_target: '::1'"), " [bond] mode=1");
        assert_eq!(bond("arp_interval: 0, arp_ip_target: 1.1.1.1"), " [bond] arp_interval=0");
        assert_eq!(bond("num_unsol_na: 2, num_grat_arp: 3"), " [bond] num_unsol_na=3 num_grat_arp=3");
        assert_eq!(bond("num_unsol_na: 2"), " [bond] num_unsol_na=2");
    }

    #[test]
    fn without_stp_a_bridge_may_forward_at_once() {
        let bridge =
            |params: &str| of(&files(&format!("version: 2\nbridges: {{br: {{parameters: {{{params}}}}}}}")), "br");
        assert!(bridge("stp: false, forward-delay: 0").starts_with("\n[bridge]\nstp=false\nforward-delay=0\n"));
        assert!(!bridge("forward-delay: 0").contains("forward-delay"));
        assert!(!bridge("stp: false, forward-delay: 31").contains("forward-delay"));
    }

    #[test]
    fn each_wireless_network_has_a_profile() {
        let all = files(
            "version: 2\nwifis: {w: {dhcp4: true, access-points: {'a;b': {password: ' pass\\word'}, open: {band: 5GHz, channel: 36}, e: {auth: {key-management: eap}}}}}",
        );
        assert_eq!(all.iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["w", "w 2"]);
        assert!(of(&all, "w").starts_with(
            "\n[wifi]\nssid=a\\;b\n\n[wifi-security]\nkey-mgmt=wpa-psk\npsk=\\spass\\\\word\n\n[ipv4]\nmethod=auto\n"
        ), "{}", of(&all, "w"));
        assert!(of(&all, "w 2").starts_with("\n[wifi]\nssid=open\nband=a\nchannel=36\n\n[ipv4]"));
    }
}
