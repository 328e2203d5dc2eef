//! MAC addresses, and this machine's devices with them.

use crate::machine::nic::{ADDRESS_STOLEN, ARPHRD_ETHER};
use crate::machine::{Nic, Nics};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The names of this machine's devices by MAC address.
#[derive(Default)]
pub struct Macs<'a> {
    devices: OnceCell<Devices>,
    /// The source of `devices`, read on first use.
    nics: Option<&'a Nics<'a>>,
    /// Whether these are all devices, so that no other will appear later.
    complete: bool,
}

#[derive(Default)]
struct Devices {
    names: BTreeMap<String, String>,
    /// The complete hardware addresses of InfiniBand devices, by name.
    infiniband: BTreeMap<String, String>,
}

/// The hardware type of InfiniBand (linux/if_arp.h).
const ARPHRD_INFINIBAND: u32 = 32;

impl Devices {
    fn of(nics: &mut dyn Iterator<Item = &Nic>) -> Devices {
        let mut devices = Devices::default();
        for nic in nics.filter(|n| n.address_source != ADDRESS_STOLEN && !n.has_master) {
            let bytes: Vec<&str> = nic.mac.split(':').collect();
            match (nic.kind, bytes.as_slice()) {
                (ARPHRD_ETHER, [_, _, _, _, _, _]) if nic.mac != "00:00:00:00:00:00" => {
                    devices.names.insert(plain_mac(&nic.mac), nic.name.clone());
                }
                (ARPHRD_INFINIBAND, [.., a, b, c, _, _, d, e, f]) => {
                    devices.names.insert(plain_mac(&nic.mac), nic.name.clone());
                    devices.names.insert([*a, *b, *c, *d, *e, *f].join(":").to_ascii_lowercase(), nic.name.clone());
                    devices.infiniband.insert(nic.name.clone(), nic.mac.clone());
                }
                _ => {}
            }
        }
        devices
    }
}

impl<'a> Macs<'a> {
    /// From the machine's interfaces, without those that use another device's address. An InfiniBand device is also found by
    /// the six-byte address that is derived from its port's GUID.
    pub fn of(nics: &[Nic]) -> Self {
        Macs { devices: Devices::of(&mut nics.iter()).into(), ..Macs::default() }
    }

    /// The same of those interfaces that are not virtual. They are looked for when a device is first asked for.
    pub fn of_physical(nics: &'a Nics) -> Self {
        Macs { nics: Some(nics), ..Macs::default() }
    }

    fn devices(&self) -> &Devices {
        self.devices.get_or_init(|| {
            let nics = self.nics.map(Nics::all).unwrap_or_default();
            Devices::of(&mut nics.iter().filter(|nic| nic.physical))
        })
    }

    /// Declares that no other device will appear later: a device that a document needs and that is missing is
    /// then an error.
    pub fn complete(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Whether no other device will appear later.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The device with this MAC address, in any spelling.
    pub fn name(&self, mac: &str) -> Option<&str> {
        self.devices().names.get(&plain_mac(mac)).map(String::as_str)
    }

    /// The MAC address of the device with this name.
    pub fn mac(&self, name: &str) -> Option<&str> {
        self.devices().names.iter().find(|(_, n)| *n == name).map(|(mac, _)| mac.as_str())
    }

    /// The complete hardware address of an InfiniBand device.
    pub fn infiniband(&self, name: &str) -> Option<&str> {
        self.devices().infiniband.get(name).map(String::as_str)
    }
}

impl<M: AsRef<str>, N: Into<String>> FromIterator<(M, N)> for Macs<'_> {
    /// From pairs of MAC address and name.
    fn from_iter<I: IntoIterator<Item = (M, N)>>(pairs: I) -> Self {
        let names = pairs.into_iter().map(|(mac, name)| (plain_mac(mac.as_ref()), name.into())).collect();
        Macs { devices: Devices { names, ..Devices::default() }.into(), ..Macs::default() }
    }
}

/// Whether the text is a hardware address of Ethernet (6 bytes) or InfiniBand (20 bytes), with colons or hyphens.
pub fn is_mac(mac: &str) -> bool {
    let bytes: Vec<&str> = mac.split([':', '-']).collect();
    matches!(bytes.len(), 6 | 20) && bytes.iter().all(|b| b.len() == 2 && b.bytes().all(|c| c.is_ascii_hexdigit()))
}

/// Whether the text is a hardware address of InfiniBand.
pub fn is_infiniband_mac(mac: &str) -> bool {
    is_mac(mac) && mac.len() > 17
}

/// A MAC address in canonical form: lower case, with colons. It may have hyphens, dots between any groups of digits, or nothing
/// between them. Any other text is only in lower case.
pub fn plain_mac(mac: &str) -> String {
    let mac = mac.trim().to_ascii_lowercase();
    let digits: String = mac.chars().filter(|c| !matches!(c, ':' | '-' | '.')).collect();
    if !matches!(digits.len(), 12 | 40) || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return mac;
    }
    let bytes = digits.as_bytes().chunks(2).map(String::from_utf8_lossy);
    bytes.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_with_their_own_address_are_found() {
        let nic = |name: &str, mac: &str, address_source, has_master| Nic {
            name: name.into(),
            mac: mac.into(),
            kind: ARPHRD_ETHER,
            address_source,
            has_master,
            ..Nic::default()
        };
        let macs = Macs::of(&[
            nic("ens3", "52:54:00:00:00:01", 0, false),
            nic("ens3.5", "52:54:00:00:00:01", ADDRESS_STOLEN, false),
            nic("vf", "52:54:00:00:00:01", 0, true),
            nic("none", "00:00:00:00:00:00", 0, false),
        ]);
        assert_eq!(macs.name("52-54-00-00-00-01"), Some("ens3"));
        assert_eq!(macs.name("00:00:00:00:00:00"), None);
    }

    #[test]
    fn hardware_addresses_have_6_or_20_bytes() {
        assert!(is_mac("52:54:00:AB:cd:01") && is_mac("07-1c-c6-75-a4-be"));
        assert!(is_mac("a0:00:02:20:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1"));
        assert_eq!(["00-16-3E-aa-bb-02", "0016.3eaa.bb02", "00163EAABB02"].map(plain_mac), ["00:16:3e:aa:bb:02"; 3]);
        assert_eq!(
            ["Permanent", "52-54-00", "0016.3eaa.bbxx"].map(plain_mac),
            ["permanent", "52-54-00", "0016.3eaa.bbxx"]
        );
        assert!(!is_mac("xx:xx:xx:xx:xx:00") && !is_mac("52:54:00") && !is_mac(""));
    }
}
