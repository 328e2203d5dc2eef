//! The configuration used if none is given: DHCP on one device (cloud-init's `generate_fallback_config`).

use crate::document::{Map, Value};
use crate::machine::Nic;
use crate::machine::nic::{ADDRESS_STOLEN, ARPHRD_ETHER, HYPERV};

const VIRTIO: &str = "virtio_net";

/// The state of a link.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Connected,
    Possible,
    No,
}

/// The most suitable device: connected before possibly connected, eth0 before others, then in natural order of names. None
/// if no device is suitable.
pub fn nic(nics: &[Nic]) -> Option<&Nic> {
    let found =
        nics.iter().filter(|n| is_candidate(n, nics)).map(|n| (link(n), n)).filter(|(link, _)| *link != Link::No);
    let best = found.min_by_key(|(link, n)| (*link == Link::Possible, n.name != "eth0", natural(&n.name)));
    best.map(|(_, n)| n)
}

fn is_candidate(nic: &Nic, all: &[Nic]) -> bool {
    // A virtual function of Hyper-V has the MAC address of the netvsc device that uses it.
    let is_duplicate = nic.driver.as_deref() != Some(HYPERV)
        && all.iter().any(|n| n.name != nic.name && n.mac == nic.mac && n.driver.as_deref() == Some(HYPERV));
    nic.kind == ARPHRD_ETHER
        && nic.name != "lo"
        && !nic.name.starts_with("veth")
        && !nic.has_master
        && !nic.mac.is_empty()
        && nic.mac != "00:00:00:00:00:00"
        && nic.address_source != ADDRESS_STOLEN
        && (nic.physical || !is_virtual(&nic.name))
        && !is_duplicate
}

/// Whether the name is a usual one of bonds, bridges and other virtual devices.
fn is_virtual(name: &str) -> bool {
    ["bond", "br", "docker", "virbr", "ovs", "team", "dummy", "tun", "tap"].iter().any(|p| name.starts_with(p))
}

fn link(nic: &Nic) -> Link {
    match (nic.carrier, nic.operstate.as_str()) {
        (Some(true), _) => Link::Connected,
        (_, "dormant" | "down" | "lowerlayerdown" | "unknown") => Link::Possible,
        _ => Link::No,
    }
}

/// The name as numbers and texts, so that eth2 comes before eth10.
pub fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = Vec::new();
    for c in name.chars() {
        match (c.to_digit(10), parts.last_mut()) {
            (Some(d), Some((n, text))) if text.is_empty() => *n = n.saturating_mul(10).saturating_add(u64::from(d)),
            (Some(d), _) => parts.push((u64::from(d), String::new())),
            (None, Some((_, text))) if !text.is_empty() => text.push(c),
            (None, _) => parts.push((0, c.to_string())),
        }
    }
    parts
}

/// DHCP for both families on `nic`, found by its MAC address and keeping its name: version 2. `all` are the machine's devices:
/// a virtio device that fails over has the address of its members, and is found by its name.
pub fn config(nic: &Nic, all: &[Nic]) -> Value {
    let is_member = |n: &Nic| n.has_master && n.mac == nic.mac;
    let matching = match nic.driver.as_deref() {
        Some(VIRTIO) if all.iter().any(is_member) => ("name", nic.name.as_str()),
        _ => ("macaddress", nic.mac.as_str()),
    };
    let matching = Map::from_iter([matching]);
    let device = Map::from_iter([
        ("dhcp4", Value::Bool(true)),
        ("dhcp6", true.into()),
        ("set-name", nic.name.as_str().into()),
        ("match", matching.into()),
    ]);
    let ethernets = Map::from_iter([(nic.name.as_str(), device)]);
    Map::from_iter([("version", Value::Int(2)), ("ethernets", ethernets.into())]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn nics(list: &[(&str, &str, Option<bool>, &str)]) -> Vec<Nic> {
        list.iter()
            .enumerate()
            .map(|(i, (name, driver, carrier, operstate))| Nic {
                name: name.to_string(),
                mac: format!("52:54:00:00:00:{i:02x}"),
                driver: (!driver.is_empty()).then(|| driver.to_string()),
                physical: !driver.is_empty(),
                carrier: *carrier,
                operstate: operstate.to_string(),
                kind: 1,
                ..Nic::default()
            })
            .collect()
    }

    fn chosen(list: &[(&str, &str, Option<bool>, &str)]) -> Option<String> {
        nic(&nics(list)).map(|n| n.name.clone())
    }

    #[test]
    fn connected_before_possible_eth0_first_then_natural_order() {
        let v = "virtio_net";
        assert_eq!(chosen(&[("ens10", v, Some(true), "up"), ("ens9", v, Some(true), "up")]).as_deref(), Some("ens9"));
        assert_eq!(chosen(&[("a0", v, Some(true), "up"), ("eth0", v, Some(true), "up")]).as_deref(), Some("eth0"));
        assert_eq!(chosen(&[("ens3", v, Some(true), "up"), ("eth0", v, None, "down")]).as_deref(), Some("ens3"));
        assert_eq!(chosen(&[("ens3", v, None, "down"), ("eth0", v, None, "down")]).as_deref(), Some("eth0"));
        assert_eq!(chosen(&[("ens3", v, Some(false), "notpresent")]), None);
        assert_eq!(chosen(&[("veth1", "", Some(true), "up"), ("br0", "", Some(true), "up")]), None);
    }

    #[test]
    fn members_and_duplicates_are_skipped() {
        let mut list = nics(&[("vf0", "mlx5_core", Some(true), "up"), ("zz0", HYPERV, Some(true), "up")]);
        list[0].mac = list[1].mac.clone();
        assert_eq!(nic(&list).unwrap().name, "zz0");
        let mut list =
            nics(&[("a", "e1000", Some(true), "up"), ("b", "e1000", Some(true), "up"), ("c", "e1000", None, "down")]);
        list[0].has_master = true;
        list[1].address_source = ADDRESS_STOLEN;
        assert_eq!(nic(&list).unwrap().name, "c");
        assert_eq!(
            json::to_string(&config(&list[2], &list)),
            r#"{"version":2,"ethernets":{"c":{"dhcp4":true,"dhcp6":true,"set-name":"c","match":{"macaddress":"52:54:00:00:00:02"}}}}"#
        );
        // A device of virtio and its two members share an address.
        let mut list = nics(&[("ens3", "virtio_net", Some(true), "up"), ("ens3nsby", "virtio_net", Some(true), "up")]);
        list[1].mac = list[0].mac.clone();
        list[1].has_master = true;
        assert!(json::to_string(&config(nic(&list).unwrap(), &list)).contains(r#""match":{"name":"ens3"}"#));
    }
}
