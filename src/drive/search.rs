//! Looking for config drives: the likely devices first, then the others, then those that appear.

use super::devices::{self, Device, Places};
use super::label::{self, Superblock};
use super::wait::{Event, Watch};
use crate::base::cancel::Cancel;
use crate::base::channel::channel;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::sort;
use crate::machine::Drivers;
use crate::machine::drivers::Kind;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long the devices that are there may take to answer, all together; a broken disk takes a minute or more.
const PROBE: Duration = Duration::from_secs(10);
/// How long the other devices may take once a drive was found, to learn whether it is the only one.
const GRACE: Duration = Duration::from_millis(500);
/// How many devices are read at the same time: waiting for disks is what takes time.
const READERS: usize = 16;
const READER_STACK: usize = 128 * 1024;
/// The size that the kernel's sr driver gives a drive without a medium. No medium has it: its blocks are of 2048.
const EMPTY: u64 = 0x1f_ffff * 512;

/// What was found on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    Filesystem(Superblock),
    /// It was read, and holds nothing that is known.
    Nothing,
    /// A drive that is empty now.
    NoMedium,
    Failed(Error),
}

/// A device and what was found on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    pub device: Device,
    pub contents: Contents,
}

impl Probed {
    /// The filesystem, if there is one.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.contents {
            Contents::Filesystem(superblock) => Some(superblock),
            _ => None,
        }
    }

    /// Whether `name` refers to the device: a path below /dev, or LABEL=, UUID=, PARTLABEL= or PARTUUID= as in
    /// fstab(5).
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
        if let Some(uuid) = of("PARTUUID=") {
            return text(uuid, self.device.partition_uuid.as_ref());
        }
        self.device.node.as_os_str() == name
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

/// Reads what is on one device.
pub fn probe(device: Device) -> Probed {
    // Without O_NONBLOCK an empty CD-ROM drive first tries to close its tray.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let read = rustix::fs::open(&device.node, flags, Mode::empty())
        .map_err(|e| Error::new(format!("failed to open it: {e}")))
        .and_then(|file| {
            let mut file = File::from(file);
            // Reading would do, but the kernel would put an I/O error on the console.
            let empty = device.optical && file.seek(SeekFrom::End(0)).ok() == Some(EMPTY);
            if empty { Err(Error::new("no medium")) } else { label::probe(&file) }
        });
    let contents = match read {
        Ok(Some(superblock)) => Contents::Filesystem(superblock),
        Ok(None) => Contents::Nothing,
        // Drives differ in what they say when they are empty (ENOMEDIUM, EIO, ENXIO), none of them sooner than here.
        Err(_) if device.optical => Contents::NoMedium,
        Err(e) => Contents::Failed(e),
    };
    Probed { device, contents }
}

/// Reads what is on each of `devices`, several at a time, and returns it in their order. A device that has not answered
/// by the deadline is reported as failed, and its thread is abandoned; the same happens shortly after `enough` accepts
/// a result.
pub fn probe_all(devices: Vec<Device>, deadline: Deadline, enough: impl Fn(&Probed) -> bool) -> Vec<Probed> {
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
    let spawn = |_: &usize| thread::Builder::new().stack_size(READER_STACK).spawn(reader()).is_ok();
    if (0..READERS.min(devices.len())).take_while(spawn).count() == 0 {
        // No thread to be had: slower, and without the deadline.
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

/// A search for drives with one of some labels.
///
/// Each step returns new drives, best first: `scan` those that are present, the likely devices before the others, and
/// `wait` those that appear later. A caller stops as soon as one of them is good.
pub struct Search {
    places: Places,
    labels: Vec<String>,
    kinds: Vec<&'static str>,
    watch: Option<Watch>,
    /// Devices that are there and were not read yet, the likely ones apart. None before the first step.
    waiting: Option<(Vec<Device>, Vec<Device>)>,
    seen: Vec<Probed>,
    notes: Vec<String>,
    /// Drivers for devices that have none, once they are to be used.
    drivers: Option<Drivers>,
}

impl Search {
    /// A search for drives whose label is one of `labels`, in any case. Subscribes to the kernel's events first, so
    /// that nothing is missed between looking and waiting.
    pub fn new(labels: &[&str], places: Places) -> Self {
        let (watch, notes) = match Watch::new() {
            Ok(watch) => (Some(watch), Vec::new()),
            Err(e) => (None, vec![e.to_string()]),
        };
        let labels = labels.iter().map(|label| label.to_string()).collect();
        Search { places, labels, kinds: Vec::new(), watch, waiting: None, seen: Vec::new(), notes, drivers: None }
    }

    /// Takes drives with a filesystem of one of these types too, whatever their label.
    pub fn also(&mut self, kinds: impl IntoIterator<Item = &'static str>) {
        self.kinds.extend(kinds);
    }

    /// Loads drivers for the disks and CD-ROMs that have none, now and when one appears. Whether any was loaded: then `scan`
    /// has more to look at.
    pub fn use_drivers(&mut self, mut drivers: Drivers) -> bool {
        let loaded = drivers.for_devices(Kind::Storage);
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

    /// What was read so far, by device.
    pub fn seen(&self) -> &[Probed] {
        &self.seen
    }

    /// Warnings, one line each: two drives with the same label, devices that could not be read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whole disks with a FAT or ISO 9660 filesystem of any other label: what cloud-init tries for a config drive
    /// when none has the label. Best first.
    pub fn unlabelled(&self) -> Vec<Device> {
        let suits = |probed: &&Probed| {
            !probed.device.partition
                && probed.superblock().is_some_and(|s| matches!(s.kind, "vfat" | "iso9660") && !self.is_wanted(s))
        };
        best_first(self.seen.iter().filter(suits).map(|probed| probed.device.clone()).collect())
    }

    /// The next drives of those that are there; empty once all were looked at.
    ///
    /// # Errors
    /// If sysfs can't be read.
    pub fn scan(&mut self, deadline: Deadline) -> Result<Vec<Device>> {
        let (likely, others) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let is_new = |device: &Device| !self.seen.iter().any(|seen| seen.device.name == device.name);
                devices::list(&self.places)?.into_iter().filter(is_new).partition(|device| device.likely)
            }
        };
        let (now, later) = if likely.is_empty() { (others, Vec::new()) } else { (likely, others) };
        let more = !later.is_empty();
        self.waiting = Some((Vec::new(), later));
        let found = self.look(now, deadline.at_most(PROBE));
        if found.is_empty() && more { self.scan(deadline) } else { Ok(found) }
    }

    /// Waits until a device appears or changes, and reads it. False where the deadline has passed, or nothing can be waited for.
    ///
    /// # Errors
    /// If the kernel's events can't be read.
    pub fn wait_for_change(&mut self, deadline: Deadline) -> Result<bool> {
        let Some(event) = self.next_event(deadline, None)? else { return Ok(false) };
        self.take(vec![event], deadline)?;
        Ok(true)
    }

    /// Waits for drives that appear, or get a medium, until the deadline or until `cancel` is cancelled. Empty then.
    ///
    /// # Errors
    /// If the kernel's events can't be read.
    pub fn wait(&mut self, deadline: Deadline, cancel: Option<&Cancel>) -> Result<Vec<Device>> {
        let Some(watch) = &mut self.watch else { return Ok(Vec::new()) };
        for empty in self.seen.iter().filter(|probed| probed.contents == Contents::NoMedium) {
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

    /// Drives that have appeared, or got a medium, by now; the deadline is for reading them. Empty where there is none.
    ///
    /// # Errors
    /// If the kernel's events can't be read.
    pub fn appeared(&mut self, deadline: Deadline) -> Result<Vec<Device>> {
        self.take(Vec::new(), deadline)
    }

    /// Loads drivers for what has appeared, and reads what has changed, by `events` and those that have come by now. Gives the
    /// drives among it.
    fn take(&mut self, mut events: Vec<Event>, deadline: Deadline) -> Result<Vec<Device>> {
        while let Some(event) = self.next_event(Deadline::after(Duration::ZERO), None)? {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        if let Some(drivers) =
            self.drivers.as_mut().filter(|_| events.iter().any(|e| matches!(e, Event::Device | Event::Lost)))
        {
            drivers.for_devices(Kind::Storage);
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

    fn changed(&self, event: &Event) -> Option<Device> {
        match event {
            Event::Changed(name) => devices::device(&self.places, name),
            Event::Device | Event::Lost => None,
        }
    }

    fn is_wanted(&self, superblock: &Superblock) -> bool {
        self.kinds.contains(&superblock.kind) || self.labels.iter().any(|label| superblock.is_labelled(label))
    }

    /// Reads `devices`, remembers what is on them, and returns the drives among them, best first.
    fn look(&mut self, devices: Vec<Device>, deadline: Deadline) -> Vec<Device> {
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
            let is = |device: &&Device| {
                let seen = self.seen.iter().find(|seen| seen.device.name == device.name);
                seen.and_then(Probed::superblock).is_some_and(|superblock| superblock.is_labelled(label))
            };
            let mut same = found.iter().filter(is);
            if let Some(first) = same.next() {
                // A whole disk and its partition may both show the same filesystem.
                for second in same.filter(|second| !second.shares_disk(first)) {
                    let (first, second) = (first.node.display(), second.node.display());
                    self.notes.push(format!("two drives have the label {label}: {first} goes before {second}"));
                }
            }
        }
        found
    }
}

/// The order in which cloud-init takes drives: by name, last first, so vdb before vda.
fn best_first(mut devices: Vec<Device>) -> Vec<Device> {
    sort::by(&mut devices, |a, b| b.node.cmp(&a.node));
    devices
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
