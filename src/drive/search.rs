//! Searches for drives: the likely devices first, then the others, then those that appear.

use super::devices::{self, BlockDevice, Places};
use super::label::{self, Superblock};
use super::partition;
use super::wait::{Event, Watch};
use crate::base::cancel::Cancel;
use crate::base::channel::channel;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::sort;
use crate::base::thread;
use crate::machine::Drivers;
use crate::machine::drivers::DriverKind;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long reading the present devices may take altogether; a broken disk would take a minute or more.
const PROBE: Duration = Duration::from_secs(10);
/// How long the other devices may still take once a drive is found, to learn whether it is the only one.
const GRACE: Duration = Duration::from_millis(500);
/// The most events that are taken together: those of a thousand disks that appear at once. They may arrive faster than
/// they are taken.
const MAX_EVENTS: usize = 4096;
/// How many devices are read in parallel: most of the time is spent waiting for disks.
const READERS: usize = 16;
const READER_STACK: usize = 128 * 1024;
/// The size that the kernel's sr driver reports without a medium. No medium has it, because blocks have 2048
/// bytes.
const EMPTY: u64 = 0x1f_ffff * 512;

/// The result of reading a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    Filesystem(Superblock),
    /// It was read, and has no known content.
    Nothing,
    /// A drive without a medium.
    NoMedium,
    Failed(Error),
}

/// A device and the result of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    pub device: BlockDevice,
    pub contents: Contents,
}

impl Probed {
    /// The file system, if there is one.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.contents {
            Contents::Filesystem(superblock) => Some(superblock),
            _ => None,
        }
    }

    /// Whether `name` refers to the device: a path below /dev, LABEL=, UUID=, PARTLABEL= or PARTUUID= as in fstab(5), or
    /// TYPE= as in blkid(8).
    pub fn is_named(&self, name: &str) -> bool {
        let of = |key: &str| name.strip_prefix(key).map(|v| v.trim_matches('"'));
        let text = |wanted: &str, found: Option<&String>| found.is_some_and(|f| f.eq_ignore_ascii_case(wanted));
        if let Some(label) = of("LABEL=") {
            return self.superblock().is_some_and(|s| s.label.as_deref() == Some(label));
        }
        if let Some(uuid) = of("UUID=") {
            return self.superblock().is_some_and(|s| text(uuid, s.uuid.as_ref()));
        }
        if let Some(label) = of("PARTLABEL=") {
            return self.device.partition_label.as_deref() == Some(label);
        }
        if let Some(wanted) = of("PARTUUID=") {
            return self.is_partition(wanted);
        }
        if let Some(kind) = of("TYPE=") {
            return self.superblock().is_some_and(|s| s.kind == kind);
        }
        self.device.node.as_os_str() == name
    }

    /// Whether it is the partition with the PARTUUID `wanted`, or that with `UUID/PARTNROFF=N`, N numbers after it
    /// (Documentation/admin-guide/kernel-parameters.txt, root=).
    fn is_partition(&self, wanted: &str) -> bool {
        let (uuid, offset) = wanted.split_once("/PARTNROFF=").unwrap_or((wanted, "0"));
        let (device, Ok(offset)) = (&self.device, offset.parse::<i64>()) else { return false };
        if let Some(own) = device.partition_uuid.as_ref().filter(|_| offset == 0) {
            return own.eq_ignore_ascii_case(uuid);
        }
        let number = device.number.and_then(|n| u32::try_from(i64::from(n).checked_sub(offset)?).ok());
        // A disk that did not answer for its partition is not asked again.
        let (Some(number), Some(disk), false) = (number, device.disk(), matches!(self.contents, Contents::Failed(_)))
        else {
            return false;
        };
        open(&disk).is_ok_and(|disk| partition::has_uuid(&disk, number, uuid))
    }
}

impl fmt::Display for Probed {
    /// As in `/dev/vda1 (ext4, label root)` or `/dev/sr0 (no medium)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.device.node.display())?;
        match &self.contents {
            Contents::Filesystem(Superblock { kind, label: Some(label), .. }) => write!(f, "{kind}, label {label}"),
            Contents::Filesystem(Superblock { kind, second_label: Some(label), .. }) => {
                write!(f, "{kind}, label {label}")
            }
            Contents::Filesystem(Superblock { kind, .. }) => write!(f, "{kind}, no label"),
            Contents::Nothing => write!(f, "no filesystem"),
            Contents::NoMedium => write!(f, "no medium"),
            Contents::Failed(e) => write!(f, "{e}"),
        }?;
        write!(f, ")")
    }
}

fn open(node: &Path) -> Result<File> {
    // Without O_NONBLOCK an empty CD-ROM drive would first try to close its tray.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(node, flags, Mode::empty());
    file.map(File::from).map_err(|e| Error::new(format!("failed to open it: {e}")))
}

/// Identifies the content of one device.
pub fn probe(device: BlockDevice) -> Probed {
    let read = open(&device.node).and_then(|mut file| {
        // Reading would also fail, but the kernel would print an I/O error on the console.
        let empty = device.optical && file.seek(SeekFrom::End(0)).ok() == Some(EMPTY);
        if empty { Err(Error::new("no medium")) } else { label::probe(&file) }
    });
    let contents = match read {
        Ok(Some(superblock)) => Contents::Filesystem(superblock),
        Ok(None) => Contents::Nothing,
        // Drives return different errors when they are empty (ENOMEDIUM, EIO, ENXIO), but only here.
        Err(e) if device.removable => {
            log::info!("{}: no medium ({e})", device.node.display());
            Contents::NoMedium
        }
        Err(e) => Contents::Failed(e),
    };
    Probed { device, contents }
}

/// Identifies the content of each of `devices`, several at a time, and returns it in their order. A device
/// that has not answered by the deadline counts as failed, and its thread is abandoned; this also happens
/// shortly after `enough` has returned true for a result.
pub fn probe_all(devices: Vec<BlockDevice>, deadline: Deadline, enough: impl Fn(&Probed) -> bool) -> Vec<Probed> {
    probe_by(probe, devices, deadline, enough)
}

fn probe_by(
    probe: fn(BlockDevice) -> Probed,
    devices: Vec<BlockDevice>,
    deadline: Deadline,
    enough: impl Fn(&Probed) -> bool,
) -> Vec<Probed> {
    let mut results: Vec<Option<Probed>> = vec![None; devices.len()];
    let queue = Arc::new(Mutex::new(devices.clone().into_iter().enumerate()));
    let (sender, receiver) = channel();
    let reader = || {
        let (sender, queue) = (sender.clone(), Arc::clone(&queue));
        move || {
            // The lock is not held while a device is read.
            let next = || queue.lock().ok().and_then(|mut queue| queue.next());
            while let Some((at, device)) = next() {
                if !sender.send((at, probe(device))) {
                    break;
                }
            }
        }
    };
    let spawn = |_: &usize| thread::spawn_with_stack(READER_STACK, reader()).is_ok();
    if (0..READERS.min(devices.len())).take_while(spawn).count() == 0 {
        // No thread could be started: slower, and without the deadline.
        reader()();
    }
    drop(sender);
    let mut deadline = deadline;
    while let Some((at, probed)) = receiver.receive(Some(deadline)) {
        if enough(&probed) {
            deadline = deadline.at_most(GRACE);
        }
        if let Some(result) = results.get_mut(at) {
            *result = Some(probed);
        }
    }
    let late = |device| Probed { device, contents: Contents::Failed(Error::new("it did not answer in time")) };
    results.into_iter().zip(devices).map(|(result, device)| result.unwrap_or_else(|| late(device))).collect()
}

/// A search for drives by label.
///
/// Each step returns new drives, best first: `scan` those that are present, likely devices before others, and
/// `wait` those that appear later. The caller stops at the first good one.
pub struct DriveSearch {
    places: Places,
    labels: Vec<String>,
    kinds: Vec<&'static str>,
    watch: Option<Watch>,
    /// Present devices that have not been read yet, likely ones first. None before the first step.
    waiting: Option<(Vec<BlockDevice>, Vec<BlockDevice>)>,
    seen: Vec<Probed>,
    notes: Vec<String>,
    /// Drivers for devices without one, once they may be loaded.
    drivers: Option<Drivers>,
}

impl DriveSearch {
    /// A search for drives whose label is one of `labels`, ignoring case. Subscribes to the kernel's events
    /// first, so that nothing is missed between reading and waiting.
    pub fn new(labels: &[impl AsRef<str>], places: Places) -> Self {
        let (watch, notes) = match Watch::new() {
            Ok(watch) => (Some(watch), Vec::new()),
            Err(e) => (None, vec![e.to_string()]),
        };
        let labels = labels.iter().map(|label| label.as_ref().to_owned()).collect();
        DriveSearch { places, labels, kinds: Vec::new(), watch, waiting: None, seen: Vec::new(), notes, drivers: None }
    }

    /// Also accepts drives with a file system of one of these types, whatever their label.
    pub fn also(&mut self, kinds: impl IntoIterator<Item = &'static str>) {
        self.kinds.extend(kinds);
    }

    /// Loads drivers for disks and CD-ROMs without one, now and when one appears. Returns whether any was
    /// loaded: then `scan` finds more devices.
    pub fn use_drivers(&mut self, mut drivers: Drivers) -> bool {
        let loaded = drivers.for_devices(DriverKind::Storage);
        self.drivers = Some(drivers);
        if loaded {
            self.waiting = None;
        }
        loaded
    }

    /// The drivers in use, for devices of other kinds.
    pub fn drivers(&mut self) -> Option<&mut Drivers> {
        self.drivers.as_mut()
    }

    /// The devices read so far, with their contents.
    pub fn seen(&self) -> &[Probed] {
        &self.seen
    }

    /// Warnings, one line each: two drives with the same label, devices that could not be read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whole disks with a FAT or ISO 9660 file system and any other label, best first: cloud-init tries these
    /// if no drive has the label of a config drive.
    pub fn unlabelled(&self) -> Vec<BlockDevice> {
        let suits = |probed: &&Probed| {
            !probed.device.partition
                && probed.superblock().is_some_and(|s| matches!(s.kind, "vfat" | "iso9660") && !self.is_wanted(s))
        };
        best_first(self.seen.iter().filter(suits).map(|probed| probed.device.clone()).collect())
    }

    /// The next of the present drives; empty once all devices were read.
    ///
    /// # Errors
    /// sysfs cannot be read.
    pub fn scan(&mut self, deadline: Deadline) -> Result<Vec<BlockDevice>> {
        let (likely, others) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let is_new = |device: &BlockDevice| !self.seen.iter().any(|seen| seen.device.name == device.name);
                devices::list(&self.places)?.into_iter().filter(is_new).partition(|device| device.likely)
            }
        };
        let (now, later) = if likely.is_empty() { (others, Vec::new()) } else { (likely, others) };
        let more = !later.is_empty();
        self.waiting = Some((Vec::new(), later));
        let found = self.look(now, deadline.at_most(PROBE));
        if found.is_empty() && more { self.scan(deadline) } else { Ok(found) }
    }

    /// Waits until a device appears or changes, and reads it. Returns false if the deadline has passed, or
    /// there is nothing to wait for.
    ///
    /// # Errors
    /// The kernel's events cannot be read.
    pub fn wait_for_change(&mut self, deadline: Deadline) -> Result<bool> {
        let Some(event) = self.next_event(deadline, None)? else { return Ok(false) };
        self.take(vec![event], deadline)?;
        Ok(true)
    }

    /// Waits for drives that appear or get a medium. Empty if the deadline passes or `cancel` is cancelled.
    ///
    /// # Errors
    /// The kernel's events cannot be read.
    pub fn wait(&mut self, deadline: Deadline, cancel: Option<&Cancel>) -> Result<Vec<BlockDevice>> {
        let Some(watch) = &mut self.watch else { return Ok(Vec::new()) };
        // Only CD-ROM drives: looking into a floppy drive takes seconds.
        for empty in self.seen.iter().filter(|probed| probed.contents == Contents::NoMedium && probed.device.optical) {
            watch.poll_medium(&self.places, &empty.device.name);
        }
        while let Some(first) = self.next_event(deadline, cancel)? {
            let found = self.take(vec![first], deadline)?;
            // There may always be a next event: some drives report a change whenever they are opened.
            if !found.is_empty() || deadline.passed() || cancel.is_some_and(Cancel::is_cancelled) {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The drives that have appeared or got a medium by now; the deadline is for reading them.
    ///
    /// # Errors
    /// The kernel's events cannot be read.
    pub fn appeared(&mut self, deadline: Deadline) -> Result<Vec<BlockDevice>> {
        self.take(Vec::new(), deadline)
    }

    /// Loads drivers for new devices, and reads those that have changed, according to `events` and further
    /// ones that have arrived. Returns the drives among them.
    fn take(&mut self, mut events: Vec<Event>, deadline: Deadline) -> Result<Vec<BlockDevice>> {
        for _ in 0..MAX_EVENTS {
            let Some(event) = self.next_event(Deadline::after(Duration::ZERO), None)? else { break };
            if !events.contains(&event) {
                events.push(event);
            }
        }
        if let Some(drivers) =
            self.drivers.as_mut().filter(|_| events.iter().any(|e| matches!(e, Event::BlockDevice | Event::Lost)))
        {
            drivers.for_devices(DriverKind::Storage);
        }
        let changed = match events.contains(&Event::Lost) {
            true => devices::list(&self.places)?,
            false => events.iter().filter_map(|event| self.changed(event)).collect(),
        };
        Ok(self.look(changed, deadline.at_most(PROBE)))
    }

    fn next_event(&mut self, deadline: Deadline, cancel: Option<&Cancel>) -> Result<Option<Event>> {
        self.watch.as_mut().map_or(Ok(None), |watch| watch.next(deadline, cancel))
    }

    fn changed(&self, event: &Event) -> Option<BlockDevice> {
        match event {
            Event::Changed(name) => devices::device(&self.places, name),
            Event::BlockDevice | Event::Lost => None,
        }
    }

    fn is_wanted(&self, superblock: &Superblock) -> bool {
        self.kinds.contains(&superblock.kind) || self.labels.iter().any(|label| superblock.is_labelled(label))
    }

    /// Reads `devices`, records their contents, and returns the drives among them, best first.
    fn look(&mut self, devices: Vec<BlockDevice>, deadline: Deadline) -> Vec<BlockDevice> {
        let wanted = |probed: &Probed| probed.superblock().is_some_and(|superblock| self.is_wanted(superblock));
        let probed = probe_all(devices, deadline, wanted);
        let found = best_first(probed.iter().filter(|p| wanted(p)).map(|probed| probed.device.clone()).collect());
        for probed in probed {
            if let Contents::Failed(_) = probed.contents {
                self.notes.push(format!("could not look for a drive on {probed}"));
            }
            self.seen.retain(|seen| seen.device.name != probed.device.name);
            self.seen.push(probed);
        }
        sort::by(&mut self.seen, |a, b| a.device.name.cmp(&b.device.name));
        for label in &self.labels {
            let is = |device: &&BlockDevice| {
                let seen = self.seen.iter().find(|seen| seen.device.name == device.name);
                seen.and_then(Probed::superblock).is_some_and(|superblock| superblock.is_labelled(label))
            };
            let mut same = found.iter().filter(is);
            if let Some(first) = same.next() {
                // A whole disk and its partition may both show the same file system.
                for second in same.filter(|second| !second.shares_disk(first)) {
                    let (first, second) = (first.node.display(), second.node.display());
                    self.notes.push(format!("two drives have the label {label}: {first} goes before {second}"));
                }
            }
        }
        found
    }
}

/// Sorts drives in cloud-init's order: by name, last first, so vdb before vda.
fn best_first(mut devices: Vec<BlockDevice>) -> Vec<BlockDevice> {
    sort::by(&mut devices, |a, b| b.node.cmp(&a.node));
    devices
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
