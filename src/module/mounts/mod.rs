//! # mounts
//!
//! Writes lines of /etc/fstab, makes the mount points, and mounts what the real root has not mounted yet. A name may be a
//! path, LABEL=, UUID=, PARTLABEL=, PARTUUID=, a short name such as vdb1, or a name of the datasource such as ephemeral0.
//! Fields that an entry lacks come from `mount_default_fields`. Every line gets `nofail`, so that none can stop a boot.
//! Lines are written before the pivot, except those of a device without a file system, or on a disk that `disk_setup` or `fs_setup`
//! names, if there is one of these: they are added when it has run. `swap` makes a swap file.
//!
//! ```yaml
//! mounts:
//! - [vdb1, /data, ext4, 'defaults,noatime']
//! - [LABEL=backup, /backup]
//! swap:
//!   filename: /swap.img
//!   size: auto
//!   maxsize: 2G
//! ```
//!
//! ```schema
//! mounts: [[str]1..6]+
//! mount_default_fields: [str | null]6..6
//! swap: {
//!  filename: str
//!  size: (auto) | int | str/size
//!  maxsize: int | str/size
//! }
//! ```

mod device;
mod swap;

use super::{BeforeServices, Module};
use crate::base::error::Result;
use crate::base::mask;
use crate::document::{Value, wrong};
use crate::drive::block;
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::fstab::{self, FSTAB};
use crate::system::service::uses_systemd;
use crate::system::{ModuleContext, device_names, mount_table};
use device::What;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long `mount -a` may take: a server that does not answer must not delay the boot.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
/// Options with which an entry itself decides when it is mounted (systemd.mount(5)), beside [`BEFORE`].
const OWN_ORDER: [&str; 7] = [
    "x-systemd.automount",
    "x-systemd.after",
    "x-systemd.requires",
    "x-systemd.requires-mounts-for",
    "x-systemd.wants-mounts-for",
    "x-systemd.wanted-by",
    "x-systemd.required-by",
];
const BEFORE: &str = "x-systemd.before";
/// Options that order an entry after the network stage, as cloud-init's default does. There that stage comes before
/// sysinit.target; here it comes after, and early services that need the mount point would wait for themselves.
const AFTER_STAGE: [&str; 4] = [
    "x-systemd.after=cloud-init-network.service",
    "x-systemd.after=cloud-init.service",
    "x-systemd.requires=cloud-init-network.service",
    "x-systemd.requires=cloud-init.service",
];
/// The keys of disk_setup.
const DISK_KEYS: [&str; 2] = ["disk_setup", "fs_setup"];
/// How many mounts deep an entry's source is followed: a folder of a mount that is itself a folder of a mount, and so on.
const MAX_DEPTH: usize = 16;
/// How long systemd waits for the device of an entry. Then what waits for the mount continues.
const DEVICE_TIMEOUT: &str = "x-systemd.device-timeout=30s";

pub static MODULE: Module = Module {
    name: "mounts",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|cx| {
        let implied = || implied(cx, uses_systemd(cx.root, cx.distro));
        // A disk that the datasource names may appear late.
        !gives(cx, &["mounts", "swap"]) && !implied().iter().any(|entry| entry.is_written)
    }),
    before_services: BeforeServices::Step(before_services),
    // A swap file takes long.
    repeats: true,
    ..Module::NEW
};

/// An entry of fstab.
#[derive(Debug, Clone)]
struct Entry {
    /// Device, mount point, type, options, dump, pass.
    fields: [String; 6],
    /// Whether it is on a block device.
    local: bool,
    /// Why it cannot be mounted now.
    missing: Option<String>,
    /// Whether it is written to fstab. Also if its device is missing, which may appear or get a file system
    /// later.
    is_written: bool,
    /// Whether services are to start after it is mounted or has failed.
    is_awaited: bool,
    /// Whether systemd's wait for its device is to be shorter.
    is_timed: bool,
    order: Order,
}

/// When something can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    target: Target,
    /// Whether the local stage can mount it: it is not on the network, and does not decide itself when it is mounted.
    is_local: bool,
    /// Whether it has to wait for a device, or for the file system on it.
    is_late: bool,
}

/// The target of systemd that may wait for a mount, from the earliest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Local,
    Remote,
    None,
}

impl Order {
    /// The order of a line with this type and these options.
    fn of(kind: &str, options: &str) -> Order {
        let is_on_network = mount_table::is_network(kind) || has(options, "_netdev");
        let is_own = has(options, "noauto") || OWN_ORDER.iter().any(|o| has(options, o));
        let is_before = |target: &str| options.split(',').any(|o| o.strip_prefix(BEFORE) == Some(target));
        let target = match () {
            () if is_own => Target::None,
            () if is_before("=local-fs.target") => Target::Local,
            () if is_before("=remote-fs.target") => Target::Remote,
            () if has(options, "nofail") => Target::None,
            () if is_on_network => Target::Remote,
            () => Target::Local,
        };
        Order { target, is_local: !is_on_network && !is_own, is_late: false }
    }

    /// The order of what also depends on `other`.
    fn after(self, other: Order) -> Order {
        Order {
            target: self.target.max(other.target),
            is_local: self.is_local && other.is_local,
            is_late: self.is_late || other.is_late,
        }
    }
}

impl Entry {
    fn line(&self) -> String {
        self.fields.iter().map(|f| fstab::escape(f)).collect::<Vec<_>>().join("\t")
    }

    fn point(&self) -> &str {
        &self.fields[1]
    }

    /// A message: why it cannot be mounted now, and what happens with it.
    fn note(&self, why: &str) -> String {
        let what = if self.is_written { "is not mounted yet" } else { "is ignored" };
        format!("mounts: {} at {} {what}: {why}", self.fields[0], self.point())
    }

    fn has(&self, option: &str) -> bool {
        has(&self.fields[3], option)
    }

    /// The folders that have to be mounted before it, as written in fstab: those above its mount point, and if its source is a
    /// folder or file, that and those above it (RequiresMountsFor= of systemd.unit(5)).
    fn needs(&self) -> Vec<String> {
        let above = |path: &str| {
            let path = fstab::escape(path.trim_end_matches('/'));
            path.match_indices('/').skip(1).map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>()
        };
        let [spec, point, ..] = &self.fields;
        let mut needs = if point.starts_with('/') { above(point) } else { Vec::new() };
        if spec.starts_with('/') && !spec.starts_with("//") && !spec.starts_with("/dev/") {
            needs.extend(above(&format!("{}/.", spec.trim_end_matches('/'))));
        }
        needs
    }

    /// Adds the options for systemd that depend on when it can be mounted, and the mark.
    fn finish(&mut self) {
        let options = &mut self.fields[3];
        let target = match self.order.target {
            Target::Local => Some("local"),
            Target::Remote => Some("remote"),
            Target::None => None,
        };
        if let Some(target) = target.filter(|_| self.is_awaited && !self.order.is_late) {
            options.push_str(&format!(",{BEFORE}={target}-fs.target"));
        }
        if self.is_timed {
            options.push_str(&format!(",{DEVICE_TIMEOUT}"));
        }
        options.push_str(&format!(",{}", fstab::MARK));
    }
}

/// Whether an option is among these, with or without a value.
fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|o| o.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

/// Whether the configuration has a value for one of these keys.
fn gives(cx: &ModuleContext, keys: &[&str]) -> bool {
    keys.iter().any(|key| cx.get(key).is_some_and(|value| !value.is_null()))
}

/// Whether disk_setup has something to do, in a build that has it.
fn sets_up_disks(cx: &ModuleContext) -> bool {
    cfg!(feature = "software") && gives(cx, &DISK_KEYS)
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    // systemd checks the devices in fstab as soon as they appear: mkfs would find them in use.
    let are_disks_due = sets_up_disks(cx) && !cx.root.is_plan();
    let mut entries = entries(cx, are_disks_due)?;
    if are_disks_due {
        for entry in entries.extract_if(.., |entry| entry.order.is_late) {
            log::info!("mounts: {} at {} gets its line once disks are set up", entry.fields[0], entry.point());
        }
    }
    for entry in &entries {
        if let Some(why) = &entry.missing {
            let note = entry.note(why);
            // In an initramfs a device may be late; the running system checks again.
            if cx.root.is_plan() { cx.report.warn(note) } else { log::info!("{note}") }
        }
        if entry.is_written && mask::options(&entry.fields[3]) != entry.fields[3] {
            cx.report.warn(format_args!(
                "mounts: the options of {} hold a password, and every user can read {FSTAB}: \
                 expected credentials=FILE (mount.cifs(8)) and the file by write_files, with permissions 0600",
                entry.point()
            ));
        }
    }
    write(cx, &entries, None).map(drop)
}

/// Mounts in the local stage what systemd does not know yet, for example a file system that disk_setup has made: otherwise a
/// service may start with what the mount hides. What needs the network, is not there, or takes long is left to [`running`].
fn before_services(cx: &mut ModuleContext) -> Result<()> {
    let mut entries = entries(cx, false)?;
    if sets_up_disks(cx) {
        entries.retain(|entry| !entry.order.is_late);
    }
    let changed = write(cx, &entries, None)?;
    let systemd = uses_systemd(cx.root, cx.distro);
    let mounted = mounted_points(cx);
    let is_due = |e: &&Entry| e.order.is_local && !is_cared_for(cx, e, &mounted, systemd);
    let due: Vec<Entry> = entries.iter().filter(is_due).cloned().collect();
    mount_each(cx, &due, &mounted);
    if changed && entries.iter().any(|e| !e.order.is_late && e.fields[2] == "swap") {
        cx.root.run(Command::new(["swapon", "-a"]))?;
    }
    if changed && systemd {
        cx.root.run(Command::new(["systemctl", "daemon-reload"]))?;
    }
    Ok(())
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let entries = entries(cx, false)?;
    for entry in &entries {
        if let Some(why) = &entry.missing {
            cx.report.warn(entry.note(why));
        }
    }
    let swap = swap::make(cx).unwrap_or_else(|e| {
        cx.report.warn(format_args!("failed to set up swap: {e}"));
        None
    });
    let changed = write(cx, &entries, swap.as_ref().map(|s| s.path.as_str()))?;
    let systemd = uses_systemd(cx.root, cx.distro);
    let swaps = swap.is_some() || entries.iter().any(|e| e.missing.is_none() && e.fields[2] == "swap");
    // systemd has handled every line of the fstab that it found at boot, but not a swap file that did not
    // exist then.
    if swaps && (changed || !systemd || swap.is_some_and(|s| s.is_new)) {
        cx.root.run(Command::new(["swapon", "-a"]))?;
    }
    let mounted = mounted_points(cx);
    if !changed && entries.iter().all(|e| is_cared_for(cx, e, &mounted, systemd)) {
        // systemd would mount it only when its line says, maybe after the user's scripts of the first boot.
        mount_each(cx, entries.iter().filter(|e| e.local), &mounted);
        return Ok(());
    }
    let mounted = cx.root.run(Command::new(["mount", "-a"]).limit(MOUNT_LIMIT));
    if systemd {
        cx.root.run(Command::new(["systemctl", "daemon-reload"]))?;
    }
    match mounted {
        // It fails for a device without a file system, which has been reported.
        Err(e) if entries.iter().any(|e| e.is_written && e.missing.is_some()) => {
            log::info!("{e}");
            Ok(())
        }
        result => result,
    }
}

/// Whether nothing needs to be done for an entry: it is mounted, or systemd has read it and will mount it.
fn is_cared_for(cx: &ModuleContext, entry: &Entry, mounted: &HashSet<String>, systemd: bool) -> bool {
    // A device that appears late is also mounted by systemd, which has to know the line.
    let is_left = if systemd { !entry.is_written || is_never(entry, mounted) } else { !is_wanted(entry, mounted) };
    is_left || systemd && cx.root.exists(&format!("/run/systemd/generator/{}", fstab::unit(entry.point())))
}

/// The current mount points, escaped as by the kernel (proc_pid_mounts(5)).
fn mounted_points(cx: &ModuleContext) -> HashSet<String> {
    let text = cx.root.text("/proc/self/mounts");
    text.lines().filter_map(|l| l.split(' ').nth(1)).map(str::to_owned).collect()
}

/// Whether an entry is to be mounted and is not.
fn is_wanted(entry: &Entry, mounted: &HashSet<String>) -> bool {
    !entry.order.is_late && !is_never(entry, mounted)
}

/// Whether an entry needs no mount, now or later in this boot.
fn is_never(entry: &Entry, mounted: &HashSet<String>) -> bool {
    let is_mounted = || mounted.contains(&fstab::escape(entry.point().trim_end_matches('/')));
    !entry.point().starts_with('/') || entry.has("noauto") || is_mounted()
}

/// Mounts entries that are to be mounted and are not.
fn mount_each<'a>(cx: &mut ModuleContext, entries: impl IntoIterator<Item = &'a Entry>, mounted: &HashSet<String>) {
    for entry in entries {
        if is_wanted(entry, mounted)
            && let Err(e) = cx.root.run(Command::new(["mount", entry.point()]).limit(MOUNT_LIMIT))
        {
            cx.report.warn(format_args!("mounts: {} is not mounted: {e}", entry.point()));
        }
    }
}

/// Writes the entries to fstab in place of earlier ones of ours, and creates the mount points. Returns
/// whether fstab changed. Without an entry and a swap file nothing changes.
fn write(cx: &mut ModuleContext, entries: &[Entry], swap: Option<&str>) -> Result<bool> {
    if entries.is_empty() && swap.is_none() {
        return Ok(false);
    }
    let mut taken = HashMap::new();
    let changed = cx.root.edit_text(FSTAB, Attr::root(0o644), |old| {
        let kept: Vec<&str> = old.lines().filter(|l| !fstab::is_ours(l)).collect();
        let devices = kept.iter().filter_map(|l| fstab::fields(l)).map(|[spec, point, ..]| (point, spec));
        let devices: HashMap<&str, &str> = devices.filter(|(point, _)| point.starts_with('/')).collect();
        for entry in entries {
            if let Some(device) = devices.get(fstab::escape(entry.point()).as_str()) {
                taken.insert(entry.point(), (*device).to_owned());
            }
        }
        let mut text = String::new();
        let written = entries.iter().filter(|e| e.is_written && !taken.contains_key(e.point())).map(Entry::line);
        let swap = swap.map(fstab::escape).filter(|path| {
            let is_swap = |l: &&str| fstab::fields(l).is_some_and(|[spec, ..]| spec == path);
            !kept.iter().any(is_swap) && !entries.iter().any(|e| e.is_written && fstab::escape(&e.fields[0]) == *path)
        });
        let swap = swap.map(|path| format!("{path}\tnone\tswap\tsw,nofail\t0\t0"));
        for line in kept.iter().map(|l| (*l).to_owned()).chain(written).chain(swap) {
            text += &line;
            text.push('\n');
        }
        Ok((text.trim_end_matches('\n') != old.trim_end_matches('\n')).then_some(text))
    })?;
    for entry in entries.iter().filter(|e| e.is_written) {
        if let Some(device) = taken.get(entry.point()) {
            cx.report
                .warn(format_args!("mounts: {FSTAB} has {device} at {} already: the entry is ignored", entry.point()));
        } else if entry.point().starts_with('/')
            && let Err(e) = cx.root.mkdir(entry.point(), Attr::root(0o755))
        {
            cx.report.warn(format_args!("mounts: {e}"));
        }
    }
    Ok(changed)
}

/// The entries of `mounts`, each with whether it is a mount; otherwise it removes earlier entries for the same device.
/// Errors are reported.
fn listed(cx: &mut ModuleContext, systemd: bool) -> Result<Vec<(Entry, bool)>> {
    let options = options(systemd);
    let defaults = defaults(cx, options)?;
    let list = match cx.get("mounts") {
        None => &[][..],
        Some(value) => value.as_list().ok_or_else(|| wrong("mounts", "a list", value))?,
    };
    let mut read: Vec<(Entry, bool)> = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let label = format!("mounts: entry {}", i + 1);
        let Some(fields) = value.as_list() else {
            cx.report.warn(format_args!("{}: it is ignored", wrong(&label, "a list", value)));
            continue;
        };
        let text = |i: usize| fields.get(i).and_then(Value::text).filter(|t| !t.is_empty());
        let field = |i: usize| text(i).or_else(|| defaults.get(i).cloned().flatten());
        let Some(spec) = field(0) else {
            cx.report.warn(format_args!("{label}: it names no device: it is ignored"));
            continue;
        };
        // Without a mount point it removes the entries before it; but an empty one is how some write that swap has none.
        let is_swap = || fields.get(1).is_some_and(|point| !point.is_null()) && text(2).as_deref() == Some("swap");
        let Some(point) = field(1).or_else(|| is_swap().then(|| "none".to_owned())) else {
            let found =
                entry(cx, [spec, String::new(), "auto".into(), String::new(), String::new(), String::new()], systemd);
            read.push((found, false));
            continue;
        };
        let or = |i: usize, default: &str| field(i).unwrap_or_else(|| default.to_owned());
        let fits = |value: &str| !value.is_empty() && value.len() < 4 && value.bytes().all(|b| b.is_ascii_digit());
        let number =
            |i: usize, default: &str| Some(or(i, default)).filter(|v| fits(v)).unwrap_or_else(|| "0".to_owned());
        let is_odd = [4, 5].iter().any(|i| field(*i).is_some_and(|value| !fits(&value)));
        let fields = [spec, point, or(2, "auto"), or(3, options), number(4, "0"), number(5, "2")];
        if !fields[1].starts_with('/') && fields[2] != "swap" && fields[1] != "none" {
            cx.report.warn(format_args!("{label}: the mount point is not an absolute path: it is ignored"));
            continue;
        }
        if is_odd {
            cx.report.warn(format_args!("{label}: expected numbers as the last two fields: 0 is used"));
        }
        if fields.iter().any(|f| f.contains('\0')) {
            cx.report.warn(format_args!("{label}: it holds a NUL byte: it is ignored"));
            continue;
        }
        read.push((entry(cx, fields, systemd), true));
    }
    Ok(read)
}

/// The configuration's entries and those for the source's own devices, in order. Errors are reported. With `are_disks_due`,
/// those on disks that disk_setup is to change are late.
fn entries(cx: &mut ModuleContext, are_disks_due: bool) -> Result<Vec<Entry>> {
    let systemd = uses_systemd(cx.root, cx.distro);
    let mut taken_back = HashSet::new();
    let mut entries: Vec<Entry> = Vec::new();
    for (entry, is_mount) in listed(cx, systemd)?.into_iter().rev() {
        if !is_mount {
            taken_back.insert(entry.fields[0].clone());
        } else if !taken_back.contains(&entry.fields[0]) {
            entries.push(entry);
        }
    }
    entries.reverse();
    let fstab = cx.root.text(FSTAB);
    let of_image = |device: &str| {
        let kept = fstab.lines().filter(|l| !fstab::is_ours(l)).filter_map(fstab::fields);
        let is_it = |spec: &str| cx.outside.device(spec).is_some_and(|found| found.path == device);
        kept.into_iter().any(|[spec, ..]| spec == fstab::escape(device) || spec.contains('=') && is_it(spec))
    };
    for implied in implied(cx, systemd) {
        let (device, point) = (&implied.fields[0], implied.point());
        let taken = |e: &Entry| e.fields[0] == *device || (point != "none" && e.point() == point);
        let refused = taken_back.contains(device) || of_image(device);
        if implied.missing.is_none() && !refused && !entries.iter().any(taken) {
            entries.push(implied);
        }
    }
    if are_disks_due {
        are_late_where_made(cx, &mut entries);
    }
    order(&mut entries, &fstab);
    entries.iter_mut().for_each(Entry::finish);
    Ok(entries)
}

/// Gives every entry the order of what it depends on: other entries, and lines of the image's fstab.
fn order(entries: &mut [Entry], fstab: &str) {
    let kept = fstab.lines().filter(|l| !fstab::is_ours(l)).filter_map(fstab::fields);
    let of_image: HashMap<String, Order> = kept
        .map(|[_, point, kind, options]| (point.trim_end_matches('/').to_owned(), Order::of(kind, options)))
        .collect();
    let point = |entry: &Entry| fstab::escape(entry.point().trim_end_matches('/'));
    let mut orders = of_image.clone();
    for entry in entries.iter().filter(|entry| entry.is_written) {
        orders.entry(point(entry)).or_insert(entry.order);
    }
    let of_order = |entry: &Entry| entry.needs().into_iter().filter(|path| orders.contains_key(path)).collect();
    let needs: Vec<Vec<String>> = entries.iter().map(of_order).collect();
    for _ in 0..MAX_DEPTH {
        let mut changed = false;
        for (entry, needs) in entries.iter_mut().zip(&needs) {
            let order = needs.iter().filter_map(|path| orders.get(path)).fold(entry.order, |all, o| all.after(*o));
            if order != entry.order {
                changed = true;
                entry.order = order;
                if entry.is_written && !of_image.contains_key(&point(entry)) {
                    orders.insert(point(entry), order);
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// Marks the entries on disks that disk_setup or fs_setup is to change as late, as far as these can be seen. If a disk is missing,
/// so are its partitions; but perhaps only udev's links are missing.
fn are_late_where_made(cx: &ModuleContext, entries: &mut [Entry]) {
    let Some(places) = cx.outside.places() else { return };
    let devices = device_names::to_set_up(cx, &places);
    let is_link = |path: &str| path.strip_prefix("/dev/").is_some_and(|name| name.contains('/'));
    let (mut disks, mut is_unknown) = (HashSet::new(), false);
    for path in devices {
        match block::at(&places, &path) {
            Some(block) => drop(disks.insert(block.disk().to_owned())),
            None => is_unknown |= is_link(&path),
        }
    }
    for entry in entries.iter_mut().filter(|entry| entry.local) {
        let block = cx.outside.device(&entry.fields[0]).and_then(|found| block::at(&places, &found.path));
        entry.order.is_late |= block.is_some_and(|block| is_unknown || disks.contains(block.disk()));
    }
}

/// Disks that a datasource may provide for every machine, mounted without an entry in the configuration.
fn implied(cx: &ModuleContext, systemd: bool) -> [Entry; 2] {
    [("ephemeral0", "/mnt", "auto", options(systemd), "2"), ("swap", "none", "swap", "sw", "0")].map(
        |(name, point, kind, options, pass)| {
            entry(cx, [name, point, kind, options, "0", pass].map(str::to_owned), systemd)
        },
    )
}

/// The default options of an entry, as in cloud-init; [`entry`] takes out [`AFTER_STAGE`].
fn options(systemd: bool) -> &'static str {
    if systemd { "defaults,nofail,x-systemd.after=cloud-init-network.service,_netdev" } else { "defaults,nofail" }
}

/// `mount_default_fields`, for fields that an entry lacks. YAML's `None` is a string; here it means nothing,
/// as in the documentation.
fn defaults(cx: &ModuleContext, options: &str) -> Result<Vec<Option<String>>> {
    let Some(value) = cx.get("mount_default_fields") else {
        let words = ["auto", options, "0", "2"].map(|w| Some(w.to_owned()));
        return Ok([None, None].into_iter().chain(words).collect());
    };
    let list = value.as_list().ok_or_else(|| wrong("mount_default_fields", "a list", value))?;
    Ok(list.iter().map(|v| v.text().filter(|t| !t.is_empty() && t != "None")).collect())
}

/// Finds the entry's device, and adds the options that let a boot continue without it.
fn entry(cx: &ModuleContext, mut fields: [String; 6], systemd: bool) -> Entry {
    let what = device::resolve(cx, &fields[0], &fields[2], &fields[3]);
    let noauto = has(&fields[3], "noauto");
    let (name, missing, is_device) = match what {
        What::Device(name) => (Some(name), None, true),
        What::Other(name) => (Some(name), None, false),
        // A device that is mounted by hand may be inserted later.
        What::Late(name, _) if noauto => (Some(name), None, true),
        What::Late(name, why) => (Some(name), Some(why), true),
        What::Unknown if noauto => (Some(fields[0].clone()), None, true),
        What::Unknown => (None, Some("it is no device's name".to_owned()), true),
    };
    let is_written = name.is_some();
    if let Some(name) = name {
        fields[0] = name;
    }
    let is_on_network = mount_table::is_network(&fields[2])
        || if is_device { is_on_network(cx, &fields[0]) } else { device::is_remote(&fields[0]) };
    let options = &mut fields[3];
    if options.is_empty() {
        options.push_str("defaults");
    }
    let mut is_awaited = !has(options, "nofail");
    if is_awaited && !noauto {
        options.push_str(",nofail");
    }
    if systemd && options.split(',').any(|o| AFTER_STAGE.contains(&o)) {
        let is_kept = |o: &&str| !AFTER_STAGE.contains(o) && (*o != "_netdev" || is_on_network);
        *options = options.split(',').filter(is_kept).collect::<Vec<_>>().join(",");
        is_awaited |= !is_on_network;
    }
    let [.., kind, options, _, _] = &fields;
    let has_own = noauto || [BEFORE].iter().chain(&OWN_ORDER).any(|o| has(options, o));
    let is_timed = systemd && is_device && !noauto && !has(options, "x-systemd.device-timeout");
    let mut order = Order::of(kind, options);
    order.is_local &= !is_on_network;
    order.is_late = missing.is_some();
    is_awaited &= systemd && kind != "swap" && !has_own;
    if is_awaited {
        order.target = if order.is_local { Target::Local } else { Target::Remote };
    }
    Entry { fields, local: is_device, missing, is_written, is_awaited, is_timed, order }
}

/// Whether an existing device belongs to a server.
fn is_on_network(cx: &ModuleContext, device: &str) -> bool {
    let Some(places) = cx.outside.places() else { return false };
    let found = cx.outside.device(device).and_then(|found| block::at(&places, &found.path));
    found.is_some_and(|block| block::is_on_network(&places, &block))
}

#[cfg(test)]
mod tests;
