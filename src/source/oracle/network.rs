//! The network of an Oracle instance: the initramfs's configuration for an iSCSI root, plus the metadata's VNICs.

use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::NetworkData;
use crate::machine::{Machine, Nic, beneath};
use crate::network::read::klibc;
use std::net::IpAddr;

/// The MTU of Oracle's networks (Oracle's documentation, "Hanging Connection").
const MTU: i64 = 9000;
/// Flags of a target in the iSCSI Boot Firmware Table (iBFT specification, section 5.6).
const BLOCK_VALID: u32 = 1;
const FIRMWARE_BOOT_SELECTED: u32 = 2;
/// The feature bit of a virtio device that is part of a failover group (VIRTIO_NET_F_STANDBY).
const STANDBY: usize = 62;

/// The properties of the machine that determine its network configuration.
pub struct Here {
    nics: Vec<Nic>,
    /// The names of devices that have others with the same MAC address below them.
    failover: Vec<String>,
    /// Whether the firmware booted from an iSCSI target.
    iscsi_root: bool,
    /// The initramfs's configuration, as version 1, and the warnings about it.
    initramfs: Option<Value>,
    warnings: Problems,
    configure_secondary: bool,
}

impl Here {
    /// Examines the machine. `configure_secondary`: whether further VNICs are configured in addition to what
    /// the initramfs did.
    pub fn of(machine: &Machine, configure_secondary: bool) -> Here {
        let nics = machine.nics();
        let mac = |name: &str| nics.iter().find(|n| n.name == name).map(|n| n.mac.clone());
        let report = Problems::new();
        let initramfs = klibc::left_by_initramfs(&machine.base.join("run"), mac, &report);
        Here {
            failover: nics.iter().filter(|n| is_failover_master(machine, n)).map(|n| n.name.clone()).collect(),
            iscsi_root: has_iscsi_root(machine),
            initramfs,
            warnings: report,
            configure_secondary,
            nics,
        }
    }

    /// Whether the metadata's VNICs are needed.
    pub fn needs_vnics(&self) -> bool {
        self.initramfs.is_none() || self.configure_secondary
    }

    /// The configuration, version 1. None if nothing is known.
    pub fn config(&self, vnics: &[Value], problems: &Problems) -> Option<NetworkData> {
        problems.absorb(self.warnings.clone());
        let configured = self.initramfs.as_ref().and_then(|c| c.get("config")?.as_list());
        let mut entries = configured.map(<[Value]>::to_vec).unwrap_or_default();
        let set_primary = entries.is_empty();
        // On bare metal, further VNICs are VLANs of a physical interface.
        let bare_metal = vnics.first().is_some_and(|vnic| vnic.get("nicIndex").is_some());
        if !set_primary && bare_metal {
            problems.warn("configure_secondary_nics is ignored: the further VNICs of bare metal are not configured");
        } else {
            for (index, vnic) in vnics.iter().enumerate().skip(usize::from(!set_primary)) {
                match self.entry(vnic, index == 0) {
                    Ok(entry) => entries.push(entry),
                    Err(problem) => problems.warn(problem),
                }
            }
        }
        for (index, entry) in entries.iter_mut().enumerate() {
            let Value::Map(entry) = entry else { continue };
            if index == 0 && self.iscsi_root {
                entry.insert("keep_configuration", true);
            }
            // The devices below it have the same MAC address, and are not configured.
            if entry.get("name").and_then(Value::as_str).is_some_and(|name| self.failover.iter().any(|f| f == name)) {
                entry.remove("mac_address");
            }
        }
        let config = Map::from_iter([("version", Value::Int(1)), ("config", Value::List(entries.clone()))]);
        (!entries.is_empty()).then_some(NetworkData::Cloud(Value::Map(config)))
    }

    /// The entry of one VNIC.
    fn entry(&self, vnic: &Value, is_primary: bool) -> Result<Value, String> {
        let text = |key: &str| vnic.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
        let mac = text("macAddr").ok_or("a VNIC is ignored: expected macAddr")?.to_ascii_lowercase();
        let mut with = self.nics.iter().filter(|n| n.mac == mac && !n.has_master);
        let nic = with.clone().find(|n| n.physical).or_else(|| with.next());
        let nic = nic.ok_or_else(|| format!("a VNIC is ignored: no interface has the MAC address {mac}"))?;
        let ipv6_only = text("ipv6VirtualRouterIp").is_some() && text("privateIp").is_none();
        let subnets = if is_primary {
            vec![subnet("type", if ipv6_only { "dhcp6" } else { "dhcp" })]
        } else {
            let prefix = || text("subnetCidrBlock")?.split_once('/')?.1.parse::<u8>().ok().filter(|p| *p <= 32);
            let four =
                text("privateIp").and_then(|a| Some((a.parse::<IpAddr>().ok().filter(IpAddr::is_ipv4)?, prefix()?)));
            let six =
                vnic.get("ipv6Addresses").and_then(|list| list.as_list()?.first()?.as_str()?.parse::<IpAddr>().ok());
            let six = six.filter(IpAddr::is_ipv6).map(|address| (address, 128));
            four.into_iter().chain(six).map(|(address, prefix)| static_subnet(address, prefix)).collect()
        };
        if subnets.is_empty() {
            return Err(format!(
                "the VNIC {mac} is ignored: expected privateIp with subnetCidrBlock, or ipv6Addresses"
            ));
        }
        Ok(Value::Map(Map::from_iter([
            ("name", Value::from(nic.name.as_str())),
            ("type", "physical".into()),
            ("mac_address", mac.into()),
            ("mtu", Value::Int(MTU)),
            ("subnets", Value::List(subnets)),
        ])))
    }
}

fn subnet(key: &str, value: &str) -> Value {
    Value::Map(Map::from_iter([(key, value)]))
}

fn static_subnet(address: IpAddr, prefix: u8) -> Value {
    Value::Map(Map::from_iter([("type", "static".to_owned()), ("address", format!("{address}/{prefix}"))]))
}

/// Whether the firmware booted from an iSCSI target (the kernel's ABI/testing/sysfs-ibft).
fn has_iscsi_root(machine: &Machine) -> bool {
    const FOLDER: &str = "sys/firmware/ibft";
    let targets = beneath::names(&machine.base, FOLDER).into_iter().filter(|name| name.starts_with("target"));
    let mut flags = targets.filter_map(|t| machine.fact(&format!("{FOLDER}/{t}/flags"))?.trim().parse::<u32>().ok());
    flags.any(|f| f & BLOCK_VALID != 0 && f & FIRMWARE_BOOT_SELECTED != 0)
}

/// Whether the device is the one of a failover group that gets the configuration (the kernel's
/// net_failover.rst).
fn is_failover_master(machine: &Machine, nic: &Nic) -> bool {
    let features = || machine.fact(&format!("sys/class/net/{}/device/features", nic.name));
    !nic.has_master
        && nic.driver.as_deref() == Some("virtio_net")
        && features().is_some_and(|f| f.trim().as_bytes().get(STANDBY) == Some(&b'1'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::json;

    const VNICS: &str = r#"[{"macAddr": "02:00:17:05:D1:DB", "privateIp": "10.0.0.230", "subnetCidrBlock": "10.0.0.0/24"},
        {"macAddr": "00:00:17:02:2B:B1", "privateIp": "10.0.0.231", "subnetCidrBlock": "10.0.0.0/24",
         "ipv6Addresses": ["2603:c020::4a"], "ipv6VirtualRouterIp": "fe80::1"},
        {"macAddr": "00:00:17:02:2B:FF", "privateIp": "10.0.0.9", "subnetCidrBlock": "10.0.0.0/24"}, 7]"#;

    /// The configuration and the number of problems, on a machine with these files and two interfaces.
    fn config(files: &[(&str, &str)], secondary: bool, vnics: &str) -> (String, usize) {
        let dir = TempDir::new("oracle");
        let net = |name: &str, file: &str| format!("sys/class/net/{name}/{file}");
        let nics = [("ens3", "02:00:17:05:d1:db"), ("ens5", "00:00:17:02:2b:b1")];
        let nics = nics.map(|(name, mac)| (net(name, "address"), mac.to_owned()));
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        for (path, text) in nics.into_iter().chain(files) {
            dir.write(&path, text);
        }
        let driver = dir.0.join("drivers/virtio_net");
        std::fs::create_dir_all(&driver).unwrap();
        if dir.0.join(net("ens3", "device")).exists() {
            std::os::unix::fs::symlink(driver, dir.0.join(net("ens3", "device/driver"))).unwrap();
        }
        let here = Here::of(&dir.machine(), secondary);
        let (vnics, problems) = (json::parse("t", vnics.as_bytes()).unwrap(), Problems::new());
        let vnics = if here.needs_vnics() { vnics.as_list().unwrap() } else { &[] };
        match here.config(vnics, &problems) {
            Some(NetworkData::Cloud(value)) => (json::to_string(value.get("config").unwrap()), problems.len()),
            _ => (String::new(), problems.len()),
        }
    }

    const PRIMARY: &str =
        r#""name":"ens3","type":"physical","mac_address":"02:00:17:05:d1:db","mtu":9000,"subnets":[{"type":"dhcp"}]"#;
    const SECONDARY: &str = r#"{"name":"ens5","type":"physical","mac_address":"00:00:17:02:2b:b1","mtu":9000,"subnets":[{"type":"static","address":"10.0.0.231/24"},{"type":"static","address":"2603:c020::4a/128"}]}"#;
    const LEASE: (&str, &str) = ("run/net-ens3.conf", "DEVICE=ens3\nPROTO=dhcp\nIPV4ADDR=10.0.0.230\n");
    const IBFT: (&str, &str) = ("sys/firmware/ibft/target0/flags", "3\n");

    #[test]
    fn primary_vnic_uses_dhcp_and_others_their_addresses() {
        assert_eq!(config(&[], false, VNICS), (format!("[{{{PRIMARY}}},{SECONDARY}]"), 2));
        let (kept, _) = config(&[IBFT], false, VNICS);
        assert_eq!(kept, format!("[{{{PRIMARY},\"keep_configuration\":true}},{SECONDARY}]"));
        let six =
            r#"[{"macAddr": "02:00:17:05:D1:DB", "ipv6VirtualRouterIp": "fe80::1", "ipv6Addresses": ["2603::1"]}]"#;
        assert!(config(&[], false, six).0.contains(r#""subnets":[{"type":"dhcp6"}]"#));
        assert_eq!(config(&[], false, "[]"), (String::new(), 0));
    }

    #[test]
    fn what_the_initramfs_configured_stays() {
        let (alone, _) = config(&[LEASE, IBFT], false, VNICS);
        assert!(alone.contains(r#""keep_configuration":true"#) && !alone.contains("ens5"), "{alone}");
        let (both, problems) = config(&[LEASE, IBFT], true, VNICS);
        assert!(both.contains(SECONDARY) && both.matches("ens3").count() == 1 && problems == 2, "{both}");
        let metal = VNICS.replacen("\"privateIp\"", "\"nicIndex\": 0, \"privateIp\"", 1);
        let (metal, problems) = config(&[LEASE, IBFT], true, &metal);
        assert!(!metal.contains("ens5") && problems == 1, "{metal}");
    }

    #[test]
    fn does_not_match_failover_device_by_mac() {
        let features = format!("{}11", "0".repeat(62));
        let (got, _) = config(&[("sys/class/net/ens3/device/features", &features)], false, VNICS);
        assert!(got.contains(r#""name":"ens3","type":"physical","mtu""#), "{got}");
        let features = "0".repeat(64);
        let (got, _) = config(&[("sys/class/net/ens3/device/features", &features)], false, VNICS);
        assert!(got.contains(r#""mac_address":"02:00:17:05:d1:db""#), "{got}");
    }
}
