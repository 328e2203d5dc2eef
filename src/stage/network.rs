//! The network configuration, written for the stack that the new root has.

use super::image::Image;
use crate::base::error::{Context, Result};
use crate::document::Value;
use crate::instance::{Instance, NetworkData};
use crate::link::rename::rename;
use crate::machine::{Machine, Nic};
use crate::network::input::{self, Choice, Input, Origin};
use crate::network::names::{self, Named};
use crate::network::render::{self, RENDERERS, link, netplan};
use crate::network::{File, Macs, Network, Renderer, Target, fallback, read};
use crate::root::{Attr, Root};

/// cloud-init's mark of a system that was upgraded in place: its network is its own.
const UPGRADED: &str = "/var/lib/cloud/data/upgraded-network";

/// Writes the network configuration that counts, of those that the kernel command line, the initramfs, the image and the
/// instance give, for the first stack of the image's preference that the root has. What an earlier instance's files of any
/// stack said is removed, unless nothing can be written. Gives what was chosen, for network-config.json.
pub fn apply(root: &mut Root, machine: &Machine, image: &Image, instance: &Instance) -> Result<Option<Value>> {
    if root.exists(UPGRADED) {
        return Ok(None);
    }
    let nics = machine.nics();
    let (origin, chosen) =
        match input::choose(&input::DEFAULT_ORDER, |origin| given(origin, machine, image, instance, &nics)) {
            Choice::Use(origin, chosen) => (origin, chosen),
            Choice::Disabled(origin) => {
                log::info!("the network is not configured: {origin} says so");
                return Ok(None);
            }
            Choice::Nothing => match default(image, &nics) {
                Some(config) => (Origin::Fallback, Input::Config(config)),
                None => return Ok(None),
            },
        };
    let macs: Macs = nics.iter().filter(|n| n.physical).map(|n| (n.mac.as_str(), n.name.as_str())).collect();
    let document = format!("network configuration ({origin})");
    let network = chosen.read(&document, &macs).context(|| "the network is not configured")?;
    write(root, image, &network)?;
    Ok(Some(as_json(&chosen)))
}

/// What one origin gives. What cannot be read is told.
fn given(origin: Origin, machine: &Machine, image: &Image, instance: &Instance, nics: &[Nic]) -> Option<Input> {
    match origin {
        Origin::Cmdline => {
            let read = input::from_cmdline(machine.cmdline.value("network-config")?);
            read.inspect_err(|e| log::warn!("{e}")).ok()
        }
        Origin::Initramfs => {
            let mac = |name: &str| nics.iter().find(|n| n.name == name).map(|n| n.mac.clone());
            read::klibc::read(&machine.base.join("run"), &machine.cmdline, mac).map(Input::Config)
        }
        Origin::SystemCfg => image.config.get("network").cloned().map(Input::Config),
        Origin::Datasource => instance.network.as_ref().map(|data| match data {
            NetworkData::Cloud(value) => Input::Config(value.clone()),
            NetworkData::Openstack(value) => Input::NetworkData(value.clone()),
            NetworkData::Eni(text) => Input::Interfaces(text.clone()),
        }),
        Origin::Fallback => None,
    }
}

/// DHCP on the machine's best device, where the image does not refuse it (`system_info: disable_fallback_netcfg`).
fn default(image: &Image, nics: &[Nic]) -> Option<Value> {
    let refused = image.config.at(&["system_info", "disable_fallback_netcfg"]).is_some_and(Value::is_true)
        || image.config.get("disable_fallback_netcfg").is_some_and(Value::is_true);
    if refused { None } else { fallback::nic(nics).map(fallback::config) }
}

fn as_json(input: &Input) -> Value {
    match input {
        Input::Config(value) | Input::NetworkData(value) => value.clone(),
        Input::Interfaces(text) => Value::from(text.as_str()),
    }
}

fn write(root: &mut Root, image: &Image, network: &Network) -> Result<()> {
    let target = Target { distro: image.distro, ip_tool: root.which("ip").is_some() };
    let configured = image.config.at(&["system_info", "network", "renderers"]).and_then(Value::as_list);
    let configured: Option<Vec<String>> = configured.map(|l| l.iter().filter_map(Value::text).collect());
    let renderer = render::choose(&|path| root.exists(path), &target, configured.as_deref())?;
    let files = (renderer.render)(network, &target);
    remove_old(root, &files)?;
    for File { path, content, mode, owner } in files {
        let ids = owner.and_then(|name| root.user_ids(name));
        let attr = ids.map_or(Attr::root(mode), |ids| Attr::owned(mode, ids));
        root.write(&path, content, attr)?;
    }
    log::info!("network: written for {}", renderer.name);
    Ok(())
}

type ReadNames = fn(&str) -> Vec<Named>;

/// Where the root's udev is told names, and what reads it.
const NAMES: [(&str, ReadNames); 4] = [
    (link::OWNED, names::of_link),
    (netplan::PATH, names::of_netplan),
    (link::RULES, names::of_rules),
    (link::SUSE_RULES, names::of_rules),
];

/// Gives this machine's links the names that the files in the root tell its udev: those of this boot's configuration, or on a
/// later boot those of the instance's. udev would do it after the pivot, but not where links swap names, and not everywhere.
pub fn rename_links(root: &Root, machine: &Machine) {
    let named: Vec<Named> =
        NAMES.iter().flat_map(|(at, read)| owned(root, at).into_iter().flat_map(|p| read(&root.text(&p)))).collect();
    if named.is_empty() {
        return;
    }
    if let Err(e) = rename(&names::renames(&named, &machine.nics())) {
        log::warn!("{e}");
    }
}

/// Removes the files that any renderer may have written for an earlier instance, but for those that are written now.
fn remove_old(root: &mut Root, files: &[File]) -> Result<()> {
    for path in RENDERERS.iter().flat_map(|r| owned_files(root, r)).collect::<Vec<_>>() {
        if !files.iter().any(|f| f.path == path) {
            root.remove(&path)?;
        }
    }
    Ok(())
}

/// The files in the root that a renderer has written, ours or cloud-init's.
pub fn owned_files(root: &Root, renderer: &Renderer) -> Vec<String> {
    renderer.owned.iter().flat_map(|pattern| owned(root, pattern)).collect()
}

/// Those whose paths fit one pattern.
fn owned(root: &Root, pattern: &str) -> Vec<String> {
    let Some((folder, _)) = pattern.rsplit_once('/') else { return Vec::new() };
    let paths = root.list(folder).into_iter().map(|name| format!("{folder}/{name}"));
    paths.filter(|path| root.is_file(path) && render::is_ours(&[pattern], path, &root.text(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn only_what_was_written_for_an_instance_is_removed() {
        let dir = TempDir::new("network-owned");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let header = render::HEADER;
        for (path, content) in [
            ("/etc/network/interfaces", "source /etc/network/interfaces.d/*\n"),
            ("/etc/network/interfaces.d/50-cloud-init", "auto eth0\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-lo", "DEVICE=lo\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-eth0", "# Created by cloud-init automatically, do not edit.\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-eth1", header),
            ("/etc/systemd/network/10-cloud-init-eth0.network", "[Match]\n"),
            ("/etc/systemd/network/10-own.network", "[Match]\n"),
        ] {
            root.write(path, content, Attr::root(0o644)).unwrap();
        }
        let written = "/etc/sysconfig/network-scripts/ifcfg-eth1";
        remove_old(&mut root, &[File::public(written, String::new())]).unwrap();
        let left = |folder: &str| root.list(folder).join(" ");
        assert_eq!(left("/etc/network"), "interfaces interfaces.d");
        assert_eq!(left("/etc/network/interfaces.d"), "");
        assert_eq!(left("/etc/sysconfig/network-scripts"), "ifcfg-eth1 ifcfg-lo");
        assert_eq!(left("/etc/systemd/network"), "10-own.network");
    }
}
