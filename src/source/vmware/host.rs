//! This machine in its metadata: its host names, in the running system its addresses, and the drivers that identify its network
//! devices.
//!
//! Follows cloud-init's documentation, "VMware", "Instance data and lazy networks".

use crate::base::deadline::Deadline;
use crate::base::problem::Problems;
use crate::detect::Guestinfo;
use crate::document::{Map, Value};
use crate::instance::instance_data::image_name;
use crate::instance::{Instance, host_name};
use crate::link::own_address::{self, OfLink};
use crate::root::Root;
use crate::source::documents::hotplug_of;
use crate::source::table::{MetadataOf, RunningMetadata};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The addresses.
pub const RUNNING: RunningMetadata = RunningMetadata { words, waits, add };

/// How long addresses are waited for that `wait-on-network` asks for, once the network is up.
const WAIT: Duration = Duration::from_secs(60);
/// The families of `wait-on-network`.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];
/// VMware's drivers of network devices; others, such as those of containers, are not asked for.
const DRIVERS: &str = "e1000|e1000e|vlance|vmxnet2|vmxnet3|vrdma";

/// Rules for the devices of the drivers that the metadata names in `network-drivers`, else of VMware's.
pub fn hotplug_rules(instance: &Instance) -> String {
    let is_driver =
        |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let named = instance.metadata.get("network-drivers").map(Value::texts).unwrap_or_default();
    let named: Vec<String> = named.iter().map(|name| name.trim().to_owned()).filter(is_driver).collect();
    let named = named.join("|");
    hotplug_of("ENV{ID_NET_DRIVER}", if named.is_empty() { DRIVERS } else { &named })
}

/// Adds the host names that the metadata lacks: the short name that the machine gets.
pub fn add_names(root: &Root, metadata: &mut Map) {
    let own =
        metadata.get("local-hostname").and_then(Value::text).map(|name| host_name(&name)).filter(|n| !n.is_empty());
    let name = own.map_or_else(|| image_name(root), |name| name.split('.').next().unwrap_or_default().to_owned());
    for key in ["hostname", "local-hostname", "local_hostname"] {
        add_to(metadata, key, name.as_str());
    }
}

/// Adds what is not there: the metadata takes precedence.
fn add_to(map: &mut Map, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none() {
        map.insert(key, value);
    }
}

fn words(instance: &Instance) -> &'static [&'static str] {
    const WORDS: [&str; 7] = ["local_ipv", "local-ipv", "by_ipv", "by-ipv", "by_mac", "by-mac", "network.interfaces"];
    if instance.metadata.at(&["network", "interfaces"]).is_some() { &[] } else { &WORDS }
}

/// Whether metadata asks for addresses, or the hypervisor can show them.
fn waits(root: &Root, instance: &Instance) -> bool {
    FAMILIES.iter().any(|family| is_awaited(instance, family)) || !Guestinfo::commands(root).is_empty()
}

fn is_awaited(instance: &Instance, family: &str) -> bool {
    instance.metadata.at(&["wait-on-network", family]).is_some_and(Value::is_true)
}

fn add(of: MetadataOf, instance: &mut Instance, report: &Problems) {
    let live = of == MetadataOf::ThisSystem;
    let limit = Deadline::after(WAIT);
    let read = || if live { report.keep(own_address::of_links()).unwrap_or_default() } else { Vec::new() };
    let mut links = read();
    while live && !missing(instance, &links).is_empty() && !limit.passed() {
        std::thread::sleep(Duration::from_secs(1));
        links = read();
    }
    for family in missing(instance, &links).iter().filter(|_| live) {
        report.warn(format_args!(
            "VMware: metadata: wait-on-network: no address of {family} has come in {} s",
            WAIT.as_secs()
        ));
    }
    let own = if live { [own_address::ipv4(), own_address::ipv6()] } else { [None, None] };
    if let Value::Map(metadata) = &mut instance.metadata {
        add_addresses(metadata, &links, own);
    }
}

/// The families that are waited for and have no address yet.
fn missing(instance: &Instance, links: &[OfLink]) -> Vec<&'static str> {
    let is_there = |family: &str| {
        links.iter().flat_map(|link| &link.addresses).any(|(ip, _)| ip.is_ipv4() == (family == "ipv4") && is_used(ip))
    };
    FAMILIES.into_iter().filter(|family| is_awaited(instance, family) && !is_there(family)).collect()
}

/// Whether an address is one that others use.
fn is_used(ip: &IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_link_local && !ip.is_loopback() && !ip.is_unspecified()
}

/// Adds the addresses of the links, and those of the default routes.
fn add_addresses(metadata: &mut Map, links: &[OfLink], own: [Option<String>; 2]) {
    for (key, ip) in ["local-ipv4", "local-ipv6"].into_iter().zip(own) {
        if let Some(ip) = ip {
            add_to(metadata, key, ip);
        }
    }
    let [mut by_mac, mut by_ipv4, mut by_ipv6]: [Map; 3] = Default::default();
    for link in links {
        let mut of_mac = Map::new();
        for (by_ip, family) in [(&mut by_ipv4, FAMILIES[0]), (&mut by_ipv6, FAMILIES[1])] {
            let mut all = Vec::new();
            for (ip, prefix) in
                link.addresses.iter().filter(|(ip, _)| ip.is_ipv4() == (family == FAMILIES[0]) && is_used(ip))
            {
                let mut described = described(*ip, *prefix);
                let mut with_mac = described.clone();
                with_mac.insert("mac", link.mac.as_str());
                by_ip.insert(ip.to_string(), with_mac);
                described.insert("addr", ip.to_string());
                all.push(Value::Map(described));
            }
            if !all.is_empty() {
                of_mac.insert(family, all);
            }
        }
        if !of_mac.is_empty() {
            by_mac.insert(link.mac.as_str(), of_mac);
        }
    }
    let interfaces: Map = [("by-mac", by_mac), ("by-ipv4", by_ipv4), ("by-ipv6", by_ipv6)].into_iter().collect();
    add_to(metadata, "network", Map::new());
    if let Some(Value::Map(network)) = metadata.get_mut("network") {
        add_to(network, "interfaces", interfaces);
    }
}

/// An address's network, as cloud-init describes it.
fn described(ip: IpAddr, prefix: u8) -> Map {
    let mut map = Map::new();
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or_default();
            map.insert("netmask", Ipv4Addr::from_bits(mask).to_string());
            if prefix < 31 {
                map.insert("broadcast", Ipv4Addr::from_bits(ip.to_bits() | !mask).to_string());
            }
        }
        IpAddr::V6(_) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or_default();
            map.insert("netmask", format!("{}/{prefix}", Ipv6Addr::from_bits(mask)));
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::{json, yaml};
    use crate::root::Use;

    fn instance(metadata: &str) -> Instance {
        Instance { metadata: yaml::parse("t", metadata).unwrap(), ..Instance::default() }
    }

    #[test]
    fn metadatas_own_names_beat_the_machines() {
        let dir = TempDir::new("vmware-names");
        dir.write("etc/hostname", "image.example.com\n");
        let root = dir.root(Use::Tree);
        for (metadata, names) in [
            ("{}", ["image", "image", "image"]),
            ("{local-hostname: vm-1}", ["vm-1", "vm-1", "vm-1"]),
            ("{local-hostname: vm-1.example.com}", ["vm-1", "vm-1.example.com", "vm-1"]),
            ("{local-hostname: a, hostname: b, local_hostname: c}", ["b", "a", "c"]),
        ] {
            let Value::Map(mut metadata) = yaml::parse("t", metadata).unwrap() else { panic!() };
            add_names(&root, &mut metadata);
            let got =
                ["hostname", "local-hostname", "local_hostname"].map(|key| metadata.get(key).unwrap().text().unwrap());
            assert_eq!(got, names);
        }
    }

    #[test]
    fn metadata_gets_addresses_by_link_and_address() {
        let link = OfLink {
            mac: "00:50:56:00:00:01".into(),
            addresses: vec![
                ("10.0.1.4".parse().unwrap(), 20),
                ("fe80::1".parse().unwrap(), 64),
                ("2001:db8::4".parse().unwrap(), 64),
            ],
        };
        let mut found = instance("{local-ipv6: own, network: {config: {version: 2}}}");
        assert!(words(&found).contains(&"local_ipv"));
        let Value::Map(metadata) = &mut found.metadata else { panic!() };
        add_addresses(metadata, &[link], [Some("10.0.1.4".into()), Some("2001:db8::4".into())]);
        assert_eq!(words(&found), [""; 0]);
        let expected = "{local-ipv6: own, local-ipv4: 10.0.1.4, network: {config: {version: 2}, interfaces: {
            by-mac: {'00:50:56:00:00:01': {
              ipv4: [{netmask: 255.255.240.0, broadcast: 10.0.15.255, addr: 10.0.1.4}],
              ipv6: [{netmask: 'ffff:ffff:ffff:ffff::/64', addr: '2001:db8::4'}]}},
            by-ipv4: {10.0.1.4: {netmask: 255.255.240.0, broadcast: 10.0.15.255, mac: '00:50:56:00:00:01'}},
            by-ipv6: {'2001:db8::4': {netmask: 'ffff:ffff:ffff:ffff::/64', mac: '00:50:56:00:00:01'}}}}}";
        let sorted = |value: &Value| json::to_string_sorted(value);
        assert_eq!(sorted(&found.metadata), sorted(&yaml::parse("t", expected).unwrap()));
        // Without a network in the metadata, and without any address.
        let mut none = instance("{}");
        add(MetadataOf::NoSystem, &mut none, &Problems::new());
        assert_eq!(words(&none), [""; 0]);
    }

    #[test]
    fn waits_for_addresses_if_metadata_asks() {
        let dir = TempDir::new("vmware-wait");
        let root = dir.root(Use::Tree);
        let four = [OfLink { mac: "02::".into(), addresses: vec![("10.0.0.1".parse().unwrap(), 8)] }];
        let local = [OfLink { mac: "02::".into(), addresses: vec![("169.254.0.1".parse().unwrap(), 16)] }];
        for (metadata, with_four, with_local) in [
            ("{}", &[][..], &[][..]),
            ("{wait-on-network: {ipv4: true, ipv6: false}}", &[], &["ipv4"]),
            ("{wait-on-network: {ipv4: 'yes', ipv6: true}}", &["ipv6"], &["ipv4", "ipv6"]),
        ] {
            let instance = instance(metadata);
            assert_eq!(
                (missing(&instance, &four), missing(&instance, &local)),
                (with_four.to_vec(), with_local.to_vec())
            );
            assert_eq!(waits(&root, &instance), metadata != "{}");
        }
    }

    #[test]
    fn hotplug_applies_to_the_metadatas_drivers() {
        let of = |metadata: &str| hotplug_rules(&instance(metadata));
        assert!(of("{}").starts_with(
            "ENV{ID_NET_DRIVER}==\"e1000|e1000e|vlance|vmxnet2|vmxnet3|vrdma\", GOTO=\"cloudinit_hook\"\n"
        ));
        let own = of("{network-drivers: [' vmxnet3 ', mlx5_core, 'a\", RUN+=\"b']}");
        assert_eq!(own, "ENV{ID_NET_DRIVER}==\"vmxnet3|mlx5_core\", GOTO=\"cloudinit_hook\"\nGOTO=\"cloudinit_end\"\n");
    }
}
