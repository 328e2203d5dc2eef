//! Device names for udev: systemd.link(5) files, which also set Wake-on-LAN, and udev rules that set names.

use super::ini::{self, Section};
use super::renderer::{File, HEADER, Owned};
use crate::network::mac::{is_mac, plain_mac};
use crate::network::model::{DeviceType, Interface, Network};
use crate::network::names::DeviceName;

/// .link files.
pub const LINKS: Owned = Owned::naming("/etc/systemd/network/10-cloud-init-*.link", names_of_link);

/// The file of udev rules that set names; SUSE's distributions use another.
pub const RULES_PATH: &str = "/etc/udev/rules.d/70-persistent-net.rules";
pub const SUSE_RULES_PATH: &str = "/etc/udev/rules.d/85-persistent-net-cloud-init.rules";
pub const RULES: Owned = Owned::naming(RULES_PATH, names_of_rules);
pub const SUSE_RULES: Owned = Owned::naming(SUSE_RULES_PATH, names_of_rules);

/// The policies of systemd's own 99-default.link, which does not apply to a device that has a .link file of ours.
const NAME_POLICY: &str = "keep kernel database onboard slot path";
const ALTERNATIVE_NAMES_POLICY: &str = "database onboard slot path";

/// Excludes devices on top of another one, which have its MAC address.
pub const NOT_ON_TOP: &str = "!vlan bond bridge";

/// A .link file for each device that is renamed or has Wake-on-LAN.
pub fn link_files(network: &Network) -> Vec<File> {
    // systemd ignores a MAC address that is not valid, and the file would match every device.
    let wanted = |i: &&Interface| {
        i.is_physical() && (i.rename || i.wake_on_lan == Some(true)) && i.matching.mac.as_deref().is_none_or(is_mac)
    };
    network.interfaces.iter().filter(wanted).map(link_file).collect()
}

fn link_file(interface: &Interface) -> File {
    let mut matching = Section::new("Match");
    if let Some(mac) = &interface.matching.mac {
        matching.add("MACAddress", mac);
        matching.add("Type", NOT_ON_TOP);
    }
    if !interface.matching.drivers.is_empty() {
        matching.add("Driver", interface.matching.drivers.join(" "));
    }
    match &interface.matching.name {
        Some(pattern) => matching.add("OriginalName", pattern),
        None if matching.is_empty() => matching.add("OriginalName", &interface.name),
        None => {}
    }
    let mut link = Section::new("Link");
    if interface.rename {
        link.add("Name", &interface.name);
    } else {
        link.add("NamePolicy", NAME_POLICY);
        link.add("AlternativeNamesPolicy", ALTERNATIVE_NAMES_POLICY);
    }
    if interface.wake_on_lan == Some(true) {
        link.add("WakeOnLan", "magic");
    }
    let path = LINKS.pattern.replace('*', &interface.name);
    File::public(path, ini::write(HEADER, &[matching, link]))
}

/// The device name in a .link file that [`link_files`] wrote.
fn names_of_link(text: &str) -> Vec<DeviceName> {
    let mut named = DeviceName::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "MACAddress" => named.matching.mac = Some(value.to_owned()),
            "Driver" => named.matching.drivers = value.split_whitespace().map(str::to_owned).collect(),
            "OriginalName" => named.matching.name = Some(value.to_owned()),
            "Name" => named.name = value.to_owned(),
            _ => {}
        }
    }
    Vec::from_iter(named.complete())
}

/// udev's rules of names by MAC address, for stacks whose udev reads no .link files, or whose tools expect rules. `is_named`
/// selects the devices.
pub fn rules_file(network: &Network, path: &str, is_named: impl Fn(&Interface) -> bool) -> Option<File> {
    let wanted = |i: &&Interface| {
        i.device_type == DeviceType::Ethernet && i.matching.mac.as_deref().is_some_and(is_mac) && is_named(i)
    };
    let rule = |i: &Interface| {
        let mac = i.matching.mac.as_deref().map(plain_mac).unwrap_or_default();
        // udev compares the driver with one pattern, in which `|` separates alternatives.
        let drivers = if i.matching.drivers.is_empty() { "?*".to_owned() } else { i.matching.drivers.join("|") };
        let drivers = drivers.replace('"', "");
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add\", DRIVERS==\"{drivers}\", ATTR{{address}}==\"{mac}\", NAME=\"{}\"\n",
            i.name
        )
    };
    let rules: String = network.interfaces.iter().filter(wanted).map(rule).collect();
    (!rules.is_empty()).then(|| File::public(path, format!("{HEADER}{rules}")))
}

/// The device names in rules that [`rules_file`] wrote.
fn names_of_rules(text: &str) -> Vec<DeviceName> {
    let rule = |line: &str| {
        let value = |key: &str| {
            let rest = line.split_once(&format!("{key}\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let mut named = DeviceName { name: value(" NAME=")?, ..DeviceName::default() };
        named.matching.mac = Some(value("ATTR{address}==")?);
        let drivers = value("DRIVERS==").filter(|d| d != "?*").unwrap_or_default();
        named.matching.drivers = drivers.split('|').filter(|d| !d.is_empty()).map(str::to_owned).collect();
        named.complete()
    };
    text.lines().filter(|line| line.starts_with("SUBSYSTEM==\"net\"")).filter_map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::network;

    #[test]
    fn names_by_mac_skip_devices_on_top() {
        let files = link_files(&network(
            "version: 2\nethernets:\n  a: {match: {macaddress: 'AA:00:00:00:00:01'}, set-name: lan0, wakeonlan: true}\n\
             \x20 b: {wakeonlan: true}\n  c: {dhcp4: true}\n  d: {wakeonlan: false}\n",
        ));
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].path, "/etc/systemd/network/10-cloud-init-lan0.link");
        assert_eq!(
            files[0].content.strip_prefix(HEADER),
            Some(
                "\n[Match]\nMACAddress=aa:00:00:00:00:01\nType=!vlan bond bridge\n\n[Link]\nName=lan0\nWakeOnLan=magic\n"
            )
        );
        assert!(
            files[1].content.contains("[Match]\nOriginalName=b\n\n[Link]\nNamePolicy=keep"),
            "{}",
            files[1].content
        );
    }

    #[test]
    fn files_without_name_or_criterion_are_ignored() {
        assert_eq!(names_of_link("[Match]\nOriginalName=b\n\n[Link]\nNamePolicy=keep kernel\n"), []);
        assert_eq!(names_of_link("[Link]\nName=lan0\n"), []);
        assert_eq!(names_of_rules("# SUBSYSTEM==\"net\"\nSUBSYSTEM==\"net\", NAME=\"x\"\n"), []);
        let named = &names_of_link("[Match]\nOriginalName=eth0\n[Link]\nName=lan0\n")[0];
        assert_eq!((named.matching.name.as_deref(), named.name.as_str()), (Some("eth0"), "lan0"));
    }
}
