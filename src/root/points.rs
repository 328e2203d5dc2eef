//! Mount points of the real root that are mounted only after the initramfs. They decide whether a write lasts, and who sees it.
//!
//! The real root's systemd mounts them, as its configuration says: fstab(5) and the credential `fstab.extra`, mount
//! units (systemd.mount(5)), systemd.mount-extra= and systemd.volatile= (systemd-fstab-generator(8)),
//! partitions of the root's disk (systemd-gpt-auto-generator(8)), and ostree's /var.

use super::installed::{self, UNIT_FOLDERS};
use super::layout::{STATE, is_below, is_volatile};
use super::mounts::unescape;
use super::{Root, Use};
use crate::machine::credentials;
use std::collections::BTreeSet;

/// Partition types that are mounted without a line in fstab, and their mount points (systemd-gpt-auto-generator(8)).
const PARTITIONS: [(&str, &str); 4] = [
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "home"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "srv"),
    ("4d21b016-b534-45c2-a9fb-5c16e091fd2d", "var"),
    ("7ec6f557-3bc5-4aca-b293-16ef5df639d1", "var/tmp"),
];
const GPT_AUTO: &str = "/usr/lib/systemd/system-generators/systemd-gpt-auto-generator";
/// The options of an fstab line with which systemd mounts a file system although the line says `noauto` (systemd.mount(5)).
const PULLED_IN: [&str; 3] = ["x-systemd.automount", "x-systemd.wanted-by=", "x-systemd.required-by="];
/// udev's database, with one file per device.
const UDEV: &str = "/run/udev/data";
/// Words of the kernel command line that put an overlay over the root: dracut's (dracut.cmdline(7)) and
/// overlayroot's.
const OVERLAYS: [&str; 4] = ["rd.overlay", "rd.overlayfs", "rd.live.overlay.overlayfs", "overlayroot"];

/// A mount point of the real root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// Without a leading slash, links resolved.
    pub(super) path: String,
    /// Whether what is written there is lost at the end of the boot.
    in_memory: bool,
    /// Whether the file system is mounted only if the folder is empty.
    over_empty: bool,
}

/// The mount points of the real root, as far as they are known. Paths have no leading slash.
#[derive(Default)]
pub(super) struct Mounts {
    /// All, once found, until something may have changed them.
    all: Option<Vec<String>>,
    /// Those on which nothing is mounted yet.
    unmounted: Vec<String>,
}

impl Mounts {
    /// Whether all are known.
    pub(super) fn are_known(&self) -> bool {
        self.all.is_some()
    }

    /// Takes `all` to be all mount points.
    pub(super) fn know(&mut self, all: Vec<String>) {
        self.all = Some(all);
    }

    /// Notes that they may have changed.
    pub(super) fn forget(&mut self) {
        self.all = None;
    }

    /// Whether a path is below one of those that are known.
    pub(super) fn hold(&self, path: &str) -> bool {
        self.all.iter().flatten().any(|point| is_below(path, point))
    }

    /// Those on which nothing is mounted yet.
    pub(super) fn unmounted(&self) -> &[String] {
        &self.unmounted
    }

    /// Has only these not be mounted yet.
    #[cfg(test)]
    pub(super) fn expect(&mut self, unmounted: &[&str]) {
        self.unmounted = unmounted.iter().map(|&point| point.to_owned()).collect();
    }

    /// Whether something is mounted on all of them.
    pub(super) fn are_complete(&self) -> bool {
        self.unmounted.is_empty()
    }

    /// Whether nothing is mounted on `point` yet.
    pub(super) fn lack(&self, point: &str) -> bool {
        self.unmounted.iter().any(|unmounted| unmounted == point)
    }

    /// Whether a path is one on which nothing is mounted yet, or below it.
    pub(super) fn hold_back(&self, path: &str) -> bool {
        self.unmounted.iter().any(|point| is_below(path, point))
    }

    /// Whether a file system that is not mounted yet will cover a path.
    pub(super) fn cover(&self, path: &str) -> bool {
        self.unmounted.iter().any(|point| path.len() > point.len() && is_below(path, point))
    }
}

/// Finds the mounts that will hide parts of the new root, and the folder for the state until then.
pub(super) fn find(root: &mut Root) {
    // What says where something is mounted is read as it is on the disk.
    root.overlay.set_mounts(Mounts::default(), false);
    let mut points = all(root);
    let every = points.iter().map(|point| point.path.clone()).collect();
    let disk = root.overlay.disk();
    points.retain(|point| !disk.is_mount(&point.path));
    let of_state = points.iter().find(|p| is_below(STATE, &p.path));
    let keeps_state = of_state.is_some_and(|p| p.in_memory || p.over_empty)
        || (of_state.is_some() && disk.is_read_only(STATE) && !disk.is_read_only("etc"));
    let unmounted = points.into_iter().map(|p| p.path).collect();
    root.overlay.set_mounts(Mounts { all: Some(every), unmounted }, keeps_state);
}

/// Mount points on which nothing is mounted yet.
pub(super) fn unmounted(root: &Root) -> Vec<Point> {
    let mut found = all(root);
    found.retain(|point| !root.overlay.disk().is_mount(&point.path));
    found
}

/// Whether a change of the file may change what [`all`] finds.
pub(super) fn is_source(path: &str) -> bool {
    path == "etc/fstab" || UNIT_FOLDERS.iter().any(|folder| is_below(path, folder.trim_start_matches('/')))
}

/// All mount points of the root, except for the root itself.
pub(super) fn all(root: &Root) -> Vec<Point> {
    let mut points = Points { root, found: Vec::new() };
    points.table(&root.text("/etc/fstab"));
    if root.has_run() {
        points.table(&root.text(&format!("{}/fstab.extra", credentials::SYSTEM)));
        points.cmdline();
    }
    points.units();
    if root.usage == Use::NewRoot {
        points.partitions();
    }
    points.found
}

/// Why the root is not what the running system will see. See [`Root::unfinished`].
pub(super) fn unfinished(root: &Root) -> Option<String> {
    if root.lacks_usr() {
        return Some("/usr is a file system of its own and is not mounted yet".into());
    }
    let is_on = |word: &&&str| {
        let value = root.cmdline.value(word).or_else(|| root.cmdline.has(word).then_some("1"));
        value.is_some_and(|v| !matches!(v, "" | "0" | "no" | "off" | "disabled"))
    };
    let word = OVERLAYS.iter().find(is_on).filter(|_| !root.overlay.disk().is_overlay(""))?;
    Some(format!("kernel command line: {word}: an overlay is to be mounted over the root later"))
}

struct Points<'a> {
    root: &'a Root,
    found: Vec<Point>,
}

impl Points<'_> {
    /// Adds a mount point whose content outlives the boot unless it is `in_memory`.
    fn add(&mut self, path: &str, in_memory: bool) {
        self.add_point(Point { path: path.to_owned(), in_memory, over_empty: false });
    }

    fn add_point(&mut self, point: Point) {
        let Ok(path) = self.root.overlay.resolve(&point.path, true) else { return };
        let known = self.found.iter().any(|point| point.path == path);
        let is_none = path.is_empty() || is_below(&path, "none");
        if !is_none && !known && !is_volatile(&path) {
            self.found.push(Point { path, ..point });
        }
    }

    /// The lines of an fstab.
    fn table(&mut self, text: &str) {
        for line in text.lines().filter(|l| !l.trim_start().starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, point, kind, rest @ ..] = fields.as_slice() else { continue };
            let mut options = rest.first().unwrap_or(&"").split(',');
            let is_pulled_in = options.clone().any(|o| PULLED_IN.iter().any(|option| o.starts_with(option)));
            let is_left = options.any(|o| o == "noauto") && !is_pulled_in;
            if *kind != "swap" && *point != "none" && !is_left {
                self.add(&unescape(point), is_memory(kind));
            }
        }
    }

    fn cmdline(&mut self) {
        let root = self.root;
        for extra in root.cmdline.values("systemd.mount-extra") {
            let mut fields = extra.split(':').skip(1);
            if let Some(point) = fields.next() {
                self.add(point, fields.next().is_some_and(is_memory));
            }
        }
        if root.cmdline.value("systemd.volatile") == Some("state") {
            // systemd.volatile= replaces what fstab has for /var.
            self.found.retain(|point| point.path != "var");
            self.add("var", true);
        }
        // The deployment's own /var is empty; ostree mounts the one shared by all deployments.
        if root.cmdline.value("ostree").is_some()
            && root.exists("/usr/lib/systemd/system-generators/ostree-system-generator")
        {
            self.add("var", false);
        }
    }

    /// Mount units, whether or not they are enabled: any unit that needs the path pulls its mount unit in
    /// (systemd.unit(5), RequiresMountsFor=).
    fn units(&mut self) {
        let mut seen = BTreeSet::new();
        let (own, vendor) = installed::unit_folders(self.root);
        for folder in std::iter::once(own).chain(vendor) {
            for name in self.root.list(folder).into_iter().filter(|name| name.ends_with(".mount")) {
                let text = self.root.text(&format!("{folder}/{name}"));
                if seen.insert(name) {
                    let value = |key: &str| {
                        text.lines().filter_map(|l| l.trim().strip_prefix(key)?.strip_prefix('=')).next_back()
                    };
                    // A masked unit reads as empty.
                    if let Some(point) = value("Where") {
                        self.add(point.trim(), value("Type").is_some_and(|t| is_memory(t.trim())));
                    }
                }
            }
        }
    }

    /// Partitions of the root's disk, whose types udev has read.
    fn partitions(&mut self) {
        let root = self.root;
        let off = root.cmdline.value("systemd.gpt_auto").is_some_and(|v| matches!(v, "0" | "no" | "off" | "false"));
        let Some(device) = root.overlay.disk().device("").filter(|_| !off && root.exists(GPT_AUTO)) else { return };
        let device = format!("b{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let property = |name: &str, key: &str| {
            let text = root.text(&format!("{UDEV}/{name}"));
            text.lines().find_map(|l| l.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
        };
        let Some(disk) = property(&device, "ID_PART_ENTRY_DISK") else { return };
        for name in root.list(UDEV).into_iter().filter(|name| name.starts_with('b')) {
            let kind = property(&name, "ID_PART_ENTRY_TYPE").unwrap_or_default();
            let point = PARTITIONS.iter().find(|(uuid, _)| kind == *uuid).map(|(_, point)| *point);
            if let Some(point) = point
                .filter(|p| property(&name, "ID_PART_ENTRY_DISK").as_ref() == Some(&disk) && root.list(p).is_empty())
            {
                self.add_point(Point { path: point.to_owned(), in_memory: false, over_empty: true });
            }
        }
    }
}

fn is_memory(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::machine::Cmdline;
    use crate::root::Attr;

    /// The mount points of a tree with these files and this kernel command line; those in memory have a `*`, those over an
    /// empty folder a `?`.
    fn points(line: &str, files: &[(&str, &str)]) -> String {
        let dir = TempDir::new("points");
        let mut root = dir.root(Use::Tree);
        root.cmdline = Cmdline::new(line);
        for (path, text) in files {
            root.write(path, *text, Attr::root(0o644)).unwrap();
        }
        let mut points = Points { root: &root, found: Vec::new() };
        points.table(&root.text("/etc/fstab"));
        points.cmdline();
        points.units();
        let mark = |p: &Point| {
            format!("{}{}{}", p.path, if p.in_memory { "*" } else { "" }, if p.over_empty { "?" } else { "" })
        };
        points.found.iter().map(mark).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn reads_every_source_of_mount_points() {
        let fstab = "# /x /no ext4\nLABEL=a / ext4\nLABEL=b /var\\040x ext4 defaults 0 2\nLABEL=s none swap\n\
                     tmpfs /tmp tmpfs\ntmpfs /var/tmp tmpfs\nLABEL=n /mnt ext4 noauto,x\nbroken\n";
        assert_eq!(points("", &[("/etc/fstab", fstab)]), "var x var/tmp*");
        for (option, found) in [("automount", "home"), ("wanted-by=a.service", "home"), ("device-timeout=1", "")] {
            let fstab = format!("LABEL=h /home ext4 noauto,x-systemd.{option} 0 2\n");
            assert_eq!(points("", &[("/etc/fstab", &fstab)]), found, "{option}");
        }
        let units = [
            ("/etc/systemd/system/srv.mount", ""),
            ("/usr/lib/systemd/system/srv.mount", "[Mount]\nWhere=/srv\n"),
            ("/usr/lib/systemd/system/var.mount", "[Mount]\nWhat=/dev/vdb\nWhere=/var\nType=ext4\n"),
            ("/usr/lib/systemd/system/tmp.mount", "[Mount]\nWhere=/tmp\nType=tmpfs\n"),
            ("/usr/lib/systemd/system/opt.mount", "[Mount]\nWhere=/opt\nType = x\nType=tmpfs\n"),
        ];
        assert_eq!(points("", &units), "opt* var", "srv is masked");
        let of_lib = [("/lib/systemd/system/data.mount", "[Mount]\nWhere=/data\n")];
        assert_eq!(points("", &of_lib), "data", "a root whose /lib is a folder of its own");
        let line = "systemd.mount-extra=/dev/vdb:/data:ext4:ro systemd.mount-extra=t:/cache:tmpfs systemd.mount-extra=";
        assert_eq!(points(line, &[]), "data cache*");
        assert_eq!(points("systemd.volatile=state", &[("/etc/fstab", "LABEL=v /var ext4\n")]), "var*");
        assert_eq!(points("systemd.volatile=yes", &[]), "");
        let ostree = [("/usr/lib/systemd/system-generators/ostree-system-generator", "")];
        assert_eq!(points("ostree=/ostree/boot.1/x/0", &ostree), "var");
    }

    #[test]
    fn root_without_usr_or_overlay_is_unfinished() {
        let dir = TempDir::new("points-unfinished");
        let mut root = dir.root(Use::Tree);
        root.cmdline = Cmdline::new("rd.overlay=0 overlayroot=disabled quiet");
        assert_eq!(root.unfinished(), None);
        for line in ["rd.overlay=1", "rd.overlay", "overlayroot=tmpfs:recurse=0", "rd.live.overlay.overlayfs=1"] {
            root.cmdline = Cmdline::new(line);
            assert!(root.unfinished().is_some(), "{line}");
        }
        root.cmdline = Cmdline::new("");
        root.overlay.mounts_mut().expect(&["usr/local"]);
        assert_eq!(root.unfinished(), None);
        root.overlay.mounts_mut().expect(&["usr"]);
        assert!(root.unfinished().unwrap().starts_with("/usr is "));
    }
}
