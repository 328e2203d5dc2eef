//! Network interfaces as sysfs shows them.

use super::beneath;
use std::path::Path;

/// Where the kernel lists them.
const FOLDER: &str = "sys/class/net";
/// How many interfaces are looked at.
const MAX_NICS: usize = 4096;

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    /// The address, in lower case with colons; empty where there is none.
    pub mac: String,
    /// The driver, where a device stands behind the interface.
    pub driver: Option<String>,
    /// Whether a device stands behind it: not a bridge, a bond, a VLAN, a tunnel.
    pub physical: bool,
    /// Whether a link is there; None while the interface is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `dormant`, `unknown`, … (Linux's operstates).
    pub operstate: String,
    /// The kernel's hardware type (1 is Ethernet, 32 InfiniBand).
    pub kind: u32,
    /// Where the address comes from (0: the device's own; 1 random; 2 stolen from another; 3 set by the user).
    pub address_source: u32,
    /// Whether it belongs to a bridge or a bond.
    pub has_master: bool,
    /// The device ID (`device/device`), for renames by driver and device.
    pub device_id: Option<String>,
}

impl Nic {
    /// Whether it can carry traffic. Some drivers do not say how their link is.
    pub fn is_up(&self) -> bool {
        self.operstate == "up" || self.operstate == "unknown" && self.carrier == Some(true)
    }
}

/// The interfaces in `/sys/class/net` below `base`, sorted by name.
pub fn list(base: &Path) -> Vec<Nic> {
    let mut nics: Vec<Nic> = beneath::names(base, FOLDER)
        .into_iter()
        .take(MAX_NICS)
        .filter_map(|name| {
            let path = |fact: &str| format!("{FOLDER}/{name}/{fact}");
            let fact = |fact: &str| beneath::read(base, &path(fact)).map(|v| v.trim().to_owned());
            let number = |name: &str| fact(name).and_then(|v| v.parse().ok()).unwrap_or(0);
            Some(Nic {
                // A file beside the interfaces (bonding_masters) has no address.
                mac: fact("address")?.to_ascii_lowercase(),
                driver: beneath::link_name(base, &path("device/driver")),
                physical: beneath::exists(base, &path("device")),
                carrier: fact("carrier").map(|c| c == "1"),
                operstate: fact("operstate").unwrap_or_default(),
                kind: number("type"),
                address_source: number("addr_assign_type"),
                has_master: beneath::exists(base, &path("master")),
                device_id: fact("device/device"),
                name,
            })
        })
        .collect();
    crate::base::sort::by(&mut nics, |a, b| a.name.cmp(&b.name));
    nics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn interfaces_with_their_facts() {
        let dir = TempDir::new("nic");
        let folder = dir.0.join(FOLDER);
        let nic = folder.join("eth0");
        std::fs::create_dir_all(nic.join("device")).unwrap();
        std::fs::write(nic.join("address"), "52:54:00:AA:BB:CC\n").unwrap();
        std::fs::write(nic.join("operstate"), "down\n").unwrap();
        std::fs::write(nic.join("type"), "1\n").unwrap();
        std::os::unix::fs::symlink("../../../drivers/virtio_net", nic.join("device/driver")).unwrap();
        std::fs::write(folder.join("bonding_masters"), "").unwrap();
        let nics = list(&dir.0);
        assert_eq!(nics.len(), 1);
        assert_eq!((nics[0].mac.as_str(), nics[0].physical, nics[0].kind), ("52:54:00:aa:bb:cc", true, 1));
        assert_eq!(nics[0].driver.as_deref(), Some("virtio_net"));
        assert_eq!(nics[0].carrier, None);
    }
}
