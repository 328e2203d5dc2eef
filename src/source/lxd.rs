//! LXD: its socket in a container or a virtual machine.

use super::Source;
use crate::detect::{Facts, Finding, Mark, virt};
use std::os::unix::fs::FileTypeExt;

pub static SOURCE: Source = Source {
    name: "LXD",
    marks: &[Mark::Check(
        "the socket /dev/lxd/sock; on KVM and QEMU a virtio port named com.canonical.lxd or org.linuxcontainers.lxd",
        mark,
    )],
    ..Source::NEW
};

/// LXD's socket in a container, its virtio port in a virtual machine.
fn mark(facts: &Facts) -> Option<Finding> {
    const SOCKET: &str = "dev/lxd/sock";
    const PORTS: &str = "sys/class/virtio-ports";
    const NAMES: [&str; 2] = ["com.canonical.lxd", "org.linuxcontainers.lxd"];
    let socket = std::fs::metadata(facts.machine.base.join(SOCKET)).is_ok_and(|m| m.file_type().is_socket());
    if socket {
        return Finding::found(format!("/{SOCKET} is there"));
    }
    if !virt::is_qemu(&facts.platform.virt) {
        return None;
    }
    let names = facts.entries(PORTS).into_iter().filter_map(|p| facts.machine.fact(&format!("{PORTS}/{p}/name")));
    let name = names.map(|n| n.trim().to_owned()).find(|n| NAMES.contains(&n.as_str()))?;
    Finding::found(format!("there is a virtio port named {name}"))
}
