//! Clouds that take more than one DMI value to tell.

use super::Finding;
use super::facts::Facts;
use super::marks::labelled;
use super::virt;
use std::path::Path;

/// A machine of one of the clouds that AltCloud reads drives of. What is on the drive is not looked at, so it only may be.
pub fn alt_cloud(facts: &Facts) -> Option<Finding> {
    const CLOUD_INFO: &str = "/etc/sysconfig/cloud-info";
    let told = match facts.root.is_file(CLOUD_INFO) {
        true => facts.root.text(CLOUD_INFO).lines().next().map(|l| l.trim().to_owned()),
        false => facts.dmi("product_name"),
    }?;
    match told.to_ascii_lowercase().as_str() {
        "rhev" if facts.machine.base.join("sys/class/block/fd0").exists() => {
            Finding::maybe("the machine is RHEV's and has a floppy drive")
        }
        "vsphere" => Finding::maybe(labelled(facts.labelled("CDROM")?, "CDROM")),
        _ => None,
    }
}

/// Amazon's machines by their UUIDs (AWS documentation, "Identify EC2 instances"), and Outscale's by two DMI values.
pub fn aws(facts: &Facts) -> Option<Finding> {
    if facts.is_container() {
        return None;
    }
    let is = |field: &str, value: &str| facts.dmi(field).as_deref() == Some(value);
    if is("product_name", "3DS Outscale VM") && is("sys_vendor", "3DS Outscale") {
        return Finding::found("DMI product_name 3DS Outscale VM and sys_vendor 3DS Outscale");
    }
    if facts.machine.fact("sys/hypervisor/uuid").is_some_and(|uuid| uuid.starts_with("ec2")) {
        return Finding::found("/sys/hypervisor/uuid begins with ec2");
    }
    let uuid = facts.dmi("product_uuid")?.to_ascii_lowercase();
    if uuid.starts_with("ec2") {
        return Finding::found("DMI product_uuid begins with ec2");
    }
    // The first four bytes may stand in the other order: 45E12AEC is EC2AE145.
    let swapped = uuid.get(4..5) == Some("2") && uuid.get(6..8) == Some("ec");
    if swapped { Finding::found("DMI product_uuid begins with ec2, its first bytes in the other order") } else { None }
}

/// Where the image does not insist on a mark, Ec2's service may be there.
pub fn ec2_not_strict(facts: &Facts) -> Option<Finding> {
    let strict_id = facts.asked.loose_id.as_ref().filter(|_| !facts.is_container())?;
    Finding::maybe(format!("strict_id is {strict_id}"))
}

/// A container of nova's tells by the environment of its PID 1.
pub fn open_stack_pid1(facts: &Facts) -> Option<Finding> {
    let told = facts.variable_of_init("product_name")?;
    let nova = ["OpenStack Nova", "OpenStack Compute"].contains(&told);
    if nova { Finding::found(format!("product_name in the environment of PID 1 is {told}")) } else { None }
}

/// Machines other than PCs may have no DMI to tell by.
pub fn other_machine(facts: &Facts) -> Option<Finding> {
    let machine = facts.platform.kernel.machine.as_str();
    let pc = machine == "x86_64" || (machine.len() == 4 && machine.starts_with('i') && machine.ends_with("86"));
    if pc { None } else { Finding::maybe(format!("a machine of the kind {machine} may have no DMI to tell by")) }
}

/// A SmartOS zone: its kernel and its socket. A container within a zone has no socket.
pub fn smart_os(facts: &Facts) -> Option<Finding> {
    const SOCKET: &str = "/native/.zonecontrol/metadata.sock";
    let zone = facts.platform.kernel.version == "BrandZ virtual linux";
    if zone && facts.root.exists(SOCKET) { Finding::found(format!("{SOCKET} is there")) } else { None }
}

/// IBM's first boot, before the machine is handed over.
pub fn ibm_provisioning(facts: &Facts) -> Option<String> {
    const SETTINGS: &str = "/root/provisioningConfiguration.cfg";
    const LOG: &str = "root/swinstall.log";
    if !facts.root.is_file(SETTINGS) {
        return None;
    }
    let changed = |path: &Path| std::fs::symlink_metadata(path).and_then(|m| m.modified()).ok();
    let log = changed(&facts.root.path().join(LOG));
    let boot = changed(&facts.machine.base.join("proc/1/environ"));
    let of_this_boot = log.is_none() || boot.is_none() || log > boot;
    of_this_boot.then(|| format!("the machine is still being provisioned by IBM Cloud: {SETTINGS} is there"))
}

/// Why the machine is IBM Cloud's, if it is.
pub fn ibm_cloud_mark(facts: &Facts) -> Option<String> {
    const DRIVE: &str = "config-2";
    const UUID: &str = "9796-932E";
    if facts.platform.virt != virt::XEN {
        return None;
    }
    let has_uuid = || facts.filesystems().iter().any(|fs| fs.uuid.as_deref() == Some(UUID));
    ibm_provisioning(facts).or_else(|| facts.labelled("METADATA").map(|fs| labelled(fs, "METADATA"))).or_else(|| {
        Some(format!("{} and the UUID {UUID}", labelled(facts.labelled(DRIVE).filter(|_| has_uuid())?, DRIVE)))
    })
}

/// A Xen machine with one of IBM's drives.
pub fn ibm_cloud(facts: &Facts) -> Option<Finding> {
    ibm_cloud_mark(facts).and_then(Finding::found)
}
