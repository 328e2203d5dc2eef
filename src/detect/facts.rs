//! The input of detection: the machine's facts, the image's files, and the filesystems on the block devices.

use super::guestinfo::Guestinfo;
use super::policy::Requested;
use super::virt;
use crate::base::deadline::Deadline;
use crate::base::glob;
use crate::document::Value;
use crate::drive::devices::{self, Places};
use crate::drive::search::{Probed, probe_all};
use crate::machine::{Cmdline, Machine, beneath};
use crate::root::{Root, installed};
use std::collections::BTreeMap;
use std::path::Path;

/// The variables of this process's environment that are used.
const VARIABLES: [&str; 7] = [
    "KERNEL_CMDLINE",
    "SYSTEMD_VIRTUALIZATION",
    "VMX_GUESTINFO",
    "VMX_GUESTINFO_METADATA",
    "VMX_GUESTINFO_USERDATA",
    "VMX_GUESTINFO_VENDORDATA",
    "WSL_DISTRO_NAME",
];
/// The most entries of a folder that are read.
pub const MAX_ENTRIES: usize = 256;

/// A file system, as blkid describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// The device node: `/dev/sr0`.
    pub device: String,
    /// `iso9660`, `vfat`, …
    pub kind: String,
    /// Its label, and FAT's second one.
    pub labels: Vec<String>,
    pub uuid: Option<String>,
}

impl Filesystem {
    /// The file system of a probed device; None if it has none.
    pub fn of(probed: &Probed) -> Option<Filesystem> {
        let superblock = probed.superblock()?;
        Some(Filesystem {
            device: format!("/dev/{}", probed.device.name),
            kind: superblock.kind.to_owned(),
            labels: [&superblock.label, &superblock.second_label].into_iter().flatten().cloned().collect(),
            uuid: superblock.uuid.clone(),
        })
    }
}

/// The kernel, as uname describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `#1 SMP Debian 6.1.0`.
    pub version: String,
    /// `x86_64`, `aarch64`.
    pub machine: String,
}

/// Facts that are not read from files in the tree.
pub struct Platform {
    /// As systemd-detect-virt names it: `none`, `kvm`, `lxc`.
    pub virt: String,
    pub kernel: Kernel,
    /// Variables of this process's environment.
    pub environment: BTreeMap<String, String>,
    pub filesystems: Vec<Filesystem>,
    /// VMware's tools, if they are installed and can be run.
    pub guestinfo: Option<Guestinfo>,
}

impl Platform {
    /// The platform of `machine`, without its filesystems.
    pub fn of(machine: &Machine, root: &Root) -> Platform {
        let mut environment = BTreeMap::new();
        environment.extend(VARIABLES.iter().filter_map(|name| Some((name.to_string(), std::env::var(name).ok()?))));
        let told = environment.get("SYSTEMD_VIRTUALIZATION").and_then(|v| v.split(':').next_back());
        let virt = told.filter(|v| !v.is_empty()).map(str::to_owned).unwrap_or_else(|| virt::detect(machine));
        let guestinfo = (virt == virt::VMWARE).then(|| Guestinfo::of(machine, root, &installed::tools(root))).flatten();
        Platform { virt, kernel: Kernel::of(machine), environment, filesystems: Vec::new(), guestinfo }
    }

    /// Adds the file systems on the block devices of `machine`. Devices that cannot be read are left out.
    pub fn with_filesystems(self, machine: &Machine, deadline: Deadline) -> Platform {
        let places = Places { sys: machine.base.join("sys/class/block"), dev: machine.base.join("dev") };
        let devices = devices::list(&places).unwrap_or_else(|e| {
            log::debug!("{e}");
            Vec::new()
        });
        let filesystems = probe_all(devices, deadline, |_| false).iter().filter_map(Filesystem::of).collect();
        Platform { filesystems, ..self }
    }
}

impl Kernel {
    /// This system's kernel; for a tree, from its /proc, else this program's architecture.
    pub fn of(machine: &Machine) -> Kernel {
        if machine.base == Path::new("/") {
            let uname = rustix::system::uname();
            let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
            return Kernel { version: text(uname.version()), machine: text(uname.machine()) };
        }
        let fact = |name: &str| machine.fact(&format!("proc/sys/kernel/{name}")).map(|v| v.trim().to_owned());
        Kernel {
            version: fact("version").unwrap_or_default(),
            machine: fact("arch").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        }
    }
}

/// The input of detection.
pub struct Facts<'a> {
    pub machine: &'a Machine,
    pub root: &'a Root,
    /// The image's own configuration, without defaults.
    pub own: &'a Value,
    pub platform: Platform,
    /// The configuration by the image and the kernel command line.
    pub requested: Requested,
    /// The environment of PID 1, which is a container's.
    init: BTreeMap<String, String>,
    cmdline: Cmdline,
}

impl<'a> Facts<'a> {
    /// Collects the facts, and reads what is configured.
    pub fn new(machine: &'a Machine, root: &'a Root, own: &'a Value, platform: Platform) -> Facts<'a> {
        let init = environment_of_init(machine);
        let cmdline = Machine::cmdline_of(&machine.base, virt::is_container(&platform.virt));
        let requested = Requested::read(root, &cmdline, own);
        Facts { machine, root, own, platform, requested, init, cmdline }
    }

    /// The kernel command line; in a container, the arguments of PID 1.
    pub fn cmdline(&self) -> &Cmdline {
        &self.cmdline
    }

    /// Whether this is a container, which sees the host's DMI and block devices.
    pub fn is_container(&self) -> bool {
        virt::is_container(&self.platform.virt)
    }

    /// A DMI value by the kernel's name for it. None in a container.
    pub fn dmi(&self, field: &str) -> Option<String> {
        if self.is_container() { None } else { self.machine.dmi(field) }
    }

    /// Whether a DMI value exists and matches a pattern, in which `*` at either end matches any text.
    pub fn dmi_matches(&self, field: &str, pattern: &str) -> bool {
        self.dmi(field).is_some_and(|value| glob::matches(pattern, &value))
    }

    /// Why only the real root can read VMware's guestinfo. None if it can be read now, or not there either.
    pub fn unseen_guestinfo(&self) -> Option<String> {
        if self.platform.virt != virt::VMWARE || self.platform.guestinfo.is_some() {
            return None;
        }
        let tool = Guestinfo::commands(self.root).into_iter().flatten().next()?;
        Some(format!("guestinfo is read by {tool}, which runs in the real root"))
    }

    /// A variable of this process's environment, else of PID 1's. None if it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.platform.environment.get(name).or_else(|| self.init.get(name));
        found.map(String::as_str).filter(|v| !v.is_empty())
    }

    /// A variable of PID 1's environment.
    pub fn variable_of_init(&self, name: &str) -> Option<&str> {
        self.init.get(name).map(String::as_str)
    }

    /// The file systems; none in a container.
    pub fn filesystems(&self) -> &[Filesystem] {
        if self.is_container() { &[] } else { &self.platform.filesystems }
    }

    /// A setting of the image's own configuration: `datasource: {source: {key: …}}`.
    pub fn setting(&self, source: &str, key: &str) -> Option<&'a Value> {
        self.own.at(&["datasource", source, key])
    }

    /// A file system with this label, ignoring case.
    pub fn labelled(&self, label: &str) -> Option<&Filesystem> {
        self.filesystems().iter().find(|fs| fs.labels.iter().any(|l| l.eq_ignore_ascii_case(label)))
    }

    /// Whether a folder of the image contains all of these files.
    pub fn has_seed(&self, folder: &str, files: &[&str]) -> bool {
        files.iter().all(|file| self.root.is_file(&format!("{folder}/{file}")))
    }

    /// The names in a folder of the machine, sorted.
    pub fn entries(&self, folder: &str) -> Vec<String> {
        let mut names = beneath::names(&self.machine.base, folder);
        names.sort();
        names.truncate(MAX_ENTRIES);
        names
    }
}

fn environment_of_init(machine: &Machine) -> BTreeMap<String, String> {
    let text = machine.fact("proc/1/environ").unwrap_or_default();
    let mut environment = BTreeMap::new();
    environment.extend(text.split('\0').filter_map(|v| v.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())));
    environment
}
