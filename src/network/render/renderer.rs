//! The common parts of renderers: how one describes itself, the root that it writes for, and its files.

use super::merge::Merge;
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::machine::{Distro, Family};
use crate::network::model::{Interface, NETPLAN_SECTIONS, Network, ORIGIN};
use crate::network::names::DeviceName;
use crate::root::installed::PROGRAM_FOLDERS;
use std::collections::HashSet;

/// Whether a path exists in the root.
pub type Exists<'a> = dyn Fn(&str) -> bool + 'a;

/// A network stack that prepivot writes for. No other file depends on its name.
#[derive(Debug)]
pub struct Renderer {
    /// cloud-init's name, as in `system_info: network: renderers`.
    pub name: &'static str,
    /// The software that reads the files.
    pub title: &'static str,
    /// How the stack is detected: any of these is enough.
    pub detected_by: &'static [Evidence],
    /// The files that it writes.
    pub owned: &'static [Owned],
    /// Files in distributions' images that configure devices for the stack: the path, and all lines of such a
    /// file except comments. They are removed; a file with other lines belongs to the administrator.
    pub image_files: &'static [(&'static str, &'static [&'static str])],
    /// Whether the stack also reads such files below /run, at the same path as below /etc.
    pub reads_run: bool,
    /// The command that makes the running stack reload its files. Empty if there is none.
    pub reload: &'static [&'static str],
    /// Whether a name server may have more than its address: a port, a device, the name of its certificate.
    pub takes_server_parts: bool,
    /// Whether it writes version 2 as it is.
    pub takes_version_2: bool,
    /// The stack's limits, for the manual.
    pub limits: &'static str,
    /// The files for a configuration.
    pub render: fn(&Network, &Target, &mut Unsupported) -> Vec<File>,
}

/// Evidence that a root has a network stack.
#[derive(Debug)]
pub struct Evidence {
    /// The only family of distributions for which this is evidence; None: any.
    pub family: Option<Family>,
    /// Programs that must all be there.
    pub programs: &'static [&'static str],
    /// Paths of which one must exist. Empty: none is needed.
    pub any_path: &'static [&'static str],
}

/// Files that a renderer writes. Files of other programs may have such names too: [`Owned::is_ours`].
#[derive(Debug)]
pub struct Owned {
    /// An absolute path, in which one `*` matches any text without a slash.
    pub pattern: &'static str,
    /// Reads the device names that such a file sets in udev.
    names: Option<fn(&str) -> Vec<DeviceName>>,
}

/// The root that files are written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub distro: Distro,
    /// Whether the root has the `ip` program; without it, ifupdown's hook lines use `route`.
    pub ip_tool: bool,
    /// Whether its netplan is older than 1.0, and refuses a file for a newer key.
    pub old_netplan: bool,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Absolute path in the root.
    pub path: String,
    pub content: String,
    /// Permission bits.
    pub mode: u32,
    /// `user:group` by name, if it is not root's.
    pub owner: Option<&'static str>,
    /// How it is merged into an existing file. None: it replaces the file.
    pub merge: Option<Merge>,
}

/// Where a renderer reports the keys and devices that its stack cannot express.
#[derive(Debug)]
pub struct Unsupported<'a> {
    stack: &'static str,
    report: &'a Problems,
    /// The names of devices that are not written.
    left_out: HashSet<String>,
}

/// The comment at the head of each file.
pub const HEADER: &str = "\
# Written by prepivot from the datasource's network configuration; it is written anew for a new instance.
# To keep your own, switch that off: network: {config: disabled} in a file in /etc/cloud/cloud.cfg.d/.
";

/// Texts in the first lines of files that prepivot or cloud-init wrote.
const MARKS: [&str; 3] =
    ["Written by prepivot ", "reated by cloud-init ", "generated from information provided by the datasource"];

impl Renderer {
    /// Whether the root has the stack.
    pub fn is_available(&self, exists: &Exists, target: &Target) -> bool {
        self.detected_by.iter().any(|e| e.holds(exists, target))
    }

    /// The files for a configuration. Parts that the stack cannot express are reported. No file refers to a device that is not written
    /// because the stack cannot have it.
    pub fn files(&self, network: &Network, target: &Target, report: &Problems) -> Vec<File> {
        let said = Problems::new();
        let mut first = Unsupported::of(self.name, &said);
        let plain = if self.takes_server_parts { None } else { network.with_plain_servers() };
        for server in plain.iter().flat_map(|(_, changed)| changed) {
            let what = format_args!("{} has the address of the name server {} alone", self.name, quoted(server));
            report.about(ORIGIN).warn(what);
        }
        let network = plain.as_ref().map_or(network, |(network, _)| network);
        if let Some(v2) = network.v2.as_ref().filter(|_| !self.takes_version_2) {
            let sections = NETPLAN_SECTIONS.iter().filter(|section| v2.contains_key(section));
            sections.for_each(|section| Unsupported::of(self.name, report).path(&format!("network.{section}")));
        }
        let files = (self.render)(network, target, &mut first);
        if first.left_out.is_empty() {
            report.absorb(said);
            return files;
        }
        let (without, on_top) = network.detached_from(first.left_out);
        let mut unsupported = Unsupported::of(self.name, report);
        on_top.iter().for_each(|vlan| unsupported.key(vlan, "link"));
        (self.render)(&without, target, &mut unsupported)
    }

    /// Whether it may write a file at this path.
    pub fn owns(&self, path: &str) -> bool {
        self.owned.iter().any(|o| o.matches(path))
    }
}

impl Evidence {
    fn holds(&self, exists: &Exists, target: &Target) -> bool {
        let has = |program: &&str| PROGRAM_FOLDERS.iter().any(|folder| exists(&format!("{folder}/{program}")));
        self.family.is_none_or(|f| f == target.distro.family)
            && self.programs.iter().all(has)
            && (self.any_path.is_empty() || self.any_path.iter().any(|path| exists(path)))
    }
}

impl Owned {
    /// Files that set no device names.
    pub const fn new(pattern: &'static str) -> Owned {
        Owned { pattern, names: None }
    }

    /// Files that set device names; `names` reads them.
    pub const fn naming(pattern: &'static str, names: fn(&str) -> Vec<DeviceName>) -> Owned {
        Owned { pattern, names: Some(names) }
    }

    /// Whether the path fits the pattern.
    pub fn matches(&self, path: &str) -> bool {
        match self.pattern.split_once('*') {
            Some((head, tail)) => path
                .strip_prefix(head)
                .and_then(|rest| rest.strip_suffix(tail))
                .is_some_and(|middle| !middle.is_empty() && !middle.contains('/')),
            None => self.pattern == path,
        }
    }

    /// Whether prepivot or cloud-init wrote the file: the path matches, and contains `cloud-init` or the
    /// first lines say so.
    pub fn is_ours(&self, path: &str, content: &str) -> bool {
        let mut head = content.lines().take(3);
        self.matches(path) && (path.contains("cloud-init") || head.any(|line| MARKS.iter().any(|m| line.contains(m))))
    }

    /// Whether such files set names in udev.
    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    /// The device names in a file at `path`. None if the path does not fit.
    pub fn names(&self, path: &str, content: &str) -> Vec<DeviceName> {
        self.names.filter(|_| self.matches(path)).map(|read| read(content)).unwrap_or_default()
    }
}

impl Target {
    /// Whether the distribution is one of SUSE's.
    pub fn is_suse(&self) -> bool {
        self.distro.family == Family::Suse
    }
}

impl File {
    /// A file that is readable by everyone.
    pub fn public(path: impl Into<String>, content: String) -> File {
        File { path: path.into(), content, mode: 0o644, owner: None, merge: None }
    }

    /// A file that only root can read.
    pub fn private(path: impl Into<String>, content: String) -> File {
        File { mode: 0o600, ..File::public(path, content) }
    }
}

impl<'a> Unsupported<'a> {
    fn of(stack: &'static str, report: &'a Problems) -> Unsupported<'a> {
        Unsupported { stack, report, left_out: HashSet::new() }
    }

    /// Notes that a device is not written. What makes it so is reported as a key.
    pub fn leave_out(&mut self, interface: &Interface) {
        self.left_out.insert(interface.name.clone());
    }

    /// Reports a key of an interface that the stack cannot express.
    pub fn key(&mut self, interface: &Interface, key: &str) {
        let (stack, name) = (self.stack, &interface.name);
        self.report.about(ORIGIN).warn(format_args!("{stack} cannot express {key} of {name}; it is ignored"));
    }

    /// Reports what the stack cannot express by its path in the document.
    pub fn path(&mut self, path: &str) {
        let stack = self.stack;
        self.report.about(ORIGIN).warn(format_args!("{stack} cannot express {path}; it is ignored"));
    }

    /// Reports a key of one family of addresses, by its path in the document, that the stack has only for both.
    pub fn apart(&mut self, path: &str) {
        let stack = self.stack;
        self.report.about(ORIGIN).warn(format_args!("{stack} has one value for IPv4 and IPv6: that of {path}"));
    }

    /// Reports those of the keys that are set.
    pub fn keys<'k>(&mut self, interface: &Interface, keys: impl IntoIterator<Item = (&'k str, bool)>) {
        keys.into_iter().filter(|(_, set)| *set).for_each(|(key, _)| self.key(interface, key));
    }
}

#[cfg(test)]
impl<'a> Unsupported<'a> {
    /// For tests of a part of a renderer.
    pub fn new(report: &'a Problems) -> Unsupported<'a> {
        Unsupported::of("test", report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owns_only_files_of_prepivot_or_cloud_init() {
        let network = Owned::new("/etc/systemd/network/10-cloud-init-*.network");
        assert!(network.matches("/etc/systemd/network/10-cloud-init-eth0.5.network"));
        assert!(!network.matches("/etc/systemd/network/20-mine.network"));
        assert!(!network.matches("/etc/systemd/network/10-cloud-init-x/y.network"));
        assert!(network.is_ours("/etc/systemd/network/10-cloud-init-eth0.network", "[Match]\n"));
        let ifcfg = Owned::new("/etc/sysconfig/network-scripts/ifcfg-*");
        let is_ours = |content: &str| ifcfg.is_ours("/etc/sysconfig/network-scripts/ifcfg-eth0", content);
        assert!(!is_ours("DEVICE=eth0\n") && is_ours(HEADER));
        assert!(is_ours("# Created by cloud-init automatically, do not edit.\n#\nDEVICE=eth0\n"));
    }
}
