//! systemd.link files: names by MAC address and Wake-on-LAN, for every stack whose names come from udev; and udev's rules of names.

use super::ini::{self, Section};
use super::{File, HEADER};
use crate::network::model::{Interface, Kind, Network, is_mac, plain_mac};

/// Files that are written.
pub const OWNED: &str = "/etc/systemd/network/10-cloud-init-*.link";

/// udev's rules of names; SUSE's distributions have a place of their own.
pub const RULES: &str = "/etc/udev/rules.d/70-persistent-net.rules";
pub const SUSE_RULES: &str = "/etc/udev/rules.d/85-persistent-net-cloud-init.rules";

/// What systemd's own 99-default.link says of names, which a file of ours takes the place of.
const NAME_POLICY: &str = "keep kernel database onboard slot path";
const ALTERNATIVE_NAMES_POLICY: &str = "database onboard slot path";

/// Devices on top of another one take over its MAC address; they are not meant.
pub const NOT_ON_TOP: &str = "!vlan bond bridge";

/// A file for each device that gets a name or Wake-on-LAN.
pub fn files(network: &Network) -> Vec<File> {
    // A MAC address that udev would refuse would leave a file that fits every device.
    let wanted = |i: &&Interface| {
        i.is_physical() && (i.rename || i.wake_on_lan == Some(true)) && i.matching.mac.as_deref().is_none_or(is_mac)
    };
    network.interfaces.iter().filter(wanted).map(file).collect()
}

fn file(interface: &Interface) -> File {
    let mut found = Section::new("Match");
    if let Some(mac) = &interface.matching.mac {
        found.add("MACAddress", mac);
        found.add("Type", NOT_ON_TOP);
    }
    if !interface.matching.drivers.is_empty() {
        found.add("Driver", interface.matching.drivers.join(" "));
    }
    match &interface.matching.name {
        Some(pattern) => found.add("OriginalName", pattern),
        None if found.is_empty() => found.add("OriginalName", &interface.name),
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
    let path = format!("/etc/systemd/network/10-cloud-init-{}.link", interface.name);
    File::public(path, ini::write(HEADER, &[found, link]))
}

/// udev's rules of names by MAC address, for the devices of which `named` is true: where no .link file is read, or where others
/// expect the rules.
pub fn rules(network: &Network, path: &str, named: impl Fn(&Interface) -> bool) -> Option<File> {
    let wanted = |i: &&Interface| i.kind == Kind::Ethernet && i.matching.mac.as_deref().is_some_and(is_mac) && named(i);
    let rule = |i: &Interface| {
        let mac = i.matching.mac.as_deref().map(plain_mac).unwrap_or_default();
        // Rules compare the driver with one pattern, of which `|` makes several.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;
    use crate::network::{Macs, read};

    #[test]
    fn names_go_by_mac_and_never_to_devices_on_top() {
        let text = "version: 2\nethernets:\n  a: {match: {macaddress: 'AA:00:00:00:00:01'}, set-name: lan0, wakeonlan: true}\n\
                    \x20 b: {wakeonlan: true}\n  c: {dhcp4: true}\n  d: {wakeonlan: false}\n";
        let network = read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap();
        let files = files(&network);
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].path, "/etc/systemd/network/10-cloud-init-lan0.link");
        assert_eq!(
            files[0].content.strip_prefix(HEADER),
            Some(
                "\n[Match]\nMACAddress=AA:00:00:00:00:01\nType=!vlan bond bridge\n\n[Link]\nName=lan0\nWakeOnLan=magic\n"
            )
        );
        assert!(
            files[1].content.contains("[Match]\nOriginalName=b\n\n[Link]\nNamePolicy=keep"),
            "{}",
            files[1].content
        );
    }
}
