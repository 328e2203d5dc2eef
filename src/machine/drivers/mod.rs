//! Loads drivers from the new root's kernel modules for devices that have no driver in the initramfs.
//!
//! The files are kmod's: modules.dep(5), modprobe.d(5), modules.alias and modules.softdep. Modules are plain
//! or compressed in a format that the kernel supports (`/sys/module/compression`). gzip is decompressed here;
//! any other format is left to the initramfs's `modprobe`.

mod insert;
mod lists;

use super::appear;
use super::beneath;
use super::{Machine, Tools};
use crate::base::deadline::Deadline;
use crate::base::glob;
use insert::Firmware;
use lists::{Rules, is_named};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest list that is read, in bytes: a kernel with every driver has 2 MB of aliases.
const MAX_LIST: u64 = 16 << 20;
/// How many rounds of devices that appear with a new driver are examined: a bus, its controller, the disk,
/// and what is on it.
const MAX_ROUNDS: usize = 8;
/// The most modules that are loaded.
const MAX_LOADED: usize = 256;
/// How long the initramfs's modprobe may take.
const MODPROBE_TIME: Duration = Duration::from_secs(30);
/// How long to wait until systemd-udevd has named an interface. It only renames those that are down.
const NAMING_TIME: Duration = Duration::from_secs(3);

/// The use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// Disks, CD-ROMs, and the buses that lead to them.
    Storage,
    /// Network interfaces, and the buses that lead to them.
    Network,
}

/// Devices that a datasource may be on: the bus, the pattern of the modalias, and the kind of device (None:
/// both).
const DEVICES: &[(&str, &str, Option<DriverKind>)] = &[
    // PCI classes: storage, network, USB host controllers.
    ("pci", "*bc01*", Some(DriverKind::Storage)),
    ("pci", "*bc02*", Some(DriverKind::Network)),
    ("pci", "*bc0Csc03*", Some(DriverKind::Storage)),
    // The virtio standard, section 5: 1 is a NIC, 2 a disk, 8 a SCSI host.
    ("virtio", "virtio:d00000001v*", Some(DriverKind::Network)),
    ("virtio", "virtio:d00000002v*", Some(DriverKind::Storage)),
    ("virtio", "virtio:d00000008v*", Some(DriverKind::Storage)),
    // SCSI's device types: disks and CD-ROMs.
    ("scsi", "scsi:t-0x00*", Some(DriverKind::Storage)),
    ("scsi", "scsi:t-0x05*", Some(DriverKind::Storage)),
    // USB's interface classes: mass storage, and Ethernet as a baseboard controller offers it.
    ("usb", "usb:*ic08*", Some(DriverKind::Storage)),
    ("usb", "usb:*ic02*", Some(DriverKind::Network)),
    ("mmc", "mmc:block", Some(DriverKind::Storage)),
    // Hyper-V's devices by their GUIDs, as in the modules' aliases: NIC, SCSI, IDE.
    ("vmbus", "vmbus:635161f8*", Some(DriverKind::Network)),
    ("vmbus", "vmbus:d96361ba*", Some(DriverKind::Storage)),
    ("vmbus", "vmbus:32264132*", Some(DriverKind::Storage)),
    ("xen", "xen:vif", Some(DriverKind::Network)),
    ("xen", "xen:vbd", Some(DriverKind::Storage)),
    ("xen", "xen:vscsi", Some(DriverKind::Storage)),
    // Buses that the firmware describes: Hyper-V's, and virtio without PCI.
    ("acpi", "acpi:VMB*", None),
    ("acpi", "acpi:LNRO0005:*", None),
    ("platform", "of:N*Cvirtio,mmio*", None),
    ("platform", "platform:virtio-mmio", None),
    ("platform", "of:NethernetT*", Some(DriverKind::Network)),
    ("platform", "of:Nmmc*", Some(DriverKind::Storage)),
    ("ccw", "ccw:t3832*", None),
];

/// The modules of a new root for the running kernel.
pub struct Drivers {
    /// The folder that contains `proc`, `sys` and `run`.
    base: PathBuf,
    root: PathBuf,
    release: String,
    /// The words of the kernel command line.
    words: Vec<String>,
    /// The folder of the modules, below the root. None if this kernel has no modules there.
    folder: Option<String>,
    /// The settings in modprobe.d; read when the first module is loaded.
    rules: Option<Rules>,
    /// Devices that were examined, by modalias, and modules that were tried, by name.
    looked_at: Vec<String>,
    tried: Vec<String>,
    firmware: Option<Firmware>,
    notes: Vec<String>,
}

impl Drivers {
    /// The modules of the new root at `root`, for `machine`. Reads nothing but the folder's name.
    pub fn of(machine: &Machine, root: &Path) -> Drivers {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let folders = [format!("usr/lib/modules/{release}"), format!("lib/modules/{release}")];
        let folder = folders.into_iter().find(|folder| beneath::exists(root, &format!("{folder}/modules.dep")));
        Drivers {
            base: machine.base.clone(),
            root: root.to_owned(),
            release,
            words: machine.cmdline.words().map(str::to_owned).collect(),
            folder,
            rules: None,
            looked_at: Vec::new(),
            tried: Vec::new(),
            firmware: None,
            notes: Vec::new(),
        }
    }

    /// Loads drivers for devices of a kind without one, and for devices that then appear. Returns whether
    /// anything was loaded.
    pub fn for_devices(&mut self, kind: DriverKind) -> bool {
        let mut any = false;
        let mut seen = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            let aliases = self.without_driver(kind, &mut seen);
            if aliases.is_empty() {
                break;
            }
            let Some(folder) = self.folder.clone() else {
                self.note(format!(
                    "the root has no modules for the running kernel {}: {} of its devices have no driver",
                    self.release,
                    aliases.len()
                ));
                break;
            };
            let list = self.list(&format!("{folder}/modules.alias"));
            let names: Vec<String> = lists::resolve(&list, &aliases).into_iter().map(str::to_owned).collect();
            drop(list);
            if !self.load(&names, true) {
                break;
            }
            any = true;
        }
        any
    }

    /// Loads modules by name. One that the root lacks may be built in.
    pub fn named(&mut self, names: &[&str]) -> bool {
        self.load(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), false)
    }

    /// Loads drivers of network interfaces, and `modules`, each by name unless the given file shows that the
    /// kernel has it. Waits until systemd-udevd, if it runs, has named the new interfaces.
    pub fn for_network(&mut self, modules: &[(&str, &str)]) {
        let before: Vec<String> = beneath::names(&self.base, "sys/class/net");
        if !self.for_devices(DriverKind::Network) && before.iter().all(|name| name == "lo") {
            return;
        }
        let missing = modules.iter().filter(|(_, mark)| !beneath::exists(&self.base, mark));
        self.named(&missing.map(|(name, _)| *name).collect::<Vec<_>>());
        if !beneath::exists(&self.base, "run/udev/control") {
            return;
        }
        let deadline = Deadline::after(NAMING_TIME);
        for name in beneath::names(&self.base, "sys/class/net").iter().filter(|name| !before.contains(name)) {
            if let Some(index) = beneath::read(&self.base, &format!("sys/class/net/{name}/ifindex")) {
                appear::wait_for(&self.base.join(format!("run/udev/data/n{}", index.trim())), deadline);
            }
        }
    }

    /// Warnings, one line each: a root without modules, or modules that could not be loaded.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            log::info!("{note}");
            self.notes.push(note);
        }
    }

    fn list(&self, path: &str) -> String {
        let bytes = beneath::start(&self.root, path, MAX_LIST).unwrap_or_default();
        // Without a copy, since the lists are ASCII.
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// The devices of a kind without a driver that were not examined yet, by modalias; without those in
    /// `seen`, to which their paths are added.
    fn without_driver(&mut self, kind: DriverKind, seen: &mut BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        let mut last = "";
        for (bus, ..) in DEVICES {
            if std::mem::replace(&mut last, bus) == *bus {
                continue;
            }
            let folder = format!("sys/bus/{bus}/devices");
            for device in beneath::names(&self.base, &folder) {
                let path = format!("{folder}/{device}");
                if !seen.insert(path.clone()) {
                    continue;
                }
                let Some(alias) = beneath::read(&self.base, &format!("{path}/modalias")) else { continue };
                let alias = alias.trim();
                let wanted = DEVICES.iter().any(|(of, pattern, what)| {
                    of == bus && what.is_none_or(|what| what == kind) && glob::matches(pattern, alias)
                });
                let known = |list: &[String]| list.iter().any(|a| a == alias);
                if wanted
                    && !known(&self.looked_at)
                    && !known(&found)
                    && !beneath::exists(&self.base, &format!("{path}/driver"))
                    // The firmware's description of a device, whose driver is bound to a node of its own.
                    && !beneath::exists(&self.base, &format!("{path}/physical_node/driver"))
                {
                    found.push(alias.to_owned());
                }
            }
        }
        self.looked_at.extend(found.iter().cloned());
        found
    }

    /// Loads modules and their dependencies. With `barred`, modules that modprobe.d blacklists are left out.
    fn load(&mut self, names: &[String], barred: bool) -> bool {
        let Some(folder) = self.folder.clone() else { return false };
        let names: Vec<String> = names.iter().filter(|name| !self.is_done(name)).cloned().collect();
        if names.is_empty() {
            return false;
        }
        let rules = self.rules.take().unwrap_or_else(|| Rules::read(&self.root, &self.words));
        let wanted: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !(barred && rules.is_barred(name))).collect();
        let dep = self.list(&format!("{folder}/modules.dep"));
        let soft = self.list(&format!("{folder}/modules.softdep"));
        let mut any = false;
        let mut packed = Vec::new();
        let aliases = || self.list(&format!("{folder}/modules.alias"));
        for path in lists::closure(&dep, &soft, &aliases, &wanted) {
            let name = lists::name_of(path);
            if self.is_done(&name) || self.tried.len() >= MAX_LOADED || rules.is_replaced(&name) {
                continue;
            }
            if self.firmware.is_none() {
                self.firmware = Some(Firmware::of(&self.base, &self.root));
            }
            match insert::module(&self.base, &self.root, &format!("{folder}/{path}"), &rules.options(&name)) {
                Ok(true) => {
                    log::debug!("module {name}: loaded from {}", self.root.display());
                    any = true;
                }
                Ok(false) => packed.push(name.clone()),
                Err(e) => self.note(format!("module {name} of the root could not be loaded: {e}")),
            }
            self.tried.push(name);
        }
        self.rules = Some(rules);
        any | self.modprobe(&packed)
    }

    /// Whether a module is in the kernel, or loading it was tried.
    fn is_done(&self, name: &str) -> bool {
        self.tried.iter().any(|tried| is_named(tried, name))
            || beneath::exists(&self.base, &format!("sys/module/{}", name.replace('-', "_")))
    }

    /// Has the initramfs's kmod load modules in a compression format that this kernel does not support.
    fn modprobe(&mut self, names: &[String]) -> bool {
        let [first, ..] = names else { return false };
        let (first, root) = (first.clone(), self.root.display().to_string());
        let words: Vec<&str> =
            ["modprobe", "-q", "-d", &root, "-a"].into_iter().chain(names.iter().map(String::as_str)).collect();
        match Tools::of_this_system().ask(&words, MODPROBE_TIME) {
            Some(answer) if answer.success => return true,
            Some(_) => self.note(format!("modprobe could not load all of {}", names.join(" "))),
            None => self.note(format!(
                "module {first} of the root is compressed in a way that this kernel cannot unpack, and the initramfs has no \
                 modprobe: put {first} into the initramfs"
            )),
        }
        false
    }
}

#[cfg(test)]
mod tests;
