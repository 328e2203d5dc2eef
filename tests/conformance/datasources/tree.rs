//! The machine of a case as a tree: /proc, /sys, block devices with filesystems, files.

use super::case::{Case, Device, Entry, Nic};
use prepivot::base::testing::TempDir;
use prepivot::document::Value;
use prepivot::link::dhcp::record;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// dmidecode's names and the kernel's.
const DMI: &[(&str, &str)] = &[
    ("system-uuid", "product_uuid"),
    ("system-product-name", "product_name"),
    ("system-manufacturer", "sys_vendor"),
    ("system-serial-number", "product_serial"),
    ("chassis-asset-tag", "chassis_asset_tag"),
    ("chassis-serial-number", "chassis_serial"),
    ("baseboard-serial-number", "board_serial"),
];

/// Writes a file of the machine, and the folders that it is in.
pub fn write(dir: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    fs::write(path, content).expect("a file");
}

/// Makes the machine below `dir`.
///
/// # Errors
///
/// A tool that makes filesystems is missing.
pub fn build(case: &Case, dir: &Path) -> Result<(), String> {
    write(dir, "proc/cmdline", format!("{}\n", case.cmdline));
    for folder in ["dev", "sys/class/block", "sys/class/net"].into_iter().chain(case.folders.iter().map(String::as_str))
    {
        fs::create_dir_all(dir.join(folder.trim_start_matches('/'))).expect("a folder");
    }
    for (name, value) in &case.dmi {
        let (_, field) =
            DMI.iter().find(|(theirs, _)| theirs == name).unwrap_or_else(|| panic!("DMI {name} is not known"));
        write(dir, &format!("sys/class/dmi/id/{field}"), format!("{value}\n"));
    }
    for (path, entry) in &case.files {
        match entry {
            Entry::File(content, mode) => {
                write(dir, path, content);
                let path = dir.join(path.trim_start_matches('/'));
                fs::set_permissions(path, PermissionsExt::from_mode(*mode)).expect("a mode");
            }
            Entry::Socket => {
                let path = dir.join(path.trim_start_matches('/'));
                fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
                drop(UnixListener::bind(path).expect("a socket"));
            }
        }
    }
    if let Some(kind) = &case.virt {
        set_virt(dir, kind);
    }
    if let Some(version) = case.input.get("uname_version").and_then(Value::as_str) {
        write(dir, "proc/sys/kernel/version", format!("{version}\n"));
    }
    for nic in &case.nics {
        add_nic(dir, nic);
        // As the network session leaves it: the one that it has now.
        if let Some(lease) = case.leases(&nic.name).last() {
            write(dir, &format!("run/prepivot/lease-{}.json", nic.name), record::to_json(lease));
        }
    }
    case.devices.iter().try_for_each(|device| add_device(dir, device))
}

/// DMI values that only a kind of virtual machine has.
const VENDORS: &[(&str, &str)] = &[
    ("vmware", "VMware, Inc."),
    ("amazon", "Amazon EC2"),
    ("oracle", "innotek GmbH"),
    ("bochs", "Bochs"),
    ("parallels", "Parallels"),
    ("bhyve", "BHYVE"),
    ("apple", "Apple Virtualization"),
    ("google", "Google Compute Engine"),
    ("qemu", "QEMU"),
];

/// Makes the machine a virtual machine or container of this kind, by what systemd-detect-virt looks at.
pub fn set_virt(dir: &Path, kind: &str) {
    const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    match kind {
        "none" => {}
        "xen" => write(dir, "sys/hypervisor/type", "xen\n"),
        "kvm" => write(dir, CLOCKS, "kvm-clock tsc\n"),
        "microsoft" => write(dir, CLOCKS, "hyperv_clocksource tsc\n"),
        kind => match VENDORS.iter().find(|(name, _)| *name == kind) {
            Some((_, vendor)) => write(dir, "sys/class/dmi/id/bios_vendor", format!("{vendor}\n")),
            None => write(dir, "run/systemd/container", format!("{kind}\n")),
        },
    }
}

/// The feature of a failover group's leader (the kernel's VIRTIO_NET_F_STANDBY), in a list of bits.
const STANDBY: usize = 62;

fn add_nic(dir: &Path, nic: &Nic) {
    let real = if nic.is_virtual { "sys/devices/virtual/net" } else { "sys/devices/pci0000:00/net" };
    let folder = format!("{real}/{}", nic.name);
    let attribute = |name: &str, value: &str| write(dir, &format!("{folder}/{name}"), format!("{value}\n"));
    attribute("address", &nic.mac);
    attribute("type", "1");
    attribute("addr_assign_type", "0");
    attribute("ifindex", &nic.index.unwrap_or(2).to_string());
    attribute("operstate", if nic.up { "up" } else { "down" });
    attribute("carrier", if nic.up { "1" } else { "0" });
    if !nic.is_virtual {
        fs::create_dir_all(dir.join(&folder).join("device")).expect("a folder");
    }
    if nic.leads_failover {
        attribute("device/features", &("0".repeat(STANDBY) + "1" + "0"));
    }
    let leads = nic.leads_failover.then_some("virtio_net");
    if let Some(driver) = nic.driver.as_deref().or(leads) {
        let target = dir.join("sys/bus/drivers").join(driver);
        fs::create_dir_all(&target).expect("a folder");
        fs::create_dir_all(dir.join(&folder).join("device")).expect("a folder");
        symlink(target, dir.join(&folder).join("device/driver")).expect("a link");
    }
    symlink(format!("../../{}", folder.trim_start_matches("sys/")), dir.join("sys/class/net").join(&nic.name))
        .expect("a link");
}

fn tool(name: &str, arguments: &[&str]) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(name)
        .args(arguments)
        .env("PATH", path)
        .env("MTOOLS_SKIP_CHECK", "1")
        .env("LC_ALL", "C.UTF-8")
        .output();
    let output = output.map_err(|e| format!("{name}: {e}"))?;
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Which bytes of a filesystem remain of one that cannot be mounted: its label can still be read.
const UNREADABLE: u64 = 17 * 2048 + 512;

fn add_device(dir: &Path, device: &Device) -> Result<(), String> {
    let image = dir.join("dev").join(&device.name);
    let image_path = image.to_str().expect("UTF-8");
    let files = TempDir::new("datasources-files");
    for (path, content) in device.files.iter().flatten() {
        write(&files.0, path, content);
    }
    let folder = files.0.to_str().expect("UTF-8");
    let label = device.label.as_deref().unwrap_or_default();
    match device.kind.as_deref() {
        Some("iso9660") => tool("genisoimage", &["-quiet", "-r", "-J", "-l", "-V", label, "-o", image_path, folder])?,
        Some("vfat") => {
            fs::File::create(&image).expect("an image").set_len(8 << 20).expect("its size");
            let mut arguments = if label.is_empty() { vec![] } else { vec!["-n", label] };
            let uuid = device.uuid.as_deref().map(|u| u.replace('-', "")).filter(|u| u.len() == 8);
            arguments.extend(uuid.as_deref().into_iter().flat_map(|u| ["-i", u]));
            arguments.push(image_path);
            tool("mkfs.vfat", &arguments)?;
            let tops =
                fs::read_dir(&files.0).expect("a folder").map(|e| e.expect("an entry").path().display().to_string());
            let tops: Vec<String> = tops.collect();
            if !tops.is_empty() {
                let mut arguments = vec!["-s", "-Q", "-i", image_path];
                arguments.extend(tops.iter().map(String::as_str));
                arguments.push("::/");
                tool("mcopy", &arguments)?;
            }
            if let Some(label) = &device.boot_label {
                // FAT12's and FAT16's boot sector.
                let mut bytes = fs::read(&image).expect("the image");
                bytes[43..54].copy_from_slice(format!("{label:<11}").as_bytes());
                fs::write(&image, bytes).expect("the image");
            }
        }
        Some("ext4") => {
            fs::File::create(&image).expect("an image").set_len(8 << 20).expect("its size");
            tool("mke2fs", &["-q", "-F", "-t", "ext4", "-L", label, "-d", folder, image_path])?;
        }
        _ => fs::File::create(&image).expect("an image").set_len(1 << 20).expect("its size"),
    }
    let size = fs::metadata(&image).expect("the image").len();
    if device.files.is_none() && device.kind.is_some() {
        fs::File::options()
            .write(true)
            .open(&image)
            .expect("the image")
            .set_len(UNREADABLE.min(size))
            .expect("its size");
    }
    let kind = if device.partition { "DEVTYPE=partition\nPARTN=1" } else { "DEVTYPE=disk" };
    write(dir, &format!("sys/class/block/{}/size", device.name), format!("{}\n", size / 512));
    write(
        dir,
        &format!("sys/class/block/{}/uevent", device.name),
        format!("MAJOR=8\nMINOR=0\nDEVNAME={}\n{kind}\n", device.name),
    );
    Ok(())
}
