//! NetworkManager: a keyfile for each device (nm-settings-keyfile(5)), for root alone.

use super::ini::{self, Section};
use super::{Exists, File, HEADER, Target, cannot, has_program, link};
use super::{network_manager_device as device, network_manager_ip as ip};
use crate::document::Value;
use crate::network::model::{Interface, Kind, Network, is_mac};

/// cloud-init's name of the renderer.
pub const NAME: &str = "network-manager";
const CONNECTIONS: &str = "/etc/NetworkManager/system-connections/cloud-init-";
const CONF: &str = "/etc/NetworkManager/conf.d/30-cloud-init-ip6-addr-gen-mode.conf";
/// Files that are written.
pub const OWNED: &[&str] = &["/etc/NetworkManager/system-connections/cloud-init-*.nmconnection", CONF, link::OWNED];

/// From 1.40 on, profiles that don't say how an IPv6 interface identifier is made get the one that the kernel would make: EUI-64.
const ADDRESS_GENERATION: &str = "\
[.config]
enable=nm-version-min:1.40

[connection.30-cloud-init-ip6-addr-gen-mode]
ipv6.addr-gen-mode=0
";

/// Counts before profiles of others for the same device, which have 0 by default.
const PRIORITY: u8 = 120;

/// Where an enabled service is told: systemd's links, the vendor's, OpenRC's.
const ENABLED: [&str; 4] = [
    "/etc/systemd/system/multi-user.target.wants/NetworkManager.service",
    "/usr/lib/systemd/system/multi-user.target.wants/NetworkManager.service",
    "/etc/runlevels/default/NetworkManager",
    "/etc/runlevels/default/networkmanager",
];

/// Whether the root has NetworkManager and starts it.
pub fn available(exists: &Exists, _: &Target) -> bool {
    has_program(exists, "nmcli") && ENABLED.iter().any(|path| exists(path))
}

/// One profile for each device (for Wi-Fi: for each network), the default for IPv6 addresses, .link files for names.
pub fn render(network: &Network, _: &Target) -> Vec<File> {
    let mut files = vec![File::private(CONF, format!("{HEADER}\n{ADDRESS_GENERATION}"))];
    // As in cloud-init, files are called by version 2's keys. A key may also be the name that another device gets.
    let mut ids = std::collections::HashSet::new();
    let unique = network.interfaces.iter().all(|i| ids.insert(i.id.as_str()));
    for interface in &network.interfaces {
        if interface.kind == Kind::Loopback && interface.addresses().next().is_none() {
            continue;
        }
        let stem = if unique { &interface.id } else { &interface.name };
        for (n, own) in device::variants(network, interface).into_iter().enumerate() {
            let sections = profile(network, interface, n, own);
            let path = format!("{CONNECTIONS}{}.nmconnection", numbered(stem, n));
            files.push(File::private(path, ini::write(HEADER, &sections)));
        }
    }
    files.extend(link::files(network));
    files
}

/// The name, with a number from the second on. No name has a blank in it.
fn numbered(name: &str, n: usize) -> String {
    if n == 0 { name.to_owned() } else { format!("{name} {}", n + 1) }
}

/// The profile's UUID, which others refer to: version 5 (RFC 9562, section 5.5) of the device's name.
pub fn uuid(name: &str) -> String {
    const NAMESPACE: u128 = 0xa3924cb8_09e0_43e9_890b_77972a800108;
    let mut sha1 = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    sha1.update(&NAMESPACE.to_be_bytes());
    sha1.update(name.as_bytes());
    let head = sha1.finish().as_ref().iter().take(16).fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    // The version in four bits, the variant in two.
    let n = head & !(0xf << 76) & !(0x3 << 62) | 5 << 76 | 2 << 62;
    let hex = format!("{n:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default()).join("-")
}

fn profile(network: &Network, interface: &Interface, n: usize, own: Vec<Section>) -> Vec<Section> {
    let mut main = Section::new("connection");
    main.add("id", format!("cloud-init {}", numbered(&interface.name, n)));
    main.add("uuid", uuid(&numbered(&interface.name, n)));
    main.add("autoconnect-priority", PRIORITY);
    main.add("type", device::kind(&interface.kind));
    let has_mac = interface.is_physical() && interface.matching.mac.as_deref().is_some_and(is_mac);
    let mut found = Section::new("match");
    if interface.is_pattern() {
        // One profile for as many devices as fit.
        main.add("multi-connect", 3);
        found.maybe("interface-name", interface.matching.name.as_deref().map(|n| list([n])));
    } else if !has_mac {
        main.add("interface-name", &interface.name);
    }
    if !interface.matching.drivers.is_empty() {
        found.add("driver", list(interface.matching.drivers.iter().map(String::as_str)));
    }
    if let Some(master) = network.master_of(&interface.name) {
        main.add("slave-type", device::kind(&master.kind));
        main.add("master", uuid(&master.name));
    }
    let by_hand = matches!(interface.more.get("activation-mode").and_then(Value::as_str), Some("manual" | "off"));
    if by_hand || interface.is_manual() {
        main.add("autoconnect", "false");
    } else if interface.keep_configuration.is_some() {
        // A profile that is not brought up leaves the device as it is.
        cannot(NAME, &interface.name, "keep_configuration");
    }
    if interface.optional == Some(true) {
        cannot(NAME, &interface.name, "optional");
    }
    let mut user = Section::new("user");
    user.add("org.freedesktop.NetworkManager.origin", "cloud-init");
    let mut sections = vec![main, found, user];
    sections.extend(own);
    sections.extend([false, true].map(|v6| ip::section(network, interface, v6)));
    ip::report(network, interface);
    sections
}

/// A list as keyfiles have it: a semicolon after each value, and none twice.
pub fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut out: Vec<String> = Vec::new();
    for value in values {
        let value = escape(value).replace(';', "\\;") + ";";
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out.concat()
}

/// A text as a keyfile's value (GLib's key files).
pub fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let escaped = text.replace('\\', "\\\\");
    match escaped.strip_prefix(' ') {
        Some(rest) => format!("\\s{rest}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::machine::Distro;
    use crate::network::{Macs, read, render};

    fn file(text: &str, name: &str) -> String {
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let target = Target { distro: Distro::named("fedora"), ip_tool: true };
        let files = (render::by_name("network-manager").unwrap().render)(&network, &target);
        let path = format!("{CONNECTIONS}{name}.nmconnection");
        let file = files.into_iter().find(|f| f.path == path).unwrap();
        assert_eq!(file.mode, 0o600);
        file.content.strip_prefix(HEADER).unwrap().to_owned()
    }

    #[test]
    fn the_uuid_is_cloud_inits() {
        assert_eq!(uuid("eth0"), "1dd9a779-d327-56e1-8454-c65e2556c12c");
        assert_eq!(uuid("bond0"), "54317911-f840-516b-a10d-82cb4c1f075c");
    }

    #[test]
    fn a_pattern_is_one_profile_for_many_devices() {
        let all = file("version: 2\nethernets: {all: {match: {name: 'en*', driver: [a, b]}, dhcp4: true}}", "all");
        assert!(all.contains("multi-connect=3\n\n[match]\ninterface-name=en*;\ndriver=a;b;\n"), "{all}");
        assert!(!all.contains("\ninterface-name=all"));
    }

    #[test]
    fn only_an_enabled_service_counts() {
        let target = Target { distro: Distro::named("fedora"), ip_tool: true };
        assert!(!available(&|p: &str| p == "/usr/bin/nmcli", &target));
        assert!(available(&|p: &str| p == "/usr/bin/nmcli" || p == ENABLED[0], &target));
    }

    #[test]
    fn values_that_would_end_a_list_or_a_line_do_not() {
        assert_eq!(list(["a;b", "c\\d", "a;b"]), "a\\;b;c\\\\d;");
        assert_eq!(escape(" x\ny"), "\\sxy");
    }

    #[test]
    fn keys_that_are_names_too_do_not_share_a_file() {
        let text = "version: 2\nethernets: {a: {match: {macaddress: '52:54:00:00:00:01'}, set-name: x}}\nbonds: {a: {interfaces: [x]}}\n";
        assert!(file(text, "a").contains("type=bond"));
        assert!(file(text, "x").contains("mac-address=52:54:00:00:00:01"));
    }
}
