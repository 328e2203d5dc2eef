//! Network interfaces, from sysfs.

use super::beneath;
use std::cell::OnceCell;
use std::path::Path;

/// The folder of all interfaces.
const FOLDER: &str = "sys/class/net";
/// The longest name of an interface, in bytes (the kernel's IFNAMSIZ without the NUL).
pub const MAX_DEVICE_NAME: usize = 15;

/// Whether a network device can have the name: the kernel's rules (dev_valid_name; `all` and `default` are names of its
/// settings, sysctl_dev_name_is_allowed), and no `%`, which it would replace by a number.
pub fn is_name(name: &str) -> bool {
    let good = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '%');
    (1..=MAX_DEVICE_NAME).contains(&name.len())
        && name.chars().all(good)
        && !matches!(name, "." | ".." | "all" | "default")
}
/// [`Nic::kind`] of Ethernet (linux/if_arp.h).
pub const ARPHRD_ETHER: u32 = 1;
/// [`Nic::address_source`] of a device that has taken over another device's address (NET_ADDR_STOLEN).
pub const ADDRESS_STOLEN: u32 = 2;
/// The driver of Hyper-V's devices. Such a device may use a virtual function, which has the same MAC address and another
/// driver.
pub const HYPERV: &str = "hv_netvsc";
/// The most interfaces that are read.
const MAX_NICS: usize = 4096;

/// The machine's network interfaces, found when something first needs one: their drivers may have to be loaded for that.
pub struct Nics<'a> {
    find: &'a dyn Fn() -> Vec<Nic>,
    found: OnceCell<Vec<Nic>>,
}

impl<'a> Nics<'a> {
    /// The interfaces that `find` returns, which is called once at most.
    pub fn new(find: &'a dyn Fn() -> Vec<Nic>) -> Self {
        Nics { find, found: OnceCell::new() }
    }

    /// All of them.
    pub fn all(&self) -> &[Nic] {
        self.found.get_or_init(self.find)
    }
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    /// The hardware address, in lower case with colons; empty if there is none.
    pub mac: String,
    /// The driver of the interface's device, if it has one.
    pub driver: Option<String>,
    /// Whether it has a device: it is not a bridge, bond, VLAN or tunnel.
    pub physical: bool,
    /// Whether there is carrier; None while the interface is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `dormant`, `unknown`, … (Linux's operstates).
    pub operstate: String,
    /// The kernel's hardware type (1 is Ethernet, 32 InfiniBand).
    pub kind: u32,
    /// The origin of the address (0: permanent, 1: random, 2: stolen from another device, 3: set by the
    /// user).
    pub address_source: u32,
    /// Whether it is part of a bridge or a bond.
    pub has_master: bool,
    /// The device ID (`device/device`), for renaming by driver and device.
    pub device_id: Option<String>,
}

impl Nic {
    /// Whether it can carry traffic. Some drivers do not report the state of their link.
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
