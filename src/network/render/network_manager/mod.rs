//! NetworkManager: a keyfile for each device (nm-settings-keyfile(5)).

mod device;
mod ip;
mod keyfile;
mod tunnel;
mod wifi;

use super::grammar::{self, Grammar};
use super::ini::{self, Section};
use super::renderer::{Evidence, File, HEADER, Owned, Renderer, Target, Unsupported};
use super::udev;
use crate::base::manual;
use crate::document::Value;
use crate::machine::nic::is_name;
use crate::network::mac::is_mac;
use crate::network::model::{DeviceType, Interface, Network};
use keyfile::{list, uuid};

/// What profiles may have (nm-settings(5), versions 1.42 to 1.58; the `verify` functions in libnm-core-impl). NetworkManager refuses a
/// profile for one key or value that it does not know.
const GRAMMAR: Grammar = Grammar(include_str!("grammar.txt"));

const CONNECTIONS: &str = "/etc/NetworkManager/system-connections/cloud-init-";
const CONF: &str = "/etc/NetworkManager/conf.d/30-cloud-init-ip6-addr-gen-mode.conf";
/// Where an enabled service is linked: systemd's administrator, its vendor, OpenRC.
const ENABLED: &[&str] = &[
    "/etc/systemd/system/multi-user.target.wants/NetworkManager.service",
    "/usr/lib/systemd/system/multi-user.target.wants/NetworkManager.service",
    "/etc/runlevels/default/NetworkManager",
    "/etc/runlevels/default/networkmanager",
];

pub static RENDERER: Renderer = Renderer {
    name: "network-manager",
    title: "NetworkManager",
    detected_by: &[Evidence { family: None, programs: &["nmcli"], any_path: ENABLED }],
    owned: &[
        Owned::new("/etc/NetworkManager/system-connections/cloud-init-*.nmconnection"),
        Owned::new(CONF),
        udev::LINKS,
    ],
    image_files: &[],
    reads_run: true,
    reload: &["nmcli", "connection", "reload"],
    takes_server_parts: false,
    takes_version_2: false,
    limits: manual(
        "`optional`, `keep_configuration` other than a plain yes, an unusual broadcast address, `pointopoint`, an \
             address's scope, label and lifetime, the DHCP overrides `use-domains`, `use-hostname`, `use-mtu` and `use-ntp`, \
             bond parameters that do not fit the mode or each other, IPv6 targets of a bond's ARP monitoring, and bridge \
             parameters without a key of NetworkManager's or out of its range. Wi-Fi networks with EAP are left out.",
    ),
    render,
};

/// From 1.40 on, profiles without an addr-gen-mode of their own use EUI-64, as the kernel does.
const ADDRESS_GENERATION: &str = "\
[.config]
enable=nm-version-min:1.40

[connection.30-cloud-init-ip6-addr-gen-mode]
ipv6.addr-gen-mode=0
";

/// Takes precedence over other profiles for the same device, which have 0 by default.
const PRIORITY: u8 = 120;

/// The first sections of a profile: [connection], [match], [user], and the device's own.
const NEEDED: usize = 4;

/// Renders one profile per device (for Wi-Fi: per network), which only root can read; the default for IPv6
/// addresses; .link files.
fn render(network: &Network, _: &Target, unsupported: &mut Unsupported) -> Vec<File> {
    let mut files = vec![File::private(CONF, format!("{HEADER}\n{ADDRESS_GENERATION}"))];
    // As in cloud-init, files are named by version 2's keys. A key may also be the new name of another device.
    let mut ids = std::collections::HashSet::new();
    let unique = network.interfaces.iter().all(|i| ids.insert(i.id.as_str()));
    for interface in &network.interfaces {
        if interface.device_type == DeviceType::Loopback && interface.addresses().next().is_none() {
            continue;
        }
        // NetworkManager refuses a profile for such a name. It was reported when it was read.
        let is_found_by_name = !has_mac(interface) && !interface.is_pattern();
        if is_found_by_name && (!is_name(&interface.name) || matches!(interface.name.as_str(), "all" | "default")) {
            unsupported.leave_out(interface);
            continue;
        }
        let stem = if unique { &interface.id } else { &interface.name };
        let before = files.len();
        for (n, own) in device::variants(network, interface, unsupported).into_iter().enumerate() {
            let mut sections = profile(network, interface, n, own, unsupported);
            if !grammar::filter(GRAMMAR, &mut sections, NEEDED, |key| unsupported.key(interface, key)) {
                continue;
            }
            let path = format!("{CONNECTIONS}{}.nmconnection", numbered(stem, n));
            files.push(File::private(path, ini::write(HEADER, &sections)));
        }
        if files.len() == before {
            unsupported.leave_out(interface);
        }
    }
    files.extend(udev::link_files(network));
    files
}

/// Whether a profile finds its device by the MAC address.
fn has_mac(interface: &Interface) -> bool {
    interface.is_physical() && interface.matching.mac.as_deref().is_some_and(is_mac)
}

/// The name of profile number `n`: the device's name, from the second profile on followed by a number. Device
/// names contain no spaces.
fn numbered(name: &str, n: usize) -> String {
    if n == 0 { name.to_owned() } else { format!("{name} {}", n + 1) }
}

fn profile(
    network: &Network,
    interface: &Interface,
    n: usize,
    own: Vec<Section>,
    unsupported: &mut Unsupported,
) -> Vec<Section> {
    let mut main = Section::new("connection");
    main.add("id", format!("cloud-init {}", numbered(&interface.name, n)));
    main.add("uuid", uuid(&numbered(&interface.name, n)));
    main.add("autoconnect-priority", PRIORITY);
    main.add("type", device::profile_type(&interface.device_type));
    let mut found = Section::new("match");
    if interface.is_pattern() {
        // One profile for all devices that match.
        main.add("multi-connect", 3);
        found.maybe("interface-name", interface.matching.name.as_deref().map(|n| list([n])));
    } else if !has_mac(interface) {
        main.add("interface-name", &interface.name);
    }
    if !interface.matching.drivers.is_empty() {
        found.add("driver", list(interface.matching.drivers.iter().map(String::as_str)));
    }
    if let Some(master) = network.master_of(&interface.name) {
        main.add("slave-type", device::profile_type(&master.device_type));
        main.add("master", uuid(&master.name));
    }
    let is_manual = matches!(interface.extra.get("activation-mode").and_then(Value::as_str), Some("manual" | "off"));
    if is_manual || interface.is_manual() {
        main.add("autoconnect", "false");
    } else if interface.keeps_any() && !interface.keeps_all() {
        // NetworkManager always leaves it as it is at start and stop (NetworkManager.conf(5),
        // keep-configuration).
        unsupported.key(interface, "keep_configuration");
    }
    if interface.optional == Some(true) {
        unsupported.key(interface, "optional");
    }
    let mut user = Section::new("user");
    user.add("org.freedesktop.NetworkManager.origin", "cloud-init");
    let mut sections = vec![main, found, user];
    sections.extend(own);
    for v6 in [false, true] {
        sections.push(ip::section(network, interface, v6, unsupported));
    }
    ip::report(interface, unsupported);
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::{files, target};

    fn file(text: &str, name: &str) -> String {
        let path = format!("{CONNECTIONS}{name}.nmconnection");
        let file = files(&RENDERER, text, "fedora").into_iter().find(|f| f.path == path).unwrap();
        assert_eq!(file.mode, 0o600);
        file.content.strip_prefix(HEADER).unwrap().to_owned()
    }

    #[test]
    fn a_pattern_is_one_profile_for_many_devices() {
        let all = file("version: 2\nethernets: {all: {match: {name: 'en*', driver: [a, b]}, dhcp4: true}}", "all");
        assert!(all.contains("multi-connect=3\n\n[match]\ninterface-name=en*;\ndriver=a;b;\n"), "{all}");
        assert!(!all.contains("\ninterface-name=all"));
    }

    #[test]
    fn the_service_must_be_enabled() {
        let target = target("fedora");
        assert!(!RENDERER.is_available(&|p: &str| p == "/usr/bin/nmcli", &target));
        assert!(RENDERER.is_available(&|p: &str| p == "/usr/bin/nmcli" || p == ENABLED[0], &target));
    }

    #[test]
    fn equal_key_and_name_share_no_file() {
        let text = "version: 2\nethernets: {a: {match: {macaddress: '52:54:00:00:00:01'}, set-name: x}}\nbonds: {a: {interfaces: [x]}}\n";
        assert!(file(text, "a").contains("type=bond"));
        assert!(file(text, "x").contains("mac-address=52:54:00:00:00:01"));
    }
}
