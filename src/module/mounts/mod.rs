//! # mounts
//!
//! Writes lines of /etc/fstab, makes the mount points, and mounts what the real root has not mounted yet. A name may be a
//! path, LABEL=, UUID=, PARTLABEL=, PARTUUID=, a short name such as vdb1, or a name of the datasource such as ephemeral0.
//! Fields that an entry lacks come from `mount_default_fields`. Every line gets `nofail`, so that none can stop a boot.
//! Lines are written before the pivot, but not those of a device without a file system where there is a `disk_setup` or an
//! `fs_setup`: those come when it has run. `swap` makes a swap file.
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

use super::Module;
use crate::base::error::Result;
use crate::base::mask;
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::Context;
use crate::system::fstab::{self, FSTAB};
use crate::system::mount_table;
use crate::system::service::uses_systemd;
use device::What;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long `mount -a` may take: a server that does not answer must not delay the boot.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
/// Options by which an entry decides itself when it is mounted (systemd.mount(5)).
const OWN_ORDER: [&str; 4] = ["x-systemd.automount", "x-systemd.after", "x-systemd.before", "x-systemd.requires"];
/// How long systemd waits for the device of an entry. Then what waits for the mount continues.
const DEVICE_TIMEOUT: &str = "x-systemd.device-timeout=30s";

pub static MODULE: Module = Module {
    name: "mounts",
    stage: Stage::Init,
    frequency: Frequency::Instance,
    provision: Some(provision),
    live: Some(live),
    idle: Some(|cx| {
        let implied = || implied(cx, uses_systemd(cx.root, cx.distro));
        // A disk that the datasource names may appear late.
        !gives(cx, &["mounts", "swap"]) && !implied().iter().any(|entry| entry.is_written)
    }),
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
        self.fields[3].split(',').any(|o| o == option)
    }
}

/// Whether the configuration has a value for one of these keys.
fn gives(cx: &Context, keys: &[&str]) -> bool {
    keys.iter().any(|key| cx.get(key).is_some_and(|value| !value.is_null()))
}

fn provision(cx: &mut Context) -> Result<()> {
    let mut entries = entries(cx)?;
    // systemd checks the devices in fstab as soon as they appear: mkfs would find them in use.
    if gives(cx, &["disk_setup", "fs_setup"]) && !cx.root.is_plan() {
        for entry in entries.extract_if(.., |entry| entry.missing.is_some()) {
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

fn live(cx: &mut Context) -> Result<()> {
    let entries = entries(cx)?;
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
        cx.root.run(Command::new(cx.stage, ["swapon", "-a"]))?;
    }
    let mounted = mounted_points(cx);
    if !changed && entries.iter().all(|e| is_cared_for(cx, e, &mounted, systemd)) {
        mount_local(cx, &entries, &mounted);
        return Ok(());
    }
    let mounted = cx.root.run(Command::new(cx.stage, ["mount", "-a"]).limit(MOUNT_LIMIT));
    if systemd {
        cx.root.run(Command::new(cx.stage, ["systemctl", "daemon-reload"]))?;
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
fn is_cared_for(cx: &Context, entry: &Entry, mounted: &HashSet<String>, systemd: bool) -> bool {
    // A device that appears late is also mounted by systemd, which has to know the line.
    let is_left = if systemd { !entry.is_written || is_never(entry, mounted) } else { !is_wanted(entry, mounted) };
    is_left || systemd && cx.root.exists(&format!("/run/systemd/generator/{}", fstab::unit(entry.point())))
}

/// The current mount points, escaped as by the kernel (proc_pid_mounts(5)).
fn mounted_points(cx: &Context) -> HashSet<String> {
    let text = cx.root.text("/proc/self/mounts");
    text.lines().filter_map(|l| l.split(' ').nth(1)).map(str::to_owned).collect()
}

/// Whether an entry is to be mounted and is not.
fn is_wanted(entry: &Entry, mounted: &HashSet<String>) -> bool {
    entry.missing.is_none() && !is_never(entry, mounted)
}

/// Whether an entry needs no mount, now or later in this boot.
fn is_never(entry: &Entry, mounted: &HashSet<String>) -> bool {
    let is_mounted = || mounted.contains(&fstab::escape(entry.point().trim_end_matches('/')));
    !entry.point().starts_with('/') || entry.has("noauto") || is_mounted()
}

/// Mounts what is on this machine's disks. systemd would do it only when the network is up (`_netdev`), maybe
/// after the user's scripts of the first boot.
fn mount_local(cx: &mut Context, entries: &[Entry], mounted: &HashSet<String>) {
    for entry in entries.iter().filter(|e| e.local) {
        if is_wanted(entry, mounted)
            && let Err(e) = cx.root.run(Command::new(cx.stage, ["mount", entry.point()]).limit(MOUNT_LIMIT))
        {
            cx.report.warn(format_args!("mounts: {} is not mounted: {e}", entry.point()));
        }
    }
}

/// Writes the entries to fstab in place of earlier ones of ours, and creates the mount points. Returns
/// whether fstab changed. Without an entry and a swap file nothing changes.
fn write(cx: &mut Context, entries: &[Entry], swap: Option<&str>) -> Result<bool> {
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
fn listed(cx: &mut Context, systemd: bool) -> Result<Vec<(Entry, bool)>> {
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
        // Without a mount point it removes the entries before it.
        let Some(point) = field(1) else {
            let found =
                entry(cx, [spec, String::new(), "auto".into(), String::new(), String::new(), String::new()], systemd);
            read.push((found, false));
            continue;
        };
        let or = |i: usize, default: &str| field(i).unwrap_or_else(|| default.to_owned());
        let number = |i: usize, default: &str| {
            let value = or(i, default);
            let fits = !value.is_empty() && value.len() < 4 && value.bytes().all(|b| b.is_ascii_digit());
            if fits { value } else { "0".to_owned() }
        };
        let fields = [spec, point, or(2, "auto"), or(3, options), number(4, "0"), number(5, "2")];
        if !fields[1].starts_with('/') && fields[2] != "swap" && fields[1] != "none" {
            cx.report.warn(format_args!("{label}: the mount point is not an absolute path: it is ignored"));
            continue;
        }
        if fields.iter().any(|f| f.contains('\0')) {
            cx.report.warn(format_args!("{label}: it holds a NUL byte: it is ignored"));
            continue;
        }
        read.push((entry(cx, fields, systemd), true));
    }
    Ok(read)
}

/// The configuration's entries and those for the source's own devices, in order. Errors are reported.
fn entries(cx: &mut Context) -> Result<Vec<Entry>> {
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
        kept.into_iter().any(|[spec, ..]| spec == fstab::escape(device))
    };
    for implied in implied(cx, systemd) {
        let (device, point) = (&implied.fields[0], implied.point());
        let taken = |e: &Entry| e.fields[0] == *device || (point != "none" && e.point() == point);
        let refused = taken_back.contains(device) || of_image(device);
        if implied.missing.is_none() && !refused && !entries.iter().any(taken) {
            entries.push(implied);
        }
    }
    Ok(entries)
}

/// Disks that a datasource may provide for every machine, mounted without an entry in the configuration.
fn implied(cx: &Context, systemd: bool) -> [Entry; 2] {
    [("ephemeral0", "/mnt", "auto", options(systemd), "2"), ("swap", "none", "swap", "sw", "0")].map(
        |(name, point, kind, options, pass)| {
            entry(cx, [name, point, kind, options, "0", pass].map(str::to_owned), systemd)
        },
    )
}

/// The default options of an entry.
fn options(systemd: bool) -> &'static str {
    if systemd { "defaults,nofail,x-systemd.after=cloud-init-network.service,_netdev" } else { "defaults,nofail" }
}

/// `mount_default_fields`, for fields that an entry lacks. YAML's `None` is a string; here it means nothing,
/// as in the documentation.
fn defaults(cx: &Context, options: &str) -> Result<Vec<Option<String>>> {
    let Some(value) = cx.get("mount_default_fields") else {
        let words = ["auto", options, "0", "2"].map(|w| Some(w.to_owned()));
        return Ok([None, None].into_iter().chain(words).collect());
    };
    let list = value.as_list().ok_or_else(|| wrong("mount_default_fields", "a list", value))?;
    Ok(list.iter().map(|v| v.text().filter(|t| !t.is_empty() && t != "None")).collect())
}

/// Finds the entry's device, and adds the options that let a boot continue without it.
fn entry(cx: &Context, mut fields: [String; 6], systemd: bool) -> Entry {
    let has =
        |options: &str, wanted: &str| options.split(',').any(|o| o == wanted || o.starts_with(&format!("{wanted}=")));
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
    let of_network = mount_table::is_network(&fields[2]) || has(&fields[3], "_netdev");
    let is_swap = fields[2] == "swap";
    let options = &mut fields[3];
    if options.is_empty() {
        options.push_str("defaults");
    }
    if !has(options, "nofail") && !noauto {
        options.push_str(",nofail");
        // Services start after it is mounted or has failed.
        if systemd && !is_swap && missing.is_none() && !OWN_ORDER.iter().any(|o| has(options, o)) {
            let target = if of_network { "remote" } else { "local" };
            options.push_str(&format!(",x-systemd.before={target}-fs.target"));
        }
    }
    if systemd && is_device && !noauto && !has(options, "x-systemd.device-timeout") {
        options.push_str(&format!(",{DEVICE_TIMEOUT}"));
    }
    options.push_str(&format!(",{}", fstab::MARK));
    Entry { fields, local: is_device, missing, is_written }
}

#[cfg(test)]
mod tests;
