//! Detects the virtual machine or container, named as by systemd-detect-virt(1), from files alone: without
//! the CPUID instruction.

pub use crate::machine::container::{WSL, is_container};
use crate::machine::{Machine, beneath};

/// No virtual machine and no container.
pub const NONE: &str = "none";
pub const VMWARE: &str = "vmware";
pub const XEN: &str = "xen";
const KVM: &str = "kvm";
const QEMU: &str = "qemu";
const MICROSOFT: &str = "microsoft";
const OTHER_VM: &str = "vm-other";

/// Prefixes of DMI fields, and the virtual machine that each indicates (systemd, detect_vm_dmi_vendor).
#[rustfmt::skip]
const VENDORS: &[(&str, &str)] = &[
    ("KVM", KVM), ("OpenStack", KVM), ("KubeVirt", KVM), ("Amazon EC2", "amazon"), ("QEMU", QEMU), ("VMware", VMWARE),
    ("VMW", VMWARE), ("innotek GmbH", "oracle"), ("VirtualBox", "oracle"), ("Oracle Corporation", "oracle"), ("Xen", XEN),
    ("Bochs", "bochs"), ("Parallels", "parallels"), ("BHYVE", "bhyve"), ("Hyper-V", MICROSOFT),
    ("Apple Virtualization", "apple"), ("Google Compute Engine", "google"),
];
const VENDOR_FIELDS: [&str; 5] = ["product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version"];

/// Clock sources that only a hypervisor's guest has.
const CLOCKS: [(&str, &str); 2] = [("kvm-clock", KVM), ("hyperv_clocksource", MICROSOFT)];

/// Whether `kind` is KVM or QEMU, which files alone do not always distinguish.
pub fn is_qemu(kind: &str) -> bool {
    kind == KVM || kind == QEMU
}

/// A container's name if this is one, else the virtual machine's, else `none`.
pub fn detect(machine: &Machine) -> String {
    let container = machine.container.clone();
    container.unwrap_or_else(|| virtual_machine(machine).unwrap_or(NONE).to_owned())
}

fn there(machine: &Machine, path: &str) -> bool {
    beneath::exists(&machine.base, path)
}

fn virtual_machine(machine: &Machine) -> Option<&'static str> {
    let dmi = by_dmi(machine);
    if let Some(kind) = dmi.filter(|k| !matches!(*k, KVM | QEMU)) {
        return Some(kind);
    }
    if let Some(xen) = xen(machine) {
        return xen;
    }
    let clocks = machine.fact("sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    let by_clock = CLOCKS.iter().find(|(name, _)| clocks.contains(name)).map(|(_, kind)| *kind);
    by_clock.or(dmi).or_else(|| by_device_tree(machine)).or_else(|| by_cpu(machine))
}

fn by_dmi(machine: &Machine) -> Option<&'static str> {
    let values: Vec<String> = VENDOR_FIELDS.iter().filter_map(|field| machine.dmi(field)).collect();
    let kind = |value: &String| VENDORS.iter().find(|(start, _)| value.starts_with(start)).map(|(_, kind)| *kind);
    let is = |field: &str, value: &str| machine.dmi(field).as_deref() == Some(value);
    values.iter().find_map(kind).or_else(|| {
        let hyper_v = is("sys_vendor", "Microsoft Corporation") && is("product_name", "Virtual Machine");
        hyper_v.then_some(MICROSOFT)
    })
}

/// Some(None) for Xen's control domain, which is not a guest.
fn xen(machine: &Machine) -> Option<Option<&'static str>> {
    let hypervisor = machine.fact("sys/hypervisor/type").is_some_and(|t| t.trim() == XEN);
    if !hypervisor && !there(machine, "proc/xen") {
        return None;
    }
    let control = machine.fact("proc/xen/capabilities").is_some_and(|c| c.contains("control_d"));
    Some((!control).then_some(XEN))
}

fn by_device_tree(machine: &Machine) -> Option<&'static str> {
    let fact = |name: &str| machine.fact(&format!("proc/device-tree/{name}"));
    if let Some(compatible) = fact("hypervisor/compatible") {
        return Some(match compatible.trim_end_matches('\0') {
            "linux,kvm" => KVM,
            text if text.contains("xen") => XEN,
            text if text.contains("vmware") => VMWARE,
            _ => OTHER_VM,
        });
    }
    if fact("compatible").is_some_and(|c| c.contains("qemu,pseries")) {
        return Some(QEMU);
    }
    let partition = ["ibm,partition-name", "hmc-managed?"].iter().all(|n| fact(n).is_some());
    partition.then_some("powervm")
}

/// IBM Z's control program, User Mode Linux, and the flag that every hypervisor sets on x86.
fn by_cpu(machine: &Machine) -> Option<&'static str> {
    let program = machine.fact("proc/sysinfo").unwrap_or_default();
    if let Some(line) = program.lines().find(|l| l.starts_with("VM00 Control Program:")) {
        return Some(if line.contains("z/VM") { "zvm" } else { KVM });
    }
    let cpu = machine.fact("proc/cpuinfo").unwrap_or_default();
    if cpu.lines().any(|l| l.starts_with("vendor_id") && l.contains("User Mode Linux")) {
        return Some("uml");
    }
    let flags = cpu.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|f| f == "hypervisor").then_some(OTHER_VM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn kinds() {
        for (files, kind) in [
            (&[] as &[(&str, &str)], "none"),
            (&[("sys/class/dmi/id/sys_vendor", "QEMU\n")], "qemu"),
            (&[("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n")], "vmware"),
            (&[("sys/class/dmi/id/product_name", "HVM domU"), ("sys/class/dmi/id/sys_vendor", "Xen")], "xen"),
            (&[("sys/hypervisor/type", "xen\n")], "xen"),
            (&[("sys/hypervisor/type", "xen\n"), ("proc/xen/capabilities", "control_d\n")], "none"),
            (&[("proc/1/environ", "TERM=x\0container=lxc\0")], "lxc"),
            (&[("proc/1/environ", "container=strange\0"), ("sys/class/dmi/id/sys_vendor", "QEMU")], "container-other"),
            (&[("proc/sys/kernel/osrelease", "5.15.133.1-microsoft-standard-WSL2\n")], "wsl"),
            (&[("proc/device-tree/hypervisor/compatible", "linux,kvm\0")], "kvm"),
            (&[("proc/cpuinfo", "processor: 0\nflags\t\t: fpu hypervisor lahf_lm\n")], "vm-other"),
            (&[("proc/cpuinfo", "processor: 0\nflags\t\t: fpu vmx\n")], "none"),
            (
                &[
                    ("sys/class/dmi/id/sys_vendor", "QEMU"),
                    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc acpi_pm\n"),
                ],
                "kvm",
            ),
        ] {
            let dir = TempDir::with("virt", files);
            assert_eq!(detect(&dir.machine()), kind, "{files:?}");
        }
    }
}
