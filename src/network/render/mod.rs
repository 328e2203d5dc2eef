//! Renderers: the model as the files of one network stack each. Pure: files are written by the caller, through the root.

pub mod eni;
mod eni_device;
mod eni_route;
pub mod ini;
pub mod link;
pub mod netplan;
pub mod network_manager;
mod network_manager_device;
mod network_manager_ip;
mod network_manager_tunnel;
pub mod networkd;
mod networkd_netdev;
pub mod sysconfig;
mod sysconfig_rhel;
mod sysconfig_suse;

use super::model::Network;
use crate::base::error::{Error, Result};
use crate::machine::{Distro, Family};

/// Whether a path exists in the root.
pub type Exists<'a> = dyn Fn(&str) -> bool + 'a;

/// A network stack that can be written for.
#[derive(Debug)]
pub struct Renderer {
    /// cloud-init's name of it, as in `system_info: network: renderers`.
    pub name: &'static str,
    /// Whether the root has the stack.
    pub available: fn(&Exists, &Target) -> bool,
    pub render: fn(&Network, &Target) -> Vec<File>,
    /// Patterns (`*` within a path's part) of files that this renderer writes: what an earlier instance's files may be called.
    /// Files of others may have such names too: [`is_ours`].
    pub owned: &'static [&'static str],
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Absolute path in the root.
    pub path: String,
    pub content: String,
    /// Permission bits.
    pub mode: u32,
    /// User and group by name, where it is not root's.
    pub owner: Option<&'static str>,
}

/// What is written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub distro: Distro,
    /// Whether the root has the `ip` program; ifupdown's hook lines use `route` where it has not.
    pub ip_tool: bool,
}

/// All renderers.
pub const RENDERERS: &[Renderer] = &[
    Renderer { name: "eni", available: eni::available, render: eni::render, owned: eni::OWNED },
    Renderer { name: "sysconfig", available: sysconfig::available, render: sysconfig::render, owned: sysconfig::OWNED },
    Renderer { name: "netplan", available: netplan::available, render: netplan::render, owned: netplan::OWNED },
    Renderer {
        name: "network-manager",
        available: network_manager::available,
        render: network_manager::render,
        owned: network_manager::OWNED,
    },
    Renderer { name: "networkd", available: networkd::available, render: networkd::render, owned: networkd::OWNED },
];

/// The order that counts where a distribution has none of its own (cloud-init's DEFAULT_PRIORITY).
const DEFAULT_ORDER: &[&str] = &["eni", "sysconfig", "netplan", "network-manager", "networkd"];

/// The first renderer of an order whose stack the root has. The order is `configured` (`system_info: network: renderers`),
/// else the distribution's.
pub fn choose(exists: &Exists, target: &Target, configured: Option<&[String]>) -> Result<&'static Renderer> {
    let own: Vec<&str> = match configured {
        Some(names) => names.iter().map(String::as_str).collect(),
        None if target.distro.renderers.is_empty() => DEFAULT_ORDER.to_vec(),
        None => target.distro.renderers.to_vec(),
    };
    for name in &own {
        match by_name(name) {
            Some(renderer) if (renderer.available)(exists, target) => return Ok(renderer),
            Some(_) => {}
            None => log::info!("network renderer {name}: not known; it is passed over"),
        }
    }
    Err(Error::new(format!(
        "no network stack to write for: the root has none of {}; install one of them, or set system_info: network: renderers",
        own.join(", ")
    )))
}

/// Whether `path` fits one of the patterns, in which `*` stands for any text without a slash.
pub fn is_owned(patterns: &[&str], path: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.split_once('*') {
        Some((head, tail)) => path
            .strip_prefix(head)
            .and_then(|rest| rest.strip_suffix(tail))
            .is_some_and(|middle| !middle.is_empty() && !middle.contains('/')),
        None => *pattern == path,
    })
}

/// Whether the file at `path`, whose text is `content`, was written by a renderer with these patterns: cloud-init is in
/// its name, or its head says that it was written by prepivot or by cloud-init.
pub fn is_ours(patterns: &[&str], path: &str, content: &str) -> bool {
    const MARKS: [&str; 3] =
        ["Written by prepivot ", "reated by cloud-init ", "generated from information provided by the datasource"];
    let mut head = content.lines().take(3);
    is_owned(patterns, path) && (path.contains("cloud-init") || head.any(|line| MARKS.iter().any(|m| line.contains(m))))
}

/// The renderer called `name`.
pub fn by_name(name: &str) -> Option<&'static Renderer> {
    RENDERERS.iter().find(|r| r.name == name)
}

impl File {
    /// A file that everyone may read.
    pub fn public(path: impl Into<String>, content: String) -> File {
        File { path: path.into(), content, mode: 0o644, owner: None }
    }

    /// A file for root alone.
    pub fn private(path: impl Into<String>, content: String) -> File {
        File { path: path.into(), content, mode: 0o600, owner: None }
    }
}

impl Target {
    /// Whether the distribution is one of SUSE's.
    pub fn is_suse(&self) -> bool {
        self.distro.family == Family::Suse
    }
}

/// The comment at the head of what is written.
pub const HEADER: &str = "\
# Written by prepivot from the datasource's network configuration; it is written anew for a new instance.
# To keep your own, switch that off: network: {config: disabled} in a file in /etc/cloud/cloud.cfg.d/.
";

/// Says that a stack can't express a key of an interface.
pub fn cannot(renderer: &str, interface: &str, key: &str) {
    log::warn!("network configuration: {renderer} cannot express {key} of {interface}; it is left out");
}

/// Whether one of the programs is in a folder for programs of the root.
pub fn has_program(exists: &Exists, name: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"]
        .iter()
        .any(|folder| exists(&format!("{folder}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stack_of_the_order_that_the_root_has() {
        let chosen = |distro: &str, paths: &[&str], configured: Option<&[String]>| {
            let target = Target { distro: Distro::named(distro), ip_tool: true };
            let paths: Vec<String> = paths.iter().map(|p| p.to_string()).collect();
            choose(&|p: &str| paths.iter().any(|x| x == p), &target, configured).map(|r| r.name)
        };
        let networkd = ["/usr/bin/ip", "/usr/bin/systemctl", "/usr/lib/systemd/systemd-networkd"];
        assert_eq!(chosen("debian", &networkd, None), Ok("networkd"));
        assert_eq!(chosen("ubuntu", &[&networkd[..], &["/usr/sbin/netplan"]].concat(), None), Ok("netplan"));
        let own = ["odd".to_owned(), "networkd".to_owned()];
        assert_eq!(chosen("ubuntu", &[&networkd[..], &["/usr/sbin/netplan"]].concat(), Some(&own)), Ok("networkd"));
        assert!(chosen("debian", &[], None).unwrap_err().to_string().contains("netplan, eni, networkd"));
    }

    #[test]
    fn only_our_own_files_are_ours() {
        let owned = networkd::OWNED;
        assert!(is_owned(owned, "/etc/systemd/network/10-cloud-init-eth0.network"));
        assert!(is_owned(owned, "/etc/systemd/network/10-cloud-init-eth0.5.link"));
        assert!(!is_owned(owned, "/etc/systemd/network/20-mine.network"));
        assert!(!is_owned(owned, "/etc/systemd/network/10-cloud-init-x/y.network"));
        let ifcfg = |content: &str| is_ours(sysconfig::OWNED, "/etc/sysconfig/network-scripts/ifcfg-eth0", content);
        assert!(!ifcfg("DEVICE=eth0\n") && ifcfg(HEADER));
        assert!(ifcfg("# Created by cloud-init automatically, do not edit.\n#\nDEVICE=eth0\n"));
        assert!(is_ours(networkd::OWNED, "/etc/systemd/network/10-cloud-init-eth0.network", "[Match]\n"));
    }
}
