//! The kernel's table of mounts (proc_pid_mounts(5)).

use super::ModuleContext;
use crate::drive::block::{self, Block};
use crate::drive::devices::Places;
use crate::machine::{Cmdline, beneath};
use crate::root::{Root, unescape};
use std::path::Path;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The device, or the text that a file system without one has there.
    pub source: String,
    pub point: String,
    pub kind: String,
    /// Separated by commas.
    pub options: String,
}

/// Types of network file systems, by systemd's definition (systemd.mount(5)).
const NETWORK: [&str; 16] = [
    "afs",
    "ceph",
    "cifs",
    "davfs",
    "gfs",
    "gfs2",
    "glusterfs",
    "lustre",
    "ncp",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "smb3",
    "smbfs",
    "sshfs",
];

/// Whether this is a type of network file system.
pub fn is_network(kind: &str) -> bool {
    NETWORK.contains(&kind.strip_prefix("fuse.").unwrap_or(kind))
}

impl Mounted {
    /// Whether it needs the network: a network file system, or one on a network block device.
    fn is_on_network(&self, places: &Places) -> bool {
        let is_device = || block::at(places, &self.source).is_some_and(|b| block::is_on_network(places, &b));
        is_network(&self.kind) || is_device()
    }

    /// Whether an option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }
}

/// The mount that contains `path`: the one with the longest mount point above it, and of several there the
/// last.
pub fn containing(root: &Root, path: &str) -> Option<Mounted> {
    find(&root.text("/proc/self/mounts"), path)
}

/// The mount of an initramfs's new root.
pub fn of_new_root(root: &Root) -> Option<Mounted> {
    let path = root.path().to_str()?;
    find(&beneath::read(Path::new("/"), "proc/self/mounts")?, path).filter(|m| m.point == path)
}

/// An initramfs's new root: its mount, its block device, and the places of devices. None elsewhere, and if the
/// kernel lists no device for it.
pub fn device_of_new_root(cx: &ModuleContext) -> Option<(Mounted, Block, Places)> {
    let places = cx.outside.places().filter(|_| cx.root.is_initramfs())?;
    let mounted = of_new_root(cx.root)?;
    let block = block::at(&places, &mounted.source)?;
    Some((mounted, block, places))
}

/// Whether the root that a system runs from, or will run from, needs the network. Never for an image.
pub fn is_root_on_network(root: &Root, cmdline: &Cmdline) -> bool {
    let mounted = if root.is_live() { containing(root, "/") } else { of_new_root(root) };
    let is_mounted = mounted.is_some_and(|m| m.is_on_network(&Places::default()));
    // The lower layers of an overlay are not in the table.
    is_mounted || (root.has_run() && names_network_root(cmdline))
}

/// Whether the kernel command line has a root on the network, in the words of dracut (dracut.cmdline(7)),
/// initramfs-tools or the kernel.
fn names_network_root(cmdline: &Cmdline) -> bool {
    let is_given = |key: &str| cmdline.value(key).is_some_and(|value| !value.is_empty());
    let root = cmdline.value("root").unwrap_or_default();
    let kind = root.split_once(':').map_or(root, |(kind, _)| kind);
    is_given("netroot")
        || is_given("nfsroot")
        || ["/dev/nfs", "dhcp", "dhcp6", "nfs", "nfs4", "nbd", "iscsi", "cifs", "fcoe"].contains(&kind)
        || root.starts_with("/dev/nbd")
}

fn find(text: &str, path: &str) -> Option<Mounted> {
    let mounts = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').map(unescape);
        Some(Mounted { source: fields.next()?, point: fields.next()?, kind: fields.next()?, options: fields.next()? })
    });
    let above = mounts.filter(|m| {
        let rest = path.strip_prefix(m.point.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    above.max_by_key(|m| m.point.len())
}

/// The device of `root=` on the kernel command line, for a kernel that calls the root's device /dev/root: by its path,
/// or by udev's link for its label or UUID. None if no root is named.
pub fn root_on_cmdline(root: &Root) -> Option<String> {
    let cmdline = Cmdline::new(&root.text("/proc/cmdline"));
    let value = cmdline.value("root").filter(|v| !v.is_empty())?;
    let below = |folder: &str, name: &str| Some(format!("/dev/disk/{folder}/{name}"));
    match value.split_once('=') {
        Some(("LABEL", label)) => below("by-label", label),
        Some(("UUID", uuid)) => below("by-uuid", &uuid.to_ascii_lowercase()),
        Some(("PARTUUID", uuid)) => below("by-partuuid", &uuid.to_ascii_lowercase()),
        Some(("PARTLABEL", label)) => below("by-partlabel", label),
        _ if value.starts_with("/dev/") => Some(value.to_owned()),
        _ => Some(format!("/dev/{value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn kernel_command_line_names_root_on_server() {
        for (line, is_network) in [
            ("root=/dev/nfs nfsroot=10.0.0.1:/srv ip=dhcp", true),
            ("root=nbd:10.0.0.1:disk:ext4 ip=dhcp", true),
            ("root=dhcp", true),
            ("root=LABEL=x netroot=iscsi:10.0.0.1::::iqn.x", true),
            ("root=/dev/nbd0p1", true),
            ("root=LABEL=nfs ip=dhcp netroot=", false),
            ("root=live:LABEL=live", false),
            ("quiet", false),
        ] {
            assert_eq!(names_network_root(&Cmdline::new(line)), is_network, "{line}");
        }
    }

    #[test]
    fn the_longest_point_and_of_several_the_last() {
        let dir = TempDir::new("mount-table");
        std::fs::create_dir_all(dir.0.join("proc/self")).unwrap();
        let text = "rootfs / rootfs rw 0 0\n/dev/vda1 / ext4 rw,relatime 0 0\n/dev/vdb1 /data xfs ro 0 0\n\
            /dev/vdc1 /with\\040space ext4 rw 0 0\nbroken\n";
        dir.write("proc/self/mounts", text);
        let root = dir.root(Use::Tree);
        let source = |path| containing(&root, path).map(|m| m.source);
        for (path, device) in [
            ("/", "/dev/vda1"),
            ("/database", "/dev/vda1"),
            ("/data", "/dev/vdb1"),
            ("/data/x/y", "/dev/vdb1"),
            ("/with space/x", "/dev/vdc1"),
        ] {
            assert_eq!(source(path).as_deref(), Some(device), "{path}");
        }
        assert_eq!(source("relative"), None);
        let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
        assert!(!containing(&root, "/").unwrap().is_on_network(&places));
        let of_server = "10.0.2.2:/export/root / nfs4 rw,vers=4.2,addr=10.0.2.2 0 0\n";
        assert!(find(of_server, "/").unwrap().is_on_network(&places));
        assert!(containing(&root, "/data").unwrap().has("ro"));
    }
}
