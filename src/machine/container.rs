//! Detects containers, named as by systemd-detect-virt(1), from files alone.

use super::beneath;
use std::path::Path;

pub const WSL: &str = "wsl";
const OTHER: &str = "container-other";

/// Containers whose DMI, block devices and kernel command line belong to the host. WSL is a machine of its
/// own.
const CONTAINERS: [&str; 11] =
    [OTHER, "lxc", "lxc-libvirt", "systemd-nspawn", "docker", "podman", "rkt", "openvz", "proot", "pouch", "jail"];

/// Whether `kind` is a container's name.
pub fn is_container(kind: &str) -> bool {
    CONTAINERS.contains(&kind)
}

/// The name of the container, or of WSL. None if it is neither.
pub fn detect(base: &Path) -> Option<String> {
    let there = |path: &str| beneath::exists(base, path);
    let fact = |path: &str| beneath::read(base, path);
    if there("proc/vz") && !there("proc/bc") {
        return Some("openvz".into());
    }
    let release = fact("proc/sys/kernel/osrelease").unwrap_or_default();
    if release.contains("Microsoft") || release.contains("WSL") {
        return Some(WSL.into());
    }
    let told = beneath::variable(base, "container")
        .or_else(|| fact("run/host/container-manager"))
        .or_else(|| fact("run/systemd/container"))?;
    match told.trim() {
        "" => None,
        "oci" if there(".dockerenv") => Some("docker".into()),
        "oci" if there("run/.containerenv") => Some("podman".into()),
        kind if is_container(kind) => Some(kind.into()),
        _ => Some(OTHER.into()),
    }
}
