//! The temporary disk, which Azure calls the resource disk.

use super::instance::RESOURCE_DISK;
use crate::machine::{Machine, beneath};
use crate::root::Root;

/// The udev rule that creates the disk's path, and the folders where distributions install it.
const RULE: &str = "66-azure-ephemeral.rules";
const RULES: [&str; 3] = ["/usr/lib/udev/rules.d", "/lib/udev/rules.d", "/etc/udev/rules.d"];
/// Device IDs: of the IDE channel on a machine without UEFI, and of the SCSI controller on one with UEFI,
/// where the disk is LUN 1 (the rule that cloud-init installs).
const IDE: &str = "{00000000-0001-";
const SCSI: &str = "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}";

/// Whether the running system will have a path for the machine's temporary disk: it exists now, or sysfs
/// shows the disk and the root has the udev rule.
pub fn has_resource_disk(machine: &Machine, root: &Root) -> bool {
    if beneath::exists(&machine.base, RESOURCE_DISK) {
        return true;
    }
    let has_rule = RULES.iter().any(|folder| root.exists(&format!("{folder}/{RULE}")));
    has_rule && beneath::names(&machine.base, "sys/block").iter().any(|name| is_resource_disk(machine, name))
}

fn is_resource_disk(machine: &Machine, name: &str) -> bool {
    let device = format!("sys/block/{name}/device");
    // In sysfs a disk is below its target, its host, and the device on the virtual bus.
    let id = machine.fact(&format!("{device}/../../../device_id")).unwrap_or_default();
    let lun = beneath::link_name(&machine.base, &device).unwrap_or_default();
    let id = id.trim();
    id.starts_with(IDE) || (id == SCSI && lun.rsplit(':').next() == Some("1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use std::fs;

    fn has(id: &str, address: &str, rule: bool) -> bool {
        let dir = TempDir::new("azure-disk");
        let vmbus = dir.0.join("sys/devices/vmbus/x");
        let disk = vmbus.join("host0/target0").join(address).join("block/sdb");
        fs::create_dir_all(&disk).unwrap();
        fs::create_dir_all(dir.0.join("sys/block")).unwrap();
        fs::write(vmbus.join("device_id"), format!("{id}\n")).unwrap();
        std::os::unix::fs::symlink(format!("../../../{address}"), disk.join("device")).unwrap();
        let target = format!("../devices/vmbus/x/host0/target0/{address}/block/sdb");
        std::os::unix::fs::symlink(target, dir.0.join("sys/block/sdb")).unwrap();
        if rule {
            fs::create_dir_all(dir.0.join("usr/lib/udev/rules.d")).unwrap();
            fs::write(dir.0.join("usr/lib/udev/rules.d").join(RULE), "").unwrap();
        }
        has_resource_disk(&dir.machine(), &dir.root(Use::Plan))
    }

    #[test]
    fn by_the_device_on_the_virtual_bus() {
        assert!(has("{00000000-0001-8899-0000-000000000000}", "5:0:1:0", true));
        assert!(!has("{00000000-0001-8899-0000-000000000000}", "5:0:1:0", false), "nothing gives it a path");
        assert!(!has("{00000000-0000-8899-0000-000000000000}", "5:0:0:0", true), "the root's disk");
        assert!(has(SCSI, "0:0:0:1", true) && !has(SCSI, "0:0:0:0", true) && !has(SCSI, "0:0:0:11", true));
    }
}
